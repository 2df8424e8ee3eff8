//! Ends statements that are killed, or whose time is up.

use weir_protocol::error;

use crate::keys::ConnectionKey;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// A statement has run longer than it may.
    pub(crate) fn statement_timed_out(&mut self) {
        let session = &mut *self.session;
        let (Phase::Running, Some(lease)) = (&session.phase, session.lease()) else { return };
        if std::mem::replace(&mut session.execution.kill.deadline_passed, true) {
            return;
        }
        let session = &*self.session;
        let timeout_ms = self.ctx.query_timeout(session) / 1_000_000;
        let (id, program) = (session.id, session.program());
        tracing::warn!(session = id, program, timeout_ms, "statement runs too long: killing it");
        self.pools.kill_backend(self.ctx, lease, true);
    }

    /// Ends a statement that was killed, or whose time was up, before it had gone out.
    pub(crate) fn is_killed_before_sent(&mut self, key: ConnectionKey) -> bool {
        let execution = &self.session.execution;
        let is_killed = execution.kill.is_killed_unsent || execution.kill.deadline_passed;
        // A COMMIT that was sent is not undone by that, and it is about to be known what has become of it.
        if execution.tries.is_sent || !is_killed || self.session.awaits_outcome() {
            return false;
        }
        let socket = self.pools.connections[key].socket;
        self.pools.reply_error(
            self.ctx,
            self.session,
            error::QUERY_INTERRUPTED,
            "Query execution was interrupted",
        );
        if self.session.is_to_replay() {
            // The part of its transaction that has run again would keep its locks.
            self.undo_on_lease();
            self.answered_here();
            return true;
        }
        self.stop_running();
        if self.pools.connections.is(key, socket) {
            self.go_on(key);
        }
        true
    }
}
