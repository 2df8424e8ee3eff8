//! Lists single states of one node: what becomes of everybody.

use super::*;

/// The articles' first test, which left ProxySQL without readers: no node is read_only, and all read but the writer.
#[test]
fn the_articles_cluster() {
    for (reads, picture) in
        [(WriterReads::No, "W BR BR"), (WriterReads::Yes, "WR BR BR"), (WriterReads::OnlyBackups, "W BR BR")]
    {
        let world = World::new(policy(reads));
        assert_eq!(world.picture(), picture, "{reads:?}");
        let writer = &world.roles.hostgroup(100)[0];
        assert_eq!((writer.weight, writer.max_connections), (10_000, 2000));
        assert_eq!(writer.reason.to_string(), "first choice with weight 10000");
        let weights: Vec<u32> = world.roles.hostgroup(101).iter().map(|place| place.weight).collect();
        let expected: &[u32] =
            if reads == WriterReads::Yes { &[100, 10_000, 10_000] } else { &[10_000, 10_000] };
        assert_eq!(weights, expected, "a reader's weight is its own, also on the writer's host");
    }
}

/// A node of the cluster in a state, and the picture and reason that follow. Node 1 is a reader, 0 the writer.
#[test]
fn a_readers_states() {
    type Change = fn(&mut GaleraState);
    let table: &[(Change, &str, &str)] = &[
        (|s| s.cluster_status = "non-Primary".into(), "W - BR", "wsrep_cluster_status is non-Primary"),
        (|s| s.connected = false, "W - BR", "wsrep_connected is OFF"),
        (|s| s.ready = false, "W - BR", "wsrep_ready is OFF"),
        (|s| s.local_state = LocalState::Joined, "W - BR", "wsrep_local_state is Joined"),
        (|s| s.local_state = LocalState::Joining, "W - BR", "wsrep_local_state is Joining"),
        (|s| s.local_state = LocalState::Donor, "W R BR", "donor with recv_queue 0"),
        (
            |s| {
                s.local_state = LocalState::Donor;
                s.sst_donor_rejects_queries = true;
            },
            "W - BR",
            "donor that rejects queries",
        ),
        (
            |s| {
                s.local_state = LocalState::Donor;
                s.local_recv_queue = 11;
            },
            "W r BR",
            "recv_queue 11 is more than 10",
        ),
        (|s| s.local_recv_queue = 10, "W BR BR", "healthy"),
        (|s| s.local_recv_queue = 11, "W Br BR", "recv_queue 11 is more than 10"),
        (|s| s.desync = true, "W r BR", "wsrep_desync is ON"),
        (|s| s.reject_queries = true, "W - BR", "wsrep_reject_queries is set"),
        (|s| s.maintenance = Maintenance::Wanted, "W - BR", "pxc_maint_mode is MAINTENANCE"),
        (|s| s.maintenance = Maintenance::Shutdown, "W - BR", "pxc_maint_mode is SHUTDOWN"),
        (|s| s.read_only = true, "W R BR", "healthy"),
        (
            |s| s.cluster_state_uuid = "other".into(),
            "W - BR",
            "another history, wsrep_cluster_state_uuid is other",
        ),
    ];
    for (change, picture, reason) in table {
        let mut world = World::new(policy(WriterReads::No));
        world.see_changed(1, change);
        world.decide();
        assert_eq!(world.picture(), *picture, "{reason}");
        let place =
            world.roles.places.iter().rfind(|place| place.endpoint == node(1) && place.hostgroup != 102);
        assert_eq!(place.map(|place| place.reason.to_string()).as_deref(), Some(*reason));
    }
}

/// The writer in a state: who writes and reads then.
#[test]
fn a_writers_states() {
    type Change = fn(&mut GaleraState);
    let table: &[(Change, &str)] = &[
        (|s| s.maintenance = Maintenance::Wanted, "- W BR"),
        (|s| s.reject_queries = true, "- W BR"),
        (|s| s.local_state = LocalState::Donor, "R W BR"),
        (|s| s.desync = true, "r W BR"),
        (|s| s.read_only = true, "R W BR"),
        (|s| s.local_state = LocalState::Joined, "- W BR"),
        (|s| s.local_recv_queue = 1000, "W BR BR"),
        // Without quorum: only the cluster's next view makes a new writer.
        (|s| s.cluster_status = "non-Primary".into(), "- BR BR"),
        (|s| s.ready = false, "- BR BR"),
    ];
    for (number, (change, picture)) in table.iter().enumerate() {
        let mut world = World::new(policy(WriterReads::No));
        world.see_changed(0, change);
        world.decide();
        assert_eq!(world.picture(), *picture, "row {number}");
    }
}

