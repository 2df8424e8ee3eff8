//! The roles of one Galera cluster.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::judge::{Judge, Out};
use crate::{
    Endpoint, GaleraPolicy, GaleraState, Group, Hold, Intent, LocalState, Millis, Place, Reason, Role, Roles,
    Status, View, Wish, WriterReads,
};

/// The longest receive queue of a reading donor where the configuration sets no limit.
const DONOR_QUEUE_MAX: u32 = 100;
/// A longer receive queue is work that a new writer has to catch up on first. Positions are not compared: nodes are not
/// looked at in the same moment, so that in a busy cluster they say who was looked at last, and each Weir would choose
/// another writer.
const WRITER_QUEUE_MAX: u32 = 100;
/// A view spreads in a fraction of this; a node still in an older one is cut off.
const VIEW_SPREAD_MS: u64 = 1000;
/// How long the next writer's choice waits for the other nodes to report the new view, so that it is the best one and
/// not the one that was first to do so.
const VIEW_SETTLE_MS: u64 = 200;
/// How long the first writer's choice waits for the first look at every server.
const FIRST_LOOK_MS: u64 = 5000;
/// Flow control above this share of the time, while others are not held up, makes a reader leave.
const PAUSED_PERMILLE_MAX: u16 = 900;

/// Decides the places of a cluster's servers.
pub(crate) fn decide(
    policy: &GaleraPolicy,
    intent: &[Intent],
    judge: &Judge<'_>,
    previous: &Roles,
) -> (Vec<Place>, Group) {
    let before = previous.group(policy.writer_hostgroup).cloned().unwrap_or_default();
    let mut cluster = Cluster::new(policy, intent, judge, before, previous);
    cluster.drop_other_histories();
    cluster.drop_old_views();
    cluster.hold = cluster.due_hold();
    let mut group = cluster.choose_writers();
    group.cannot_write = cluster.cannot_write_now(&group);
    let mut places = cluster.writers_and_backups(&group.writers);
    places.extend(cluster.readers(&group.writers));
    places.extend(cluster.offline());
    (places, group)
}

/// A server of the cluster, with all its rows.
struct Member<'a> {
    endpoint: &'a Endpoint,
    rows: Vec<&'a Intent>,
    state: Result<&'a GaleraState, Out>,
}

struct Cluster<'a> {
    policy: &'a GaleraPolicy,
    members: Vec<Member<'a>>,
    before: Group,
    previous: &'a Roles,
    now: Millis,
    unconfirmed_failover_ms: u64,
    view: Option<View>,
    hold: Option<Hold>,
}

impl<'a> Cluster<'a> {
    fn new(
        policy: &'a GaleraPolicy,
        intent: &'a [Intent],
        judge: &Judge<'a>,
        before: Group,
        previous: &'a Roles,
    ) -> Self {
        let mut rows: BTreeMap<&Endpoint, Vec<&Intent>> = BTreeMap::new();
        for row in intent.iter().filter(|row| policy.owns(row.hostgroup)) {
            rows.entry(&row.endpoint).or_default().push(row);
        }
        let member = |(endpoint, rows): (&'a Endpoint, Vec<&'a Intent>)| {
            let wish = rows.iter().map(|row| row.wish).min_by_key(|wish| match wish {
                Wish::Online => 0,
                Wish::OfflineSoft => 1,
                Wish::OfflineHard => 2,
            });
            let state = match wish {
                Some(wish @ Wish::OfflineSoft) => Err(Out::leaving(Reason::Wished(wish))),
                Some(wish @ Wish::OfflineHard) => {
                    Err(Out { status: Status::OfflineHard, ..Out::leaving(Reason::Wished(wish)) })
                }
                _ => judge.member(endpoint),
            };
            Member { endpoint, rows, state }
        };
        Self {
            policy,
            members: rows.into_iter().map(member).collect(),
            before,
            previous,
            now: judge.now,
            unconfirmed_failover_ms: judge.policy.unconfirmed_failover_ms,
            view: None,
            hold: None,
        }
    }

    fn healthy(&self) -> impl Iterator<Item = (&'a Endpoint, &'a GaleraState)> {
        self.members.iter().filter_map(|member| Some((member.endpoint, *member.state.as_ref().ok()?)))
    }

