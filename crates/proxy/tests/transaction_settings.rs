//! `weir_replay` and `weir_commit_outcome`: who says whether a transaction runs again, and whether its COMMIT is marked.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use support::bench::Bench;
use support::{run, value};
use weir_config::MysqlVariables;
use weir_protocol::command::put_reset_connection;
use weir_proxy::snapshot::{Account, Hostgroup};
use weir_routing::{CommitOutcome, Options, QueryRule, ReplayMode, Rules, TransactionSettings};

const MARKER: TransactionSettings =
    TransactionSettings { replay: None, commit_outcome: Some(CommitOutcome::Marker) };
const UNMARKED: TransactionSettings =
    TransactionSettings { replay: None, commit_outcome: Some(CommitOutcome::Off) };
const REPLAYED: TransactionSettings =
    TransactionSettings { replay: Some(ReplayMode::On), commit_outcome: None };
const LEFT: TransactionSettings = TransactionSettings { replay: Some(ReplayMode::Off), commit_outcome: None };

/// The user, with settings of its own.
fn user(name: &str, transactions: TransactionSettings) -> Arc<Account> {
    let mut account = support::account(name, 0);
    let account_now = Arc::get_mut(&mut account).unwrap();
    Arc::get_mut(&mut account_now.user).unwrap().transactions = transactions;
    account
}

/// A cluster whose hostgroup says this; bob says something of his own, and so do rules.
fn bench(is_on: bool, bob: TransactionSettings, rules: &[QueryRule]) -> Bench {
    let mut bench = Bench::new(1, &[10, 10], support::hostgroup([0]), MysqlVariables::default());
    bench.users = vec![support::account("app", 0), user("bob", bob)];
    let writers = Hostgroup {
        reader_hostgroup: Some(1),
        transaction_replay: if is_on { ReplayMode::Safe } else { ReplayMode::Off },
        transaction_replay_max_bytes: 64 << 10,
        marks_commits: is_on,
        ..support::hostgroup([0])
    };
    let rules = Rules::compile(rules, &[], Options::default()).unwrap();
    bench.publish_rules(rules, [(0, writers), (1, support::hostgroup([1]))]);
    bench
}

fn values(bench: &mut Bench, client: usize) -> (String, String) {
    (value(bench, client, "@@weir_replay"), value(bench, client, "@@session.weir_commit_outcome"))
}

/// Whether a transaction that has begun, with a statement in it, runs again where its server is lost.
fn runs_again(bench: &mut Bench, client: usize) -> bool {
    assert_eq!(run(bench, client, "INSERT INTO t VALUES (1)"), None);
    bench.lose(0);
    bench.log.clear();
    let told = run(bench, client, "INSERT INTO t VALUES (2)");
    let texts: Vec<&str> = bench.log.iter().map(|(_, text)| text.as_str()).collect();
    match told {
        None => assert!(texts.contains(&"INSERT INTO t VALUES (1)"), "{texts:?}"),
        // With a marked COMMIT it is known that nothing is left of it.
        Some((code, _)) => assert!([1053, 1213].contains(&code) && texts.is_empty(), "{code} {texts:?}"),
    }
    bench.log.iter().any(|(_, text)| text == "BEGIN" || text.ends_with("BEGIN"))
}

/// Whether the COMMIT of a transaction that has begun is marked.
fn is_marked(bench: &mut Bench, client: usize) -> bool {
    assert_eq!(run(bench, client, "INSERT INTO t VALUES (1)"), None);
    bench.log.clear();
    assert_eq!(run(bench, client, "COMMIT"), None);
    assert_eq!(bench.log.last().map(|(_, text)| text.as_str()), Some("COMMIT"));
    bench.log.iter().any(|(_, text)| text.contains("weir.outcomes"))
}

/// Both, of transactions of a session that has said this.
fn outcome(bench: &mut Bench, user: &str, said: &[&str], begin: &str) -> (bool, bool) {
    let client = bench.client(0, user);
    for sql in said {
        assert_eq!(run(bench, client, sql), None, "{sql}");
    }
    assert_eq!(run(bench, client, begin), None, "{begin}");
    let is_marked = is_marked(bench, client);
    assert_eq!(run(bench, client, begin), None, "{begin}");
    (runs_again(bench, client), is_marked)
}

#[test]
fn who_says_something_first_counts() {
    let rule = |match_digest: &str, transactions| QueryRule {
        rule_id: 1,
        active: true,
        match_digest: Some(match_digest.to_owned()),
        transactions,
        ..QueryRule::default()
    };
    let on =
        TransactionSettings { replay: Some(ReplayMode::On), commit_outcome: Some(CommitOutcome::Marker) };
    let off = TransactionSettings { replay: Some(ReplayMode::Off), commit_outcome: Some(CommitOutcome::Off) };
    let of_begin = |transactions| vec![rule("^BEGIN", transactions)];
    let of_insert = |transactions| vec![rule("^(INSERT|COMMIT)", transactions)];
    let set_on: &[&str] = &["SET weir_replay = ON", "SET weir_commit_outcome = 'marker'"];
    let set_off: &[&str] = &["SET weir_replay = 0, weir_commit_outcome = off"];
    let nothing: &[&str] = &[];
    let default = TransactionSettings::default();
    for (is_on, user, rules, said, begin, expected) in [
        (false, default, vec![], nothing, "BEGIN", (false, false)),
        (true, default, vec![], nothing, "BEGIN", (true, true)),
        (false, on, vec![], nothing, "BEGIN", (true, true)),
        (true, off, vec![], nothing, "BEGIN", (false, false)),
        (true, LEFT, vec![], nothing, "BEGIN", (false, true)),
        (true, UNMARKED, vec![], nothing, "BEGIN", (true, false)),
        (false, REPLAYED, vec![], nothing, "BEGIN", (true, false)),
        (false, MARKER, vec![], nothing, "BEGIN", (false, true)),
        (false, off, of_begin(on), nothing, "BEGIN", (true, true)),
        (true, on, of_begin(off), nothing, "BEGIN", (false, false)),
        (false, MARKER, of_begin(REPLAYED), nothing, "BEGIN", (true, true)),
        // What is said of the statements in it comes too late.
        (false, default, of_insert(on), nothing, "BEGIN", (false, false)),
        (true, default, of_insert(off), nothing, "BEGIN", (true, true)),
        (false, off, of_begin(off), set_on, "BEGIN", (true, true)),
        (true, on, of_begin(on), set_off, "BEGIN", (false, false)),
        (false, off, vec![], set_on, "/* weir_replay=off */ BEGIN", (false, true)),
        (false, off, vec![], set_off, "/* weir_replay=1;weir_commit_outcome=marker */ BEGIN", (true, true)),
        (true, on, of_begin(on), nothing, "/* weir_commit_outcome=off */ BEGIN", (true, false)),
    ] {
        let name = format!("{is_on} {user:?} {rules:?} {said:?} {begin}");
        let mut bench = bench(is_on, user, &rules);
        assert_eq!(outcome(&mut bench, "bob", said, begin), expected, "{name}");
    }
}

