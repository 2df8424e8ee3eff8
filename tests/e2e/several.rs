//! Several statements in one text: each sees what it would see straight at the server, and so does what follows,
//! although another session uses the connection in between.

mod troubles;

use weir_tests::{Case, CaseResult, Env, ensure};

use crate::diagnostics::Trio;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("several::statements_see_what_they_would_see_straight", |env| {
            compare(Trio::new(env)?.with_several()?, &[COMMON, MARIADB])
        }),
        Case::parallel("several::statements_see_what_they_would_see_straight_at_mysql", |env| {
            compare(Trio::at_mysql(env)?.with_several()?, &[COMMON])
        }),
        Case::parallel("several::warnings_of_others_are_not_shown", warnings_of_others),
    ];
    cases.extend(troubles::trials());
    cases
}

/// Texts of one session, one after the other; after each row the session is reset.
const COMMON: &[&[&str]] = &[
    // Counts and ids of the statement before, in the text and behind it.
    &[
        "INSERT INTO t (v) VALUES (1), (2), (3); SELECT ROW_COUNT(), LAST_INSERT_ID()",
        "SELECT ROW_COUNT(), LAST_INSERT_ID()",
    ],
    &["UPDATE t SET v = 7 WHERE v = 1; SELECT ROW_COUNT(); DELETE FROM t WHERE v = 7", "SELECT ROW_COUNT()"],
    &["DELETE FROM t WHERE v = 2", "SELECT ROW_COUNT(); SELECT ROW_COUNT(); DO 1; SELECT ROW_COUNT()"],
    &[
        "INSERT INTO t (v) VALUES (5)",
        "SELECT LAST_INSERT_ID(); INSERT INTO log (t_id) VALUES (LAST_INSERT_ID()); SELECT LAST_INSERT_ID(); SELECT t_id > 0 FROM log",
    ],
    &[
        "INSERT INTO t (v) VALUES (6); SELECT 1",
        "SELECT LAST_INSERT_ID()",
        "INSERT INTO log (t_id) VALUES (LAST_INSERT_ID())",
        "SELECT COUNT(*) FROM log JOIN t ON t.id = t_id",
    ],
    // Warnings and errors.
    &["INSERT IGNORE INTO t (v) VALUES ('x'); SHOW WARNINGS", "SHOW WARNINGS"],
    &["INSERT IGNORE INTO t (v) VALUES ('y'); SELECT @@warning_count, @@error_count; SHOW COUNT(*) WARNINGS"],
    &["SELECT v FROM t LIMIT 0; SHOW WARNINGS; SHOW ERRORS", "SHOW WARNINGS"],
    &["SELECT * FROM nowhere; SELECT 2", "SHOW WARNINGS"],
    &[
        "INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (1); SELECT 3",
        "SHOW ERRORS",
        "SELECT COUNT(*) FROM t WHERE k = 1",
    ],
    &["DROP TABLE IF EXISTS nowhere; GET DIAGNOSTICS CONDITION 1 @a = MYSQL_ERRNO; SELECT @a"],
    // State that each part changes.
    &["SET time_zone = '+05:00'; SELECT @@time_zone", "SELECT @@time_zone"],
    &["SET time_zone = '+06:00'; SELECT * FROM nowhere; SET time_zone = '+07:00'", "SELECT @@time_zone"],
    &["SET sql_mode = 'ANSI_QUOTES'; SET @x = 1", "SELECT @x, @@sql_mode", "SELECT \"v\" FROM t LIMIT 1"],
    &["SET @x = 4; SELECT @x; SET @x = @x + 1", "SELECT @x"],
    &[
        "USE test; SELECT DATABASE()",
        "SELECT DATABASE()",
        "USE nowhere_at_all; SELECT 1",
        "SELECT DATABASE()",
    ],
    &[
        "CREATE TEMPORARY TABLE tmp (a INT); INSERT INTO tmp VALUES (1), (2); SELECT * FROM tmp",
        "SELECT COUNT(*) FROM tmp",
        "DROP TEMPORARY TABLE tmp; SELECT 1",
        "SELECT * FROM tmp",
    ],
    &["CREATE TEMPORARY TABLE tmp (a INT); SELECT * FROM nowhere", "SELECT * FROM tmp"],
    &[
        "SET NAMES latin1; SELECT @@character_set_client, @@collation_connection",
        "SELECT @@character_set_results; SET NAMES utf8mb4",
        "SELECT @@collation_connection",
    ],
    &[
        "SELECT GET_LOCK(DATABASE(), 1); SELECT 1",
        "SELECT RELEASE_LOCK(DATABASE()); SELECT 2",
        "SELECT IS_FREE_LOCK(DATABASE())",
    ],
    &["PREPARE p FROM 'SELECT 5'; EXECUTE p; DEALLOCATE PREPARE p", "EXECUTE p"],
    // Transactions.
    &[
        "BEGIN; INSERT INTO t (v) VALUES (80); SELECT COUNT(*) FROM t WHERE v = 80",
        "ROLLBACK; SELECT COUNT(*) FROM t WHERE v = 80",
    ],
    &[
        "BEGIN; INSERT INTO t (v) VALUES (81); COMMIT; SELECT COUNT(*) FROM t WHERE v = 81",
        "SELECT COUNT(*) FROM t WHERE v = 81",
    ],
    &[
        "BEGIN; INSERT INTO t (v) VALUES (82); SELECT * FROM nowhere; COMMIT",
        "SELECT COUNT(*) FROM t WHERE v = 82",
        "ROLLBACK",
        "SELECT COUNT(*) FROM t WHERE v = 82",
    ],
    &[
        "SET autocommit = 0; INSERT INTO t (v) VALUES (83)",
        "ROLLBACK; SET autocommit = 1",
        "SELECT COUNT(*) FROM t WHERE v = 83",
    ],
    &["START TRANSACTION READ ONLY; INSERT INTO t (v) VALUES (84); SELECT 1", "COMMIT; SELECT 2"],
    &["SET TRANSACTION READ ONLY", "BEGIN; INSERT INTO t (v) VALUES (85)", "ROLLBACK; SELECT 1"],
    // Where statements end.
    &[
        "SELECT 1;",
        "SELECT 1; ",
        "SELECT 1;;",
        "SELECT 1; -- nothing",
        ";",
        ";;",
        "; SELECT 1",
        "SELECT 1;; SELECT 2",
    ],
    &["SELECT 'a;b', \"c;d\"; SELECT /* ; */ 2 -- ;\n; SELECT 3 # ;"],
    &[
        "SELECT 'a\\';b'; SELECT 2",
        "SELECT 'open; SELECT 2",
        "SELECT 1; SELECT 'open",
        "SELECT 1; SELEC 2; SELECT 3",
    ],
    &["SELECT 1; SELECT 2; SELECT v FROM t WHERE (SELECT v FROM t) = 1; SELECT 4", "SELECT 5"],
    // The rest of a text behind what Weir answers or sees to.
    &["SELECT CONNECTION_ID() > 0; SELECT CONNECTION_ID() = @@pseudo_thread_id"],
];

