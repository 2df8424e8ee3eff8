//! Counts what a worker has, for people, metrics and tests.

use crate::session::Session;
use crate::session::phase::Phase;
use crate::worker::Worker;

/// A worker's sessions and pools at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Clients connected.
    pub sessions: usize,
    /// Sessions that hold a backend connection.
    pub leases: usize,
    /// Sessions that wait for a connection or for the end of their statement.
    pub busy: usize,
    /// Sessions that wait for any server of their hostgroup.
    pub parked: usize,
    /// Backend connections, those that carry a KILL included.
    pub connections: usize,
    /// Each server's pool.
    pub pools: Vec<PoolCensus>,
    /// How often each active query rule has matched, by rule_id.
    pub rule_hits: Vec<(u32, u64)>,
}

/// A worker's connections to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCensus {
    /// The server.
    pub endpoint: String,
    /// Connections that count against max_connections.
    pub open: u32,
    /// Of these, nobody's.
    pub idle: usize,
    /// Of these, not logged in yet.
    pub dialing: u32,
    /// Of these, being logged in as another user.
    pub handovers: u32,
    /// Sessions in the queue.
    pub waiters: usize,
}

impl Worker {
    /// Counts everything anew.
    pub fn census(&self) -> Census {
        let is_busy = |phase: &Phase| !matches!(phase, Phase::Idle | Phase::Login(_));
        let runs_nowhere =
            |session: &Session| matches!(session.phase, Phase::Running) && session.lease.is_none();
        debug_assert!(
            !self.sessions.iter().any(|(_, session)| runs_nowhere(session)),
            "a command without a lease"
        );
        Census {
            sessions: self.sessions.len(),
            leases: self.sessions.iter().filter(|(_, session)| session.lease().is_some()).count(),
            busy: self.sessions.iter().filter(|(_, session)| is_busy(&session.phase)).count(),
            parked: self.pools.parked.len(),
            connections: self.pools.connections.len(),
            rule_hits: self.ctx.router.hits().collect(),
            pools: self
                .pools
                .servers
                .iter()
                .map(|pool| PoolCensus {
                    endpoint: pool.server.endpoint.clone(),
                    open: pool.open,
                    idle: pool.idle.len(),
                    dialing: pool.dialing,
                    handovers: pool.handovers,
                    waiters: pool.waiters.len(),
                })
                .collect(),
        }
    }
}
