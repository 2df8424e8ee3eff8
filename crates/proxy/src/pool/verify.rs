//! Has connections that nobody holds prove that they are as a login leaves them: see [`crate::server::verify`].

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::server::connection::DiscardReason;
use crate::server::connections::Connections;
use crate::server::verify::{Verified, last_row};

impl Pools {
    /// The answer is in, on a connection that nobody has.
    pub(crate) fn verified(&mut self, ctx: &mut Context, key: ConnectionKey) {
        if !self.connections.take_verified(ctx, key).is_some_and(|verified| verified.has_role_of_login) {
            self.connections[key].discard_reason = Some(DiscardReason::RoleLeft);
        }
        self.go_on(ctx, key);
    }
}

impl Connections {
    /// Reads the answer; none if it can't be read.
    pub(crate) fn take_verified(&mut self, ctx: &mut Context, key: ConnectionKey) -> Option<Verified> {
        let connection = &mut self[key];
        let bytes = std::mem::take(&mut connection.settling.bytes);
        let verified = last_row(&bytes)?;
        connection.state = ctx.interner.intern(connection.state.with_schema(&verified.schema));
        Some(verified)
    }

    /// Whether a connection's answer says that it tracks. If not, it is not to be used again.
    pub(crate) fn proves_tracking(&mut self, key: ConnectionKey) -> bool {
        let connection = &mut self[key];
        let bytes = std::mem::take(&mut connection.settling.bytes);
        if bytes.ends_with(b"\x011") {
            connection.traces.unproven = None;
            return true;
        }
        tracing::warn!(
            "session tracking is off on a connection after a statement that has failed: closing it"
        );
        connection.discard_reason = Some(DiscardReason::SyncFailed);
        false
    }
}
