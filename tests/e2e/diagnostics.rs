//! A session's questions about its own past get true answers, although other sessions use the connection in between.

mod copies;
mod released;
mod trio;
mod ways;

use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

pub(crate) use trio::Trio;

const DUPLICATE_KEY: u16 = 1062;
const UNKNOWN_ERROR: u16 = 1105;
const NO_SUCH_TABLE: u16 = 1146;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("diagnostics::last_insert_id_is_the_sessions_own", last_insert_id),
        Case::parallel("diagnostics::last_insert_id_in_statements_that_write", last_insert_id_in_writes),
        Case::parallel("diagnostics::last_insert_id_by_prepared_statements", last_insert_id_prepared),
        Case::parallel("diagnostics::last_insert_id_costs_one_statement_more", last_insert_id_cost),
        Case::parallel("diagnostics::row_count_is_that_of_the_statement_before", row_count),
        Case::parallel("diagnostics::found_rows_is_that_of_the_query_before", found_rows),
        Case::parallel("diagnostics::found_rows_follows_queries_that_do_not_show", |env| {
            let own = [
                "EXECUTE IMMEDIATE 'DELETE FROM log'",
                "EXECUTE IMMEDIATE 'SELECT v FROM t LIMIT 2'",
                "BEGIN NOT ATOMIC DELETE FROM log; END",
                "BEGIN NOT ATOMIC SELECT v FROM t LIMIT 2; DELETE FROM log; END",
                "UPDATE t SET v = v",
                "INSERT INTO log (t_id) SELECT v FROM t LIMIT 6 RETURNING t_id",
                "SET STATEMENT max_statement_time = 9 FOR SELECT v FROM t LIMIT 5",
                "SET STATEMENT max_statement_time = 9 FOR DELETE FROM log",
            ];
            found_rows_of_hidden_queries(Trio::new(env)?, &own)
        }),
        Case::parallel("diagnostics::found_rows_follows_queries_that_do_not_show_at_mysql", |env| {
            let own = ["VALUES ROW(1), ROW(2)", "TABLE t", "TABLE t LIMIT 3 OFFSET 2"];
            found_rows_of_hidden_queries(Trio::at_mysql(env)?, &own)
        }),
        Case::parallel("diagnostics::found_rows_prepared", |env| found_rows_prepared(Trio::new(env)?)),
        Case::parallel("diagnostics::found_rows_says_what_it_does_not_know", unknown_found_rows),
        Case::parallel("diagnostics::connection_id_is_that_of_the_greeting", connection_id),
        Case::parallel("diagnostics::warnings_stay_until_they_are_outdated", warnings),
        Case::parallel("diagnostics::errors_are_shown_to_whom_they_belong", errors),
        Case::parallel("diagnostics::get_diagnostics_tells_the_truth", |env| {
            get_diagnostics(Trio::new(env)?)
        }),
        Case::parallel("diagnostics::get_diagnostics_tells_the_truth_at_mysql", |env| {
            get_diagnostics(Trio::at_mysql(env)?)
        }),
        Case::parallel("diagnostics::names_of_columns_are_as_written", column_names),
    ];
    cases.extend(copies::trials());
    cases.extend(released::trials());
    cases.extend(ways::trials());
    cases
}

const ID: &str = "SELECT LAST_INSERT_ID()";

