//! Several proxies with one configuration: what is loaded on one of them reaches the others.

use std::net::SocketAddrV4;
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use crate::admin::Admin;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("proxies::what_is_loaded_on_one_reaches_all", reaches_all),
        Case::parallel("proxies::who_was_away_catches_up_and_does_not_win", catches_up),
        Case::parallel("proxies::what_a_proxy_can_t_take_stays_out", stays_out),
    ]
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy of the cluster.
struct Proxy {
    weir: Option<Weir>,
    config: WeirConfig,
    admin: Admin,
}

/// Three proxies without servers that know each other.
fn three(env: &Env) -> Result<Vec<Proxy>> {
    let admins: Vec<SocketAddrV4> =
        (0..3).map(|_| env.free_address()).collect::<std::result::Result<_, _>>()?;
    let mut proxies = Vec::new();
    for addr in &admins {
        let mut config = WeirConfig::new(env.free_address()?);
        config.admin(*addr);
        config.admin_variable("admin_credentials", "admin:admin;peer:of-the-cluster");
        config.admin_variable("cluster_username", "peer");
        config.admin_variable("cluster_password", "of-the-cluster");
        config.admin_variable("cluster_check_interval_ms", 100);
        for module in ["mysql_servers", "mysql_users", "mysql_query_rules", "mysql_variables"] {
            config.admin_variable(&format!("cluster_{module}_diffs_before_sync"), 2);
        }
        for other in &admins {
            let row = [("hostname", other.ip().to_string().into()), ("port", i64::from(other.port()).into())];
            config.push("proxysql_servers", &row);
        }
        let weir = Some(env.weir_with(&config)?);
        proxies.push(Proxy { weir, config, admin: Admin::at(*addr) });
    }
    Ok(proxies)
}

/// Waits until a query gives the same single value on some proxies.
fn all_show(proxies: &[&Proxy], query: &str, wanted: &str) -> CaseResult {
    eventually(&format!("{query} gives {wanted}"), PATIENCE, || {
        Ok(proxies.iter().all(|proxy| proxy.admin.run(query).is_ok_and(|rows| rows == [wanted])))
    })?;
    Ok(())
}

fn reaches_all(env: &Env) -> CaseResult {
    let proxies = three(env)?;
    let [a, b, c] = proxies.as_slice() else { return Err("three proxies".into()) };
    a.admin.run(
        "INSERT INTO mysql_users (username, password) VALUES ('shop', 'secret'); LOAD MYSQL USERS TO RUNTIME;
         INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (7, '127.0.0.1', 1);
         LOAD MYSQL SERVERS TO RUNTIME",
    )?;
    all_show(&[b, c], "SELECT GROUP_CONCAT(username) FROM runtime_mysql_users", "shop")?;
    all_show(&[b, c], "SELECT hostname FROM runtime_weir_loaded_servers", "127.0.0.1")?;
    all_show(&[b, c], "SELECT hostname FROM mysql_servers", "127.0.0.1")?;
    all_show(&[b, c], "SELECT username FROM disk.mysql_users", "shop")?;
    // From another one, and what is of one machine stays there.
    b.admin.run("SET mysql-max_connections=777; SET mysql-threads=3; LOAD MYSQL VARIABLES TO RUNTIME")?;
    let value = |name: &str| {
        format!("SELECT variable_value FROM runtime_global_variables WHERE variable_name = '{name}'")
    };
    all_show(&[a, c], &value("mysql-max_connections"), "777")?;
    for other in [a, c] {
        let own = &other.admin;
        ensure!(own.run(&value("mysql-threads"))? != ["3"], "the number of threads was taken over");
        ensure!(
            own.run(&value("mysql-interfaces"))? != b.admin.run(&value("mysql-interfaces"))?,
            "addresses too"
        );
    }
    let sums = "SELECT GROUP_CONCAT(checksum) FROM (SELECT checksum FROM runtime_checksums_values WHERE name IN \
                ('mysql_users','mysql_servers','mysql_variables','proxysql_servers') ORDER BY name)";
    let sum = a.admin.run(sums)?;
    ensure!(sum == b.admin.run(sums)? && sum == c.admin.run(sums)?, "checksums differ");
    let seen =
        "SELECT COUNT(DISTINCT checksum) FROM stats_proxysql_servers_checksums WHERE name = 'mysql_users'";
    all_show(&[a, b, c], seen, "1")
}

fn catches_up(env: &Env) -> CaseResult {
    let mut proxies = three(env)?;
    let users = "SELECT GROUP_CONCAT(username) FROM (SELECT username FROM runtime_mysql_users ORDER BY 1)";
    proxies[0].admin.run("INSERT INTO mysql_users (username) VALUES ('old'); LOAD MYSQL USERS TO RUNTIME")?;
    all_show(&proxies.iter().collect::<Vec<_>>(), users, "old")?;
    proxies[2].weir = None;
    proxies[0].admin.run(
        "DELETE FROM mysql_users; INSERT INTO mysql_users (username) VALUES ('new'); LOAD MYSQL USERS TO RUNTIME",
    )?;
    all_show(&[&proxies[1]], users, "new")?;
    // Comes back with its file, in which there is yet another user that nobody has ever loaded.
    proxies[2].config.push("mysql_users", &[("username", "file".into()), ("default_hostgroup", 7.into())]);
    proxies[2].config.push("mysql_servers", &[("hostgroup_id", 7.into()), ("hostname", "127.0.0.1".into())]);
    proxies[2].weir = Some(env.weir_with(&proxies[2].config)?);
    all_show(&proxies.iter().collect::<Vec<_>>(), users, "new")?;
    // What is loaded last wins, wherever that is.
    proxies[2]
        .admin
        .run("INSERT INTO mysql_users (username) VALUES ('third'); LOAD MYSQL USERS TO RUNTIME")?;
    all_show(&proxies.iter().collect::<Vec<_>>(), users, "new,third")
}

fn stays_out(env: &Env) -> CaseResult {
    let proxies = three(env)?;
    let [a, b, _] = proxies.as_slice() else { return Err("three proxies".into()) };
    // Who does not follow a module keeps its own.
    b.admin.run("SET admin-cluster_mysql_users_diffs_before_sync=0; LOAD ADMIN VARIABLES TO RUNTIME")?;
    let follows = "SELECT variable_value FROM runtime_global_variables WHERE variable_name = \
                   'admin-cluster_mysql_users_diffs_before_sync'";
    all_show(&proxies.iter().collect::<Vec<_>>(), follows, "0")?;
    a.admin.run(
        "INSERT INTO mysql_users (username) VALUES ('own'); LOAD MYSQL USERS TO RUNTIME;
         INSERT INTO mysql_query_rules (rule_id, active, match_digest, apply) VALUES (1, 1, 'x', 1);
         LOAD MYSQL QUERY RULES TO RUNTIME",
    )?;
    all_show(&proxies.iter().collect::<Vec<_>>(), "SELECT rule_id FROM runtime_mysql_query_rules", "1")?;
    ensure!(b.admin.run("SELECT username FROM runtime_mysql_users")?.is_empty(), "the users were taken over");
    Ok(())
}
