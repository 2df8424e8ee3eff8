//! `weir switchover` of a Group Replication group: the group moves its primary, and no application notices.

use std::thread;
use std::time::Duration;

use weir_testkit::{Account, Mysql, Weir, hostgroup};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::{PATIENCE, WHO, Written, id, under_load, weir, weir_with, writer};
use crate::switchover::{run, text};

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("group_switchover::under_load_without_an_error", without_an_error),
        Case::serial("group_switchover::what_can_not_be_is_refused_or_undone", refused),
        Case::serial("group_switchover::sessions_of_a_primary_listener_follow_in_both_modes", bound),
    ]
}

const SWITCHOVERS: usize = 4;

fn switchover(weir: &Weir, more: &[&str]) -> Result<std::process::Output, Box<dyn std::error::Error>> {
    let hostgroup = hostgroup::WRITER.to_string();
    run(weir, &[&["switchover", &hostgroup], more].concat())
}

fn grant(mysql: &Mysql) -> CaseResult {
    let Account { user, .. } = Account::MONITOR;
    mysql.source().root_query(&format!("GRANT GROUP_REPLICATION_ADMIN, PROCESS ON *.* TO {user}@'%'"))?;
    mysql.wait_replicated()?;
    Ok(())
}

/// Waits until a member can follow the primary.
fn wait_ready(weir: &Weir) -> CaseResult {
    eventually("another member can be the primary", PATIENCE, || {
        Ok(switchover(weir, &["--dry-run"])?.status.success())
    })
}

fn without_an_error(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir(env, &mysql, true)?;
    grant(&mysql)?;
    wait_ready(&weir)?;
    let mut primaries = vec![writer(&weir)?];
    let written = under_load(&weir, || {
        for _ in 0..SWITCHOVERS {
            let done = switchover(&weir, &["--grace-ms", "8000"])?;
            ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
            primaries.push(writer(&weir)?);
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    })?;
    ensure!(primaries.windows(2).all(|pair| pair[0] != pair[1]), "{primaries:?}");
    ensure!(written.iter().all(|written| written.error.is_none()), "{written:?}");
    let mut session = Session::open(weir.addr(), "test")?;
    for (at, Written { rows, .. }) in written.iter().enumerate() {
        let found = session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {at} FOR UPDATE"))?;
        ensure!(found == rows.to_string(), "writer {at}: {rows} acknowledged, {found} found");
    }
    Ok(())
}

fn refused(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = weir(env, &mysql, true)?;
    let primary = id(&mysql, 1)?;
    ensure!(writer(&weir)? == primary, "the primary does not write");
    eventually("a missing privilege is named", PATIENCE, || {
        let refused = switchover(&weir, &[])?;
        Ok(!refused.status.success()
            && text(&refused.stderr).contains("GRANT GROUP_REPLICATION_ADMIN ON *.* TO monitor"))
    })?;
    ensure!(!weir.log().contains("switchover begins"), "it has begun without the privilege");
    grant(&mysql)?;
    wait_ready(&weir)?;

    // A client beside Weir has an open transaction, which the group would wait for without an end.
    let mut beside = Session::open(mysql.server(1).addr(), "test")?;
    beside.run("BEGIN")?;
    beside.run("INSERT INTO numbers VALUES (77, 1)")?;
    let undone = switchover(&weir, &["--grace-ms", "300"])?;
    let said = text(&undone.stderr);
    ensure!(
        undone.status.code() == Some(1)
            && said.contains("1 transactions of readers")
            && said.contains("is the writer as before"),
        "{undone:?}"
    );
    beside.run("COMMIT")?;
    ensure!(writer(&weir)? == primary, "it has moved");

    // The user names the next primary, and has the group cut off whoever is in its way.
    beside.run("BEGIN")?;
    beside.run("INSERT INTO numbers VALUES (77, 2)")?;
    let to = mysql.server(3).addr().to_string();
    let forced = switchover(&weir, &["--grace-ms", "300", "--force", "--to", &to])?;
    ensure!(forced.status.success(), "{forced:?}");
    ensure!(writer(&weir)? == id(&mysql, 3)?, "it has not moved");
    ensure!(beside.run("COMMIT").is_err(), "a transaction has gone on over the change");
    let found = Session::open(weir.addr(), "test")?
        .value("SELECT GROUP_CONCAT(number) FROM numbers WHERE writer = 77 FOR UPDATE")?;
    ensure!(found == "1", "rows {found}");
    Ok(())
}

/// Whether members beside the writer could write.
fn has_backup_writers(weir: &Weir) -> Result<bool, Box<dyn std::error::Error>> {
    let status: serde_json::Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let backups = servers.iter().filter(|server| server["hostgroup"] == hostgroup::BACKUP_WRITER);
    Ok(backups.count() == 2)
}

/// A session that keeps its connection, over switchovers of a group with one primary, and with several.
fn bound(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let primary = env.free_address()?;
    let weir = weir_with(env, &mysql, true, |config| {
        let row = [("address", primary.to_string().into()), ("mode", "primary".into())];
        config.push("weir_listeners", &row);
    })?;
    grant(&mysql)?;
    wait_ready(&weir)?;
    let mut session = Session::open(primary, "test")?;
    session.run("SET SESSION group_concat_max_len = 77777")?;
    let insert = session.prepare("INSERT INTO numbers VALUES (50, ?)")?;
    let mut servers = vec![session.value(WHO)?];
    for round in 0..4 {
        if round == 2 {
            let several = "SELECT group_replication_switch_to_multi_primary_mode()";
            mysql.server(1).root_query(several)?;
            eventually("Weir sees several primaries", PATIENCE, || has_backup_writers(&weir))?;
        }
        session.execute(&insert, &[Param::Int(round)])?.done()?;
        let done = switchover(&weir, &["--grace-ms", "8000"])?;
        ensure!(done.status.success(), "round {round}: {}{}", text(&done.stdout), text(&done.stderr));
        servers.push(session.value(WHO)?);
        ensure!(servers.last() == Some(&writer(&weir)?), "round {round}: it is not where others write");
        let rows = session.value("SELECT COUNT(*) FROM numbers WHERE writer = 50")?;
        ensure!(rows == (round + 1).to_string(), "round {round}: {rows} rows");
        ensure!(session.value("SELECT @@group_concat_max_len")? == "77777", "a variable is lost");
    }
    ensure!(servers.windows(2).all(|pair| pair[0] != pair[1]), "{servers:?}");

    // In a transaction it stays, and is waited for.
    session.run("BEGIN")?;
    session.run("INSERT INTO numbers VALUES (50, 100)")?;
    let undone = switchover(&weir, &["--grace-ms", "300"])?;
    ensure!(text(&undone.stderr).contains("1 session (transaction)"), "{undone:?}");
    session.run("COMMIT")?;
    ensure!(Some(&session.value(WHO)?) == servers.last(), "it has moved although it was undone");
    Ok(())
}
