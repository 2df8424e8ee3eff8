//! Decides the roles of servers with asynchronous replication: whoever sets read_only decides, Weir follows. With
//! `auto_failover` see [`failover`], too.

mod failover;
mod replaced;

use std::cmp::Reverse;

use crate::health::{HealthCheck, OutOfService};
use crate::leadership::Leadership;
use crate::member::{self, healthy};
use crate::{
    Endpoint, Flavour, Group, Intent, Lag, Place, Reason, ReplicaState, ReplicationPolicy, Role, Roles,
    ServerState, Status, Wish,
};

/// Decides the places of the servers. As in ProxySQL every server that is not read_only writes; unlike there, a writer
/// reads where nobody else can.
pub(crate) fn decide(
    policy: &ReplicationPolicy,
    intent: &[Intent],
    health: &HealthCheck<'_>,
    previous: &Roles,
) -> (Vec<Place>, Group) {
    let hostgroups = policy.hostgroups();
    let mut members = member::members(&hostgroups, intent, |endpoint| answering(policy, health, endpoint));
    let before = previous.before(policy.writer_hostgroup, Flavour::Replication);
    let (succession, waits_for) = failover::rule(policy, &mut members, &before, health).unzip();
    let replaced = match policy.failover_after_ms {
        None => replaced::rule(policy, &mut members, &before),
        // There more than half of the servers tell.
        Some(_) => Vec::new(),
    };
    let servers = Servers { policy, members, before, previous };
    let writers = servers.writers();
    let mut places = servers.writer_places(&writers);
    places.extend(servers.readers(&writers));
    places.extend(member::offline(&servers.members, policy.reader_hostgroup));
    let leadership = agree(policy, &servers.before, &servers.members, &writers, health);
    let hold = || member::hold_without_writer(&servers.before, &servers.members, health.now);
    let group = Group {
        hold: if writers.is_empty() { hold() } else { None },
        begun: Some(servers.before.begun.unwrap_or(health.now)),
        cannot_write: servers.cannot_write_now(&writers),
        successors: servers.successors(),
        history: servers.history(&writers),
        writers,
        succession,
        waits_for: waits_for.flatten(),
        leadership,
        replaced,
        ..servers.before.clone()
    };
    (places, group)
}

/// What several Weirs have said to each other, in the tables at the only writer: there everything is that was written.
/// While there is none, as in the middle of a switchover, what was read last counts.
fn agree(
    policy: &ReplicationPolicy,
    before: &Group,
    members: &[Member<'_>],
    writers: &[Endpoint],
    health: &HealthCheck<'_>,
) -> Option<Leadership> {
    let hostgroup = policy.writer_hostgroup;
    let epoch = health.policy.epoch_of_replicas(hostgroup)?;
    let switch = health.policy.switch_of(hostgroup);
    let writer = match writers {
        [writer] => Some(writer),
        [] => kept_out_writer(policy, before, members, health),
        _ => None,
    };
    let Some(writer) = writer else {
        let mut leadership = before.leadership.clone()?;
        leadership.forget_silent_switch(&epoch, health.now);
        if switch.is_some() {
            leadership.await_all(health.now);
        }
        return Some(leadership);
    };
    let read = health.observation(writer).and_then(|seen| seen.epoch.as_ref());
    let mut leadership =
        Leadership::after(before.leadership.as_ref(), &epoch, read.into_iter(), None, health.now);
    leadership.follow(writer, switch, &epoch, health.now);
    let cleared = health.policy.cleared.iter().find(|cleared| cleared.writer_hostgroup == hostgroup);
    leadership.note_cleared(cleared.map(|cleared| cleared.version), &epoch);
    Some(leadership)
}

/// The agreed writer while users keep it out: what Weirs tell each other is there all the same. One read may have shown
/// both, that it is the writer now and that somebody keeps it out.
fn kept_out_writer<'m>(
    policy: &ReplicationPolicy,
    before: &Group,
    members: &'m [Member<'_>],
    health: &HealthCheck<'_>,
) -> Option<&'m Endpoint> {
    let known = before.leadership.as_ref().and_then(|leadership| leadership.row.as_ref());
    let not_before = before.leadership.as_ref().map(|leadership| leadership.not_before).unwrap_or_default();
    let is_agreed = |member: &&Member<'_>| {
        let read = health.observation(member.endpoint).and_then(|seen| seen.epoch.as_ref());
        let row = read.filter(|read| read.asked_at >= not_before).and_then(|read| read.row.as_ref());
        let newest = known.into_iter().chain(row).max_by_key(|row| (row.epoch, row.version));
        newest.is_some_and(|row| row.writer == *member.endpoint)
    };
    let is_kept_out = |member: &&Member<'_>| {
        member.state.as_ref().is_err_and(|out| out.reason == Reason::Wished(Wish::OfflineSoft))
    };
    let is_writable = |member: &&Member<'_>| match health.last_state(member.endpoint) {
        Some(ServerState::Replica(state)) => state.is_read_only(policy.check) == Ok(false),
        _ => false,
    };
    let mut agreed = members.iter().filter(is_agreed).filter(is_kept_out).filter(is_writable);
    agreed.next().map(|member| member.endpoint)
}

