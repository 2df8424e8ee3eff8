//! Decides the roles of one MySQL Group Replication group: the group chooses its primary, Weir follows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::health::{HealthCheck, OutOfService};
use crate::member::{self, healthy};
use crate::readers::{self, Reading};
use crate::{
    ClusterPolicy, Endpoint, Flavour, Group, GroupState, Intent, MemberState, Millis, Place, Reason, Role,
    Roles, ServerState, Switch, SwitchStep, View, Wish,
};

/// With several primaries one that is further behind has work to catch up on first.
const WRITER_BEHIND_MAX: u32 = 100;
/// A view spreads in a fraction of this; a member still in an older one is cut off.
const VIEW_SPREAD_MS: u64 = 1000;

/// Decides the places of a group's servers.
pub(crate) fn decide(
    policy: &ClusterPolicy,
    intent: &[Intent],
    health: &HealthCheck<'_>,
    previous: &Roles,
) -> (Vec<Place>, Group) {
    let hostgroups = policy.hostgroups();
    let mut cluster = Cluster {
        policy,
        members: member::members(&hostgroups, intent, |endpoint| working(policy, health, endpoint)),
        before: previous.before(policy.writer_hostgroup, Flavour::GroupReplication),
        previous,
        now: health.now,
        switch: health.policy.switch_of(policy.writer_hostgroup),
        view: None,
    };
    cluster.drop_other_groups();
    cluster.drop_old_views();
    cluster.drop_unreachable();
    cluster.drop_just_back(health);
    cluster.give_up_expelled(health);
    let mut group = cluster.choose_writers();
    group.cannot_write = cluster.cannot_write_now(&group);
    (readers::all_places(&cluster.members, &group.writers, policy, &cluster), group)
}

/// The state of a server that calls itself an ONLINE member of a group with quorum, or why it is none. Whether it is
/// behind, and whether the others agree, is not looked at here.
fn working<'a>(
    policy: &ClusterPolicy,
    health: &HealthCheck<'a>,
    endpoint: &Endpoint,
) -> Result<&'a GroupState, OutOfService> {
    let ServerState::Group(state) = health.state(endpoint, policy.timeouts_max)? else {
        return Err(OutOfService::silent(Reason::NotObserved));
    };
    match state.own().map(|own| own.state) {
        None => return Err(OutOfService::lost(Reason::NotInGroup)),
        Some(MemberState::Online) => {}
        Some(state @ MemberState::Recovering) => {
            return Err(OutOfService::leaving(Reason::NotOnline { state }));
        }
        Some(state) => return Err(OutOfService::lost(Reason::NotOnline { state })),
    }
    if !state.is_online() {
        return Err(OutOfService::lost(Reason::NotInGroup));
    }
    if !state.has_quorum() {
        let (unreachable, members) = (state.unreachable(), state.members.len());
        return Err(OutOfService::lost(Reason::NoQuorum { unreachable, members }));
    }
    Ok(state)
}

type Member<'a> = member::Member<'a, GroupState>;

struct Cluster<'a> {
    policy: &'a ClusterPolicy,
    members: Vec<Member<'a>>,
    before: Group,
    previous: &'a Roles,
    now: Millis,
    switch: Option<&'a Switch>,
    view: Option<View>,
}

impl<'a> Cluster<'a> {
    /// Puts every healthy member out of whose state `why` says so.
    fn drop_where(&mut self, why: impl Fn(&GroupState) -> Option<OutOfService>) {
        for member in &mut self.members {
            if let Ok(state) = member.state
                && let Some(out) = why(state)
            {
                member.state = Err(out);
            }
        }
    }

    /// A group that is bootstrapped a second time is another one, with quorum of its own, even if it has the same
    /// name. That of the last writer counts. If no server works in it any more, another one takes its place only where
    /// it must have been made on purpose: see [`Self::may_replace`]. In the beginning that of most servers counts; if
    /// there is none, nobody can tell, and nobody works.
    fn drop_other_groups(&mut self) {
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for (_, state) in healthy(&self.members) {
            *votes.entry(state.history()).or_default() += 1;
        }
        let last = self.before.writer_view.as_ref().map(|view| view.history.clone());
        let winner = only_winner(&votes);
        let trusted = match last {
            Some(last) if votes.contains_key(&last) => Some(last),
            Some(last) => {
                winner.filter(|winner| self.may_replace(winner, votes.get(winner).copied())).or(Some(last))
            }
            None => winner,
        };
        self.drop_where(|state| match &trusted {
            None => Some(OutOfService::silent(Reason::GroupsDiffer)),
            Some(trusted) if state.history() == *trusted => None,
            Some(_) => Some(OutOfService::lost(Reason::OtherGroup { group: state.history() })),
        });
    }

