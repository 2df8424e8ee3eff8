//! Tests asynchronous replication: read_only, lag, and what is left to others.

use super::*;

pub(super) fn replication_policy() -> Policy {
    let replication = ReplicationPolicy {
        writer_hostgroup: 100,
        reader_hostgroup: 101,
        check: ReadOnlyCheck::ReadOnly,
        writer_reads: false,
        lag_when_stopped_s: 60,
        timeouts_max: 3,
        failover_after_ms: None,
    };
    Policy { replication: vec![replication], ..Policy::default() }
}

/// A server of a source and its replicas.
fn server(read_only: bool, lag: Lag) -> ReplicaState {
    ReplicaState {
        read_only: Some(read_only),
        innodb_read_only: Some(false),
        super_read_only: Some(read_only),
        lag,
        ..ReplicaState::default()
    }
}

impl World {
    /// Node 0 is the source, the others are its replicas.
    fn replicated(policy: Policy) -> Self {
        let mut world = Self::unseen(policy);
        world.see_server(0, server(false, Lag::NoReplica));
        (1..3).for_each(|index| world.see_server(index, server(true, Lag::Seconds(0))));
        world.decide();
        world
    }

    fn see_server(&mut self, index: usize, state: ReplicaState) {
        self.see_state(index, Ok(state.into()));
    }

    fn limit_lag(&mut self, lag_max_s: u32) {
        self.rows.iter_mut().for_each(|row| row.lag_max_s = lag_max_s);
    }

    fn reasons(&self, hostgroup: u32) -> Vec<String> {
        self.roles.hostgroup(hostgroup).iter().map(|place| place.reason.to_string()).collect()
    }
}

#[test]
fn a_source_and_its_replicas() {
    let mut world = World::replicated(replication_policy());
    assert_eq!(world.picture(), "W R R");
    assert_eq!(world.reasons(100), ["not read_only"]);
    world.policy.replication[0].writer_reads = true;
    world.decide();
    assert_eq!(world.picture(), "WR R R");
    assert_eq!(world.reasons(101), ["writer that also reads", "healthy", "healthy"]);
    assert_eq!(world.roles.groups[0].flavour, Flavour::Replication);
}

/// A planned change: whoever only has to be made writable.
#[test]
fn who_can_be_the_next_source() {
    let mut world = World::replicated(replication_policy());
    assert_eq!(world.roles.groups[0].successors, [node(1), node(2)]);
    world.see_server(1, server(true, Lag::Seconds(2)));
    world.decide();
    assert_eq!(world.roles.groups[0].successors, [node(2), node(1)], "the one that is less behind");
    world.see_server(2, server(true, Lag::Stopped));
    world.decide();
    assert_eq!(world.roles.groups[0].successors, [node(1)]);
    world.rows.iter_mut().filter(|row| row.endpoint == node(1)).for_each(|row| row.wish = Wish::OfflineSoft);
    world.decide();
    assert_eq!(world.roles.groups[0].successors, []);
}

#[test]
fn what_makes_a_server_read_only() {
    use ReadOnlyCheck::{Both, Either, InnodbReadOnly, ReadOnly, SuperReadOnly};
    let states = |read_only, innodb, super_read_only| ReplicaState {
        read_only: Some(read_only),
        innodb_read_only: Some(innodb),
        super_read_only,
        lag: Lag::NoReplica,
        ..ReplicaState::default()
    };
    let table = [
        (ReadOnly, states(true, false, None), Ok(true)),
        (ReadOnly, states(false, true, Some(true)), Ok(false)),
        (InnodbReadOnly, states(true, false, None), Ok(false)),
        (InnodbReadOnly, states(false, true, None), Ok(true)),
        (SuperReadOnly, states(true, true, Some(false)), Ok(false)),
        (SuperReadOnly, states(false, false, Some(true)), Ok(true)),
        (SuperReadOnly, states(false, false, None), Err("super_read_only")),
        (Both, states(true, false, None), Ok(false)),
        (Both, states(true, true, None), Ok(true)),
        (Either, states(true, false, None), Ok(true)),
        (Either, states(false, true, None), Ok(true)),
        (Either, states(false, false, None), Ok(false)),
        (Either, ReplicaState::default(), Err("read_only")),
    ];
    for (check, state, is_read_only) in table {
        assert_eq!(state.is_read_only(check), is_read_only, "{check:?} {state:?}");
    }
    let mut world = World::replicated(replication_policy());
    world.policy.replication[0].check = SuperReadOnly;
    world.see_server(0, ReplicaState { super_read_only: None, ..server(false, Lag::NoReplica) });
    world.decide();
    assert_eq!(world.picture(), "R R R");
    assert!(
        world
            .roles
            .explain(100)
            .contains("192.168.4.22:3306: read_only, as it has no variable super_read_only")
    );
}

