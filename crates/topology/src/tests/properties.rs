//! Checks properties that hold for every cluster, whatever the nodes say and in whatever order it is seen.

use proptest::prelude::*;

use super::*;

fn any_state() -> impl Strategy<Value = GaleraState> {
    let status =
        prop::sample::select(vec!["Primary", "Primary", "Primary", "non-Primary", "Disconnected", ""]);
    let local = prop::sample::select(vec![
        LocalState::Synced,
        LocalState::Synced,
        LocalState::Synced,
        LocalState::Donor,
        LocalState::Joined,
        LocalState::Other,
    ]);
    let maintenance = prop::sample::select(vec![Maintenance::None, Maintenance::None, Maintenance::Shutdown]);
    let rare = || prop::bool::weighted(0.1);
    (
        (status, local, maintenance, 0..3usize, 1..5u64),
        (rare(), rare(), rare(), rare(), rare(), rare()),
        (prop_oneof![Just(0), 0..30u32], 0..1001u16, 0..4u64, 0..2u8),
    )
        .prop_map(
            |(
                (status, local_state, maintenance, index, conf_id),
                flags,
                (queue, paused, position, segment),
            )| {
                let (not_ready, not_connected, desync, reject, donor_rejects, read_only) = flags;
                GaleraState {
                    ready: !not_ready,
                    connected: !not_connected,
                    cluster_status: status.to_owned(),
                    cluster_conf_id: conf_id,
                    local_state,
                    desync,
                    reject_queries: reject,
                    sst_donor_rejects_queries: donor_rejects,
                    maintenance,
                    read_only,
                    local_recv_queue: queue,
                    flow_control_paused_permille: paused,
                    last_committed: position,
                    segment,
                    ..synced(index)
                }
            },
        )
}

fn any_probe() -> impl Strategy<Value = Result<GaleraState, ProbeError>> {
    prop_oneof![
        6 => any_state().prop_map(Ok),
        1 => Just(Err(ProbeError::Timeout(800))),
        1 => Just(Err(refused())),
    ]
}

fn any_rows() -> impl Strategy<Value = Vec<Intent>> {
    let wish = prop::sample::select(vec![
        Wish::Online,
        Wish::Online,
        Wish::Online,
        Wish::OfflineSoft,
        Wish::OfflineHard,
    ]);
    let row = (0..3usize, prop::sample::select(vec![100, 101, 102, 9101, 7]), 0..3u32, wish)
        .prop_map(|(index, hostgroup, weight, wish)| Intent { wish, ..row(index, hostgroup, weight) });
    prop::collection::vec(row, 0..8).prop_map(|mut rows| {
        rows.sort_by(|one, two| (one.hostgroup, &one.endpoint).cmp(&(two.hostgroup, &two.endpoint)));
        rows.dedup_by(|one, two| (one.hostgroup, &one.endpoint) == (two.hostgroup, &two.endpoint));
        rows
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let reads = prop::sample::select(vec![WriterReads::No, WriterReads::Yes, WriterReads::OnlyBackups]);
    (reads, 1..4u32, 0..12u32).prop_map(|(reads, max_writers, behind)| {
        let mut policy = policy(reads);
        policy.galera[0].max_writers = max_writers;
        policy.galera[0].max_transactions_behind = behind;
        policy
    })
}

fn check(world: &World) {
    let group = &world.roles.groups[0];
    let state = |endpoint: &Endpoint| {
        world.seen.iter().find(|seen| seen.endpoint == *endpoint).and_then(galera_state)
    };
    let working = |place: &&Place| matches!(place.role, Role::Writer | Role::BackupWriter | Role::Reader);
    for place in world.roles.places.iter().filter(working) {
        let state = state(&place.endpoint).expect("nobody works unseen");
        assert!(state.is_primary() && state.ready && state.connected && !state.reject_queries, "{place}");
        assert!(!(state.read_only && place.role == Role::Writer), "{place}");
    }
    let writers = world.roles.hostgroup(100);
    assert!(writers.len() <= world.policy.galera[0].max_writers as usize);
    assert_eq!(writers.len(), group.writers.len());
    assert!(group.hold.is_none() || writers.is_empty(), "a hold only without a writer");
    let uuids: Vec<_> =
        writers.iter().filter_map(|place| state(&place.endpoint)).map(|s| &s.cluster_state_uuid).collect();
    assert!(uuids.windows(2).all(|pair| pair[0] == pair[1]));
    // Every server of the cluster is somewhere, with the same answer every time.
    for row in &world.rows {
        assert!(world.roles.places.iter().any(|place| place.endpoint == row.endpoint), "{}", row.endpoint);
    }
    let again = roles(&world.policy, &world.rows, &world.seen, &world.roles, world.now);
    assert_eq!(again.groups[0].writers, group.writers, "deciding again changes no writer");
    assert!(
        again.places.iter().all(|place| world.roles.places.iter().any(|old| old.endpoint == place.endpoint)),
        "deciding again loses nobody"
    );
    let sorted = world
        .roles
        .places
        .windows(2)
        .all(|pair| (pair[0].hostgroup, &pair[0].endpoint) < (pair[1].hostgroup, &pair[1].endpoint));
    assert!(sorted, "at most one place per server and hostgroup, in order");
}

/// A node that any rule would let read.
fn is_surely_healthy(world: &World, seen: &Observation) -> bool {
    let Some(state) = galera_state(seen) else { return false };
    let newest = world.seen.iter().filter_map(galera_state).map(|s| s.cluster_conf_id).max();
    // Others may have been in a newer view before.
    let known = world.roles.groups.first().and_then(|group| group.view.as_ref()).map(|view| view.number);
    let mut rows =
        world.rows.iter().filter(|row| row.endpoint == seen.endpoint && row.hostgroup != 7).peekable();
    rows.peek().is_some()
        && rows.all(|row| row.wish == Wish::Online)
        && seen.fault.is_none()
        && *state == GaleraState { cluster_conf_id: state.cluster_conf_id, ..synced(0) }
        && Some(state.cluster_conf_id) == newest.max(known)
}

proptest! {
    #[test]
    fn any_history_keeps_the_rules(
        policy in any_policy(),
        rows in any_rows(),
        steps in prop::collection::vec((0..3usize, any_probe(), 0..3000u64), 1..25),
    ) {
        let mut world = World::new(policy);
        world.rows = rows;
        for (index, probe, wait_ms) in steps {
            world.pass(wait_ms);
            world.see(index, probe);
            world.decide();
            check(&world);
            if world.seen.iter().any(|seen| is_surely_healthy(&world, seen)) {
                let readers = world.roles.hostgroup(101).iter();
                prop_assert!(readers.filter(|place| place.status == Status::Online).count() > 0);
            }
        }
    }

    #[test]
    fn a_reader_exists_whenever_a_healthy_node_lives(
        policy in any_policy(),
        others in prop::collection::vec((1..3usize, any_probe()), 0..6),
    ) {
        let mut world = World::new(policy);
        for (index, probe) in others {
            world.see(index, probe);
            world.see_changed(0, |state| state.cluster_conf_id = 9);
            world.decide();
            let online = world.roles.hostgroup(101).iter().filter(|place| place.status == Status::Online).count();
            prop_assert!(online > 0);
            prop_assert_eq!(world.writer(), Some(0), "a healthy writer is never moved");
        }
    }
}
