//! The semantics of rules as tables: rows, statements, and decisions.

use weir_routing::{
    CommitOutcome, Decision, Facts, FastRoute, FlagWeight, HintOrder, Hints, Multiplex, Options, QueryRule,
    ReplayMode, Router, RoutingResult, Rules, TransactionSettings, Who,
};

/// The `app` of the tests, on `shop` from 10.0.0.5 through 10.0.0.1:6033.
const APP: Who<'_> = Who {
    username: b"app",
    schemaname: b"shop",
    client_addr: "10.0.0.5",
    proxy_addr: "10.0.0.1",
    proxy_port: 6033,
};

fn rule(rule_id: u32) -> QueryRule {
    QueryRule { rule_id, active: true, ..QueryRule::default() }
}

fn to(rule_id: u32, hostgroup: u32) -> QueryRule {
    QueryRule { destination_hostgroup: Some(hostgroup), ..rule(rule_id) }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A statement whose digest text is itself, and whose hash is its length.
fn facts(statement: &str) -> Facts<'_> {
    let bytes = statement.as_bytes();
    Facts { statement: bytes, digest_text: bytes, digest: bytes.len() as u64, flag_in: 0 }
}

fn router(rows: &[QueryRule], fast: &[FastRoute], options: Options) -> Router {
    Router::new(&Rules::compile(rows, fast, options).expect("rows without a fault"))
}

/// Decides three times, so that what is remembered is tried too.
fn decide(router: &mut Router, who: &Who<'_>, facts: &Facts<'_>) -> RoutingResult {
    let scope = router.scope(who);
    let first = router.decide(scope, facts, Hints::default(), &mut || 0);
    for _ in 0..2 {
        assert_eq!(router.decide(scope, facts, Hints::default(), &mut || 0), first);
    }
    first
}

fn hostgroup(rows: &[QueryRule], who: &Who<'_>, statement: &str) -> Option<u32> {
    decide(&mut router(rows, &[], Options::default()), who, &facts(statement)).decision.hostgroup
}

#[test]
fn every_predicate_must_match() {
    let who = |change: fn(&mut Who<'_>)| {
        let mut who = APP;
        change(&mut who);
        who
    };
    let row = |change: fn(&mut QueryRule)| {
        let mut row = to(1, 7);
        change(&mut row);
        row
    };
    for (name, row, who, statement, matches) in [
        ("nothing asked", row(|_| ()), APP, "SELECT 1", true),
        ("inactive", row(|row| row.active = false), APP, "SELECT 1", false),
        ("user", row(|row| row.username = text("app")), APP, "SELECT 1", true),
        ("other user", row(|row| row.username = text("App")), APP, "SELECT 1", false),
        ("empty user", row(|row| row.username = text("")), APP, "SELECT 1", true),
        ("schema", row(|row| row.schemaname = text("shop")), APP, "SELECT 1", true),
        (
            "other schema",
            row(|row| row.schemaname = text("shop")),
            who(|who| who.schemaname = b""),
            "SELECT 1",
            false,
        ),
        ("address", row(|row| row.client_addr = text("10.0.0.5")), APP, "SELECT 1", true),
        ("other address", row(|row| row.client_addr = text("10.0.0.50")), APP, "SELECT 1", false),
        ("net", row(|row| row.client_addr = text("10.0.%")), APP, "SELECT 1", true),
        ("other net", row(|row| row.client_addr = text("10.1.%")), APP, "SELECT 1", false),
        ("any address", row(|row| row.client_addr = text("%")), APP, "SELECT 1", true),
        ("proxy", row(|row| row.proxy_addr = text("10.0.0.1")), APP, "SELECT 1", true),
        ("other proxy", row(|row| row.proxy_addr = text("10.0.0.2")), APP, "SELECT 1", false),
        ("port", row(|row| row.proxy_port = Some(6033)), APP, "SELECT 1", true),
        ("other port", row(|row| row.proxy_port = Some(6034)), APP, "SELECT 1", false),
        ("digest", row(|row| row.digest = Some(8)), APP, "SELECT 1", true),
        ("other digest", row(|row| row.digest = Some(9)), APP, "SELECT 1", false),
        ("flagIN", row(|row| row.flag_in = 1), APP, "SELECT 1", false),
        ("match_digest", row(|row| row.match_digest = text("^select")), APP, "SELECT 1", true),
        ("no match_digest", row(|row| row.match_digest = text("^insert")), APP, "SELECT 1", false),
        ("match_pattern", row(|row| row.match_pattern = text(" 1$")), APP, "SELECT 1", true),
        ("no match_pattern", row(|row| row.match_pattern = text(" 2$")), APP, "SELECT 1", false),
        (
            "with case",
            row(|row| {
                row.match_digest = text("^select");
                row.caseless = false;
            }),
            APP,
            "SELECT 1",
            false,
        ),
        (
            "negated",
            row(|row| {
                row.match_digest = text("^INSERT");
                row.negate_match_pattern = true;
            }),
            APP,
            "SELECT 1",
            true,
        ),
        (
            "both negated, one matches",
            row(|row| {
                row.match_digest = text("^INSERT");
                row.match_pattern = text("1");
                row.negate_match_pattern = true;
            }),
            APP,
            "SELECT 1",
            false,
        ),
        (
            "one of two does not match",
            row(|row| {
                row.username = text("app");
                row.match_digest = text("^INSERT");
            }),
            APP,
            "SELECT 1",
            false,
        ),
    ] {
        assert_eq!(hostgroup(&[row], &who, statement), matches.then_some(7), "{name}");
    }
}

