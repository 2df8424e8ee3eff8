//! Checks rows of `mysql_query_rules` and `mysql_query_rules_fast_routing`: faults, each with its message, and what a
//! correct row becomes.

use weir_routing::{CommitOutcome, FlagWeight, HintOrder, Multiplex, ReplayMode, TransactionSettings};

use super::*;

const RULE: &str = "[[mysql_query_rules]]\nrule_id = 7\n";

#[test]
fn faults_of_query_rules() {
    let key = "mysql_query_rules[0]";
    for (line, message) in [
        ("rule_id2 = 1", "rule_id2: unknown key, did you mean \"rule_id\"?"),
        ("active = 2", "active: 2 is neither true nor false"),
        ("username = 5", "username: 5 is not a string"),
        ("flagIN = -1", "flagIN: -1 is out of range (0..2147483647)"),
        ("flagin = 1", "flagin: unknown key, did you mean \"flagIN\"?"),
        ("client_addr = \"10.%.1\"", "client_addr: % may only be at the end"),
        ("proxy_port = 0", "proxy_port: 0 is out of range (1..65535)"),
        ("proxy_port = 65536", "proxy_port: 65536 is out of range (1..65535)"),
        ("digest = \"1A2B\"", "digest: \"1A2B\" is not 0x and up to 16 hex digits"),
        ("digest = \"0x\"", "digest: \"0x\" is not 0x and up to 16 hex digits"),
        (
            "digest = \"0x11112222333344445\"",
            "digest: \"0x11112222333344445\" is not 0x and up to 16 hex digits",
        ),
        ("digest = 17", "digest: 17 is not a string"),
        ("negate_match_pattern = \"x\"", "negate_match_pattern: \"x\" is neither true nor false"),
        ("re_modifiers = \"CASELES\"", "re_modifiers: unknown word \"CASELES\", did you mean \"CASELESS\"?"),
        ("flagOUT = \"x\"", "flagOUT: \"x\" is not an integer"),
        ("destination_hostgroup = -1", "destination_hostgroup: -1 is out of range (0..2147483647)"),
        ("timeout = -1", "timeout: -1 is out of range (0..2147483647)"),
        ("retries = 1001", "retries: 1001 is out of range (0..1000)"),
        ("delay = 1.5", "delay: 1.5 is not an integer"),
        ("multiplex = 3", "multiplex: 3 is not 0, 1 or 2"),
        ("apply = \"yes\"", "apply: \"yes\" is neither true nor false"),
        ("cache_ttl = 1000", "cache_ttl: not built yet"),
        ("cache_empty_result = 1", "cache_empty_result: 1 is not built yet (only 0)"),
        ("cache_timeout = 1", "cache_timeout: not built yet"),
        ("mirror_flagOUT = 1", "mirror_flagOUT: not built yet"),
        ("mirror_hostgroup = 1", "mirror_hostgroup: not built yet"),
        ("gtid_from_hostgroup = -1", "gtid_from_hostgroup: -1 is out of range (0..2147483647)"),
        ("reconnect = 1", "reconnect: 1 is not built yet (only 0)"),
        ("sticky_conn = 1", "sticky_conn: 1 is not built yet (only 0)"),
        ("log = 2", "log: 2 is neither true nor false"),
        (
            "attributes = '{\"flagOUT\":[]}'",
            "attributes: is not understood: unknown field `flagOUT`, expected one of `flagOUTs`, `weir_consistency`, `weir_replay`, `weir_commit_outcome` at line 1 column 10",
        ),
        (
            "attributes = '{\"flagOUTs\":[{\"weight\":1}]}'",
            "attributes: is not understood: missing field `id` at line 1 column 25",
        ),
        (
            "attributes = '{\"weir_replay\":\"yes\"}'",
            "attributes: weir_replay: unknown word \"yes\" (one of: off, safe, on)",
        ),
        (
            "attributes = '{\"weir_commit_outcome\":\"none\"}'",
            "attributes: weir_commit_outcome: unknown word \"none\" (one of: off, marker)",
        ),
        ("attributes = '{'", "attributes: is not understood: EOF while parsing an object at line 1 column 1"),
    ] {
        assert_fault(RULE, line, &format!("{key}.{message}"));
    }
}

#[test]
fn faults_that_need_the_whole_rule() {
    // The row's line: the fault is of several keys, or found when it is compiled.
    for (lines, message) in [
        ("match_digest = \"^(SELECT\"", "match_digest: rule 7: missing closing parenthesis (at character 9)"),
        (
            "match_pattern = 'a|*'",
            "match_pattern: rule 7: quantifier does not follow a repeatable item (at character 3)",
        ),
        (
            "replace_pattern = \"x\"",
            "replace_pattern: rule 7: needs match_pattern: there is nothing to replace",
        ),
        (
            "match_pattern = \"(a)\"\nreplace_pattern = '\\2'",
            "replace_pattern: rule 7: \\2 means a group that match_pattern does not have (it has 1)",
        ),
        (
            "attributes = '{\"flagOUTs\":[{\"id\":1,\"weight\":0}]}'",
            "attributes: rule 7: the weights of flagOUTs are all 0",
        ),
    ] {
        let expected = format!("weir.toml:1: mysql_query_rules[0].{message}");
        assert_eq!(messages(&format!("{RULE}{lines}\n")), [expected], "for {lines}");
    }
    assert_eq!(
        messages(&format!("{RULE}{RULE}")),
        ["weir.toml:3: mysql_query_rules[1].rule_id: rule 7: 7 is already there"]
    );
    let active = format!("{SERVER}{RULE}active = 1\ndestination_hostgroup = 5\n");
    assert_eq!(
        messages(&active),
        [
            "weir.toml:4: mysql_query_rules[0].destination_hostgroup: rule 7: hostgroup 5 has no server: neither \
          mysql_servers nor an active cluster names it"
        ]
    );
    assert!(messages(&active.replace("active = 1", "active = 0")).is_empty());
}

