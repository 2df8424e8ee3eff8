//! Folds what probes have seen of a server into one observation.

use std::sync::Arc;
use std::time::Duration;

use crate::shunning::Connects;
use crate::{Endpoint, EpochRead, GaleraState, GroupState, Millis, ReplicaState};

/// Pings whose mean counts as the latency (ProxySQL looks at as many).
const PINGS: u32 = 3;

/// A server that was lost by its silence is believed after it has answered for so long. Its process may have been
/// stopped: then it says for a moment what was true before, such as that it is in a Primary component which has gone on
/// without it. Galera finds out within `evs.inactive_check_period`, 0.5 s.
pub(crate) const BACK_MS: u64 = 1000;

/// Everything that probes have said of one server so far, folded.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The server.
    pub endpoint: Endpoint,
    /// When the last probe ended.
    pub at: Millis,
    /// The last state that still counts: that of the last probe, or after a few time-outs that before them.
    pub state: Option<ServerState>,
    /// When the server was asked for `state`; what it said was true then, and may have changed at once.
    pub state_asked_at: Millis,
    /// Why the last probe gave no state.
    pub fault: Option<ProbeError>,
    /// Time-outs and the like in a row, up to the last probe.
    pub timeouts: u32,
    /// How it came back from its last silence.
    pub back: Option<Back>,
    /// The server's version, since it was first known.
    pub version: Option<Version>,
    /// How connections of the data path fare.
    pub connects: Connects,
    /// How long a ping takes, in microseconds: a mean in which the last three weigh most.
    pub latency_us: Option<u64>,
    /// What the last causal read of `weir.topology` and `weir.instances` on this server has shown.
    pub epoch: Option<EpochRead>,
}

/// The end of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Probes in a row that had had no answer.
    pub timeouts: u32,
    /// When one was answered again.
    pub at: Millis,
}

/// A server's report of itself; its contents depend on the cluster it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerState {
    /// It answers. A server without a cluster is asked no more.
    Alive,
    /// A node of a Galera cluster.
    Galera(GaleraState),
    /// A server with MySQL Group Replication.
    Group(GroupState),
    /// A server with asynchronous replication.
    Replica(ReplicaState),
}

impl ServerState {
    /// Whether the server says that it can do work: a Galera node in the Primary component, an ONLINE member of a group
    /// with quorum, any other.
    pub fn works(&self) -> bool {
        match self {
            Self::Alive | Self::Replica(_) => true,
            Self::Galera(state) => state.is_primary() && state.ready,
            Self::Group(state) => state.is_online() && state.has_quorum(),
        }
    }
}

impl From<GaleraState> for ServerState {
    fn from(state: GaleraState) -> Self {
        Self::Galera(state)
    }
}

impl From<GroupState> for ServerState {
    fn from(state: GroupState) -> Self {
        Self::Group(state)
    }
}

impl From<ReplicaState> for ServerState {
    fn from(state: ReplicaState) -> Self {
        Self::Replica(state)
    }
}

/// Why a probe gave no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No answer in time: a vote against the server, not yet proof.
    #[error("no answer for {0} ms")]
    Timeout(u64),
    /// The server is alive and can't be asked, such as with too many connections: counts like a time-out.
    #[error("{0}")]
    Busy(String),
    /// The server's host refused or broke the connection: its process does not run, or its port is closed.
    #[error("{0}")]
    Unreachable(String),
    /// The server answered with an error: wrong password, too many connections, shutting down.
    #[error("{0}")]
    Refused(String),
}

impl Observation {
    /// The observation after a further probe: `previous` is that of the same server, none for the first probe.
    ///
    /// A time-out keeps the last state and is counted; every other fault takes it away.
    #[must_use]
    pub fn after(
        previous: Option<&Self>,
        endpoint: &Endpoint,
        at: Millis,
        result: Result<ServerState, ProbeError>,
    ) -> Self {
        let version = previous.and_then(|previous| previous.version.clone());
        let (state, fault, timeouts) = match result {
            Ok(state) => (Some(state), None, 0),
            Err(fault @ (ProbeError::Timeout(_) | ProbeError::Busy(_))) => (
                previous.and_then(|previous| previous.state.clone()),
                Some(fault),
                previous.map_or(0, |previous| previous.timeouts).saturating_add(1),
            ),
            Err(fault) => (None, Some(fault), 0),
        };
        let kept_since = previous.filter(|_| fault.is_some()).map(|previous| previous.state_asked_at);
        let state_asked_at = kept_since.unwrap_or(at);
        let back = match (previous, &fault) {
            // It was another process.
            (_, Some(ProbeError::Unreachable(_))) => None,
            (Some(previous), None) if previous.timeouts > 0 => Some(Back { timeouts: previous.timeouts, at }),
            (previous, _) => previous.and_then(|previous| previous.back),
        };
        let connects = previous.map(|previous| previous.connects.clone()).unwrap_or_default();
        let latency_us = previous.and_then(|previous| previous.latency_us);
        // Another process may have other tables, those of another cluster.
        let is_another = matches!(fault, Some(ProbeError::Unreachable(_)))
            || previous
                .zip(state.as_ref())
                .is_some_and(|(previous, state)| previous.is_of_another_history(state));
        let epoch = previous.filter(|_| !is_another).and_then(|previous| previous.epoch.clone());
        let endpoint = endpoint.clone();
        Self {
            endpoint,
            at,
            state,
            state_asked_at,
            fault,
            timeouts,
            back,
            version,
            connects,
            latency_us,
            epoch,
        }
    }

    /// The same where an answer took a while, or who waited for it was stopped: the server was asked at `asked_at`.
    #[must_use]
    pub fn with_question(mut self, asked_at: Millis) -> Self {
        if self.fault.is_none() {
            self.state_asked_at = asked_at.min(self.at);
        }
        self
    }

    fn is_of_another_history(&self, state: &ServerState) -> bool {
        match (&self.state, state) {
            (Some(ServerState::Galera(before)), ServerState::Galera(state)) => {
                before.has_history() && before.cluster_state_uuid != state.cluster_state_uuid
            }
            _ => false,
        }
    }

    /// The same with another ping.
    #[must_use]
    pub fn with_ping(mut self, took: Duration) -> Self {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX / 4);
        let mean = |before: u64| (before / u64::from(PINGS)).saturating_mul(2) + took_us / u64::from(PINGS);
        self.latency_us = Some(self.latency_us.map_or(took_us, mean));
        self
    }

    /// The same with the version in the server's greeting.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        if self.version.as_deref() != Some(version) {
            self.version = Some(version.into());
        }
        self
    }
}

/// A server's version as its greeting has it, such as `10.11.19-MariaDB-0+deb12u1-log`.
pub(crate) type Version = Arc<str>;
