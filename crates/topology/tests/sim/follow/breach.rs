//! The rules of worlds in which Weir follows, broken on purpose.

use weir_topology::{Lag, Link, MemberState, Millis, Observation, Role, Roles, ServerState, Status};

use crate::breach::Breach;
use crate::chaos::Action;
use crate::queue::MS;
use crate::random::Random;
use crate::weir::{READERS, Weir};

/// What makes a rule count; done more often than in other worlds. `other` is another server than `node`.
pub(crate) fn provocation(
    breach: Breach,
    random: &mut Random,
    weir: usize,
    (node, other): (usize, usize),
) -> Action {
    match breach {
        Breach::GroupIgnoresQuorum => Action::Divide(u8::try_from(random.within(1..31)).unwrap_or(1)),
        Breach::GroupIgnoresHistory => Action::SetApart(node),
        Breach::GroupIgnoresReadOnly => Action::ReadOnly(node, true),
        Breach::GroupIgnoresBacklog => match random.percent(60) {
            true => Action::Backlog(other, 5000),
            false => Action::Kill(node),
        },
        Breach::GroupIgnoresTimeouts | Breach::GroupIgnoresViews | Breach::ReplicasIgnoreTimeouts => {
            Action::Hang(node)
        }
        Breach::ReplicasIgnoreLag => Action::Lag(node, 3600),
        Breach::ReplicasChooseOne => Action::Writable(node),
        Breach::ReplicasKeepMoved => Action::Move(node),
        Breach::ReplicasIgnoreReadOnly => Action::Promote(node),
        _ if breach >= Breach::SwitchoverTakesNoLock => Action::Switch(node),
        Breach::FailoverTakesNoLock => Action::Lose(weir),
        // The writer is alive, on the other side with more than half; or it is on this one.
        Breach::FailoverNeedsNoMajority => Action::Part(weir, 1 << other),
        Breach::WriterNeedsNoMajority => Action::Part(weir, 1 << node),
        Breach::FailoverIgnoresLease | Breach::FailoverIgnoresAge => {
            let is_stalled = breach == Breach::FailoverIgnoresLease;
            Action::Forget(weir, random.within(15_000 * MS..30_000 * MS), is_stalled)
        }
        Breach::GroupMovesByItself if random.percent(50) => Action::StopWeir(weir, 500 * MS),
        _ => Action::Kill(node),
    }
}

/// The roles as a Weir would decide them that breaks the rule.
pub(crate) fn roles(breach: Breach, weir: &Weir, now: Millis) -> Roles {
    let settings = &weir.settings;
    let mut policy = settings.policy.clone();
    let (mut seen, mut previous) = (weir.seen.clone(), weir.roles.clone());
    if breach == Breach::ReplicasForgetReplaced {
        previous.groups.iter_mut().for_each(|group| group.replaced.clear());
    }
    if breach == Breach::GroupAddsWriters {
        policy.group_replication.iter_mut().for_each(|row| row.max_writers += 1);
    }
    if breach == Breach::ReplicasIgnoreLag {
        policy.replication.iter_mut().for_each(|row| row.lag_when_stopped_s = 0);
    }
    if breach == Breach::FailoverNever {
        policy
            .replication
            .iter_mut()
            .for_each(|row| row.failover_after_ms = row.failover_after_ms.map(|_| u64::MAX));
    }
    let is_lost = weir.writers.is_empty();
    seen.iter_mut().for_each(|seen| embellish(breach, seen, is_lost, now));
    let mut decided = weir_topology::roles(&policy, &settings.intents, &seen, &previous, now);
    if breach == Breach::WriterNeedsNoMajority {
        // As without `auto_failover`.
        policy.replication.iter_mut().for_each(|row| row.failover_after_ms = None);
        let plain = weir_topology::roles(&policy, &settings.intents, &seen, &previous, now);
        decided.places = plain.places;
        for (group, plain) in decided.groups.iter_mut().zip(plain.groups) {
            group.writers = plain.writers;
        }
    }
    let writers = decided.groups.first().map(|group| group.writers.clone()).unwrap_or_default();
    match breach {
        Breach::GroupEmptiesReaders | Breach::ReplicasEmptyReaders => {
            for place in decided.places.iter_mut().filter(|place| place.hostgroup == READERS) {
                if writers.contains(&place.endpoint) {
                    place.status = Status::OfflineSoft;
                }
            }
        }
        Breach::ReplicasChooseOne => {
            let first = writers.first();
            decided.places.retain(|place| place.role != Role::Writer || Some(&place.endpoint) == first);
        }
        _ => {}
    }
    decided
}

/// Makes a server look as the broken rule has it.
fn embellish(breach: Breach, seen: &mut Observation, is_lost: bool, now: Millis) {
    let ignores = matches!(breach, Breach::GroupIgnoresTimeouts | Breach::ReplicasIgnoreTimeouts);
    if ignores && seen.timeouts > 0 {
        (seen.timeouts, seen.fault, seen.at) = (0, None, now);
    }
    if breach == Breach::FailoverIgnoresAge {
        seen.state_asked_at = now;
    }
    let is_silent = seen.fault.is_some();
    match &mut seen.state {
        Some(ServerState::Replica(state)) if breach == Breach::FailoverNeedsNoMajority => {
            if let Some(source) = state.source.as_mut().filter(|_| is_silent) {
                source.link = Link::Down;
                (seen.timeouts, seen.fault, seen.at, seen.state_asked_at) = (0, None, now, now);
            }
        }
        Some(ServerState::Group(state)) => match breach {
            Breach::GroupIgnoresQuorum => {
                state.members.iter_mut().for_each(|member| {
                    if member.state == MemberState::Unreachable {
                        member.state = MemberState::Online;
                    }
                });
            }
            Breach::GroupIgnoresReadOnly => state.read_only = false,
            Breach::GroupIgnoresBacklog => state.applier_queue = 0,
            Breach::GroupIgnoresHistory => state.view_prefix = "1".to_owned(),
            Breach::GroupIgnoresState => {
                let own = state.server_uuid.clone();
                state.members.iter_mut().filter(|member| member.id == own).for_each(|member| {
                    member.state = MemberState::Online;
                });
            }
            Breach::GroupIgnoresViews => state.view_number = 1,
            // Any member that lives is good enough.
            Breach::GroupMovesByItself if is_lost => {
                state.single_primary = false;
                state.read_only = false;
                state.members.iter_mut().for_each(|member| member.is_primary = true);
            }
            _ => {}
        },
        Some(ServerState::Replica(state)) => match breach {
            Breach::ReplicasIgnoreReadOnly => {
                (state.read_only, state.super_read_only) = (Some(false), Some(false));
            }
            Breach::ReplicasPromote if is_lost => {
                (state.read_only, state.super_read_only) = (Some(false), Some(false));
            }
            Breach::ReplicasIgnoreLag => state.lag = Lag::Seconds(0),
            _ => {}
        },
        _ => {}
    }
}
