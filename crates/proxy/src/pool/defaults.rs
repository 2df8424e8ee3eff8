//! Learns the defaults with which a fresh connection begins, and which a session keeps for as long as it lives.

use std::rc::Rc;
use std::sync::Arc;

use weir_protocol::wire::Reader;
use weir_session::defaults::Defaults;
use weir_topology::SessionVariables;
use weir_topology::session_variables::{NULL, SEPARATOR};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::{Pool, Pools};
use crate::server::connection::{DiscardReason, Expected, Stage};
use crate::server::fetch::last_packet;

/// The defaults of connections that were logged in as one identity.
pub(crate) struct KnownDefaults {
    identity: usize,
    /// [`ServerShared::renewal`](weir_topology::ServerShared::renewal) from before the login.
    renewal: u64,
    defaults: Rc<Defaults>,
}

/// What has come of the question for a connection's defaults.
pub(crate) enum DefaultsAnswer {
    /// The connection's own are known now.
    Known,
    /// Nothing.
    Unknown,
    /// Another connection takes the place of this one.
    Gone,
}

impl Pools {
    /// The answer is complete.
    pub(crate) fn defaults_answered(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        variables: &Arc<SessionVariables>,
    ) -> DefaultsAnswer {
        let connection = &mut self.connections[key];
        let bytes = std::mem::take(&mut connection.settling.bytes);
        if connection.discard_reason.is_some() {
            // The reset in front was refused: these are the last session's settings.
            return DefaultsAnswer::Unknown;
        }
        let row = last_packet(&bytes).unwrap_or_default();
        let answer = Reader::new(row).lenenc_bytes().unwrap_or_default();
        let Some(defaults) = Defaults::parse(variables.names(), answer, SEPARATOR, NULL) else {
            // Refused, or with another number of values: as if nothing were known.
            tracing::debug!(
                thread_id = connection.access.greeted.thread_id,
                "a connection's defaults can't be read"
            );
            return DefaultsAnswer::Unknown;
        };
        let defaults = defaults.with(connection.defaults.variables());
        let is_fresh = connection.stage == Stage::Dialing
            || !(defaults.runs_init_connect() || connection.forgets_its_sql_mode());
        let defaults = ctx.defaults.intern(defaults);
        connection.defaults = defaults.clone();
        if !is_fresh {
            return self.close_unlike_fresh(ctx, key);
        }
        let known =
            KnownDefaults { identity: connection.identity, renewal: connection.access.renewal, defaults };
        self.servers[connection.server].note_defaults(known);
        DefaultsAnswer::Known
    }

    /// The server's init_connect has not run, as the connection was not opened but reset: another one takes its place.
    fn close_unlike_fresh(&mut self, ctx: &mut Context, key: ConnectionKey) -> DefaultsAnswer {
        let connection = &mut self.connections[key];
        if connection.stage == Stage::HandingOver {
            self.dial_instead(ctx, key);
            return DefaultsAnswer::Gone;
        }
        if connection.holder.is_none() {
            connection.discard_reason = Some(DiscardReason::Stale);
        }
        DefaultsAnswer::Unknown
    }
}

impl Pool {
    pub(crate) fn defaults_of(&self, identity: usize) -> Option<Rc<Defaults>> {
        let known = self.defaults.iter().find(|known| known.identity == identity)?;
        (known.renewal == self.server.shared.renewal()).then(|| known.defaults.clone())
    }

    fn note_defaults(&mut self, known: KnownDefaults) {
        match self.defaults.iter_mut().find(|before| before.identity == known.identity) {
            Some(before) if before.renewal > known.renewal => {}
            Some(before) => *before = known,
            None => self.defaults.push(known),
        }
    }
}

impl Pools {
    /// Asks a connection that has just been set up what it begins with. Behind the set-up, in the same write.
    pub(crate) fn ask_for_defaults(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let Some(variables) = self.servers[self.connections[key].server].server.shared.session_variables()
        else {
            // The monitor has not learnt them yet, or can't.
            return;
        };
        self.connections[key].settling.bytes.clear();
        self.connections[key].send_query(ctx, variables.session_question().as_bytes());
        self.connections[key].expect(ctx, Expected::Defaults(variables));
    }
}
