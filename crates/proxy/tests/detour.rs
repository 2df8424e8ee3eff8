//! Sessions that keep a connection and have single statements run elsewhere: `transaction_persistent = 0`, hostgroups
//! with `multiplex = 0`; and how often a statement is sent again.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
use weir_protocol::ok::OkPacket;
use weir_protocol::status::StatusFlags;
use weir_routing::{Options, QueryRule, Rules};

/// Two servers, each alone in the hostgroup of its number. Clients belong to hostgroup 0, and what names `far` is sent
/// to 1. Hostgroup 0 may keep connections.
fn bench_with(retries: Option<u32>, keeps_connections: bool, variables: MysqlVariables) -> Bench {
    let mut bench = Bench::new(1, &[5, 5], support::hostgroup([0]), variables);
    let mut account = support::account("app", 0);
    let user = &mut Arc::get_mut(&mut account).unwrap().user;
    Arc::make_mut(user).transaction_persistent = false;
    bench.users[0] = account;
    let rule = QueryRule {
        rule_id: 1,
        active: true,
        match_pattern: Some("far".to_owned()),
        destination_hostgroup: Some(1),
        retries,
        ..QueryRule::default()
    };
    let rules = Rules::compile(&[rule], &[], Options::default()).unwrap();
    let mut home = support::hostgroup([0]);
    home.keeps_connections = keeps_connections;
    bench.publish_rules(rules, [(0, home), (1, support::hostgroup([1]))]);
    bench
}

fn bench() -> Bench {
    bench_with(None, false, MysqlVariables::default())
}

/// The clients' statements at a server.
fn texts(bench: &Bench, server: usize) -> Vec<&str> {
    let is_own = |text: &str| text.starts_with("SELECT CAST(CONVERT(LAST_INSERT_ID()");
    let of_clients = bench.log.iter().filter(|(at, text)| *at == server && !is_own(text));
    of_clients.map(|(_, text)| text.as_str()).collect()
}

/// Whether the client's next reply is an OK that says that a transaction is open.
fn is_told_of_transaction(bench: &mut Bench, client: usize) -> bool {
    let reply = bench.reply(client).unwrap();
    let ok = OkPacket::parse(&reply, Capabilities::PROTOCOL_41).unwrap();
    ok.status.contains(StatusFlags::IN_TRANS)
}

#[test]
fn only_reads_of_a_transaction_leave_it() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    for text in ["BEGIN", "SELECT a FROM far", "INSERT INTO far VALUES (1)", "SELECT a FROM far FOR UPDATE"] {
        bench.query(client, text);
        assert!(is_told_of_transaction(&mut bench, client), "{text}");
    }
    // Somebody else gets the other server's connection at once, and this one keeps its own.
    let other = bench.client(0, "app");
    bench.query(other, "SELECT b FROM far");
    assert!(!is_told_of_transaction(&mut bench, other));
    bench.query(client, "COMMIT");
    assert!(!is_told_of_transaction(&mut bench, client));
    assert_eq!(texts(&bench, 1), ["SELECT a FROM far", "SELECT b FROM far"]);
    let here = ["BEGIN", "INSERT INTO far VALUES (1)", "SELECT a FROM far FOR UPDATE", "COMMIT"];
    assert_eq!(texts(&bench, 0), here);
    assert_eq!((bench.open(0), bench.open(1)), (1, 1));
    assert_eq!(bench.cores[0].census().leases, 0);
}

#[test]
fn what_needs_the_connection_follows_the_transaction() {
    for before in ["SET @a = 1", "SELECT GET_LOCK('far', 1)", "CREATE TEMPORARY TABLE far (a INT)"] {
        let mut bench = bench();
        let client = bench.client(0, "app");
        for text in ["BEGIN", before, "SELECT a FROM far"] {
            bench.query(client, text);
            assert!(bench.reply(client).is_some(), "{text}");
        }
        assert!(!texts(&bench, 1).contains(&"SELECT a FROM far"), "{before}");
    }
    let mut bench = bench();
    let client = bench.client(0, "app");
    for text in ["BEGIN", "SELECT LAST_INSERT_ID() FROM far", "SELECT SQL_CALC_FOUND_ROWS a FROM far"] {
        bench.query(client, text);
        assert!(bench.reply(client).is_some(), "{text}");
    }
    assert!(texts(&bench, 1).is_empty(), "{:?}", bench.log);
}

#[test]
fn a_transaction_of_another_user_stays_whole() {
    let mut bench = bench();
    let client = bench.client(0, "bob");
    for text in ["BEGIN", "SELECT a FROM far"] {
        bench.query(client, text);
        assert!(is_told_of_transaction(&mut bench, client), "{text}");
    }
    assert!(texts(&bench, 1).is_empty());
}

#[test]
fn a_read_that_finds_no_server_leaves_the_transaction_as_it_is() {
    let variables = MysqlVariables {
        connect_timeout_server_max: Duration::from_millis(100),
        ..MysqlVariables::default()
    };
    let mut bench = bench_with(None, false, variables);
    bench.down = vec![1];
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    assert!(is_told_of_transaction(&mut bench, client));
    bench.query(client, "SELECT a FROM far");
    bench.pass_ms(150);
    assert_eq!(bench.error(client).unwrap().0, 9001);
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert!(is_told_of_transaction(&mut bench, client));
    assert_eq!(bench.open(0), 1);
}

