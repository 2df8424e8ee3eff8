//! `weir drain`, `weir undrain` and `weir status`.

use std::error::Error;
use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("drain::a_reader_gets_no_new_work_and_ends_what_it_has", reader),
        Case::parallel("drain::the_writer_s_transactions_end_where_they_began_or_come_along", writer),
        Case::parallel("drain::whoever_waits_hears_that_it_has_ended", ended),
        Case::parallel("drain::it_outlasts_reloads_and_restarts", outlasts),
        Case::parallel("drain::what_can_not_be_drained_is_explained", faults),
        Case::parallel("drain::status_tells_who_writes_and_why", status),
        Case::parallel("drain::a_joiner_is_told_donors_that_do_not_write", donors),
    ]
}

const PATIENCE: Duration = Duration::from_secs(20);
const NODE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

/// Runs a command of Weir's with this Weir's configuration.
fn run(weir: &Weir, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    Ok(Command::new(weir_binary()?).args(arguments).arg("-c").arg(weir.config_path()).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json_status(weir: &Weir) -> Result<Value, Box<dyn Error>> {
    let output = run(weir, &["status", "--json"])?;
    // 3: no writer yet.
    ensure!(matches!(output.status.code(), Some(0 | 3)), "{}", text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The places of a server.
fn places<'a>(status: &'a Value, server: &str) -> Vec<&'a Value> {
    let servers = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    servers.iter().filter(|row| row["server"] == server).collect()
}

/// Whether one of some reads runs on this node.
fn serves(session: &mut Session, node: &str) -> Result<bool, Box<dyn Error>> {
    for _ in 0..12 {
        if session.rows(NODE)?[0][0] == node {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Standard output, which has nothing but JSON.
fn json(output: &Output) -> Result<Value, Box<dyn Error>> {
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}").into())
}

fn reader(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let server = env.cluster()?.node(3).addr().to_string();
    let mut session = Session::open(weir.addr(), "test")?;
    eventually("n3 serves reads", PATIENCE, || serves(&mut session, "n3"))?;
    // A read-only transaction holds it.
    let mut holder = Session::open(weir.addr(), "test")?;
    eventually("a transaction is on n3", PATIENCE, || {
        holder.run("ROLLBACK")?;
        holder.run("START TRANSACTION READ ONLY")?;
        Ok(holder.rows(NODE)?[0][0] == "n3")
    })?;
    let waiting = run(&weir, &["drain", &server, "--timeout-s", "1"])?;
    ensure!(waiting.status.code() == Some(3), "{waiting:?}");
    ensure!(text(&waiting.stderr).contains("1 session is still there after 1 s"), "{waiting:?}");
    ensure!(!serves(&mut session, "n3")?, "a drained server serves");
    ensure!(holder.rows(NODE)?[0][0] == "n3", "the transaction goes on elsewhere");
    let status = json_status(&weir)?;
    let rows = places(&status, &server);
    ensure!(!rows.is_empty() && rows.iter().all(|row| row["is_drained"] == true), "{status}");
    let waiting = json(&run(&weir, &["drain", &server, "--timeout-s", "0", "--json"])?)?;
    ensure!(waiting["result"] == "in_use" && waiting["used"] == 1, "{waiting}");
    holder.run("COMMIT")?;
    let done = run(&weir, &["drain", &server])?;
    ensure!(done.status.success(), "{done:?}");
    ensure!(text(&done.stdout).contains("(as before)\nnothing runs there any more"), "{done:?}");
    let done = json(&run(&weir, &["drain", &server, "--json"])?)?;
    ensure!(done["server"] == server.as_str() && done["result"] == "free", "{done}");
    let back = json(&run(&weir, &["undrain", &server, "--json"])?)?;
    ensure!(back["message"].as_str().is_some_and(|said| said.contains("not drained")), "{back}");
    eventually("n3 serves reads again", PATIENCE, || serves(&mut session, "n3"))
}

/// Whoever waits hears that somebody else has let the server in again, or has taken it out of the configuration.
fn ended(env: &Env) -> CaseResult {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let server = env.cluster()?.node(3).addr().to_string();
    let mut holder = Session::open(weir.addr(), "test")?;
    eventually("a transaction is on n3", PATIENCE, || {
        holder.run("ROLLBACK")?;
        holder.run("START TRANSACTION READ ONLY")?;
        Ok(holder.rows(NODE)?[0][0] == "n3")
    })?;
    let wait = || -> Result<std::process::Child, Box<dyn Error>> {
        let mut command = Command::new(weir_binary()?);
        command.args(["drain", &server, "-c"]).arg(weir.config_path());
        let waiting =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn()?;
        eventually("it is drained", PATIENCE, || {
            let status = json_status(&weir)?;
            let rows = places(&status, &server);
            Ok(!rows.is_empty() && rows.iter().all(|row| row["is_drained"] == true))
        })?;
        Ok(waiting)
    };
    let waiting = wait()?;
    ensure!(run(&weir, &["undrain", &server])?.status.success(), "not undrained");
    let ended = waiting.wait_with_output()?;
    let said = text(&ended.stderr);
    ensure!(ended.status.code() == Some(1) && said.contains("it was undrained meanwhile"), "{said}");
    let waiting = wait()?;
    let mut next = config.clone();
    let servers = next.document_mut()["mysql_servers"].as_array_of_tables_mut().ok_or("no servers")?;
    servers.remove(2);
    weir.reload(&next)?;
    let ended = waiting.wait_with_output()?;
    let said = text(&ended.stderr);
    ensure!(ended.status.code() == Some(1) && said.contains("not in mysql_servers any more"), "{said}");
    // It is not drained for ever.
    let back = run(&weir, &["undrain", &server])?;
    ensure!(back.status.success(), "{back:?}");
    Ok(())
}

fn writer(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let schema = env.schema()?;
    eventually("there is a writer", PATIENCE, || Ok(run(&weir, &["status"])?.status.success()))?;
    crate::switchover::wait_variables(&weir)?;
    let status = json_status(&weir)?;
    let server = status["clusters"][0]["writers"][0].as_str().ok_or("no writer")?.to_owned();
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let mut inside = Session::open(weir.addr(), &schema)?;
    inside.run("SET weir_replay = OFF")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO t VALUES (1)")?;
    let before = inside.value("SELECT @@wsrep_node_name")?;
    let mut along = Session::open(weir.addr(), &schema)?;
    along.run("BEGIN")?;
    along.run("INSERT INTO t VALUES (4)")?;
    let waiting = run(&weir, &["drain", &server, "--timeout-s", "0"])?;
    ensure!(waiting.status.code() == Some(3), "{waiting:?}");
    session.run("INSERT INTO t VALUES (2)")?;
    session.run("BEGIN")?;
    let after = session.value("SELECT @@wsrep_node_name")?;
    session.run("COMMIT")?;
    ensure!(before != after, "{after} is drained and writes");
    ensure!(inside.value("SELECT @@wsrep_node_name")? == before, "the transaction moved");
    // One that can run again need not be waited for.
    ensure!(along.value("SELECT @@wsrep_node_name")? == after, "the transaction stayed");
    along.run("COMMIT")?;
    inside.run("INSERT INTO t VALUES (3)")?;
    inside.run("COMMIT")?;
    ensure!(inside.value("SELECT COUNT(*) FROM t")? == "4", "rows are missing");
    let done = run(&weir, &["drain", &server])?;
    ensure!(done.status.success(), "{done:?}");
    let status = json_status(&weir)?;
    ensure!(status["clusters"][0]["writers"][0] != server.as_str(), "{status}");
    Ok(())
}

fn outlasts(env: &Env) -> CaseResult {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let server = env.cluster()?.node(2).addr().to_string();
    let is_drained = |weir: &Weir| -> Result<bool, Box<dyn Error>> {
        let status = json_status(weir)?;
        let rows = places(&status, &server);
        Ok(!rows.is_empty() && rows.iter().all(|row| row["status"] == "OFFLINE_SOFT"))
    };
    let done = run(&weir, &["drain", &server])?;
    ensure!(done.status.success() && is_drained(&weir)?, "{done:?}");
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    ensure!(is_drained(&weir)?, "a reload has ended it");
    let file = weir.datadir().join("drained.json");
    ensure!(fs::read_to_string(&file)?.contains(&server), "{}", file.display());
    // Another Weir of the same datadir would find the same file; what it does with it:
    let mut next = config.clone();
    next.document_mut()["datadir"] = toml_edit::value(weir.datadir().display().to_string());
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    let again = env.weir_with(&next)?;
    eventually("the drained server is out", PATIENCE, || is_drained(&again))?;
    ensure!(again.log().contains("server is still drained from an earlier run"), "{}", again.log());
    let back = run(&again, &["undrain", &server])?;
    ensure!(back.status.success(), "{back:?}");
    eventually("it is in again", PATIENCE, || Ok(!is_drained(&again)?))
}

fn faults(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    for (server, wanted) in [
        ("127.9.9.9:3306", "127.9.9.9:3306 is not in mysql_servers"),
        ("127.9.9.9", "'127.9.9.9' is not HOST:PORT"),
        ("db1:70000", "'db1:70000' is not HOST:PORT"),
    ] {
        for verb in ["drain", "undrain"] {
            let output = run(&weir, &[verb, server])?;
            ensure!(!output.status.success(), "{verb} {server}");
            ensure!(text(&output.stderr).contains(wanted), "{output:?}");
        }
    }
    ensure!(!weir.datadir().join("drained.json").exists(), "a refused order has left something");
    Ok(())
}

fn donors(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let hostgroup = hostgroup::WRITER.to_string();
    let told = || Ok::<_, Box<dyn Error>>(text(&run(&weir, &["donor", &hostgroup])?.stdout));
    let nodes = env.cluster()?.nodes();
    eventually("all but the writer can be donors", PATIENCE, || {
        Ok(told()?.matches(',').count() == nodes.len() - 1)
    })?;
    let status = json_status(&weir)?;
    let writer = status["clusters"][0]["writers"][0].as_str().ok_or("no writer")?;
    let writer = nodes.iter().find(|node| node.addr().to_string() == writer).ok_or("not a node")?;
    let list = told()?;
    ensure!(list.ends_with(",\n") && !list.contains(&writer.name()), "{list} and {}", writer.name());
    let words = text(&run(&weir, &["status"])?.stdout);
    ensure!(words.contains(&format!("wsrep_sst_donor={list}")), "{words}");
    let donors = json(&run(&weir, &["donor", &hostgroup, "--json"])?)?;
    ensure!(donors["wsrep_sst_donor"] == list.trim_end(), "{donors}");
    ensure!(donors["donors"].as_array().is_some_and(|all| all.len() == nodes.len() - 1), "{donors}");
    let output = run(&weir, &["donor", "4711"])?;
    ensure!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    ensure!(text(&output.stderr).contains("4711 is no cluster's writer hostgroup"), "{output:?}");
    Ok(())
}

fn status(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let _session = Session::open(weir.addr(), "test")?;
    eventually("there is a writer", PATIENCE, || Ok(run(&weir, &["status"])?.status.success()))?;
    let status = json_status(&weir)?;
    ensure!(status["clients"].as_u64() >= Some(1), "{status}");
    let writer = status["clusters"][0]["writers"][0].as_str().ok_or("no writer")?.to_owned();
    for node in env.cluster()?.nodes() {
        let server = node.addr().to_string();
        let rows = places(&status, &server);
        let roles: Vec<&str> = rows.iter().filter_map(|row| row["role"].as_str()).collect();
        ensure!(roles.contains(if server == writer { &"writer" } else { &"reader" }), "{server}: {roles:?}");
        ensure!(rows.iter().all(|row| row["reason"].as_str().is_some_and(|why| !why.is_empty())), "{status}");
    }
    let words = text(&run(&weir, &["status"])?.stdout);
    ensure!(words.contains(&format!("writer {writer}\n")), "{words}");
    ensure!(words.lines().any(|line| line.starts_with("hostgroup  server")), "{words}");
    Ok(())
}
