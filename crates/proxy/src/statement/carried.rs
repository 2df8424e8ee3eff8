//! Sets what a session carries on the connection that it gets: see [`crate::work::moving`].

use weir_protocol::error::ServerError;
use weir_session::pin::Pins;

use crate::keys::ConnectionKey;
use crate::server::connection::DiscardReason;
use crate::server::errors::is_wsrep_refusal;
use crate::session::moving::Moving;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// It is set.
    pub(crate) fn carried_set(&mut self, lease: ConnectionKey) {
        if self.pools.connections[lease].discard_reason.is_none() {
            let session = &mut *self.session;
            if let Some(Moving::Carried(carried)) = session.moving.take().map(|moving| *moving) {
                session.pins.insert(Pins::USER_VARIABLE);
                session.pins.note_variables(Some(carried.names));
            }
        }
        self.go_on(lease);
    }

    /// The server refuses it: the connection goes, and the session keeps what it carries. Its statement has not been sent.
    pub(crate) fn carried_refused(&mut self, lease: ConnectionKey, error: ServerError, text: &str) {
        self.pools.connections[lease].discard_reason = Some(DiscardReason::SyncFailed);
        self.pools.connections[lease].holder = None;
        let server = self.pools.connections[lease].server;
        self.session.lose_lease();
        let retries = self.ctx.snapshot.variables.connect_retries_on_failure;
        let session = &mut *self.session;
        if is_wsrep_refusal(error.code, text.as_bytes())
            && session.input.upload.is_none()
            && session.execution.tries.attempts <= retries
        {
            session.execution.tries.attempts += 1;
            session.phase = Phase::waiting(self.ctx.now);
            self.pools.suspect(self.ctx, server);
            return self.acquire();
        }
        let endpoint = &self.pools.servers[server].server.endpoint;
        let message = format!("{text} (restoring the session's user variables on {endpoint})");
        self.answer_error(error, &message);
    }
}
