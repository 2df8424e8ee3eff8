//! Checks properties that hold for every group and every source with its replicas, whatever they say.

use proptest::prelude::*;

use super::group_replication::{group_policy, id, member};
use super::*;

fn any_member_state() -> impl Strategy<Value = MemberState> {
    prop_oneof![
        6 => Just(MemberState::Online),
        1 => Just(MemberState::Recovering),
        1 => Just(MemberState::Error),
        3 => Just(MemberState::Unreachable),
    ]
}

/// Anything that a server might say, mostly within one group.
fn any_state(index: usize) -> impl Strategy<Value = GroupState> {
    let states = prop::collection::vec(any_member_state(), NODES.len());
    let roles = prop::collection::vec(prop::bool::weighted(0.4), NODES.len());
    let listed = prop::collection::vec(prop::bool::weighted(0.9), NODES.len());
    let rare = || prop::bool::weighted(0.1);
    ((states, roles, listed), (rare(), rare(), rare(), prop::bool::ANY), (1..4u64, 0..30u32)).prop_map(
        move |((states, roles, listed), (renamed, anew, multi, read_only), (number, queue))| {
            let mut state = member(index);
            for (member, (word, is_primary)) in state.members.iter_mut().zip(states.into_iter().zip(roles)) {
                (member.state, member.is_primary) = (word, is_primary);
            }
            let mut listed = listed.into_iter();
            state.members.retain(|_| listed.next().unwrap_or(true));
            if renamed {
                state.group_name = "other".to_owned();
            }
            if anew {
                state.view_prefix = "9".to_owned();
            }
            GroupState {
                single_primary: !multi,
                read_only,
                view_number: number,
                applier_queue: queue,
                ..state
            }
        },
    )
}

fn any_probe(index: usize) -> impl Strategy<Value = Result<ServerState, ProbeError>> {
    prop_oneof![
        6 => any_state(index).prop_map(|state| Ok(state.into())),
        2 => Just(Ok(member(index).into())),
        1 => Just(Err(ProbeError::Timeout(800))),
        1 => Just(Err(refused())),
    ]
}

fn any_step() -> impl Strategy<Value = (usize, Result<ServerState, ProbeError>, u64)> {
    (0..NODES.len()).prop_flat_map(|index| (Just(index), any_probe(index), 0..3000u64))
}

fn any_group_policy() -> impl Strategy<Value = Policy> {
    let reads = prop::sample::select(vec![WriterReads::No, WriterReads::Yes, WriterReads::OnlyBackups]);
    (reads, 1..4u32, 0..12u32).prop_map(|(reads, max_writers, behind)| {
        let mut policy = group_policy(reads);
        policy.group_replication[0].max_writers = max_writers;
        policy.group_replication[0].max_transactions_behind = behind;
        policy
    })
}

fn group_state<'a>(world: &'a World, endpoint: &Endpoint) -> &'a GroupState {
    let seen = world.seen.iter().find(|seen| seen.endpoint == *endpoint);
    match seen.and_then(|seen| seen.state.as_ref()) {
        Some(ServerState::Group(state)) => state,
        other => panic!("{endpoint} works with {other:?}"),
    }
}

fn check(world: &World) {
    let working = |place: &&Place| matches!(place.role, Role::Writer | Role::BackupWriter | Role::Reader);
    let working: Vec<&Place> = world.roles.places.iter().filter(working).collect();
    for place in &working {
        let state = group_state(world, &place.endpoint);
        assert!(state.is_online() && state.has_quorum(), "{place}");
        if place.role != Role::Reader {
            assert!(!state.read_only && state.own().is_some_and(|own| own.is_primary), "{place}");
        }
        let other = group_state(world, &working[0].endpoint);
        assert_eq!(state.history(), other.history(), "one group only");
        let newest = working.iter().map(|place| group_state(world, &place.endpoint).view_number).max();
        let lists = working.iter().map(|place| group_state(world, &place.endpoint));
        let mut lists = lists.filter(|state| Some(state.view_number) == newest);
        assert!(
            lists.all(|newer| newer.member(&state.server_uuid).is_some()),
            "{place} is in no newest view"
        );
    }
    let writers = world.roles.hostgroup(100);
    let single = working.iter().any(|place| group_state(world, &place.endpoint).single_primary);
    let limit = world.policy.group_replication[0].max_writers as usize;
    assert!(writers.len() <= if single { 1 } else { limit });
    let group = &world.roles.groups[0];
    assert_eq!(group.writers.len(), writers.len());
    assert!(group.hold.is_none() || writers.is_empty(), "a hold only without a writer");
    for row in &world.rows {
        assert!(world.roles.places.iter().any(|place| place.endpoint == row.endpoint), "{}", row.endpoint);
    }
    // Whoever is not in the offline hostgroup is healthy, so somebody reads.
    if !working.is_empty() {
        assert!(world.roles.hostgroup(101).iter().any(|place| place.status == Status::Online));
    }
    let again = roles(&world.policy, &world.rows, &world.seen, &world.roles, world.now);
    assert_eq!(again.groups[0].writers, group.writers, "deciding again changes no writer");
}

