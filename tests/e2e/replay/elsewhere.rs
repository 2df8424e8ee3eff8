//! Open transactions outlive killed writers and switchovers where the servers are no Galera cluster.

use std::error::Error;

use weir_testkit::{Account, Mysql, MysqlServer, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use super::killed_writers::{self, Numbers};
use super::{Place, REPLAYED};
use crate::admin::Admin;
use crate::commit_outcome::elsewhere::{Kind, wait_known};
use crate::replication::{PATIENCE, REPLICATION, let_move, weir_with};
use crate::switchover::{run, text, writer};

/// The cases of this module. Each has servers of its own.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("replay::in_a_group_every_commit_is_known_when_primaries_die", killed_primary),
        Case::serial("replay::a_groups_switchover_takes_transactions_along", |env| moved(env, Kind::Group)),
        Case::serial("replay::a_switchover_of_replicas_takes_transactions_along", |env| {
            moved(env, Kind::Mysql)
        }),
        Case::serial("replay::a_switchover_of_mariadb_replicas_takes_transactions_along", |env| {
            moved(env, Kind::Mariadb)
        }),
    ]
}

/// Weir in front of servers of the case's own, and the tables that cases of this subject use.
fn place<'e>(
    env: &'e Env,
    (kind, servers): (Kind, &Mysql),
    outcome: &str,
    configure: impl FnOnce(&mut WeirConfig),
) -> Result<Place<'e>, Box<dyn Error>> {
    let schema = "place".to_owned();
    servers.source().root_query(&format!(
        "CREATE DATABASE {schema}; CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL); \
         CREATE TABLE {schema}.child (t_id INT PRIMARY KEY, word VARCHAR(20)); \
         INSERT INTO {schema}.t (v) VALUES (0), (0)"
    ))?;
    servers.wait_replicated()?;
    let admin = env.free_address()?;
    let weir = weir_with(env, servers, kind.is_group(), |config| {
        let row = [
            ("hostgroup_id", hostgroup::WRITER.into()),
            ("transaction_replay", "safe".into()),
            ("deadlock_retries", 5.into()),
            ("commit_outcome", outcome.into()),
        ];
        config.push("weir_hostgroups", &row).admin(admin);
        configure(config);
    })?;
    wait_known(&weir, servers)?;
    Ok(Place { env, weir, admin: Admin::at(admin), schema })
}

fn killed_primary(env: &Env) -> CaseResult {
    // A member that is killed keeps what it has committed, as its binary log says.
    let servers = Kind::Group.start(env, "innodb-flush-log-at-trx-commit=2")?;
    let place = place(env, (Kind::Group, &servers), "marker", |_| ())?;
    let at = |address: &str| -> Result<&MysqlServer, Box<dyn Error>> {
        let mut all = servers.servers().iter();
        Ok(all.find(|server| server.addr().to_string() == address).ok_or("no such server")?)
    };
    let kill = |writer: &str| Ok(at(writer)?.kill()?);
    let start = |writer: &str| {
        at(writer)?.start()?;
        Ok(at(writer)?.join_group()?)
    };
    killed_writers::outlived(&place, true, Numbers::Clients, (&kill, &start))
}

/// The monitor's account moves the role.
fn let_monitor_move(kind: Kind, servers: &Mysql) -> CaseResult {
    let user = Account::MONITOR.user;
    match kind {
        Kind::Group => {
            let grant = format!("GRANT GROUP_REPLICATION_ADMIN, PROCESS ON *.* TO {user}@'%'");
            servers.source().root_query(&grant)?;
        }
        Kind::Mysql | Kind::Mariadb => let_move(servers, Account::MONITOR)?,
    }
    servers.wait_replicated()?;
    Ok(())
}

/// A session that stays in its transaction is not closed, nor waited for beyond the grace: its transaction goes on at the
/// next writer.
fn moved(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "")?;
    let_monitor_move(kind, &servers)?;
    let place = place(env, (kind, &servers), "marker", |config| {
        if !kind.is_group() {
            let row = [
                ("writer_hostgroup", hostgroup::WRITER.into()),
                ("replication_username", REPLICATION.user.into()),
                ("replication_password", REPLICATION.password.into()),
            ];
            config.push("weir_topology", &row);
        }
    })?;
    let hostgroup = hostgroup::WRITER.to_string();
    let is_ready = || {
        eventually("another server can be the writer", PATIENCE, || {
            Ok(run(&place.weir, &["switchover", &hostgroup, "--dry-run"])?.status.success())
        })
    };
    let mut client = place.session()?;
    for at in 0..3 {
        is_ready()?;
        let before = writer(&place.weir)?;
        client.run("BEGIN")?;
        client.run(&format!("INSERT INTO child VALUES ({at}, 'mine')"))?;
        let done = run(&place.weir, &["switchover", &hostgroup, "--grace-ms", "100"])?;
        ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        ensure!(writer(&place.weir)? != before, "the role is where it was");
        client.run(&format!("UPDATE child SET word = 'still mine' WHERE t_id = {at}"))?;
        client.run("COMMIT")?;
        let words = place.rows("SELECT word FROM child")?;
        ensure!(words == vec!["still mine"; at + 1], "not there, or twice: {words:?}");
        ensure!(place.count(REPLAYED)? == at as u64 + 1, "counted otherwise");
    }
    // What can't run again keeps its server, and the role.
    is_ready()?;
    client.run("BEGIN")?;
    client.run("CREATE TEMPORARY TABLE kept (id INT)")?;
    let refused = run(&place.weir, &["switchover", &hostgroup, "--grace-ms", "100"])?;
    ensure!(!refused.status.success(), "the role has moved under a temporary table");
    client.run("INSERT INTO kept VALUES (1)")?;
    Ok(())
}