/// Weir does not choose: statements wait until whoever looks after replication has another server writable.
#[test]
fn a_lost_source() {
    let mut world = World::replicated(replication_policy());
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "- R R");
    assert_eq!(world.roles.groups[0].hold.as_ref().map(|hold| &*hold.lost), Some(&[node(0)][..]));
    assert_eq!(
        world.roles.explain(100),
        "hostgroup 100: 192.168.4.22:3306: connection refused; 192.168.4.23:3306: read_only; 192.168.4.233:3306: read_only"
    );
    world.pass(60_000);
    world.decide();
    assert_eq!(world.writer(), None);
    world.see_server(2, server(false, Lag::Stopped));
    world.decide();
    assert_eq!(world.picture(), "- R W");
    assert_eq!(world.reasons(100), ["took over from 192.168.4.22:3306"]);
    assert_eq!(world.roles.groups[0].hold, None);
    world.decide();
    assert_eq!(world.reasons(100), ["took over from 192.168.4.22:3306"]);
}

#[test]
fn a_switchover_by_read_only() {
    let mut world = World::replicated(replication_policy());
    world.see_server(0, server(true, Lag::NoReplica));
    world.decide();
    assert_eq!(world.picture(), "R R R");
    assert!(world.roles.groups[0].hold.is_some());
    world.see_server(1, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.picture(), "R W R");
    assert_eq!(world.reasons(100), ["took over from 192.168.4.22:3306"]);
}

/// As ProxySQL has it; the reason says what it means.
#[test]
fn two_servers_that_are_not_read_only() {
    let mut world = World::replicated(replication_policy());
    world.see_server(1, server(false, Lag::Seconds(0)));
    world.decide();
    assert_eq!(world.picture(), "W W R");
    assert_eq!(
        world.reasons(100),
        [
            "not read_only, and neither is 192.168.4.23:3306: both are writers",
            "not read_only, and neither is 192.168.4.22:3306: both are writers",
        ]
    );
    world.see_server(1, server(true, Lag::Seconds(0)));
    world.decide();
    assert_eq!(world.picture(), "W R R");
    assert_eq!(world.reasons(100), ["not read_only"]);
}

#[test]
fn replicas_that_are_too_late() {
    let table = [
        (0, Lag::Seconds(1000), "W R R", "healthy"),
        (0, Lag::Stopped, "W R R", "replication does not run; reads, as no max_replication_lag forbids it"),
        (10, Lag::Seconds(10), "W R R", "healthy"),
        (10, Lag::NoReplica, "W R R", "healthy"),
        (10, Lag::Seconds(11), "W r R", "11 s behind its source, more than max_replication_lag 10"),
        (
            10,
            Lag::Stopped,
            "W r R",
            "replication does not run, which counts as 60 s behind, more than max_replication_lag 10",
        ),
        (60, Lag::Stopped, "W R R", "replication does not run; reads, as no max_replication_lag forbids it"),
    ];
    for (limit, lag, picture, reason) in table {
        let mut world = World::replicated(replication_policy());
        world.limit_lag(limit);
        world.see_server(1, server(true, lag));
        world.decide();
        assert_eq!(world.picture(), picture, "{reason}");
        assert_eq!(world.reasons(101)[0], reason);
    }
}

/// The writer has everything, so it reads when all replicas are late. Without it nobody does: a limit is a promise.
#[test]
fn when_all_replicas_are_too_late() {
    let mut world = World::replicated(replication_policy());
    world.limit_lag(10);
    (1..3).for_each(|index| world.see_server(index, server(true, Lag::Seconds(600))));
    world.decide();
    assert_eq!(world.picture(), "WR r r");
    assert_eq!(world.reasons(101)[0], "writer that reads because no other can");
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "- r r");
    assert!(world.roles.explain(101).contains("600 s behind its source, more than max_replication_lag 10"));
}

