//! `auto_failover`: with asynchronous replication a replica is made the writer when the source is lost, and only then.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_testkit::{Account, Family, Mysql, MysqlServer, Weir, hostgroup};
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use crate::replication::{PATIENCE, id, let_move, monitor_moves, writer};
use crate::switchover::{run, text};

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("auto_failover::a_killed_source_is_replaced_once_and_comes_back_without_work", |env| {
            killed_source(env, Family::Mysql)
        }),
        Case::serial("auto_failover::a_killed_mariadb_source_is_replaced_once", |env| {
            killed_source(env, Family::Mariadb)
        }),
        Case::serial(
            "auto_failover::a_broken_way_replaces_nobody_and_half_a_failover_is_finished",
            broken_way,
        ),
        Case::serial("auto_failover::a_drained_replica_votes_and_is_not_made_the_writer", drained_replica),
        Case::serial("auto_failover::a_replica_with_a_part_of_a_transaction_holds_up_nobody", part_received),
    ]
}

/// A row that no replica gets.
const UNHEARD: u64 = 2_000_000;
/// How long the loss of a source lasts before it is replaced: 3 * (1.1 * 100 + 300 + 2 * 300) + 2 * 1000 ms.
const FAILOVER_AFTER: Duration = Duration::from_millis(5030);

/// A Weir in front of servers that are called so. The monitor moves the role, too.
fn weir(env: &Env, servers: &[std::net::SocketAddrV4]) -> Result<Weir, Box<dyn Error>> {
    let mut config = monitor_moves(env, servers, &[("auto_failover", true.into())])?;
    config.variable("monitor_connect_timeout", 300);
    Ok(env.weir_with(&config)?)
}

fn grant(mysql: &Mysql) -> CaseResult {
    let_move(mysql, Account::MONITOR)?;
    mysql.source().root_query("CREATE TABLE test.trickle (number INT)")?;
    Ok(mysql.wait_replicated()?)
}

/// Numbers that were acknowledged, until it is told to stop.
fn trickle(weir: &Weir, stop: &AtomicBool) -> Vec<u64> {
    let (mut acknowledged, mut session, mut number) = (Vec::new(), None, 0);
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = session.as_mut() else {
            session = Session::open(weir.addr(), "test").ok();
            continue;
        };
        let done = Session::run(open, &format!("INSERT INTO trickle VALUES ({number})"));
        match done {
            Ok(_) => acknowledged.push(number),
            // Nobody knows what became of it; it is not written again.
            Err(_) => session = None,
        }
        number += 1;
        thread::sleep(Duration::from_millis(5));
    }
    acknowledged
}

fn numbers(server: &MysqlServer) -> Result<Vec<u64>, Box<dyn Error>> {
    let rows = server.root_query("SELECT number FROM test.trickle ORDER BY number")?;
    Ok(rows.concat().iter().map(|number| number.parse()).collect::<Result<_, _>>()?)
}

fn is_read_only(server: &MysqlServer) -> Result<bool, Box<dyn Error>> {
    Ok(server.root_query("SELECT @@read_only")?.concat() == ["1"])
}

/// The server whose id this is.
fn server_of<'m>(mysql: &'m Mysql, wanted: &str) -> Result<&'m MysqlServer, Box<dyn Error>> {
    for (index, server) in mysql.servers().iter().enumerate() {
        if server.process().is_some() && id(mysql, index + 1)? == wanted {
            return Ok(server);
        }
    }
    Err(format!("no server {wanted}").into())
}