fn last_insert_id(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    trio.all_same(&[ID, "INSERT INTO t (v) VALUES (1)", ID, ID])?;
    trio.all_same(&["INSERT INTO t (v) VALUES (2), (3), (4)", ID, "SELECT 1", ID])?;
    // Explicit ids do not count, but are shown in the reply.
    trio.all_same(&["INSERT INTO t (id, v) VALUES (2000, 5)", ID, "INSERT INTO t VALUES (2001, 1, 5)", ID])?;
    trio.all_same(&["INSERT INTO t (k, v) VALUES (1, 6) ON DUPLICATE KEY UPDATE v = 60", ID])?;
    trio.all_same(&["INSERT INTO t (k, v) VALUES (50, 6) ON DUPLICATE KEY UPDATE v = 60", ID])?;
    let by_hand = "INSERT INTO t (k) VALUES (50) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), v = 61";
    trio.all_same(&[
        by_hand,
        ID,
        "SELECT LAST_INSERT_ID(4711)",
        ID,
        "SELECT @@last_insert_id, @@identity",
        ID,
    ])?;
    trio.all_same(&[
        "UPDATE t SET v = LAST_INSERT_ID(v + 100) WHERE k = 50",
        ID,
        "SELECT LAST_INSERT_ID() + 1",
        ID,
    ])?;
    trio.all_same(&[
        "SET last_insert_id = 12",
        ID,
        "SET identity = 13",
        ID,
        "SET @@session.insert_id = 9000",
    ])?;
    trio.all_same(&["INSERT INTO t (v) VALUES (7)", ID, "REPLACE INTO t (k, v) VALUES (50, 8)", ID])?;
    trio.all_same(&["INSERT IGNORE INTO t (k) VALUES (50)", ID, "INSERT INTO t (k) VALUES (50)", ID])?;
    trio.all_same(&["BEGIN", "INSERT INTO t (v) VALUES (9)", "ROLLBACK", ID, "DELETE FROM t", ID])?;
    trio.all_same(&[
        "INSERT INTO t (v) SELECT seq FROM seq_1_to_5",
        ID,
        "INSERT INTO t (v) VALUES (1) RETURNING id",
        ID,
    ])
}

/// Ids of the session that go into other rows.
fn last_insert_id_in_writes(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    for _ in 0..3 {
        trio.all_same(&["INSERT INTO t (v) VALUES (1)", "INSERT INTO log VALUES (NULL, LAST_INSERT_ID())"])?;
        trio.all_same(&["INSERT INTO t (v) VALUES (LAST_INSERT_ID()), (LAST_INSERT_ID())", ID])?;
        trio.all_same(&["UPDATE t SET k = LAST_INSERT_ID() WHERE id = LAST_INSERT_ID()", ID])?;
        trio.all_same(&["INSERT INTO log (t_id) SELECT MAX(id) FROM t WHERE id <= LAST_INSERT_ID()", ID])?;
        trio.same("SELECT * FROM log ORDER BY id")?;
        trio.same("SELECT * FROM t ORDER BY id")?;
    }
    trio.all_same(&[
        "SELECT COUNT(*) FROM t WHERE id = LAST_INSERT_ID()",
        "DELETE FROM t WHERE id = LAST_INSERT_ID()",
    ])?;
    trio.same("SELECT * FROM t ORDER BY id")
}

fn last_insert_id_prepared(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    let texts = [
        "INSERT INTO t (v) VALUES (?)",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO log (t_id) VALUES (LAST_INSERT_ID())",
        "SELECT id, t_id FROM log ORDER BY id",
        "UPDATE t SET v = LAST_INSERT_ID(?) WHERE id > 0 LIMIT 1",
    ];
    let mut prepared = Vec::new();
    for text in texts {
        prepared.push((trio.mine.prepare(text)?, trio.reference.prepare(text)?));
    }
    for (round, at) in [0, 1, 2, 1, 3, 0, 0, 2, 3, 4, 1, 1, 2, 3].into_iter().enumerate() {
        trio.disturb()?;
        let (ours, theirs) = &prepared[at];
        let params = if ours.params == 1 { vec![(round as i64 * 10).into()] } else { Vec::new() };
        let (through, straight) =
            (trio.mine.execute(ours, &params)?, trio.reference.execute(theirs, &params)?);
        let (rows, expected) = (through.binary_rows()?, straight.binary_rows()?);
        ensure!(rows == expected, "round {round}, {}: {rows:?}, straight {expected:?}", texts[at]);
        let (id, expected) = (through.done()?.insert_id, straight.done()?.insert_id);
        ensure!(id == expected, "round {round}, {}: insert id {id}, straight {expected}", texts[at]);
        trio.same(ID)?;
    }
    Ok(())
}