    fn state_of(&self, endpoint: &Endpoint) -> Option<&'a GaleraState> {
        self.healthy().find(|(member, _)| *member == endpoint).map(|(_, state)| state)
    }

    /// Nodes may disagree on the history only if one was set up apart. The writer's counts: the present one's, or that
    /// of the last one while any node has it; else that of most nodes, then that with the most advanced position.
    fn drop_other_histories(&mut self) {
        let writer = self.before.writers.iter().find_map(|writer| self.state_of(writer));
        let last = self.before.writer_view.as_ref().map(|view| view.cluster_state_uuid.as_str());
        let last = last.filter(|uuid| self.healthy().any(|(_, state)| state.cluster_state_uuid == *uuid));
        let mut votes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (_, state) in self.healthy() {
            let (count, position) = votes.entry(&state.cluster_state_uuid).or_default();
            *count += 1;
            *position = (*position).max(state.last_committed);
        }
        let most = votes.iter().max_by_key(|(_, votes)| **votes).map(|(uuid, _)| *uuid);
        let trusted = writer.map(|state| state.cluster_state_uuid.as_str()).or(last).or(most);
        let Some(trusted) = trusted.map(str::to_owned) else { return };
        for member in &mut self.members {
            if let Ok(state) = member.state
                && state.cluster_state_uuid != trusted
            {
                let cluster_state_uuid = state.cluster_state_uuid.clone();
                member.state = Err(Out::lost(Reason::OtherHistory { cluster_state_uuid }));
            }
        }
    }

    /// A node whose view has been superseded for a while is not in the component that the others are in.
    fn drop_old_views(&mut self) {
        let Some((_, newest)) = self.healthy().max_by_key(|(_, state)| state.cluster_conf_id) else { return };
        let known = self.before.view.as_ref().filter(|view| {
            view.conf_id == newest.cluster_conf_id && view.cluster_state_uuid == newest.cluster_state_uuid
        });
        let since = known.map_or(self.now, |view| view.since);
        let view = View::of(newest, since);
        if self.now.since(since) >= VIEW_SPREAD_MS {
            for member in &mut self.members {
                if let Ok(state) = member.state
                    && state.cluster_conf_id < view.conf_id
                {
                    let reason = Reason::OldView { conf_id: state.cluster_conf_id, newest: view.conf_id };
                    member.state = Err(Out::lost(reason));
                }
            }
        }
        self.view = Some(view);
    }

    /// The writers of the last decision, lost ones too.
    fn writers_before(&self) -> &[Endpoint] {
        self.before.hold.as_ref().map_or(&self.before.writers, |hold| &hold.lost)
    }

    /// The hold that is due: writers were lost, and none is left.
    fn due_hold(&self) -> Option<Hold> {
        let writers = self.writers_before();
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
        let Some(last) = &self.before.writer_view else { return true };
        state.cluster_state_uuid == last.cluster_state_uuid
            && state.cluster_conf_id > last.conf_id
            && !last.writer_address.as_ref().is_some_and(|address| state.members.contains(address))
    }

    fn choose_writers(&self) -> Group {
        let mut candidates = self.candidates(|obstacle| obstacle.is_none());
        if candidates.is_empty() {
            candidates = self
                .candidates(|obstacle| matches!(obstacle, Some(Reason::Desynced | Reason::DonorCannotWrite)));
        }
        if self.hold.as_ref().is_some_and(|hold| self.now.since(hold.since) < self.unconfirmed_failover_ms) {
            let able = candidates.len();
            candidates.retain(|(_, state)| self.confirms_loss(state));
            let newest = self.view.as_ref().map_or(0, |view| self.now.since(view.since));
            if candidates.len() < able && newest < VIEW_SETTLE_MS {
                candidates.clear();
            }
        }
        if self.awaits_first_look() {
            candidates.clear();
        }
        // The present writers first and in their order: failback is `never`.
        let before = self.writers_before();
        candidates.sort_by_key(|(member, state)| {
            (
                before.iter().position(|writer| writer == member.endpoint).unwrap_or(usize::MAX),
                Reverse(member.weight_in(self.policy.writer_hostgroup)),
                Reverse(member.weight_in(self.policy.backup_writer_hostgroup)),
                state.segment != self.before.writer_segment,
                state.local_recv_queue > WRITER_QUEUE_MAX,
                member.endpoint,
            )
        });
        candidates.truncate(usize::try_from(self.policy.max_writers).unwrap_or(usize::MAX));
        let writers: Vec<Endpoint> = candidates.iter().map(|(member, _)| member.endpoint.clone()).collect();
        let first = candidates.first().map(|(_, state)| *state);
        let writer_view = match first {
            Some(state) => {
                let writer_address = state.own_address().map(str::to_owned);
                Some(View { writer_address, ..View::of(state, self.now) })
            }
            None => self.before.writer_view.clone(),
        };
        Group {
            writer_hostgroup: self.policy.writer_hostgroup,
            hold: if writers.is_empty() { self.hold.clone() } else { None },
            writers,
            begun: Some(self.before.begun.unwrap_or(self.now)),
            view: self.view.clone(),
            writer_view,
            writer_segment: first.map_or(self.before.writer_segment, |state| state.segment),
            cannot_write: Vec::new(),
        }
    }

    /// The first writer is the best one, not the one that was seen first.
    fn awaits_first_look(&self) -> bool {
        let unseen =
            |member: &Member<'_>| member.state.as_ref().is_err_and(|out| out.reason == Reason::NotObserved);
        self.before.writer_view.is_none()
            && self.before.begun.is_none_or(|begun| self.now.since(begun) < FIRST_LOOK_MS)
            && self.members.iter().any(unseen)
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
        let members = self.members.iter().filter(|member| accepted(self.cannot_write(member)));
        members.filter_map(|member| Some((member, *member.state.as_ref().ok()?))).collect()
    }

    fn cannot_write_now(&self, group: &Group) -> Vec<(Endpoint, Reason)> {
        let lost = group.hold.as_ref().and_then(|hold| hold.lost.first());
        let others = self.members.iter().filter(|member| !group.writers.contains(member.endpoint));
        let unseen = self.awaits_first_look().then_some(Reason::AwaitsFirstLook);
        let obstacle = |member: &Member<'_>| {
            let held = lost.map(|lost| Reason::AwaitsNewView { lost: lost.clone() });
            Some((member.endpoint.clone(), self.cannot_write(member).or(held).or(unseen.clone())?))
        };
        others.filter_map(obstacle).collect()
    }

    fn writers_and_backups(&self, writers: &[Endpoint]) -> Vec<Place> {
        let backup = self.policy.backup_writer_hostgroup;
        let place = |member: &Member<'a>| {
            let state = member.state.as_ref().ok()?;
            if writers.contains(member.endpoint) {
                let reason = self.writer_reason(member, state, writers);
                return Some(member.place(self.policy.writer_hostgroup, Role::Writer, reason, self.policy));
            }
            let could = self.cannot_write(member).is_none() && member.wish_in(backup) == Wish::Online;
            could.then(|| member.place(backup, Role::BackupWriter, Reason::CouldWrite, self.policy))
        };
        self.members.iter().filter_map(place).collect()
    }

    fn writer_reason(&self, member: &Member<'_>, state: &GaleraState, writers: &[Endpoint]) -> Reason {
        if self.cannot_write(member).is_some() {
            return Reason::OnlyWriterThoughDesynced;
        }
        let before = self.writers_before();
        if before.contains(member.endpoint) {
            // How it became writer stays the reason, for as long as it is.
            let places = self.previous.hostgroup(self.policy.writer_hostgroup).iter();
            let mut reasons =
                places.filter(|place| place.endpoint == *member.endpoint).map(|place| &place.reason);
            let kept = reasons.find(|reason| **reason != Reason::OnlyWriterThoughDesynced);
            return kept.cloned().unwrap_or(Reason::StaysWriter);
        }
        match before.iter().find(|from| !writers.contains(from)) {
            Some(from) => {
                let confirmed = self.hold.is_none() || self.confirms_loss(state);
                Reason::TookOver { from: from.clone(), confirmed }
            }
            None => Reason::ChosenWriter { weight: member.weight_in(self.policy.writer_hostgroup) },
        }
    }

    fn readers(&self, writers: &[Endpoint]) -> Vec<Place> {
        let hostgroup = self.policy.reader_hostgroup;
        let spared = |member: &Member<'_>| {
            self.policy.writer_reads != WriterReads::Yes && writers.contains(member.endpoint)
        };
        let healthy: Vec<_> =
            self.members.iter().filter_map(|member| Some((member, *member.state.as_ref().ok()?))).collect();
        let wanted: Vec<_> = healthy
            .iter()
            .filter(|(member, _)| member.wish_in(hostgroup) == Wish::Online)
            .map(|(member, state)| (*member, *state, self.too_slow(member, state)))
            .collect();
        let all_slow = wanted.iter().all(|(_, _, slow)| slow.is_some());
        let spare_writers = wanted.iter().any(|(member, _, slow)| slow.is_none() && !spared(member));
        let mut places = Vec::new();
        for (member, state, slow) in wanted {
            let recv_queue = state.local_recv_queue;
            let (reason, status) = match slow {
                Some(_) if all_slow => (Reason::LaggingButOnlyReader { recv_queue }, Status::Online),
                Some(_) if spared(member) && spare_writers => continue,
                Some(reason @ Reason::Desynced) => (reason, Status::OfflineSoft),
                Some(reason) => (reason, Status::Shunned),
                None if spared(member) && spare_writers => continue,
                None if spared(member) => (Reason::WriterIsOnlyReader, Status::Online),
                None if writers.contains(member.endpoint) => (Reason::WriterReads, Status::Online),
                None if state.local_state == LocalState::Donor => {
                    (Reason::Donor { recv_queue }, Status::Online)
                }
                None => (Reason::Healthy, Status::Online),
            };
            places.push(Place { status, ..member.place(hostgroup, Role::Reader, reason, self.policy) });
        }
        for (member, _) in healthy {
            let wish = member.wish_in(hostgroup);
            let status = match wish {
                Wish::Online => continue,
                Wish::OfflineSoft => Status::OfflineSoft,
                Wish::OfflineHard => Status::OfflineHard,
            };
            let reason = Reason::Wished(wish);
            places.push(Place { status, ..member.place(hostgroup, Role::Reader, reason, self.policy) });
        }
        places
    }

    /// Why a healthy member should not read while others can.
    fn too_slow(&self, member: &Member<'_>, state: &GaleraState) -> Option<Reason> {
        if state.desync {
            return Some(Reason::Desynced);
        }
        let paused_permille = state.flow_control_paused_permille;
        if paused_permille > PAUSED_PERMILLE_MAX {
            return Some(Reason::FlowControl { paused_permille });
        }
        let limit = match self.policy.max_transactions_behind {
            0 if state.local_state == LocalState::Donor => DONOR_QUEUE_MAX,
            0 => return None,
            limit => limit,
        };
        let before = self.previous.hostgroup(self.policy.reader_hostgroup);
        let was_slow = before.iter().any(|place| {
            place.endpoint == *member.endpoint && matches!(place.reason, Reason::Lagging { .. })
        });
        let limit = if was_slow { limit / 2 } else { limit };
        let recv_queue = state.local_recv_queue;
        (recv_queue > limit).then_some(Reason::Lagging { recv_queue, limit })
    }

    /// Every member that does not work.
    fn offline(&self) -> impl Iterator<Item = Place> {
        self.members.iter().filter_map(|member| {
            let out = member.state.as_ref().err()?;
            let hostgroup = self.policy.offline_hostgroup;
            let place = member.place(hostgroup, Role::Offline, out.reason.clone(), self.policy);
            Some(Place { status: out.status, ..place })
        })
    }
}

