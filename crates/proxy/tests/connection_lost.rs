//! Servers that are lost while a session has a connection there: who has lost nothing goes on, the others are told.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{put_init_db, put_reset_connection, put_stmt_prepare};
use weir_proxy::shared::Message;

fn two_servers() -> Bench {
    Bench::new(1, &[10, 10], support::hostgroup([0, 1]), MysqlVariables::default())
}

/// The server that got a client's last statement is lost.
fn lose_last(bench: &mut Bench) {
    let (node, _) = *bench.log.last().unwrap();
    bench.down = vec![node];
    bench.lose(node);
}

fn begin(bench: &mut Bench, client: usize) {
    bench.query(client, "BEGIN");
    bench.pass_ms(1);
    assert!(bench.is_answered(client));
}

/// The client has an error, and the server is to be asked what has become of the session's state.
fn fail(bench: &mut Bench, client: usize, code: u16) {
    (bench.fails, bench.ignores_pings) = (code, true);
    bench.query(client, "UPDATE t SET a = 1");
    bench.pass_ms(1);
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(code));
    (bench.fails, bench.ignores_pings) = (0, false);
}

/// The next statement gets an error that names the transaction, nothing is run, and the session is over.
fn is_told(bench: &mut Bench, client: usize) -> String {
    let ran = bench.log.len();
    assert_eq!((bench.reply(client), bench.cores[0].sessions()), (None, 1), "it is not told before it asks");
    bench.query(client, "INSERT INTO t VALUES (2)");
    bench.pass_ms(50);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("and with it: transaction"), "{code}: {message}");
    assert_eq!((bench.log.len(), bench.cores[0].sessions()), (ran, 0));
    message
}

fn goes_on(bench: &mut Bench, client: usize) {
    assert_eq!(bench.reply(client), None);
    bench.query(client, "INSERT INTO t VALUES (2)");
    bench.pass_ms(50);
    assert!(bench.is_answered(client));
}

#[test]
fn a_server_lost_behind_an_error_takes_nothing_from_a_session_without_a_transaction() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    fail(&mut bench, client, 1062);
    lose_last(&mut bench);
    goes_on(&mut bench, client);
}

/// It says itself that the transaction is rolled back.
#[test]
fn a_server_lost_behind_a_deadlock_takes_nothing_from_a_session() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    fail(&mut bench, client, 1213);
    lose_last(&mut bench);
    goes_on(&mut bench, client);
}

#[test]
fn a_transaction_lost_behind_an_error_is_told_with_the_next_statement() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    fail(&mut bench, client, 1205);
    lose_last(&mut bench);
    let message = is_told(&mut bench, client);
    assert!(message.contains("after the last statement"), "{message}");
}

#[test]
fn a_transaction_lost_between_statements_is_told_with_the_next_one() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    lose_last(&mut bench);
    let message = is_told(&mut bench, client);
    assert!(message.contains("between two statements"), "{message}");
}

#[test]
fn who_resets_a_session_has_given_up_what_is_lost() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    lose_last(&mut bench);
    let mut reset = Vec::new();
    put_reset_connection(&mut reset);
    bench.send(client, &reset);
    assert!(bench.is_answered(client));
    goes_on(&mut bench, client);
}

#[test]
fn who_waits_to_write_on_a_server_that_is_lost_is_told() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    for server in &bench.servers {
        server.shared.writes_until_ns.store(1, Ordering::Relaxed);
    }
    let ran = bench.log.len();
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(2);
    assert_eq!((bench.reply(client), bench.log.len()), (None, ran));
    lose_last(&mut bench);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("and with it: transaction: it had no effect"), "{message}");
}

#[test]
fn who_is_cut_from_a_former_writer_behind_an_error_is_told_with_the_next_statement() {
    for (code, is_lost) in [(1205, true), (1213, false)] {
        let mut bench = two_servers();
        let client = bench.client(0, "app");
        begin(&mut bench, client);
        fail(&mut bench, client, code);
        let (node, _) = *bench.log.last().unwrap();
        let endpoint = bench.servers[node].endpoint.as_str().into();
        bench.cores[0].message(Message::CutWriters { endpoint }, bench.now);
        bench.run();
        if is_lost {
            let message = is_told(&mut bench, client);
            assert!(message.starts_with("The writer is moved away from"), "{message}");
        } else {
            goes_on(&mut bench, client);
        }
    }
}

