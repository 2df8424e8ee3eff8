//! Read-only transactions: on a reader as a whole, and nothing is written there.

use std::time::Duration;

use weir_testkit::Weir;
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commands::read_only_transactions_run_on_readers", on_readers),
        Case::parallel("commands::a_write_in_a_read_only_transaction", write_inside),
        Case::parallel("commands::a_read_only_transaction_that_another_statement_ends", ended_inside),
        Case::parallel("commands::a_read_only_transaction_sees_the_session_s_writes", fresh),
        Case::parallel("commands::a_read_only_transaction_that_would_hold_its_reader", would_hold),
        Case::parallel("commands::a_read_only_transaction_that_locks_rows", locks_rows),
        Case::parallel("commands::what_follows_an_announced_read_only_transaction", announced),
    ]
}

const NODE: &str = "SELECT @@wsrep_node_name";

fn writer(weir: &Weir) -> Result<String, Box<dyn std::error::Error>> {
    Ok(Session::open(weir.addr(), "test")?.value("SELECT @@wsrep_node_name FOR UPDATE")?)
}

/// A Weir whose readers serve.
fn weir_with_readers(env: &Env) -> Result<(Weir, String), Box<dyn std::error::Error>> {
    let weir = env.weir(|_| {})?;
    let writer = writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let read = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
    eventually("readers serve", Duration::from_secs(20), || Ok(session.value(read)? != writer))?;
    Ok((weir, writer))
}

fn on_readers(env: &Env) -> CaseResult {
    let (weir, writer) = weir_with_readers(env)?;
    let ways: [&[&str]; 6] = [
        &["START TRANSACTION READ ONLY"],
        &["START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"],
        &["SET TRANSACTION READ ONLY", "BEGIN"],
        &["SET TRANSACTION READ ONLY", "START TRANSACTION WITH CONSISTENT SNAPSHOT"],
        &["SET SESSION TRANSACTION READ ONLY", "START TRANSACTION"],
        &["SET SESSION TRANSACTION READ ONLY", "SET autocommit = 0", "SELECT COUNT(*) FROM mysql.user"],
    ];
    for way in ways {
        let mut session = Session::open(weir.addr(), "test")?;
        for statement in way {
            session.query(statement)?.done()?;
        }
        let node = session.value(NODE)?;
        ensure!(node != writer, "{way:?} ran on the writer {node}");
        for _ in 0..5 {
            let now = session.value(NODE)?;
            ensure!(now == node, "{way:?}: first {node}, then {now}");
        }
        session.run("COMMIT")?;
    }
    // Others stay where they were.
    for way in
        ["START TRANSACTION", "START TRANSACTION READ WRITE", "START TRANSACTION WITH CONSISTENT SNAPSHOT"]
    {
        let mut session = Session::open(weir.addr(), "test")?;
        session.run(way)?;
        ensure!(session.value(NODE)? == writer, "{way} left the writer");
    }
    Ok(())
}

