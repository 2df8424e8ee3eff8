//! Decides the roles of one Galera cluster.

mod component;
mod components;
mod donor_handoff;
mod epoch;
mod failback;
mod views;

use std::cmp::Reverse;

use self::views::view_of;
use crate::health::{HealthCheck, OutOfService};
use crate::leadership::Leadership;
use crate::member::{self, healthy};
use crate::readers::{self, Reading};
use crate::{
    Cleared, ClusterPolicy, DonorReads, Endpoint, EpochPolicy, Flavour, GaleraState, Group, Hold, Intent,
    LocalState, Maintenance, Millis, Place, Reason, Role, Roles, ServerState, Split, Switch, SwitchStep,
    View, Wish,
};

/// The longest receive queue of a reading donor where the configuration sets no limit.
const DONOR_QUEUE_MAX: u32 = 100;
/// A longer receive queue is work that a new writer has to catch up on first. Positions are not compared: nodes are not
/// looked at in the same moment, so that in a busy cluster they say who was looked at last, and each Weir would choose
/// another writer.
const WRITER_QUEUE_MAX: u32 = 100;
/// How long the next writer's choice waits for the other nodes to report the new view, so that it is the best one and
/// not the one that was first to do so.
const VIEW_SETTLE_MS: u64 = 200;
/// A node that flow control stops for more than this share of the time is held up, until it is half of that.
const PAUSED_PERMILLE_MAX: u16 = 900;
/// One that has been held up for so long, while another is not, does not read.
const PAUSED_LONG_MS: u64 = 2000;

/// Decides the places of a cluster's servers.
pub(crate) fn decide(
    policy: &ClusterPolicy,
    intent: &[Intent],
    health: &HealthCheck<'_>,
    previous: &Roles,
) -> (Vec<Place>, Group) {
    let hostgroups = policy.hostgroups();
    let members = member::members(&hostgroups, intent, |endpoint| working(policy, health, endpoint));
    let reported = members
        .iter()
        .filter_map(|member| Some((member.endpoint, health.galera_state(member.endpoint)?)))
        .collect();
    let mut cluster = Cluster {
        policy,
        members,
        before: previous.before(policy.writer_hostgroup, Flavour::Galera),
        previous,
        now: health.now,
        unconfirmed_failover_ms: policy.choices.unconfirmed_failover_ms,
        switch: health.policy.switch_of(policy.writer_hostgroup),
        epoch: health.policy.epoch_of(policy),
        cleared: &health.policy.cleared,
        leadership: None,
        unanswered: health.unanswered().collect(),
        reported,
        view: None,
        hold: None,
        held_up: Vec::new(),
        history: None,
        split: Split::default(),
        contested: None,
    };
    cluster.drop_other_histories();
    cluster.drop_other_components(health);
    cluster.learn_epoch(health);
    cluster.drop_old_views();
    cluster.leave_history();
    cluster.give_up_silent();
    cluster.hold = cluster.due_hold();
    cluster.held_up = cluster.held_up_by_flow_control();
    let (mut group, candidates) = cluster.choose_writers();
    cluster.agree(&mut group, candidates);
    cluster.note_readiness(&mut group);
    cluster.propose_failback(&mut group);
    cluster.propose_to_yield(&mut group);
    cluster.name_donors(&mut group);
    group.held_up = cluster.held_up.clone();
    group.second_names = cluster.second_names();
    group.split.clone_from(&cluster.split);
    group.cannot_write = cluster.cannot_write_now(&group);
    (readers::all_places(&cluster.members, &group.writers, policy, &cluster), group)
}

