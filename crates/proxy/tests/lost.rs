//! Servers that are lost while a session has a connection there: who has lost nothing goes on, the others are told.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::command::put_reset_connection;
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
