//! Sessions that wait for a server: how many may, and for how long.

use std::collections::VecDeque;

use weir_protocol::error::ServerError;

use crate::outbox::SocketId;
use crate::pool::pools::Pools;
use crate::session::phase::Phase;
use crate::session::session::Session;
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::{Nanos, SessionKey};

/// ProxySQL's number for "no connection to the hostgroup within connect_timeout_server_max".
pub(crate) const HOSTGROUP_UNREACHABLE: ServerError = ServerError { code: 9001, sqlstate: *b"HY000" };

/// A place in line. It is left with the end of the wait, whatever that is: whoever has one waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub session: SessionKey,
    pub socket: SocketId,
    /// As whom its connection is to be logged in.
    pub identity: usize,
    /// Where its statement goes.
    pub hostgroup: u32,
    /// The hostgroup of the server for which it is in line.
    pub served_by: u32,
    /// Since when it waits.
    pub since: Nanos,
}

/// How long sessions wait, by hostgroup.
#[derive(Debug, Default)]
pub(crate) struct WaitLimits {
    /// Where no cluster says otherwise.
    usual: Nanos,
    /// They are not the same everywhere.
    differ: bool,
}

impl Work<'_> {
    /// Whether a session that has found no server may wait for one; if not, it has been told.
    pub(crate) fn may_be_held(&mut self, hostgroup: u32) -> bool {
        if self.session.stay.held.is_some() {
            return true;
        }
        let Some(holding) = self.pools.groups.get(&hostgroup).and_then(|group| group.holding.as_ref()) else {
            return true;
        };
        self.session.stay.held = holding.try_hold();
        if self.session.stay.held.is_some() {
            return true;
        }
        let sessions_max = holding.sessions_max();
        let reason = self.pools.why_unreachable(self.ctx, self.session, hostgroup);
        let message = format!(
            "hostgroup {hostgroup} has no server for this statement, and {sessions_max} sessions wait already \
             (max_held): {reason}"
        );
        self.end_wait(&message);
        false
    }

    /// A session has waited too long.
    fn wait_timed_out(&mut self) {
        let Phase::Waiting(since) = self.session.phase else { return };
        let waited_ms = (self.ctx.now - since) / 1_000_000;
        let hostgroup = self.session.execution.hostgroup;
        let reason = self
            .pools
            .why_kept_back(self.session)
            .unwrap_or_else(|| self.pools.why_unreachable(self.ctx, self.session, hostgroup));
        let message = format!(
            "Max connect timeout reached while reaching hostgroup {hostgroup} after {waited_ms}ms: {reason}"
        );
        self.end_wait(&message);
    }

    /// Nobody serves a session's statement.
    fn end_wait(&mut self, message: &str) {
        self.pools.leave_queues(self.session);
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
        self.session.stay.held = None;
        self.session.phase = Phase::Running;
        if self.session.input.upload.is_some() {
            return self.fail_session(HOSTGROUP_UNREACHABLE, message);
        }
        self.pools.reply_error(self.ctx, self.session, HOSTGROUP_UNREACHABLE, message);
        self.answered_here();
    }
}

impl Worker {
    /// Ends the waits that have reached their limit.
    pub(crate) fn end_waits(&mut self) {
        for waiter in self.pools.overdue_waiters(self.ctx.now) {
            if self.sessions.is_waiting(waiter.session, waiter.socket) {
                self.work(waiter.session).wait_timed_out();
            }
        }
    }
}

impl Pools {
    /// When a wait ends.
    fn wait_deadline(&self, waiter: &Waiter) -> Nanos {
        waiter.since.saturating_add(self.wait_limit(waiter.hostgroup))
    }

    fn lines(&self) -> impl Iterator<Item = &VecDeque<Waiter>> {
        self.servers.iter().map(|pool| &pool.waiters).chain([&self.parked])
    }

    /// When the first wait ends. The lines are in order of arrival, except for sessions that were sent from one to
    /// another; those are found at the latest when they come to the front.
    pub(crate) fn first_wait_deadline(&self) -> Nanos {
        let looked_at = if self.wait_limits.differ { usize::MAX } else { 1 };
        let waiting = self.lines().flat_map(|line| line.iter().take(looked_at));
        waiting.map(|waiter| self.wait_deadline(waiter)).min().unwrap_or(Nanos::MAX)
    }

    /// Those whose wait has reached its limit.
    fn overdue_waiters(&self, now: Nanos) -> Vec<Waiter> {
        let mut overdue = Vec::new();
        for line in self.lines() {
            for waiter in line {
                if self.wait_deadline(waiter) <= now {
                    overdue.push(*waiter);
                } else if !self.wait_limits.differ {
                    break;
                }
            }
        }
        overdue
    }

    /// A session that waits goes on under another row of its user.
    pub(crate) fn renew_waiter(&mut self, session: &Session) {
        let lines = self.servers.iter_mut().map(|pool| &mut pool.waiters).chain([&mut self.parked]);
        for waiter in lines.flatten().filter(|waiter| waiter.session == session.key) {
            waiter.identity = session.identity;
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
    fn wait_limit(&self, hostgroup: u32) -> Nanos {
        if !self.wait_limits.differ {
            return self.wait_limits.usual;
        }
        let group = self.groups.get(&hostgroup);
        let own = group.and_then(|group| group.holding.as_ref()?.timeout());
        own.map_or(self.wait_limits.usual, |own| own.as_nanos() as Nanos)
    }
}