impl Member<'_> {
    fn row(&self, hostgroup: u32) -> Option<&Intent> {
        self.rows.iter().copied().find(|row| row.hostgroup == hostgroup)
    }

    fn weight_in(&self, hostgroup: u32) -> Option<u32> {
        self.row(hostgroup).map(|row| row.weight)
    }

    /// What the user wants of it in a hostgroup; without a row there the server belongs to the whole cluster.
    fn wish_in(&self, hostgroup: u32) -> Wish {
        self.row(hostgroup).map_or(Wish::Online, |row| row.wish)
    }

    /// A place with the weight and the limit of its own row there, else of the row of the nearest role.
    fn place(&self, hostgroup: u32, role: Role, reason: Reason, policy: &GaleraPolicy) -> Place {
        let nearest = [
            hostgroup,
            policy.writer_hostgroup,
            policy.backup_writer_hostgroup,
            policy.reader_hostgroup,
            policy.offline_hostgroup,
        ];
        let row = nearest.iter().find_map(|hostgroup| self.row(*hostgroup));
        Place {
            hostgroup,
            endpoint: self.endpoint.clone(),
            role,
            status: Status::Online,
            weight: row.map_or(1, |row| row.weight),
            max_connections: row.map_or(1000, |row| row.max_connections),
            trouble: None,
            reason,
        }
    }
}
