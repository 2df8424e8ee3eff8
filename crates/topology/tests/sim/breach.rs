//! Rules broken on purpose, to see that the simulator notices.

use weir_topology::{
    LocalState, Maintenance, Millis, Observation, Policy, Roles, ServerState, Status, roles,
};

use crate::weir::{READERS, WRITERS, Weir};

/// A rule that the decision does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A node without quorum counts as one with.
    IgnoresQuorum,
    /// Silence says nothing against a node.
    IgnoresTimeouts,
    /// Another node takes over as soon as the writer is out of sight.
    AwaitsNoNewView,
    /// Who wrote before does not count: the greatest weight always wins.
    FailsBack,
    /// A writer never reads, not even as the last one left.
    EmptiesReaders,
    /// `read_only` says nothing.
    IgnoresReadOnly,
    /// The first node to be lost is held for ever.
    HoldsForEver,
    /// Any history will do.
    IgnoresHistory,
    /// Nodes that join count as ready.
    IgnoresState,
    /// A node in maintenance goes on.
    IgnoresMaintenance,
}

impl Breach {
    /// Every rule that can be broken.
    pub(crate) const ALL: [Self; 10] = [
        Self::IgnoresQuorum,
        Self::IgnoresTimeouts,
        Self::AwaitsNoNewView,
        Self::FailsBack,
        Self::EmptiesReaders,
        Self::IgnoresReadOnly,
        Self::HoldsForEver,
        Self::IgnoresHistory,
        Self::IgnoresState,
        Self::IgnoresMaintenance,
    ];

    /// The roles as a Weir would decide them that breaks the rule.
    pub(crate) fn roles(self, weir: &Weir, now: Millis) -> Roles {
        let mut policy = weir.settings.policy.clone();
        let mut seen = weir.seen.clone();
        let mut previous = weir.roles.clone();
        match self {
            Self::AwaitsNoNewView => set_wait(&mut policy, 0),
            Self::HoldsForEver => set_wait(&mut policy, u64::MAX),
            Self::FailsBack => previous = forget_writers(previous),
            _ => seen.iter_mut().for_each(|seen| self.embellish(seen, now)),
        }
        if self == Self::HoldsForEver {
            // No view is ever new enough.
            for view in previous.groups.iter_mut().filter_map(|group| group.writer_view.as_mut()) {
                view.number = u64::MAX;
            }
        }
        let mut decided = roles(&policy, &weir.settings.intents, &seen, &previous, now);
        if self == Self::EmptiesReaders {
            let writers = decided.groups.first().map(|group| group.writers.clone()).unwrap_or_default();
            for place in decided.places.iter_mut().filter(|place| place.hostgroup == READERS) {
                if writers.contains(&place.endpoint) {
                    place.status = Status::OfflineSoft;
                }
            }
        }
        decided
    }

    /// Makes a node look as the broken rule has it.
    fn embellish(self, seen: &mut Observation, now: Millis) {
        if self == Self::IgnoresTimeouts && seen.timeouts > 0 {
            (seen.timeouts, seen.fault, seen.at) = (0, None, now);
        }
        let Some(ServerState::Galera(state)) = &mut seen.state else { return };
        match self {
            Self::IgnoresQuorum if !state.is_primary() && state.connected => {
                (state.ready, state.cluster_status) = (true, "Primary".to_owned());
                (state.local_state, state.cluster_conf_id) = (LocalState::Synced, u64::MAX);
            }
            Self::IgnoresReadOnly => state.read_only = false,
            Self::IgnoresHistory => state.cluster_state_uuid = "the same".to_owned(),
            Self::IgnoresState if state.is_primary() => {
                (state.local_state, state.ready) = (LocalState::Synced, true);
            }
            Self::IgnoresMaintenance => state.maintenance = Maintenance::None,
            _ => {}
        }
    }
}

fn set_wait(policy: &mut Policy, unconfirmed_failover_ms: u64) {
    policy.galera.iter_mut().for_each(|row| row.choices.unconfirmed_failover_ms = unconfirmed_failover_ms);
}

/// The same memory without who was writer.
fn forget_writers(mut previous: Roles) -> Roles {
    previous.places.retain(|place| place.hostgroup != WRITERS);
    for group in previous.groups.iter_mut().filter(|group| group.hold.is_none()) {
        group.writers.clear();
    }
    previous
}
