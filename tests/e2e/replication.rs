//! MySQL Group Replication, and a source with a replica: who writes, who reads, and what of it a client notices.

use std::error::Error;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use toml_edit::Value;
use weir_testkit::{Account, Family, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::switchover::reasons;

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("replication::writes_follow_read_only_and_wait_meanwhile", |env| {
            read_only_moves(env, Family::Mysql)
        }),
        Case::serial("replication::writes_follow_read_only_on_mariadb", |env| {
            read_only_moves(env, Family::Mariadb)
        }),
        Case::serial("replication::reads_see_their_sessions_writes_also_from_a_slow_replica", |env| {
            own_writes(env, Family::Mysql)
        }),
        Case::serial("replication::reads_see_their_sessions_writes_on_mariadb", |env| {
            own_writes(env, Family::Mariadb)
        }),
        Case::serial("replication::a_replica_that_is_too_late_does_not_read", |env| {
            late_replica(env, Family::Mysql)
        }),
        Case::serial("replication::a_mariadb_replica_that_is_too_late_does_not_read", |env| {
            late_replica(env, Family::Mariadb)
        }),
        Case::serial("replication::an_old_source_that_comes_back_writable_gets_nothing", |env| {
            old_source_returns(env, Family::Mysql)
        }),
        Case::serial("replication::an_old_mariadb_source_that_comes_back_writable_gets_nothing", |env| {
            old_source_returns(env, Family::Mariadb)
        }),
        Case::serial("replication::a_group_moves_its_primary", primary_moves),
        Case::serial("replication::a_group_gets_over_a_killed_primary", primary_killed),
    ]
}

/// What takes servers and machine long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const WRITERS: usize = 4;
const ROUNDS: usize = 200;
/// Replicates.
pub(crate) const REPLICATION: Account = Account { user: "replication", password: "replication" };
/// Which server answers: goes to the writer.
pub(crate) const WHO: &str = "SELECT @@server_id";

/// The same, and goes to a reader.
fn who_reads(family: Family) -> String {
    let table = match family {
        Family::Mysql => "performance_schema.global_variables",
        Family::Mariadb => "information_schema.GLOBAL_VARIABLES",
    };
    format!("SELECT VARIABLE_VALUE FROM {table} WHERE VARIABLE_NAME = 'server_id'")
}

/// A Weir in front of a source and its replicas, or of a group.
pub(crate) fn weir(env: &Env, mysql: &Mysql, group: bool) -> Result<Weir, Box<dyn Error>> {
    weir_with(env, mysql, group, |_| {})
}

/// The same with a change of its configuration.
pub(crate) fn weir_with(
    env: &Env,
    mysql: &Mysql,
    group: bool,
    change: impl FnOnce(&mut WeirConfig),
) -> Result<Weir, Box<dyn Error>> {
    let mut config = WeirConfig::new(env.free_address()?);
    for server in mysql.servers() {
        let lag: &[_] = if group { &[] } else { &[("max_replication_lag", 3.into())] };
        config.server(server.addr(), hostgroup::WRITER, lag);
    }
    let mut row =
        vec![("writer_hostgroup", hostgroup::WRITER.into()), ("reader_hostgroup", hostgroup::READER.into())];
    if group {
        row.push(("backup_writer_hostgroup", hostgroup::BACKUP_WRITER.into()));
        row.push(("offline_hostgroup", hostgroup::OFFLINE.into()));
    }
    let table = if group { "mysql_group_replication_hostgroups" } else { "mysql_replication_hostgroups" };
    config.push(table, &row).user(Account::APP, hostgroup::WRITER, &[]);
    config.monitor(Account::MONITOR);
    config.variable("monitor_writer_is_also_reader", false);
    config.variable("connect_timeout_server_max", 60_000).variable("threads", 2);
    change(&mut config);
    let weir = env.weir_with(&config)?;
    Session::open(weir.addr(), "test")?
        .run("CREATE TABLE IF NOT EXISTS numbers (writer INT, number INT, PRIMARY KEY (writer, number))")?;
    Ok(weir)
}

