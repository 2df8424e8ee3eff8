//! A pin ties a session to its connection to the server for as long as it must, and not longer.
//!
//! Each case has a Weir with a single connection. While the first session holds it, another one waits in vain; when
//! the reason has ended, or the first session has gone, the other gets through and finds nothing left behind.

use weir_protocol::status::StatusFlags;
use weir_testkit::{TestkitError, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure, wait_free};

/// Weir's number for "no connection within connect_timeout_server_max".
const NO_CONNECTION: u16 = 9001;
const SIGNALLED: u16 = 1644;
/// How long the other session waits for the connection, milliseconds.
const PATIENCE_MS: i64 = 150;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("pins::each_holds_its_connection_and_ends", each_reason),
        Case::parallel("pins::a_session_that_leaves_leaves_nothing_behind", nothing_left),
        Case::parallel("pins::a_role_goes_with_its_session", role),
        Case::parallel("pins::a_failed_call_holds_until_the_reset", failed_call),
        Case::parallel("pins::statements_too_long_to_be_read_hold_until_the_reset", long_statement),
        Case::parallel("pins::a_prepared_row_count_holds_until_it_is_closed", prepared_diagnostics),
        Case::parallel("pins::without_a_reason_a_session_holds_nothing", no_reason),
    ]
}

/// How a reason ends.
enum End {
    /// By a statement of the session's.
    Statement(&'static str),
    /// By COM_RESET_CONNECTION only.
    Reset,
    /// Not even by that: the connection is closed behind the session.
    Gone,
}

/// A reason to stay, and something that only the connection can answer.
struct Reason {
    name: &'static str,
    /// What brings it about.
    begin: &'static [&'static str],
    /// A query of one value, and what it gives on the session's own connection.
    look: Option<(&'static str, &'static str)>,
    end: End,
}

use End::{Gone, Reset, Statement};