/// It has no effect by itself, and a server that dies loses one connection after the other.
#[test]
fn a_transaction_that_is_only_being_begun_begins_elsewhere() {
    let mut bench = two_servers();
    bench.holds = true;
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    for _ in 0..4 {
        bench.pass_ms(1);
        let (node, _) = *bench.log.last().unwrap();
        bench.lose(node);
    }
    bench.holds = false;
    bench.pass_ms(50);
    assert!(bench.is_answered(client));
}

/// Servers with so many idle connections each.
fn with_idle(servers: &[u32], idle: usize, variables: MysqlVariables) -> Bench {
    with_idle_of(support::MODERN, servers, idle, variables, &support::plain_ok(1))
}

/// The same, of clients with these capabilities, whose last statement had this answer.
fn with_idle_of(
    capabilities: Capabilities,
    servers: &[u32],
    idle: usize,
    variables: MysqlVariables,
    answer: &[u8],
) -> Bench {
    let mut bench = Bench::new(1, servers, support::hostgroup(0..servers.len()), variables);
    bench.holds = true;
    for _ in 0..idle * servers.len() {
        let client = bench.client_with(0, "app", capabilities);
        bench.query(client, "SELECT 1");
    }
    bench.pass_ms(20);
    bench.holds = false;
    while bench.conns.iter().any(|conn| conn.held) {
        bench.release_with(answer.to_vec());
    }
    // Nobody is to ask for what their statements have left there.
    for client in std::mem::take(&mut bench.clients) {
        bench.cores[client.core].closed(client.id, bench.now);
    }
    bench.run();
    for (server, _) in servers.iter().enumerate() {
        assert_eq!(bench.open(server) as usize, idle);
    }
    bench.log.clear();
    bench
}

/// Servers end each connection with what is sent on it, until they have done so this often.
fn hang_up(bench: &mut Bench, times: usize) {
    for _ in 0..1000 {
        if bench.log.len() >= times {
            break;
        }
        bench.pass_ms(1);
    }
    assert_eq!(bench.log.len(), times);
    (bench.hangs_up, bench.hangs_up_on_commands) = (false, false);
    bench.pass_ms(1000);
}

