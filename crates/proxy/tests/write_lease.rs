//! Writes while it is not known who the writer is: the lease of the epoch has lapsed.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::put_query;
use weir_protocol::frame;
use weir_proxy::snapshot::Hostgroup;

fn bench() -> Bench {
    Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default())
}

/// The lease of every server lasts until now, or for ever.
fn lease(bench: &Bench, has_lapsed: bool) {
    for server in &bench.servers {
        let until = if has_lapsed { 1 } else { u64::MAX };
        server.shared.writes_until_ns.store(until, Ordering::Relaxed);
    }
}

/// What stands behind a statement without effects is a write like any other.
#[test]
fn several_statements_of_which_the_first_is_harmless_wait_for_the_lease() {
    let several = support::MODERN | Capabilities::MULTI_STATEMENTS;
    for sql in [
        "ROLLBACK; INSERT INTO t VALUES (1)",
        "/* x */ ROLLBACK AND NO CHAIN ; INSERT INTO t VALUES (1)",
        "SHOW WARNINGS; INSERT INTO t VALUES (1)",
        "BEGIN; INSERT INTO t VALUES (1); COMMIT",
        "SELECT 1; INSERT INTO t VALUES (1)",
    ] {
        let mut bench = bench();
        let client = bench.client_with(0, "app", several);
        bench.query(client, "SELECT 1 FROM t");
        assert!(bench.is_answered(client));
        lease(&bench, true);
        bench.query(client, sql);
        bench.pass_ms(20);
        let was_sent = bench.log.iter().any(|(_, text)| text == sql);
        assert_eq!((bench.reply(client), was_sent), (None, false), "{sql}");
        lease(&bench, false);
        bench.pass_ms(30);
        assert!(bench.is_answered(client), "{sql}");
    }
}

#[test]
fn a_rollback_does_not_wait_for_the_lease() {
    for sql in ["ROLLBACK", "ROLLBACK;", "SELECT 1 FROM t"] {
        let mut bench = bench();
        let client = bench.client(0, "app");
        lease(&bench, true);
        bench.query(client, sql);
        assert!(bench.is_answered(client), "{sql}");
    }
}

/// Nobody has seen the end of it.
#[test]
fn a_rollback_too_long_to_be_kept_waits_for_the_lease() {
    let mut bench = bench();
    let client = bench.client_with(0, "app", support::MODERN | Capabilities::MULTI_STATEMENTS);
    lease(&bench, true);
    let sql = format!("ROLLBACK{}; INSERT INTO t VALUES (1)", " ".repeat(1 << 20));
    bench.query(client, &sql);
    bench.pass_ms(20);
    assert_eq!(bench.log.len(), 0);
}

/// What has left its warnings on a reader is asked for there, alone.
#[test]
fn a_write_behind_show_warnings_does_not_follow_the_warnings_to_a_reader() {
    let writers = || Hostgroup { reader_hostgroup: Some(1), ..support::hostgroup([0]) };
    let mut bench = Bench::new(1, &[10, 10], writers(), MysqlVariables::default());
    bench.publish_rules(Arc::default(), [(0, writers()), (1, support::hostgroup([1]))]);
    let client = bench.client_with(0, "app", support::MODERN | Capabilities::MULTI_STATEMENTS);
    bench.query(client, "SELECT 1 /* warns */ FROM t");
    assert!(bench.is_answered(client));
    assert_eq!(bench.log[0].0, 1, "a read is for the reader");
    bench.query(client, "SHOW WARNINGS; INSERT INTO t VALUES (1)");
    bench.pass_ms(5);
    let writes = |text: &str| text.contains("INSERT INTO");
    assert!(!bench.log.iter().any(|(node, text)| *node == 1 && writes(text)), "{:?}", bench.log);
}

/// The lease of every server ends in so many milliseconds.
fn lease_ends_in(bench: &Bench, ms: u64) {
    for server in &bench.servers {
        server.shared.writes_until_ns.store(bench.now + ms * 1_000_000, Ordering::Relaxed);
    }
}

#[test]
fn an_upload_ends_with_the_lease_and_has_had_no_effect() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    lease_ends_in(&bench, 50);
    let mut insert = Vec::new();
    put_query(&mut insert, format!("INSERT INTO t VALUES ('{}')", "x".repeat(3 << 20)).as_bytes());
    let (begin, end) = insert.split_at(2 << 20);
    bench.send(client, begin);
    bench.pass_ms(40);
    assert_eq!((bench.conns.len(), bench.reply(client)), (1, None));
    bench.pass_ms(15);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("still under way: it had no effect"), "{message}");
    assert_eq!((bench.conns.len(), &bench.forfeited[..]), (0, &[0][..]));
    bench.send(client, end);
    assert_eq!(bench.log.len(), 0);
}

/// Bytes may come in the same batch of events in which the lease lapses.
#[test]
fn nothing_of_an_upload_is_passed_on_behind_the_lease() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    let mut insert = Vec::new();
    put_query(&mut insert, format!("INSERT INTO t VALUES ('{}')", "x".repeat(3 << 20)).as_bytes());
    let (begin, end) = insert.split_at(2 << 20);
    bench.send(client, begin);
    lease(&bench, true);
    bench.send(client, end);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("it had no effect"), "{message}");
    assert_eq!((bench.conns.len(), bench.log.len()), (0, 0));
}

#[test]
fn what_the_server_has_not_acknowledged_when_the_lease_lapses_is_not_sent_again() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.holds = true;
    lease_ends_in(&bench, 50);
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(40);
    assert!(bench.hurried.is_empty());
    bench.pass_ms(15);
    let id = bench.conns[0].id;
    assert_eq!(bench.hurried, [(id, 1)]);
    bench.release_one();
    assert!(bench.is_answered(client));
    assert_eq!(bench.hurried, [(id, 1), (id, 0)]);
    // A read may come late.
    bench.holds = false;
    lease(&bench, false);
    bench.query(client, "SELECT 1 FROM t");
    bench.holds = true;
    bench.query(client, "SELECT 2 FROM t");
    lease_ends_in(&bench, 5);
    bench.pass_ms(20);
    assert_eq!(bench.hurried.len(), 2);
}

#[test]
fn a_file_ends_with_the_lease() {
    let mut bench = bench();
    let client = bench.client_with(0, "app", support::MODERN | Capabilities::LOCAL_FILES);
    lease_ends_in(&bench, 50);
    bench.query(client, "LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    assert_eq!(bench.reply(client).unwrap(), b"\xFBfile");
    let mut rows = Vec::new();
    frame::write_packet(&mut rows, &mut 2, b"1\n2\n3\n");
    bench.send(client, &rows);
    bench.pass_ms(40);
    assert_eq!((bench.conns.len(), bench.reply(client)), (1, None));
    bench.pass_ms(15);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1053 && message.ends_with("it may or may not have taken effect"), "{message}");
    assert_eq!((bench.conns.len(), &bench.forfeited[..]), (0, &[0][..]));
}
