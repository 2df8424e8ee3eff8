//! Users and hostgroups that want it otherwise than a transaction, or a session, has it by default.

use weir_protocol::status::StatusFlags;
use weir_testkit::{Account, Weir, hostgroup};
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, wait_free};

use super::{WHERE, weir_with};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("query_rules::reads_leave_a_transaction_that_is_not_persistent", reads_leave),
        Case::parallel("query_rules::what_a_read_elsewhere_leaves_is_known_in_its_transaction", diagnostics),
        Case::parallel("query_rules::executions_leave_a_transaction_too", executions),
        Case::parallel(
            "query_rules::a_transaction_is_rolled_back_with_a_client_that_reads_elsewhere",
            client_leaves,
        ),
        Case::parallel("query_rules::a_session_begins_with_its_users_isolation_level", isolation),
        Case::parallel("query_rules::a_hostgroup_with_multiplex_0_keeps_connections", multiplex),
    ]
}

/// A Weir whose rule sends every SELECT to the readers, and whose user app does not insist on whole transactions.
fn weir(env: &Env) -> Result<Weir, String> {
    let rule = format!("match_digest = '^SELECT', destination_hostgroup = {}, apply = 1", hostgroup::READER);
    weir_with(env, &[&rule], |config| {
        config.user_column(Account::APP.user, "transaction_persistent", 0);
    })
}

/// A session in a schema of its own with a table, in a transaction that has written a row.
fn in_transaction(env: &Env, weir: &Weir) -> Result<(Session, String), Box<dyn std::error::Error>> {
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, word VARCHAR(20))")?;
    session.run("INSERT INTO t (word) VALUES ('first')")?;
    session.run("BEGIN")?;
    session.run("INSERT INTO t (word) VALUES ('second')")?;
    Ok((session, schema))
}

fn reads_leave(env: &Env) -> CaseResult {
    let weir = weir(env)?;
    let (mut session, _) = in_transaction(env, &weir)?;
    for _ in 0..3 {
        let node = session.value(WHERE)?;
        ensure!(node != "n1", "a read ran on {node}");
        let answer = session.query("SELECT word FROM t")?;
        let [Outcome::Rows(rows)] = answer.results.as_slice() else {
            return Err(format!("no rows but {answer:?}").into());
        };
        ensure!(
            rows.end.status.contains(StatusFlags::IN_TRANS),
            "the client takes it for over: {:?}",
            rows.end
        );
        ensure!(rows.rows.len() == 1, "what is not committed is seen elsewhere");
        let locked = session.rows("SELECT word FROM t FOR UPDATE")?;
        ensure!(locked.len() == 2, "a locking read has left the transaction: {locked:?}");
        let id = session.value("SELECT LAST_INSERT_ID()")?;
        ensure!(id != "0", "LAST_INSERT_ID() is asked for elsewhere");
    }
    let done = session.run("COMMIT")?;
    ensure!(!done.status.contains(StatusFlags::IN_TRANS), "COMMIT ran elsewhere");
    let count = session.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "2", "the session's own commit is not seen on a reader");
    // With autocommit=0 a read elsewhere would begin a transaction there.
    session.run("SET autocommit = 0")?;
    session.run("INSERT INTO t (word) VALUES ('third')")?;
    let count = session.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "3", "a read has left an implicit transaction: {count}");
    session.run("ROLLBACK")?;
    Ok(())
}

fn diagnostics(env: &Env) -> CaseResult {
    let weir = weir(env)?;
    let (mut session, _) = in_transaction(env, &weir)?;
    session.run("UPDATE t SET word = 'x' WHERE 0 = CAST('nought' AS INT)")?;
    session.rows("SELECT CAST('one' AS INT), CAST('two' AS INT) FROM t")?;
    let warnings = session.rows("SHOW WARNINGS")?;
    ensure!(warnings.iter().all(|row| !row[2].contains("nought")), "an older statement's: {warnings:?}");
    ensure!(warnings.len() == 2, "{warnings:?}");
    session.rows("SELECT word FROM t")?;
    ensure!(session.value("SELECT FOUND_ROWS()")? == "1", "FOUND_ROWS() of another statement");
    let warnings = session.rows("SHOW WARNINGS")?;
    ensure!(warnings.is_empty(), "{warnings:?}");
    session.refused("SELECT nothing FROM t", 1054)?;
    let errors = session.rows("SHOW ERRORS")?;
    ensure!(errors.len() == 1, "{errors:?}");
    session.run("UPDATE t SET word = 'x' WHERE 0 = CAST('nought' AS INT)")?;
    session.rows("SELECT word FROM t")?;
    session.run("GET DIAGNOSTICS @conditions = NUMBER")?;
    let conditions = session.value("SELECT @conditions")?;
    ensure!(conditions == "0", "{conditions} conditions of an older statement");
    let done = session.run("INSERT INTO t (word) VALUES ('third')")?;
    ensure!(done.status.contains(StatusFlags::IN_TRANS), "an error elsewhere has ended the transaction");
    session.run("ROLLBACK")?;
    ensure!(session.value("SELECT COUNT(*) FROM t")? == "1", "not rolled back");
    Ok(())
}

