//! Connections to servers: how they begin, how old they become, and who may keep one.

use std::time::Duration;
use std::{error::Error, thread};

use weir_testkit::wire::Login;
use weir_testkit::{Account, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{HOSTGROUP, PATIENCE, config, reload};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("servers::init_connect_prepares_every_connection", init_connect),
        Case::parallel("servers::init_connect_that_fails_is_told", init_connect_fails),
        Case::parallel("servers::connections_end_with_connection_max_age_ms", max_age),
        Case::parallel("servers::connections_are_opened_in_advance", warming),
        Case::parallel("servers::transactions_have_limits", transaction_limits),
    ]
}

/// One connection to one node for everybody.
fn narrow(env: &Env) -> Result<WeirConfig, String> {
    let mut config = config(env, &[])?;
    config.server(env.cluster()?.node(1).addr(), HOSTGROUP, &[("max_connections", 1.into())]);
    Ok(config)
}

fn init_connect(env: &Env) -> CaseResult {
    let mut config = narrow(env)?;
    config.variable(
        "init_connect",
        "SET wait_timeout = 1234; SET @@lock_wait_timeout=77, sql_mode='ANSI_QUOTES';",
    );
    let weir = env.weir_with(&config)?;
    let (mut one, mut two) = (Session::open(weir.addr(), "test")?, Session::open(weir.addr(), "test")?);
    let all = "SELECT CONCAT_WS(' ', @@wait_timeout, @@lock_wait_timeout, @@sql_mode)";
    ensure!(two.value(all)? == "1234 77 ANSI_QUOTES", "{}", two.value(all)?);
    one.run("SET wait_timeout = 99, sql_mode = ''")?;
    for round in 0..3 {
        ensure!(one.value(all)? == "99 77 ", "round {round}: {}", one.value(all)?);
        ensure!(two.value(all)? == "1234 77 ANSI_QUOTES", "round {round}: {}", two.value(all)?);
    }
    // After a reset of the session, and of the connection.
    one.reset()?.done()?;
    ensure!(one.value(all)? == "1234 77 ANSI_QUOTES", "{}", one.value(all)?);
    one.run("CREATE TEMPORARY TABLE test.init_connect (a INT)")?;
    one.reset()?.done()?;
    ensure!(one.value(all)? == "1234 77 ANSI_QUOTES", "{}", one.value(all)?);
    two.value("SELECT GET_LOCK('init_connect', 1)")?;
    drop(two);
    ensure!(one.value(all)? == "1234 77 ANSI_QUOTES", "{}", one.value(all)?);
    // A hostgroup's own comes first.
    let row = [("hostgroup_id", HOSTGROUP.into()), ("init_connect", "SET wait_timeout = 4321".into())];
    config.push("mysql_hostgroup_attributes", &row);
    config.variable("connection_max_age_ms", 1000);
    reload(&weir, &config)?;
    eventually("who comes then has the new one", PATIENCE, || {
        thread::sleep(Duration::from_millis(200));
        let mut next = Session::open(weir.addr(), "test")?;
        Ok(next.value("SELECT @@wait_timeout")? == "4321")
    })?;
    ensure!(one.value("SELECT @@wait_timeout")? == "1234", "who was there keeps what it began with");
    Ok(())
}

fn init_connect_fails(env: &Env) -> CaseResult {
    for (text, cause) in [
        ("SET @a = 1; SET nonsense = 1", "init_connect: error 1193: Unknown system variable 'nonsense'"),
        ("USE mysql", "init_connect must not change the schema"),
    ] {
        let mut config = narrow(env)?;
        config.variable("init_connect", text).variable("connect_timeout_server_max", 5000);
        let weir = env.weir_with(&config)?;
        let message = Session::open(weir.addr(), "test")?.refused("SELECT 1", 9001)?;
        ensure!(message.contains(cause), "{text}: {message}");
    }
    Ok(())
}

fn max_age(env: &Env) -> CaseResult {
    let account = env.account()?;
    let mut config = narrow(env)?;
    config.user(account, HOSTGROUP, &[]);
    config.variable("connection_max_age_ms", 1000);
    let weir = env.weir_with(&config)?;
    let mut session = Session::with(weir.addr(), &Login::new(account).schema("test"))?;
    let mut direct = Session::open(env.cluster()?.node(1).addr(), "test")?;
    // The number of the connection that has served a statement.
    let sql = format!("SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE USER = '{}'", account.user);
    let mut after = |session: &mut Session, statement: &str| -> Result<String, Box<dyn Error>> {
        session.query(statement)?;
        Ok(direct.value(&sql)?)
    };
    let first = after(&mut session, "SELECT 1")?;
    thread::sleep(Duration::from_millis(2200));
    let second = after(&mut session, "BEGIN")?;
    ensure!(first != second, "connection {first} is too old");
    thread::sleep(Duration::from_millis(2200));
    ensure!(after(&mut session, "SELECT 1")? == second, "not in a transaction");
    session.run("COMMIT")?;
    ensure!(after(&mut session, "SELECT 1")? != second, "but with its end");
    Ok(())
}

fn warming(env: &Env) -> CaseResult {
    let account = env.account()?;
    let node = env.cluster()?.node(1);
    let mut config = config(env, &[])?;
    config.server(node.addr(), HOSTGROUP, &[("max_connections", 50.into())]);
    config.user(account, HOSTGROUP, &[]);
    config.variable("connection_warming", true).variable("free_connections_pct", 20);
    let weir = env.weir_with(&config)?;
    let login = Login::new(account).schema("test");
    Session::with(weir.addr(), &login)?.value("SELECT 1")?;
    let mut direct = Session::open(node.addr(), "test")?;
    let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'", account.user);
    eventually("ten connections stand ready", PATIENCE, || Ok(direct.value(&sql)? == "10"))
}

fn transaction_limits(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    let holds = |session: &mut Session| -> Result<(), Box<dyn Error>> {
        session.run("BEGIN")?;
        session.run(&format!("INSERT INTO {schema}.t VALUES (1)"))?;
        Ok(())
    };
    // Silent in a transaction: its row is free again.
    let mut silent = config(env, &[1])?;
    silent.variable("max_transaction_idle_time", 3000);
    let weir = env.weir_with(&silent)?;
    let mut session = Session::open(weir.addr(), "test")?;
    holds(&mut session)?;
    let mut direct = Session::open(env.cluster()?.node(1).addr(), "test")?;
    direct.run(&format!("INSERT INTO {schema}.t VALUES (1)"))?;
    direct.run(&format!("DELETE FROM {schema}.t"))?;
    ensure!(session.query("SELECT 1").is_err(), "the session should have been closed");
    ensure!(weir.log().contains("max_transaction_idle_time"), "{}", weir.log());
    // Busy in one for too long.
    let mut busy = config(env, &[1])?;
    busy.variable("max_transaction_time", 2000);
    let weir = env.weir_with(&busy)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let started = std::time::Instant::now();
    holds(&mut session)?;
    while session.query("SELECT 1").is_ok() {
        ensure!(started.elapsed() < PATIENCE, "the session should have been closed");
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(started.elapsed() >= Duration::from_millis(1500), "too soon: {:?}", started.elapsed());
    let rows = direct.value(&format!("SELECT COUNT(*) FROM {schema}.t"))?;
    ensure!(rows == "0", "rolled back");
    // Outside of transactions nothing ends.
    let mut free = Session::with(weir.addr(), &Login::new(Account::APP).schema("test"))?;
    for _ in 0..6 {
        free.run(&format!("REPLACE INTO {schema}.t VALUES (2)"))?;
        thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}
