//! Keeps the latest results of probes for the admin interface's `monitor` tables: each look at a server, with its time.
//!
//! Nothing decides by it. The probes write, whoever wants reads; the lock is held for a copy at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_topology::{
    Endpoint, GaleraState, GroupState, Lag, LocalState, Maintenance, ProbeError, ReplicaState, ServerState,
};

use crate::probe::{ProbeResult, What};
use crate::settings::Kind;

/// Looks kept of each kind, of all servers together; a hundred servers that are asked every 100 ms fill that in 20 s.
const ROWS_MAX: usize = 20_000;
/// So much of an error's text is kept.
const ERROR_CHARS_MAX: usize = 256;

/// The latest results of probes, by kind. Cheap to share between threads.
#[derive(Debug, Default)]
pub struct ProbeLog(Mutex<Rings>);

/// One look at one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed<T> {
    /// The server.
    pub endpoint: Endpoint,
    /// When it began, in microseconds since 1970.
    pub started_us: u64,
    /// How long it took, in microseconds; 0 if it failed.
    pub took_us: u64,
    /// What it has shown.
    pub seen: Option<T>,
    /// Why it has not.
    pub error: Option<String>,
}

/// A Galera node's report of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaleraSeen {
    /// It belongs to the Primary component.
    pub is_primary: bool,
    /// `read_only`
    pub read_only: bool,
    /// `wsrep_local_recv_queue`
    pub local_recv_queue: u32,
    /// `wsrep_local_state`: 1 to 4; 0 for anything else.
    pub local_state: u8,
    /// `wsrep_desync`
    pub desync: bool,
    /// `wsrep_reject_queries` is not NONE.
    pub reject_queries: bool,
    /// `wsrep_sst_donor_rejects_queries`
    pub sst_donor_rejects_queries: bool,
    /// `pxc_maint_mode`
    pub maintenance: &'static str,
}

/// A group member's report of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSeen {
    /// It is ONLINE, in a group with a majority.
    pub is_viable: bool,
    /// `read_only`
    pub read_only: bool,
    /// Transactions that it has not applied yet.
    pub transactions_behind: u32,
}

/// The lag of a replica: seconds; `None` where nobody knows.
pub type LagSeen = Option<u64>;

#[derive(Debug)]
struct Rings {
    kept: Duration,
    connects: VecDeque<Probed<()>>,
    pings: VecDeque<Probed<()>>,
    galera: VecDeque<Probed<GaleraSeen>>,
    groups: VecDeque<Probed<GroupSeen>>,
    read_only: VecDeque<Probed<bool>>,
    lags: VecDeque<Probed<LagSeen>>,
    /// How long the last ping took.
    latency_us: BTreeMap<Endpoint, u64>,
    counts: ProbeCounts,
}

/// The number of probes since the start, that went well and that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Connections.
    pub connects: (u64, u64),
    /// Pings.
    pub pings: (u64, u64),
    /// read_only, of servers with replication.
    pub read_only: (u64, u64),
    /// Lag.
    pub lags: (u64, u64),
}

impl Default for Rings {
    fn default() -> Self {
        Self {
            kept: Duration::from_secs(600),
            connects: VecDeque::new(),
            pings: VecDeque::new(),
            galera: VecDeque::new(),
            groups: VecDeque::new(),
            read_only: VecDeque::new(),
            lags: VecDeque::new(),
            latency_us: BTreeMap::new(),
            counts: ProbeCounts::default(),
        }
    }
}

impl ProbeLog {
    /// From now on keeps looks for so long.
    pub fn set_retention(&self, kept: Duration) {
        self.rings().kept = kept;
    }

    /// Attempts to connect, oldest first.
    pub fn connects(&self) -> Vec<Probed<()>> {
        self.rings().connects.iter().cloned().collect()
    }

    /// Pings, oldest first.
    pub fn pings(&self) -> Vec<Probed<()>> {
        self.rings().pings.iter().cloned().collect()
    }

    /// Looks at Galera nodes, oldest first.
    pub fn galera(&self) -> Vec<Probed<GaleraSeen>> {
        self.rings().galera.iter().cloned().collect()
    }

    /// Looks at members of groups, oldest first.
    pub fn groups(&self) -> Vec<Probed<GroupSeen>> {
        self.rings().groups.iter().cloned().collect()
    }