/// Two sessions that take turns with a connection: of each INSERT is asked whose id LAST_INSERT_ID() is, and nothing
/// more, whether the id was given or generated.
fn last_insert_id_cost(env: &Env) -> CaseResult {
    const TURNS: u64 = 20;
    const ATTEMPTS: u64 = 5;
    let Trio { weir, mut mine, schemas, .. } = Trio::new(env)?;
    // In the same schema, so that nothing else differs.
    let mut other = Session::open(weir.addr(), &schemas[0])?;
    for [first, second] in
        [["(id, v) VALUES (1000 + %, 1)", "(id, v) VALUES (2000 + %, 1)"], ["(v) VALUES (%)"; 2]]
    {
        let inserts = 2 * TURNS;
        let mut extra = None;
        for attempt in 0..ATTEMPTS {
            let mut questions = Vec::new();
            for turn in 0..=TURNS {
                let number = (attempt * (TURNS + 1) + turn).to_string();
                let insert =
                    |values: &str| format!("INSERT INTO {}.t {}", schemas[0], values.replace('%', &number));
                mine.run(&insert(first))?;
                other.run(&insert(second))?;
                if turn == 0 || turn == TURNS {
                    let row = &other.rows("SHOW SESSION STATUS LIKE 'Questions'")?[0];
                    questions.push(row[1].parse::<u64>()?);
                }
            }
            // Fewer where the connection was logged in anew meanwhile, because another case has made an account.
            extra = questions[1].checked_sub(questions[0] + inserts);
            if extra.is_some() {
                break;
            }
        }
        // The last but one SHOW and what it took to get there count as well.
        let extra = extra.ok_or("time and again logged in anew")?;
        ensure!(extra <= inserts + 4, "{first}: {extra} statements of Weir's own for {inserts} INSERTs");
    }
    Ok(())
}

fn row_count(env: &Env) -> CaseResult {
    const COUNT: &str = "SELECT ROW_COUNT()";
    let mut trio = Trio::new(env)?;
    let statements = [
        "INSERT INTO t (v) VALUES (1), (2), (3)",
        "UPDATE t SET v = 9",
        "UPDATE t SET v = 9",
        "SELECT * FROM t",
        "SET sql_mode = ''",
        "DELETE FROM t WHERE v = 9 LIMIT 2",
        "SELECT * FROM nowhere",
        "DO 1",
        "REPLACE INTO t (k, v) VALUES (1, 1), (1, 2)",
        "CREATE TABLE c AS SELECT * FROM t",
        "INSERT INTO c SELECT * FROM t",
        "BEGIN",
        "UPDATE t SET v = v + 1",
        "ROLLBACK",
        "SHOW TABLES",
        "INSERT INTO t (k, v) VALUES (1, 1) ON DUPLICATE KEY UPDATE v = v + 1",
        "TRUNCATE TABLE t",
        "SELECT 1 INTO @x",
        "/* nothing */",
    ];
    for sql in statements {
        trio.same(sql)?;
        trio.same(COUNT)?;
        trio.same(COUNT)?;
    }
    for sql in ["INSERT INTO t (v) VALUES (1), (2)", "SELECT 1"] {
        trio.same(sql)?;
        trio.same("INSERT INTO log (t_id) VALUES (ROW_COUNT())")?;
        trio.same("SELECT t_id FROM log ORDER BY id")?;
    }
    trio.same("DELETE FROM t")?;
    for session in [&mut trio.mine, &mut trio.reference] {
        session.ping()?.done()?;
    }
    trio.same(COUNT)
}

fn found_rows(env: &Env) -> CaseResult {
    const FOUND: &str = "SELECT FOUND_ROWS()";
    let mut trio = Trio::new(env)?;
    trio.all_same(&["INSERT INTO t (v) SELECT seq FROM seq_1_to_30"])?;
    let queries = [
        "SELECT v FROM t LIMIT 7",
        "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 7",
        "SELECT v FROM t WHERE v < 0",
        "SELECT SQL_CALC_FOUND_ROWS v FROM t WHERE v > 10 LIMIT 3",
        "SELECT v FROM t LIMIT 0",
        "(SELECT SQL_CALC_FOUND_ROWS v FROM t) UNION ALL (SELECT v FROM t) LIMIT 1",
        "SELECT COUNT(*) FROM t",
        // A list of rows is no query, and several statements at once are refused.
        "VALUES (1), (2), (3)",
        "VALUES (1), (2) UNION SELECT 3",
        "SELECT 1; SELECT 2",
        "INSERT INTO t (v) VALUES (77), (78) RETURNING v",
        // Errors of queries that have begun.
        "SELECT LAST_INSERT_ID() - 1",
        "SELECT v FROM t WHERE (SELECT v FROM t) > 1",
        "SELECT v - 5, CAST(v AS UNSIGNED) - 5 FROM t ORDER BY id DESC",
    ];
    for sql in queries {
        trio.all_same(&["SELECT v FROM t LIMIT 4", sql, FOUND, FOUND])?;
        trio.all_same(&[sql, "UPDATE t SET v = v", "SET @ignored = 1", FOUND])?;
        trio.all_same(&[sql, "SELECT FOUND_ROWS() AS n, FOUND_ROWS() + 1", "SELECT * FROM nowhere", FOUND])?;
        for session in [&mut trio.mine, &mut trio.reference] {
            session.reset()?.done()?;
        }
    }
    trio.all_same(&[
        "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 7",
        "INSERT INTO log (t_id) VALUES (FOUND_ROWS())",
    ])?;
    trio.same("SELECT t_id FROM log")?;
    // A reset leaves it, as a server does, also where only the connection knows it.
    trio.all_same(&["SELECT v FROM t LIMIT 4"])?;
    for session in [&mut trio.mine, &mut trio.reference] {
        session.reset()?.done()?;
    }
    trio.same(FOUND)?;
    trio.all_same(&["SELECT v FROM t LIMIT 5"])?;
    for session in [&mut trio.mine, &mut trio.reference] {
        session.change_user(Account::APP, "test")?.done()?;
    }
    trio.same(FOUND)?;
    for lease in ["DO 1", "SET @pinned = 1"] {
        trio.all_same(&[lease, "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 2"])?;
        for session in [&mut trio.mine, &mut trio.reference] {
            session.reset()?.done()?;
        }
        trio.same(FOUND)?;
    }
    Ok(())
}

