//! Switchovers of asynchronous replication that meet: with another one at the same time, with the end of their Weir, with
//! the end of their target.

use std::error::Error;
use std::net::SocketAddrV4;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_testkit::{Account, Family, Mysql, MysqlServer, Weir, hostgroup};
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use crate::drain::json_status;
use crate::replication::{PATIENCE, let_move, monitor_moves};
use crate::switchover::{run, text};

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("replication_recovery::of_two_weirs_at_once_one_moves_the_role", |env| {
            at_once(env, Family::Mysql)
        }),
        Case::serial("replication_recovery::of_two_weirs_at_once_one_moves_the_role_on_mariadb", |env| {
            at_once(env, Family::Mariadb)
        }),
        Case::serial("replication_recovery::what_a_killed_weir_has_begun_is_undone_or_finished", |env| {
            killed(env, Family::Mysql)
        }),
        Case::serial(
            "replication_recovery::what_a_killed_weir_has_begun_on_mariadb_is_undone_or_finished",
            |env| killed(env, Family::Mariadb),
        ),
        Case::serial("replication_recovery::one_of_a_hung_weir_is_named_until_it_is_over", hung),
        Case::serial("replication_recovery::a_target_that_dies_in_the_middle_changes_nothing", lost_target),
        Case::serial("replication_recovery::a_lost_answer_of_the_new_writer_leaves_one_writer", |env| {
            lost_answer(env, Family::Mysql)
        }),
        Case::serial(
            "replication_recovery::a_lost_answer_of_the_new_writer_on_mariadb_leaves_one_writer",
            |env| lost_answer(env, Family::Mariadb),
        ),
        Case::serial("replication_recovery::without_the_privilege_for_the_journal_it_goes_on", no_journal),
    ]
}

/// How often two Weirs move the role at once.
const ROUNDS: usize = 3;

/// A Weir in front of these servers. The monitor moves the role, too.
fn weir(env: &Env, mysql: &Mysql) -> Result<Weir, Box<dyn Error>> {
    let servers: Vec<_> = mysql.servers().iter().map(MysqlServer::addr).collect();
    weir_before(env, &servers)
}

/// The same, with the servers' addresses as Weir is to know them.
fn weir_before(env: &Env, servers: &[SocketAddrV4]) -> Result<Weir, Box<dyn Error>> {
    let mut config = monitor_moves(env, servers, &[])?;
    config.variable("monitor_connect_timeout", 1000);
    Ok(env.weir_with(&config)?)
}

/// Three servers whose monitor may move the role, and write that down or not.
fn servers(env: &Env, family: Family, journal: bool) -> Result<Mysql, Box<dyn Error>> {
    let mysql = env.own_servers(family, 3, false)?;
    let_move(&mysql, Account::MONITOR)?;
    if journal {
        let user = Account::MONITOR.user;
        mysql
            .source()
            .root_query(&format!("GRANT SELECT, INSERT, DELETE, CREATE ON weir.* TO {user}@'%'"))?;
    }
    mysql.source().root_query("CREATE TABLE test.trickle (number INT PRIMARY KEY)")?;
    mysql.wait_replicated()?;
    Ok(mysql)
}

fn switchover(weir: &Weir, more: &[&str]) -> Result<Output, Box<dyn Error>> {
    let hostgroup = hostgroup::WRITER.to_string();
    run(weir, &[&["switchover", &hostgroup], more].concat())
}

fn wait_ready(weir: &Weir, to: SocketAddrV4) -> CaseResult {
    let to = to.to_string();
    eventually("another server can be the writer", PATIENCE, || {
        Ok(switchover(weir, &["--dry-run", "--to", &to])?.status.success())
    })
}

fn is_read_only(server: &MysqlServer) -> Result<bool, Box<dyn Error>> {
    Ok(server.root_query("SELECT @@read_only")?.concat() == ["1"])
}

/// How often a Weir has said that it has no writer. A slow probe makes it say so, too.
fn times_lost(weir: &Weir) -> usize {
    weir.log().matches("lost the writer").count()
}