/// The limit of the row in the reader hostgroup counts, else that of the server's other row.
#[test]
fn whose_limit_counts() {
    let mut world = World::replicated(replication_policy());
    world.see_server(0, server(true, Lag::Seconds(20)));
    world.see_server(1, server(false, Lag::NoReplica));
    world.rows[0].lag_max_s = 10;
    world.decide();
    assert_eq!(world.picture(), "R W R", "its row as a reader has no limit");
    world.rows.remove(1);
    world.decide();
    assert_eq!(world.picture(), "r W R");
}

#[test]
fn wishes_of_the_user() {
    let mut world = World::replicated(replication_policy());
    world.rows[0].wish = Wish::OfflineSoft;
    world.decide();
    // Its other row lets it read.
    assert_eq!(world.picture(), "R R R");
    assert!(
        world
            .roles
            .explain(100)
            .contains("192.168.4.22:3306: taken out: drained, or OFFLINE_SOFT in mysql_servers")
    );
    world.rows[1].wish = Wish::OfflineHard;
    world.decide();
    assert_eq!(world.picture(), "- R R");
    assert_eq!(world.roles.groups[0].hold, None);
    let mut world = World::replicated(replication_policy());
    world.rows[2].wish = Wish::OfflineSoft;
    world.rows.push(row(1, 100, 1));
    world.decide();
    assert_eq!(world.picture(), "W r R");
}

#[test]
fn single_timeouts_change_nothing() {
    let mut world = World::replicated(replication_policy());
    for timeouts in 1..=3 {
        world.see_state(0, Err(ProbeError::Timeout(800)));
        world.decide();
        assert_eq!(world.picture(), if timeouts < 3 { "W R R" } else { "- R R" });
    }
    let place = world.roles.hostgroup(101).first();
    assert_eq!(
        place.map(|place| place.status),
        Some(Status::OfflineHard),
        "nothing more will be heard of it"
    );
}

#[test]
fn a_state_read_from_a_server() {
    let variables = [("read_only", "ON"), ("innodb_read_only", "OFF"), ("Super_Read_Only", "0")];
    let source = |lag: Option<&'static str>, io: &'static str| {
        [
            ("Connection_name", Some("x")),
            ("Slave_IO_Running", Some(io)),
            ("Slave_SQL_Running", Some("Yes")),
            ("Seconds_Behind_Master", lag),
            ("Seconds_Behind_Master_Avg", Some("9")),
        ]
    };
    let state = ReplicaState::from_rows(variables, [source(Some("4"), "Yes"), source(Some("3"), "Yes")]);
    assert_eq!(
        (state.read_only, state.innodb_read_only, state.super_read_only),
        (Some(true), Some(false), Some(false))
    );
    assert_eq!(state.lag, Lag::Seconds(4), "that of the source of which it is farthest behind");
    let lag =
        |sources: Vec<[(&'static str, Option<&'static str>); 5]>| ReplicaState::from_rows([], sources).lag;
    assert_eq!(lag(vec![]), Lag::NoReplica);
    assert_eq!(lag(vec![source(Some("4"), "Yes"), source(None, "Yes")]), Lag::Stopped);
    assert_eq!(lag(vec![source(Some("0"), "Connecting")]), Lag::Stopped);
    assert_eq!(lag(vec![source(Some("-1"), "Yes")]), Lag::Stopped);
    assert_eq!(lag(vec![source(Some("soon"), "Yes")]), Lag::Stopped);
    assert_eq!(lag(vec![source(Some("1"), "Yes"); 257]), Lag::Stopped, "more sources than are looked at");
    let mysql = [
        ("Replica_IO_Running", Some("Yes")),
        ("Replica_SQL_Running", Some("Yes")),
        ("Seconds_Behind_Source", Some("7")),
    ];
    assert_eq!(ReplicaState::from_rows([], [mysql]).lag, Lag::Seconds(7));
    assert_eq!(ReplicaState::from_rows([("read_only", "NO_LOCK_NO_ADMIN")], [mysql]).read_only, Some(true));
}