#[test]
fn a_lone_node_does_everything_it_can() {
    type Change = fn(&mut GaleraState);
    let table: &[(Change, &str, &str)] = &[
        (|_| {}, "WR", "writer that reads because no other can"),
        (|s| s.local_recv_queue = 50, "WR", "recv_queue 50, but no other reader is better"),
        (|s| s.local_state = LocalState::Donor, "WR", "writer that reads because no other can"),
        (|s| s.desync = true, "WR", "recv_queue 0, but no other reader is better"),
        (|s| s.read_only = true, "R", "healthy"),
        (|s| s.cluster_status = "non-Primary".into(), "-", "wsrep_cluster_status is non-Primary"),
    ];
    for (number, (change, picture, reason)) in table.iter().enumerate() {
        let mut world = World::new(policy(WriterReads::No));
        world.roles = Roles::default();
        world.rows.retain(|row| row.endpoint == node(0));
        world.see_changed(0, change);
        world.decide();
        assert_eq!(world.picture().trim_end(), *picture, "row {number}");
        let place = world.roles.places.iter().rfind(|place| place.hostgroup != 100);
        assert_eq!(place.map(|place| place.reason.to_string()).as_deref(), Some(*reason), "row {number}");
    }
}

#[test]
fn the_first_writer_by_weight_segment_backlog_name() {
    type Setup = fn(&mut World);
    let table: &[(Setup, usize)] = &[
        (|_| {}, 0),
        // Without rows in the writer hostgroup: neither the reader's weight nor the greatest name decides.
        (|w| w.rows.retain(|row| row.hostgroup == 101), 0),
        (|w| w.rows.push(row(2, 100, 20_000)), 2),
        // Rows of the backup writers come after those of the writers.
        (
            |w| {
                w.rows.retain(|row| row.hostgroup == 101);
                w.rows.push(row(1, 102, 5));
            },
            1,
        ),
        (
            |w| {
                w.rows.retain(|row| row.hostgroup == 101);
                w.see_changed(0, |s| s.local_recv_queue = 101);
            },
            1,
        ),
        // Nodes of a busy cluster are looked at one after the other: whoever was looked at last is no better for it.
        (
            |w| {
                w.rows.retain(|row| row.hostgroup == 101);
                w.see_changed(2, |s| s.last_committed = 101);
            },
            0,
        ),
        (
            |w| {
                w.rows.retain(|row| row.hostgroup == 101);
                w.see_changed(0, |s| s.segment = 1);
            },
            1,
        ),
        (|w| w.rows[0].wish = Wish::OfflineSoft, 1),
        (|w| w.see_changed(0, |s| s.read_only = true), 1),
    ];
    for (number, (setup, writer)) in table.iter().enumerate() {
        let mut world = World::new(policy(WriterReads::No));
        world.roles = Roles::default();
        setup(&mut world);
        world.decide();
        assert_eq!(world.writer(), Some(*writer), "row {number}");
    }
}

#[test]
fn wishes_of_the_user() {
    let mut world = World::new(policy(WriterReads::No));
    world.rows[2].wish = Wish::OfflineSoft;
    world.rows[3].wish = Wish::OfflineHard;
    world.decide();
    // Its reading rows are all that nodes 1 and 2 have, so they leave the cluster's work altogether.
    assert_eq!(world.picture(), "WR - -");
    let statuses: Vec<_> = world.roles.hostgroup(9101).iter().map(|place| place.status.word()).collect();
    assert_eq!(statuses, ["OFFLINE_SOFT", "OFFLINE_HARD"]);
    // The writer may write and not read.
    let mut world = World::new(policy(WriterReads::Yes));
    world.rows[1].wish = Wish::OfflineSoft;
    world.decide();
    assert_eq!(world.picture(), "Wr BR BR");
}

#[test]
fn several_writers() {
    let mut wanted = policy(WriterReads::No);
    wanted.galera[0].max_writers = 2;
    let world = World::new(wanted.clone());
    assert_eq!(world.picture(), "W W BR");
    wanted.galera[0].max_writers = 3;
    let world = World::new(wanted);
    assert_eq!(world.picture(), "WR WR WR", "writers read when nobody else does");
}

