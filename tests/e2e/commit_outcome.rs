//! A COMMIT whose answer is lost with its server: with `commit_outcome = 'marker'` its client is told what has become of it.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

use weir_testkit::wire::Login;
use weir_testkit::{Account, OUTCOMES_TABLE, Weir, WeirConfig, hostgroup};

use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use crate::admin::Admin;
use crate::failover_basic::writer_name;
use crate::replay::{self, Place, error_of};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commit_outcome::what_was_carried_out_is_told_as_such", carried_out),
        Case::parallel("commit_outcome::what_was_not_runs_again_or_is_told", not_carried_out),
        Case::parallel("commit_outcome::without_rights_nothing_is_marked", without_rights),
        Case::serial("commit_outcome::every_commit_is_known_when_writers_die", |env| {
            replay::killed_writer(env, true)
        }),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);
const DEADLOCK: u16 = 1213;
const MARK: &[u8] = b"/* cut */";
pub(crate) const COMMIT: &str = "COMMIT /* cut */";

/// Makes the table of markers, unless it is there: Galera undoes transactions that write to it while it is made once more.
fn make_outcomes_table(env: &Env) -> CaseResult {
    static MAKING: Mutex<()> = Mutex::new(());
    let _alone = MAKING.lock().map_err(|_| "another case has failed")?;
    let node = env.cluster()?.node(1);
    let sql =
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'weir' AND TABLE_NAME = 'outcomes'";
    if node.root_query(sql)?.is_empty() {
        node.root_query(OUTCOMES_TABLE)?;
    }
    Ok(())
}

/// A Weir whose way to the writer, n2, breaks when a COMMIT of this kind has passed it, and before its answer does; or
/// before that. `configure` says more of its configuration.
pub(crate) fn cutting(
    env: &Env,
    after_bytes: Option<usize>,
    outcome: &str,
    bytes_max: i64,
    configure: impl FnOnce(&mut WeirConfig),
) -> Result<(Weir, Forwarder, Admin, String), Box<dyn Error>> {
    let cluster = env.cluster()?;
    let schema = env.schema()?;
    make_outcomes_table(env)?;
    env.wait_applied()?;
    let way = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
    let forwarder = Forwarder::start_with_cut(way, cluster.node(2).addr(), Cut { mark: MARK, after_bytes })?;
    let mut config = WeirConfig::for_servers(&[], env.free_address()?);
    for (address, weight) in [(way, 1000), (cluster.node(1).addr(), 1), (cluster.node(3).addr(), 1)] {
        config.server(address, hostgroup::WRITER, &[("weight", weight.into())]);
    }
    let admin = env.free_address()?;
    config.admin(admin).variable("threads", 1);
    let row = [
        ("hostgroup_id", hostgroup::WRITER.into()),
        ("transaction_replay_max_bytes", bytes_max.into()),
        ("commit_outcome", outcome.into()),
    ];
    config.push("weir_hostgroups", &row);
    configure(&mut config);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    eventually("n2 writes", PATIENCE, || Ok(writer_name(&mut session)? == "n2"))?;
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20))")?;
    Ok((weir, forwarder, Admin::at(admin), schema))
}

fn count(admin: &Admin, name: &str) -> Result<u64, Box<dyn Error>> {
    let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = '{name}'");
    Ok(admin.run(&sql)?.concat().parse()?)
}

fn words(weir: &Weir, schema: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut session = Session::open(weir.addr(), schema)?;
    Ok(session.rows("SELECT word FROM t ORDER BY id FOR UPDATE")?.concat())
}