/// `#` stands for something different in every case, in names that all sessions of a server share.
const REASONS: &[Reason] = &[
    Reason {
        name: "transaction",
        begin: &["BEGIN", "UPDATE t SET v = 77"],
        look: Some(("SELECT MIN(v) FROM t", "77")),
        end: Statement("COMMIT"),
    },
    Reason {
        name: "transaction without autocommit",
        begin: &["SET autocommit = 0", "UPDATE t SET v = 78"],
        look: Some(("SELECT MIN(v) FROM t", "78")),
        end: Statement("ROLLBACK"),
    },
    Reason {
        name: "transaction READ ONLY",
        begin: &["START TRANSACTION READ ONLY"],
        look: Some(("SELECT @@in_transaction", "1")),
        end: Statement("COMMIT"),
    },
    Reason {
        name: "transaction ended by a definition",
        begin: &["BEGIN"],
        look: None,
        end: Statement("CREATE TABLE implicit (a INT)"),
    },
    Reason { name: "SET @x", begin: &["SET @x = 5"], look: Some(("SELECT @x", "5")), end: Reset },
    Reason { name: "SELECT @x :=", begin: &["SELECT @y := 6"], look: Some(("SELECT @y", "6")), end: Reset },
    Reason { name: "INTO @x", begin: &["SELECT 7 INTO @z"], look: Some(("SELECT @z", "7")), end: Reset },
    Reason {
        name: "temporary table",
        begin: &["CREATE TEMPORARY TABLE tmp (a INT)", "INSERT INTO tmp VALUES (8)"],
        look: Some(("SELECT a FROM tmp", "8")),
        end: Statement("DROP TEMPORARY TABLE tmp"),
    },
    Reason {
        name: "temporary table, dropped as any",
        begin: &["CREATE TEMPORARY TABLE tmp AS SELECT 9 AS a"],
        look: Some(("SELECT a FROM tmp", "9")),
        end: Statement("DROP TABLE tmp"),
    },
    Reason {
        name: "GET_LOCK",
        begin: &["SELECT GET_LOCK('pin#', 0)"],
        look: Some(("SELECT IS_USED_LOCK('pin#') IS NOT NULL", "1")),
        end: Statement("SELECT RELEASE_LOCK('pin#')"),
    },
    Reason {
        name: "GET_LOCK twice, all released",
        begin: &["DO GET_LOCK('pin#', 0)", "DO GET_LOCK('pin#b', 0)"],
        look: Some(("SELECT IS_FREE_LOCK('pin#b')", "0")),
        end: Statement("DO RELEASE_ALL_LOCKS()"),
    },
    Reason {
        name: "LOCK TABLES",
        begin: &["LOCK TABLES t READ"],
        look: Some(("SELECT COUNT(*) FROM t", "2")),
        end: Statement("UNLOCK TABLES"),
    },
    Reason {
        name: "PREPARE",
        begin: &["PREPARE s FROM 'SELECT 10'"],
        look: None,
        end: Statement("DEALLOCATE PREPARE s"),
    },
    Reason {
        name: "PREPARE and EXECUTE",
        begin: &["PREPARE s FROM 'SELECT 10'"],
        look: Some(("EXECUTE s", "10")),
        end: Reset,
    },
    Reason {
        name: "HANDLER",
        begin: &["HANDLER t OPEN AS h"],
        look: Some(("HANDLER h READ `PRIMARY` LAST WHERE id > 0", "")),
        end: Statement("HANDLER h CLOSE"),
    },
    Reason { name: "BACKUP LOCK", begin: &["BACKUP LOCK t"], look: None, end: Statement("BACKUP UNLOCK") },
    Reason {
        name: "SET TRANSACTION",
        begin: &["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        look: None,
        end: Statement("SELECT COUNT(*) FROM t"),
    },
    Reason { name: "CALL", begin: &["CALL p()"], look: Some(("SELECT @called", "1")), end: Reset },
    Reason { name: "stored function", begin: &["SELECT f()"], look: Some(("SELECT @f", "3")), end: Reset },
    Reason {
        name: "sequence",
        begin: &["SELECT NEXTVAL(q)"],
        look: Some(("SELECT LASTVAL(q) IS NOT NULL", "1")),
        end: Reset,
    },
    Reason { name: "rand_seed1", begin: &["SET rand_seed1 = 5, rand_seed2 = 6"], look: None, end: Reset },
    Reason {
        name: "insert_id",
        begin: &["SET insert_id = 500", "INSERT INTO t (v) SELECT 1 FROM t WHERE v = 0"],
        look: Some(("SELECT @@insert_id", "500")),
        end: Reset,
    },
    Reason {
        name: "sql_auto_is_null",
        begin: &["SET sql_auto_is_null = 1"],
        look: None,
        end: Statement("SET sql_auto_is_null = 0"),
    },
    Reason { name: "profiling", begin: &["SET profiling = 1", "SET profiling = 0"], look: None, end: Gone },
    Reason {
        name: "optimizer_trace",
        begin: &["SET optimizer_trace = 'enabled=on'", "SELECT v FROM t", "SET optimizer_trace = DEFAULT"],
        look: Some(("SELECT COUNT(*) > 0 FROM information_schema.OPTIMIZER_TRACE", "1")),
        end: Gone,
    },
];

const OBJECTS: [&str; 6] = [
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
    "INSERT INTO t VALUES (1, 1), (2, 2)",
    "CREATE SEQUENCE q NOCACHE",
    "CREATE PROCEDURE p() SET @called = 1",
    "CREATE PROCEDURE failing() BEGIN SET @called = 2, time_zone = '+08:00'; SIGNAL SQLSTATE '45000'; END",
    "CREATE FUNCTION f() RETURNS INT NO SQL BEGIN SET @f = 3; RETURN 3; END",
];

/// A schema for the reasons' statements.
fn schema_of(env: &Env) -> Result<String, Box<dyn std::error::Error>> {
    let schema = env.schema()?;
    let mut session = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    for sql in OBJECTS {
        session.run(sql)?;
    }
    Ok(schema)
}

fn one_connection(env: &Env) -> Result<Weir, String> {
    env.narrow_weir_with(&[1], 1, |config| {
        config.variable("connect_timeout_server_max", PATIENCE_MS);
    })
}

fn each_reason(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    let faults: Vec<String> = REASONS
        .iter()
        .filter_map(|reason| holds_and_ends(&weir, &schema, reason).err())
        .map(|error| error.to_string())
        .collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn holds_and_ends(weir: &Weir, schema: &str, reason: &Reason) -> CaseResult {
    let name = reason.name;
    let text = |sql: &str| sql.replace('#', schema);
    let mut holder = Session::open(weir.addr(), schema)?;
    let mut other = Session::open(weir.addr(), schema)?;
    wait_free(&mut other)?;
    for sql in reason.begin {
        holder.run(&text(sql))?;
    }
    for _ in 0..2 {
        let answer = other.query("DO 0")?;
        ensure!(answer.error() == Some(NO_CONNECTION), "{name} does not hold the connection: {answer:?}");
        if let Some((sql, expected)) = reason.look {
            let rows = holder.rows(&text(sql)).map_err(|error| format!("{name}: {error}"))?;
            let is_right = expected.is_empty() || rows.concat() == [expected];
            ensure!(is_right, "{name}: {sql} gives {rows:?}, not {expected}");
        }
    }
    match reason.end {
        Statement(sql) => drop(holder.run(&text(sql))?),
        Reset => drop(holder.reset()?.done()?),
        Gone => {
            holder.reset()?.done()?;
            let answer = other.query("DO 0")?;
            ensure!(answer.error() == Some(NO_CONNECTION), "{name} ends with a reset: {answer:?}");
            drop(holder);
            return wait_free(&mut other);
        }
    }
    wait_free(&mut other).map_err(|error| format!("{name} still holds the connection: {error}"))?;
    wait_free(&mut holder).map_err(|error| format!("{name}, the holder after its end: {error}"))?;
    Ok(())
}

fn nothing_left(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    for reason in REASONS {
        let text = |sql: &str| sql.replace('#', &schema);
        let mut holder = Session::open(weir.addr(), &schema)?;
        for sql in reason.begin {
            holder.run(&text(sql)).map_err(|error| format!("{}: {error}", reason.name))?;
        }
        drop(holder);
        let mut next = Session::open(weir.addr(), &schema)?;
        wait_free(&mut next).map_err(|error| format!("{}: {error}", reason.name))?;
        let status = next.run("DO 0")?.status;
        ensure!(status == StatusFlags::AUTOCOMMIT, "{}: the next session has {status:?}", reason.name);
        if let Some((sql, expected)) = reason.look.filter(|(_, expected)| !expected.is_empty()) {
            let answer = next.query(&text(sql))?;
            // Of rows that stay in any case there is nothing to be seen.
            let is_common = sql == "SELECT COUNT(*) FROM t";
            let found = answer.value().is_ok_and(|value| value == expected);
            ensure!(is_common || !found, "{}: the next session finds {expected} by {sql}", reason.name);
        }
        next.reset()?.done()?;
    }
    let rows = env.cluster()?.node(1).root_query(&format!("SELECT id, v FROM {schema}.t"))?;
    ensure!(rows == [["1", "1"], ["2", "2"]], "nothing was committed, but t has {rows:?}");
    Ok(())
}

fn role(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let role = format!("role_{}", env.schema()?);
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE ROLE {role}; GRANT {role} TO app"))?;
    let mut holder = Session::open(weir.addr(), "test")?;
    holder.run(&format!("SET ROLE {role}"))?;
    let mut other = Session::open(weir.addr(), "test")?;
    other.refused("DO 0", NO_CONNECTION)?;
    let shown = holder.value("SELECT CURRENT_ROLE()")?;
    ensure!(shown == role, "CURRENT_ROLE() is {shown}");
    holder.reset()?.done()?;
    let shown = holder.value("SELECT CURRENT_ROLE()")?;
    ensure!(shown == role, "a role outlives COM_RESET_CONNECTION on servers, but here it is {shown}");
    drop(holder);
    wait_free(&mut other)?;
    let shown = other.value("SELECT CURRENT_ROLE()")?;
    ensure!(shown == "NULL", "another session has the role {shown}");
    node.root_query(&format!("DROP ROLE {role}"))?;
    Ok(())
}

fn failed_call(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    let mut holder = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    holder.refused("CALL failing()", SIGNALLED)?;
    other.refused("DO 0", NO_CONNECTION)?;
    let rows = holder.rows("SELECT @called, @@time_zone")?;
    ensure!(rows == [["2", "+08:00"]], "the caller finds {rows:?}");
    holder.reset()?.done()?;
    wait_free(&mut other)?;
    let look = "SELECT @called, @@time_zone";
    let (ours, theirs) = (holder.rows(look)?, other.rows(look)?);
    ensure!(ours == [["NULL", "SYSTEM"]] && theirs == ours, "after the reset: {ours:?} and {theirs:?}");
    Ok(())
}

fn long_statement(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    let mut holder = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let filling = "x".repeat(3 << 20);
    holder.run(&format!("SELECT LENGTH('{filling}'), @unseen := 5"))?;
    other.refused("DO 0", NO_CONNECTION)?;
    let value = holder.value("SELECT @unseen")?;
    ensure!(value == "5", "@unseen is {value}");
    holder.reset()?.done()?;
    wait_free(&mut other)
}

fn prepared_diagnostics(env: &Env) -> CaseResult {
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    let mut holder = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let statement = holder.prepare("SELECT ROW_COUNT()")?;
    other.refused("DO 0", NO_CONNECTION)?;
    holder.run("UPDATE t SET v = v + 1")?;
    let rows = holder.execute(&statement, &[])?.binary_rows()?;
    ensure!(rows == [["2"]], "ROW_COUNT() is {rows:?}");
    holder.close(&statement)?;
    // Not answered, so the next answer tells that it was read.
    holder.ping()?.done()?;
    wait_free(&mut other)
}

/// Statements after which any other session may have the connection at once.
fn no_reason(env: &Env) -> CaseResult {
    const FREE: [&str; 15] = [
        "SET sql_mode = 'ANSI'",
        "SET NAMES latin1",
        "USE test",
        "SELECT * FROM t",
        "INSERT INTO t (v) VALUES (5)",
        "UPDATE t SET v = 6",
        "DELETE FROM t WHERE id > 2",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t LIMIT 1",
        "SELECT CAST('x' AS INT)",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "CREATE TABLE free (a INT)",
        "DROP TABLE free",
        "SET STATEMENT max_statement_time = 1 FOR SELECT 1",
        "SELECT LAST_INSERT_ID(77)",
    ];
    let weir = one_connection(env)?;
    let schema = schema_of(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let free = |other: &mut Session, sql: &str| -> Result<(), TestkitError> {
        let failed = |error| TestkitError::Protocol(format!("after {sql}: {error}"));
        other.run("DO 0").map(drop).map_err(failed)
    };
    for sql in FREE {
        session.run(sql)?;
        if sql.starts_with("USE") {
            session.run(&format!("USE {schema}"))?;
        }
        free(&mut other, sql)?;
    }
    session.refused("SELECT * FROM nowhere", 1146)?;
    free(&mut other, "an error")?;
    let statement = session.prepare("SELECT v FROM t WHERE id = ?")?;
    free(&mut other, "COM_STMT_PREPARE")?;
    session.execute(&statement, &[1.into()])?.done()?;
    free(&mut other, "COM_STMT_EXECUTE")?;
    Ok(())
}
