//! `weir switchover`: the writer role moves, and no application notices.

use std::error::Error;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_testkit::{Weir, WeirConfig, weir_binary};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("switchover::under_load_without_an_error", under_load),
        Case::parallel("switchover::a_pin_has_it_undone_or_is_closed", pinned),
        Case::parallel("switchover::a_transaction_is_waited_for", transaction),
        Case::parallel("switchover::sessions_of_a_primary_listener_move_with_their_next_statement", bound),
        Case::parallel("switchover::what_can_not_be_is_explained", faults),
        Case::parallel("switchover::nothing_else_waits_for_one", meanwhile),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);
/// The writer hostgroup of the tests' configuration.
const HOSTGROUP: &str = "100";
const WRITERS: usize = 8;
const SWITCHOVERS: usize = 6;

/// Runs a command of Weir's with this Weir's configuration.
pub(crate) fn run(weir: &Weir, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    Ok(Command::new(weir_binary()?).args(arguments).arg("-c").arg(weir.config_path()).output()?)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn writer(weir: &Weir) -> Result<String, Box<dyn Error>> {
    let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    Ok(status["clusters"][0]["writers"][0].as_str().unwrap_or_default().to_owned())
}

/// Of all places that `weir status` shows of a server.
pub(crate) fn reasons(weir: &Weir, server: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    let rows = status["servers"].as_array().into_iter().flatten().filter(|row| row["server"] == server);
    Ok(rows.map(|row| row["reason"].as_str().unwrap_or_default().to_owned()).collect())
}

pub(crate) fn wait_writer(weir: &Weir) -> CaseResult {
    eventually("there is a writer that another can follow", PATIENCE, || {
        Ok(run(weir, &["switchover", HOSTGROUP, "--dry-run"])?.status.success())
    })
}

/// Waits until the session variables of all servers have been read: a transaction that begins before can't run again at
/// another server.
pub(crate) fn wait_variables(weir: &Weir) -> CaseResult {
    let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    let rows = status["servers"].as_array().into_iter().flatten().filter(|row| row["status"] == "ONLINE");
    let servers: Vec<&str> = rows.filter_map(|row| row["server"].as_str()).collect();
    eventually("session variables have been read", PATIENCE, || {
        let log = weir.log();
        let is_read =
            |server: &&str| log.contains(&format!("session variables have been read server={server}"));
        Ok(servers.iter().all(is_read))
    })
}

/// Writes numbered rows, every third one in a transaction of several statements; returns how many, and the longest
/// that one took.
fn write(weir: &Weir, schema: &str, writer: usize, stop: &AtomicBool) -> Result<(u64, Duration), String> {
    let told = |error: Box<dyn Error>| format!("writer {writer}: {error}");
    let mut session = Session::open(weir.addr(), schema).map_err(|error| told(error.into()))?;
    let (mut rows, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let insert = format!("INSERT INTO numbers (writer, number) VALUES ({writer}, {rows})");
        let statements: &[&str] = if rows % 3 == 0 { &["BEGIN", &insert, "COMMIT"] } else { &[&insert] };
        for sql in statements {
            session.run(sql).map_err(|error| told(format!("{sql}: {error}").into()))?;
        }
        longest = longest.max(begun.elapsed());
        rows += 1;
        let seen = session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {writer}"));
        let seen = seen.map_err(|error| told(error.into()))?;
        if seen != rows.to_string() {
            return Err(format!("writer {writer}: {rows} rows written, {seen} seen"));
        }
    }
    Ok((rows, longest))
}

fn under_load(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let mut writers_seen = vec![writer(&weir)?];
    while_written(&weir, &env.schema()?, || {
        for _ in 0..SWITCHOVERS {
            // Transactions are short here, but the machine may be slow.
            let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
            ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
            writers_seen.push(writer(&weir)?);
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    })?;
    ensure!(writers_seen.windows(2).all(|pair| pair[0] != pair[1]), "{writers_seen:?}");
    Ok(())
}

/// Does something while rows are written: none of the writers may see an error, no row may be lost or be there twice.
pub(crate) fn while_written(weir: &Weir, schema: &str, act: impl FnOnce() -> CaseResult) -> CaseResult {
    wait_variables(weir)?;
    Session::open(weir.addr(), schema)?.run(
        "CREATE TABLE numbers (id INT AUTO_INCREMENT PRIMARY KEY, writer INT, number INT, KEY (writer))",
    )?;
    let stop = AtomicBool::new(false);
    let written = thread::scope(|scope| -> Result<Vec<(u64, Duration)>, Box<dyn Error>> {
        let stop = &stop;
        let threads: Vec<_> =
            (0..WRITERS).map(|at| scope.spawn(move || write(weir, schema, at, stop))).collect();
        let done = act();
        stop.store(true, Ordering::Relaxed);
        let mut results = Vec::new();
        for thread in threads {
            results.push(thread.join().map_err(|_| "a writer has panicked")??);
        }
        done.map(|()| results)
    })?;
    let rows: u64 = written.iter().map(|(rows, _)| rows).sum();
    let mut session = Session::open(weir.addr(), schema)?;
    session.run("SET SESSION wsrep_sync_wait = 1")?;
    let found = session.rows("SELECT COUNT(*), COUNT(DISTINCT writer, number) FROM numbers")?;
    ensure!(found[0] == [rows.to_string(), rows.to_string()], "{rows} acknowledged, {found:?}");
    Ok(())
}

fn pinned(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let before = writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("CREATE TEMPORARY TABLE mine (id INT)")?;
    let undone = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "200"])?;
    ensure!(undone.status.code() == Some(1), "{undone:?}");
    let said = text(&undone.stderr);
    ensure!(
        said.contains("1 session (temporary_table)") && said.contains("is the writer as before"),
        "{said}"
    );
    ensure!(writer(&weir)? == before, "it has moved");
    session.run("INSERT INTO mine VALUES (1)")?;
    let mut other = Session::open(weir.addr(), "test")?;
    other.run("DO 1")?;

    let forced = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "200", "--force"])?;
    ensure!(forced.status.success(), "{forced:?}");
    ensure!(writer(&weir)? != before, "it has not moved");
    let error = session.run("INSERT INTO mine VALUES (2)").err().ok_or("the session is still there")?;
    ensure!(error.to_string().contains("temporary_table"), "{error}");
    other.run("DO 1")?;
    Ok(())
}