    /// Whether a group of which so many servers say that they work takes the place of the one so far: more than half of all
    /// servers are in it, as themselves or another member of it says, or every other one says that it is in none. While
    /// the members of the old group are only without quorum, or can't be reached, a server that somebody has started as a
    /// group of its own is not what they go on as.
    fn may_replace(&self, group: &str, votes: Option<usize>) -> bool {
        let works = |state: &GroupState| {
            let members = state.members.iter();
            members
                .filter(|member| matches!(member.state, MemberState::Online | MemberState::Recovering))
                .count()
        };
        let told = healthy(&self.members).filter(|(_, state)| state.history() == group);
        if told.map(|(_, state)| works(state)).max().is_some_and(|works| 2 * works > self.members.len()) {
            return true;
        }
        let is_wanted = |member: &&Member<'_>| {
            !member.state.as_ref().is_err_and(|out| matches!(out.reason, Reason::Wished(_)))
        };
        let wanted = || self.members.iter().filter(is_wanted);
        let is_in_none = |member: &Member<'_>| {
            let reason = member.state.as_ref().err().map(|out| &out.reason);
            let out = [MemberState::Offline, MemberState::Error];
            reason.is_some_and(|reason| match reason {
                Reason::NotInGroup => true,
                Reason::NotOnline { state } => out.contains(state),
                _ => false,
            })
        };
        let votes = votes.unwrap_or(0);
        let out = wanted().filter(|member| is_in_none(member)).count();
        2 * votes > wanted().count() || votes + out == wanted().count()
    }

    /// The newest view counts. A server in an older one was expelled, or is about to take over the new one. Servers
    /// that name different members for the same view are outvoted by most others; a tie leaves nobody. A view that
    /// was seen once stays the newest, also when nobody is left who tells of it: numbers never go back.
    fn drop_old_views(&mut self) {
        let states = || healthy(&self.members).map(|(_, state)| state);
        let Some(seen) = states().map(|state| state.view_number).max() else {
            self.view = self.before.view.clone();
            return;
        };
        let Some(history) = states().map(GroupState::history).next() else { return };
        let mut votes: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for state in states().filter(|state| state.view_number == seen) {
            *votes.entry(ids(state)).or_default() += 1;
        }
        let is_ours = |view: &&View| view.number >= seen && view.history == history;
        self.view = self.before.view.as_ref().filter(is_ours).cloned();
        let Some(listed) = only_winner(&votes) else {
            return self.drop_where(|_| Some(OutOfService::silent(Reason::GroupsDiffer)));
        };
        let view = self.view.get_or_insert(View {
            history,
            number: seen,
            size: 0,
            writer_address: None,
            since: self.now,
            older_since: None,
            oldest: seen,
        });
        let newest = view.number;
        let is_spread = self.now.since(view.since) >= VIEW_SPREAD_MS;
        self.drop_where(|state| {
            if !listed.contains(&state.server_uuid) {
                Some(OutOfService::lost(Reason::Expelled { newest: seen }))
            } else if state.view_number == seen && ids(state) != listed {
                Some(OutOfService::silent(Reason::GroupsDiffer))
            } else {
                let is_old = state.view_number < newest && is_spread;
                is_old.then(|| OutOfService::lost(Reason::OldView { conf_id: state.view_number, newest }))
            }
        });
    }

    /// A member that most others do not reach can't commit, and gets nothing new, though it may not know yet.
    fn drop_unreachable(&mut self) {
        let mut doubts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, state) in healthy(&self.members) {
            for member in state.members.iter().filter(|member| !member.state.is_reachable()) {
                *doubts.entry(member.id.clone()).or_default() += 1;
            }
        }
        self.drop_where(|state| {
            let doubts = doubts.get(&state.server_uuid).copied().unwrap_or(0);
            let others = state.members.len().saturating_sub(1);
            (2 * doubts > others).then(|| OutOfService::silent(Reason::OutOfGroupsSight))
        });
    }

    /// A member whose process was stopped says for a moment what was true before. Where no other is in sight, only
    /// time tells.
    fn drop_just_back(&mut self, health: &HealthCheck<'_>) {
        for member in &mut self.members {
            if member.state.is_ok() && health.is_just_back(member.endpoint, self.policy.timeouts_max) {
                member.state = Err(OutOfService::silent(Reason::JustBack));
            }
        }
    }

    /// A silent member that the group goes on without: what is under way there can't commit any more, and when it
    /// speaks again it has to join anew. Its connections are let go, where those of one that is only silent are kept.
    fn give_up_expelled(&mut self, health: &HealthCheck<'_>) {
        let Some(View { history, number: newest, .. }) = self.view.clone() else { return };
        let in_newest = |state: &&GroupState| state.view_number == newest;
        let Some(listed) = healthy(&self.members).map(|(_, state)| state).find(in_newest).map(ids) else {
            return;
        };
        for member in &mut self.members {
            let is_silent = member.state.as_ref().is_err_and(|out| {
                matches!(out.reason, Reason::TimedOut { .. } | Reason::NotObservedForLong { .. })
            });
            if let Some(ServerState::Group(last)) = health.last_state(member.endpoint)
                && is_silent
                && last.history() == history
                && last.view_number < newest
                && !listed.contains(&last.server_uuid)
            {
                member.state = Err(OutOfService::lost(Reason::SilentAndExpelled { newest }));
            }
        }
    }

    /// Whether the group has one primary. While it changes over, members may differ: then the stricter rules hold.
    fn has_single_primary(&self) -> bool {
        healthy(&self.members).any(|(_, state)| state.single_primary)
    }

    /// The members whose obstacle to writing (none: no obstacle) is accepted, the best writer first.
    fn candidates(&self, accepted: impl Fn(Option<Reason>) -> bool) -> Vec<Endpoint> {
        let before = self.before.last_writers();
        let moves = |switch: &&Switch| switch.step == SwitchStep::Move && before.contains(&switch.from);
        let switch = self.switch.filter(moves);
        let mut candidates: Vec<_> =
            healthy(&self.members).filter(|(member, _)| accepted(self.cannot_write(member))).collect();
        candidates.sort_by_key(|(member, state)| {
            (
                switch.is_none_or(|switch| switch.to != *member.endpoint),
                before.iter().position(|writer| writer == member.endpoint).unwrap_or(usize::MAX),
                Reverse(member.weight_in(self.policy.writer_hostgroup)),
                Reverse(member.weight_in(self.policy.backup_writer_hostgroup)),
                state.transactions_behind() > WRITER_BEHIND_MAX,
                member.endpoint,
            )
        });
        candidates.into_iter().map(|(member, _)| member.endpoint.clone()).collect()
    }

    fn choose_writers(&self) -> Group {
        let mut writers = self.candidates(|obstacle| obstacle.is_none());
        if self.awaits_first_look() {
            writers.clear();
        }
        let writers_max = usize::try_from(self.policy.max_writers).unwrap_or(usize::MAX);
        let successors = match self.has_single_primary() {
            // The group can make any of them its primary.
            true => self.candidates(|obstacle| obstacle == Some(Reason::Secondary)),
            false => writers.iter().skip(writers_max).cloned().collect(),
        };
        writers.truncate(writers_max);
        let hold = || member::hold_without_writer(&self.before, &self.members, self.now);
        // Of a group that is bootstrapped again it is the same.
        let writer = healthy(&self.members).find(|(member, _)| writers.contains(member.endpoint));
        Group {
            writer_hostgroup: self.policy.writer_hostgroup,
            flavour: Flavour::GroupReplication,
            history: writer
                .map_or_else(|| self.before.history.clone(), |(_, state)| state.group_name.clone()),
            hold: if writers.is_empty() { hold() } else { None },
            writer_view: if writers.is_empty() { self.before.writer_view.clone() } else { self.view.clone() },
            writers,
            begun: Some(self.before.begun.unwrap_or(self.now)),
            view: self.view.clone(),
            writer_segment: 0,
            successors,
            cannot_write: Vec::new(),
            ..Group::default()
        }
    }

    fn awaits_first_look(&self) -> bool {
        member::awaits_first_look(&self.before, &self.members, self.now)
    }

    /// Why a member can't be a writer; none if it can.
    fn cannot_write(&self, member: &Member<'_>) -> Option<Reason> {
        let state = match &member.state {
            Ok(state) => *state,
            Err(out) => return Some(out.reason.clone()),
        };
        let wish = member.wish_in(self.policy.writer_hostgroup);
        if wish != Wish::Online {
            return Some(Reason::Wished(wish));
        }
        if !is_primary(state) {
            return Some(Reason::Secondary);
        }
        if state.read_only {
            return Some(Reason::ReadOnly);
        }
        if self.has_single_primary() { self.cannot_be_the_primary(member, state) } else { None }
    }

    /// Why a member that calls itself the primary is not trusted with it yet.
    fn cannot_be_the_primary(&self, member: &Member<'_>, state: &GroupState) -> Option<Reason> {
        let mut others = healthy(&self.members).filter(|(other, state)| {
            other.endpoint != member.endpoint && is_primary(state) && !state.read_only
        });
        if let Some((other, _)) = others.next() {
            return Some(Reason::AnotherPrimary { other: other.endpoint.clone() });
        }
        // With group_replication_consistency = EVENTUAL a new primary answers before it has applied everything; and who
        // finds it as the primary can't know since when it is.
        let is_new = !self.before.last_writers().contains(member.endpoint);
        let transactions = state.applier_queue;
        (is_new && transactions > 0).then_some(Reason::AwaitsBacklog { transactions })
    }

    fn cannot_write_now(&self, group: &Group) -> Vec<(Endpoint, Reason)> {
        let unseen = self.awaits_first_look().then_some(Reason::AwaitsFirstLook);
        let others = self.members.iter().filter(|member| !group.writers.contains(member.endpoint));
        let obstacle = |member: &Member<'_>| {
            let reason = match (self.cannot_write(member), group.hold.as_ref().map(|hold| &*hold.lost)) {
                (Some(Reason::Secondary), Some([lost, ..])) if lost != member.endpoint => {
                    Reason::AwaitsElection { lost: lost.clone() }
                }
                (Some(reason), _) => reason,
                (None, _) => unseen.clone()?,
            };
            Some((member.endpoint.clone(), reason))
        };
        others.filter_map(obstacle).collect()
    }

    fn writer_reason(&self, member: &Member<'_>, writers: &[Endpoint]) -> Reason {
        let before = self.before.last_writers();
        if before.contains(member.endpoint) {
            // How it became writer stays the reason, for as long as it is.
            let kept = self.previous.reason_in(self.policy.writer_hostgroup, member.endpoint);
            return kept.cloned().unwrap_or(Reason::StaysWriter);
        }
        match before.iter().find(|from| !writers.contains(from)) {
            Some(from) => Reason::TookOver { from: from.clone(), confirmed: true },
            None if self.has_single_primary() => Reason::GroupPrimary,
            None => Reason::ChosenWriter { weight: member.weight_in(self.policy.writer_hostgroup) },
        }
    }
}