/// FOUND_ROWS(), of whose use MySQL warns, and what is MariaDB's.
const MARIADB: &[&[&str]] = &[
    &["SELECT SQL_CALC_FOUND_ROWS v FROM t LIMIT 1; SELECT FOUND_ROWS()", "SELECT FOUND_ROWS()"],
    &["SELECT v FROM t LIMIT 3", "SELECT FOUND_ROWS(); SELECT FOUND_ROWS()", "DO 1; SELECT FOUND_ROWS()"],
    &["SELECT v FROM t LIMIT 3", "INSERT INTO t (v) VALUES (1); SELECT FOUND_ROWS(), ROW_COUNT()"],
    &["SHOW TABLES; INSERT INTO t (v) VALUES (1)", "SELECT FOUND_ROWS()"],
    &["INSERT IGNORE INTO t (v) VALUES ('x'); SELECT 1", "SHOW WARNINGS"],
    &["SELECT 1; SHOW WARNINGS", "SHOW WARNINGS; SELECT 1", "SELECT @@warning_count; SELECT @@error_count"],
    &["BEGIN NOT ATOMIC SELECT 1; SELECT 2; END; SELECT 3"],
    &["SET STATEMENT time_zone = '+09:00' FOR SELECT @@time_zone; SELECT @@time_zone", "SELECT @@time_zone"],
];

fn compare(mut trio: Trio, tables: &[&[&[&str]]]) -> CaseResult {
    let mut wrong = Vec::new();
    for row in tables.concat() {
        for sql in row {
            let [through, straight] = trio.both(sql)?;
            if through != straight {
                wrong.push(format!(
                    "{row:?}\n  {sql}\n    through Weir: {through}\n    straight:     {straight}"
                ));
                break;
            }
        }
        trio.begin_anew()?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Older warnings of the session, where nobody can put them on the connection, are refused instead.
fn warnings_of_others(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?.with_several()?;
    for sql in ["SELECT 1; SHOW WARNINGS", "SHOW WARNINGS; SELECT 1"] {
        trio.both("SELECT * FROM nowhere")?;
        let [through, _] = trio.both(sql)?;
        ensure!(
            through.starts_with("error 1105 ") && through.contains("statement of its own"),
            "{sql}: {through}"
        );
        let [through, straight] = trio.both("SHOW WARNINGS")?;
        ensure!(through == straight, "{through}, straight {straight}");
        trio.begin_anew()?;
    }
    Ok(())
}