#[test]
fn rules_are_looked_at_in_order_of_their_ids() {
    let rows = [to(30, 3), to(10, 1), to(20, 2)];
    assert_eq!(hostgroup(&rows, &APP, "SELECT 1"), Some(3), "the last one has the last word");
    let applied = QueryRule { apply: true, ..to(10, 1) };
    assert_eq!(hostgroup(&[to(30, 3), applied], &APP, "SELECT 1"), Some(1), "apply ends the walk");
}

#[test]
fn actions_add_up() {
    let replays = |mode| TransactionSettings { replay: Some(mode), ..TransactionSettings::default() };
    let marks =
        TransactionSettings { commit_outcome: Some(CommitOutcome::Marker), ..replays(ReplayMode::On) };
    let rows = [
        QueryRule {
            timeout_ms: Some(500),
            retries: Some(2),
            log: Some(false),
            transactions: marks,
            ..to(1, 4)
        },
        QueryRule { delay_ms: Some(7), multiplex: Some(Multiplex::Off), timeout_ms: Some(0), ..rule(2) },
        QueryRule { timeout_ms: Some(900), next_query_flag_in: Some(5), log: Some(true), ..rule(3) },
        QueryRule {
            error_msg: text("no"),
            gtid_from_hostgroup: Some(8),
            transactions: replays(ReplayMode::Off),
            ..rule(4)
        },
        QueryRule { ok_msg: text("fine"), apply: true, ..rule(5) },
        to(6, 9),
    ];
    let mut router = router(&rows, &[], Options::default());
    let decision = decide(&mut router, &APP, &facts("SELECT 1")).decision;
    let expected = Decision {
        hostgroup: Some(4),
        is_hinted: false,
        timeout_ms: Some(900),
        retries: Some(2),
        delay_ms: Some(7),
        next_flag_in: Some(5),
        multiplex: Some(Multiplex::Off),
        consistency: None,
        hinted_consistency: None,
        transactions: TransactionSettings {
            commit_outcome: Some(CommitOutcome::Marker),
            ..replays(ReplayMode::Off)
        },
        hinted_transactions: TransactionSettings::default(),
        sees_own_writes: true,
        log: Some(true),
        error: Some(3),
        ok: Some(4),
        rule_id: Some(5),
    };
    assert_eq!(decision, expected);
    assert_eq!((router.error_message(3), router.ok_message(4)), ("no", "fine"));
    let hits: Vec<_> = router.hits().collect();
    assert_eq!(hits, [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (6, 0)]);
}