/// Lets an account make another server the source.
pub(crate) fn let_move(mysql: &Mysql, account: Account) -> CaseResult {
    let privileges = match mysql.family() {
        Family::Mysql => "SYSTEM_VARIABLES_ADMIN, REPLICATION_SLAVE_ADMIN, REPLICATION CLIENT, RELOAD",
        Family::Mariadb => "READ_ONLY ADMIN, REPLICATION SLAVE ADMIN, REPLICA MONITOR, RELOAD",
    };
    mysql.source().root_query(&format!("GRANT {privileges} ON *.* TO {}@'%'", account.user))?;
    Ok(())
}

/// A configuration for a source and its replicas whose role the monitor moves, and that is soon seen; `more` are further
/// columns of `weir_topology`.
pub(crate) fn monitor_moves(
    env: &Env,
    servers: &[SocketAddrV4],
    more: &[(&str, Value)],
) -> Result<WeirConfig, Box<dyn Error>> {
    let mut config = WeirConfig::new(env.free_address()?);
    for server in servers {
        config.server(*server, hostgroup::READER, &[]);
    }
    let groups =
        [("writer_hostgroup", hostgroup::WRITER.into()), ("reader_hostgroup", hostgroup::READER.into())];
    config.push("mysql_replication_hostgroups", &groups).user(Account::APP, hostgroup::WRITER, &[]);
    let mut row = vec![
        ("writer_hostgroup", hostgroup::WRITER.into()),
        ("replication_username", REPLICATION.user.into()),
        ("replication_password", REPLICATION.password.into()),
    ];
    row.extend_from_slice(more);
    config.push("weir_topology", &row).monitor(Account::MONITOR);
    config.variable("monitor_read_only_interval", 100).variable("monitor_read_only_timeout", 300);
    config.variable("connect_timeout_server_max", 60_000).variable("threads", 2);
    Ok(config)
}

pub(crate) fn id(mysql: &Mysql, server: usize) -> Result<String, Box<dyn Error>> {
    Ok(mysql.server(server).root_query(WHO)?.concat().concat())
}

/// Where a session of its own writes now.
pub(crate) fn writer(weir: &Weir) -> Result<String, Box<dyn Error>> {
    Ok(Session::open(weir.addr(), "test")?.value(WHO)?)
}

/// Where sessions without writes read within some statements.
pub(crate) fn readers(weir: &Weir, mysql: &Mysql) -> Result<Vec<String>, Box<dyn Error>> {
    let mut session = Session::open(weir.addr(), "test")?;
    // Statement by statement: at other levels a session stays with its reader for a while.
    session.run("SET weir_consistency = eventual")?;
    let mut found =
        (0..12).map(|_| session.value(&who_reads(mysql.family()))).collect::<Result<Vec<_>, _>>()?;
    found.sort();
    found.dedup();
    Ok(found)
}

/// What a session that writes met with.
#[derive(Debug)]
pub(crate) struct Written {
    /// Rows that were acknowledged.
    pub(crate) rows: u64,
    /// What ended it before its time.
    pub(crate) error: Option<String>,
}

/// Writes numbered rows until it is told to stop. Each is read back at once.
fn write(weir: &Weir, writer: usize, in_transactions: bool, stop: &AtomicBool) -> Written {
    let mut rows = 0;
    let mut all = || -> Result<(), Box<dyn Error>> {
        let mut session = Session::open(weir.addr(), "test")?;
        while !stop.load(Ordering::Relaxed) {
            let insert = format!("INSERT INTO numbers VALUES ({writer}, {rows})");
            if in_transactions && rows % 2 == 0 {
                session.run("BEGIN")?;
                session.run(&insert)?;
                session.value("SELECT COUNT(*) FROM numbers WHERE number = 0")?;
                session.run("COMMIT")?;
            } else {
                session.run(&insert)?;
            }
            rows += 1;
            let seen = session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {writer}"))?;
            ensure!(seen == rows.to_string(), "{rows} rows written, {seen} seen");
        }
        Ok(())
    };
    let error = all().err().map(|error| error.to_string());
    Written { rows, error }
}

/// Something happens while sessions write and read what they have written; returns what each of them met with.
pub(crate) fn under_load(
    weir: &Weir,
    happen: impl FnOnce() -> CaseResult,
) -> Result<Vec<Written>, Box<dyn Error>> {
    load(&[weir], false, happen)
}

/// The same with as many sessions of each of several Weirs, which also write in transactions.
pub(crate) fn under_load_of(
    weirs: &[&Weir],
    happen: impl FnOnce() -> CaseResult,
) -> Result<Vec<Written>, Box<dyn Error>> {
    load(weirs, true, happen)
}