/// Statements that run a query or none, which their text or their reply does not show. The number is asked for while the
/// connection has another session's.
fn found_rows_of_hidden_queries(mut trio: Trio, own: &[&str]) -> CaseResult {
    let routines = [
        "CREATE PROCEDURE p_none() SET @x = 1",
        "CREATE PROCEDURE p_into() SELECT v INTO @x FROM t LIMIT 1",
        "CREATE PROCEDURE p_rows() SELECT v FROM t LIMIT 3",
        "CREATE PROCEDURE p_write() INSERT INTO log (t_id) VALUES (1)",
        "CREATE PROCEDURE p_copy() INSERT INTO log (t_id) SELECT v FROM t LIMIT 2",
        "CREATE PROCEDURE p_fail() BEGIN SET @x = 1; SIGNAL SQLSTATE '45000'; END",
        "CREATE PROCEDURE p_query_fails() BEGIN SELECT v FROM t LIMIT 2; SIGNAL SQLSTATE '45000'; END",
        "CREATE FUNCTION f_query() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t)",
        "CREATE FUNCTION f_none() RETURNS INT DETERMINISTIC RETURN 3",
    ];
    trio.all_same(&["INSERT INTO t (v) VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9)"])?;
    trio.all_same(&routines)?;
    let common = [
        "CALL p_none()",
        "CALL p_into()",
        "CALL p_rows()",
        "CALL p_write()",
        "CALL p_copy()",
        "CALL p_fail()",
        "CALL p_query_fails()",
        "SET time_zone = '+01:00'",
        "DO f_query()",
        "SELECT f_query()",
        "SELECT f_none() FROM t LIMIT 4",
        "INSERT INTO log (t_id) SELECT v FROM t LIMIT 6",
        "INSERT INTO log (t_id) VALUES ((SELECT MAX(v) FROM t))",
        "INSERT INTO log (t_id) VALUES (f_none())",
        "REPLACE INTO log (t_id) SELECT 5 FROM t WHERE v > 3",
        "CREATE TABLE copied AS SELECT v FROM t WHERE v < 3",
        "DROP TABLE copied",
        "SHOW TABLES",
        "SHOW CREATE TABLE t",
        "SHOW GRANTS",
        "EXPLAIN SELECT 1",
        "CHECK TABLE t",
        "ANALYZE TABLE t",
        "HELP 'nothing like it'",
        "SELECT v FROM t ORDER BY id LIMIT 2 OFFSET 3",
        "SELECT v FROM t ORDER BY id LIMIT 4, 2",
        "SELECT v FROM t ORDER BY id LIMIT 2 OFFSET 300",
        "SELECT v FROM (SELECT v FROM t LIMIT 3 OFFSET 2) d LIMIT 2",
        "(SELECT v FROM t LIMIT 2) UNION (SELECT v FROM t LIMIT 2) LIMIT 1 OFFSET 1",
        "SELECT v FROM t LIMIT 1 INTO @q",
        "SET NAMES latin1",
        "SHOW COUNT(*) WARNINGS",
        "DELETE FROM log",
        "TRUNCATE TABLE log",
    ];
    for sql in common.iter().chain(own) {
        for before in ["SELECT v FROM t LIMIT 4", "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 7", "SELECT 1"] {
            trio.all_same(&[before, sql])?;
            trio.same_found_rows()?;
            trio.same_found_rows()?;
            trio.begin_anew()?;
        }
        trio.all_same(&["SELECT v FROM t WHERE v < 3", sql, sql, "USE test"])?;
        trio.same_found_rows()?;
        trio.begin_anew()?;
    }
    // Where variables hold the connection.
    for sql in ["SET @a = (SELECT MAX(v) FROM t)", "SET @a = f_none()", "EXECUTE p", "DEALLOCATE PREPARE p"] {
        trio.all_same(&["SELECT v FROM t LIMIT 4", "PREPARE p FROM 'SET @b = 1'", sql])?;
        trio.same_found_rows()?;
        trio.begin_anew()?;
        trio.all_same(&["PREPARE p FROM 'SELECT v INTO @b FROM t LIMIT 1'", "SELECT v FROM t LIMIT 4", sql])?;
        trio.same_found_rows()?;
        trio.begin_anew()?;
    }
    // More than a few rows.
    trio.all_same(&["SELECT a.v FROM t a, t b, t c", "CALL p_none()", "CALL p_write()"])?;
    trio.same_found_rows()?;
    trio.all_same(&[
        "BEGIN",
        "CALL p_write()",
        "SELECT v FROM t LIMIT 8",
        "CALL p_none()",
        "CALL p_write()",
    ])?;
    trio.same_found_rows()?;
    trio.same("ROLLBACK")?;
    trio.same_found_rows()
}

