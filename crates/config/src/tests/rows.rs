//! Checks rows of a database: what a file refuses may be a warning here, and what makes no sense is a fault.

use std::collections::BTreeSet;

use super::*;

fn row(columns: &[(&'static str, Cell)]) -> TableRow {
    columns.iter().map(|(name, cell)| ((*name).into(), cell.clone())).collect()
}

fn server(port: i64) -> TableRow {
    row(&[("hostgroup_id", 100.into()), ("hostname", "db1".into()), ("port", port.into())])
}

fn user(name: &str) -> TableRow {
    row(&[("username", name.into()), ("default_hostgroup", 100.into())])
}

fn rows(tables: &[(&str, TableRow)]) -> TableRows {
    let mut rows = TableRows::new();
    tables.iter().for_each(|(table, row)| rows.push(table, row.clone()));
    rows
}

fn faults(rows: &TableRows) -> Vec<String> {
    read_rows(rows, Strictness::Lenient).unwrap_err().iter().map(ToString::to_string).collect()
}

fn warnings(rows: &TableRows) -> Vec<String> {
    read_rows(rows, Strictness::Lenient).unwrap().1.iter().map(ToString::to_string).collect()
}

#[test]
fn a_fault_names_the_row_by_its_key() {
    let mut rows = rows(&[("mysql_servers", server(70_000)), ("mysql_users", user("app"))]);
    assert_eq!(faults(&rows), ["mysql_servers (100, db1, 70000): port: 70000 is not a port (1..65535)"]);
    rows.set("mysql_servers", vec![server(3306), server(3306)]);
    assert_eq!(
        faults(&rows),
        [
            "mysql_servers (100, db1, 3306): db1:3306 is already in hostgroup 100 (mysql_servers (100, db1, 3306))"
        ]
    );
    rows.set("mysql_servers", vec![server(3306)]);
    rows.push_variable("mysql-threads", "many");
    rows.push_variable("mysql-max_connections", "0");
    assert_eq!(
        faults(&rows),
        [
            "mysql-threads: \"many\" is not an integer",
            "mysql-max_connections: 0 is out of range (1..1000000)"
        ]
    );
}

#[test]
fn secrets_are_in_no_fault() {
    let mut bad = user("app");
    bad.insert("password".into(), "$A$geheim".into());
    bad.insert("attributes".into(), "{geheim".into());
    let mut rows = rows(&[("mysql_users", bad)]);
    rows.push_variable("admin-admin_credentials", "geheim");
    rows.push_variable("mysql-monitor_password", "geheim\0");
    let faults = faults(&rows);
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(!faults.join("\n").contains("geheim"), "{faults:?}");
}

#[test]
fn references_that_another_load_will_bring_are_warnings() {
    let rows = rows(&[
        ("mysql_users", user("app")),
        ("weir_hostgroups", row(&[("hostgroup_id", 7.into())])),
        ("weir_topology", row(&[("writer_hostgroup", 8.into())])),
        (
            "mysql_query_rules",
            row(&[("rule_id", 3.into()), ("active", 1.into()), ("destination_hostgroup", 9.into())]),
        ),
        (
            "mysql_replication_hostgroups",
            row(&[("writer_hostgroup", 1.into()), ("reader_hostgroup", 2.into())]),
        ),
    ]);
    let warnings = warnings(&rows);
    let expected = [
        "weir_topology (8): writer_hostgroup: hostgroup 8 is not the writer_hostgroup of a cluster",
        "mysql_replication_hostgroups (1): no row of mysql_servers is in any of its hostgroups",
        "mysql_query_rules (3): destination_hostgroup: rule 3: hostgroup 9 has no server: neither mysql_servers nor \
         an active cluster names it",
        "mysql_users (app): default_hostgroup: hostgroup 100 has no server: neither mysql_servers nor an active \
         cluster names it",
        "weir_hostgroups (7): hostgroup_id: no server and no cluster is in hostgroup 7",
    ];
    assert_eq!(BTreeSet::from_iter(warnings), BTreeSet::from_iter(expected.map(String::from)));
    assert_eq!(read_rows(&rows, Strictness::Strict).unwrap_err().len(), 5);
    assert_eq!(read_rows(&TableRows::new(), Strictness::Lenient).unwrap(), (Config::default(), Vec::new()));
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let mut odd = server(3306);
    odd.insert("compression".into(), 1.into());
    odd.insert("status".into(), "SHUNNED".into());
    let mut rows = rows(&[
        ("mysql_servers", odd),
        ("mysql_firewall_whitelist_users", row(&[("username", "app".into())])),
        ("mysql_query_rules", row(&[("rule_id", 1.into()), ("cache_ttl", 5000.into())])),
    ]);
    rows.push_variable("mysql-query_cache_size_MB", "512");
    rows.push_variable("mysql-poll_timeout", "2000");
    rows.push_variable("mysql-treads", "4");
    rows.push_variable("multiplexing", "true");
    let expected = [
        "mysql-query_cache_size_MB: not built yet",
        "mysql-treads: unknown key, did you mean \"threads\"?",
        "multiplexing: unknown variable",
        "mysql_servers (100, db1, 3306): status: SHUNNED is a state that Weir observes, not a setting: treated as ONLINE",
        "mysql_servers (100, db1, 3306): compression: 1 is not built yet (only 0)",
        "mysql_query_rules (1): cache_ttl: not built yet",
        "mysql_firewall_whitelist_users: 1 rows without effect: not built yet: NO STATEMENT IS FILTERED",
    ];
    assert_eq!(BTreeSet::from_iter(warnings(&rows)), BTreeSet::from_iter(expected.map(String::from)));
    let (config, _) = read_rows(&rows, Strictness::Lenient).unwrap();
    assert_eq!(config.servers[0].status, ServerStatus::Online);
}

#[test]
fn the_row_of_a_user_for_servers_only_is_left_out() {
    let mut for_servers = user("app");
    for_servers.insert("frontend".into(), 0.into());
    let mut rows = rows(&[
        ("mysql_servers", server(3306)),
        ("mysql_users", for_servers.clone()),
        ("mysql_users", user("app")),
    ]);
    assert_eq!(
        warnings(&rows),
        [
            "mysql_users (app): frontend: 0 is not built yet: the row is ignored, and Weir logs in at servers with the client's password"
        ]
    );
    rows.set("mysql_users", vec![for_servers]);
    assert!(read_rows(&rows, Strictness::Lenient).unwrap().0.users.is_empty());
}

#[test]
fn all_variables_with_their_defaults_are_the_default_configuration() {
    let mut rows = TableRows::new();
    let mut names = BTreeSet::new();
    for variable in variables() {
        assert!(names.insert(variable.full_name()), "{} is there twice", variable.full_name());
        rows.push_variable(&variable.full_name(), variable.default_value());
    }
    assert_eq!(read_rows(&rows, Strictness::Lenient).unwrap(), (Config::default(), Vec::new()));
}

#[test]
fn every_variable_has_the_effect_that_the_list_says() {
    for variable in variables().iter().filter(|variable| variable.name != "version") {
        let mut rows = TableRows::new();
        rows.push_variable(&variable.full_name(), "\u{1}\0 none of its values");
        let (noted, what) = match read_rows(&rows, Strictness::Lenient) {
            Ok((_, warnings)) => (!warnings.is_empty(), "warned of"),
            Err(_) => (true, "refused"),
        };
        let is_unread = what == "warned of";
        assert!(noted, "{} is ignored", variable.full_name());
        let may_warn = matches!(variable.effect, Effect::OnlyOff | Effect::None);
        assert_eq!(is_unread, may_warn, "{} is {what}", variable.full_name());
    }
}

#[test]
fn every_column_is_read_or_told() {
    for table in tables().iter().filter(|table| table.name != "global_variables") {
        for column in table.columns {
            let mut rows = TableRows::new();
            rows.push(table.name, row(&[(column.name, 7.into())]));
            let told = read_rows(&rows, Strictness::Strict).err().unwrap_or_default();
            let told: Vec<String> = told.iter().map(ToString::to_string).collect();
            let place = format!("{}.{}: {told:?}", table.name, column.name);
            assert!(!told.iter().any(|fault| fault.contains("unknown key")), "{place}");
            let is_told = told.iter().any(|fault| fault.contains("not built yet"));
            assert_eq!(is_told, column.effect != Effect::Built, "{place}");
        }
    }
}

#[test]
fn an_unknown_variable_has_a_neighbour() {
    assert_eq!(nearest_variable("mysql-treads"), Some("mysql-threads"));
    assert_eq!(nearest_variable("admin-web_enable"), Some("admin-web_enabled"));
    assert!(variable("mysql-threads").is_some_and(|variable| variable.effect == Effect::Built));
    assert!(variable("threads").is_none());
}

#[test]
fn the_rows_of_a_file_are_the_same_configuration() {
    let text = r#"
        datadir = "/tmp/weir"
        mysql_users = [{ username = "app", password = "app", default_hostgroup = 100, active = true }]
        [[mysql_servers]]
        address = "127.0.0.11"
        hostgroup = 100
        [[mysql_query_rules]]
        rule_id = 5
        active = 1
        match_digest = "^SELECT"
        destination_hostgroup = 100
        [mysql_variables]
        threads = 3
        interfaces = "127.0.0.1:6033"
        have_ssl = false
        [admin_variables]
        web_port = 6081
    "#;
    let rows = file_rows(text, "weir.toml").unwrap();
    assert_eq!(rows.variables().get("mysql-have_ssl"), Some(&&Cell::Text("false".to_owned())));
    let (config, warnings) = read_rows(&rows, Strictness::Strict).unwrap();
    assert_eq!(warnings, []);
    let of_file = parse(text, "weir.toml").unwrap();
    assert_eq!(Config { datadir: of_file.datadir.clone(), ..config }, of_file);
    let fault = file_rows("[[mysql_servers]]\nport = [1]\n", "weir.toml").unwrap_err();
    assert_eq!(fault[0].to_string(), "weir.toml:2: port: a list is not a value of a column");
}

/// Values that no column expects.
fn any_cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        Just(Cell::Null),
        any::<i64>().prop_map(Cell::Integer),
        any::<f64>().prop_map(Cell::Real),
        ".{0,12}".prop_map(Cell::Text),
        prop::sample::select(vec!["0", "1", "true", "ONLINE", "{}", "*", "0x", "(", ";:", "65535"])
            .prop_map(Cell::from),
    ]
}

