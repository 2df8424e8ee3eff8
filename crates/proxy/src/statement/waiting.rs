//! Limits how long sessions wait for a server.

use weir_protocol::error::ServerError;

use crate::server::errors::OUTCOME_UNKNOWN;
use crate::session::phase::Phase;
use crate::work::Work;

/// ProxySQL's number for "no connection to the hostgroup within connect_timeout_server_max".
pub(crate) const HOSTGROUP_UNREACHABLE: ServerError = ServerError { code: 9001, sqlstate: *b"HY000" };

impl Work<'_> {
    /// Whether a session that has found no server may wait for one; if not, it has been told.
    pub(crate) fn may_be_held(&mut self, hostgroup: u32) -> bool {
        let is_replay = self.session.is_replaying_ahead();
        let Phase::Waiting(wait) = &mut self.session.phase else { return true };
        // Behind a transaction that runs again by itself nobody waits.
        if wait.held.is_some() || is_replay {
            return true;
        }
        let Some(holding) = self.pools.groups.get(&hostgroup).and_then(|group| group.holding.as_ref()) else {
            return true;
        };
        wait.held = holding.try_hold();
        if wait.held.is_some() {
            return true;
        }
        let sessions_max = holding.sessions_max();
        let reason = self.why_unreachable(hostgroup);
        let message = format!(
            "hostgroup {hostgroup} has no server for this statement, and {sessions_max} sessions wait already \
             (max_held): {reason}"
        );
        self.end_wait(&message);
        false
    }

    /// Why no server of a hostgroup can be had, for people.
    fn why_unreachable(&self, hostgroup: u32) -> String {
        self.pools.why_unreachable(self.ctx.now, &self.session.requirements(self.ctx, self.pools), hostgroup)
    }

    /// A session has waited too long.
    pub(crate) fn wait_timed_out(&mut self) {
        let Phase::Waiting(wait) = &self.session.phase else { return };
        let waited_ms = (self.ctx.now - wait.since) / 1_000_000;
        let hostgroup = self.session.execution.hostgroup;
        let reason =
            self.pools.why_kept_back(self.session).unwrap_or_else(|| self.why_unreachable(hostgroup));
        let message = format!(
            "Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}"
        );
        self.end_wait(&message);
    }

    /// Nobody serves a session's statement.
    fn end_wait(&mut self, message: &str) {
        self.pools.leave_queues(self.session);
        if self.session.is_replaying_ahead() {
            // Its client has asked for nothing, and is told nothing.
            return self.answered_here();
        }
        self.ctx.statistics.totals.waits_timed_out += 1;
        tracing::warn!(session = self.session.id, told = message, "no server for a statement");
        self.refuse_wait(message);
    }

    /// A statement that names a hostgroup which nothing in the configuration has is a mistake: nobody waits for that. What
    /// a rule or a user's row names waits, for its servers may be loaded next.
    pub(crate) fn is_hinted_nowhere(&mut self) -> bool {
        let execution = &self.session.execution;
        let hostgroup = execution.hostgroup;
        if !execution.plan.decision().is_hinted || self.pools.groups.contains_key(&hostgroup) {
            return false;
        }
        let message = format!(
            "The statement's comment asks for hostgroup {hostgroup}, which does not exist: no row of mysql_servers and no \
             cluster names it"
        );
        self.refuse_wait(&message);
        true
    }

    fn refuse_wait(&mut self, message: &str) {
        if self.session.is_wrapped() && !self.session.awaits_outcome() {
            // It was kept back with all but its COMMIT done, which goes with its connection.
            let is_undone = self.session.may_write_begin_anew();
            if let Some(lease) = self.session.lease() {
                self.discard_lease(lease);
            }
            self.unwrap_write();
            if !is_undone {
                return self.fail_session(OUTCOME_UNKNOWN, message);
            }
        }
        if self.session.input.upload.is_some() {
            return self.fail_session(HOSTGROUP_UNREACHABLE, message);
        }
        self.answer_error(HOSTGROUP_UNREACHABLE, message);
    }
}