fn load(
    weirs: &[&Weir],
    in_transactions: bool,
    happen: impl FnOnce() -> CaseResult,
) -> Result<Vec<Written>, Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let writers = (0..WRITERS * weirs.len()).map(|at| (at, weirs[at / WRITERS]));
        let threads: Vec<_> =
            writers.map(|(at, weir)| scope.spawn(move || write(weir, at, in_transactions, stop))).collect();
        thread::sleep(Duration::from_millis(500));
        let happened = happen();
        stop.store(true, Ordering::Relaxed);
        let mut results = Vec::new();
        for thread in threads {
            results.push(thread.join().map_err(|_| "a writer has panicked")?);
        }
        happened.map(|()| results)
    })
}

fn read_only_moves(env: &Env, family: Family) -> CaseResult {
    let mysql = env.own_servers(family, 2, false)?;
    let weir = weir(env, &mysql, false)?;
    let (source, replica) = (id(&mysql, 1)?, id(&mysql, 2)?);
    ensure!(writer(&weir)? == source, "the source does not write");
    eventually("the replica reads", PATIENCE, || Ok(readers(&weir, &mysql)? == [replica.clone()]))?;
    mysql.server(1).root_query(match family {
        Family::Mysql => "SET GLOBAL super_read_only = ON",
        Family::Mariadb => "SET GLOBAL read_only = ON",
    })?;
    mysql.wait_replicated()?;
    eventually("the monitor has seen that there is no writer", PATIENCE, || {
        Ok(weir.log().contains("lost the writer"))
    })?;
    thread::scope(|scope| {
        let mut waits = None;
        // Workers go by the new roles some moments after these were logged.
        eventually("a statement for the writer waits", PATIENCE, || {
            let asked = scope.spawn(|| writer(&weir).map_err(|error| error.to_string()));
            thread::sleep(Duration::from_millis(300));
            if asked.is_finished() {
                let answered = asked.join().map_err(|_| "the writer has panicked")??;
                ensure!(answered == source, "{answered} has answered");
                return Ok(false);
            }
            waits = Some(asked);
            Ok(true)
        })?;
        let waiting = waits.ok_or("nothing waits")?;
        let promote = "STOP REPLICA; SET GLOBAL read_only = OFF";
        mysql.server(2).root_query(promote)?;
        let written = waiting.join().map_err(|_| "the writer has panicked")??;
        ensure!(written == replica, "written to {written}");
        Ok(())
    })
}

fn own_writes(env: &Env, family: Family) -> CaseResult {
    let mysql = env.own_servers(family, 2, false)?;
    let weir = weir(env, &mysql, false)?;
    let mut session = Session::open(weir.addr(), "test")?;
    for round in 0..ROUNDS {
        // From time to time the replica stands still.
        match round % 40 {
            10 => drop(mysql.server(2).root_query("STOP REPLICA SQL_THREAD")?),
            20 => drop(mysql.server(2).root_query("START REPLICA SQL_THREAD")?),
            _ => {}
        }
        session.run(&format!("INSERT INTO numbers VALUES (0, {round})"))?;
        let seen = session.value("SELECT COUNT(*) FROM numbers")?;
        ensure!(seen == (round + 1).to_string(), "{} rows written, {seen} seen", round + 1);
    }
    Ok(())
}

fn late_replica(env: &Env, family: Family) -> CaseResult {
    let mysql = env.own_servers(family, 2, false)?;
    let weir = weir(env, &mysql, false)?;
    let (source, replica) = (id(&mysql, 1)?, id(&mysql, 2)?);
    eventually("the replica reads", PATIENCE, || Ok(readers(&weir, &mysql)? == [replica.clone()]))?;
    mysql.server(2).root_query("STOP REPLICA SQL_THREAD")?;
    eventually("the source reads", PATIENCE, || Ok(readers(&weir, &mysql)? == [source.clone()]))?;
    mysql.server(2).root_query("START REPLICA SQL_THREAD")?;
    eventually("the replica reads again", PATIENCE, || Ok(readers(&weir, &mysql)? == [replica.clone()]))
}

