//! Checks that statements are counted in the hostgroup in which they ran.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc::channel;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_proxy::shared::Message;
use weir_proxy::snapshot::Hostgroup;
use weir_proxy::stats::{Clock, DigestSums, ReportPart, WorkerReport};
use weir_routing::{Options, QueryRule, Rules};

const WRITER: u32 = 5;
const READER: u32 = 6;
const FAR: u32 = 7;

/// A cluster with a writer and a reader, and a server of its own for what names `far`.
fn bench() -> Bench {
    let mut bench = Bench::new(1, &[5, 5, 5], support::hostgroup([0]), MysqlVariables::default());
    bench.users = vec![support::account("app", WRITER)];
    let writers = Hostgroup { reader_hostgroup: Some(READER), ..support::hostgroup([0]) };
    let to_far = QueryRule {
        rule_id: 1,
        active: true,
        match_pattern: Some("far".to_owned()),
        destination_hostgroup: Some(FAR),
        ..QueryRule::default()
    };
    let refused = QueryRule {
        rule_id: 2,
        active: true,
        match_pattern: Some("refused".to_owned()),
        error_msg: Some("no".to_owned()),
        ..QueryRule::default()
    };
    let rules = Rules::compile(&[to_far, refused], &[], Options::default()).unwrap();
    let groups = [(WRITER, writers), (READER, support::hostgroup([1])), (FAR, support::hostgroup([2]))];
    bench.publish_rules(rules, groups);
    bench
}

fn report(bench: &mut Bench, part: ReportPart) -> WorkerReport {
    let (to, report) = channel();
    bench.cores[0].message(Message::Report { part, begins_again: false, to }, bench.now);
    report.recv().unwrap()
}

/// How often statements were counted, by digest and hostgroup.
fn counts(bench: &mut Bench) -> BTreeMap<(String, u32), u64> {
    let table = report(bench, ReportPart::Digests).digests;
    let mut sums = DigestSums::new(100);
    sums.add(table, &Clock { unix_s: 0, now: bench.now });
    let count = |row: weir_proxy::stats::DigestSum<'_>| {
        ((String::from_utf8_lossy(row.text).into_owned(), row.hostgroup), row.count)
    };
    sums.rows().map(count).collect()
}

fn expected<const N: usize>(rows: [(&str, u32, u64); N]) -> BTreeMap<(String, u32), u64> {
    rows.into_iter().map(|(text, hostgroup, count)| ((text.to_owned(), hostgroup), count)).collect()
}

#[test]
fn a_digest_counts_where_its_statement_ran() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    for text in [
        "SELECT a FROM t",
        "INSERT INTO t VALUES (1)",
        "SELECT a FROM far",
        "BEGIN",
        "SELECT a FROM t",
        "UPDATE far SET a = 1",
        "COMMIT",
        "SELECT a FROM t",
    ] {
        bench.query(client, text);
        assert!(bench.is_answered(client), "{text}");
    }
    let wanted = expected([
        ("SELECT a FROM t", READER, 2),
        ("SELECT a FROM t", WRITER, 1), // in the transaction
        ("INSERT INTO t VALUES (?)", WRITER, 1),
        ("SELECT a FROM far", FAR, 1),
        ("UPDATE far SET a = ?", WRITER, 1), // whatever the rule says
        ("BEGIN", WRITER, 1),
        ("COMMIT", WRITER, 1),
    ]);
    assert_eq!(counts(&mut bench), wanted);
}

#[test]
fn a_connection_that_is_taken_back_for_its_diagnostics_counts_where_it_leads() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1) /* warns */");
    assert!(bench.is_answered(client));
    bench.query(client, "SHOW WARNINGS");
    assert!(bench.is_answered(client));
    let wanted = expected([("INSERT INTO t VALUES (?)", WRITER, 1), ("SHOW WARNINGS", WRITER, 1)]);
    assert_eq!(counts(&mut bench), wanted);
    let pool = report(&mut bench, ReportPart::Servers).servers;
    let used: Vec<_> = pool.iter().filter(|row| row.queries > 0).map(|row| row.hostgroup).collect();
    assert_eq!(used, [WRITER]);
}

#[test]
fn what_weir_answers_itself_counts_where_it_would_have_gone() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    let own = bench.clients[client].connection_id;
    for (text, code) in [("KILL 16777215", 1094), ("refused", 1148), (&*format!("KILL QUERY {own}"), 1317)] {
        bench.query(client, text);
        assert_eq!(bench.error(client).unwrap().0, code, "{text}");
    }
    let wanted = expected([("KILL ?", WRITER, 1), ("refused", WRITER, 1), ("KILL QUERY ?", WRITER, 1)]);
    assert_eq!(counts(&mut bench), wanted);
    let commands = report(&mut bench, ReportPart::Commands).commands;
    assert_eq!(commands.iter().map(|row| row.count).sum::<u64>(), 3, "{commands:?}");
}

#[test]
fn a_statement_whose_server_is_lost_counts_once_where_it_was_sent() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert_eq!(bench.error(client).unwrap().0, 1053);
    assert_eq!(counts(&mut bench), expected([("INSERT INTO t VALUES (?)", WRITER, 1)]));
}

#[test]
fn an_error_counts_where_its_statement_ran() {
    let mut bench = bench();
    let client = bench.client(0, "app");
    bench.outside = vec![2];
    bench.fails = 1062;
    bench.query(client, "BEGIN");
    assert!(bench.is_answered(client));
    bench.query(client, "UPDATE far SET a = 1");
    assert_eq!(bench.error(client).unwrap().0, 1062);
    let errors = report(&mut bench, ReportPart::Errors).errors;
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!((error.hostgroup, error.count), (WRITER, 1));
}
