//! Interrupted transactions run again at once: whom that keeps waiting, and whom it does not.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use support::interrupted::{Cluster, UPDATE};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{
    ChangeUser, put_change_user, put_ping, put_query, put_quit, put_reset_connection, put_stmt_close,
};
use weir_protocol::handshake::MYSQL_NATIVE_PASSWORD;
use weir_protocol::ok::OkPacket;
use weir_protocol::status::StatusFlags;
use weir_proxy::shared::Message;
use weir_proxy::snapshot::{Holding, Hostgroup};
use weir_proxy::stats::ReportPart;
use weir_routing::{Options, QueryRule, ReplayMode, Rules};

const INSERT: &str = "INSERT INTO t VALUES (2)";

/// A cluster with a reader, and a client with a read-only transaction there.
fn reading() -> (Cluster, usize) {
    let mut cluster = Cluster::new();
    cluster.readers = vec![2];
    cluster.write(&[0]);
    cluster.bench.pass_ms(5);
    let client = cluster.bench.client(0, "app");
    for sql in ["START TRANSACTION READ ONLY", "SELECT a FROM t"] {
        assert_eq!(support::run(&mut cluster.bench, client, sql), None);
    }
    assert_eq!(cluster.bench.count(2), 2, "{:?}", cluster.bench.log);
    cluster.bench.log.clear();
    (cluster, client)
}

#[test]
fn nobody_waits_for_a_transaction_that_has_lost_its_reader() {
    let (mut cluster, client) = reading();
    cluster.bench.lose(2);
    cluster.bench.pass_ms(50);
    cluster.readers.clear();
    cluster.write(&[0]);
    cluster.bench.pass_ms(50);
    assert!(!cluster.lets_replays_first());
    assert_eq!(cluster.texts(), [""; 0], "nobody has asked for anything");
    assert_eq!(support::run(&mut cluster.bench, client, "SELECT b FROM t"), None);
    assert_eq!(cluster.texts(), ["START TRANSACTION READ ONLY", "SELECT a FROM t", "SELECT b FROM t"]);
}

#[test]
fn nobody_waits_for_a_read_whose_reader_is_lost_in_the_middle() {
    let (mut cluster, client) = reading();
    cluster.bench.holds = true;
    cluster.bench.query(client, "SELECT b FROM t");
    cluster.bench.holds = false;
    cluster.bench.lose(2);
    assert!(!cluster.lets_replays_first());
    cluster.bench.pass_ms(50);
    assert!(cluster.bench.is_answered(client));
}

#[test]
fn nobody_waits_for_a_transaction_that_has_to_leave_its_reader() {
    let (mut cluster, client) = reading();
    cluster.is_over(2);
    cluster.readers.clear();
    cluster.write(&[0]);
    cluster.bench.pass_ms(2_000);
    assert_eq!(cluster.texts(), [""; 0], "nobody has asked for anything");
    assert_eq!(support::run(&mut cluster.bench, client, "SELECT b FROM t"), None);
    assert_eq!(cluster.bench.count(0), 3, "{:?}", cluster.bench.log);
}

/// It has waited for a writer before, or may not wait for long.
#[test]
fn who_waits_for_them_is_not_told_that_nobody_serves() {
    for (hold_ms, before_ms) in [(1_000, 850), (300, 0), (30, 0)] {
        let mut cluster = Cluster::held_by(Holding::new(Some(Duration::from_millis(hold_ms)), 100));
        cluster.interrupted();
        let other = cluster.bench.client(1, "bob");
        // The transaction does not get on.
        cluster.bench.holds = true;
        if before_ms > 0 {
            cluster.bench.query(other, INSERT);
            cluster.bench.pass_ms(before_ms);
        }
        cluster.write(&[1]);
        if before_ms == 0 {
            cluster.bench.query(other, INSERT);
        }
        cluster.bench.pass_ms(hold_ms - before_ms + 50);
        assert_eq!(cluster.bench.error(other), None, "{hold_ms} ms");
        assert!(cluster.texts().contains(&INSERT.to_owned()), "{hold_ms} ms");
    }
}

fn waits_timed_out(cluster: &mut Cluster) -> u64 {
    let (to, report) = channel();
    let part = ReportPart::Totals;
    cluster.bench.cores[0].message(Message::Report { part, begins_again: false, to }, cluster.bench.now);
    report.recv().unwrap().totals.waits_timed_out
}

