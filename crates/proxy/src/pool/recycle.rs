//! Recycles connections that nobody holds any more: the next session gets them as they are, they are made fit for it,
//! or they are closed.

use weir_session::pin::Pins;
use weir_session::state::State;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::pool::waiting::Waiter;
use crate::server::connection::{DiscardReason, Expected};

impl Pools {
    /// Closes a connection that is nobody's any more. Where a session's diagnostics are to be fetched first, it is
    /// offered again afterwards, and closed then.
    pub(crate) fn retire(&mut self, ctx: &mut Context, key: ConnectionKey, discard_reason: DiscardReason) {
        self.tell_of_retained(ctx, key);
        let connection = &self.connections[key];
        if connection.replies.expected.iter().any(|expected| matches!(expected, Expected::Fetch(_))) {
            let server = connection.server;
            self.servers[server].idle.retain(|idle| *idle != key);
            return;
        }
        self.discard(ctx, key, Some(discard_reason));
    }

    /// A connection is wiped for somebody who is the first in line meanwhile.
    pub(crate) fn wipe_for(&mut self, ctx: &mut Context, key: ConnectionKey, waiter: Waiter) {
        self.servers[self.connections[key].server].waiters.push_front(waiter);
        self.tell_of_retained(ctx, key);
        self.recycle(ctx, key, Pins::empty());
    }

    /// Makes a connection fit for the next session after one that had these pins: everything is reset, and where
    /// nobody knows what there was, that is proven; or the connection goes.
    pub(crate) fn recycle(&mut self, ctx: &mut Context, key: ConnectionKey, left: Pins) {
        let connection = &self.connections[key];
        if left.intersects(Pins::OUTLIVE_RESET) || connection.discard_reason.is_some() {
            let discard_reason = connection.discard_reason.or(Some(DiscardReason::RoleLeft));
            return self.discard(ctx, key, discard_reason);
        }
        if self.connections[key].forgets_its_sql_mode() {
            return self.discard(ctx, key, Some(DiscardReason::Stale));
        }
        let connection = &self.connections[key];
        let is_opaque = left.intersects(Pins::OPAQUE) || connection.traces.is_suspect;
        if is_opaque && !connection.access.greeted.is_mariadb {
            // A login gives the roles that it should have (MySQL), whatever was made of them.
            let principal = connection.principal();
            return self.change_principal(ctx, key, principal);
        }
        if let Some(buffer) = ctx.out.buffer(connection.socket) {
            weir_protocol::command::put_reset_connection(buffer);
        }
        self.connections[key].expect(ctx, Expected::Reset);
        self.set_up_again(ctx, key, is_opaque);
    }

    /// Sets up a connection that has been reset.
    pub(crate) fn set_up_again(&mut self, ctx: &mut Context, key: ConnectionKey, is_opaque: bool) {
        let connection = &mut self.connections[key];
        connection.forget_sessions();
        let schema = connection.state.schema().to_vec();
        self.connections[key].state = ctx.interner.intern(State::fresh().with_schema(&schema));
        self.set_up(ctx, key);
        if is_opaque && self.connections[key].access.greeted.is_mariadb {
            self.connections[key].verify(ctx);
        }
    }
}

impl Pools {
    /// The statement of a client that has left is over. Where it had been answered before the client left, the
    /// connection is reset for the next one; otherwise it has served.
    pub(crate) fn finish_abandoned(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &mut self.connections[key];
        connection.settling.bytes.clear();
        connection.settling.again = false;
        connection.settling.is_rejected = false;
        connection.settling.refusals = 0;
        connection.known.found_rows = None;
        (connection.known.row_count, connection.known.has_conditions) = (None, true);
        // A KILL may be on its way.
        if connection.kills_pending == 0 && connection.replies.expected.is_empty() {
            self.recycle(ctx, key, Pins::empty());
        }
    }
}