/// One failure of one server, however many of its connections a read meets.
#[test]
fn a_read_that_a_dying_server_loses_several_times_is_answered() {
    let mut bench = with_idle(&[8], 6, MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 2");
    hang_up(&mut bench, 5);
    assert!(bench.is_answered(client));
    assert_eq!(bench.log.len(), 6);
}

#[test]
fn a_read_goes_to_another_server_than_the_one_that_lost_it() {
    let mut bench = with_idle(&[8, 8], 3, MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 2");
    hang_up(&mut bench, 1);
    assert!(bench.is_answered(client));
    assert!(bench.log.len() == 2 && bench.log[0].0 != bench.log[1].0, "{:?}", bench.log);
}

/// It may be the read that they die of.
#[test]
fn a_read_that_two_servers_lose_is_given_up() {
    for (query_retries_on_failure, sent) in [(0, 1), (1, 2)] {
        let variables = MysqlVariables { query_retries_on_failure, ..MysqlVariables::default() };
        let mut bench = with_idle(&[8, 8], 3, variables);
        let client = bench.client(0, "app");
        bench.hangs_up = true;
        bench.query(client, "SELECT 2");
        bench.pass_ms(1000);
        assert_eq!(bench.error(client).map(|(code, _)| code), Some(1053));
        assert_eq!(bench.log.len(), sent);
    }
}

/// A connection that was opened after the loss shows that the server was well again.
#[test]
fn a_read_that_a_server_loses_anew_is_given_up() {
    let mut bench = with_idle(&[8], 1, MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 2");
    bench.pass_ms(1000);
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(1053));
    assert_eq!(bench.log.len(), 2);
}

#[test]
fn a_read_is_not_sent_more_often_than_statements_are_given_to_servers() {
    let variables = MysqlVariables { connect_retries_on_failure: 3, ..MysqlVariables::default() };
    let mut bench = with_idle(&[8], 7, variables);
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 2");
    bench.pass_ms(1000);
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(1053));
    assert_eq!(bench.log.len(), 4);
}

#[test]
fn what_may_have_an_effect_and_was_sent_is_never_sent_again() {
    for text in [
        "INSERT INTO t VALUES (1)",
        "set global max_connections = 5",
        "set wait_timeout = f()",
        "SHOW TABLES WHERE f()",
        "SELECT @@sql_mode, GET_LOCK('a', 1)",
        "START SLAVE",
    ] {
        let mut bench = with_idle(&[8, 8], 3, MysqlVariables::default());
        let client = bench.client(0, "app");
        bench.hangs_up = true;
        bench.query(client, text);
        bench.pass_ms(1000);
        let (code, message) = bench.error(client).unwrap();
        assert!(code == 1053 && message.ends_with("it may or may not have taken effect"), "{message}");
        assert_eq!(bench.log.len(), 1, "{text}");
    }
}

/// What changes nothing but a connection is as good on another one.
#[test]
fn commands_without_an_effect_are_run_again() {
    for (name, text) in [
        ("COM_INIT_DB", "db"),
        ("COM_STMT_PREPARE", "INSERT INTO t VALUES (1)"),
        ("", "USE db"),
        ("", "SELECT @@sql_mode"),
        ("", "SHOW TABLES"),
        ("", "set names utf8mb4"),
        ("", "set session transaction isolation level repeatable read"),
        ("", "START TRANSACTION READ ONLY"),
    ] {
        let mut bench = with_idle(&[8], 4, MysqlVariables::default());
        let client = bench.client(0, "app");
        (bench.hangs_up, bench.hangs_up_on_commands) = (true, true);
        let mut command = Vec::new();
        match name {
            "COM_INIT_DB" => put_init_db(&mut command, text.as_bytes()),
            "COM_STMT_PREPARE" => put_stmt_prepare(&mut command, text.as_bytes()),
            _ => weir_protocol::command::put_query(&mut command, text.as_bytes()),
        }
        bench.send(client, &command);
        hang_up(&mut bench, 3);
        assert!(bench.is_answered(client), "{text}");
        let named = if name.is_empty() { text } else { name };
        assert!(bench.log.iter().all(|(_, ran)| ran == named), "{:?}", bench.log);
    }
}

#[test]
fn a_reset_that_is_lost_with_its_connection_has_had_its_effect() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    begin(&mut bench, client);
    bench.hangs_up_on_commands = true;
    let mut reset = Vec::new();
    put_reset_connection(&mut reset);
    bench.send(client, &reset);
    assert!(bench.is_answered(client));
    bench.hangs_up_on_commands = false;
    goes_on(&mut bench, client);
}

/// SET TRANSACTION READ ONLY, which Weir has answered itself.
#[test]
fn what_was_announced_is_sent_again_in_front_of_a_read() {
    let mut bench = with_idle(&[8], 2, MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.query(client, "SET TRANSACTION READ ONLY");
    assert!(bench.is_answered(client));
    bench.own.clear();
    bench.hangs_up = true;
    bench.query(client, "SELECT 2");
    hang_up(&mut bench, 1);
    assert!(bench.is_answered(client));
    let announced = bench.own.iter().filter(|(_, text)| text == "SET TRANSACTION READ ONLY").count();
    assert_eq!((announced, bench.log.len()), (2, 2));
}

/// Conditions that other sessions have left on a connection are ended on each that a text of several statements gets.
#[test]
fn other_sessions_conditions_are_ended_on_the_next_connection_too() {
    let failed = support::error(1, 1146, "Table 'nothing' doesn't exist");
    let several = support::MODERN | Capabilities::MULTI_STATEMENTS;
    let mut bench = with_idle_of(several, &[8], 2, MysqlVariables::default(), &failed);
    let client = bench.client_with(0, "app", several);
    let text = "SELECT 1; SHOW WARNINGS";
    bench.hangs_up = true;
    bench.query(client, text);
    hang_up(&mut bench, 1);
    assert!(bench.is_answered(client));
    let ran: Vec<&str> = bench.log.iter().map(|(_, text)| text.as_str()).collect();
    let ended = ran.iter().filter(|text| text.starts_with("DO ")).count();
    assert!(ended == 2 && ran.last() == Some(&text), "{ran:?}");
}
