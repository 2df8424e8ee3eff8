//! Sessions that wait for a server: how many may, and for how long.

use weir_protocol::error::ServerError;

use super::Core;
use super::model::{Nanos, Phase, SessionKey};
use crate::outbox::SocketId;

/// ProxySQL's number for "no connection to the hostgroup within connect_timeout_server_max".
pub(super) const HOSTGROUP_UNREACHABLE: ServerError = ServerError { code: 9001, sqlstate: *b"HY000" };

/// How long sessions wait, by hostgroup.
#[derive(Debug, Default)]
pub(super) struct WaitLimits {
    /// Where no cluster says otherwise.
    usual: Nanos,
    /// They are not the same everywhere.
    differ: bool,
}

impl Core {
    /// Whether a session that has found no server may wait for one; if not, it has been told.
    pub(super) fn may_be_held(&mut self, key: SessionKey, hostgroup: u32) -> bool {
        if self.sessions[key].held.is_some() {
            return true;
        }
        let Some(holding) = self.groups.get(&hostgroup).and_then(|group| group.holding.as_ref()) else {
            return true;
        };
        self.sessions[key].held = holding.try_hold();
        if self.sessions[key].held.is_some() {
            return true;
        }
        let sessions_max = holding.sessions_max();
        let reason = self.why_unreachable(key, hostgroup);
        let message = format!(
            "hostgroup {hostgroup} has no server for this statement, and {sessions_max} sessions wait already \
             (max_held): {reason}"
        );
        self.end_wait(key, &message);
        false
    }

    /// A session has waited too long.
    fn wait_timed_out(&mut self, key: SessionKey) {
        let Phase::Waiting(since) = self.sessions[key].phase else { return };
        let waited_ms = (self.now - since) / 1_000_000;
        let hostgroup = self.sessions[key].work.hostgroup;
        let reason = self.why_kept_back(key).unwrap_or_else(|| self.why_unreachable(key, hostgroup));
        let message = format!(
            "Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}"
        );
        self.end_wait(key, &message);
    }

    /// Nobody serves a session's statement.
    fn end_wait(&mut self, key: SessionKey, message: &str) {
        self.leave_queues(key);
        self.statistics.totals.waits_timed_out += 1;
        tracing::warn!(session = self.sessions[key].id, told = message, "nobody serves a statement");
        self.refuse_wait(key, message);
    }

    /// A statement that names a hostgroup which nothing in the configuration has is a mistake: nobody waits for that. What
    /// a rule or a user's row names waits, for its servers may be loaded next.
    pub(super) fn is_hinted_nowhere(&mut self, key: SessionKey) -> bool {
        let work = &self.sessions[key].work;
        let hostgroup = work.hostgroup;
        if !work.decision.is_hinted || self.groups.contains_key(&hostgroup) {
            return false;
        }
        let message = format!(
            "The statement's comment asks for hostgroup {hostgroup}, which does not exist: no row of mysql_servers and no \
             cluster names it"
        );
        self.refuse_wait(key, &message);
        true
    }

    fn refuse_wait(&mut self, key: SessionKey, message: &str) {
        self.sessions[key].held = None;
        self.sessions[key].phase = Phase::Running;
        if self.sessions[key].upload.is_some() {
            return self.fail_session(key, HOSTGROUP_UNREACHABLE, message);
        }
        self.reply_error(key, HOSTGROUP_UNREACHABLE, message);
        self.answered_here(key);
    }

    pub(super) fn take_wait_limits(&mut self) {
        let usual = self.snapshot.variables.connect_timeout_server_max.as_nanos() as Nanos;
        let own = self.groups.values().filter_map(|group| group.holding.as_ref()?.timeout());
        let differ = own.map(|own| own.as_nanos() as Nanos).any(|own| own != usual);
        self.wait_limits = WaitLimits { usual, differ };
    }

    fn wait_limit(&self, key: SessionKey) -> Nanos {
        if !self.wait_limits.differ {
            return self.wait_limits.usual;
        }
        let group = self.groups.get(&self.sessions[key].work.hostgroup);
        let own = group.and_then(|group| group.holding.as_ref()?.timeout());
        own.map_or(self.wait_limits.usual, |own| own.as_nanos() as Nanos)
    }

    /// When the wait of a session ends, if it is that session and waits.
    fn wait_deadline(&self, key: SessionKey, socket: SocketId) -> Option<Nanos> {
        if !self.session_is(key, socket) {
            return None;
        }
        match self.sessions[key].phase {
            Phase::Waiting(since) => Some(since.saturating_add(self.wait_limit(key))),
            _ => None,
        }
    }

    /// When the first wait ends. The queues are in order of arrival, except for sessions that were sent from one to
    /// another; those are found at the latest when they come to the front.
    pub(super) fn first_wait_deadline(&self) -> Nanos {
        let looked_at = if self.wait_limits.differ { usize::MAX } else { 1 };
        let queues = self.servers.iter().map(|pool| &pool.waiters).chain([&self.parked]);
        let waiting = queues.flat_map(|queue| queue.iter().take(looked_at));
        waiting.filter_map(|(key, socket)| self.wait_deadline(*key, *socket)).min().unwrap_or(Nanos::MAX)
    }

    /// Ends the waits that have reached their limit.
    pub(super) fn end_waits(&mut self) {
        let mut due = Vec::new();
        let queues = self.servers.iter().map(|pool| &pool.waiters).chain([&self.parked]);
        for queue in queues {
            for (key, socket) in queue {
                match self.wait_deadline(*key, *socket) {
                    Some(deadline) if deadline <= self.now => due.push((*key, *socket)),
                    Some(_) if !self.wait_limits.differ => break,
                    _ => {}
                }
            }
        }
        for (key, socket) in due {
            if self.is_waiting(key, socket) {
                self.wait_timed_out(key);
            }
        }
    }
}