/// A session that keeps its connection, with variables and a prepared statement.
fn bound(env: &Env) -> CaseResult {
    let (primary, schema) = (env.free_address()?, env.schema()?);
    let weir = env.weir(|config| {
        let row = [("address", primary.to_string().into()), ("mode", "primary".into())];
        config.push("weir_listeners", &row);
    })?;
    wait_writer(&weir)?;
    let mut session = Session::open(primary, &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    session.run("SET SESSION group_concat_max_len = 77777")?;
    let insert = session.prepare("INSERT INTO t VALUES (?)")?;
    let node = "SELECT @@wsrep_node_name";
    let mut idle = Session::open(primary, &schema)?;
    let mut nodes = vec![session.value(node)?];
    ensure!(idle.value(node)? == nodes[0], "two sessions at two writers");
    for round in 0..4 {
        session.execute(&insert, &[Param::Int(round)])?.done()?;
        let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
        ensure!(done.status.success(), "{done:?}");
        nodes.push(session.value(node)?);
        ensure!(session.value("SELECT COUNT(*) FROM t")? == (round + 1).to_string(), "rows are missing");
        ensure!(session.value("SELECT @@group_concat_max_len")? == "77777", "a variable is lost");
    }
    ensure!(nodes.windows(2).all(|pair| pair[0] != pair[1]), "{nodes:?}");
    ensure!(Some(idle.value(node)?) == nodes.last().cloned(), "an idle session has stayed");

    // In a transaction it stays, and is waited for.
    session.run("BEGIN")?;
    session.run("INSERT INTO t VALUES (100)")?;
    let undone = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "200"])?;
    ensure!(text(&undone.stderr).contains("1 session (transaction)"), "{undone:?}");
    session.run("COMMIT")?;
    ensure!(Some(session.value(node)?) == nodes.last().cloned(), "it has moved although it was undone");
    Ok(())
}