/// The state of a node that is a working member of a Primary component, or why it is none. Whether it is behind, and
/// whether its history and view are the others', is not looked at here.
fn working<'a>(
    policy: &ClusterPolicy,
    health: &HealthCheck<'a>,
    endpoint: &Endpoint,
) -> Result<&'a GaleraState, OutOfService> {
    let ServerState::Galera(state) = health.state(endpoint, policy.timeouts_max)? else {
        return Err(OutOfService::silent(Reason::NotObserved));
    };
    if health.is_just_back(endpoint, policy.timeouts_max) {
        return Err(OutOfService::silent(Reason::JustBack));
    }
    if !state.connected {
        return Err(OutOfService::lost(Reason::NotConnected));
    }
    if !state.is_primary() {
        return Err(OutOfService::lost(Reason::NonPrimary { cluster_status: state.cluster_status.clone() }));
    }
    if state.maintenance != Maintenance::None {
        return Err(OutOfService::leaving(Reason::Maintenance(state.maintenance)));
    }
    if state.reject_queries {
        return Err(OutOfService::leaving(Reason::RejectsQueries));
    }
    match state.local_state {
        LocalState::Synced => {}
        LocalState::Donor if !state.sst_donor_rejects_queries => {}
        LocalState::Donor => return Err(OutOfService::leaving(Reason::DonorRejectsQueries)),
        local_state => return Err(OutOfService::leaving(Reason::NotSynced { local_state })),
    }
    if !state.ready {
        return Err(OutOfService::lost(Reason::NotReady));
    }
    Ok(state)
}

type Member<'a> = member::Member<'a, GaleraState>;
/// A server that could be the writer.
type Candidate<'a> = (&'a Endpoint, &'a GaleraState);

struct Cluster<'a> {
    policy: &'a ClusterPolicy,
    members: Vec<Member<'a>>,
    before: Group,
    previous: &'a Roles,
    now: Millis,
    switch: Option<&'a Switch>,
    unconfirmed_failover_ms: u64,
    epoch: Option<&'a EpochPolicy>,
    cleared: &'a [Cleared],
    leadership: Option<Leadership>,
    /// Whose last probe had no answer: what is known of them is of before.
    unanswered: Vec<&'a Endpoint>,
    /// What all its nodes say, whether they work or not.
    reported: Vec<Candidate<'a>>,
    view: Option<View>,
    hold: Option<Hold>,
    held_up: Vec<(Endpoint, Millis)>,
    /// The history that counts.
    history: Option<String>,
    split: Split,
    /// While components exclude each other: the nodes of that which counts.
    contested: Option<Vec<&'a Endpoint>>,
}

impl<'a> Cluster<'a> {
    fn healthy(&self) -> impl Iterator<Item = (&'a Endpoint, &'a GaleraState)> {
        healthy(&self.members).map(|(member, state)| (member.endpoint, state))
    }

    /// Servers that are the same node as another one.
    fn second_names(&self) -> Vec<(Endpoint, Endpoint)> {
        let answered = || self.reported.iter().filter(|(endpoint, _)| !self.unanswered.contains(endpoint));
        let first = |at: usize, state: &GaleraState| {
            answered().take(at).find(|(_, known)| known.is_same_node(state)).map(|(endpoint, _)| *endpoint)
        };
        let second = |(at, (endpoint, state)): (usize, &Candidate<'_>)| {
            Some(((*endpoint).clone(), first(at, state)?.clone()))
        };
        answered().enumerate().filter_map(second).collect()
    }

