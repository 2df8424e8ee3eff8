//! Checks users.

use weir_routing::{CommitOutcome, ReplayMode, TransactionSettings};

use super::*;

#[test]
fn faults_of_users() {
    let key = "mysql_users[0]";
    let start = format!("{SERVER}{USER}");
    for (line, message) in [
        ("password = 12345", "password: an integer is not a string"),
        (
            "password = \"*1975D095AC033CAF4E1BF94F7202A9BBFEEB66\"",
            "password: a native hash is * and 40 hex digits",
        ),
        (
            "password = \"*1975D095AC033CAF4E1BF94F7202A9BBFEEB66FX\"",
            "password: a native hash is * and 40 hex digits",
        ),
        (
            "password = \"$A$005$short\"",
            "password: a caching_sha2 hash is $A$, 3 hex digits (not 000), $, 20 bytes of salt and 43 of hash",
        ),
        (
            "password = \"$A$000$saltsaltsaltsaltsalthashhashhashhashhashhashhashhashhashhashhas\"",
            "password: a caching_sha2 hash is $A$, 3 hex digits (not 000), $, 20 bytes of salt and 43 of hash",
        ),
        (
            "password = \"$A$005$saltsaltsaltsaltsalthashhashhashhashhashhashhashhashhashhashha!\"",
            "password: a caching_sha2 hash is $A$, 3 hex digits (not 000), $, 20 bytes of salt and 43 of hash",
        ),
        ("password = \"a\\u0000b\"", "password: contains a zero byte"),
        ("active = \"yes\"", "active: \"yes\" is neither true nor false"),
        ("active = 2", "active: 2 is neither true nor false"),
        ("pasword = \"x\"", "pasword: unknown key, did you mean \"password\"?"),
        ("transaction_persistent = 2", "transaction_persistent: 2 is neither true nor false"),
        ("frontend = 0", "frontend: 0 is not built yet (only 1)"),
        ("backend = 0", "backend: 0 is not built yet (only 1)"),
        ("schema_locked = 2", "schema_locked: 2 is neither true nor false"),
        ("fast_forward = \"yes\"", "fast_forward: \"yes\" is neither true nor false"),
        ("attributes = 1", "attributes: 1 is not a string"),
        ("attributes = '{'", "attributes: is not JSON: EOF while parsing an object at line 1 column 1"),
        ("attributes = '[]'", "attributes: is not a JSON object"),
        (
            "attributes = '{\"isolation\":1}'",
            "attributes: unknown attribute \"isolation\", there are default-transaction_isolation, additional_password, weir_consistency, weir_replay and weir_commit_outcome",
        ),
        (
            "attributes = '{\"weir_replay\":2}'",
            "attributes: weir_replay: unknown word \"2\" (one of: off, safe, on)",
        ),
        (
            "attributes = '{\"weir_replay\":\"offf\"}'",
            "attributes: weir_replay: unknown word \"offf\", did you mean \"off\"?",
        ),
        (
            "attributes = '{\"weir_commit_outcome\":\"markers\"}'",
            "attributes: weir_commit_outcome: unknown word \"markers\", did you mean \"marker\"?",
        ),
        ("attributes = '{\"weir_commit_outcome\":1}'", "attributes: weir_commit_outcome is not a string"),
        (
            "attributes = '{\"spiffe_id\":\"spiffe://a/b\"}'",
            "attributes: spiffe_id is not built yet: Weir asks clients for no certificate",
        ),
        ("attributes = '{\"additional_password\":1}'", "attributes: additional_password is not a string"),
        (
            "attributes = '{\"additional_password\":\"\"}'",
            "attributes: additional_password is empty, too long or contains a zero byte",
        ),
        (
            "attributes = '{\"additional_password\":\"*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9\"}'",
            "attributes: additional_password has to be in clear text",
        ),
        (
            "attributes = '{\"additional_password\":\"x\"}'\npassword = \"*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9\"",
            "attributes: additional_password needs a password in clear text: Weir could not log in at servers for a \
             client that shows the additional one",
        ),
        (
            "attributes = '{\"default-transaction_isolation\":\"SNAPSHOT\"}'",
            "attributes: default-transaction_isolation is none of \"READ UNCOMMITTED\", \"READ COMMITTED\", \
             \"REPEATABLE READ\" and \"SERIALIZABLE\"",
        ),
        (
            "attributes = '{\"default-transaction_isolation\":1}'",
            "attributes: default-transaction_isolation is none of \"READ UNCOMMITTED\", \"READ COMMITTED\", \
             \"REPEATABLE READ\" and \"SERIALIZABLE\"",
        ),
        (
            "default_hostgroup = 7",
            "default_hostgroup: hostgroup 7 has no server: neither mysql_servers nor an active cluster names it",
        ),
    ] {
        let number = if message.contains("hostgroup 7") { 4 } else { 6 };
        assert_eq!(
            messages(&format!("{start}{line}\n")),
            [format!("weir.toml:{number}: {key}.{message}")],
            "for {line}"
        );
    }
    assert_eq!(messages("[[mysql_users]]\nactive = 0"), ["weir.toml:1: mysql_users[0].username: is missing"]);
    assert_fault("[[mysql_users]]\nactive = 0\n", "username = \"\"", "mysql_users[0].username: is empty");
    assert_eq!(
        messages(&format!("{SERVER}{USER}{USER}")),
        ["weir.toml:6: mysql_users[1].username: \"app\" is already there (line 4)"]
    );
    assert_eq!(
        messages(&format!("{SERVER}{USER}use_ssl = 1\n[mysql_variables]\nhave_ssl = 0")),
        ["weir.toml:4: mysql_users[0].use_ssl: no client could log in: mysql_variables.have_ssl is false"]
    );
}

#[test]
fn what_becomes_of_a_users_transactions() {
    use ReplayMode::{Off, On, Safe};
    for (attributes, replay, commit_outcome) in [
        ("", None, None),
        (r#"{"weir_replay":"on"}"#, Some(On), None),
        (r#"{"weir_replay":"SAFE"}"#, Some(Safe), None),
        (r#"{"weir_replay":false,"weir_commit_outcome":"Marker"}"#, Some(Off), Some(CommitOutcome::Marker)),
        (r#"{"weir_replay":1,"weir_commit_outcome":"off"}"#, Some(On), Some(CommitOutcome::Off)),
    ] {
        let text = format!("{SERVER}{USER}attributes = '{attributes}'\n");
        let config = parse(&text, "weir.toml").expect("a correct file");
        let expected = TransactionSettings { replay, commit_outcome };
        assert_eq!(config.users[0].transactions, expected, "{attributes}");
    }
}
