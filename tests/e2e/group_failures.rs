//! Clients keep being served when members of a Group Replication group hang or die.

use std::error::Error;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Mysql, Signal, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::{PATIENCE, Written, id, readers, under_load, weir, weir_with, writer};
use crate::switchover::run;

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("group_failures::a_hung_primary_is_let_go_when_its_group_has_expelled_it", hung),
        Case::serial("group_failures::without_quorum_nothing_is_written_or_read", no_quorum),
    ]
}

fn signal(mysql: &Mysql, server: usize, signal: Signal) -> CaseResult {
    let process = mysql.server(server).process().ok_or("the server does not run")?;
    Ok(process.signal(signal)?)
}

/// Status and reason of a server in the hostgroup for those without work; nothing if it is not there.
fn offline(weir: &Weir, server: &str) -> Result<Option<(String, String)>, Box<dyn Error>> {
    let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    let rows = status["servers"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["server"] == server && row["role"] == "offline");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    Ok(row.map(|row| (text(row, "status"), text(row, "reason"))))
}

fn hung(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir(env, &mysql, true)?;
    let (first, address) = (id(&mysql, 1)?, mysql.server(1).addr().to_string());
    ensure!(writer(&weir)? == first, "the primary does not write");
    let mut inside = Session::open(weir.addr(), "test")?;
    // It is to end with its server.
    inside.run("SET weir_replay = OFF")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO numbers VALUES (99, 1)")?;
    let written = under_load(&weir, || {
        signal(&mysql, 1, Signal::STOP)?;
        eventually("another primary writes", PATIENCE, || Ok(writer(&weir).is_ok_and(|id| id != first)))?;
        eventually("the hung one is given up", PATIENCE, || {
            Ok(offline(&weir, &address)?.is_some_and(|(status, reason)| {
                status == "OFFLINE_HARD" && reason.contains("is no member of the group's view")
            }))
        })?;
        thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    // Its transaction ended with its server; a statement of it does not wait for ever.
    let error = inside.run("COMMIT").err().ok_or("a transaction has survived its server")?;
    ensure!(!error.to_string().is_empty(), "{error}");
    let is_unknown = |error: &String| error.contains("it may or may not have taken effect");
    ensure!(written.iter().all(|written| written.error.iter().all(is_unknown)), "{written:?}");

    // Awake again it takes itself for the primary until it has heard of the group. It gets nothing before it has
    // joined anew.
    signal(&mysql, 1, Signal::CONT)?;
    for _ in 0..50 {
        ensure!(writer(&weir)? != first, "the server that was expelled writes");
    }
    let mut session = Session::open(weir.addr(), "test")?;
    for (at, Written { rows, error }) in written.iter().enumerate() {
        let count = format!("SELECT COUNT(*) FROM numbers WHERE writer = {at} FOR UPDATE");
        let found: u64 = session.value(&count)?.parse()?;
        let most = rows + u64::from(error.is_some());
        ensure!((*rows..=most).contains(&found), "writer {at}: {rows} acknowledged, {found} found");
    }
    ensure!(
        session.value("SELECT COUNT(*) FROM numbers WHERE writer = 99 FOR UPDATE")? == "0",
        "it is there"
    );
    eventually("the old primary reads", PATIENCE, || {
        if readers(&weir, &mysql)?.contains(&first) {
            return Ok(true);
        }
        // The server tries itself to come back, or waits for somebody to order it.
        let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@GLOBAL.server_uuid";
        if mysql.server(1).root_query(state)? == [["ERROR"]] {
            mysql.server(1).root_query("STOP GROUP_REPLICATION")?;
            mysql.server(1).join_group()?;
        }
        Ok(false)
    })
}

fn no_quorum(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir_with(env, &mysql, true, |config| {
        config.variable("connect_timeout_server_max", 1500);
    })?;
    let first = id(&mysql, 1)?;
    ensure!(writer(&weir)? == first, "the primary does not write");
    mysql.server(2).kill()?;
    mysql.server(3).kill()?;
    // Nobody knows what becomes of a write that the primary gets before it has noticed.
    let mut early = Session::open(weir.addr(), "test")?;
    let error = early.run("INSERT INTO numbers VALUES (2, 1)").err().ok_or("written without quorum")?;
    ensure!(error.to_string().contains("it may or may not have taken effect"), "{error}");
    let address = mysql.server(1).addr().to_string();
    eventually("the primary has lost its group", PATIENCE, || {
        let is_alone = |(_, reason): (String, String)| reason.contains("does not reach 2 of 3 members");
        Ok(offline(&weir, &address)?.is_some_and(is_alone))
    })?;
    for sql in ["INSERT INTO numbers VALUES (1, 1)", "SELECT COUNT(*) FROM numbers"] {
        let error = Session::open(weir.addr(), "").and_then(|mut session| {
            session.run("USE test")?;
            session.run(sql)
        });
        let error = error.err().ok_or(format!("{sql} has run without quorum"))?.to_string();
        ensure!(error.contains("without quorum"), "{sql}: {error}");
    }
    ensure!(writer(&weir).is_err(), "it writes without quorum");
    Ok(())
}