    fn state_of(&self, endpoint: &Endpoint) -> Option<&'a GaleraState> {
        self.healthy().find(|(member, _)| *member == endpoint).map(|(_, state)| state)
    }

    /// The hold that is due: writers were lost, and none is left.
    fn due_hold(&self) -> Option<Hold> {
        let writers = self.before.last_writers();
        if writers.is_empty() || writers.iter().any(|writer| self.state_of(writer).is_some()) {
            return None;
        }
        let lost = |writer: &&Endpoint| {
            let member = self.members.iter().find(|member| member.endpoint == *writer);
            member.is_some_and(|member| member.state.as_ref().is_err_and(|out| out.lost))
        };
        let lost: Vec<Endpoint> = writers.iter().filter(lost).cloned().collect();
        let since = self.before.hold.as_ref().map_or(self.now, |hold| hold.since);
        (!lost.is_empty()).then_some(Hold { lost, since })
    }

    /// Whether a candidate's view shows that the cluster goes on without the lost writer.
    fn confirms_loss(&self, state: &GaleraState) -> bool {
        let Some(last) = &self.before.writer_view else {
            // Where the row alone tells of the writer, only its address can be missing from a view.
            let row = self.leadership.as_ref().and_then(|leadership| leadership.row.as_ref());
            return row.is_none_or(|row| {
                row.writer_address.as_ref().is_some_and(|address| !state.members.contains(address))
            });
        };
        state.cluster_state_uuid == last.history
            && state.cluster_conf_id > last.number
            && match &last.writer_address {
                Some(address) => !state.members.contains(address),
                None => self.has_no_room(state, last.size),
            }
    }

    /// Whether a view of nodes that don't tell their addresses can't have a lost one: all its members are known to be
    /// others, or it is smaller than the one before by as many as are lost or in another one.
    fn has_no_room(&self, view: &GaleraState, size_before: u32) -> bool {
        // Not in another one of the same number.
        let is_in_it = |(endpoint, state): &&Candidate<'_>| {
            state.is_primary()
                && state.cluster_conf_id == view.cluster_conf_id
                && state.cluster_size == view.cluster_size
                && state.cluster_state_uuid == view.cluster_state_uuid
                && !self.split.apart.contains(endpoint)
        };
        let answered = self.reported.iter().filter(|(endpoint, _)| !self.unanswered.contains(endpoint));
        let mut known: Vec<&GaleraState> = Vec::new();
        for state in answered.filter(is_in_it).map(|(_, state)| *state) {
            if !known.iter().any(|other| other.is_same_node(state)) {
                known.push(state);
            }
        }
        let known = known.len();
        // One in an older view is either about to be in this one, or about to find out that it is not.
        let is_settled =
            self.view.as_ref().is_some_and(|newest| self.now.since(newest.since) >= VIEW_SETTLE_MS);
        let is_elsewhere = |member: &&Member<'_>| match &member.state {
            Ok(state) => {
                let may_follow = is_settled && state.cluster_conf_id < view.cluster_conf_id;
                !may_follow && !is_in_it(&&(member.endpoint, *state))
            }
            Err(out) => out.lost,
        };
        let lost = self.members.iter().filter(is_elsewhere).count();
        let left = size_before.saturating_sub(view.cluster_size) as usize;
        known >= view.cluster_size as usize || (left > 0 && left >= lost)
    }

    /// Who could be a writer now, and is there to be one: in doubt nobody.
    fn present_candidates(&self, before: &[Endpoint]) -> Vec<(&Member<'a>, &'a GaleraState)> {
        let mut candidates = self.candidates(|obstacle| obstacle.is_none());
        if candidates.is_empty() {
            candidates = self
                .candidates(|obstacle| matches!(obstacle, Some(Reason::Desynced | Reason::DonorCannotWrite)));
        }
        // Silence is not yet a reason to leave, but one not to begin.
        candidates.retain(|(member, _)| {
            before.contains(member.endpoint) || !self.unanswered.contains(&member.endpoint)
        });
        if !self.is_unconfirmed_due() && self.hold.is_some() {
            let able = candidates.len();
            candidates.retain(|(_, state)| self.confirms_loss(state));
            let newest = self.view.as_ref().map_or(0, |view| self.now.since(view.since));
            if candidates.len() < able && newest < VIEW_SETTLE_MS {
                candidates.clear();
            }
        }
        // Nothing is known of before, so that an older view tells nothing but its age.
        if before.is_empty()
            && self.before.last_wrote.is_empty()
            && let Some(view) = &self.view
        {
            candidates.retain(|(_, state)| state.cluster_conf_id >= view.number);
        }
        if self.awaits_first_look() {
            candidates.clear();
        }
        candidates
    }

    /// Whether some node was seen that does, and is not known to have stopped.
    fn replicates_all_tables(&self) -> bool {
        let says = healthy(&self.members).any(|(_, state)| state.replicates_all_tables);
        let is_known_of_all = self.members.iter().all(|member| member.state.is_ok());
        says || (self.before.replicates_all_tables && !is_known_of_all)
    }

    /// Whom the facts choose, and all who could have been chosen, the best first.
    fn choose_writers(&self) -> (Group, Vec<Candidate<'a>>) {
        let before = self.before.last_writers();
        let mut candidates = self.present_candidates(before);
        // With an epoch the role moves by the row.
        let takes_back: Vec<&Endpoint> = if self.leadership.is_some() {
            Vec::new()
        } else {
            let heavier = candidates.iter().filter(|(member, _)| self.takes_back(member, &candidates));
            heavier.map(|(member, _)| member.endpoint).collect()
        };
        // Else the present writers come first and in their order.
        let switch = self.switch.filter(|switch| self.leadership.is_none() && before.contains(&switch.from));
        candidates.sort_by_key(|(member, state)| {
            (
                switch.is_none_or(|switch| switch.to != *member.endpoint || switch.step != SwitchStep::Move),
                !takes_back.contains(&member.endpoint),
                before.iter().position(|writer| writer == member.endpoint).unwrap_or(usize::MAX),
                Reverse(member.weight_in(self.policy.writer_hostgroup)),
                Reverse(member.weight_in(self.policy.backup_writer_hostgroup)),
                state.segment != self.before.writer_segment,
                state.local_recv_queue > WRITER_QUEUE_MAX,
                member.endpoint,
            )
        });
        let candidates: Vec<Candidate<'a>> =
            candidates.into_iter().map(|(member, state)| (member.endpoint, state)).collect();
        let writers_max = usize::try_from(self.policy.max_writers).unwrap_or(usize::MAX);
        let mut writers: Vec<Endpoint> = candidates.iter().map(|(endpoint, _)| (*endpoint).clone()).collect();
        let successors = writers.split_off(writers_max.min(writers.len()));
        let first = candidates.first().map(|(_, state)| *state);
        let writer_view = match first {
            Some(state) => {
                let writer_address = state.own_address().map(str::to_owned);
                Some(View { writer_address, ..view_of(state, self.now) })
            }
            None => self.before.writer_view.clone(),
        };
        let history =
            first.map_or_else(|| self.before.history.clone(), |state| state.cluster_state_uuid.clone());
        let last_wrote = if writers.is_empty() { &self.before.last_wrote } else { &writers };
        let group = Group {
            writer_hostgroup: self.policy.writer_hostgroup,
            flavour: Flavour::Galera,
            history,
            last_wrote: last_wrote.clone(),
            hold: if writers.is_empty() { self.hold.clone() } else { None },
            writers,
            begun: Some(self.before.begun.unwrap_or(self.now)),
            view: self.view.clone(),
            writer_view,
            writer_segment: first.map_or(self.before.writer_segment, |state| state.segment),
            successors,
            replicates_all_tables: self.replicates_all_tables(),
            ..Group::default()
        };
        (group, candidates)
    }

    /// Who is held up by flow control, and since when.
    fn held_up_by_flow_control(&self) -> Vec<(Endpoint, Millis)> {
        let since = |(endpoint, state): (&Endpoint, &GaleraState)| {
            let known = self.before.held_up.iter().find(|(known, _)| known == endpoint);
            let limit = if known.is_some() { PAUSED_PERMILLE_MAX / 2 } else { PAUSED_PERMILLE_MAX };
            let is_held_up = state.flow_control_paused_permille > limit;
            is_held_up.then(|| (endpoint.clone(), known.map_or(self.now, |(_, since)| *since)))
        };
        self.healthy().filter_map(since).collect()
    }

    /// Whether flow control holds a node up for long. Where it holds up all, none is worse than the others.
    fn is_held_up_for_long(&self, endpoint: &Endpoint) -> bool {
        let held_up = self.held_up.iter().find(|(known, _)| known == endpoint);
        held_up.is_some_and(|(_, since)| self.now.since(*since) >= PAUSED_LONG_MS)
            && self.healthy().count() > self.held_up.len()
    }

    /// A lost writer has been waited for long enough, although the cluster still has it.
    fn is_unconfirmed_due(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| self.now.since(hold.since) >= self.unconfirmed_failover_ms)
    }

    fn awaits_first_look(&self) -> bool {
        member::awaits_first_look(&self.before, &self.members, self.now)
    }

    /// Why a member can't be a writer at its best; none if it can.
    fn cannot_write(&self, member: &Member<'_>) -> Option<Reason> {
        let state = match &member.state {
            Ok(state) => state,
            Err(out) => return Some(out.reason.clone()),
        };
        match member.wish_in(self.policy.writer_hostgroup) {
            Wish::Online if state.read_only => Some(Reason::ReadOnly),
            Wish::Online if state.desync => Some(Reason::Desynced),
            Wish::Online if state.local_state != LocalState::Synced => Some(Reason::DonorCannotWrite),
            Wish::Online => None,
            wish => Some(Reason::Wished(wish)),
        }
    }

    /// The healthy members whose obstacle to writing (none: no obstacle) is accepted.
    fn candidates(&self, accepted: impl Fn(Option<Reason>) -> bool) -> Vec<(&Member<'a>, &'a GaleraState)> {
        healthy(&self.members).filter(|(member, _)| accepted(self.cannot_write(member))).collect()
    }

    fn cannot_write_now(&self, group: &Group) -> Vec<(Endpoint, Reason)> {
        let lost = group.hold.as_ref().and_then(|hold| hold.lost.first());
        let others = self.members.iter().filter(|member| !group.writers.contains(member.endpoint));
        let unseen = self.awaits_first_look().then_some(Reason::AwaitsFirstLook);
        let obstacle = |member: &Member<'_>| {
            let held = lost.map(|lost| Reason::AwaitsNewView { lost: lost.clone() });
            let waits = group.waits_for.clone().or(held).or(unseen.clone());
            Some((member.endpoint.clone(), self.cannot_write(member).or(waits)?))
        };
        others.filter_map(obstacle).collect()
    }

    fn writer_reason(&self, member: &Member<'_>, state: &GaleraState, writers: &[Endpoint]) -> Reason {
        if self.cannot_write(member).is_some() {
            return Reason::OnlyWriterThoughDesynced;
        }
        let before = self.before.last_writers();
        if before.contains(member.endpoint) {
            // How it became writer stays the reason, for as long as it is.
            let kept = self.previous.reason_in(self.policy.writer_hostgroup, member.endpoint);
            let kept = kept.filter(|reason| **reason != Reason::OnlyWriterThoughDesynced);
            return kept.cloned().or_else(|| self.epoch_reason()).unwrap_or(Reason::StaysWriter);
        }
        match before.iter().find(|from| !writers.contains(from)) {
            Some(from) if self.gave_way_to_weight(from) => Reason::TookBack { from: from.clone() },
            Some(from) => {
                let confirmed = self.hold.is_none() || self.confirms_loss(state);
                Reason::TookOver { from: from.clone(), confirmed }
            }
            None => Reason::ChosenWriter { weight: member.weight_in(self.policy.writer_hostgroup) },
        }
    }
}