#[test]
fn a_writer_that_was_replaced_while_it_was_away_gets_no_write() {
    let mut world = World::replicated(replication_policy());
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!(world.writer(), None);
    // Somebody promotes a replica, and the old writer is started as it was.
    world.see_server(1, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.writer(), Some(1));
    world.see_server(0, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.picture(), "- W R");
    let reason =
        world.roles.places.iter().find(|place| place.endpoint == node(0)).unwrap().reason.to_string();
    assert!(reason.contains("192.168.4.23:3306 has replaced it while it was away"), "{reason}");
    // The next one is lost, too: its replica still knows of its writes, the old writer does not.
    world.see_state(1, Err(refused()));
    world.decide();
    assert_eq!(world.writer(), None);
    // Somebody decides.
    world.see_server(0, server(true, Lag::NoReplica));
    world.decide();
    world.see_server(0, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.writer(), Some(0));
}

#[test]
fn a_writer_that_was_away_writes_again_with_replicas_of_its_own_or_as_the_only_one_left() {
    let mut world = World::replicated(replication_policy());
    let lose = |world: &mut World| {
        world.see_state(0, Err(refused()));
        world.decide();
        world.see_server(1, server(false, Lag::NoReplica));
        world.decide();
        world.see_server(0, server(false, Lag::NoReplica));
        world.decide();
        assert_eq!(world.writer(), Some(1));
    };
    lose(&mut world);
    let source = SourceLink { id: String::new(), endpoint: Some(node(0)), link: Link::Up };
    world.see_server(2, ReplicaState { source: Some(source), ..server(true, Lag::Seconds(0)) });
    world.decide();
    assert_eq!(world.roles.hostgroup(100).len(), 2, "two that are not read_only write, as with ProxySQL");
    let mut world = World::replicated(replication_policy());
    lose(&mut world);
    world.see_state(1, Err(refused()));
    world.see_state(2, Err(refused()));
    world.decide();
    assert_eq!(world.writer(), None, "they may answer again, and have what it lacks");
    let others = [node(1), node(2)];
    world
        .rows
        .iter_mut()
        .filter(|row| others.contains(&row.endpoint))
        .for_each(|row| row.wish = Wish::OfflineHard);
    world.decide();
    assert_eq!(world.writer(), Some(0), "nobody else is left");
    // Two that write beside each other on purpose do so again when one has been away.
    let mut world = World::replicated(replication_policy());
    world.see_server(1, server(false, Lag::NoReplica));
    world.decide();
    world.see_state(0, Err(refused()));
    world.decide();
    world.see_server(0, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.roles.hostgroup(100).len(), 2);
}

/// Another Weir's switchover has just ended: the row of the epoch still names the writer before. A Weir that wants to move
/// the role on must not take that for "nobody else is there".
#[test]
fn a_switchover_right_after_another_one_waits_for_the_other_weirs() {
    let mut policy = replication_policy();
    policy.epoch = Some(EpochPolicy::new("a"));
    let mut world = World::replicated(policy);
    let read = |writer: usize, version, switching, clear_of| EpochRead {
        row: Some(EpochRow {
            epoch: 7,
            version,
            writer: node(writer),
            writer_address: None,
            is_open: true,
            claimed_by: "b".into(),
            switching,
        }),
        instances: vec![InstanceRow {
            instance: "b".into(),
            beat: version,
            says: Announcement { lease_ms: 3000, clear_of, ..Announcement::default() },
        }],
        asked_at: Millis(0),
        drains: None,
        malformed: None,
    };
    let see = |world: &mut World, read: EpochRead| {
        let asked_at = world.now;
        let seen = world.seen.iter_mut().find(|seen| seen.endpoint == node(0)).unwrap();
        seen.epoch = Some(EpochRead { asked_at, ..read });
        world.decide();
        world.roles.groups[0].leadership.clone().unwrap()
    };
    let switch =
        Switch { writer_hostgroup: 100, from: node(0), to: node(1), step: SwitchStep::Ask, ordered_at: 5 };
    world.policy.switches = vec![switch];
    // Node 0 took over from node 2 a moment ago; b had said that it held for that.
    let early = see(&mut world, read(2, 4, None, 4));
    assert_eq!(early.awaited, ["b".into()]);
    assert!(matches!(early.proposal, Some(Proposal::Claim { .. })), "{:?}", early.proposal);
    let asks = see(&mut world, read(0, 5, None, 4));
    assert_eq!(asks.awaited, ["b".into()]);
    assert!(matches!(asks.proposal, Some(Proposal::Ask { .. })), "{:?}", asks.proposal);
    // For a moment two are seen that are not read_only.
    world.see_server(2, server(false, Lag::NoReplica));
    world.decide();
    assert_eq!(world.roles.groups[0].leadership.clone().unwrap().awaited, ["b".into()]);
    world.see_server(2, server(true, Lag::Seconds(0)));
    let switching = Some(Switching { to: node(1), by: "a".into() });
    let announced = see(&mut world, read(0, 6, switching.clone(), 4));
    assert_eq!((announced.is_announced, announced.awaited), (true, vec!["b".into()]));
    assert_eq!(see(&mut world, read(0, 6, switching.clone(), 6)).awaited, []);
    // Ordered again after that was given up: the end of the first announcement may be on its way, and b goes on then.
    world.policy.switches[0].ordered_at = 6;
    let again = see(&mut world, read(0, 6, switching.clone(), 6));
    assert!(!again.is_announced && matches!(again.proposal, Some(Proposal::Ask { .. })), "{again:?}");
    let elsewhere = Some(Switching { to: node(2), by: "a".into() });
    assert!(!see(&mut world, read(0, 7, elsewhere, 7)).is_announced, "another target");
    let asked = see(&mut world, read(0, 8, switching, 7));
    assert_eq!((asked.is_announced, asked.awaited), (true, vec!["b".into()]));
}