fn carried_out(env: &Env) -> CaseResult {
    for bytes_max in [0, 64 << 10] {
        let (weir, forwarder, admin, schema) = cutting(env, Some(0), "marker", bytes_max, |_| ())?;
        let mut session = Session::open(weir.addr(), &schema)?;
        for (round, begin) in ["BEGIN", "SET autocommit = 0", "DO 0"].into_iter().enumerate() {
            session.run(begin)?;
            session.run(&format!("INSERT INTO t (word) VALUES ('{begin}')"))?;
            session.run(COMMIT)?;
            ensure!(
                forwarder.cuts() as usize == round + 1,
                "{begin}: the way was cut {} times",
                forwarder.cuts()
            );
            ensure!(count(&admin, "Weir_outcomes_committed")? as usize == round + 1, "another answer");
        }
        ensure!(session.value("SELECT @@autocommit")? == "0", "the session is another one");
        session.run("COMMIT")?;
        let there = words(&weir, &schema)?;
        ensure!(there == ["BEGIN", "SET autocommit = 0", "DO 0"], "{there:?}");
        ensure!(count(&admin, "Weir_transactions_replayed")? == 0, "one has run again");
        // What has written nothing needs no row, and is not asked for: it is done either way.
        let asked = count(&admin, "Weir_outcomes_asked")?;
        session.value("SELECT COUNT(*) FROM t")?;
        let told = session.query(COMMIT);
        ensure!(count(&admin, "Weir_outcomes_asked")? == asked, "asked for a read: {told:?}");
    }
    let (weir, _forwarder, _, schema) = cutting(env, Some(0), "off", 64 << 10, |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("BEGIN")?;
    session.run("INSERT INTO t (word) VALUES ('x')")?;
    let told = error_of(&session.query(COMMIT)?);
    ensure!(told.as_ref().is_some_and(|told| told.1 == "08007"), "{told:?}");
    Ok(())
}

/// The COMMIT does not reach the writer, which nobody but the writer knows.
fn not_carried_out(env: &Env) -> CaseResult {
    for bytes_max in [64 << 10, 0] {
        let (weir, forwarder, admin, schema) = cutting(env, None, "marker", bytes_max, |_| ())?;
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("BEGIN")?;
        session.run("INSERT INTO t (word) VALUES ('first')")?;
        // It is cut as often as it is sent.
        let told = error_of(&session.query(COMMIT)?);
        ensure!(forwarder.cuts() >= 1, "the way is whole");
        let asked = count(&admin, "Weir_outcomes_asked")?;
        ensure!(asked == u64::from(forwarder.cuts()), "asked {asked} times for {}", forwarder.cuts());
        ensure!(count(&admin, "Weir_outcomes_committed")? == 0, "it was carried out");
        ensure!(words(&weir, &schema)?.is_empty(), "it is there");
        ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{told:?}");
        let replayed = count(&admin, "Weir_transactions_replayed")?;
        ensure!(replayed == if bytes_max == 0 { 0 } else { asked - 1 }, "{replayed} times for {asked}");
        session.run("BEGIN")?;
        session.run("INSERT INTO t (word) VALUES ('second')")?;
        session.run("COMMIT")?;
        ensure!(words(&weir, &schema)? == ["second"], "it is not there");
    }
    Ok(())
}

fn without_rights(env: &Env) -> CaseResult {
    let place = Place::with(env, 64 << 10, "marker")?;
    let cluster = env.cluster()?;
    make_outcomes_table(env)?;
    cluster
        .node(1)
        .root_query("GRANT ALL ON limited.* TO limited@'%'; CREATE DATABASE IF NOT EXISTS limited")?;
    env.wait_applied()?;
    let mut session = Session::with(place.weir.addr(), &Login::new(Account::LIMITED).schema("limited"))?;
    session.run("CREATE TABLE IF NOT EXISTS outcome_rights (id INT PRIMARY KEY)")?;
    session.run("BEGIN")?;
    session.run("REPLACE INTO outcome_rights VALUES (1)")?;
    session.run("COMMIT")?;
    ensure!(session.value("SELECT COUNT(*) FROM outcome_rights")? == "1", "not committed");
    ensure!(place.count("Weir_outcome_markers_refused")? == 1, "counted otherwise");
    place.weir.wait_log("can't write to weir.outcomes", PATIENCE)?;
    session.run("DROP TABLE outcome_rights")?;
    Ok(())
}