    /// `read_only` of servers with replication, oldest first.
    pub fn read_only(&self) -> Vec<Probed<bool>> {
        self.rings().read_only.iter().cloned().collect()
    }

    /// How far replicas are behind, oldest first.
    pub fn lags(&self) -> Vec<Probed<LagSeen>> {
        self.rings().lags.iter().cloned().collect()
    }

    /// How long the last ping of each server took, in microseconds.
    pub fn latencies_us(&self) -> BTreeMap<Endpoint, u64> {
        self.rings().latency_us.clone()
    }

    /// How many looks there were.
    pub fn counts(&self) -> ProbeCounts {
        self.rings().counts
    }

    /// Servers that are not watched any more have no latency.
    pub(crate) fn forget_others(&self, watched: impl Fn(&Endpoint) -> bool) {
        self.rings().latency_us.retain(|endpoint, _| watched(endpoint));
    }

    /// Takes a look in, as it was begun by the clock of all days.
    pub(crate) fn record(&self, endpoint: &Endpoint, kind: Kind, look: &ProbeResult) {
        let mut rings = self.rings();
        let rings = &mut *rings;
        let kept_us = u64::try_from(rings.kept.as_micros()).unwrap_or(u64::MAX);
        for attempt in &look.attempts {
            let started_us = unix_us(attempt.at);
            let probed = match &attempt.error {
                None => ok(endpoint, started_us, attempt.took, ()),
                Some(error) => failed(endpoint, started_us, error),
            };
            let is_ok = probed.error.is_none();
            let (ring, count) = match attempt.what {
                What::Connect => (&mut rings.connects, &mut rings.counts.connects),
                What::Ping => (&mut rings.pings, &mut rings.counts.pings),
            };
            if attempt.what == What::Ping && is_ok {
                rings.latency_us.insert(endpoint.clone(), probed.took_us);
            }
            push(ring, probed, kept_us);
            add(count, is_ok);
        }
        let started_us = unix_us(look.at);
        match kind {
            Kind::Ping => {}
            Kind::Galera => {
                let seen = of(endpoint, started_us, look, |state| match state {
                    ServerState::Galera(state) => Some(galera_seen(state)),
                    _ => None,
                });
                push(&mut rings.galera, seen, kept_us);
            }
            Kind::GroupReplication => {
                let seen = of(endpoint, started_us, look, |state| match state {
                    ServerState::Group(state) => Some(group_seen(state)),
                    _ => None,
                });
                push(&mut rings.groups, seen, kept_us);
            }
            Kind::Replication { asks_source } => {
                let seen = of(endpoint, started_us, look, |state| match state {
                    ServerState::Replica(state) => state.read_only,
                    _ => None,
                });
                add(&mut rings.counts.read_only, seen.error.is_none());
                push(&mut rings.read_only, seen, kept_us);
                if asks_source {
                    let seen = of(endpoint, started_us, look, |state| match state {
                        ServerState::Replica(state) => Some(lag_seen(state)),
                        _ => None,
                    });
                    add(&mut rings.counts.lags, seen.error.is_none());
                    push(&mut rings.lags, seen, kept_us);
                }
            }
        }
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of<T>(
    endpoint: &Endpoint,
    started_us: u64,
    look: &ProbeResult,
    seen: impl FnOnce(&ServerState) -> Option<T>,
) -> Probed<T> {
    match &look.result {
        Ok(state) => Probed { seen: seen(state), ..ok_without(endpoint, started_us, look.took) },
        Err(ProbeError::Timeout(ms)) => {
            failed(endpoint, started_us, &format!("timeout: no answer for {ms} ms"))
        }
        Err(error) => failed(endpoint, started_us, &error.to_string()),
    }
}

fn ok<T>(endpoint: &Endpoint, started_us: u64, took: Duration, seen: T) -> Probed<T> {
    Probed { seen: Some(seen), ..ok_without(endpoint, started_us, took) }
}

fn ok_without<T>(endpoint: &Endpoint, started_us: u64, took: Duration) -> Probed<T> {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    Probed { endpoint: endpoint.clone(), started_us, took_us, seen: None, error: None }
}

fn failed<T>(endpoint: &Endpoint, started_us: u64, error: &str) -> Probed<T> {
    let error = error.chars().take(ERROR_CHARS_MAX).collect();
    Probed { endpoint: endpoint.clone(), started_us, took_us: 0, seen: None, error: Some(error) }
}

fn push<T>(ring: &mut VecDeque<Probed<T>>, probed: Probed<T>, kept_us: u64) {
    let oldest = probed.started_us.saturating_sub(kept_us);
    while ring.len() >= ROWS_MAX || ring.front().is_some_and(|first| first.started_us < oldest) {
        ring.pop_front();
    }
    ring.push_back(probed);
}

fn add((ok, failed): &mut (u64, u64), is_ok: bool) {
    *if is_ok { ok } else { failed } += 1;
}

fn unix_us(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn galera_seen(state: &GaleraState) -> GaleraSeen {
    GaleraSeen {
        is_primary: state.is_primary(),
        read_only: state.read_only,
        local_recv_queue: state.local_recv_queue,
        local_state: match state.local_state {
            LocalState::Other => 0,
            LocalState::Joining => 1,
            LocalState::Donor => 2,
            LocalState::Joined => 3,
            LocalState::Synced => 4,
        },
        desync: state.desync,
        reject_queries: state.reject_queries,
        sst_donor_rejects_queries: state.sst_donor_rejects_queries,
        maintenance: match state.maintenance {
            Maintenance::None => "DISABLED",
            Maintenance::Wanted => "MAINTENANCE",
            Maintenance::Shutdown => "SHUTDOWN",
        },
    }
}

fn group_seen(state: &GroupState) -> GroupSeen {
    GroupSeen {
        is_viable: state.is_online() && state.has_quorum(),
        read_only: state.read_only,
        transactions_behind: state.transactions_behind(),
    }
}

fn lag_seen(state: &ReplicaState) -> LagSeen {
    match state.lag {
        Lag::NoReplica => Some(0),
        Lag::Seconds(seconds) => Some(seconds),
        Lag::Stopped => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Attempt;

    fn look(
        at_s: u64,
        result: Result<ServerState, ProbeError>,
        ping: Option<Result<u64, &str>>,
    ) -> ProbeResult {
        let at = UNIX_EPOCH + Duration::from_secs(at_s);
        let attempt = |ping: Result<u64, &str>| Attempt {
            what: What::Ping,
            at,
            took: Duration::from_micros(ping.unwrap_or(0)),
            error: ping.err().map(str::to_owned),
        };
        ProbeResult {
            result,
            ping: None,
            accepts: false,
            at,
            took: Duration::from_micros(300),
            asked_at: None,
            attempts: ping.map(attempt).into_iter().collect(),
        }
    }

    #[test]
    fn looks_are_kept_by_kind_for_a_while() {
        let (log, db1) = (ProbeLog::default(), Endpoint::new("db1", 3306));
        log.set_retention(Duration::from_secs(10));
        let state = ReplicaState { read_only: Some(true), lag: Lag::Seconds(7), ..ReplicaState::default() };
        let kind = Kind::Replication { asks_source: true };
        log.record(&db1, kind, &look(100, Ok(ServerState::Replica(state)), Some(Ok(42))));
        log.record(&db1, kind, &look(105, Err(ProbeError::Timeout(800)), Some(Err("gone"))));
        assert_eq!(log.read_only()[0].seen, Some(true));
        assert_eq!((log.lags()[0].seen, log.lags()[0].took_us), (Some(Some(7)), 300));
        assert_eq!(log.read_only()[1].error.as_deref(), Some("timeout: no answer for 800 ms"));
        assert_eq!((log.read_only()[1].took_us, log.read_only()[1].seen), (0, None));
        assert_eq!(log.latencies_us(), BTreeMap::from([(db1.clone(), 42)]));
        assert_eq!(
            (log.counts().pings, log.counts().read_only, log.counts().connects),
            ((1, 1), (1, 1), (0, 0))
        );
        log.record(&db1, Kind::Ping, &look(111, Ok(ServerState::Alive), Some(Ok(50))));
        assert_eq!(log.pings().len(), 2, "the first is older than 10 s");
        log.forget_others(|_| false);
        assert!(log.latencies_us().is_empty());
    }

    #[test]
    fn the_log_is_bounded() {
        let (log, db1) = (ProbeLog::default(), Endpoint::new("db1", 3306));
        for _ in 0..ROWS_MAX + 10 {
            log.record(&db1, Kind::Ping, &look(100, Ok(ServerState::Alive), Some(Ok(1))));
        }
        assert_eq!(log.pings().len(), ROWS_MAX);
    }
}