#[test]
fn who_waits_for_nothing_takes_nobodys_place() {
    let mut cluster = Cluster::held_by(Holding::new(Some(Duration::from_millis(2_000)), 1));
    let clients = cluster.interrupted_all(["app"; 3]);
    let other = cluster.bench.client(0, "bob");
    cluster.bench.query(other, INSERT);
    cluster.bench.pass_ms(1_000);
    assert_eq!(cluster.bench.error(other), None, "there is a place for one");
    cluster.write(&[1]);
    cluster.bench.pass_ms(50);
    assert!(cluster.bench.is_answered(other));
    for client in clients {
        assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    }
}

#[test]
fn who_waits_for_nothing_counts_as_nobody_who_has_waited_too_long() {
    let mut cluster = Cluster::held_by(Holding::new(Some(Duration::from_millis(200)), 1));
    let client = cluster.interrupted();
    cluster.bench.pass_ms(500);
    assert_eq!((waits_timed_out(&mut cluster), cluster.bench.reply(client)), (0, None));
    cluster.write(&[1]);
    cluster.bench.pass_ms(50);
    assert_eq!(cluster.texts(), ["BEGIN", UPDATE]);
}

/// With a transaction that has not got on: its server has not answered to the BEGIN that runs again.
fn running() -> (Cluster, usize) {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.bench.holds = true;
    cluster.write(&[1]);
    cluster.bench.pass_ms(20);
    assert_eq!(cluster.texts(), ["BEGIN"]);
    cluster.bench.holds = false;
    (cluster, client)
}

/// The same while it waits for a connection.
fn dialing() -> (Cluster, usize) {
    let mut cluster = Cluster::new();
    let client = cluster.interrupted();
    cluster.bench.greets_late = true;
    cluster.write(&[1]);
    cluster.bench.pass_ms(20);
    assert!(cluster.lets_replays_first());
    (cluster, client)
}

fn greet(cluster: &mut Cluster) {
    cluster.bench.greets_late = false;
    while cluster.bench.greet_last() {}
    cluster.bench.pass_ms(20);
}

fn command(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes);
    bytes
}

fn query(sql: &str) -> Vec<u8> {
    command(|out| put_query(out, sql.as_bytes()))
}

fn change_user() -> Vec<u8> {
    let change = ChangeUser {
        user: b"app",
        auth_data: b"",
        database: b"",
        collation: Some(45),
        auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
        attributes: Default::default(),
    };
    command(|out| put_change_user(out, &change, support::MODERN))
}

#[test]
fn one_that_runs_again_goes_along_with_a_session_that_has_to_leave() {
    let (mut cluster, client) = running();
    cluster.write(&[]);
    let endpoint = cluster.bench.servers[1].endpoint.as_str().into();
    cluster.bench.cores[0].message(Message::CutWriters { endpoint }, cluster.bench.now);
    cluster.bench.run();
    assert_eq!(cluster.bench.reply(client), None);
    cluster.write(&[0]);
    cluster.bench.pass_ms(50);
    let at = |(server, text): &(usize, String)| (*server == 0).then(|| text.clone());
    let texts: Vec<String> = cluster.bench.log.iter().filter_map(at).collect();
    assert_eq!(texts, ["BEGIN", UPDATE]);
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
}

/// A read that a rule sends to another server loses that: the transaction, which waits elsewhere, has lost nothing.
#[test]
fn what_a_read_beside_a_transaction_loses_is_not_the_transactions() {
    let mut cluster = Cluster::new();
    let mut account = support::account("app", 0);
    let user = &mut Arc::get_mut(&mut account).unwrap().user;
    Arc::make_mut(user).transaction_persistent = false;
    cluster.bench.users[0] = account;
    let to_reader = QueryRule {
        rule_id: 1,
        active: true,
        match_pattern: Some("far".to_owned()),
        destination_hostgroup: Some(1),
        ..QueryRule::default()
    };
    let rules = Rules::compile(&[to_reader], &[], Options::default()).unwrap();
    let groups = |cluster: &Cluster| {
        let writers = Hostgroup { deadlock_retries: 3, ..cluster.writers(&[0]) };
        [(0, writers), (1, support::hostgroup([2]))]
    };
    cluster.bench.publish_rules(rules.clone(), groups(&cluster));
    let client = cluster.begun("app");
    cluster.bench.holds = true;
    cluster.bench.query(client, "SELECT a FROM far");
    assert_eq!(cluster.bench.count(2), 1, "{:?}", cluster.bench.log);
    cluster.bench.holds = false;
    cluster.bench.lose(2);
    cluster.bench.pass_ms(50);
    assert!(cluster.bench.is_answered(client));
    (cluster.bench.deadlocks, cluster.bench.conditions) = (1, vec![1213]);
    cluster.bench.query(client, UPDATE);
    assert_eq!(cluster.bench.reply(client), None, "it runs again after a moment");
    cluster.bench.publish_rules(rules, groups(&cluster));
    assert!(!cluster.lets_replays_first());
    cluster.bench.pass_ms(50);
    assert!(cluster.bench.is_answered(client));
}

