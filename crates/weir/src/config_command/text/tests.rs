//! Checks the TOML that is written.

use super::*;
use crate::difference::tests::rows;

#[test]
fn what_toml_does_not_take_is_a_comment_and_joins_no_other_row() {
    let rows = rows(
        "INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (1, 'db1', 'a \"quoted\" one');
         INSERT INTO mysql_servers (hostgroup_id, hostname, compression) VALUES (1, 'db2', 1);
         INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('7', 'x', 1), ('lost', 'y', 9);
         INSERT INTO mysql_firewall_whitelist_users (active, username, client_address, mode, comment)
           VALUES (1, 'a', '', 'OFF', 'one'), (1, 'b', '', 'OFF', 'two');
         UPDATE global_variables SET variable_value = '12345' WHERE variable_name = 'mysql-monitor_password';
         UPDATE global_variables SET variable_value = '77' WHERE variable_name = 'mysql-shun_on_failures';",
    );
    let written = write(&rows, Some(Path::new("/var/lib/weir")), Form::Toml).unwrap();
    assert!(!written.is_whole);
    let text = written.text;
    let config = weir_config::parse(&text, "weir.toml").unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    assert_eq!(config.servers.len(), 2, "{text}");
    assert_eq!(config.servers[0].comment, "a \"quoted\" one");
    assert_eq!(config.users.iter().map(|user| user.username.as_str()).collect::<Vec<_>>(), ["7"]);
    assert_eq!(config.variables.shun_on_failures, 77);
    for line in [
        "monitor_password = \"12345\"",
        "# compression = 1  # 1 is not built yet (only 0)",
        "# username = \"lost\"",
        "# [[mysql_firewall_whitelist_users]]  # not built yet: NO STATEMENT IS FILTERED",
        "# comment = \"two\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_cnf_reads_back() {
    let rows = rows(
        "INSERT INTO mysql_servers (hostgroup_id, hostname, weight) VALUES (1, 'db1', 5);
         INSERT INTO mysql_query_rules (rule_id, active, match_pattern, replace_pattern)
           VALUES (1, 0, '^SELECT \"a\\d\"', 'two\nlines\ttab');",
    );
    let text = write(&rows, None, Form::Cnf).unwrap().text;
    let read = weir_config::read_cnf(&text, "a.cnf").unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    assert_eq!(crate::difference::differences(&rows, &read.rows).unwrap(), [], "{text}");
}

/// Of each table one row with every column given that Weir has built, and every variable that has an effect
/// otherwise than by default.
const EVERYTHING: &str = r#"
    INSERT INTO mysql_servers VALUES
      (10, 'db1', 3306, 0, 'ONLINE', 5, 0, 77, 0, 1, 20, 'say "hi"\, 100% # not a comment'),
      (10, 'db2', 3307, 0, 'OFFLINE_SOFT', 1, 0, 1000, 0, 0, 0, 'two' || char(10) || 'lines' || char(127) || char(9)),
      (20, 'db3', 3306, 0, 'OFFLINE_HARD', 1, 0, 1000, 0, 0, 0, ''),
      (30, 'db4', 3306, 0, 'ONLINE', 1, 0, 1000, 5, 0, 0, '');
    INSERT INTO mysql_servers_ssl_params (hostname, port, username, ssl_ca, comment)
      VALUES ('db1', 3306, '', '/etc/ca.pem', 'ca');
    INSERT INTO mysql_galera_hostgroups VALUES (10, 11, 12, 13, 1, 2, 2, 50, 'galera');
    INSERT INTO mysql_galera_hostgroups VALUES (110, 111, 112, 113, 0, 1, 0, 0, NULL);
    INSERT INTO mysql_group_replication_hostgroups VALUES (20, 21, 22, 23, 1, 1, 1, 0, 'group');
    INSERT INTO mysql_replication_hostgroups VALUES (30, 31, 'super_read_only', 'replicas');
    INSERT INTO mysql_hostgroup_attributes (hostgroup_id, max_num_online_servers, init_connect, comment)
      VALUES (10, 1000000, 'SET @a = "b"', 'attributes');
    INSERT INTO weir_hostgroups VALUES (12, 'least_in_flight', 'global', 'fastest', 250, 7, 'on', 65536, 'marker', 1, 'v2', 'own');
    INSERT INTO weir_topology (writer_hostgroup, min_readers, slow_start_ms, hold_timeout_ms, max_held,
        retry_buffer_bytes, drain_grace_ms, switchover_pin_grace_ms, assist, assist_username, assist_password)
      VALUES (10, 1, 100, 200, 300, 400, 500, 600, 'off', 'mover', 'se"cret');
    INSERT INTO mysql_users (username, password, active, default_hostgroup, default_schema, schema_locked,
        transaction_persistent, fast_forward, max_connections, attributes, comment)
      VALUES ('7', 'pass "word" \', 1, 10, 'true', 0, 0, 0, 7, '', 'c'),
             ('off', '*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9', 0, 12, NULL, 1, 1, 0, 0, '', '');
    INSERT INTO mysql_query_rules (rule_id, active, username, schemaname, flagIN, client_addr, proxy_port,
        match_digest, match_pattern, negate_match_pattern, re_modifiers, flagOUT, replace_pattern,
        destination_hostgroup, timeout, retries, delay, error_msg, multiplex, log, apply, comment)
      VALUES (5, 1, '7', 's', 0, '10.%', 6033, '^SELECT', 'a(b)\d "x"', 0, 'CASELESS,GLOBAL', 3,
          '\1 two', 12, 9, 8, 7, NULL, 0, 1, 0, NULL),
        (6, 0, NULL, NULL, 3, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no, "never"',
          NULL, NULL, 1, 'refuse');
    INSERT INTO mysql_query_rules_fast_routing VALUES ('7', 's', 0, 12, 'fast');
    INSERT INTO weir_listeners VALUES ('127.0.0.1:7001', 'replicas', 12, 'own port');
    INSERT INTO scheduler VALUES (3, 1, 5000, '/bin/true', 'a', 'b "c"', NULL, NULL, NULL, 'job');
    INSERT INTO proxysql_servers VALUES ('proxy2', 6033, 1, 'peer');
    UPDATE global_variables SET variable_value = '12' WHERE variable_name = 'mysql-threads';
    UPDATE global_variables SET variable_value = '12345' WHERE variable_name = 'mysql-monitor_password';
    UPDATE global_variables SET variable_value = 'false' WHERE variable_name = 'mysql-query_digests';
    UPDATE global_variables SET variable_value = '127.0.0.1:7000;/run/weir "x".sock'
      WHERE variable_name = 'mysql-interfaces';
    UPDATE global_variables SET variable_value = 'admin:a"b;radmin:c\d'
      WHERE variable_name = 'admin-admin_credentials';
    UPDATE global_variables SET variable_value = 'true' WHERE variable_name = 'admin-web_enabled';"#;

#[test]
fn everything_that_the_tables_hold_comes_back() {
    let rows = rows(EVERYTHING);
    let unbuilt = |name: &str| {
        name.starts_with("mysql_firewall")
            || ["restapi_routes", "mysql_aws_aurora_hostgroups"].contains(&name)
    };
    for table in Module::ALL.iter().flat_map(|module| module.tables()).filter(|table| !unbuilt(&table.name)) {
        assert!(!rows.of(&table.name).is_empty(), "nothing is in {}", table.name);
    }
    let (meant, warnings) = weir_config::read_rows(&rows, Strictness::Lenient).unwrap();
    assert_eq!(warnings, []);
    for form in [Form::Toml, Form::Cnf] {
        let written = write(&rows, Some(Path::new("/var/lib/weir")), form).unwrap();
        assert!(written.is_whole, "{form:?}: {:?}\n{}", written.left_out, written.text);
        assert_eq!(written.left_out, [""; 0], "{form:?}");
        let read = match form {
            Form::Toml => weir_config::parse_with_rows(&written.text, "x").unwrap().1,
            Form::Cnf => weir_config::read_cnf(&written.text, "x").unwrap().rows,
        };
        assert_eq!(weir_config::read_rows(&read, Strictness::Lenient).unwrap(), (meant.clone(), Vec::new()));
        let others = |difference: &Difference| difference.left.as_deref() != Some("");
        let found: Vec<_> = differences(&rows, &read).unwrap().into_iter().filter(others).collect();
        assert_eq!(found, [], "{form:?}:\n{}", written.text);
    }
}

#[test]
fn what_has_no_effect_takes_nothing_else_with_it() {
    // A limit of the lag has no effect here; the servers stay, and so does what refers to them.
    let rows = rows(
        "INSERT INTO mysql_servers (hostgroup_id, hostname, max_replication_lag) VALUES (10, 'db1', 5), (10, 'db2', 5);
         INSERT INTO mysql_galera_hostgroups VALUES (10, 11, 12, 13, 1, 1, 0, 0, 'one');
         INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('app', 'x', 10);",
    );
    let written = write(&rows, None, Form::Toml).unwrap();
    let config = weir_config::parse(&written.text, "weir.toml").unwrap();
    let counts = (config.servers.len(), config.galera_hostgroups.len(), config.users.len());
    assert_eq!(counts, (2, 1, 1), "{}", written.text);
    let reason = "5 is not built yet for servers outside mysql_replication_hostgroups (only 0)";
    let told =
        ["db1", "db2"].map(|host| format!("mysql_servers (10, {host}, 3306): max_replication_lag: {reason}"));
    assert_eq!(written.left_out, told);
}

#[test]
fn a_row_that_is_left_out_is_named_and_leaves_no_half_of_itself() {
    // A rule without its hostgroup, or a user for servers only as one for clients, would be something else.
    let rows = rows(
        "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'db1');
         INSERT INTO mysql_galera_hostgroups VALUES (30, 31, 32, 33, 1, 1, 0, 0, 'no servers');
         INSERT INTO mysql_users (username, password, default_hostgroup, frontend) VALUES ('app', 'x', 10, 0);
         INSERT INTO mysql_query_rules (rule_id, active, match_pattern, destination_hostgroup, apply)
           VALUES (1, 1, '.', 32, 1), (2, 1, '.', 10, 1);",
    );
    let written = write(&rows, None, Form::Toml).unwrap();
    assert!(!written.is_whole);
    let config = weir_config::parse(&written.text, "weir.toml").unwrap();
    let ids: Vec<u32> = config.query_rules.iter().map(|rule| rule.rule_id).collect();
    assert_eq!(
        (config.users.len(), config.galera_hostgroups.len(), ids),
        (0, 0, vec![2]),
        "{}",
        written.text
    );
    let named: Vec<&str> = written.left_out.iter().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(named, ["mysql_galera_hostgroups (30)", "mysql_users (app, 1)", "mysql_query_rules (1)"]);
}