fn executions(env: &Env) -> CaseResult {
    let weir = weir(env)?;
    let (mut session, _) = in_transaction(env, &weir)?;
    let node = session.prepare(WHERE)?;
    let count = session.prepare("SELECT COUNT(*) FROM t WHERE id > 0 FOR UPDATE")?;
    for _ in 0..3 {
        let answer = session.execute(&node, &[])?;
        let [Outcome::Rows(rows)] = answer.results.as_slice() else {
            return Err(format!("no rows but {answer:?}").into());
        };
        let is_there = rows.rows.iter().any(|row| row.ends_with(b"n1"));
        ensure!(rows.rows.len() == 1 && !is_there, "an execution stayed: {rows:?}");
        ensure!(rows.end.status.contains(StatusFlags::IN_TRANS), "{:?}", rows.end);
        let answer = session.execute(&count, &[])?;
        let [Outcome::Rows(rows)] = answer.results.as_slice() else {
            return Err(format!("no rows but {answer:?}").into());
        };
        let number = rows.rows.first().and_then(|row| row.get(2));
        ensure!(number == Some(&2), "a locking read has left: {rows:?}");
    }
    session.run("COMMIT")?;
    Ok(())
}

fn client_leaves(env: &Env) -> CaseResult {
    let weir = weir(env)?;
    let (mut session, schema) = in_transaction(env, &weir)?;
    session.rows("SELECT word FROM t FOR UPDATE")?;
    session.send_query(
        "SELECT COUNT(*) FROM t AS a, information_schema.COLUMNS AS b, information_schema.COLUMNS AS c",
    )?;
    session.vanish();
    // Waits for the row's lock, if it must.
    let mut other = Session::open(weir.addr(), &schema)?;
    other.run("UPDATE t SET word = 'free'")?;
    let rows = other.rows("SELECT word FROM t FOR UPDATE")?;
    ensure!(rows == [["free"]], "not rolled back: {rows:?}");
    Ok(())
}

fn isolation(env: &Env) -> CaseResult {
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        let attributes = "{\"default-transaction_isolation\": \"read committed\"}";
        config.user_column(Account::APP.user, "attributes", attributes);
    })?;
    const LEVEL: &str = "SELECT @@tx_isolation";
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    ensure!(session.value(LEVEL)? == "READ-COMMITTED", "at the beginning");
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
    ensure!(session.value(LEVEL)? == "SERIALIZABLE", "the session's own");
    ensure!(other.value(LEVEL)? == "READ-COMMITTED", "of another session");
    session.reset()?;
    ensure!(session.value(LEVEL)? == "READ-COMMITTED", "after a reset");
    session.change_user(Account::APP2, "test")?;
    ensure!(session.value(LEVEL)? == "REPEATABLE-READ", "of another user");
    Ok(())
}

fn multiplex(env: &Env) -> CaseResult {
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        config.variable("connect_timeout_server_max", 300);
        let row = [("hostgroup_id", hostgroup::WRITER.into()), ("multiplex", 0.into())];
        config.push("mysql_hostgroup_attributes", &row);
    })?;
    let mut first = Session::open(weir.addr(), "test")?;
    let mut second = Session::open(weir.addr(), "test")?;
    wait_free(&mut first)?;
    let statement = first.prepare("SELECT 1")?;
    first.close(&statement)?;
    second.refused("DO 2", 9001)?;
    first.ping()?;
    second.refused("DO 2", 9001)?;
    first.run("DO 1")?;
    drop(first);
    wait_free(&mut second)
}