/// Somebody promotes the replica of a source that was killed, and the source is started again as it was.
fn old_source_returns(env: &Env, family: Family) -> CaseResult {
    let mysql = env.own_servers(family, 2, false)?;
    let weir = weir_with(env, &mysql, false, |config| {
        config.variable("monitor_read_only_interval", 100).variable("monitor_read_only_timeout", 300);
    })?;
    let (old, new) = (id(&mysql, 1)?, id(&mysql, 2)?);
    ensure!(writer(&weir)? == old, "the source does not write");
    mysql.wait_replicated()?;
    mysql.server(1).kill()?;
    weir.wait_log("lost the writer", PATIENCE)?;
    mysql.server(2).root_query(match family {
        Family::Mysql => "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF",
        Family::Mariadb => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF",
    })?;
    ensure!(writer(&weir)? == new, "the promoted replica does not write");

    let written = under_load(&weir, || {
        mysql.server(1).start()?;
        ensure!(mysql.server(1).root_query("SELECT @@read_only")?.concat() == ["0"], "it is read_only");
        let server = mysql.server(1).addr().to_string();
        eventually("the reason is shown", PATIENCE, || {
            let reasons = reasons(&weir, &server)?;
            let wanted = format!("not read_only, but {} has replaced it", mysql.server(2).addr());
            Ok(!reasons.is_empty() && reasons.iter().all(|reason| reason.starts_with(&wanted)))
        })?;
        for _ in 0..100 {
            ensure!(writer(&weir)? == new, "the old source is written to");
        }
        Ok(())
    })?;
    ensure!(written.iter().all(|written| written.error.is_none()), "{written:?}");
    ensure!(written.iter().all(|written| written.rows > 0), "{written:?}");
    let rows = "SELECT COUNT(*) FROM test.numbers";
    ensure!(mysql.server(1).root_query(rows)?.concat() == ["0"], "the old source has got rows");
    let all: u64 = written.iter().map(|written| written.rows).sum();
    ensure!(mysql.server(2).root_query(rows)?.concat() == [all.to_string()], "rows are missing");
    // Somebody decides.
    mysql.server(1).root_query("SET GLOBAL read_only = ON")?;
    eventually("the old source reads", PATIENCE, || Ok(readers(&weir, &mysql)?.contains(&old)))
}

fn primary_moves(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir(env, &mysql, true)?;
    let second = id(&mysql, 2)?;
    ensure!(writer(&weir)? == id(&mysql, 1)?, "the primary does not write");
    let uuid = mysql.server(2).root_query("SELECT @@server_uuid")?.concat().concat();
    mysql.server(1).root_query(&format!("SELECT group_replication_set_as_primary('{uuid}')"))?;
    eventually("the new primary writes", PATIENCE, || Ok(writer(&weir)? == second))?;
    let mut others = [id(&mysql, 1)?, id(&mysql, 3)?];
    others.sort();
    eventually("the others read", PATIENCE, || Ok(readers(&weir, &mysql)? == others))?;
    let written = under_load(&weir, || {
        thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    ensure!(written.iter().all(|written| written.error.is_none()), "{written:?}");
    Ok(())
}

fn primary_killed(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir(env, &mysql, true)?;
    let first = id(&mysql, 1)?;
    ensure!(writer(&weir)? == first, "the primary does not write");
    let written = under_load(&weir, || {
        mysql.server(1).kill()?;
        eventually("another primary writes", PATIENCE, || Ok(writer(&weir).is_ok_and(|id| id != first)))?;
        thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    // Who was waiting for the answer to a write at that moment is told that nobody knows, and ends.
    let is_unknown = |error: &String| error.contains("it may or may not have taken effect");
    ensure!(written.iter().all(|written| written.error.iter().all(is_unknown)), "{written:?}");
    let mut session = Session::open(weir.addr(), "test")?;
    for (at, Written { rows, error }) in written.iter().enumerate() {
        let found: u64 =
            // At the primary: a secondary may still be about to apply what others have written.
            session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {at} FOR UPDATE"))?.parse()?;
        let most = rows + u64::from(error.is_some());
        ensure!((*rows..=most).contains(&found), "writer {at}: {rows} acknowledged, {found} found");
    }
    mysql.server(1).start()?;
    mysql.server(1).join_group()?;
    eventually("the old primary reads", PATIENCE, || Ok(readers(&weir, &mysql)?.contains(&first)))
}