/// The tables can't be read at the next writer, as grants are each server's own.
#[test]
fn a_switchover_that_was_made_is_held_for_no_longer_though_the_row_is_not_read() {
    for (writer, waits) in [(1, false), (2, true)] {
        let mut policy = replication_policy();
        policy.epoch = Some(EpochPolicy::new("a"));
        let epoch = policy.epoch.clone().unwrap();
        let mut world = World::replicated(policy);
        let row = EpochRow {
            epoch: 7,
            version: 4,
            writer: node(0),
            writer_address: None,
            is_open: true,
            claimed_by: "b".into(),
            switching: Some(Switching { to: node(1), by: "b".into() }),
        };
        let says = Announcement { lease_ms: 3000, ..Announcement::default() };
        let instances = vec![InstanceRow { instance: "b".into(), beat: 1, says }];
        let read =
            EpochRead { asked_at: world.now, row: Some(row), instances, drains: None, malformed: None };
        world.seen.iter_mut().find(|seen| seen.endpoint == node(0)).unwrap().epoch = Some(read);
        let holds = |world: &mut World| {
            world.decide();
            world.roles.groups[0].leadership.as_ref().unwrap().foreign_switch(&epoch).is_some()
        };
        assert!(holds(&mut world));
        world.see_server(0, server(true, Lag::NoReplica));
        assert!(holds(&mut world), "nobody writes yet");
        world.see_server(writer, server(false, Lag::NoReplica));
        assert_eq!(holds(&mut world), waits);
        // Nor for one that somebody has overtaken, once nobody goes on with it.
        world.pass(epoch.peer_timeout_ms);
        assert!(!holds(&mut world));
    }
}

/// Writes of one source need not be at another.
#[test]
fn the_only_writer_names_the_history() {
    let named =
        |read_only, id: &str| ReplicaState { id: id.to_owned(), ..server(read_only, Lag::Seconds(0)) };
    let mut world = World::replicated(replication_policy());
    assert_eq!(world.roles.groups[0].history, "", "it has not told its name");
    world.see_server(0, ReplicaState { domain: "0".to_owned(), ..named(false, "1") });
    world.decide();
    assert_eq!(world.roles.groups[0].history, "1 0");
    let before = world.roles.clone();
    world.see_server(0, named(false, "a"));
    world.decide();
    assert_eq!(world.roles.groups[0].history, "a");
    assert!(!world.roles.same_as(&before), "workers are told");
    world.see_server(1, named(false, "b"));
    world.decide();
    assert_eq!(world.roles.groups[0].history, "", "two write");
    world.see_server(0, named(true, "a"));
    world.decide();
    assert_eq!(world.roles.groups[0].history, "b");
    world.see_server(1, named(true, "b"));
    world.decide();
    assert_eq!((world.picture().as_str(), world.roles.groups[0].history.as_str()), ("R R R", "b"));
}
