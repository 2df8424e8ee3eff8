//! Connections are logged in anew when what they were logged in with may be over.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;

fn insert(bench: &mut Bench, client: usize) {
    // Who has waited since a login began takes it for recent.
    bench.pass_ms(1);
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(client));
}

fn one_server(variables: MysqlVariables) -> (Bench, std::sync::Arc<weir_proxy::snapshot::Server>) {
    let server = support::server(3306, 2);
    (Bench::with_servers(1, vec![server.clone()], support::hostgroup([0]), variables), server)
}

#[test]
fn an_idle_connection_is_logged_in_anew_once_after_a_change() {
    let (mut bench, server) = one_server(MysqlVariables::default());
    let clients = [bench.client(0, "app"), bench.client(0, "app")];
    for changes in 0..5 {
        for client in clients {
            insert(&mut bench, client);
            insert(&mut bench, client);
        }
        assert_eq!((bench.logins, bench.user_changes), (1, changes));
        server.shared.renew();
        server.shared.renew();
    }
}

#[test]
fn who_holds_a_connection_keeps_it_as_it_is() {
    let (mut bench, server) = one_server(MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    assert!(bench.is_answered(client));
    server.shared.renew();
    insert(&mut bench, client);
    assert_eq!(bench.user_changes, 0);
    bench.query(client, "COMMIT");
    assert!(bench.is_answered(client));
    insert(&mut bench, client);
    assert_eq!(bench.user_changes, 1);
}

#[test]
fn who_comes_back_to_a_connection_that_knows_its_diagnostics_logs_in_anew() {
    let (mut bench, server) = one_server(MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.query(client, "SELECT 1 /* warns */ FROM t");
    assert!(bench.is_answered(client));
    for (renews, changes) in [(false, 0), (true, 1)] {
        if renews {
            server.shared.renew();
        }
        bench.pass_ms(1);
        bench.query(client, "SELECT @@warning_count, v /* warns */ FROM t");
        assert!(bench.is_answered(client));
        assert_eq!(bench.user_changes, changes, "{:?}", bench.log);
    }
}

#[test]
fn a_statement_about_accounts_makes_logins_outdated() {
    let statements = [
        ("GRANT SELECT ON *.* TO x", 1),
        ("REVOKE SELECT ON *.* FROM x", 1),
        ("ALTER USER x ACCOUNT LOCK", 1),
        ("DROP ROLE x", 1),
        ("FLUSH PRIVILEGES", 1),
        ("FLUSH STATUS", 0),
        ("FLUSH TABLES", 0),
        ("SET GLOBAL sql_mode = ''", 1),
        ("SET time_zone = 'x', @@GLOBAL.sql_mode = ''", 1),
        ("SET PASSWORD FOR x = 'y'", 1),
        ("SET sql_mode = ''", 0),
        ("CREATE VIEW v AS SELECT 1", 0),
        ("UPDATE user SET v = 1", 0),
        ("SELECT 'GRANT'", 0),
    ];
    for (statement, changes) in statements {
        let (mut bench, _) = one_server(MysqlVariables::default());
        let client = bench.client(0, "app");
        bench.query(client, statement);
        assert!(bench.is_answered(client), "{statement}");
        let before = bench.user_changes;
        insert(&mut bench, client);
        assert_eq!(bench.user_changes - before, changes, "{statement}");
    }
}

#[test]
fn logins_count_for_a_while() {
    let variables = MysqlVariables { login_max_age_ms: Duration::from_secs(10), ..MysqlVariables::default() };
    let (mut bench, _) = one_server(variables);
    let client = bench.client(0, "app");
    insert(&mut bench, client);
    bench.pass_ms(9_000);
    insert(&mut bench, client);
    assert_eq!(bench.user_changes, 0);
    bench.pass_ms(2_000);
    insert(&mut bench, client);
    insert(&mut bench, client);
    assert_eq!((bench.logins, bench.user_changes), (1, 1));
}