impl Reading<GroupState> for Cluster<'_> {
    fn writers_and_backups(&self, writers: &[Endpoint]) -> Vec<Place> {
        let backup = self.policy.backup_writer_hostgroup;
        let has_backups = !self.has_single_primary();
        let place = |(member, _): (&Member<'_>, &GroupState)| {
            if writers.contains(member.endpoint) {
                let reason = self.writer_reason(member, writers);
                return Some(member.place(self.policy.writer_hostgroup, Role::Writer, reason));
            }
            let could =
                has_backups && self.cannot_write(member).is_none() && member.wish_in(backup) == Wish::Online;
            could.then(|| member.place(backup, Role::BackupWriter, Reason::CouldWrite))
        };
        healthy(&self.members).filter_map(place).collect()
    }

    fn too_slow(&self, member: &Member<'_>, state: &GroupState) -> Option<Reason> {
        let limit = match self.policy.max_transactions_behind {
            0 => return None,
            limit => limit,
        };
        let before = self.previous.reason_in(self.policy.reader_hostgroup, member.endpoint);
        let was_slow = before.is_some_and(Reason::is_behind);
        let limit = if was_slow { limit / 2 } else { limit };
        let transactions = state.transactions_behind();
        (transactions > limit).then_some(Reason::Behind { transactions, limit })
    }

    fn healthy(&self, _: &GroupState) -> Reason {
        Reason::Healthy
    }

    fn only_reader(&self, state: &GroupState) -> Reason {
        Reason::BehindButOnlyReader { transactions: state.transactions_behind() }
    }
}

fn is_primary(state: &GroupState) -> bool {
    state.own().is_some_and(|own| own.is_primary)
}

fn ids(state: &GroupState) -> Vec<String> {
    state.members.iter().map(|member| member.id.clone()).collect()
}

/// What has more votes than anything else.
fn only_winner<T: Clone + Ord>(votes: &BTreeMap<T, usize>) -> Option<T> {
    let most = votes.values().max()?;
    let mut winners = votes.iter().filter(|(_, count)| *count == most).map(|(what, _)| what);
    let winner = winners.next()?;
    winners.next().is_none().then(|| winner.clone())
}
