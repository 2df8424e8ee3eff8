//! Servers that leave, and Weirs that leave while they do.

use std::error::Error;
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Account, Family, Mysql, Weir, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{NODE_NAME, PATIENCE, Weirs, is_out};
use crate::replication::weir_with;
use crate::switchover::{run, text, wait_writer, writer};

/// The cases of this module.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial(
            "several_weirs::leaving::a_drain_outlasts_an_upgrade_and_can_be_ended_after_it",
            upgrade,
        ),
        Case::serial(
            "several_weirs::leaving::a_drain_by_one_that_is_no_more_can_be_ended_by_force",
            by_a_dead_one,
        ),
        Case::serial(
            "several_weirs::leaving::one_that_is_killed_in_a_drain_goes_on_with_it",
            killed_in_a_drain,
        ),
        Case::serial("several_weirs::leaving::two_that_drain_everything_leave_a_writer", everything),
        Case::serial("several_weirs::leaving::a_cluster_that_was_taken_out_whole_comes_back_for_all", whole),
        Case::serial(
            "several_weirs::leaving::a_replica_made_the_writer_while_drained_comes_back_for_all",
            promoted,
        ),
        Case::serial(
            "several_weirs::leaving::a_source_that_one_takes_out_is_out_for_all_and_comes_back",
            source_taken_out,
        ),
    ]
}

/// A datadir that was copied: each of the two takes the other for itself.
pub(super) fn one_name(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start(env, 2)?;
    let name = |weir: &Weir| std::fs::read_to_string(weir.datadir().join("instance"));
    for at in [0, 1] {
        weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.one_name (id INT)")?;
    }
    let (weir, account) = weirs.weirs.remove(1);
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    std::fs::write(weir.datadir().join("instance"), name(weirs.weir(0))?)?;
    weirs.weirs.push((weir.restart(&weir_binary()?)?, account));
    eventually("the Weirs know each other", PATIENCE, || {
        for at in [0, 1] {
            weirs.session(at)?.run("INSERT INTO test.one_name VALUES (1)")?;
            if super::status(weirs.weir(at))?["other_weirs"].as_array().is_none_or(Vec::is_empty) {
                return Ok(false);
            }
        }
        Ok(name(weirs.weir(0))? != name(weirs.weir(1))?)
    })?;
    let logs = weirs.weir(0).log() + &weirs.weir(1).log();
    ensure!(logs.contains("another Weir in front of the same cluster has this Weir's name"), "{logs}");
    // And a switchover is one for both, as soon as nobody waits for the old name.
    eventually("a switchover", PATIENCE, || {
        Ok(run(weirs.weir(0), &["switchover", "100", "--grace-ms", "8000"])?.status.success())
    })?;
    weirs.wait_agreement(&[0, 1], "")?;
    for at in [0, 1] {
        weirs.session(at)?.run("INSERT INTO test.one_name VALUES (2)")?;
    }
    Ok(())
}

/// Whether a server is out at none, or all, of these.
fn wait_everywhere(weirs: &[&Weir], server: &str, out: bool) -> CaseResult {
    for weir in weirs {
        let what = if out { "it is out" } else { "it gets work again" };
        eventually(what, PATIENCE, || Ok(is_out(weir, server)? == out))?;
    }
    Ok(())
}