#[test]
fn chains() {
    let into = |rule_id, flag| QueryRule { flag_out: Some(flag), ..rule(rule_id) };
    let within = |flag_in, row: QueryRule| QueryRule { flag_in, ..row };
    let iterations = |iterations| Options { iterations, ..Options::default() };
    for (name, rows, options, expected) in [
        ("into a chain", vec![into(1, 5), to(2, 2), within(5, to(3, 3))], iterations(0), Some(3)),
        ("a chain behind", vec![within(5, to(1, 3)), into(2, 5)], iterations(0), None),
        (
            "a chain behind, with a second round",
            vec![within(5, to(1, 3)), into(2, 5)],
            iterations(1),
            Some(3),
        ),
        (
            "a loop ends",
            vec![into(1, 5), within(5, QueryRule { flag_out: Some(0), ..to(2, 2) })],
            iterations(1000),
            Some(2),
        ),
        (
            "apply in front of flagOUT",
            vec![QueryRule { apply: true, ..into(1, 5) }, within(5, to(2, 2))],
            iterations(9),
            None,
        ),
    ] {
        let mut router = router(&rows, &[], options);
        assert_eq!(decide(&mut router, &APP, &facts("SELECT 1")).decision.hostgroup, expected, "{name}");
    }
    let mut router = router(&[within(5, to(1, 3))], &[], Options::default());
    let facts = Facts { flag_in: 5, ..facts("SELECT 1") };
    assert_eq!(decide(&mut router, &APP, &facts).decision.hostgroup, Some(3), "next_query_flagIN");
}

#[test]
fn weighted_flags_share_the_work() {
    let branch = QueryRule {
        flag_outs: vec![
            FlagWeight { id: 1, weight: 3 },
            FlagWeight { id: 2, weight: 1 },
            FlagWeight { id: 3, weight: 0 },
        ],
        flag_out: Some(9),
        ..rule(1)
    };
    let rows = [branch, QueryRule { flag_in: 1, ..to(2, 10) }, QueryRule { flag_in: 2, ..to(3, 20) }];
    let mut router = router(&rows, &[], Options::default());
    let scope = router.scope(&APP);
    let mut drawn = 0;
    let mut share = [0, 0];
    for _ in 0..400 {
        let mut draw = || {
            drawn += 1;
            drawn
        };
        let decision = router.decide(scope, &facts("SELECT 1"), Hints::default(), &mut draw).decision;
        share[usize::from(decision.hostgroup == Some(20))] += 1;
    }
    assert_eq!(share, [300, 100]);
    assert_eq!(router.decisions_remembered(), 0, "chance must not be remembered");
}

#[test]
fn replacements() {
    let row = |pattern: &str, replacement: &str| QueryRule {
        match_pattern: text(pattern),
        replace_pattern: text(replacement),
        ..rule(1)
    };
    let global = |row| QueryRule { global: true, ..row };
    for (row, statement, expected) in [
        (row("FROM t1", "FROM t2"), "SELECT c FROM t1 JOIN x", "SELECT c FROM t2 JOIN x"),
        (row("t1", "t2"), "SELECT t1 FROM t1", "SELECT t2 FROM t1"),
        (global(row("t1", "t2")), "SELECT t1 FROM t1", "SELECT t2 FROM t2"),
        (row("SELECT (\\w+) FROM (\\w+)", "SELECT \\2 FROM \\1"), "SELECT a FROM b", "SELECT b FROM a"),
        (row("(?<=id=)(\\d+)", "<\\0>"), "id=42", "id=<42>"),
        (row("^", "/* x */ "), "SELECT 1", "/* x */ SELECT 1"),
        (row("$", " LIMIT 10"), "SELECT 1", "SELECT 1 LIMIT 10"),
        (row("a(b)?c", "[\\1]"), "ac", "[]"),
        (row("x", "\\\\"), "x", "\\"),
        (global(row("", "-")), "ab", "-a-b-"),
    ] {
        let mut router = router(std::slice::from_ref(&row), &[], Options::default());
        let result = decide(&mut router, &APP, &facts(statement));
        let rewritten = result.rewritten.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(rewritten.as_deref(), Some(expected), "{:?}", row.match_pattern);
    }
    let rows = [row("t1", "t2"), QueryRule { match_pattern: text("t2"), ..to(2, 2) }];
    assert_eq!(hostgroup(&rows, &APP, "SELECT * FROM t1"), Some(2), "later patterns see the new text");
    let rows = [row("t1", "t2"), QueryRule { match_digest: text("t2"), ..to(2, 2) }];
    assert_eq!(hostgroup(&rows, &APP, "SELECT * FROM t1"), None, "the digest is the client's");
}

