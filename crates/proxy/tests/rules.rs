//! Query rules in a worker: which server gets what, delays, time limits, and what counts.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::mpsc::channel;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_proxy::shared::Message;
use weir_proxy::stats::ReportPart;
use weir_routing::{Options, QueryRule, Rules};

fn rule(rule_id: u32, pattern: &str) -> QueryRule {
    QueryRule { rule_id, active: true, match_digest: Some(pattern.to_owned()), ..QueryRule::default() }
}

/// Two servers, each alone in the hostgroup of its number; clients belong to hostgroup 0.
fn bench(rules: &[QueryRule], variables: MysqlVariables) -> Bench {
    let mut bench = Bench::new(1, &[5, 5], support::hostgroup([0]), variables);
    let rules = Rules::compile(rules, &[], Options::default()).unwrap();
    bench.publish_rules(rules, [(0, support::hostgroup([0])), (1, support::hostgroup([1]))]);
    bench
}

fn texts(bench: &Bench, server: usize) -> Vec<&str> {
    bench.log.iter().filter(|(at, _)| *at == server).map(|(_, text)| text.as_str()).collect()
}

#[test]
fn statements_go_where_rules_send_them_and_hits_count() {
    let to_one = QueryRule { destination_hostgroup: Some(1), apply: true, ..rule(7, "^INSERT INTO far") };
    let mut bench = bench(&[to_one], MysqlVariables::default());
    let client = bench.client(0, "app");
    for text in
        ["INSERT INTO far VALUES (1)", "INSERT INTO near VALUES (1)", "/* hostgroup=1 */ DELETE FROM t"]
    {
        bench.query(client, text);
        assert!(bench.is_answered(client), "{text}");
    }
    assert_eq!(texts(&bench, 0), ["INSERT INTO near VALUES (1)"]);
    assert_eq!(texts(&bench, 1), ["INSERT INTO far VALUES (1)", "/* hostgroup=1 */ DELETE FROM t"]);
    assert_eq!(bench.cores[0].census().rule_hits, [(7, 1)]);
    let (to, report) = channel();
    bench.cores[0].message(Message::Report { part: ReportPart::Rules, begins_again: false, to }, bench.now);
    let report = report.recv().unwrap();
    assert_eq!(report.rules, [(7, 1)]);
    let timed: Vec<_> =
        report.rule_times.iter().map(|(rule_id, times)| (*rule_id, times.latency.count())).collect();
    assert_eq!(timed, [(7, 1)], "a hint is no rule");
}

#[test]
fn a_delayed_statement_is_sent_when_its_time_has_come() {
    let slow = QueryRule { delay_ms: Some(50), ..rule(1, "^INSERT INTO slow") };
    let mut bench = bench(&[slow], MysqlVariables::default());
    let (client, other) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.query(client, "INSERT INTO slow VALUES (1)");
    bench.query(other, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(other));
    bench.pass_ms(45);
    assert_eq!(texts(&bench, 0), ["INSERT INTO t VALUES (1)"]);
    bench.pass_ms(10);
    assert!(bench.is_answered(client));
    assert_eq!(texts(&bench, 0).len(), 2);
}

#[test]
fn a_client_that_leaves_while_its_statement_is_held_leaves_nothing() {
    let slow = QueryRule { delay_ms: Some(50), ..rule(1, "^INSERT INTO slow") };
    let mut bench = bench(&[slow], MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO slow VALUES (1)");
    let socket = bench.clients[client].id;
    bench.cores[0].closed(socket, bench.now);
    bench.run();
    bench.pass_ms(100);
    assert!(texts(&bench, 0).is_empty());
    assert_eq!(bench.cores[0].census().sessions, 0);
}

#[test]
fn a_short_time_limit_is_kept_to_the_millisecond_and_once() {
    let short = QueryRule { timeout_ms: Some(100), ..rule(1, "^INSERT INTO slow") };
    let mut bench = bench(&[short], MysqlVariables::default());
    let client = bench.client(0, "app");
    for _ in 0..3 {
        bench.query(client, "INSERT INTO slow VALUES (1)");
        assert!(bench.is_answered(client));
    }
    let logins = bench.logins;
    bench.pass_ms(500);
    assert_eq!(bench.logins, logins, "a statement that is over was killed");
    bench.holds = true;
    bench.query(client, "INSERT INTO slow VALUES (1)");
    bench.pass_ms(95);
    assert_eq!(bench.logins, logins);
    bench.pass_ms(10);
    assert_eq!(bench.logins, logins + 1, "no connection for a KILL was opened");
}

#[test]
fn an_error_of_a_rule_needs_no_server() {
    let refuse = QueryRule { error_msg: Some("no".into()), ..rule(1, "^DROP") };
    let fine = QueryRule { ok_msg: Some("yes".into()), ..rule(2, "^SET GLOBAL") };
    let mut bench = bench(&[refuse, fine], MysqlVariables::default());
    bench.down = vec![0, 1];
    let client = bench.client(0, "app");
    bench.query(client, "DROP TABLE t");
    assert_eq!(bench.error(client), Some((1148, "no".into())));
    bench.query(client, "SET GLOBAL x = 1");
    let reply = bench.reply(client).unwrap();
    assert_eq!(reply[0], 0);
    assert!(reply.ends_with(b"yes"), "{}", reply.escape_ascii());
}

#[test]
fn a_hint_to_a_hostgroup_that_is_not_there_is_refused_at_once_and_a_rule_waits() {
    let to_seven = QueryRule { destination_hostgroup: Some(7), apply: true, ..rule(1, "^INSERT INTO far") };
    let mut bench = bench(&[to_seven], MysqlVariables::default());
    let (hinted, ruled) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.query(hinted, "/* hostgroup=7 */ DELETE FROM t");
    let (code, message) = bench.error(hinted).unwrap();
    assert_eq!(code, 9001);
    assert!(message.contains("asks for hostgroup 7, which does not exist"), "{message}");
    bench.query(hinted, "/* hostgroup=1 */ DELETE FROM t");
    assert!(bench.is_answered(hinted), "the session goes on");
    bench.query(ruled, "INSERT INTO far VALUES (1)");
    assert!(!bench.is_answered(ruled));
    bench.pass_ms(11_000);
    let (code, message) = bench.error(ruled).unwrap();
    assert_eq!(code, 9001);
    assert!(message.contains("no server is configured for hostgroup 7"), "{message}");
}

#[test]
fn a_hint_to_a_hostgroup_whose_servers_are_away_waits_for_them() {
    let mut bench = bench(&[], MysqlVariables::default());
    let client = bench.client(0, "app");
    let rules = Rules::compile(&[], &[], Options::default()).unwrap();
    bench.publish_rules(rules, [(0, support::hostgroup([0])), (1, support::hostgroup([]))]);
    bench.query(client, "/* hostgroup=1 */ DELETE FROM t");
    assert!(!bench.is_answered(client));
    let rules = Rules::compile(&[], &[], Options::default()).unwrap();
    bench.publish_rules(rules, [(0, support::hostgroup([0])), (1, support::hostgroup([1]))]);
    bench.pass_ms(100);
    assert!(bench.is_answered(client));
    assert_eq!(texts(&bench, 1), ["/* hostgroup=1 */ DELETE FROM t"]);
}
