//! Lines up the sessions that wait for a server, and limits how many may, and for how long.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::context::Context;
use crate::keys::{Nanos, SessionKey};
use crate::outbox::SocketId;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::phase::Phase;

/// A place in line. It is left with the end of the wait, whatever that is: whoever has one waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub session: SessionKey,
    pub socket: SocketId,
    /// As whom its connection is to be logged in.
    pub identity: usize,
    /// Where its client is.
    pub client: Option<IpAddr>,
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

impl Pools {
    /// When a wait ends.
    pub(crate) fn wait_deadline(&self, waiter: &Waiter) -> Nanos {
        waiter.since.saturating_add(self.wait_limit(waiter.hostgroup))
    }

    fn lines(&self) -> impl Iterator<Item = &VecDeque<Waiter>> {
        self.servers.iter().map(|pool| &pool.waiters).chain([&self.parked])
    }

    /// Those who are in no line: they wait for a check.
    fn awaiting_checks(&self) -> impl Iterator<Item = &Waiter> {
        self.awaiting.iter().map(|awaiting| &awaiting.waiter)
    }

    /// When the first wait ends. The lines are in order of arrival, except for sessions that were sent from one to
    /// another; those are found at the latest when they come to the front.
    pub(crate) fn first_wait_deadline(&self) -> Nanos {
        let looked_at = if self.wait_limits.differ { usize::MAX } else { 1 };
        let waiting = self.lines().flat_map(|line| line.iter().take(looked_at)).chain(self.awaiting_checks());
        waiting.map(|waiter| self.wait_deadline(waiter)).min().unwrap_or(Nanos::MAX)
    }

    /// Those whose wait has reached its limit.
    pub(crate) fn overdue_waiters(&self, now: Nanos) -> Vec<Waiter> {
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
        overdue.extend(self.awaiting_checks().filter(|waiter| self.wait_deadline(waiter) <= now));
        overdue
    }

    /// A session that waits goes on under another row of its user.
    pub(crate) fn renew_waiter(&mut self, session: &Session) {
        let lines = self.servers.iter_mut().map(|pool| &mut pool.waiters).chain([&mut self.parked]);
        let awaiting = self.awaiting.iter_mut().map(|awaiting| &mut awaiting.waiter);
        for waiter in lines.flatten().chain(awaiting).filter(|waiter| waiter.session == session.key) {
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

impl Pools {
    /// Takes a session out of all queues.
    pub(crate) fn leave_queues(&mut self, session: &Session) {
        self.parked.retain(|waiter| waiter.session != session.key);
        self.leave_awaiting(session);
        for pool in &mut self.servers {
            pool.waiters.retain(|waiter| waiter.session != session.key);
        }
    }
}

impl Session {
    /// Its place in line, if it waits.
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        let Phase::Waiting(wait) = &self.phase else { return None };
        Some(Waiter {
            session: self.key,
            socket: self.socket,
            identity: self.identity,
            client: self.client.peer.ip(),
            hostgroup: self.execution.hostgroup,
            served_by: self.execution.served_by,
            since: wait.since,
        })
    }
}
