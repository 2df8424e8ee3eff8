//! Statements are read as the servers read them that get them, whatever version clients are shown.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::command::put_stmt_prepare;
use weir_protocol::ok::{OK_HEADER, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_proxy::snapshot::Hostgroup;

/// MariaDB skips what is in this comment, MySQL executes it.
const LOCKS_AT_MYSQL: &str = "SELECT a FROM t /*!80000 FOR UPDATE */";

/// A MariaDB cluster of app's, whose reader is server 1, and a MySQL one of bob's, whose reader is server 3.
fn two_families() -> Bench {
    let writers =
        |at: usize, reader| Hostgroup { reader_hostgroup: Some(reader), ..support::hostgroup([at]) };
    let mut bench = Bench::new(1, &[10; 4], writers(0, 2), MysqlVariables::default());
    bench.versions = vec![(2, b"8.4.3"), (3, b"8.4.3")];
    bench.users = vec![support::account("app", 0), support::account("bob", 1)];
    let groups =
        [(0, writers(0, 2)), (1, writers(2, 3)), (2, support::hostgroup([1])), (3, support::hostgroup([3]))];
    bench.publish_rules(Arc::default(), groups);
    bench
}

fn run(bench: &mut Bench, client: usize, sql: &str) -> usize {
    bench.query(client, sql);
    bench.pass_ms(1);
    assert!(bench.is_answered(client), "{sql}");
    bench.log.last().unwrap().0
}

#[test]
fn each_cluster_reads_executable_comments_as_its_servers_do() {
    let mut bench = two_families();
    let (app, bob) = (bench.client(0, "app"), bench.client(0, "bob"));
    assert_eq!(run(&mut bench, app, "SELECT 1 FROM t"), 1);
    assert_eq!(run(&mut bench, bob, "SELECT 1 FROM t"), 3);
    assert_eq!(run(&mut bench, app, LOCKS_AT_MYSQL), 1, "a sure read at MariaDB");
    assert_eq!(run(&mut bench, bob, LOCKS_AT_MYSQL), 2, "it locks at MySQL");
    assert_eq!(run(&mut bench, app, "SELECT a FROM t /*!40101 FOR UPDATE */"), 0, "both execute that");
}

#[test]
fn as_long_as_no_server_has_greeted_only_what_all_read_alike_is_certain() {
    let mut bench = two_families();
    let app = bench.client(0, "app");
    assert_eq!(run(&mut bench, app, LOCKS_AT_MYSQL), 0);
    let app = bench.client(0, "app");
    assert_eq!(run(&mut bench, app, LOCKS_AT_MYSQL), 1);
}

#[test]
fn the_same_text_is_two_prepared_statements_where_it_is_read_in_two_ways() {
    let mut bench = two_families();
    let (app, bob) = (bench.client(0, "app"), bench.client(0, "bob"));
    run(&mut bench, app, "SELECT 1 FROM t");
    run(&mut bench, bob, "SELECT 1 FROM t");
    for (client, node) in [(app, 1), (bob, 2)] {
        let before = bench.prepared.len();
        let mut prepare = Vec::new();
        put_stmt_prepare(&mut prepare, LOCKS_AT_MYSQL.as_bytes());
        bench.send(client, &prepare);
        assert_eq!(bench.prepared[before..], [node]);
    }
}

/// Whether a session holds a connection once a server has answered this text with so many OKs.
fn is_held_after(sql: &str, results: u8) -> bool {
    let mut bench = two_families();
    let app = bench.client(0, "app");
    run(&mut bench, app, "UPDATE t SET a = 1");
    bench.holds = true;
    bench.query(app, sql);
    bench.holds = false;
    let mut answer = Vec::new();
    for sequence in 1..=results {
        let mut status = StatusFlags::AUTOCOMMIT;
        status.set(StatusFlags::MORE_RESULTS_EXISTS, sequence < results);
        answer.extend(support::ok(sequence, OkPacket::new(OK_HEADER, status), &[]));
    }
    bench.release_with(answer);
    assert!(bench.is_answered(app), "{sql}");
    bench.cores[0].census().leases == 1
}

#[test]
fn a_result_too_many_holds_the_session() {
    assert!(!is_held_after("UPDATE t SET a = 2", 1));
    assert!(is_held_after("UPDATE t SET a = 2", 2), "the server has found a second statement");
    assert!(!is_held_after("UPDATE t SET a = 2; UPDATE t SET a = 3", 2));
}