#[test]
fn fast_routes_come_last() {
    let route = |username: &str, schemaname: &str, flag_in, destination_hostgroup| FastRoute {
        username: username.into(),
        schemaname: schemaname.into(),
        flag_in,
        destination_hostgroup,
        comment: String::new(),
    };
    let routes = [route("", "shop", 0, 1), route("app", "shop", 0, 2), route("app", "shop", 5, 3)];
    for (name, rows, who, expected) in [
        ("the user's own", vec![], APP, Some(2)),
        ("anybody's", vec![], Who { username: b"other", ..APP }, Some(1)),
        ("another schema", vec![], Who { schemaname: b"", ..APP }, None),
        ("after a rule that does not end the walk", vec![to(1, 9)], APP, Some(2)),
        ("not after one that does", vec![QueryRule { apply: true, ..to(1, 9) }], APP, Some(9)),
        ("not after one that only ends it", vec![QueryRule { apply: true, ..rule(1) }], APP, None),
        ("by the flag left", vec![QueryRule { flag_out: Some(5), ..rule(1) }], APP, Some(3)),
        ("no route for the flag left", vec![QueryRule { flag_out: Some(6), ..to(1, 9) }], APP, Some(9)),
    ] {
        let mut router = router(&rows, &routes, Options::default());
        assert_eq!(decide(&mut router, &who, &facts("SELECT 1")).decision.hostgroup, expected, "{name}");
    }
}

#[test]
fn hints_and_rules() {
    let hints = Hints { hostgroup: Some(5), delay_ms: Some(1), ..Hints::default() };
    for (order, hostgroup) in [(HintOrder::Before, 2), (HintOrder::After, 5), (HintOrder::Both, 5)] {
        let mut router = router(&[to(1, 2)], &[], Options { hint_order: order, ..Options::default() });
        let scope = router.scope(&APP);
        let decision = router.decide(scope, &facts("SELECT 1"), hints, &mut || 0).decision;
        assert_eq!((decision.hostgroup, decision.delay_ms), (Some(hostgroup), Some(1)), "{order:?}");
    }
}

#[test]
fn only_what_the_digest_decides_is_remembered() {
    let on_text = QueryRule { match_pattern: text("id=1$"), match_digest: text("^SELECT"), ..to(2, 2) };
    let mut router = router(&[to(1, 1), on_text], &[], Options::default());
    let scope = router.scope(&APP);
    let mut decide = |statement: &'static [u8], digest_text: &'static [u8]| {
        let facts = Facts { statement, digest_text, digest: 7, flag_in: 0 };
        let hostgroup = router.decide(scope, &facts, Hints::default(), &mut || 0).decision.hostgroup;
        (hostgroup, router.decisions_remembered())
    };
    assert_eq!(decide(b"SELECT id=1", b"SELECT id=?"), (Some(2), 0));
    assert_eq!(decide(b"SELECT id=2", b"SELECT id=?"), (Some(1), 0));
    assert_eq!(decide(b"UPDATE id=1", b"UPDATE id=?"), (Some(1), 1));
    assert_eq!(decide(b"SELECT id=1", b"SELECT id=?"), (Some(2), 1), "another text of the same hash");
}

#[test]
fn a_pattern_that_is_given_up_does_not_match() {
    for negate_match_pattern in [false, true] {
        let row = QueryRule { match_pattern: text("^(a+)+(?!x)$"), negate_match_pattern, ..to(1, 1) };
        let mut router = router(&[row], &[], Options::default());
        let statement = "a".repeat(60) + "!";
        assert_eq!(decide(&mut router, &APP, &facts(&statement)).decision.hostgroup, None);
        assert_eq!(router.patterns_given_up(), 3);
    }
}

#[test]
fn many_sessions_do_not_fill_the_memory() {
    let row = QueryRule { username: text("u7"), ..to(1, 1) };
    let mut router = router(&[row], &[], Options::default());
    let first = router.scope(&APP);
    for number in 0..20_000 {
        router.scope(&Who { username: format!("u{number}").as_bytes(), ..APP });
    }
    assert!(!router.is_current(first), "the first ones are forgotten");
    let scope = router.scope(&Who { username: b"u7", ..APP });
    let decision = router.decide(scope, &facts("SELECT 1"), Hints::default(), &mut || 0).decision;
    assert_eq!(decision.hostgroup, Some(1));
    for number in 0..20_000_u64 {
        let text = format!("SELECT {number}");
        let facts = Facts { digest: number, ..facts(&text) };
        router.decide(scope, &facts, Hints::default(), &mut || 0);
    }
    assert!(router.decisions_remembered() <= 8192);
}