fn upgrade(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let third = env.cluster()?.node(3).addr().to_string();
    let done = run(weirs.weir(0), &["drain", &third, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    // The old process lasts for as long as this transaction.
    let mut inside = weirs.session(0)?;
    inside.run("BEGIN")?;
    inside.run("CREATE TABLE IF NOT EXISTS test.upgrade (id INT)")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO test.upgrade VALUES (1)")?;
    let second = weirs.weir(0).follow(&weir_binary()?, None)?;
    wait_everywhere(&[&second, weirs.weir(1)], &third, true)?;
    let back = run(&second, &["undrain", &third])?;
    ensure!(back.status.success(), "{back:?}");
    wait_everywhere(&[&second, weirs.weir(1)], &third, false)?;
    inside.run("COMMIT")?;
    // Again, and nobody keeps the old process.
    drop(inside);
    weirs.weir(0).wait_exit(PATIENCE)?;
    let done = run(&second, &["drain", &third, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    let last = second.follow(&weir_binary()?, None)?;
    second.wait_exit(PATIENCE)?;
    wait_everywhere(&[&last, weirs.weir(1)], &third, true)?;
    let back = run(&last, &["undrain", &third])?;
    ensure!(back.status.success(), "{back:?}");
    wait_everywhere(&[&last, weirs.weir(1)], &third, false)
}

fn by_a_dead_one(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start(env, 2)?;
    let third = env.cluster()?.node(3).addr().to_string();
    let done = run(weirs.weir(0), &["drain", &third, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    // As long as it lives its user decides.
    let refused = run(weirs.weir(1), &["undrain", &third, "--force"])?;
    let said = text(&refused.stderr);
    ensure!(!refused.status.success() && said.contains("run `weir undrain` there"), "{refused:?}");
    weirs.weir(0).process().kill();
    eventually("it is known to be gone", PATIENCE, || {
        let refused = run(weirs.weir(1), &["undrain", &third])?;
        ensure!(!refused.status.success(), "{refused:?}");
        Ok(text(&refused.stderr).contains("weir undrain --force"))
    })?;
    let status = text(&run(weirs.weir(1), &["status"])?.stdout);
    ensure!(status.contains("not heard of") && status.contains("undrain --force"), "{status}");
    wait_everywhere(&[weirs.weir(1)], &third, true)?;
    let done = run(weirs.weir(1), &["undrain", &third, "--force"])?;
    ensure!(done.status.success(), "{done:?}");
    wait_everywhere(&[weirs.weir(1)], &third, false)?;
    // One that comes back remembers what its user wanted.
    let (weir, account) = weirs.weirs.remove(0);
    weirs.weirs.insert(0, (weir.restart(&weir_binary()?)?, account));
    wait_everywhere(&[weirs.weir(0), weirs.weir(1)], &third, true)?;
    let back = run(weirs.weir(0), &["undrain", &third])?;
    ensure!(back.status.success(), "{back:?}");
    wait_everywhere(&[weirs.weir(0), weirs.weir(1)], &third, false)
}

fn killed_in_a_drain(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start(env, 2)?;
    let third = env.cluster()?.node(3).addr().to_string();
    let mut holder = weirs.session(1)?;
    eventually("a transaction is on n3", PATIENCE, || {
        holder.run("ROLLBACK")?;
        holder.run("START TRANSACTION READ ONLY")?;
        Ok(holder.rows(NODE_NAME)?[0][0] == "n3")
    })?;
    thread::scope(|scope| -> CaseResult {
        let waits = scope.spawn(|| {
            let done = run(weirs.weir(0), &["drain", &third, "--timeout-s", "60"]);
            done.map_err(|error| error.to_string())
        });
        eventually("the other one is told", PATIENCE, || is_out(weirs.weir(1), &third))?;
        weirs.weir(0).process().kill();
        let done = waits.join().map_err(|_| "the drain's thread")??;
        ensure!(!done.status.success() && !done.stderr.is_empty(), "{done:?}");
        Ok(())
    })?;
    ensure!(holder.rows(NODE_NAME)?[0][0] == "n3", "the transaction goes on elsewhere");
    let (weir, account) = weirs.weirs.remove(0);
    weirs.weirs.insert(0, (weir.restart(&weir_binary()?)?, account));
    wait_everywhere(&[weirs.weir(0), weirs.weir(1)], &third, true)?;
    let waiting = run(weirs.weir(0), &["drain", &third, "--timeout-s", "2"])?;
    ensure!(waiting.status.code() == Some(3), "{waiting:?}");
    holder.run("COMMIT")?;
    let done = run(weirs.weir(0), &["drain", &third, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    let back = run(weirs.weir(0), &["undrain", &third])?;
    ensure!(back.status.success(), "{back:?}");
    wait_everywhere(&[weirs.weir(0), weirs.weir(1)], &third, false)
}

fn everything(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let third = env.cluster()?.node(3).addr().to_string();
    let second = env.cluster()?.node(2).addr().to_string();
    let first = weirs.first.to_string();
    for round in 0..4 {
        let done = run(weirs.weir(0), &["drain", &first, "--timeout-s", "20"])?;
        ensure!(done.status.success(), "{done:?}");
        // The last two, at once.
        let drain = |at: usize, server: &str| {
            let done = run(weirs.weir(at), &["drain", server, "--timeout-s", "5"]);
            done.map_err(|error| error.to_string())
        };
        let (one, two) = thread::scope(|scope| {
            let one = scope.spawn(|| drain(round % 2, &second));
            let two = drain(1 - round % 2, &third);
            (one.join(), two)
        });
        let (one, two) = (one.map_err(|_| "a drain has panicked")??, two?);
        ensure!(!(one.status.success() && two.status.success()), "nobody is left: {one:?} {two:?}");
        for at in [0, 1] {
            eventually("there is a writer", PATIENCE, || Ok(!writer(weirs.weir(at))?.is_empty()))?;
            weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.everything (id INT)")?;
        }
        let refused = if one.status.success() { &two } else { &one };
        let said = text(&refused.stderr);
        ensure!(said.contains("was not drained: "), "{said}");
        for at in [0, 1] {
            for server in [&first, &second, &third] {
                run(weirs.weir(at), &["undrain", server])?;
            }
        }
        for server in [&first, &second, &third] {
            wait_everywhere(&[weirs.weir(0), weirs.weir(1)], server, false)?;
        }
        let at = writer(weirs.weir(0))?;
        if at != first {
            eventually("the first node could write again", PATIENCE, || {
                let done = run(weirs.weir(0), &["switchover", "100", "--to", &first])?;
                Ok(done.status.success() || text(&done.stderr).contains("is the writer already"))
            })?;
        }
    }
    Ok(())
}

/// The status of servers in a Weir's configuration from now on: of this one, or of all.
fn set_status(weir: &Weir, of: Option<SocketAddrV4>, status: &str) -> CaseResult {
    let mut document: toml_edit::DocumentMut = std::fs::read_to_string(weir.config_path())?.parse()?;
    let servers = document["mysql_servers"].as_array_of_tables_mut().ok_or("no servers")?;
    let is_meant = |row: &toml_edit::Table| {
        of.is_none_or(|of| {
            row["hostname"].as_str() == Some(&of.ip().to_string())
                && row["port"].as_integer() == Some(i64::from(of.port()))
        })
    };
    let mut meant: Vec<_> = servers.iter_mut().filter(|row| is_meant(row)).collect();
    ensure!(!meant.is_empty(), "{of:?} has no row");
    meant.iter_mut().for_each(|row| row["status"] = toml_edit::value(status));
    std::fs::write(weir.config_path(), document.to_string())?;
    Ok(weir.sighup()?)
}

fn whole(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    set_status(weirs.weir(0), None, "OFFLINE_SOFT")?;
    for at in [0, 1] {
        eventually("nobody writes", PATIENCE, || Ok(writer(weirs.weir(at))?.is_empty()))?;
    }
    // As long as it takes until nothing that was read before counts.
    thread::sleep(Duration::from_secs(6));
    ensure!(writer(weirs.weir(1))?.is_empty(), "{}", writer(weirs.weir(1))?);
    set_status(weirs.weir(0), None, "ONLINE")?;
    for at in [0, 1] {
        wait_writer(weirs.weir(at))?;
        weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.whole (id INT)")?;
    }
    weirs.wait_agreement(&[0, 1], "")?;
    Ok(())
}

/// Two Weirs in front of servers with replication that know each other.
fn before_replicas(env: &Env, mysql: &Mysql) -> Result<[Weir; 2], Box<dyn Error>> {
    let monitor = Account::MONITOR.user;
    let privileges = "SELECT, INSERT, UPDATE, DELETE, CREATE";
    mysql.source().root_query(&format!("GRANT {privileges} ON weir.* TO {monitor}@'%'"))?;
    mysql.wait_replicated()?;
    let start = || {
        weir_with(env, mysql, false, |config| {
            config.variable("monitor_read_only_interval", 100);
        })
    };
    let weirs = [start()?, start()?];
    for weir in &weirs {
        eventually("the Weirs know each other", PATIENCE, || {
            Ok(cluster_of(weir)?["other_weirs"].as_array().is_some_and(|others| others.len() == 1))
        })?;
    }
    Ok(weirs)
}

fn cluster_of(weir: &Weir) -> Result<Value, Box<dyn Error>> {
    let mut status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    Ok(status.pointer_mut("/clusters/0").map(Value::take).unwrap_or_default())
}

fn promoted(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mariadb, 3, false)?;
    let weirs = before_replicas(env, &mysql)?;
    let (source, next) = (mysql.source(), &mysql.servers()[1]);
    let server = next.addr().to_string();
    let done = run(&weirs[0], &["drain", &server, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    wait_everywhere(&[&weirs[0], &weirs[1]], &server, true)?;
    mysql.wait_replicated()?;
    source.root_query("SET GLOBAL read_only = 1")?;
    next.root_query("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")?;
    for weir in &weirs {
        eventually("nobody writes", PATIENCE, || {
            Ok(cluster_of(weir)?["writers"].as_array().is_some_and(Vec::is_empty))
        })?;
    }
    thread::sleep(Duration::from_secs(6));
    let back = run(&weirs[0], &["undrain", &server])?;
    ensure!(back.status.success(), "{back:?}");
    for weir in &weirs {
        eventually("it writes", PATIENCE, || Ok(cluster_of(weir)?["writers"][0] == server.as_str()))?;
    }
    Ok(())
}

/// A source that its user takes out of a Weir's configuration takes no new work from any, as with a drain; what runs there
/// goes on.
fn source_taken_out(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mariadb, 3, false)?;
    let mut weirs = before_replicas(env, &mysql)?;
    let source = mysql.source();
    let server = source.addr().to_string();
    source.root_query("CREATE TABLE test.taken_out (id INT PRIMARY KEY) ENGINE=InnoDB")?;
    let nobody_writes = |weirs: &[Weir]| {
        weirs.iter().try_for_each(|weir| {
            eventually("nobody writes", PATIENCE, || {
                Ok(cluster_of(weir)?["writers"].as_array().is_some_and(Vec::is_empty))
            })
        })
    };
    let it_writes = |weirs: &[Weir]| {
        weirs.iter().try_for_each(|weir| {
            eventually("it writes", PATIENCE, || Ok(cluster_of(weir)?["writers"][0] == server.as_str()))
        })
    };
    for round in 0..3 {
        let [keeper, other] = [&weirs[round % 2], &weirs[1 - round % 2]];
        let mut inside = Session::open(other.addr(), "test")?;
        inside.run("BEGIN")?;
        inside.run(&format!("INSERT INTO taken_out VALUES ({round})"))?;
        set_status(keeper, Some(source.addr()), "OFFLINE_SOFT")?;
        nobody_writes(&weirs)?;
        // As long as it takes until nothing that was read before counts.
        thread::sleep(Duration::from_secs(6));
        nobody_writes(&weirs)?;
        inside.run(&format!("INSERT INTO taken_out VALUES ({})", 100 + round))?;
        inside.run("COMMIT")?;
        set_status(keeper, Some(source.addr()), "ONLINE")?;
        it_writes(&weirs)?;
    }
    // One that starts meanwhile goes by it, too, and is told of the end.
    set_status(&weirs[0], Some(source.addr()), "OFFLINE_SOFT")?;
    nobody_writes(&weirs)?;
    let [keeper, other] = weirs;
    other.process().kill();
    weirs = [keeper, other.restart(&weir_binary()?)?];
    nobody_writes(&weirs)?;
    set_status(&weirs[0], Some(source.addr()), "ONLINE")?;
    it_writes(&weirs)?;
    // Whose user wants it out, and who is no more, is overruled by force only.
    set_status(&weirs[0], Some(source.addr()), "OFFLINE_SOFT")?;
    nobody_writes(&weirs)?;
    weirs[0].process().kill();
    eventually("it is known to be gone", PATIENCE, || {
        let refused = run(&weirs[1], &["undrain", &server])?;
        ensure!(!refused.status.success(), "{refused:?}");
        Ok(text(&refused.stderr).contains("weir undrain --force"))
    })?;
    let done = run(&weirs[1], &["undrain", &server, "--force"])?;
    ensure!(done.status.success(), "{done:?}");
    it_writes(&weirs[1..])?;
    let rows = Session::open(weirs[1].addr(), "test")?.value("SELECT COUNT(*) FROM taken_out FOR UPDATE")?;
    ensure!(rows == "6", "{rows} rows");
    Ok(())
}
