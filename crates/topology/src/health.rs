//! Decides whether a single server is in service.

use std::collections::HashMap;

use crate::{Endpoint, GaleraState, Millis, Observation, Policy, Reason, ServerState, Shun, Status};

/// The observations, and the rules by which they count.
pub(crate) struct HealthCheck<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) observations: &'a [Observation],
    pub(crate) now: Millis,
    /// The same by server: there may be many.
    seen: HashMap<&'a Endpoint, &'a Observation>,
}

/// Why a server is out, and what that means for its connections.
#[derive(Clone, Debug)]
pub(crate) struct OutOfService {
    pub(crate) reason: Reason,
    pub(crate) status: Status,
    /// The server may have died or have been cut off. If false it left in order, and another may take over at once.
    pub(crate) lost: bool,
}

impl OutOfService {
    /// Connections to it are useless.
    pub(crate) fn lost(reason: Reason) -> Self {
        Self { reason, status: Status::OfflineHard, lost: true }
    }

    /// Its running statements may still be answered.
    pub(crate) fn silent(reason: Reason) -> Self {
        Self { reason, status: Status::OfflineSoft, lost: true }
    }

    /// It works and is to take no new work.
    pub(crate) fn leaving(reason: Reason) -> Self {
        Self { reason, status: Status::OfflineSoft, lost: false }
    }
}

impl<'a> HealthCheck<'a> {
    pub(crate) fn new(policy: &'a Policy, observations: &'a [Observation], now: Millis) -> Self {
        let seen = observations.iter().map(|seen| (&seen.endpoint, seen)).collect();
        Self { policy, observations, now, seen }
    }

    pub(crate) fn observation(&self, endpoint: &Endpoint) -> Option<&'a Observation> {
        self.seen.get(endpoint).copied()
    }

    /// Why the server can't be reached; none if it can, or if nothing is known.
    pub(crate) fn unreachable(&self, endpoint: &Endpoint, timeouts_max: u32) -> Option<Reason> {
        let seen = self.observation(endpoint)?;
        match &seen.fault {
            None => None,
            Some(_) if seen.timeouts >= timeouts_max => Some(Reason::TimedOut { timeouts: seen.timeouts }),
            Some(_) if seen.timeouts > 0 => None,
            Some(fault) => Some(Reason::Unreachable { cause: fault.to_string() }),
        }
    }

    /// What a Galera node said last, whatever it is worth.
    pub(crate) fn galera_state(&self, endpoint: &Endpoint) -> Option<&'a GaleraState> {
        match self.observation(endpoint)?.state.as_ref()? {
            ServerState::Galera(state) => Some(state),
            _ => None,
        }
    }

    /// Whether a server that was lost by its silence has only just begun to answer again.
    pub(crate) fn is_just_back(&self, endpoint: &Endpoint, timeouts_max: u32) -> bool {
        let Some(seen) = self.observation(endpoint) else { return false };
        // Time alone tells nothing: it may have answered once.
        seen.back.is_some_and(|back| {
            back.timeouts >= timeouts_max && seen.state_asked_at.since(back.at) < crate::observation::BACK_MS
        })
    }

    /// The servers whose last probe gave no state.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &'a Endpoint> {
        self.observations.iter().filter(|seen| seen.fault.is_some()).map(|seen| &seen.endpoint)
    }

    /// Why connections to the server are not to be tried.
    pub(crate) fn shun(&self, endpoint: &Endpoint) -> Option<&'a Shun> {
        self.observation(endpoint)?.connects.shun(self.now, self.policy)
    }

    /// How long a ping takes.
    pub(crate) fn latency_us(&self, endpoint: &Endpoint) -> Option<u64> {
        self.observation(endpoint)?.latency_us
    }

    /// What a server said of itself last, before it became silent.
    pub(crate) fn last_state(&self, endpoint: &Endpoint) -> Option<&'a ServerState> {
        self.observation(endpoint)?.state.as_ref()
    }

    /// What a server of a cluster says of itself, or why nothing that counts is known.
    pub(crate) fn state(
        &self,
        endpoint: &Endpoint,
        timeouts_max: u32,
    ) -> Result<&'a ServerState, OutOfService> {
        let Some(seen) = self.observation(endpoint) else {
            return Err(OutOfService::silent(Reason::NotObserved));
        };
        let age_ms = self.now.since(seen.at);
        if age_ms > self.policy.observation_age_max_ms {
            return Err(OutOfService::silent(Reason::NotObservedForLong { age_ms }));
        }
        match self.unreachable(endpoint, timeouts_max) {
            Some(reason @ Reason::TimedOut { .. }) => return Err(OutOfService::silent(reason)),
            Some(reason) => return Err(OutOfService::lost(reason)),
            None => {}
        }
        seen.state.as_ref().ok_or_else(|| OutOfService::silent(Reason::TimedOut { timeouts: seen.timeouts }))
    }
}