#[test]
fn faults_of_rows() {
    let replaces = |pattern: &str, replacement: &str| QueryRule {
        match_pattern: text(pattern),
        replace_pattern: text(replacement),
        ..rule(1)
    };
    for (rows, fault) in [
        (vec![rule(1), rule(1)], (1, "rule_id", "1 is already there")),
        (
            vec![QueryRule { match_digest: text("(a"), ..rule(1) }],
            (0, "match_digest", "missing closing parenthesis (at character 3)"),
        ),
        (
            vec![QueryRule { replace_pattern: text("a"), ..rule(1) }],
            (0, "replace_pattern", "needs match_pattern: there is nothing to replace"),
        ),
        (
            vec![replaces("(a)", "\\2")],
            (0, "replace_pattern", "\\2 means a group that match_pattern does not have (it has 1)"),
        ),
        (
            vec![replaces("a", "\\x")],
            (0, "replace_pattern", "a backslash must be followed by a digit or another backslash"),
        ),
        (
            vec![QueryRule { negate_match_pattern: true, ..replaces("a", "b") }],
            (0, "replace_pattern", "with negate_match_pattern there is nothing to replace"),
        ),
        (
            vec![QueryRule { flag_outs: vec![FlagWeight { id: 1, weight: 0 }], ..rule(1) }],
            (0, "attributes", "the weights of flagOUTs are all 0"),
        ),
    ] {
        let faults = Rules::compile(&rows, &[], Options::default()).expect_err(fault.2);
        let found: Vec<_> =
            faults.iter().map(|fault| (fault.row, fault.column, fault.reason.as_str())).collect();
        assert_eq!(found, [fault]);
    }
}

#[test]
fn patterns_of_pcre_are_named() {
    let rows = [
        QueryRule { match_digest: text("^SELECT"), ..rule(1) },
        QueryRule { match_pattern: text("^(?!SELECT)"), ..rule(7) },
    ];
    let rules = Rules::compile(&rows, &[], Options::default()).expect("two rules");
    let notes: Vec<_> = rules.notes().iter().map(|note| (note.rule_id, note.column, note.because)).collect();
    assert_eq!(notes, [(7, "match_pattern", "look-ahead")]);
}

/// Of many rules most are ruled out by words that the text does not contain: the same match as if each stood alone.
#[test]
fn many_rules_match_as_each_of_them_alone() {
    let patterns = [
        "^SELECT .* FROM orders",
        "from ORDERS where",
        "orders|items",
        "items?$",
        "^insert into (a|b) ",
        "\\bWHERE\\b id",
        "(?i)Update x",
        "x{2}y",
        "a.c",
        "^.*$",
        "",
        "select (.*) from (?!b)",
        "[[:alpha:]]+ from",
        "id=\\?",
        "id = \\?",
    ];
    let rows: Vec<QueryRule> = (0..120)
        .map(|at| {
            let plain = format!("FROM t{} ", at % 7);
            let text = patterns.get(at % 20).map_or(plain, |pattern| (*pattern).to_owned());
            QueryRule {
                match_digest: Some(text),
                negate_match_pattern: at % 9 == 0,
                caseless: at % 4 != 0,
                ..rule(at as u32 + 1)
            }
        })
        .collect();
    let mut all = router(&rows, &[], Options::default());
    let mut before: Vec<u64> = all.hits().map(|(_, hits)| hits).collect();
    for statement in [
        "SELECT c FROM orders WHERE id=?",
        "select c from Orders where id = ?",
        "insert into a values (?)",
        "update X set y",
        "SELECT a FROM t3 ",
        "xxy",
        "abc",
        "",
        "delete from items",
        "SELECT 1 FROM items WHERE id=?",
    ] {
        decide(&mut all, &APP, &facts(statement));
        let after: Vec<u64> = all.hits().map(|(_, hits)| hits).collect();
        for (at, row) in rows.iter().enumerate() {
            let mut alone = router(std::slice::from_ref(row), &[], Options::default());
            decide(&mut alone, &APP, &facts(statement));
            let alone = alone.hits().map(|(_, hits)| hits).sum::<u64>();
            assert_eq!(after[at] - before[at], alone, "{:?} on {statement:?}", row.match_digest);
        }
        before = after;
    }
}
