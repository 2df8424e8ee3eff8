//! Writes while it is not known who the writer is: the lease of the epoch has lapsed.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
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