fn write_inside(env: &Env) -> CaseResult {
    let ((weir, writer), schema) = (weir_with_readers(env)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for round in 0..5 {
        session.run("START TRANSACTION READ ONLY")?;
        let node = session.value(NODE)?;
        for write in ["INSERT INTO t VALUES (1)", "UPDATE t SET id = 2", "DELETE FROM t"] {
            session.refused(write, 1792)?;
            ensure!(session.value(NODE)? == node, "round {round}: {write} has moved the transaction");
        }
        let refused = session.try_prepare("INSERT INTO t VALUES (?)")?;
        ensure!(matches!(refused, Err(Outcome::Err { code: 1792, .. })), "round {round}: {refused:?}");
        session.run(if round % 2 == 0 { "COMMIT" } else { "ROLLBACK" })?;
        session.run(&format!("INSERT INTO t VALUES ({})", round + 10))?;
        ensure!(
            session.value("SELECT @@wsrep_node_name FOR UPDATE")? == writer,
            "round {round}: not on the writer"
        );
    }
    ensure!(session.value("SELECT COUNT(*) FROM t")? == "5", "rows are missing");
    Ok(())
}

fn ended_inside(env: &Env) -> CaseResult {
    let ((weir, writer), schema) = (weir_with_readers(env)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    for (number, statement) in [
        "BEGIN",
        "START TRANSACTION READ WRITE",
        "CREATE TABLE a (id INT)",
        "LOCK TABLES t WRITE",
        "FLUSH STATUS",
    ]
    .into_iter()
    .enumerate()
    {
        session.run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)")?;
        session.run("START TRANSACTION READ ONLY")?;
        session.value("SELECT COUNT(*) FROM t")?;
        session.run(statement)?;
        session.run(&format!("INSERT INTO t VALUES ({number})"))?;
        ensure!(session.value("SELECT @@wsrep_node_name")? == writer, "{statement}: written on a reader");
        session.query("COMMIT")?;
        session.run("UNLOCK TABLES")?;
        let rows = session.rows("SELECT id FROM t")?;
        ensure!(rows == [[number.to_string()]], "{statement}: {rows:?}");
    }
    Ok(())
}

fn fresh(env: &Env) -> CaseResult {
    let ((weir, _), schema) = (weir_with_readers(env)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for id in 1..=60 {
        session.run(&format!("INSERT INTO t VALUES ({id})"))?;
        session.run("START TRANSACTION READ ONLY")?;
        let newest = session.value("SELECT MAX(id) FROM t")?;
        session.run("COMMIT")?;
        ensure!(newest == id.to_string(), "{newest} seen, {id} written");
    }
    Ok(())
}

fn would_hold(env: &Env) -> CaseResult {
    let ((weir, writer), schema) = (weir_with_readers(env)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("START TRANSACTION READ ONLY")?;
    let message = session.refused("SET @x = 1", 1213)?;
    ensure!(message.contains("would have held the session there"), "{message}");
    // Rolled back, as 1213 says.
    session.run("CREATE TABLE earlier (id INT)")?;
    // From now on such transactions have all that they need, at least in this worker.
    session.run("START TRANSACTION READ ONLY")?;
    session.run("SET @x = 1")?;
    ensure!(session.value("SELECT @x")? == "1", "the variable is lost");
    ensure!(session.value(NODE)? == writer, "not on the writer");
    session.run("COMMIT")?;
    session.run("CREATE TABLE t (id INT)")?;
    Ok(())
}

/// A writer that changes the row would not wait for a lock on a reader.
fn locks_rows(env: &Env) -> CaseResult {
    let ((weir, writer), schema) = (weir_with_readers(env)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    session.run("INSERT INTO t VALUES (1)")?;
    // As soon as one has what was just written.
    eventually("a transaction begins on a reader", Duration::from_secs(10), || {
        session.run("START TRANSACTION READ ONLY")?;
        let is_on_reader = session.value(NODE)? != writer;
        if !is_on_reader {
            session.run("COMMIT")?;
        }
        Ok(is_on_reader)
    })?;
    session.refused("SELECT id FROM t LOCK IN SHARE MODE", 1213)?;
    session.run("START TRANSACTION READ ONLY")?;
    session.value("SELECT id FROM t LOCK IN SHARE MODE")?;
    ensure!(session.value(NODE)? == writer, "locked on a reader");
    let mut other = Session::open(weir.addr(), &schema)?;
    other.run("SET innodb_lock_wait_timeout = 1")?;
    other.refused("DELETE FROM t WHERE id = 1", 1205)?;
    session.run("COMMIT")?;
    other.run("DELETE FROM t WHERE id = 1")?;
    Ok(())
}

fn announced(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    // It holds for the next transaction, of whatever kind, and for that one only.
    session.run("SET TRANSACTION READ ONLY")?;
    session.refused("INSERT INTO t VALUES (1)", 1792)?;
    session.run("COMMIT")?;
    session.run("INSERT INTO t VALUES (1)")?;
    session.run("SET TRANSACTION READ ONLY")?;
    session.run("START TRANSACTION READ WRITE")?;
    session.run("INSERT INTO t VALUES (2)")?;
    session.run("COMMIT")?;
    session.run("SET TRANSACTION READ ONLY")?;
    session.run("SELECT COUNT(*) FROM t")?;
    session.run("INSERT INTO t VALUES (3)")?;
    // A question for warnings that a reader knows does not bind the session to it.
    session.refused("SELECT * FROM nowhere", 1146)?;
    session.run("SET TRANSACTION READ ONLY")?;
    session.run("SHOW WARNINGS")?;
    session.refused("INSERT INTO t VALUES (4)", 1792)?;
    session.run("COMMIT")?;
    // A query without a table does not use it up, nor may it bind the session to a reader.
    session.run("SET TRANSACTION READ ONLY")?;
    session.run("SELECT 1")?;
    session.refused("INSERT INTO t VALUES (4)", 1792)?;
    session.run("COMMIT")?;
    session.run("SET TRANSACTION READ ONLY")?;
    session.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
    session.run("BEGIN")?;
    session.refused("INSERT INTO t VALUES (4)", 1792)?;
    session.run("COMMIT")?;
    session.run("SET TRANSACTION READ ONLY")?;
    session.reset()?.done()?;
    session.run("INSERT INTO t VALUES (5)")?;
    session.run("BEGIN")?;
    session.refused("SET TRANSACTION READ ONLY", 1568)?;
    session.run("COMMIT")?;
    let rows = session.rows("SELECT GROUP_CONCAT(id ORDER BY id) FROM t")?;
    ensure!(rows == [["1,2,3,5"]], "{rows:?}");
    Ok(())
}
