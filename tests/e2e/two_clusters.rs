//! One Weir in front of two clusters: what goes on in one holds up nothing in the other.

use std::error::Error;
use std::thread;

use weir_testkit::wire::Login;
use weir_testkit::{Account, Family, Mysql, MysqlServer, Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::{PATIENCE, REPLICATION, WHO, let_move};
use crate::switchover::{run, text, wait_writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![Case::serial("two_clusters::a_switchover_that_waits_holds_up_no_other_cluster", waits)]
}

/// The writer hostgroup of the Galera cluster.
const GALERA: &str = "100";
/// The writer hostgroup of the servers with replication.
const REPLICAS: i64 = 200;
/// How long the switchover of the first cluster waits: the longest that can be.
const GRACE_MS: &str = "30000";

fn weir(env: &Env, mysql: &Mysql) -> Result<Weir, Box<dyn Error>> {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    for server in mysql.servers() {
        config.server(server.addr(), REPLICAS + 1, &[]);
    }
    let groups = [("writer_hostgroup", REPLICAS.into()), ("reader_hostgroup", (REPLICAS + 1).into())];
    config.push("mysql_replication_hostgroups", &groups);
    config.user_column(Account::APP2.user, "default_hostgroup", REPLICAS);
    config.push(
        "weir_topology",
        &[
            ("writer_hostgroup", REPLICAS.into()),
            ("auto_failover", true.into()),
            ("replication_username", REPLICATION.user.into()),
            ("replication_password", REPLICATION.password.into()),
        ],
    );
    config.variable("monitor_read_only_interval", 100).variable("monitor_read_only_timeout", 300);
    config.variable("monitor_connect_timeout", 300).variable("connect_timeout_server_max", 60_000);
    Ok(env.weir_with(&config)?)
}

/// Who writes in the second cluster.
fn source(weir: &Weir) -> Result<String, Box<dyn Error>> {
    let login = Login::new(Account::APP2).schema("test");
    Ok(Session::with(weir.addr(), &login)?.value(WHO)?)
}

fn waits(env: &Env) -> CaseResult {
    let (schema, mysql) = (env.schema()?, env.own_servers(Family::Mariadb, 3, false)?);
    let_move(&mysql, Account::MONITOR)?;
    mysql.wait_replicated()?;
    let weir = weir(env, &mysql)?;
    wait_writer(&weir)?;
    Session::open(weir.addr(), &schema)?.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)")?;
    let first = source(&weir)?;
    wait_ready(&weir)?;
    meanwhile(&weir, &schema, || {
        let done = run(&weir, &["switchover", &REPLICAS.to_string(), "--grace-ms", "8000"])?;
        ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        Ok(())
    })?;
    let second = source(&weir)?;
    ensure!(second != first, "the source has not moved");
    wait_ready(&weir)?;
    let is_source =
        |server: &&MysqlServer| server.root_query(WHO).is_ok_and(|rows| rows.concat().concat() == second);
    let lost = mysql.servers().iter().find(is_source).ok_or("no such server")?;
    meanwhile(&weir, &schema, || {
        lost.kill()?;
        // 5 s after that was seen; longer only where the machine is busy.
        eventually("a replica is the source", PATIENCE, || {
            Ok(source(&weir).is_ok_and(|third| third != second))
        })
    })
}

/// Waits until another server can be the source of the second cluster.
fn wait_ready(weir: &Weir) -> CaseResult {
    eventually("another server can be the source", PATIENCE, || {
        Ok(run(weir, &["switchover", &REPLICAS.to_string(), "--dry-run"])?.status.success())
    })
}

/// Does something while a switchover of the first cluster waits for a transaction.
fn meanwhile(weir: &Weir, schema: &str, act: impl FnOnce() -> CaseResult) -> CaseResult {
    let begun = || weir.log().matches("switchover begins hostgroup=100").count();
    let before = begun();
    let mut inside = Session::open(weir.addr(), schema)?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO t VALUES ()")?;
    thread::scope(|scope| -> CaseResult {
        let waiting = scope.spawn(|| {
            run(weir, &["switchover", GALERA, "--grace-ms", GRACE_MS]).map_err(|error| error.to_string())
        });
        eventually("the switchover waits", PATIENCE, || Ok(begun() > before || waiting.is_finished()))?;
        let acted = act();
        let has_waited = !waiting.is_finished();
        inside.run("COMMIT")?;
        let done = waiting.join().map_err(|_| "the switchover has panicked")??;
        acted?;
        ensure!(has_waited && done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        Ok(())
    })
}