impl Reading<GaleraState> for Cluster<'_> {
    fn writers_and_backups(&self, writers: &[Endpoint]) -> Vec<Place> {
        let backup = self.policy.backup_writer_hostgroup;
        let place = |member: &Member<'_>| {
            let state = member.state.as_ref().ok()?;
            if writers.contains(member.endpoint) {
                let reason = self.writer_reason(member, state, writers);
                return Some(member.place(self.policy.writer_hostgroup, Role::Writer, reason));
            }
            let could = self.cannot_write(member).is_none() && member.wish_in(backup) == Wish::Online;
            could.then(|| member.place(backup, Role::BackupWriter, Reason::CouldWrite))
        };
        self.members.iter().filter_map(place).collect()
    }

    fn too_slow(&self, member: &Member<'_>, state: &GaleraState) -> Option<Reason> {
        if state.desync {
            return Some(Reason::Desynced);
        }
        if state.local_state == LocalState::Donor
            && self.policy.choices.donor_reads == DonorReads::AsLastResort
        {
            return Some(Reason::DonorStandsAside);
        }
        if self.is_held_up_for_long(member.endpoint) {
            return Some(Reason::FlowControl { paused_permille: state.flow_control_paused_permille });
        }
        let limit = match self.policy.max_transactions_behind {
            0 if state.local_state == LocalState::Donor => DONOR_QUEUE_MAX,
            0 => return None,
            limit => limit,
        };
        let before = self.previous.reason_in(self.policy.reader_hostgroup, member.endpoint);
        let was_slow = before.is_some_and(Reason::is_behind);
        let limit = if was_slow { limit / 2 } else { limit };
        let recv_queue = state.local_recv_queue;
        (recv_queue > limit).then_some(Reason::Lagging { recv_queue, limit })
    }

    fn healthy(&self, state: &GaleraState) -> Reason {
        match state.local_state {
            LocalState::Donor => Reason::Donor { recv_queue: state.local_recv_queue },
            _ => Reason::Healthy,
        }
    }

    fn only_reader(&self, state: &GaleraState) -> Reason {
        Reason::LaggingButOnlyReader { recv_queue: state.local_recv_queue }
    }

    fn too_far(&self, state: &GaleraState) -> Option<Reason> {
        let preferred = self.policy.choices.reader_segment?;
        let segment = state.segment;
        (segment != preferred).then_some(Reason::OtherSegment { segment, preferred })
    }
}