/// Which servers take writes.
fn writable(mysql: &Mysql) -> Result<Vec<SocketAddrV4>, Box<dyn Error>> {
    let mut found = Vec::new();
    for server in mysql.servers().iter().filter(|server| server.process().is_some()) {
        if !is_read_only(server)? {
            found.push(server.addr());
        }
    }
    Ok(found)
}

/// What is written down at a server.
fn entries(server: &MysqlServer) -> Result<String, Box<dyn Error>> {
    Ok(server.root_query("SELECT COUNT(*) FROM weir.switchovers")?.concat().concat())
}

fn count(server: &MysqlServer) -> Result<String, Box<dyn Error>> {
    Ok(server.root_query("SELECT COUNT(*) FROM test.trickle")?.concat().concat())
}

/// Writes until it is told to stop; every row must be acknowledged.
fn trickle(weir: &Weir, first: usize, stop: &AtomicBool) -> Result<usize, String> {
    let mut session = Session::open(weir.addr(), "test").map_err(|error| error.to_string())?;
    let mut rows = 0;
    while !stop.load(Ordering::Relaxed) {
        let insert = format!("INSERT INTO trickle VALUES ({})", first + rows);
        session.run(&insert).map_err(|error| format!("row {rows}: {error}"))?;
        rows += 1;
        thread::sleep(Duration::from_millis(3));
    }
    Ok(rows)
}

/// The target receives everything and applies nothing, from now on or no longer.
fn delay(server: &MysqlServer, family: Family, seconds: u64) -> CaseResult {
    server.root_query(&match family {
        Family::Mysql => format!(
            "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {seconds}; START REPLICA"
        ),
        Family::Mariadb => format!("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = {seconds}; START SLAVE"),
    })?;
    Ok(())
}

/// Orders a switchover to the second server, which has everything when that begins, and falls behind while a transaction
/// keeps the statements held: it will never apply that.
fn order_behind<'s>(
    scope: &'s thread::Scope<'s, '_>,
    weir: &'s Weir,
    mysql: &Mysql,
    family: Family,
) -> Result<thread::ScopedJoinHandle<'s, Result<Output, String>>, Box<dyn Error>> {
    let target = mysql.server(2);
    let to = target.addr().to_string();
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("BEGIN")?;
    session.run("INSERT INTO trickle VALUES (1)")?;
    let ordered = scope.spawn(move || {
        switchover(weir, &["--to", &to, "--grace-ms", "20000"]).map_err(|error| error.to_string())
    });
    eventually("statements are held", PATIENCE, || Ok(weir.log().contains("switchover begins")))?;
    delay(target, family, 3600)?;
    let status = match family {
        Family::Mysql => "SHOW REPLICA STATUS",
        Family::Mariadb => "SHOW ALL SLAVES STATUS",
    };
    eventually("the target runs again", PATIENCE, || {
        Ok(target.root_query(status)?.concat().iter().filter(|value| *value == "Yes").count() >= 2)
    })?;
    // Weir has seen that, too, some probes later.
    thread::sleep(Duration::from_secs(1));
    session.run("COMMIT")?;
    Ok(ordered)
}

fn at_once(env: &Env, family: Family) -> CaseResult {
    let mysql = servers(env, family, true)?;
    let weirs = [weir(env, &mysql)?, weir(env, &mysql)?];
    let stop = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let stop = &stop;
        let threads = [0, 1].map(|at| {
            let weir = &weirs[at];
            scope.spawn(move || trickle(weir, at * 1_000_000, stop))
        });
        let rounds =
            (0..ROUNDS).try_for_each(|_| one_round(&mysql, &weirs).map_err(|error| error.to_string()));
        stop.store(true, Ordering::Relaxed);
        let written = threads.map(|thread| thread.join().map_err(|_| "a writer has panicked".to_owned())?);
        rounds.map(|()| written)
    })?;
    let rows: usize = written.into_iter().sum::<Result<usize, String>>()?;
    eventually("every server has every row", PATIENCE, || {
        let counts = mysql.servers().iter().map(count).collect::<Result<Vec<_>, _>>()?;
        Ok(counts.iter().all(|count| *count == rows.to_string()))
    })
}