/// A prepared SELECT FOUND_ROWS() has the number of the session that executes it.
fn found_rows_prepared(mut trio: Trio) -> CaseResult {
    trio.all_same(&["INSERT INTO t (v) VALUES (1), (2), (3), (4), (5)", "SELECT v FROM t LIMIT 4"])?;
    let text = "SELECT FOUND_ROWS()";
    let (ours, theirs) = (trio.mine.prepare(text)?, trio.reference.prepare(text)?);
    for sql in ["DO 0", "SELECT v FROM t LIMIT 2", "SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 2"] {
        trio.same(sql)?;
        trio.disturb()?;
        let rows = trio.mine.execute(&ours, &[])?.binary_rows()?;
        let expected = trio.reference.execute(&theirs, &[])?.binary_rows()?;
        ensure!(rows == expected, "{sql}: {rows:?}, straight {expected:?}");
    }
    Ok(())
}

/// What nobody can know any more is refused, and nothing is made up.
fn unknown_found_rows(env: &Env) -> CaseResult {
    let mut trio = Trio::at_mysql(env)?;
    trio.mine.run("INSERT INTO t (v) VALUES (1), (2), (3)")?;
    trio.mine.run("SELECT v FROM t LIMIT 2")?;
    // MySQL counts what an UPDATE has looked at. Asked at once, it is told.
    trio.mine.run("UPDATE t SET v = 2")?;
    ensure!(trio.mine.value("SELECT FOUND_ROWS()")? == "3", "not what the UPDATE has read");
    trio.mine.run("SELECT v FROM t LIMIT 2")?;
    trio.mine.run("UPDATE t SET v = 3")?;
    trio.disturb()?;
    trio.mine.refused("SELECT FOUND_ROWS()", UNKNOWN_ERROR)?;
    trio.mine.run("SELECT v FROM t LIMIT 2")?;
    ensure!(trio.mine.value("SELECT FOUND_ROWS()")? == "2", "it is known again behind a query");
    Ok(())
}