#[test]
fn plain_hostgroups() {
    let mut world = World::new(Policy::default());
    world.rows = vec![row(0, 5, 1), row(1, 5, 2), row(2, 6, 3)];
    world.rows[1].wish = Wish::OfflineSoft;
    world.seen.clear();
    world.decide();
    let words =
        |world: &World| -> Vec<_> { world.roles.places.iter().map(|place| place.status.word()).collect() };
    assert_eq!(words(&world), ["ONLINE", "OFFLINE_SOFT", "ONLINE"]);
    world.see(0, Err(refused()));
    world.decide();
    assert_eq!(words(&world), ["SHUNNED", "OFFLINE_SOFT", "ONLINE"]);
    assert_eq!(
        world.roles.places[0].to_string(),
        "hostgroup 5 192.168.4.22:3306: server: connection refused (SHUNNED)"
    );
    for timeouts in 1..=3 {
        world.see(2, Err(ProbeError::Timeout(800)));
        world.decide();
        assert_eq!(words(&world)[2], if timeouts < 3 { "ONLINE" } else { "SHUNNED" });
    }
    world.see(0, Ok(GaleraState::default()));
    world.decide();
    assert_eq!(words(&world)[0], "ONLINE");
}

#[test]
fn a_state_read_from_a_server() {
    let rows = [
        ("wsrep_ready", "ON"),
        ("wsrep_connected", "ON"),
        ("wsrep_cluster_status", "Primary"),
        ("wsrep_cluster_conf_id", "18446744073709551615"),
        ("wsrep_last_committed", "-1"),
        ("wsrep_local_state", "4"),
        ("wsrep_incoming_addresses", "127.0.0.11:0,127.0.0.12:0"),
        ("wsrep_local_index", "1"),
        ("WSREP_LOCAL_RECV_QUEUE", "7"),
        ("wsrep_local_recv_queue_avg", "9"),
        ("wsrep_reject_queries", "NONE"),
        ("read_only", "OFF"),
        ("wsrep_provider_options", "base_port = 4567; gmcast.segment = 2; pc.weight = 1; "),
        ("pxc_maint_mode", "DISABLED"),
    ];
    let state = GaleraState::from_rows(rows);
    assert!(
        state.ready && state.connected && state.is_primary() && !state.reject_queries && !state.read_only
    );
    assert_eq!((state.cluster_conf_id, state.last_committed, state.local_recv_queue), (u64::MAX, 0, 7));
    assert_eq!(
        (state.local_state, state.segment, state.maintenance),
        (LocalState::Synced, 2, Maintenance::None)
    );
    assert_eq!(state.own_address(), Some("127.0.0.12:0"));
    assert_eq!(GaleraState::from_rows([("wsrep_incoming_addresses", "AUTO,AUTO")]).own_address(), None);
    assert_eq!(GaleraState::from_rows([("wsrep_local_recv_queue", "many")]).local_recv_queue, u32::MAX);
    assert!(GaleraState::from_rows([("read_only", "NO_LOCK_NO_ADMIN")]).read_only);
    assert_eq!(GaleraState::from_rows([]), GaleraState::default());
}

/// Who says so counts as long as it is not known that it has stopped.
#[test]
fn tables_without_transactions_are_replicated_where_a_node_says_so() {
    for rows in [("wsrep_mode", "STRICT_REPLICATION,replicate_myisam"), ("wsrep_replicate_myisam", "ON")] {
        assert!(GaleraState::from_rows([rows]).replicates_all_tables, "{rows:?}");
    }
    assert!(!GaleraState::from_rows([("wsrep_mode", "STRICT_REPLICATION")]).replicates_all_tables);
    let mut world = World::new(policy(WriterReads::No));
    let keeps_to_itself = |world: &World| world.roles.groups[0].replicates_transactions_only();
    assert!(keeps_to_itself(&world));
    world.see_changed(0, |state| state.replicates_all_tables = true);
    world.decide();
    assert!(!keeps_to_itself(&world));
    world.see(0, Err(refused()));
    world.decide();
    assert!(!keeps_to_itself(&world), "its writes may be on the way");
    world.see(0, Ok(synced(0)));
    world.decide();
    assert!(keeps_to_itself(&world));
}