/// Both Weirs move the role away from its writer, each to another server.
fn one_round(mysql: &Mysql, weirs: &[Weir; 2]) -> CaseResult {
    let [from] =
        <[SocketAddrV4; 1]>::try_from(writable(mysql)?).map_err(|found| format!("{found:?} write"))?;
    let targets: Vec<SocketAddrV4> =
        mysql.servers().iter().map(MysqlServer::addr).filter(|addr| *addr != from).collect();
    for (weir, to) in weirs.iter().zip(&targets) {
        wait_ready(weir, *to)?;
    }
    let outputs = thread::scope(|scope| {
        let threads = [0, 1].map(|at| {
            let (weir, to) = (&weirs[at], targets[at].to_string());
            scope.spawn(move || {
                switchover(weir, &["--to", &to, "--grace-ms", "8000"]).map_err(|error| error.to_string())
            })
        });
        threads.map(|thread| thread.join().map_err(|_| "a switchover has panicked".to_owned())?)
    });
    let [one, two] = outputs;
    let (one, two) = (one?, two?);
    ensure!(one.status.success() || two.status.success(), "nobody has moved it: {one:?} {two:?}");
    let found = writable(mysql)?;
    ensure!(found.len() == 1 && found != [from], "{found:?} are writable: {one:?} {two:?}");
    for refused in [&one, &two].into_iter().filter(|output| !output.status.success()) {
        let said = text(&refused.stderr);
        ensure!(!said.contains("not undone"), "{said}");
    }
    eventually("the two others replicate from the writer", PATIENCE, || {
        let fit = mysql.servers().iter().filter(|server| server.addr() != found[0]).map(|server| {
            let status = server.root_query("SHOW REPLICA STATUS")?.concat();
            Ok::<_, Box<dyn Error>>(status.contains(&found[0].port().to_string()))
        });
        Ok(fit.collect::<Result<Vec<_>, _>>()?.into_iter().all(|fit| fit))
    })?;
    let found = server_at(mysql, found[0])?;
    eventually("nothing is written down as under way", PATIENCE, || Ok(entries(found)? == "0"))
}

fn server_at(mysql: &Mysql, addr: SocketAddrV4) -> Result<&MysqlServer, String> {
    mysql.servers().iter().find(|server| server.addr() == addr).ok_or_else(|| format!("no server {addr}"))
}