#[test]
fn a_transaction_that_is_lost_meanwhile_ends_the_session() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    assert!(is_told_of_transaction(&mut bench, client));
    bench.holds = true;
    bench.query(client, "SELECT a FROM far");
    assert_eq!(bench.cores[0].census().leases, 1);
    let at = bench.conns.iter().position(|conn| conn.node == 0).unwrap();
    let lost = bench.conns.remove(at).id;
    bench.cores[0].closed(lost, bench.now);
    bench.run();
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("and with it: transaction"), "{code} {message}");
    assert_eq!(bench.cores[0].census().sessions, 0);
    assert_eq!(bench.open(0), 0);
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_nothing() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    bench.holds = true;
    bench.query(client, "SELECT a FROM far");
    bench.holds = false;
    let socket = bench.clients[client].id;
    bench.cores[0].closed(socket, bench.now);
    bench.run();
    let census = bench.cores[0].census();
    assert_eq!((census.sessions, census.leases), (0, 0));
    assert!(
        bench.own.iter().any(|(server, _)| *server == 0),
        "the transaction's connection was not set up anew"
    );
    let other = bench.client(0, "app");
    bench.query(other, "INSERT INTO t VALUES (1)");
    assert!(!is_told_of_transaction(&mut bench, other));
    assert_eq!(bench.open(0), 1, "the transaction's connection was not recycled");
}

#[test]
fn a_read_elsewhere_that_fails_for_good_ends_the_session_with_its_transaction() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    assert!(is_told_of_transaction(&mut bench, client));
    bench.hangs_up = true;
    bench.query(client, "SELECT a FROM far");
    bench.pass_ms(50);
    assert_eq!(bench.count(1), 2, "query_retries_on_failure is 1");
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.contains("and with it: transaction"), "{code} {message}");
    assert!(message.ends_with("it had no effect"), "{message}");
    assert_eq!(bench.cores[0].census().sessions, 0);
}

#[test]
fn a_read_is_sent_again_as_often_as_the_configuration_says() {
    for (rule, variable, times) in
        [(None, 1, 2), (None, 0, 1), (None, 3, 4), (Some(2), 0, 3), (Some(0), 5, 1)]
    {
        let variables = MysqlVariables { query_retries_on_failure: variable, ..MysqlVariables::default() };
        let mut bench = bench_with(rule, false, variables);
        let client = bench.client(0, "app");
        bench.hangs_up = true;
        bench.query(client, "SELECT a FROM far");
        bench.pass_ms(100);
        assert_eq!(bench.count(1), times, "{rule:?} {variable}");
        assert_eq!(bench.error(client).unwrap().0, 1053);
        let writer = bench.client(0, "app");
        bench.query(writer, "INSERT INTO t VALUES (1)");
        assert_eq!(bench.count(0), 1, "a write was sent again");
    }
}

#[test]
fn sessions_keep_their_connection_where_nothing_is_shared() {
    let mut bench = bench_with(None, true, MysqlVariables::default());
    let clients = [bench.client(0, "app"), bench.client(0, "app")];
    for _ in 0..3 {
        for client in clients {
            bench.query(client, "INSERT INTO t VALUES (1)");
            assert!(bench.is_answered(client));
        }
    }
    assert_eq!((bench.open(0), bench.cores[0].census().leases), (2, 2));
    // A read that is sent elsewhere leaves the connection to its session, a write gives it back.
    bench.query(clients[0], "SELECT a FROM far");
    assert!(bench.is_answered(clients[0]));
    assert_eq!((bench.open(1), bench.cores[0].census().leases), (1, 2));
    bench.query(clients[0], "INSERT INTO far VALUES (1)");
    assert!(bench.is_answered(clients[0]));
    assert_eq!(bench.cores[0].census().leases, 1);
    assert_eq!(texts(&bench, 1), ["SELECT a FROM far", "INSERT INTO far VALUES (1)"]);
    // Its end between statements is no end of the session.
    while let Some(at) = bench.conns.iter().position(|conn| conn.node == 0) {
        let lost = bench.conns.remove(at).id;
        bench.cores[0].closed(lost, bench.now);
        bench.run();
    }
    bench.query(clients[1], "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(clients[1]));
}

#[test]
fn a_read_is_not_sent_again_on_a_connection_that_is_lost_as_well() {
    for servers in [1, 2] {
        let limits = [5, 5];
        let mut bench =
            Bench::new(1, &limits[..servers], support::hostgroup(0..servers), MysqlVariables::default());
        let clients: Vec<usize> = (0..4).map(|_| bench.client(0, "app")).collect();
        bench.holds = true;
        for client in &clients {
            bench.query(*client, "SELECT a FROM t");
            bench.pass_ms(50);
        }
        // Four connections rest, and those of one server end at the same moment, which is heard one after the other.
        for _ in &clients {
            bench.release_one();
        }
        bench.holds = false;
        for client in &clients {
            assert!(bench.is_answered(*client));
        }
        bench.holds = true;
        bench.query(clients[0], "SELECT b FROM t");
        let (node, running) =
            bench.conns.iter().find(|conn| conn.held).map(|conn| (conn.node, conn.id)).unwrap();
        bench.holds = false;
        let (lost, rest): (Vec<_>, Vec<_>) = bench.conns.drain(..).partition(|conn| conn.node == node);
        bench.conns = rest;
        bench.cores[0].closed(running, bench.now);
        bench.run();
        for conn in lost.iter().filter(|conn| conn.id != running) {
            bench.cores[0].closed(conn.id, bench.now);
            bench.run();
        }
        bench.pass_ms(50);
        assert!(bench.is_answered(clients[0]), "{servers} servers");
        assert_eq!(bench.log.iter().filter(|(_, text)| text == "SELECT b FROM t").count(), 2);
    }
}