fn connection_id(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1, 2], 1)?;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(Session::open(weir.addr(), "test")?);
    }
    for round in 0..3 {
        for session in &mut sessions {
            let id = session.id().to_string();
            for sql in
                ["SELECT CONNECTION_ID()", "select connection_id ( ) as a", "SELECT @@pseudo_thread_id"]
            {
                let shown = session.value(sql)?;
                ensure!(shown == id, "round {round}: {sql} is {shown}, the greeting said {id}");
            }
            let rows =
                session.rows("SELECT 'CONNECTION_ID()', CONNECTION_ID() + 0, /* CONNECTION_ID() */ 1")?;
            ensure!(rows == [["CONNECTION_ID()", &*id, "1"]], "round {round}: {rows:?}");
            let statement = session.prepare("SELECT CONNECTION_ID()")?;
            let rows = session.execute(&statement, &[])?.binary_rows()?;
            ensure!(rows == [[&*id]], "round {round}: prepared: {rows:?}, the greeting said {id}");
            session.close(&statement)?;
        }
    }
    let mut ids: Vec<u32> = sessions.iter().map(Session::id).collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == 3, "ids are used twice: {ids:?}");
    let id = sessions[0].id().to_string();
    sessions[0].change_user(Account::APP2, "test")?.done()?;
    let shown = sessions[0].value("SELECT CONNECTION_ID()")?;
    ensure!(shown == id, "after COM_CHANGE_USER: {shown} instead of {id}");
    Ok(())
}

fn warnings(env: &Env) -> CaseResult {
    const WARNS: &str = "SELECT CAST('a' AS INT), CAST('b' AS INT), v FROM t WHERE v = 1";
    const SHOW: &str = "SHOW WARNINGS";
    let mut trio = Trio::new(env)?;
    trio.all_same(&[SHOW, "INSERT INTO t (v) VALUES (1)", SHOW, "SET sql_mode = ''"])?;
    trio.all_same(&[WARNS, SHOW, SHOW, "SHOW COUNT(*) WARNINGS", SHOW, "SHOW WARNINGS LIMIT 1"])?;
    trio.all_same(&[WARNS, "SELECT @@warning_count, @@error_count", SHOW])?;
    trio.all_same(&[
        WARNS,
        "SELECT 1",
        SHOW,
        "SET time_zone = '+01:00'",
        SHOW,
        "BEGIN",
        SHOW,
        "COMMIT",
        SHOW,
        "DO 0",
        SHOW,
    ])?;
    trio.all_same(&[WARNS, "SELECT v FROM t", SHOW, WARNS, "SELECT 1 + 'c'", SHOW])?;
    trio.all_same(&[
        "INSERT INTO t (v) VALUES ('x')",
        SHOW,
        SHOW,
        "UPDATE t SET v = '9y' WHERE v = 1",
        SHOW,
    ])?;
    trio.all_same(&["DROP TABLE IF EXISTS nowhere, nothing", SHOW, "SHOW ERRORS", "SELECT @@warning_count"])?;
    trio.all_same(&["CREATE TABLE IF NOT EXISTS t (a INT)", SHOW])?;
    trio.ensure_held_at_most(3)
}

fn errors(env: &Env) -> CaseResult {
    const SHOW: &str = "SHOW ERRORS";
    let mut trio = Trio::new(env)?;
    trio.all_same(&[
        "SELECT * FROM nowhere",
        SHOW,
        SHOW,
        "SHOW WARNINGS",
        "SELECT @@error_count, @@warning_count",
    ])?;
    trio.all_same(&["SELECT 1 FROM", "SHOW COUNT(*) ERRORS", SHOW, "SELECT v FROM t", SHOW])?;
    trio.all_same(&["INSERT INTO t (k) VALUES (1)", "INSERT INTO t (k) VALUES (1)", SHOW, "SHOW WARNINGS"])?;
    trio.all_same(&["SET no_such_variable = 1", SHOW, "SET time_zone = '+01:00'", SHOW, "COMMIT", SHOW])?;
    trio.disturb()?;
    trio.mine.refused("INSERT INTO t (k) VALUES (1)", DUPLICATE_KEY)?;
    trio.disturb()?;
    let rows = trio.other.rows(SHOW)?;
    ensure!(rows.is_empty(), "another session is shown {rows:?}");
    let rows = trio.mine.rows(SHOW)?;
    let code = rows.first().and_then(|row| row.get(1)).map(String::as_str);
    ensure!(rows.len() == 1 && code == Some("1062"), "the session is shown {rows:?}");
    Ok(())
}

