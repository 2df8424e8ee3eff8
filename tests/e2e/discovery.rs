//! Members of a cluster that the configuration lacks are told, or added (`auto_discover`).

use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use crate::admin::Admin;
use crate::replication::weir_with;
use crate::switchover;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("discovery::a_node_that_is_not_configured_is_told", told),
        Case::parallel("discovery::a_node_that_is_not_configured_is_added", added),
        Case::parallel("discovery::a_node_that_a_file_lacks_is_added", of_a_file),
        Case::serial("discovery::a_groups_member_that_is_not_configured_is_added", group),
    ]
}

/// Several looks.
const PATIENCE: Duration = Duration::from_secs(90);
const KNOWN: &str = "SELECT COUNT(DISTINCT hostname) FROM runtime_mysql_servers WHERE hostname <> ''";

/// Weir in front of all nodes, of which the third one is taken out of the configuration.
fn without_third(
    env: &Env,
    auto_discover: &str,
) -> Result<(Weir, Admin, String), Box<dyn std::error::Error>> {
    let admin = env.free_address()?;
    let weir = env.weir(|config| {
        let row = [("writer_hostgroup", hostgroup::WRITER.into()), ("auto_discover", auto_discover.into())];
        config.admin(admin).push("weir_topology", &row);
    })?;
    let admin = Admin::at(admin);
    let third = env.cluster()?.node(3).addr();
    admin.run(&format!("DELETE FROM mysql_servers WHERE hostname = '{}'", third.ip()))?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    eventually("it is out", PATIENCE, || Ok(admin.run(KNOWN)? == ["2"]))?;
    Ok((weir, admin, third.to_string()))
}

fn told(env: &Env) -> CaseResult {
    let (weir, admin, third) = without_third(env, "tell")?;
    weir.wait_log(&format!("not in mysql_servers hostgroup=100 server={third}"), PATIENCE)?;
    let rows =
        admin.run("SELECT hostname || ':' || port || ' ' || what FROM stats_weir_discovered_servers")?;
    ensure!(rows.len() == 1 && rows[0].starts_with(&format!("{third} a member of the cluster")), "{rows:?}");
    let status = switchover::text(&switchover::run(&weir, &["status"])?.stdout);
    ensure!(status.contains(&format!("  {third}: a member of the cluster")), "{status}");
    let json: Value = serde_json::from_slice(&switchover::run(&weir, &["status", "--json"])?.stdout)?;
    ensure!(json["clusters"][0]["discovered"][0][0] == third.as_str(), "{json}");
    ensure!(admin.run(KNOWN)? == ["2"], "it was added");
    // By a person, it is told no more.
    let (host, port) = third.split_once(':').ok_or("no port")?;
    let group = hostgroup::WRITER;
    admin.run(&format!(
        "INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES ({group}, '{host}', {port})"
    ))?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    eventually("nothing is told", PATIENCE, || {
        Ok(admin.run("SELECT COUNT(*) FROM stats_weir_discovered_servers")? == ["0"])
    })
}

/// Of a file, which nobody has loaded at the admin port, in another order than addresses have.
fn of_a_file(env: &Env) -> CaseResult {
    let (admin, cluster) = (env.free_address()?, env.cluster()?);
    let servers = [cluster.node(3).addr(), cluster.node(1).addr()];
    let mut config = WeirConfig::for_servers(&servers, env.free_address()?);
    let row = [("writer_hostgroup", hostgroup::WRITER.into()), ("auto_discover", "follow".into())];
    config.admin(admin).push("weir_topology", &row);
    let _weir = env.weir_with(&config)?;
    let admin = Admin::at(admin);
    eventually("it is added", PATIENCE, || Ok(admin.run(KNOWN)? == ["3"]))?;
    let edited = "SELECT COUNT(*) FROM mysql_servers WHERE comment = 'found by auto_discover'";
    ensure!(admin.run(edited)? == ["1"], "it is not in what is edited");
    Ok(())
}

/// What is being edited meanwhile stays, and does not come into force.
fn added(env: &Env) -> CaseResult {
    let (_weir, admin, third) = without_third(env, "follow")?;
    let first = env.cluster()?.node(1).addr().ip().to_string();
    admin.run(&format!("UPDATE mysql_servers SET weight = 7 WHERE hostname = '{first}'"))?;
    eventually("it is added", PATIENCE, || Ok(admin.run(KNOWN)? == ["3"]))?;
    let (host, _) = third.split_once(':').ok_or("no port")?;
    let row = format!("SELECT comment FROM mysql_servers WHERE hostname = '{host}'");
    ensure!(admin.run(&row)? == ["found by auto_discover"], "it is not in what is edited");
    let edited = format!("SELECT weight FROM mysql_servers WHERE hostname = '{first}'");
    ensure!(admin.run(&edited)? == ["7"], "what was edited is gone");
    let in_force = format!(
        "SELECT DISTINCT weight FROM runtime_mysql_servers WHERE hostname = '{first}' AND weight = 7"
    );
    ensure!(admin.run(&in_force)?.is_empty(), "what was edited is in force");
    eventually("it reads", PATIENCE, || {
        let sql = format!(
            "SELECT status FROM runtime_mysql_servers WHERE hostname = '{host}' AND hostgroup_id = {}",
            hostgroup::READER
        );
        Ok(admin.run(&sql)? == ["ONLINE"])
    })?;
    ensure!(admin.run("SELECT COUNT(*) FROM stats_weir_discovered_servers")? == ["0"], "it is still told");
    Ok(())
}

fn group(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let admin = env.free_address()?;
    let _weir = weir_with(env, &mysql, true, |config| {
        let row = [("writer_hostgroup", hostgroup::WRITER.into()), ("auto_discover", "follow".into())];
        config.admin(admin).push("weir_topology", &row);
    })?;
    let admin = Admin::at(admin);
    let third = mysql.server(3).addr();
    // Members have one host here, or several.
    let of_third = format!("hostname = '{}' AND port = {}", third.ip(), third.port());
    admin.run(&format!("DELETE FROM mysql_servers WHERE {of_third}"))?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    let count =
        format!("SELECT COUNT(*) > 0 FROM runtime_mysql_servers WHERE {of_third} AND status = 'ONLINE'");
    eventually("it is out", PATIENCE, || Ok(admin.run(&count)? == ["0"]))?;
    eventually("it is added, and reads", PATIENCE, || Ok(admin.run(&count)? == ["1"]))
}