fn transaction(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let schema = env.schema()?;
    wait_writer(&weir)?;
    let before = writer(&weir)?;
    let mut inside = Session::open(weir.addr(), &schema)?;
    inside.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO t VALUES (1)")?;
    let seen = thread::scope(|scope| -> Result<String, Box<dyn Error>> {
        let switch = scope.spawn(|| {
            run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "9000"]).map_err(|error| error.to_string())
        });
        eventually("the switchover waits", PATIENCE, || Ok(weir.log().contains("switchover begins")))?;
        // What the transaction still does, it does where it began.
        inside.run("INSERT INTO t VALUES (2)")?;
        inside.run("COMMIT")?;
        let done = switch.join().map_err(|_| "the switchover has panicked")??;
        ensure!(done.status.success(), "{done:?}");
        Ok(text(&done.stderr))
    })?;
    ensure!(seen.contains("new statements are held"), "{seen}");
    ensure!(writer(&weir)? != before, "it has not moved");
    // On the new writer, with everything there.
    inside.run("INSERT INTO t VALUES (3)")?;
    ensure!(inside.value("SELECT COUNT(*) FROM t FOR UPDATE")? == "3", "rows are missing");
    Ok(())
}

/// While a switchover waits for a transaction another configuration is taken, and a signal ends Weir.
fn meanwhile(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let schema = env.schema()?;
    wait_writer(&weir)?;
    let before = writer(&weir)?;
    let mut inside = Session::open(weir.addr(), &schema)?;
    inside.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO t VALUES (1)")?;
    thread::scope(|scope| -> CaseResult {
        let switch = scope.spawn(|| {
            run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "30000"]).map_err(|error| error.to_string())
        });
        eventually("the switchover waits", PATIENCE, || Ok(weir.log().contains("switchover begins")))?;
        let second = run(&weir, &["switchover", HOSTGROUP])?;
        let wanted = "a switchover of hostgroup 100 is under way";
        ensure!(text(&second.stderr).contains(wanted), "{second:?}");
        config.variable("max_connections", 1234);
        weir.reload(&config)?;
        ensure!(!switch.is_finished(), "the switchover has not waited");
        weir.sigterm()?;
        let undone = switch.join().map_err(|_| "the switchover has panicked")??;
        ensure!(text(&undone.stderr).contains("weir is shutting down: undone"), "{undone:?}");
        Ok(())
    })?;
    // The transaction comes to its end where it began.
    inside.run("COMMIT")?;
    weir.wait_exit(PATIENCE)?;
    let at_writer: std::net::SocketAddrV4 = before.parse()?;
    let count = Session::open(at_writer, &schema)?.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "1", "the transaction is lost: {count}");
    Ok(())
}

fn faults(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let before = writer(&weir)?;
    let other =
        env.cluster()?.nodes().iter().map(|node| node.addr().to_string()).find(|addr| *addr != before);
    let other = other.ok_or("no other node")?;
    let drained = run(&weir, &["drain", &other])?;
    ensure!(drained.status.success(), "{drained:?}");
    for (arguments, wanted) in [
        (&["switchover", "77"][..], "77 is not the writer hostgroup of a cluster; those are: 100"),
        (&["switchover", HOSTGROUP, "--to", &before], "is the writer already"),
        (&["switchover", HOSTGROUP, "--to", &other], "OFFLINE_SOFT"),
        (&["switchover", HOSTGROUP, "--to", "127.9.9.9:3306"], "it is not in this cluster"),
    ] {
        let refused = run(&weir, arguments)?;
        ensure!(refused.status.code() == Some(1), "{arguments:?}: {refused:?}");
        ensure!(text(&refused.stderr).contains(wanted), "{arguments:?}: {}", text(&refused.stderr));
    }
    ensure!(writer(&weir)? == before, "a refused switchover has moved the writer");
    let dry = run(&weir, &["switchover", HOSTGROUP, "--dry-run", "--json"])?;
    let told: serde_json::Value = serde_json::from_slice(&dry.stdout)?;
    ensure!(told["dry_run"] == true && told["hostgroup"].as_u64() == HOSTGROUP.parse().ok(), "{told}");
    let dry = run(&weir, &["switchover", HOSTGROUP, "--dry-run"])?;
    ensure!(text(&dry.stdout).contains(&format!("would move from {before} to ")), "{dry:?}");
    ensure!(writer(&weir)? == before, "a dry run has moved the writer");
    Ok(())
}