fn killed_source(env: &Env, family: Family) -> CaseResult {
    let mysql = env.own_servers(family, 3, false)?;
    grant(&mysql)?;
    let servers: Vec<_> = mysql.servers().iter().map(MysqlServer::addr).collect();
    let weirs = [weir(env, &servers)?, weir(env, &servers)?];
    let first = id(&mysql, 1)?;
    ensure!(writer(&weirs[0])? == first && writer(&weirs[1])? == first, "the source does not write");
    ensure!(weirs[0].log().contains("ARE LOST"), "nobody has been told what it costs");
    let stop = AtomicBool::new(false);
    let (replicated, acknowledged, second) = thread::scope(|scope| {
        let writes = scope.spawn(|| trickle(&weirs[0], &stop));
        let all = || -> Result<_, Box<dyn Error>> {
            eventually("the replicas get rows", PATIENCE, || Ok(numbers(mysql.server(3))?.len() > 20))?;
            let replicated = numbers(mysql.server(2))?;
            // The last row is the source's own.
            for replica in [2, 3] {
                mysql.server(replica).root_query("STOP REPLICA IO_THREAD")?;
            }
            mysql.server(1).root_query(&format!("INSERT INTO test.trickle VALUES ({UNHEARD})"))?;
            mysql.server(1).kill()?;
            for replica in [2, 3] {
                mysql.server(replica).root_query("START REPLICA IO_THREAD")?;
            }
            eventually("a replica is the writer", PATIENCE, || {
                Ok(writer(&weirs[0]).is_ok_and(|id| id != first))
            })?;
            let second = writer(&weirs[0])?;
            let next = server_of(&mysql, &second)?;
            let before = numbers(next)?.len();
            eventually("writes go on there", PATIENCE, || Ok(numbers(next)?.len() > before + 20))?;
            Ok((replicated, second))
        };
        let done = all().map_err(|error| error.to_string());
        stop.store(true, Ordering::Relaxed);
        let acknowledged = writes.join().map_err(|_| "the trickle has panicked")?;
        let (replicated, second) = done?;
        Ok::<_, Box<dyn Error>>((replicated, acknowledged, second))
    })?;
    let next = server_of(&mysql, &second)?;
    let found = numbers(next)?;
    ensure!(found.windows(2).all(|pair| pair[0] < pair[1]), "a row is there twice: {found:?}");
    ensure!(replicated.iter().all(|number| found.contains(number)), "{replicated:?} were there, {found:?}");
    ensure!(!found.contains(&UNHEARD), "no replica can have it");
    let last = acknowledged.last().ok_or("nothing was written")?;
    ensure!(found.contains(last), "{last} was acknowledged by the new writer");
    eventually("the other one follows", PATIENCE, || {
        Ok(numbers(mysql.server(3))? == numbers(mysql.server(2))?)
    })?;
    eventually("both Weirs go by it", PATIENCE, || Ok(writer(&weirs[1])? == second))?;
    let times: usize =
        weirs.iter().map(|weir| weir.log().matches("is the new writer in place of").count()).sum();
    ensure!(times == 1, "{times} failovers");

    // It comes back as its my.cnf has it: writable.
    mysql.server(1).start()?;
    eventually("the old source is read_only", PATIENCE, || is_read_only(mysql.server(1)))?;
    for weir in &weirs {
        ensure!(writer(weir)? == second, "the old source gets writes");
    }
    eventually("somebody says what becomes of it", PATIENCE, || {
        Ok(weirs.iter().any(|weir| weir.log().contains("has transactions that")))
    })?;
    let source = mysql.server(1).root_query(match family {
        Family::Mysql => "SHOW REPLICA STATUS",
        Family::Mariadb => "SHOW ALL SLAVES STATUS",
    })?;
    ensure!(source.is_empty(), "it was made a replica all the same: {source:?}");
    let mut session = Session::open(weirs[1].addr(), "test")?;
    session.run("INSERT INTO trickle VALUES (1000000)")?;
    ensure!(numbers(next)?.contains(&1_000_000), "it was written elsewhere");
    // The role can still be moved, with two of three that are left.
    let moved = run(&weirs[1], &["switchover", &hostgroup::WRITER.to_string(), "--grace-ms", "8000"])?;
    ensure!(moved.status.success(), "{moved:?}");
    eventually("the third one writes for both", PATIENCE, || {
        let (one, two) = (writer(&weirs[0])?, writer(&weirs[1])?);
        Ok(one == two && one != first && one != second)
    })
}

/// The source dies while it sends: the applier of that replica waits for the rest, and stops only after a minute.
fn part_received(env: &Env) -> CaseResult {
    const SOON: Duration = Duration::from_secs(30);
    let mysql = env.own_servers(Family::Mysql, 3, false)?;
    grant(&mysql)?;
    mysql.source().root_query("CREATE TABLE test.big (number INT PRIMARY KEY, words LONGTEXT)")?;
    let way = env.free_address()?;
    let cut = Cut { mark: b"replica_uuid", after_bytes: Some(100_000), cuts_max: u32::MAX };
    let forwarder = Forwarder::start_with_cut(way, mysql.server(1).addr(), cut)?;
    let (host, port) = (way.ip(), way.port());
    mysql.server(2).root_query(&format!(
        "STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port}, SOURCE_SSL = 0, \
         GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"
    ))?;
    mysql.wait_replicated()?;
    let servers: Vec<_> = mysql.servers().iter().map(MysqlServer::addr).collect();
    let weir = weir(env, &servers)?;
    let first = id(&mysql, 1)?;
    ensure!(writer(&weir)? == first, "the source does not write");
    mysql.server(3).root_query("STOP REPLICA IO_THREAD")?;
    mysql.server(1).root_query(
        "INSERT INTO test.big WITH RECURSIVE rows_ AS (SELECT 1 AS number UNION ALL SELECT number + 1 FROM rows_ WHERE \
         number < 64) SELECT number, REPEAT('x', 65536) FROM rows_",
    )?;
    let has_part = || -> Result<bool, Box<dyn Error>> {
        Ok(!mysql.server(2).root_query("SELECT @@GLOBAL.gtid_owned")?.concat().concat().is_empty())
    };
    eventually("a part of it has come", PATIENCE, || Ok(forwarder.cuts() >= 1 && has_part()?))?;
    mysql.server(1).kill()?;
    mysql.server(3).root_query("START REPLICA IO_THREAD")?;
    let third = id(&mysql, 3)?;
    eventually("the other replica is the writer", SOON, || Ok(writer(&weir).is_ok_and(|id| id == third)))?;
    Session::open(weir.addr(), "test")?.run("INSERT INTO trickle VALUES (1)")?;
    eventually("the one with a part follows", SOON, || Ok(numbers(mysql.server(2))? == [1] && !has_part()?))?;
    let rows = mysql.server(2).root_query("SELECT COUNT(*) FROM test.big")?.concat();
    ensure!(rows == ["0"], "a part was applied: {rows:?} rows");
    // Which transactions are under way is no setting, though MySQL shows it as a variable.
    ensure!(!weir.log().contains("global variables have changed"), "{}", weir.log());
    Ok(())
}