#[test]
fn a_part_that_was_killed_gives_its_locks_back_at_once() {
    let (mut cluster, client) = running();
    let killer = cluster.bench.client(0, "app");
    let id = cluster.bench.clients[client].connection_id;
    cluster.bench.holds = true;
    cluster.bench.query(killer, &format!("KILL QUERY {id}"));
    cluster.bench.holds = false;
    cluster.release_in_transaction();
    cluster.bench.release_one();
    cluster.bench.pass_ms(20);
    assert!(cluster.bench.conns.iter().all(|conn| !conn.is_in_transaction), "{:?}", cluster.bench.log);
    assert!(!cluster.lets_replays_first());
    cluster.bench.send(client, &command(put_reset_connection));
    assert!(cluster.bench.is_answered(client));
}

#[test]
fn who_is_about_to_log_in_anew_keeps_nobody_waiting() {
    let (mut cluster, client) = dialing();
    cluster.bench.send(client, &change_user());
    assert!(!cluster.lets_replays_first());
    cluster.write(&[0, 1]);
    cluster.write(&[1]);
    assert!(!cluster.lets_replays_first());
}

#[test]
fn a_part_of_a_command_keeps_nobody_waiting_and_a_whole_one_does() {
    let (mut cluster, client) = dialing();
    let insert = query(INSERT);
    cluster.bench.send(client, &insert[..3]);
    assert!(!cluster.lets_replays_first());
    cluster.bench.send(client, &insert[3..]);
    assert!(cluster.lets_replays_first());
    greet(&mut cluster);
    assert_eq!(cluster.texts(), ["BEGIN", UPDATE, INSERT]);
    assert!(cluster.bench.is_answered(client));
    assert!(!cluster.lets_replays_first());
}

#[test]
fn the_half_second_does_not_begin_anew_with_what_else_its_client_sends() {
    let (mut cluster, client) = dialing();
    for _ in 0..60 {
        cluster.bench.pass_ms(10);
        cluster.bench.query(client, "SET weir_consistency = 'session'");
        assert!(cluster.bench.is_answered(client));
    }
    assert!(!cluster.lets_replays_first());
}

#[test]
fn a_session_whose_user_is_gone_keeps_nobody_waiting() {
    let mut cluster = Cluster::held_by(Holding::new(Some(Duration::from_millis(100)), 10));
    let client = cluster.interrupted();
    cluster.bench.pass_ms(200);
    cluster.bench.users.remove(0);
    cluster.write(&[1]);
    assert!(!cluster.lets_replays_first());
    let (code, _) = support::run(&mut cluster.bench, client, INSERT).unwrap();
    assert_eq!(code, 1045);
}

#[test]
fn what_weir_answers_itself_does_not_keep_it_from_running_again() {
    let set = query("SET weir_consistency = 'session'");
    for bytes in [command(put_ping), command(|out| put_stmt_close(out, 7)), set] {
        let (mut cluster, client) = dialing();
        cluster.bench.send(client, &bytes);
        cluster.bench.clients[client].got.clear();
        assert!(cluster.lets_replays_first(), "{bytes:?}");
        greet(&mut cluster);
        assert_eq!(cluster.texts(), ["BEGIN", UPDATE], "{bytes:?}");
        assert_eq!(cluster.bench.reply(client), None, "{bytes:?}");
        assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    }
}

#[test]
fn a_ping_is_answered_while_it_runs_again() {
    let (mut cluster, client) = running();
    cluster.bench.send(client, &command(put_ping));
    let reply = cluster.bench.reply(client).unwrap();
    let ok = OkPacket::parse(&reply, Capabilities::PROTOCOL_41).unwrap();
    assert!(ok.status.contains(StatusFlags::IN_TRANS));
    cluster.release_in_transaction();
    cluster.bench.pass_ms(20);
    assert_eq!(cluster.texts(), [UPDATE], "it has gone on where it was");
    assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
}

/// A statement that runs again may wait for a lock.
#[test]
fn what_ends_it_does_not_wait_for_its_end() {
    let reset = command(put_reset_connection);
    for bytes in [query("/* of a driver */ ROLLBACK"), reset, change_user()] {
        let (mut cluster, client) = running();
        cluster.bench.send(client, &bytes);
        let reply = cluster.bench.reply(client).unwrap();
        assert_ne!(reply[0], 0xFF, "{bytes:?}");
        assert!(!cluster.lets_replays_first(), "{bytes:?}");
        cluster.bench.pass_ms(50);
        assert!(cluster.bench.conns.iter().all(|conn| !conn.is_in_transaction), "{bytes:?}");
    }
    let (mut cluster, client) = running();
    cluster.bench.send(client, &command(put_quit));
    cluster.bench.pass_ms(20);
    assert_eq!(cluster.bench.cores[0].census().sessions, 0);
    assert!(!cluster.lets_replays_first());
}

