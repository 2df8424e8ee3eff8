//! Several proxies with one configuration: what is loaded on one of them reaches the others.

use std::net::SocketAddrV4;
use std::process::Command;
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
        Case::parallel("proxies::passwords_go_over_tls_only", over_tls_only),
        Case::parallel("proxies::certificates_of_proxies_are_verified", certificates_verified),
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
    three_with(env, |_, _| ())
}

/// The same with a configuration that `change` may change; it gets the proxy's number.
fn three_with(env: &Env, change: impl Fn(usize, &mut WeirConfig)) -> Result<Vec<Proxy>> {
    let admins: Vec<SocketAddrV4> =
        (0..3).map(|_| env.free_address()).collect::<std::result::Result<_, _>>()?;
    let mut proxies = Vec::new();
    for (number, addr) in admins.iter().enumerate() {
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
        change(number, &mut config);
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

const SECRET: &str = "of-an-account-with-super";
const ASSIST: &str = "SELECT assist_password FROM weir_topology";

/// Loads a cluster whose row has a password.
fn load_secret(proxy: &Proxy) -> CaseResult {
    proxy.admin.run(&format!(
        "INSERT INTO mysql_galera_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, \
         offline_hostgroup) VALUES (100, 101, 102, 9101); INSERT INTO weir_topology (writer_hostgroup, \
         assist_username, assist_password) VALUES (100, 'evicts', '{SECRET}'); LOAD MYSQL SERVERS TO RUNTIME"
    ))?;
    Ok(())
}

/// The log of a proxy tells of this, and it has not taken over anything.
fn refuses(proxy: &Proxy, because: &str) -> CaseResult {
    proxy.weir.as_ref().ok_or("it does not run")?.wait_log(because, PATIENCE)?;
    ensure!(proxy.admin.run(ASSIST)?.is_empty(), "it was taken over all the same");
    Ok(())
}

fn over_tls_only(env: &Env) -> CaseResult {
    // Whoever is between the second proxy and the first; and the first one offers no TLS.
    let proxies = three_with(env, |number, config| {
        config.variable("have_ssl", number != 0);
    })?;
    let [a, b, c] = proxies.as_slice() else { return Err("three proxies".into()) };
    load_secret(a)?;
    for other in [b, c] {
        refuses(other, "the server offers no TLS: set mysql-have_ssl there")?;
    }
    // Nor is it told to one that asks in clear.
    let options = |tls: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-upeer", "-pof-the-cluster", "-h127.0.0.1", "--protocol=tcp", tls]);
        client.arg(format!("-P{}", b.admin.addr().port())).args(["-e", "SELECT 'let' || ' in'"]);
        client.output()
    };
    let refused = options("--skip-ssl")?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && said.contains("ERROR 3159"), "{refused:?}");
    let taken = options("--ssl")?;
    ensure!(String::from_utf8_lossy(&taken.stdout).contains("let in"), "{taken:?}");
    // Unless both are told so.
    for proxy in [a, b] {
        proxy.admin.run("SET admin-cluster_ssl_mode='DISABLED'; LOAD ADMIN VARIABLES TO RUNTIME")?;
    }
    all_show(&[b], ASSIST, SECRET)?;
    Ok(())
}

fn certificates_verified(env: &Env) -> CaseResult {
    let dir = env.dir()?.join("certificates-of-proxies");
    std::fs::create_dir_all(&dir)?;
    let path = |name: &str| dir.join(name).display().to_string();
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority of the proxies");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(path("ca.pem"), params.self_signed(&key)?.pem())?;
    let authority = rcgen::Issuer::new(params, key);
    // The first is named in its certificate, the second is another one of the authority's.
    for (number, name) in ["127.0.0.1", "somebody.example"].into_iter().enumerate() {
        let key = rcgen::KeyPair::generate()?;
        let cert = rcgen::CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &authority)?;
        std::fs::write(path(&format!("cert{number}.pem")), cert.pem())?;
        std::fs::write(path(&format!("key{number}.pem")), key.serialize_pem())?;
    }
    let proxies = three_with(env, |number, config| {
        config.admin_variable("cluster_ssl_mode", if number == 2 { "VERIFY_IDENTITY" } else { "VERIFY_CA" });
        config.admin_variable("cluster_ssl_ca", path("ca.pem"));
        config.admin_variable("cluster_admin_variables_diffs_before_sync", 0);
        // The third has made a certificate for itself.
        if number < 2 {
            config.variable("tls_cert_file", path(&format!("cert{number}.pem")));
            config.variable("tls_key_file", path(&format!("key{number}.pem")));
        }
    })?;
    let [a, b, c] = proxies.as_slice() else { return Err("three proxies".into()) };
    let at = |proxy: &Proxy| format!("from=\"{}\" error=", proxy.admin.addr());
    let untrusted = |log: &str, of: &Proxy, why: &str| {
        log.lines().any(|line| line.contains(&at(of)) && line.contains(why))
    };
    for (proxy, of, why) in [(a, c, "UnknownIssuer"), (b, c, "UnknownIssuer"), (c, b, "not valid for name")] {
        let weir = proxy.weir.as_ref().ok_or("it does not run")?;
        eventually(why, PATIENCE, || Ok(untrusted(&weir.log(), of, why)))?;
    }
    load_secret(a)?;
    all_show(&[b, c], ASSIST, SECRET)
}
