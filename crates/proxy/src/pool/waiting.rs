//! Sessions that wait for a server: how many may, and for how long.

use crate::client::session::Session;
use crate::pool::pools::Pools;
use crate::worker::context::Context;
use weir_protocol::error::ServerError;

use crate::client::session::Phase;
use crate::outbox::SocketId;
use crate::worker::Worker;
use crate::worker::keys::Nanos;
use crate::worker::keys::SessionKey;

/// ProxySQL's number for "no connection to the hostgroup within connect_timeout_server_max".
pub(crate) const HOSTGROUP_UNREACHABLE: ServerError = ServerError { code: 9001, sqlstate: *b"HY000" };

/// How long sessions wait, by hostgroup.
#[derive(Debug, Default)]
pub(crate) struct WaitLimits {
    /// Where no cluster says otherwise.
    usual: Nanos,
    /// They are not the same everywhere.
    differ: bool,
}

impl Worker {
    /// Whether a session that has found no server may wait for one; if not, it has been told.
    pub(crate) fn may_be_held(&mut self, key: SessionKey, hostgroup: u32) -> bool {
        if self.sessions[key].held.is_some() {
            return true;
        }
        let Some(holding) = self.pools.groups.get(&hostgroup).and_then(|group| group.holding.as_ref()) else {
            return true;
        };
        self.sessions[key].held = holding.try_hold();
        if self.sessions[key].held.is_some() {
            return true;
        }
        let sessions_max = holding.sessions_max();
        let reason = self.pools.why_unreachable(&self.ctx, &self.sessions[key], hostgroup);
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
        let waited_ms = (self.ctx.now - since) / 1_000_000;
        let hostgroup = self.sessions[key].execution.hostgroup;
        let reason = self
            .pools
            .why_kept_back(&self.sessions[key])
            .unwrap_or_else(|| self.pools.why_unreachable(&self.ctx, &self.sessions[key], hostgroup));
        let message = format!(
            "Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}"
        );
        self.end_wait(key, &message);
    }

    /// Nobody serves a session's statement.
    fn end_wait(&mut self, key: SessionKey, message: &str) {
        self.pools.leave_queues(&self.sessions[key]);
        self.ctx.statistics.totals.waits_timed_out += 1;
        tracing::warn!(session = self.sessions[key].id, told = message, "no server for a statement");
        self.refuse_wait(key, message);
    }

    /// A statement that names a hostgroup which nothing in the configuration has is a mistake: nobody waits for that. What
    /// a rule or a user's row names waits, for its servers may be loaded next.
    pub(crate) fn is_hinted_nowhere(&mut self, key: SessionKey) -> bool {
        let execution = &self.sessions[key].execution;
        let hostgroup = execution.hostgroup;
        if !execution.decision.is_hinted || self.pools.groups.contains_key(&hostgroup) {
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
        self.pools.reply_error(&mut self.ctx, &mut self.sessions[key], HOSTGROUP_UNREACHABLE, message);
        self.answered_here(key);
    }

    /// When the wait of a session ends, if it is that session and waits.
    fn wait_deadline(&self, key: SessionKey, socket: SocketId) -> Option<Nanos> {
        if !self.session_is(key, socket) {
            return None;
        }
        match self.sessions[key].phase {
            Phase::Waiting(since) => Some(since.saturating_add(self.pools.wait_limit(&self.sessions[key]))),
            _ => None,
        }
    }

    /// When the first wait ends. The queues are in order of arrival, except for sessions that were sent from one to
    /// another; those are found at the latest when they come to the front.
    pub(crate) fn first_wait_deadline(&self) -> Nanos {
        let looked_at = if self.pools.wait_limits.differ { usize::MAX } else { 1 };
        let queues = self.pools.servers.iter().map(|pool| &pool.waiters).chain([&self.pools.parked]);
        let waiting = queues.flat_map(|queue| queue.iter().take(looked_at));
        waiting.filter_map(|(key, socket)| self.wait_deadline(*key, *socket)).min().unwrap_or(Nanos::MAX)
    }

    /// Ends the waits that have reached their limit.
    pub(crate) fn end_waits(&mut self) {
        let mut due = Vec::new();
        let queues = self.pools.servers.iter().map(|pool| &pool.waiters).chain([&self.pools.parked]);
        for queue in queues {
            for (key, socket) in queue {
                match self.wait_deadline(*key, *socket) {
                    Some(deadline) if deadline <= self.ctx.now => due.push((*key, *socket)),
                    Some(_) if !self.pools.wait_limits.differ => break,
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

impl Pools {
    pub(crate) fn take_wait_limits(&mut self, ctx: &Context) {
        let usual = ctx.snapshot.variables.connect_timeout_server_max.as_nanos() as Nanos;
        let own = self.groups.values().filter_map(|group| group.holding.as_ref()?.timeout());
        let differ = own.map(|own| own.as_nanos() as Nanos).any(|own| own != usual);
        self.wait_limits = WaitLimits { usual, differ };
    }
}

impl Pools {
    fn wait_limit(&self, session: &Session) -> Nanos {
        if !self.wait_limits.differ {
            return self.wait_limits.usual;
        }
        let group = self.groups.get(&session.execution.hostgroup);
        let own = group.and_then(|group| group.holding.as_ref()?.timeout());
        own.map_or(self.wait_limits.usual, |own| own.as_nanos() as Nanos)
    }
}