#[test]
fn faults_of_fast_routes() {
    let row = "[[mysql_query_rules_fast_routing]]\nusername = \"\"\nschemaname = \"shop\"\ndestination_hostgroup = 0\n";
    let start = format!("{SERVER}{row}");
    assert_fault(
        &start,
        "flagIN = -1",
        "mysql_query_rules_fast_routing[0].flagIN: -1 is out of range (0..2147483647)",
    );
    assert_fault(
        &start,
        "flagINN = 1",
        "mysql_query_rules_fast_routing[0].flagINN: unknown key, did you mean \"flagIN\"?",
    );
    assert_eq!(
        messages(&format!("{start}{row}")),
        [
            "weir.toml:8: mysql_query_rules_fast_routing[1]: user \"\", schema \"shop\", flagIN 0 are already there (line 4)"
        ]
    );
    assert_eq!(
        messages("[[mysql_query_rules_fast_routing]]\n"),
        [
            "weir.toml:1: mysql_query_rules_fast_routing[0].username: is missing",
            "weir.toml:1: mysql_query_rules_fast_routing[0].schemaname: is missing",
            "weir.toml:1: mysql_query_rules_fast_routing[0].destination_hostgroup: is missing",
        ]
    );
    assert_eq!(
        messages(&start.replace("destination_hostgroup = 0", "destination_hostgroup = 4")),
        [
            "weir.toml:4: mysql_query_rules_fast_routing[0].destination_hostgroup: hostgroup 4 has no server: neither \
          mysql_servers nor an active cluster names it"
        ]
    );
}

#[test]
fn a_whole_rule() {
    let text = format!(
        "{SERVER}[[mysql_query_rules]]\nactive = 1\n[[mysql_query_rules]]\nrule_id = 20\nactive = true\n\
         username = \"app\"\nschemaname = \"shop\"\nflagIN = 3\nclient_addr = \"10.%\"\nproxy_addr = \"10.0.0.1\"\n\
         proxy_port = 6033\ndigest = \"0xDEADBEEF01234567\"\nmatch_digest = \"^SELECT\"\n\
         match_pattern = '(\\d+)'\nre_modifiers = \"global, caseless\"\nflagOUT = 4\nreplace_pattern = '\\1'\n\
         destination_hostgroup = 0\ntimeout = 500\nretries = 2\ndelay = 10\nnext_query_flagIN = 5\n\
         error_msg = \"no\"\nOK_msg = \"yes\"\nmultiplex = 0\nlog = 0\napply = 1\n\
         attributes = '{{\"flagOUTs\":[{{\"id\":8,\"weight\":3}},{{\"id\":9}}],\
         \"weir_replay\":true,\"weir_commit_outcome\":\"marker\"}}'\ncomment = \"c\"\n\
         [[mysql_query_rules]]\nre_modifiers = \"\"\n\
         [mysql_variables]\nquery_processor_iterations = 2\nquery_processor_first_comment_parsing = 1\n\
         default_query_delay = 5\n"
    );
    let config = parse(&text, "weir.toml").expect("a correct file");
    let [first, rule, last] = config.query_rules.as_slice() else { panic!("three rules") };
    assert_eq!((first.rule_id, first.active, first.caseless, first.apply), (1, true, true, false));
    assert_eq!((last.rule_id, last.active, last.caseless), (21, false, false));
    assert_eq!(rule.username.as_deref(), Some("app"));
    assert_eq!((rule.flag_in, rule.flag_out, rule.next_query_flag_in), (3, Some(4), Some(5)));
    assert_eq!(rule.digest, Some(0xDEAD_BEEF_0123_4567));
    assert_eq!((rule.caseless, rule.global), (true, true));
    assert_eq!((rule.timeout_ms, rule.retries, rule.delay_ms), (Some(500), Some(2), Some(10)));
    assert_eq!((rule.error_msg.as_deref(), rule.ok_msg.as_deref()), (Some("no"), Some("yes")));
    assert_eq!(rule.multiplex, Some(Multiplex::Off));
    assert_eq!(rule.flag_outs, [FlagWeight { id: 8, weight: 3 }, FlagWeight { id: 9, weight: 1 }]);
    let transactions =
        TransactionSettings { replay: Some(ReplayMode::On), commit_outcome: Some(CommitOutcome::Marker) };
    assert_eq!((rule.transactions, last.transactions), (transactions, TransactionSettings::default()));
    let options = config.rule_options();
    assert_eq!((options.iterations, options.hint_order), (2, HintOrder::Before));
    assert_eq!(config.variables.default_query_delay, Duration::from_millis(5));
}