/// The same observations and rows in the other order.
fn check_order(world: &World, previous: &Roles) {
    let mut other = (world.rows.clone(), world.seen.clone());
    other.0.reverse();
    other.1.reverse();
    assert_eq!(roles(&world.policy, &other.0, &other.1, previous, world.now), world.roles);
}

proptest! {
    #[test]
    fn any_history_of_a_group_keeps_the_rules(
        policy in any_group_policy(),
        steps in prop::collection::vec(any_step(), 1..25),
    ) {
        let mut world = World::group(policy);
        for (index, probe, wait_ms) in steps {
            world.pass(wait_ms);
            world.see_state(index, probe);
            let previous = world.roles.clone();
            world.decide();
            check(&world);
            check_order(&world, &previous);
        }
    }

    #[test]
    fn a_healthy_pair_of_three_always_reads_and_its_primary_writes(
        policy in any_group_policy(),
        others in prop::collection::vec(any_probe(2), 0..6),
    ) {
        let mut world = World::group(policy);
        for probe in others {
            world.see_state(2, probe);
            (0..2).for_each(|index| world.see_member(index, |state| state.view_number = 9));
            world.decide();
            check(&world);
            let online = world.roles.hostgroup(101).iter().filter(|place| place.status == Status::Online);
            prop_assert!(online.count() > 0);
            // The third may call itself primary as well, in the view of the others: then nobody writes.
            let rivals = world.roles.groups[0].cannot_write.iter();
            let has_rival = rivals.clone().any(|(_, reason)| matches!(reason, Reason::AnotherPrimary { .. }));
            prop_assert!(has_rival || world.writer() == Some(0));
        }
    }

    #[test]
    fn servers_with_replication_keep_the_rules(
        writer_reads in prop::bool::ANY,
        limits in prop::collection::vec(0..20u32, 4),
        steps in prop::collection::vec(
            (0..NODES.len(), prop::option::weighted(0.9, (prop::bool::ANY, 0..25u64))), 1..25),
    ) {
        let replication = ReplicationPolicy {
            writer_hostgroup: 100,
            reader_hostgroup: 101,
            check: ReadOnlyCheck::ReadOnly,
            writer_reads,
            lag_when_stopped_s: 60,
            timeouts_max: 3,
            failover_after_ms: None,
        };
        let mut world = World::unseen(Policy { replication: vec![replication], ..Policy::default() });
        for (row, limit) in world.rows.iter_mut().zip(limits) {
            row.lag_max_s = limit;
        }
        for (index, probe) in steps {
            world.pass(100);
            let state = |(read_only, lag_s)| ReplicaState {
                read_only: Some(read_only),
                lag: Lag::Seconds(lag_s),
                ..ReplicaState::default()
            };
            world.see_state(index, probe.map(|probe| state(probe).into()).ok_or_else(refused));
            let previous = world.roles.clone();
            world.decide();
            check_order(&world, &previous);
            check_replication(&world);
        }
    }
}