#[test]
fn a_session_sets_and_shows_them() {
    let text = |replay: &str, outcome: &str| (replay.to_owned(), outcome.to_owned());
    let mut bench = bench(false, REPLAYED.or(MARKER), &[]);
    let (app, bob) = (bench.client(0, "app"), bench.client(0, "bob"));
    assert_eq!(values(&mut bench, app), text("OFF", "off"), "the hostgroup's");
    assert_eq!(values(&mut bench, bob), text("ON", "marker"), "the user's");
    for (sql, expected) in [
        ("SET weir_replay = ON", text("ON", "off")),
        ("SET weir_replay = off, weir_commit_outcome = MARKER", text("OFF", "marker")),
        ("SET SESSION weir_replay := 1, @@weir_commit_outcome = 'off'", text("ON", "off")),
        ("SET @@session.weir_replay = FALSE", text("OFF", "off")),
        ("SET weir_replay = 'On'", text("ON", "off")),
        ("SET weir_replay = Safe", text("SAFE", "off")),
        ("SET weir_replay = DEFAULT, LOCAL weir_commit_outcome = marker", text("OFF", "marker")),
        ("SET weir_commit_outcome = DEFAULT", text("OFF", "off")),
    ] {
        assert_eq!(run(&mut bench, app, sql), None, "{sql}");
        assert_eq!(values(&mut bench, app), expected, "{sql}");
    }
    for (sql, code, why) in [
        (
            "SET weir_replay = 2",
            1231,
            "'weir_replay' can't be set to the value of '2' (allowed are ON, SAFE and OFF)",
        ),
        ("SET weir_replay = NULL", 1231, "'NULL'"),
        ("SET weir_replay = 'marker'", 1231, "'marker'"),
        ("SET weir_commit_outcome = 1", 1231, "of '1' (allowed are off and marker)"),
        ("SET weir_replay = ON, weir_commit_outcome = 'x'", 1231, "'x'"),
        ("SET GLOBAL weir_replay = ON", 1228, "weir_hostgroups.transaction_replay"),
        ("SET PERSIST weir_commit_outcome = 'off'", 1228, "weir_hostgroups.commit_outcome"),
    ] {
        let (told, message) = run(&mut bench, app, sql).unwrap();
        assert!(told == code && message.contains(why), "{sql}: {told} {message}");
    }
    assert_eq!(values(&mut bench, app), text("OFF", "off"), "what was refused has no effect");
    bench.refused = "no_such";
    let refused = run(&mut bench, app, "SET weir_replay = 1, no_such = 1");
    assert_eq!(refused.map(|(code, _)| code), Some(1193));
    assert_eq!(values(&mut bench, app), text("OFF", "off"), "the rest was refused");
    run(&mut bench, bob, "SET weir_replay = 0, weir_commit_outcome = off");
    let mut reset = Vec::new();
    put_reset_connection(&mut reset);
    bench.clients[bob].got.clear();
    bench.send(bob, &reset);
    assert!(bench.is_answered(bob));
    assert_eq!(values(&mut bench, bob), text("ON", "marker"), "after a reset");
    assert!(!bench.own.iter().any(|(_, text)| text.to_ascii_lowercase().contains("weir")), "{:?}", bench.own);
}

#[test]
fn an_open_transaction_goes_on_as_it_began() {
    let mut bench = bench(false, TransactionSettings::default(), &[]);
    let client = bench.client(0, "app");
    run(&mut bench, client, "BEGIN");
    run(&mut bench, client, "SET weir_commit_outcome = 'marker', weir_replay = ON");
    assert!(!is_marked(&mut bench, client), "it has begun without a row");
    run(&mut bench, client, "BEGIN");
    run(&mut bench, client, "SET weir_commit_outcome = 'off', weir_replay = OFF");
    assert!(is_marked(&mut bench, client), "it has begun with a row");
    run(&mut bench, client, "SET weir_replay = ON");
    run(&mut bench, client, "BEGIN");
    run(&mut bench, client, "SET weir_replay = OFF");
    assert!(runs_again(&mut bench, client), "its log is kept");
    run(&mut bench, client, "COMMIT");
    run(&mut bench, client, "BEGIN");
    run(&mut bench, client, "SET weir_replay = ON");
    assert!(!runs_again(&mut bench, client), "it has no log");
}