/// Into user variables, which hold the connection from then on; what is asked for was raised before.
fn get_diagnostics(mut trio: Trio) -> CaseResult {
    const ALL: &str = "GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT";
    const FIRST: &str =
        "GET CURRENT DIAGNOSTICS CONDITION 1 @a = RETURNED_SQLSTATE, @`b c` = MYSQL_ERRNO, @d = message_text";
    const SHOW: &str = "SELECT @n, @r, @a, @`b c`, @d";
    let raising = [
        "INSERT INTO t (k, v) VALUES (1, 1), (2, 2)",
        "INSERT INTO t (k) VALUES (1)",
        "INSERT IGNORE INTO t (k, v) VALUES (3, 'x'), (4, 'y'), (1, 2)",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM t",
        "SELEC 1",
        "DROP TABLE IF EXISTS nowhere",
        "SELECT CAST('é' AS SIGNED) FROM t LIMIT 1",
        "SELECT 1 / 0, CAST('12x' AS SIGNED) FROM t LIMIT 1",
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'enough', MYSQL_ERRNO = 1265",
        "SIGNAL SQLSTATE '77777'",
        "UPDATE t SET v = 5",
        "SELECT 1",
        "SET time_zone = 'nowhere'",
    ];
    for sql in raising {
        for asked in
            [&[ALL, FIRST][..], &[FIRST, ALL], &[FIRST, "SHOW WARNINGS", "SELECT ROW_COUNT()"], &[ALL, ALL]]
        {
            trio.same(sql)?;
            trio.all_same(asked)?;
            trio.all_same(&[SHOW, "SELECT @n"])?;
            trio.begin_anew()?;
        }
    }
    // Statements in between that leave the conditions alone, but not the count of rows.
    trio.all_same(&["DELETE FROM t WHERE v = '5z' LIMIT 1", "GET DIAGNOSTICS @r = ROW_COUNT", SHOW])?;
    trio.begin_anew()?;
    // Conditions that there are not are conditions themselves.
    for number in ["0", "2", "18446744073709551615"] {
        let asked = format!("GET DIAGNOSTICS CONDITION {number} @a = MYSQL_ERRNO");
        trio.all_same(&[
            "SELECT * FROM nowhere",
            &asked,
            "SHOW WARNINGS",
            "SHOW COUNT(*) ERRORS",
            &asked,
            ALL,
        ])?;
        trio.all_same(&[SHOW])?;
        trio.begin_anew()?;
        trio.all_same(&["UPDATE t SET v = 6", &asked, "SHOW WARNINGS", FIRST, SHOW])?;
        trio.begin_anew()?;
    }
    // Held from the beginning.
    trio.all_same(&["BEGIN", "INSERT INTO t (k) VALUES (1)", FIRST, ALL, SHOW, "COMMIT", ALL, SHOW])?;
    trio.begin_anew()?;
    trio.all_same(&["SELECT * FROM nowhere", "BEGIN", ALL, FIRST, SHOW, "ROLLBACK"])
}

/// Weir answers some functions itself; a result looks as if it did not.
fn column_names(env: &Env) -> CaseResult {
    let login = Login::new(Account::APP).schema("test");
    let weir = env.narrow_weir(&[1], 1)?;
    let direct = env.cluster()?.node(1).addr();
    let (mut through, mut straight) = (Session::with(weir.addr(), &login)?, Session::with(direct, &login)?);
    let texts = [
        "SELECT ROW_COUNT()",
        "select row_count( )",
        "SELECT ROW_COUNT() n, FOUND_ROWS() AS `m`, found_rows()",
        "SELECT CONNECTION_ID()",
        "SELECT 1 + CONNECTION_ID(), -FOUND_ROWS(), IF(ROW_COUNT() = -1, 'a', 'b')",
        "SELECT a.x FROM (SELECT FOUND_ROWS() AS x) a",
        "SELECT LAST_INSERT_ID(), LAST_INSERT_ID() AS l, DATABASE()",
        "SELECT @@session_track_schema, @@session.session_track_state_change",
        "SELECT `ROW_COUNT()` FROM (SELECT 1 AS `ROW_COUNT()`) a",
        "SELECT 'FOUND_ROWS()', \"CONNECTION_ID()\"",
        "SELECT CONNECTION_ID() -- the id",
        "SELECT CONNECTION_ID() UNION SELECT 1",
    ];
    for sql in texts {
        let (ours, right) = (through.query(sql)?, straight.query(sql)?);
        ours.done().map_err(|error| format!("{sql}: {error}"))?;
        let (ours, right) = (ours.column_names(), right.column_names());
        ensure!(ours == right, "{sql}: columns {ours:?}, straight {right:?}");
    }
    Ok(())
}
