//! Reads files in ProxySQL's form.

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> CnfFile {
    read_cnf(text, "proxysql.cnf").unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn text<'r>(row: &'r TableRow, column: &str) -> &'r str {
    match row.get(column) {
        Some(Cell::Text(text)) => text,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn a_file_of_proxysql_gives_its_rows() {
    let file = read(
        r#"
datadir="/var/lib/proxysql"
admin_variables = { admin_credentials="admin:secret"; mysql_ifaces="0.0.0.0:6032"; }
mysql_variables =
{
    threads=4
    max_connections=2048
    monitor_username="monitor"
    have_ssl=true
}
mysql_servers =
(
    { address="10.0.0.1", port=3306, hostgroup=10, max_replication_lag=5 },
    { hostname="10.0.0.2", hostgroup_id=10, comment="second" },
)
mysql_users: ( { username = "app", password = "p", default_hostgroup = 10, active = true } );
mysql_query_rules = ( { rule_id=1, match_digest="^SELECT .*FOR UPDATE", destination_hostgroup=10, apply=1 },
                      { rule_id=2, active=0 } )
restapi = ( { id=1, uri="sync" } )
scheduler = ()
"#,
    );
    assert_eq!(file.datadir, Some("/var/lib/proxysql".into()));
    assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    let variables = file.rows.variables();
    let wanted = [
        ("admin-admin_credentials", "admin:secret"),
        ("admin-mysql_ifaces", "0.0.0.0:6032"),
        ("mysql-have_ssl", "true"),
        ("mysql-max_connections", "2048"),
        ("mysql-monitor_username", "monitor"),
        ("mysql-threads", "4"),
    ];
    let wanted: BTreeMap<&str, Cell> = wanted.into_iter().map(|(name, value)| (name, value.into())).collect();
    assert_eq!(variables, wanted.iter().map(|(name, value)| (*name, value)).collect());
    let servers = file.rows.of("mysql_servers");
    assert_eq!((text(&servers[0], "hostname"), text(&servers[1], "hostname")), ("10.0.0.1", "10.0.0.2"));
    assert!(servers.iter().all(|row| row["hostgroup_id"] == Cell::Integer(10)));
    assert_eq!(file.rows.of("mysql_users")[0]["active"], Cell::Integer(1));
    let rules = file.rows.of("mysql_query_rules");
    assert_eq!((&rules[0]["active"], &rules[1]["active"]), (&Cell::Integer(1), &Cell::Integer(0)));
    assert_eq!(text(&file.rows.of("restapi_routes")[0], "uri"), "sync");
    assert_eq!(file.lines.of_row("mysql_servers", 1), 14);
    assert_eq!(file.lines.of_fault("mysql-threads"), 6);
    assert_eq!((file.lines.of_row("scheduler", 0), file.lines.of_fault("mysql-x")), (0, 0));
}

#[test]
fn faults_of_rows_find_their_lines() {
    let file = read(
        "mysql_servers = (\n{ address=\"db1\", hostgroup=1 },\n{ address=\"db2\", hostgroup=1, port=70000 })\n\
        mysql_variables = {\nthreads=\"many\" }",
    );
    let faults = crate::read_rows(&file.rows, crate::Strictness::Lenient).unwrap_err();
    let mut found: Vec<(usize, String)> =
        faults.iter().map(|fault| (file.lines.of_fault(&fault.key), fault.to_string())).collect();
    found.sort();
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 5], "{found:?}");
}

#[test]
fn what_has_no_effect_is_said() {
    let file = read("errorlog=\"/x\"\nuuid=\"\"\npgsql_servers=({})\npgsql_users=()\nmysql_server=()\n");
    let warnings: Vec<String> = file.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "proxysql.cnf:1: errorlog: has no effect: the log goes to standard error",
            "proxysql.cnf:3: pgsql_servers: has no effect: weir does not speak to PostgreSQL",
            "proxysql.cnf:5: mysql_server: has no effect: unknown key, did you mean \"mysql_servers\"?",
        ]
    );
}

#[test]
fn all_faults_are_named_but_no_secret() {
    let text = "mysql_servers = { }\nmysql_variables = ( )\nmysql_users = (\n 1,\n { password = ({ a = \"secret\" }) }\n)\n\
        mysql_variables2 = 1\ndatadir = 5\n";
    let faults = read_cnf(text, "proxysql.cnf").unwrap_err();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "proxysql.cnf:1: mysql_servers: is a list of rows: write ( { }, { } )",
            "proxysql.cnf:2: mysql_variables: is a group of variables: write { } around them",
            "proxysql.cnf:4: mysql_users[0]: is a row: write { } around its columns",
            "proxysql.cnf:5: mysql_users[1].password: is not one value",
            "proxysql.cnf:8: datadir: is not a path",
        ]
    );
    for (text, wanted) in [
        (
            "mysql_servers = (\n{ address=\"a\", hostname=\"b\" })",
            "mysql_servers[0].hostname: is the same as hostname",
        ),
        ("a = (1", "proxysql.cnf:1: , or the end of the list is expected"),
        ("mysql_variables = { monitor_password = \"secret\" \"\\xff\" }", "the string is not UTF-8"),
    ] {
        let fault = read_cnf(text, "proxysql.cnf").unwrap_err()[0].to_string();
        assert!(fault.contains(wanted) && !fault.contains("secret"), "{fault}");
    }
    let long = format!("# {}", "x".repeat(FILE_SIZE_BYTES_MAX));
    let fault = read_cnf(&long, "proxysql.cnf").unwrap_err()[0].to_string();
    assert!(fault.contains("longer than"), "{fault}");
    let many = format!("mysql_servers = ({})", "{},".repeat(TABLE_ROWS_MAX + 1));
    let fault = read_cnf(&many, "proxysql.cnf").unwrap_err()[0].to_string();
    assert!(fault.contains("200001 rows"), "{fault}");
}

#[test]
fn the_fuzzers_corpus() {
    let corpus = weir_seeds::Corpus::of("cnf", b"=:;,{}()[]\"\\/*#\n 0xL@\xFF");
    assert!(corpus.files() >= 4);
    // Every beginning, too: what ends in the middle of something.
    corpus.beginnings(crate::fuzzing::fuzz_cnf);
}

/// A piece of a file: what files are made of, and what breaks them.
fn any_piece() -> impl Strategy<Value = String> {
    let words = [
        "mysql_servers",
        "mysql_variables",
        "mysql_users",
        "datadir",
        "port",
        "address",
        "hostgroup",
        "hostname",
        "=",
        ":",
        ";",
        ",",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\"",
        "\"a\"",
        "\\",
        "\\x4",
        "1",
        "-0x",
        "1L",
        "1e",
        "true",
        "/*",
        "*/",
        "//",
        "#",
        "\n",
        " ",
        "@include",
        "é",
    ];
    prop_oneof![proptest::sample::select(words.to_vec()).prop_map(str::to_owned), ".{0,3}"]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,100}") {
        crate::fuzzing::fuzz_cnf(text.as_bytes());
    }

    #[test]
    fn no_mixture_of_pieces_makes_it_panic(pieces in prop::collection::vec(any_piece(), 0..40)) {
        crate::fuzzing::fuzz_cnf(pieces.concat().as_bytes());
    }
}