fn broken_way(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mysql, 3, false)?;
    grant(&mysql)?;
    let way = env.free_address()?;
    let forwarder = Forwarder::start(way, mysql.server(1).addr())?;
    let weir = weir(env, &[way, mysql.server(2).addr(), mysql.server(3).addr()])?;
    let first = id(&mysql, 1)?;
    ensure!(writer(&weir)? == first, "the source does not write");
    forwarder.silence(true);
    let status = || -> Result<String, Box<dyn Error>> { Ok(text(&run(&weir, &["status"])?.stdout)) };
    eventually("the writer is waited for", PATIENCE, || {
        Ok(status()?.contains("0 servers report that they can't connect to it, 2 are needed for a failover"))
    })?;
    // Nothing tells that nothing will happen.
    thread::sleep(FAILOVER_AFTER + Duration::from_secs(1));
    ensure!(is_read_only(mysql.server(2))? && is_read_only(mysql.server(3))?, "a replica was made writable");
    forwarder.silence(false);
    eventually("the source writes again", PATIENCE, || Ok(writer(&weir)? == first))?;
    ensure!(!weir.log().contains("failover begins"), "{}", weir.log());

    // As a Weir that died on the way leaves it: one receives nothing any more, the other replicates from that one.
    mysql.server(1).kill()?;
    drop(forwarder);
    eventually("the next one has lost its source", PATIENCE, || {
        let status = mysql.server(2).root_query("SHOW REPLICA STATUS")?.concat();
        Ok(status.iter().any(|value| value == "2003"))
    })?;
    mysql.server(2).root_query("STOP REPLICA IO_THREAD")?;
    let addr = mysql.server(2).addr();
    let (host, port) = (addr.ip(), addr.port());
    mysql.server(3).root_query(&format!(
        "STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port}; START REPLICA"
    ))?;
    eventually("a replica is the writer", PATIENCE, || Ok(writer(&weir).is_ok_and(|id| id != first)))?;
    let next = server_of(&mysql, &writer(&weir)?)?;
    Session::open(weir.addr(), "test")?.run("INSERT INTO trickle VALUES (1)")?;
    ensure!(numbers(next)? == [1], "it was written elsewhere");
    eventually("the other one follows", PATIENCE, || {
        Ok(numbers(mysql.server(2))? == [1] && numbers(mysql.server(3))? == [1])
    })?;
    // The old source comes back, and has nothing of its own.
    mysql.server(1).start()?;
    let _way = Forwarder::start(way, mysql.server(1).addr())?;
    eventually("the old source follows", PATIENCE, || Ok(numbers(mysql.server(1))? == [1]))?;
    ensure!(is_read_only(mysql.server(1))?, "it is still writable");
    Ok(())
}

fn drained_replica(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mysql, 3, false)?;
    grant(&mysql)?;
    let servers: Vec<_> = mysql.servers().iter().map(MysqlServer::addr).collect();
    let weir = weir(env, &servers)?;
    let first = id(&mysql, 1)?;
    ensure!(writer(&weir)? == first, "the source does not write");
    // By its name it would be preferred.
    let drained = run(&weir, &["drain", &servers[1].to_string()])?;
    ensure!(drained.status.success(), "{drained:?}");
    // Stopped by hand it says nothing of its source, and stays as it is.
    mysql.server(2).root_query("STOP REPLICA IO_THREAD")?;
    mysql.server(1).kill()?;
    thread::sleep(FAILOVER_AFTER + Duration::from_secs(1));
    ensure!(!weir.log().contains("failover begins"), "{}", weir.log());
    let why = "1 servers report that they can't connect to it, 2 are needed for a failover";
    eventually(&format!("status says: {why}"), PATIENCE, || {
        Ok(text(&run(&weir, &["status"])?.stdout).contains(why))
    })?;
    let status = mysql.server(2).root_query("SHOW REPLICA STATUS")?.concat();
    ensure!(!status.iter().any(|value| value == "2003"), "it was started: {status:?}");
    mysql.server(2).root_query("START REPLICA IO_THREAD")?;
    eventually("a replica is the writer", PATIENCE, || Ok(writer(&weir).is_ok_and(|id| id != first)))?;
    ensure!(writer(&weir)? == id(&mysql, 3)?, "the drained one writes");
    Session::open(weir.addr(), "test")?.run("INSERT INTO trickle VALUES (1)")?;
    eventually("the drained one follows", PATIENCE, || Ok(numbers(mysql.server(2))? == [1]))?;
    ensure!(is_read_only(mysql.server(2))?, "it is writable");
    Ok(())
}