fn killed(env: &Env, family: Family) -> CaseResult {
    let mysql = servers(env, family, true)?;
    let [first, second] = [weir(env, &mysql)?, weir(env, &mysql)?];
    let to = mysql.server(2).addr();
    wait_ready(&first, to)?;
    let before = times_lost(&first);
    thread::scope(|scope| -> CaseResult {
        let ordered = order_behind(scope, &first, &mysql, family)?;
        // That lasts for 5 s: its log is the quickest to ask.
        let met = eventually("the old writer is read_only", PATIENCE, || {
            Ok(times_lost(&first) > before && is_read_only(mysql.server(1))?)
        });
        first.process().kill();
        ordered.join().map_err(|_| "the switchover has panicked")??;
        met
    })?;
    // The other Weir finds what it has left.
    let mut session = Session::open(second.addr(), "test")?;
    session.run("INSERT INTO trickle VALUES (2)")?;
    ensure!(writable(&mysql)? == [mysql.server(1).addr()], "{:?} are writable", writable(&mysql)?);
    eventually("it is told", PATIENCE, || Ok(second.log().contains("switchover undone: ")))?;
    eventually("nothing is written down as under way", PATIENCE, || Ok(entries(mysql.server(1))? == "0"))?;
    delay(mysql.server(2), family, 0)?;
    eventually("all follow", PATIENCE, || {
        Ok(count(mysql.server(2))? == "2" && count(mysql.server(3))? == "2")
    })?;

    // As a Weir leaves it that dies when the target has just become writable.
    drop(second);
    let from = mysql.server(1).addr();
    mysql.server(1).root_query(&format!(
        "INSERT INTO weir.switchovers (writer_hostgroup, from_server, to_server, by_instance) VALUES ({}, '{from}', \
         '{to}', 'another')",
        hostgroup::WRITER
    ))?;
    eventually("it has arrived", PATIENCE, || Ok(entries(mysql.server(2))? == "1"))?;
    let (close, stop) = match family {
        Family::Mysql => ("SET GLOBAL super_read_only = ON", "STOP REPLICA"),
        Family::Mariadb => ("SET GLOBAL read_only = ON", "STOP SLAVE"),
    };
    mysql.server(1).root_query(close)?;
    mysql.server(2).root_query(stop)?;
    mysql.server(2).root_query("SET GLOBAL read_only = OFF")?;
    let first = first.restart(&weir_testkit::weir_binary()?)?;
    eventually("it is finished", PATIENCE, || Ok(first.log().contains("switchover finished: ")))?;
    Session::open(first.addr(), "test")?.run("INSERT INTO trickle VALUES (3)")?;
    eventually("the others follow", PATIENCE, || {
        Ok([1, 2, 3].into_iter().all(|server| count(mysql.server(server)).is_ok_and(|count| count == "3")))
    })?;
    ensure!(writable(&mysql)? == [to], "{:?} are writable", writable(&mysql)?);
    eventually("nothing is written down as under way", PATIENCE, || Ok(entries(mysql.server(2))? == "0"))?;
    Ok(())
}

/// A Weir that hangs keeps its locks, so that nobody can go on in its place: whoever asks hears why nothing is written.
fn hung(env: &Env) -> CaseResult {
    let mysql = servers(env, Family::Mysql, true)?;
    let [first, second] = [weir(env, &mysql)?, weir(env, &mysql)?];
    let to = mysql.server(2).addr();
    wait_ready(&first, to)?;
    let named = || -> Result<Option<String>, Box<dyn Error>> {
        let cluster = json_status(&second)?["clusters"][0].clone();
        Ok(cluster["unfinished_switchover"].as_str().map(str::to_owned))
    };
    let before = times_lost(&first);
    thread::scope(|scope| -> CaseResult {
        let ordered = order_behind(scope, &first, &mysql, Family::Mysql)?;
        let met = eventually("the old writer is read_only", PATIENCE, || {
            Ok(times_lost(&first) > before && is_read_only(mysql.server(1))?)
        });
        first.process().pause()?;
        let seen = met.and_then(|()| {
            let words = format!("{} -> {to}, begun by ", mysql.server(1).addr());
            eventually("it is named", PATIENCE, || {
                Ok(named()?.is_some_and(|named| named.starts_with(&words)))
            })?;
            let shown = run(&second, &["status"])?;
            ensure!(shown.status.code() == Some(3), "{shown:?}");
            ensure!(text(&shown.stdout).contains("  unfinished switchover: "), "{shown:?}");
            Ok(())
        });
        first.process().kill();
        ordered.join().map_err(|_| "the switchover has panicked")??;
        seen
    })?;
    eventually("it is over", PATIENCE, || Ok(named()?.is_none()))?;
    Session::open(second.addr(), "test")?.run("INSERT INTO trickle VALUES (2)")?;
    Ok(())
}

