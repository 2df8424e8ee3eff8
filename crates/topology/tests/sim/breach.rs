//! Rules broken on purpose, to see that the simulator notices.

use weir_topology::{
    Failback, InstanceId, LocalState, Maintenance, Millis, Observation, Policy, Role, Roles, ServerState,
    Status, roles,
};

use crate::chaos::Action;
use crate::cluster::Path;
use crate::fault::Fault;
use crate::follow;
use crate::queue::MS;
use crate::random::Random;
use crate::stage::{
    CHOOSING, COMPONENTS, FAILOVERS, GROUPS, LOST_PARTS, NAMES, REPLICAS, SWITCHOVERS, has_ghosts,
};
use crate::weir::{READERS, WRITERS, Weir};

/// The rows of Weirs that are read where not all are.
const FEW: usize = 64;

/// How a world is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// As it comes.
    Plain,
    /// What makes a rule count happens more often.
    Provoked(Breach),
    /// And the rule is broken.
    Broken(Breach),
    /// One move of the writer, in which one thing goes wrong.
    Fault(Fault),
}

impl Trial {
    /// The rule that matters in it.
    pub(crate) fn rule(self) -> Option<Breach> {
        match self {
            Self::Plain | Self::Fault(_) => None,
            Self::Provoked(breach) | Self::Broken(breach) => Some(breach),
        }
    }

    /// The rule that is broken.
    pub(crate) fn breach(self) -> Option<Breach> {
        if let Self::Broken(breach) = self { Some(breach) } else { None }
    }

    /// How many servers and Weirs a world must have, if that matters.
    pub(crate) fn size(self) -> Option<(usize, usize)> {
        if let Self::Fault(_) = self {
            return Some((3, 2));
        }
        match self.rule()? {
            // Two can choose differently.
            Breach::FailoverTakesNoLock => Some((5, 2)),
            Breach::FailoverNeedsNoMajority
            | Breach::WriterNeedsNoMajority
            | Breach::FailoverIgnoresLease
            | Breach::FailoverIgnoresAge
            | Breach::SwitchoverLooksOnce => Some((3, 2)),
            _ => None,
        }
    }
}

/// A rule that the decision does not keep: those of Galera, then of groups, then of replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Writes go on after the lease is over.
    IgnoresLease,
    /// An epoch is claimed whatever has become of the row that was read.
    ComparesNothing,
    /// The next writer is written to before every lease by the epoch before is over.
    AwaitsNoLease,
    /// Other Weirs do not count.
    IgnoresPeers,
    /// There may be any number of writers.
    AddsWriters,
    /// A heavier writer never gets its role back.
    NeverGivesBack,
    /// It gets it back at once.
    IgnoresUptime,
    /// Any component of the cluster that calls itself Primary will do.
    IgnoresComponents,
    /// A component that was out is the cluster when nothing else is left.
    ForgetsApart,
    /// Of the rows of all Weirs only the first are read.
    ReadsFewPeers,
    /// A member counts whomever it reaches.
    GroupIgnoresQuorum,
    /// Silence says nothing against a member.
    GroupIgnoresTimeouts,
    /// `read_only` says nothing in a group.
    GroupIgnoresReadOnly,
    /// A new primary is written to whatever it has to apply.
    GroupIgnoresBacklog,
    /// Any group will do.
    GroupIgnoresHistory,
    /// Members that join, or were expelled, count as ONLINE.
    GroupIgnoresState,
    /// Any view of a group is as good as another.
    GroupIgnoresViews,
    /// When the primary is lost, Weir chooses.
    GroupMovesByItself,
    /// A primary never reads, not even as the last one left.
    GroupEmptiesReaders,
    /// There may be any number of writers of several primaries.
    GroupAddsWriters,
    /// `read_only` says nothing with replication.
    ReplicasIgnoreReadOnly,
    /// Silence says nothing against a server with replication.
    ReplicasIgnoreTimeouts,
    /// Replicas read however far they are behind.
    ReplicasIgnoreLag,
    /// Of several servers that are not read_only only one writes.
    ReplicasChooseOne,
    /// A source never reads, not even as the last one left.
    ReplicasEmptyReaders,
    /// When the source is lost, a replica is written to.
    ReplicasPromote,
    /// A source that was replaced while it was away is written to as soon as it is back.
    ReplicasForgetReplaced,
    /// What was seen of a server counts for the one to which its name leads now.
    ReplicasKeepMoved,
    /// With `auto_failover` it is not looked at again whether the writer is lost before it is replaced.
    FailoverLooksOnce,
    /// Any replica will do.
    FailoverTakesAny,
    /// A lost writer is never replaced.
    FailoverNever,
    /// Silence counts as a vote that the writer is lost, and any number of servers will do to replace it.
    FailoverNeedsNoMajority,
    /// A server that is not read_only is written to whoever replicates from it.
    WriterNeedsNoMajority,
    /// Writes go on however long ago the last decision was.
    FailoverIgnoresLease,
    /// What a server has said counts however long ago it was asked.
    FailoverIgnoresAge,
    /// A failover needs no lock.
    FailoverTakesNoLock,
    /// A switchover needs no lock.
    SwitchoverTakesNoLock,
    /// What was seen before there was the lock counts, and nothing is written down. That alone, with the journal, can't
    /// be noticed: an old writer that is not the writer any more refuses the row.
    SwitchoverLooksOnce,
    /// The old writer is read_only because it was told to be once.
    SwitchoverConfirmsNothing,
    /// What was begun is not written down.
    SwitchoverKeepsNoJournal,
    /// A target that was told to take writes, and has not answered, takes none.
    SwitchoverTrustsSilence,
}