fn answering<'a>(
    policy: &ReplicationPolicy,
    health: &HealthCheck<'a>,
    endpoint: &Endpoint,
) -> Result<&'a ReplicaState, OutOfService> {
    match health.state(endpoint, policy.timeouts_max) {
        Ok(ServerState::Replica(state)) => Ok(state),
        Ok(_) => Err(OutOfService::silent(Reason::NotObserved)),
        // No cluster will ever say what became of it.
        Err(out) if matches!(out.reason, Reason::TimedOut { .. }) => Err(OutOfService::lost(out.reason)),
        Err(out) => Err(out),
    }
}

type Member<'a> = member::Member<'a, ReplicaState>;

struct Servers<'a> {
    policy: &'a ReplicationPolicy,
    members: Vec<Member<'a>>,
    before: Group,
    previous: &'a Roles,
}

impl Servers<'_> {
    fn writers(&self) -> Vec<Endpoint> {
        let able = self.members.iter().filter(|member| self.cannot_write(member).is_none());
        able.map(|member| member.endpoint.clone()).collect()
    }

    /// What the only writer calls itself: what it acknowledges its replicas have sooner or later. Two have no history that
    /// all servers have.
    fn history(&self, writers: &[Endpoint]) -> String {
        match writers {
            [] => self.before.history.clone(),
            [writer] => {
                let state = healthy(&self.members).find(|(member, _)| member.endpoint == writer);
                state.map(|(_, state)| state.history()).unwrap_or_default()
            }
            _ => String::new(),
        }
    }

    /// Why a server is no writer; none if it is.
    fn cannot_write(&self, member: &Member<'_>) -> Option<Reason> {
        let state = match &member.state {
            Ok(state) => *state,
            Err(out) => return Some(out.reason.clone()),
        };
        match (member.wish_in(self.policy.writer_hostgroup), state.is_read_only(self.policy.check)) {
            (Wish::Online, Ok(false)) => None,
            (Wish::Online, Ok(true)) => Some(Reason::ReadOnly),
            (Wish::Online, Err(name)) => Some(Reason::NoReadOnlyVariable { name }),
            (wish, _) => Some(Reason::Wished(wish)),
        }
    }

    /// The servers that only have to be made writable: the one with the greatest weight first, then the one that is
    /// least behind.
    fn successors(&self) -> Vec<Endpoint> {
        let mut able: Vec<_> = healthy(&self.members)
            .filter(|(member, state)| {
                self.cannot_write(member) == Some(Reason::ReadOnly) && state.lag != Lag::Stopped
            })
            .collect();
        let weight = |member: &Member<'_>| Reverse(member.weight_in(self.policy.writer_hostgroup));
        able.sort_by_key(|(member, state)| (weight(member), state.lag, member.endpoint));
        able.into_iter().map(|(member, _)| member.endpoint.clone()).collect()
    }

    fn cannot_write_now(&self, writers: &[Endpoint]) -> Vec<(Endpoint, Reason)> {
        let others = self.members.iter().filter(|member| !writers.contains(member.endpoint));
        others.filter_map(|member| Some((member.endpoint.clone(), self.cannot_write(member)?))).collect()
    }

    fn writer_places(&self, writers: &[Endpoint]) -> Vec<Place> {
        let hostgroup = self.policy.writer_hostgroup;
        let members = self.members.iter().filter(|member| writers.contains(member.endpoint));
        members
            .map(|member| member.place(hostgroup, Role::Writer, self.writer_reason(member, writers)))
            .collect()
    }

    fn writer_reason(&self, member: &Member<'_>, writers: &[Endpoint]) -> Reason {
        if let Some(other) = writers.iter().find(|other| *other != member.endpoint) {
            return Reason::WritesBeside { other: other.clone() };
        }
        let before = self.before.last_writers();
        if before.contains(member.endpoint) {
            let kept = self.previous.reason_in(self.policy.writer_hostgroup, member.endpoint);
            let kept = kept.filter(|reason| matches!(reason, Reason::TookOver { .. }));
            return kept.cloned().unwrap_or(Reason::NotReadOnly);
        }
        match before.first() {
            Some(from) => Reason::TookOver { from: from.clone(), confirmed: true },
            None => Reason::NotReadOnly,
        }
    }

    /// Every server that is not too far behind, writers only as configured or where nobody else can. One that is too
    /// far behind never reads, not even as the last one: its limit is what the application was promised.
    fn readers(&self, writers: &[Endpoint]) -> Vec<Place> {
        let hostgroup = self.policy.reader_hostgroup;
        let is_writer = |member: &Member<'_>| writers.contains(member.endpoint);
        let wanted: Vec<_> = healthy(&self.members)
            .filter(|(member, _)| member.wish_in(hostgroup) == Wish::Online)
            .map(|(member, state)| (member, state, self.too_late(member, state)))
            .collect();
        let has_replica = wanted.iter().any(|(member, _, late)| late.is_none() && !is_writer(member));
        let mut places = Vec::new();
        for (member, state, late) in wanted {
            let (reason, status) = match late {
                _ if is_writer(member) && self.policy.writer_reads => (Reason::WriterReads, Status::Online),
                _ if is_writer(member) && has_replica => continue,
                _ if is_writer(member) => (Reason::WriterIsOnlyReader, Status::Online),
                Some(reason) => (reason, Status::Shunned),
                None if state.lag == Lag::Stopped => (Reason::ReadsUnreplicated, Status::Online),
                None => (Reason::Healthy, Status::Online),
            };
            places.push(Place { status, ..member.place(hostgroup, Role::Reader, reason) });
        }
        let unwished = |(member, _): (&Member<'_>, _)| member.unwished_place(hostgroup, Role::Reader);
        places.extend(healthy(&self.members).filter_map(unwished));
        places
    }

    /// Why a replica should not read.
    fn too_late(&self, member: &Member<'_>, state: &ReplicaState) -> Option<Reason> {
        let limit_s = match member.lag_max_s(self.policy.reader_hostgroup) {
            0 => return None,
            limit_s => limit_s,
        };
        let counts_as_s = self.policy.lag_when_stopped_s;
        match state.lag {
            Lag::Seconds(lag_s) if lag_s > u64::from(limit_s) => {
                Some(Reason::ReplicationLag { lag_s, limit_s })
            }
            Lag::Stopped if counts_as_s > limit_s => {
                Some(Reason::ReplicationStopped { counts_as_s, limit_s })
            }
            Lag::NoReplica | Lag::Seconds(_) | Lag::Stopped => None,
        }
    }
}