/// Nobody has told it to take writes: the old writer goes on.
fn lost_target(env: &Env) -> CaseResult {
    let mysql = servers(env, Family::Mysql, true)?;
    let weir = weir(env, &mysql)?;
    let to = mysql.server(2).addr();
    wait_ready(&weir, to)?;
    let undone = thread::scope(|scope| -> Result<Output, Box<dyn Error>> {
        let ordered = order_behind(scope, &weir, &mysql, Family::Mysql)?;
        eventually("the old writer is read_only", PATIENCE, || is_read_only(mysql.server(1)))?;
        mysql.server(2).kill()?;
        Ok(ordered.join().map_err(|_| "the switchover has panicked")??)
    })?;
    let said = text(&undone.stderr);
    ensure!(!undone.status.success() && said.contains("is the writer as before"), "{undone:?}");
    Session::open(weir.addr(), "test")?.run("INSERT INTO trickle VALUES (2)")?;
    ensure!(writable(&mysql)? == [mysql.server(1).addr()], "{:?} are writable", writable(&mysql)?);
    Ok(())
}

/// The target takes writes, and the connection breaks before it has said so: that is found out, not guessed.
fn lost_answer(env: &Env, family: Family) -> CaseResult {
    const MARK: &[u8] = b"SET GLOBAL read_only = OFF";
    let mysql = servers(env, family, true)?;
    let (from, to, way) = (mysql.server(1).addr(), mysql.server(2).addr(), env.free_address()?);
    let forwarder =
        Forwarder::start_with_cut(way, to, Cut { mark: MARK, after_bytes: Some(0), cuts_max: u32::MAX })?;
    let known = [from, way, mysql.server(3).addr()];
    let weirs = [weir_before(env, &known)?, weir_before(env, &known)?];
    weirs.iter().try_for_each(|weir| wait_ready(weir, way))?;
    let stop = AtomicBool::new(false);
    let (ordered, written) = thread::scope(|scope| -> Result<_, String> {
        let stop = &stop;
        let threads = [0, 1].map(|at| {
            let weir = &weirs[at];
            scope.spawn(move || trickle(weir, at * 1_000_000, stop))
        });
        let ordered = switchover(&weirs[0], &["--to", &way.to_string(), "--grace-ms", "8000"]);
        let ordered = ordered.map_err(|error| error.to_string());
        // Whatever has become of it: writes go on.
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let written = threads.map(|thread| thread.join().map_err(|_| "a writer has panicked".to_owned())?);
        Ok((ordered?, written))
    })?;
    ensure!(forwarder.cuts() >= 1, "no answer was lost: {ordered:?}");
    let rows: usize = written.into_iter().sum::<Result<usize, String>>()?;
    let found = writable(&mysql)?;
    let expected = if ordered.status.success() { to } else { from };
    ensure!(found == [expected], "{found:?} are writable: {ordered:?}");
    eventually("every server has every row", PATIENCE, || {
        let counts = mysql.servers().iter().map(count).collect::<Result<Vec<_>, _>>()?;
        Ok(counts.iter().all(|count| *count == rows.to_string()))
    })?;
    let writer = server_at(&mysql, expected)?;
    eventually("nothing is written down as under way", PATIENCE, || Ok(entries(writer)? == "0"))?;
    // And the next one is an ordinary one.
    let next = mysql.server(3).addr();
    weirs.iter().try_for_each(|weir| wait_ready(weir, next))?;
    let moved = switchover(&weirs[1], &["--to", &next.to_string(), "--grace-ms", "8000"])?;
    ensure!(moved.status.success(), "{moved:?}");
    ensure!(writable(&mysql)? == [next], "{:?} are writable", writable(&mysql)?);
    Ok(())
}

fn no_journal(env: &Env) -> CaseResult {
    let mysql = servers(env, Family::Mysql, false)?;
    let weir = weir(env, &mysql)?;
    let to = mysql.server(2).addr();
    wait_ready(&weir, to)?;
    let moved = switchover(&weir, &["--to", &to.to_string(), "--grace-ms", "8000"])?;
    let said = text(&moved.stderr) + &text(&moved.stdout);
    ensure!(moved.status.success(), "{moved:?}");
    ensure!(said.contains("GRANT SELECT, INSERT, DELETE, CREATE ON weir.* TO monitor"), "{said}");
    ensure!(writable(&mysql)? == [to], "{:?} are writable", writable(&mysql)?);
    Ok(())
}