impl Breach {
    /// Every rule that can be broken.
    pub(crate) const ALL: [Self; 51] = [
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
        Self::IgnoresLease,
        Self::ComparesNothing,
        Self::AwaitsNoLease,
        Self::IgnoresPeers,
        Self::AddsWriters,
        Self::NeverGivesBack,
        Self::IgnoresUptime,
        Self::IgnoresComponents,
        Self::ForgetsApart,
        Self::ReadsFewPeers,
        Self::GroupIgnoresQuorum,
        Self::GroupIgnoresTimeouts,
        Self::GroupIgnoresReadOnly,
        Self::GroupIgnoresBacklog,
        Self::GroupIgnoresHistory,
        Self::GroupIgnoresState,
        Self::GroupIgnoresViews,
        Self::GroupMovesByItself,
        Self::GroupEmptiesReaders,
        Self::GroupAddsWriters,
        Self::ReplicasIgnoreReadOnly,
        Self::ReplicasIgnoreTimeouts,
        Self::ReplicasIgnoreLag,
        Self::ReplicasChooseOne,
        Self::ReplicasEmptyReaders,
        Self::ReplicasPromote,
        Self::ReplicasForgetReplaced,
        Self::ReplicasKeepMoved,
        Self::FailoverLooksOnce,
        Self::FailoverTakesAny,
        Self::FailoverNever,
        Self::FailoverNeedsNoMajority,
        Self::WriterNeedsNoMajority,
        Self::FailoverIgnoresLease,
        Self::FailoverIgnoresAge,
        Self::FailoverTakesNoLock,
        Self::SwitchoverTakesNoLock,
        Self::SwitchoverLooksOnce,
        Self::SwitchoverConfirmsNothing,
        Self::SwitchoverKeepsNoJournal,
        Self::SwitchoverTrustsSilence,
    ];

    /// Those whose names contain `WEIR_SIM_BREACH`, else all.
    pub(crate) fn wanted() -> Vec<Self> {
        let wanted = std::env::var("WEIR_SIM_BREACH").unwrap_or_default();
        Self::ALL.into_iter().filter(|breach| format!("{breach:?}").contains(&wanted)).collect()
    }

    /// Whether it takes several Weirs that agree on an epoch.
    pub(crate) fn is_of_agreement(self) -> bool {
        let is_of_rows = matches!(self, Self::ReadsFewPeers | Self::IgnoresPeers);
        is_of_rows || matches!(self, Self::IgnoresLease | Self::ComparesNothing | Self::AwaitsNoLease)
    }

    /// The worlds in which it shows.
    pub(crate) fn seeds(self) -> impl Iterator<Item = u64> {
        let first = match self {
            Self::AddsWriters | Self::NeverGivesBack | Self::IgnoresUptime => CHOOSING,
            Self::IgnoresComponents => COMPONENTS,
            Self::ForgetsApart => LOST_PARTS,
            Self::ReplicasKeepMoved => NAMES,
            _ if self >= Self::SwitchoverTakesNoLock => SWITCHOVERS,
            _ if self >= Self::FailoverLooksOnce => FAILOVERS,
            _ if self >= Self::ReplicasIgnoreReadOnly => REPLICAS,
            _ if self >= Self::GroupIgnoresQuorum => GROUPS,
            _ => u64::from(self.is_of_agreement()),
        };
        (first..).step_by(2).filter(move |seed| self != Self::ReadsFewPeers || has_ghosts(*seed))
    }