fn check_replication(world: &World) {
    let state = |endpoint: &Endpoint| {
        let seen = world.seen.iter().find(|seen| seen.endpoint == *endpoint);
        match seen.and_then(|seen| seen.state.clone()) {
            Some(ServerState::Replica(state)) => Some(state),
            _ => None,
        }
    };
    let online =
        |hostgroup| world.roles.hostgroup(hostgroup).iter().filter(|place| place.status == Status::Online);
    for index in 0..NODES.len() {
        let writes = online(100).any(|place| place.endpoint == node(index));
        let is_replaced = world.roles.groups[0].replaced.contains(&node(index));
        let may = state(&node(index)).is_some_and(|state| state.read_only == Some(false)) && !is_replaced;
        assert_eq!(writes, may, "exactly those that are not read_only, and were not replaced, write");
    }
    let limit = |endpoint: &Endpoint| {
        let own = world.rows.iter().find(|row| row.endpoint == *endpoint && row.hostgroup == 101);
        own.map_or(0, |row| u64::from(row.lag_max_s))
    };
    let in_time = |endpoint: &Endpoint| match state(endpoint).map(|state| state.lag) {
        Some(Lag::Seconds(lag_s)) => limit(endpoint) == 0 || lag_s <= limit(endpoint),
        _ => false,
    };
    let writes = |endpoint: &Endpoint| world.roles.groups[0].writers.contains(endpoint);
    assert!(online(101).all(|place| writes(&place.endpoint) || in_time(&place.endpoint)));
    let is_replaced = |endpoint: &Endpoint| world.roles.groups[0].replaced.contains(endpoint);
    let can = |endpoint: &Endpoint| writes(endpoint) || in_time(endpoint) && !is_replaced(endpoint);
    let somebody_can = (0..NODES.len()).any(|index| can(&node(index)));
    assert_eq!(online(101).count() > 0, somebody_can);
    assert!(world.roles.groups[0].hold.is_none() || world.roles.groups[0].writers.is_empty());
    assert_eq!(id(0).len(), 36);
}

/// Words that mean something, and anything else.
fn any_text() -> impl Strategy<Value = String> {
    let words = ["ONLINE", "PRIMARY", "aaaa", "bbbb", "ON", "OFF", "17:3", "18446744073709551616", "-1", ""];
    prop_oneof![3 => prop::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => ".{0,80}"]
}

proptest! {
    #[test]
    fn whatever_a_server_answers_only_a_majority_has_quorum(
        variables in prop::collection::vec(any_text(), 5),
        rows in prop::collection::vec(prop::collection::vec(any_text(), 6), 0..40),
    ) {
        let names = ["server_uuid", "group_replication_group_name", "group_replication_single_primary_mode",
            "read_only", "super_read_only"];
        let variables = names.into_iter().zip(variables.iter().map(String::as_str));
        let state = GroupState::from_rows(variables, rows.iter().map(|row| MemberRow {
            id: &row[0],
            state: &row[1],
            role: &row[2],
            view_id: &row[3],
            certification_queue: &row[4],
            applier_queue: &row[5],
        }));
        let reached = state.members.iter().filter(|member| member.state.is_reachable()).count();
        prop_assert_eq!(state.has_quorum(), reached * 2 > state.members.len());
        prop_assert!(state.members.len() <= 32 && state.members.len() <= rows.len());
        prop_assert!(state.group_name.len() <= 64 && state.view_prefix.len() <= 64);
    }

    #[test]
    fn whatever_a_server_answers_a_replica_is_late_or_not(
        texts in prop::collection::vec((any_text(), prop::option::of(any_text())), 0..8),
    ) {
        let names = ["Seconds_Behind_Source", "Replica_IO_Running", "Replica_SQL_Running", "Seconds_Behind_Master"];
        let source = texts.iter().enumerate().map(|(at, (name, value))| {
            (if at % 2 == 0 { names[at / 2] } else { name.as_str() }, value.as_deref())
        });
        let state = ReplicaState::from_rows([], [source]);
        prop_assert!(state.lag != Lag::NoReplica && state.is_read_only(ReadOnlyCheck::Either).is_err());
    }
}

#[test]
fn the_history_of_a_group_is_its_name() {
    let mut world = World::group(group_policy(WriterReads::No));
    let history = member(0).group_name;
    assert_eq!(world.roles.groups[0].history, history);
    (0..3).for_each(|index| world.see_member(index, |state| state.members.clear()));
    world.decide();
    assert_eq!((world.writer(), &world.roles.groups[0].history), (None, &history));
}