proptest! {
    #[test]
    fn no_rows_make_it_panic(
        table in prop::sample::select(vec![
            "mysql_servers", "mysql_users", "mysql_query_rules", "mysql_galera_hostgroups", "global_variables",
            "scheduler", "proxysql_servers", "weir_topology", "weir_listeners", "mysql_servers_ssl_params",
        ]),
        cells in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "hostname", "port", "hostgroup_id", "username", "password", "rule_id", "status", "attributes",
                    "writer_hostgroup", "reader_hostgroup", "backup_writer_hostgroup", "offline_hostgroup", "id",
                    "interval_ms", "filename", "arg1", "arg3", "address", "mode", "variable_name", "variable_value",
                    "match_pattern", "digest", "frontend", "failback", "ssl_cipher", "use_ssl",
                ]),
                any_cell(),
            ),
            0..12,
        ),
    ) {
        let row: TableRow = cells.into_iter().map(|(name, cell)| (name.into(), cell)).collect();
        let mut rows = TableRows::new();
        rows.push(table, row.clone());
        rows.push(table, row);
        for strictness in [Strictness::Lenient, Strictness::Strict] {
            if let Err(errors) = read_rows(&rows, strictness) {
                assert!(!errors.is_empty() && errors.iter().all(|error| !error.reason.is_empty()));
            }
        }
    }
}