    /// How often what makes the rule count is done, percent of all that is done.
    pub(crate) fn weight(self) -> u64 {
        if self >= Self::FailoverTakesNoLock { 50 } else { 20 }
    }

    /// What makes the rule count; done more often than in other worlds.
    pub(crate) fn provocation(self, random: &mut Random, weir: usize, node: usize) -> Action {
        let broken = Path { there_broken: true, back_broken: true, delay: 0 };
        match self {
            Self::IgnoresReadOnly => Action::ReadOnly(node, true),
            Self::IgnoresMaintenance => Action::Maintain(node, true),
            Self::IgnoresHistory => Action::SetApart(node),
            Self::IgnoresTimeouts => Action::Hang(node),
            Self::IgnoresComponents | Self::ForgetsApart => Action::SplitBrain(node),
            // One that has not heard of the next epoch yet.
            Self::AwaitsNoLease if random.percent(60) => {
                Action::StopWeir(weir, random.within(100 * MS..2500 * MS))
            }
            Self::ComparesNothing | Self::AwaitsNoLease | Self::IgnoresPeers => {
                Action::SetPath(weir, node, broken)
            }
            Self::IgnoresLease => Action::StopWeir(weir, 8000 * MS),
            // Nothing more has to happen.
            Self::ReadsFewPeers => Action::Repair,
            _ => Action::Kill(node),
        }
    }

    /// The roles as a Weir would decide them that breaks the rule.
    pub(crate) fn roles(self, weir: &Weir, now: Millis) -> Roles {
        if self >= Self::GroupIgnoresQuorum {
            return follow::roles(self, weir, now);
        }
        let mut policy = weir.settings.policy.clone();
        let instance = policy.epoch.as_ref().map_or_else(|| "".into(), |epoch| epoch.instance.clone());
        let mut seen = weir.seen.clone();
        let mut previous = weir.roles.clone();
        match self {
            Self::AwaitsNoNewView => set_wait(&mut policy, 0),
            Self::HoldsForEver => set_wait(&mut policy, u64::MAX),
            Self::AddsWriters => policy.galera.iter_mut().for_each(|row| row.max_writers += 1),
            Self::NeverGivesBack => {
                policy.galera.iter_mut().for_each(|row| row.choices.failback = Failback::Never);
            }
            Self::IgnoresUptime => {
                policy.galera.iter_mut().for_each(|row| row.choices.uptime_min_ms = 0);
            }
            Self::FailsBack => previous = forget_writers(previous),
            Self::IgnoresComponents => previous = forget_components(previous),
            Self::ForgetsApart => {
                previous.groups.iter_mut().for_each(|group| group.split.proven.clear());
            }
            _ => seen.iter_mut().for_each(|seen| self.embellish(seen, &instance, now)),
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
    fn embellish(self, seen: &mut Observation, instance: &InstanceId, now: Millis) {
        if self == Self::IgnoresTimeouts && seen.timeouts > 0 {
            (seen.timeouts, seen.fault, seen.at) = (0, None, now);
        }
        if let Some(read) = &mut seen.epoch {
            if let (Self::AwaitsNoLease, Some(row)) = (self, &mut read.row) {
                row.is_open = true;
            }
            if self == Self::ReadsFewPeers {
                read.instances.truncate(FEW);
            }
            if self == Self::IgnoresPeers {
                read.instances.retain(|row| &row.instance == instance);
            }
            if self == Self::AwaitsNoLease {
                // Else a claim is made only when other Weirs are silent, whose leases are mostly over by then.
                read.instances.iter_mut().for_each(|row| row.says.sees_writer &= &row.instance == instance);
            }
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

/// The same memory, as if components had only just begun to exclude each other, and all nodes worked: then it is never time
/// to choose one.
fn forget_components(mut previous: Roles) -> Roles {
    for group in &mut previous.groups {
        group.split = weir_topology::Split::default();
    }
    previous.places.iter_mut().for_each(|place| place.role = Role::Reader);
    previous
}