/// All else is taken up behind it.
#[test]
fn what_does_not_end_it_waits_for_its_end() {
    let (mut cluster, client) = running();
    cluster.bench.query(client, INSERT);
    assert_eq!((cluster.bench.reply(client), cluster.texts().len()), (None, 0));
    cluster.release_in_transaction();
    cluster.bench.pass_ms(20);
    assert!(cluster.bench.is_answered(client));
    assert_eq!(cluster.texts(), [UPDATE, INSERT]);
}

/// A cluster of two writers, of which 0 is to be lost: a client with a transaction there, and one that keeps its connection to
/// the other.
fn keeping(user: &str, statements: &[&str], keeps_connections: bool) -> (Cluster, usize) {
    let mut cluster = Cluster::new();
    let mut account = support::account("keeps", 0);
    let row = &mut Arc::get_mut(&mut account).unwrap().user;
    let row = Arc::make_mut(row);
    row.fast_forward = user == "fast_forward";
    row.transactions.replay = Some(ReplayMode::Off);
    cluster.bench.users.push(account);
    cluster.publish(Hostgroup { keeps_connections, ..cluster.writers(&[1]) });
    let keeps = cluster.bench.client(0, "keeps");
    for sql in statements {
        assert_eq!(support::run(&mut cluster.bench, keeps, sql), None);
    }
    let of_others =
        |cluster: &Cluster, servers: &[usize]| Hostgroup { keeps_connections, ..cluster.writers(servers) };
    cluster.publish(of_others(&cluster, &[0, 1]));
    // It comes back slowly.
    cluster.bench.pass_ms(6_000);
    for _ in 0..4 {
        cluster.begun("app");
    }
    assert!(cluster.bench.count(0) > 0);
    cluster.bench.log.clear();
    cluster.bench.holds = true;
    cluster.bench.lose(0);
    cluster.publish(of_others(&cluster, &[1]));
    cluster.bench.holds = false;
    assert!(cluster.lets_replays_first());
    (cluster, keeps)
}

#[test]
fn who_keeps_a_connection_writes_behind_them_too() {
    for (user, statements, keeps_connections) in [
        ("pinned", &["SELECT GET_LOCK('a', 1)"][..], false),
        ("fast_forward", &[INSERT], false),
        ("multiplex", &[INSERT], true),
        ("replay is off", &["BEGIN", INSERT], false),
    ] {
        let (mut cluster, keeps) = keeping(user, statements, keeps_connections);
        cluster.bench.query(keeps, "INSERT INTO t VALUES (3)");
        cluster.bench.pass_ms(10);
        assert!(!cluster.texts().iter().any(|text| text.ends_with("(3)")), "{user}");
        while cluster.bench.conns.iter().any(|conn| conn.held) {
            cluster.release_in_transaction();
        }
        cluster.bench.pass_ms(50);
        assert!(cluster.texts().iter().any(|text| text.ends_with("(3)")), "{user}");
        assert!(cluster.bench.is_answered(keeps), "{user}");
    }
}

#[test]
fn what_gives_locks_back_waits_for_nobody() {
    let (mut cluster, keeps) = keeping("replay is off", &["BEGIN", INSERT], false);
    cluster.bench.query(keeps, "COMMIT");
    assert!(cluster.bench.is_answered(keeps));
}

/// A switchover that is undone: the writer stays what it was.
#[test]
fn where_only_the_connection_was_lost_in_a_switchover_that_is_known_afterwards() {
    for writer in [0, 1] {
        let mut cluster = Cluster::new();
        let client = cluster.begun("app");
        cluster.bench.log.clear();
        cluster.publish(Hostgroup { is_held: true, ..cluster.writers(&[]) });
        cluster.bench.lose(0);
        cluster.bench.pass_ms(50);
        assert!(cluster.lets_replays_first(), "it may be lost");
        cluster.write(&[writer]);
        cluster.bench.pass_ms(50);
        assert!(!cluster.lets_replays_first());
        let again = if writer == 0 { &[][..] } else { &["BEGIN", UPDATE] };
        assert_eq!(cluster.texts(), again);
        assert_eq!(support::run(&mut cluster.bench, client, "COMMIT"), None);
    }
}
