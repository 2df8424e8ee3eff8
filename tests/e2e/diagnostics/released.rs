//! A session that leaves its connection, in any way and whatever others do there, gets its own answers about its past,
//! asked by itself or by its triggers and routines, and nobody else is told of it.

use std::error::Error;
use std::time::Duration;

use weir_testkit::Family;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{ID, Trio, UNKNOWN_ERROR};

/// The cases of this module.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("diagnostics::closing_a_statement_loses_nothing", |env| closed(Trio::new(env)?)),
        Case::parallel("diagnostics::closing_a_statement_loses_nothing_at_mysql", |env| {
            closed(Trio::at_mysql(env)?)
        }),
        Case::parallel("diagnostics::triggers_ask_for_the_sessions_own_id", |env| {
            triggers(env, Family::Mariadb)
        }),
        Case::parallel("diagnostics::triggers_ask_for_the_sessions_own_id_at_mysql", |env| {
            triggers(env, Family::Mysql)
        }),
        Case::parallel("diagnostics::code_finds_what_its_session_has_left", code),
        Case::parallel("diagnostics::last_gtid_is_that_of_the_sessions_own_write", last_gtid),
        Case::parallel("diagnostics::nobody_reads_profiles_and_traces_of_others", |env| {
            traces(Trio::new(env)?)
        }),
        Case::parallel("diagnostics::nobody_reads_profiles_and_traces_of_others_at_mysql", |env| {
            traces(Trio::at_mysql(env)?)
        }),
        Case::parallel("diagnostics::a_reset_behind_a_call_gives_the_connection_back", |env| {
            reset_behind_call(env, Family::Mariadb)
        }),
        Case::parallel("diagnostics::a_reset_behind_a_call_gives_the_connection_back_at_mysql", |env| {
            reset_behind_call(env, Family::Mysql)
        }),
    ]
}

/// Accounts change so often at most while a few statements run.
const RELOGINS_MAX: usize = 5;
/// A new connection is there within this time.
const CONNECTED: Duration = Duration::from_secs(10);

fn trio(env: &Env, family: Family) -> Result<Trio, Box<dyn Error>> {
    match family {
        Family::Mariadb => Trio::new(env),
        Family::Mysql => Trio::at_mysql(env),
    }
}

fn as_root(env: &Env, family: Family, sql: &str) -> CaseResult {
    match family {
        Family::Mariadb => env.cluster()?.node(1).root_query(sql)?,
        Family::Mysql => env.mysql()?.source().root_query(sql)?,
    };
    Ok(())
}

/// A statement holds the connection until it is closed.
fn closed(mut trio: Trio) -> CaseResult {
    for has_cursor in [false, true] {
        for (leaves, asks) in [
            ("INSERT INTO t (v) VALUES (7), (8)", [ID, "INSERT INTO log (t_id) VALUES (LAST_INSERT_ID())"]),
            ("SELECT CAST('mine' AS SIGNED)", ["SHOW WARNINGS", "SHOW COUNT(*) WARNINGS"]),
        ] {
            for session in [&mut trio.mine, &mut trio.reference] {
                let text = if has_cursor { "SELECT id FROM t" } else { "SELECT ROW_COUNT()" };
                session.run("INSERT INTO t (v) VALUES (1), (2)")?;
                let statement = session.prepare(text)?;
                if has_cursor {
                    session.open_cursor(&statement)?;
                }
                session.run(leaves)?;
                session.close(&statement)?;
            }
            trio.all_same(&asks)?;
        }
        trio.same("SELECT t_id FROM log ORDER BY id")?;
        trio.begin_anew()?;
    }
    Ok(())
}

fn triggers(env: &Env, family: Family) -> CaseResult {
    let mut trio = trio(env, family)?;
    for schema in trio.schemas.clone() {
        for trigger in [
            "CREATE TRIGGER updated BEFORE UPDATE ON t FOR EACH ROW SET NEW.v = LAST_INSERT_ID()",
            "CREATE TRIGGER deleted AFTER DELETE ON t FOR EACH ROW INSERT INTO log (t_id) VALUES (LAST_INSERT_ID())",
        ] {
            as_root(env, family, &format!("USE {schema}; {trigger}"))?;
        }
    }
    let shown = ["SELECT * FROM t ORDER BY id", "SELECT t_id FROM log ORDER BY id", ID];
    trio.all_same(&["INSERT INTO t (k) VALUES (1)", "INSERT INTO t (k) VALUES (2)"])?;
    trio.all_same(&["UPDATE t SET v = 0 WHERE k = 1", "REPLACE INTO t (k) VALUES (3), (1)"])?;
    trio.all_same(&shown)?;
    trio.all_same(&["BEGIN", "UPDATE t SET v = 0 WHERE k = 2", "DELETE FROM t WHERE k = 3", "COMMIT"])?;
    trio.all_same(&shown)?;
    let prepared = [&mut trio.mine, &mut trio.reference].map(|s| s.prepare("DELETE FROM t WHERE k = 1"));
    let [ours, theirs] = prepared;
    trio.disturb()?;
    trio.mine.execute(&ours?, &[])?.done()?;
    trio.reference.execute(&theirs?, &[])?.done()?;
    trio.all_same(&shown)
}

