//! Time limits and KILL of statements that Weir makes ready before they run.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::command::{Command, StmtExecute, put_stmt_prepare};
use weir_protocol::frame;

/// A client whose prepared statement is about to be prepared on another connection, which takes its time: a lock on the
/// table's definition is waited for.
fn preparing_again() -> (Bench, usize) {
    let variables = MysqlVariables {
        default_query_timeout: Duration::from_millis(3_000),
        kill_backend_connection_when_disconnect: true,
        ..MysqlVariables::default()
    };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let client = bench.client(0, "app");
    let mut prepare = Vec::new();
    put_stmt_prepare(&mut prepare, b"INSERT INTO t VALUES (1)");
    bench.send(client, &prepare);
    assert_eq!(bench.reply(client).unwrap()[0], 0);
    let other = bench.client(0, "app");
    bench.query(other, "BEGIN");
    bench.holds_prepares = true;
    let mut execute = vec![0; StmtExecute::LEN];
    execute[0] = Command::StmtExecute as u8;
    execute[1] = 1;
    let mut packet = Vec::new();
    frame::write_packet(&mut packet, &mut 0, &execute);
    bench.send(client, &packet);
    assert_eq!(bench.conns.iter().filter(|conn| conn.held).count(), 1, "it is prepared anew");
    (bench, client)
}

fn kills(bench: &Bench) -> Vec<&str> {
    bench.log.iter().map(|(_, text)| text.as_str()).filter(|text| text.starts_with("KILL")).collect()
}

#[test]
fn what_is_prepared_before_it_runs_has_the_statements_time_limit() {
    let (mut bench, client) = preparing_again();
    bench.pass_ms(2_900);
    assert!(kills(&bench).is_empty());
    bench.pass_ms(1_200);
    assert_eq!(kills(&bench), ["KILL QUERY 1"]);
    bench.release_with(support::error(1, 1317, "Query execution was interrupted"));
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(1317));
    // The session goes on.
    bench.query(client, "INSERT INTO t VALUES (2)");
    assert!(bench.is_answered(client));
}

/// The KILL comes when the statement has just been prepared: it must not run.
#[test]
fn what_was_killed_while_it_was_prepared_does_not_run() {
    let (mut bench, client) = preparing_again();
    let victim = bench.clients[client].connection_id;
    let killer = bench.client(0, "app");
    bench.query(killer, &format!("KILL QUERY {victim}"));
    assert!(bench.is_answered(killer));
    assert_eq!(kills(&bench), ["KILL QUERY 1"]);
    let mut prepared = Vec::new();
    frame::write_packet(&mut prepared, &mut 1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bench.release_with(prepared);
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(1317));
    bench.query(client, "INSERT INTO t VALUES (2)");
    assert!(bench.is_answered(client));
}

#[test]
fn what_is_prepared_for_a_client_that_has_gone_is_killed() {
    let (mut bench, client) = preparing_again();
    bench.cores[0].closed(bench.clients[client].id, bench.now);
    bench.run();
    assert_eq!(kills(&bench), ["KILL CONNECTION 1"]);
}

/// They count from 1, Weir does not: who takes the one for the other ends nobody's session.
#[test]
fn an_id_of_a_server_is_nobody_s_session() {
    let mut bench = Bench::new(2, &[10], support::hostgroup([0]), MysqlVariables::default());
    let (victim, killer) = (bench.client(0, "app"), bench.client(1, "app"));
    bench.query(victim, "BEGIN");
    assert!(bench.is_answered(victim));
    assert!(bench.clients[victim].connection_id > 3_000_000_000);
    for id in 1..10 {
        bench.query(killer, &format!("KILL {id}"));
        let (code, message) = bench.error(killer).unwrap();
        assert!(code == 1094 && message.contains("Weir's are above 3000000000"), "{message}");
    }
    let id = bench.clients[victim].connection_id;
    bench.query(killer, &format!("KILL {id}"));
    bench.pass_ms(1);
    assert!(bench.is_answered(killer), "{id}");
    bench.query(victim, "COMMIT");
    assert!(bench.reply(victim).is_none(), "its session is over");
}

#[test]
fn the_plan_of_a_session_is_asked_for_where_its_statement_runs() {
    let mut bench = Bench::new(1, &[10, 10], support::hostgroup([0, 1]), MysqlVariables::default());
    let (running, asking) = (bench.client(0, "app"), bench.client(0, "app"));
    let id = bench.clients[running].connection_id;
    bench.query(asking, &format!("EXPLAIN FOR CONNECTION {id}"));
    assert_eq!(bench.error(asking).map(|(code, _)| code), Some(1933), "nothing runs");
    bench.holds = true;
    bench.query(running, "SELECT SLEEP(100) FROM t");
    bench.holds = false;
    let node = bench.log[0].0;
    for (sql, sent) in [
        ("EXPLAIN FOR CONNECTION", "EXPLAIN FOR CONNECTION 1"),
        ("SHOW EXPLAIN FOR", "SHOW EXPLAIN FOR 1"),
        ("EXPLAIN FORMAT=JSON FOR CONNECTION", "EXPLAIN FORMAT=JSON FOR CONNECTION 1"),
    ] {
        for _ in 0..3 {
            bench.query(asking, &format!("{sql} {id}"));
            bench.pass_ms(1);
            assert!(bench.is_answered(asking), "{sql}");
            assert_eq!(*bench.log.last().unwrap(), (node, sent.to_owned()));
        }
    }
    bench.query(asking, "EXPLAIN FOR CONNECTION 3999999999");
    assert_eq!(bench.error(asking).map(|(code, _)| code), Some(1094));
    // A server's own.
    bench.query(asking, "EXPLAIN FOR CONNECTION 17");
    bench.pass_ms(1);
    assert!(bench.is_answered(asking));
}