/// Where nobody else has used the connection; MySQL ends all that with the call itself.
fn code(env: &Env) -> CaseResult {
    const FAILING: &str = "SELECT nothing";
    let mut trio = Trio::new(env)?.with_several()?;
    for schema in trio.schemas.clone() {
        let asked = format!("USE {schema}; CREATE PROCEDURE asked() SELECT ROW_COUNT()");
        as_root(env, Family::Mariadb, &asked)?;
    }
    for statements in [
        &[FAILING, "SELECT 1; SELECT 2", "SHOW WARNINGS"][..],
        &[FAILING, "SELECT 1; SHOW WARNINGS", "SHOW COUNT(*) ERRORS"],
        &[FAILING, "EXECUTE IMMEDIATE 'SHOW WARNINGS'"],
        &["SET @a = 1", FAILING, "BEGIN NOT ATOMIC SELECT 1; END", "SHOW WARNINGS"],
        &["BEGIN", "INSERT INTO t (v) VALUES (1), (2)", "CALL asked()", "ROLLBACK"],
    ] {
        let mut is_compared = false;
        for _ in 0..RELOGINS_MAX {
            is_compared = runs_alike(&mut trio, statements)?;
            trio.begin_anew()?;
            if is_compared {
                break;
            }
        }
        ensure!(is_compared, "{statements:?}: the connection was logged in anew {RELOGINS_MAX} times");
    }
    // Where somebody has, nobody knows whether they are over.
    trio.mine.query(FAILING)?;
    trio.disturb()?;
    trio.mine.query("SELECT 1; SELECT 2")?;
    let message = trio.mine.refused("SHOW WARNINGS", UNKNOWN_ERROR)?;
    ensure!(message.contains("gone with its connection"), "{message}");
    // Until a statement ends them for sure.
    trio.mine.query("SELECT 1; INSERT INTO t (v) VALUES (1)")?;
    ensure!(trio.mine.rows("SHOW WARNINGS")?.is_empty(), "an INSERT has none");
    Ok(())
}

/// Runs the statements through Weir and straight, and compares. False if Weir says that the connection has been used in
/// between: it is logged in anew when accounts change, as those of other cases do at any time.
fn runs_alike(trio: &mut Trio, statements: &[&str]) -> Result<bool, Box<dyn Error>> {
    trio.disturb()?;
    for sql in statements {
        let (ours, right) = (trio.mine.query(sql)?, trio.reference.query(sql)?);
        let (ours, right) = (format!("{:?}", ours.results), format!("{:?}", right.results));
        if ours.contains("another session has used the connection")
            || ours.contains("gone with its connection")
        {
            return Ok(false);
        }
        // Ids differ, and the rest of what an OK tells is compared elsewhere.
        ensure!(sql.starts_with("INSERT") || ours == right, "{statements:?}: {ours}, straight {right}");
    }
    Ok(true)
}

fn last_gtid(env: &Env) -> CaseResult {
    const GTID: &str = "SELECT @@last_gtid";
    let mut trio = Trio::new(env)?;
    ensure!(trio.mine.value(GTID)?.is_empty(), "a new session has written");
    let mut seen = vec![String::new()];
    for writes in [&["INSERT INTO t (v) VALUES (1)"][..], &["BEGIN", "UPDATE t SET v = 2", "COMMIT"]] {
        for sql in writes {
            trio.mine.run(sql)?;
        }
        let own = trio.mine.value(GTID)?;
        ensure!(!seen.contains(&own), "{own} after {seen:?}");
        trio.disturb()?;
        ensure!(trio.other.value(GTID)? != own, "the other session's write has another one");
        ensure!(trio.mine.value(GTID)? == own, "another session's");
        ensure!(trio.mine.value("SELECT @@SESSION.last_gtid")? == own, "another session's by its whole name");
        seen.push(own);
    }
    let refused = trio.mine.try_prepare("SELECT @@last_gtid")?;
    ensure!(refused.is_err(), "prepared, it would be the connection's: {refused:?}");
    trio.mine.reset()?.done()?;
    ensure!(trio.mine.value(GTID)?.is_empty(), "a reset ends it");
    Ok(())
}

/// They show texts with all that stands in them, and servers keep them over a reset (MariaDB profiles, MySQL traces).
fn traces(mut trio: Trio) -> CaseResult {
    for (on, off, question) in [
        ("SET profiling = 1", "SET profiling = 0", "SHOW PROFILES"),
        (
            "SET optimizer_trace = 'enabled=on'",
            "SET optimizer_trace = DEFAULT",
            "SELECT QUERY FROM information_schema.OPTIMIZER_TRACE",
        ),
    ] {
        for (is_reset, is_switched_off) in [(false, false), (false, true), (true, false), (true, true)] {
            trio.log_in_anew()?;
            trio.mine.run(on)?;
            trio.mine.run("SELECT 'secret' FROM t")?;
            ensure!(format!("{:?}", trio.mine.rows(question)?).contains("secret"), "{question}: not its own");
            if is_switched_off {
                trio.mine.run(off)?;
            }
            if is_reset {
                trio.mine.reset()?.done()?;
            }
            let schema = trio.schemas[0].clone();
            trio.mine = Session::open(trio.weir.addr(), &schema)?;
            eventually("there is a connection", CONNECTED, || {
                Ok(trio.other.query("DO 0")?.error().is_none())
            })?;
            let read = trio.other.rows(question)?;
            ensure!(!format!("{read:?}").contains("secret"), "{question}: another session reads {read:?}");
        }
    }
    Ok(())
}

fn reset_behind_call(env: &Env, family: Family) -> CaseResult {
    let mut trio = trio(env, family)?;
    let schema = trio.schemas[0].clone();
    as_root(env, family, &format!("USE {schema}; CREATE PROCEDURE asked() SELECT 1"))?;
    for _ in 0..3 {
        trio.mine.run("CALL asked()")?;
        trio.mine.reset()?.done()?;
        eventually("the connection is free", CONNECTED, || {
            Ok(trio.other.query("SELECT 1")?.error().is_none())
        })?;
        ensure!(trio.mine.value("SELECT DATABASE()")? == schema, "the session has lost its schema");
    }
    Ok(())
}
