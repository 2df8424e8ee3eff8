//! Warnings and numbers that Weir has fetched before another session took the connection: in whatever character set the
//! session reads, they are what the server would show, or refused.

use std::time::Duration;

use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{NO_SUCH_TABLE, Trio, UNKNOWN_ERROR};

/// The cases of this module.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("diagnostics::get_diagnostics_says_what_it_does_not_know", unknown_diagnostics),
        Case::parallel("diagnostics::warnings_are_shown_in_every_character_set", |env| {
            in_every_set(Trio::new(env)?, &["filename"])
        }),
        Case::parallel("diagnostics::warnings_are_shown_in_every_character_set_at_mysql", |env| {
            in_every_set(Trio::at_mysql(env)?, &[])
        }),
        Case::parallel("diagnostics::warnings_follow_a_change_of_the_character_set", in_another_set),
        Case::parallel("diagnostics::values_of_session_track_are_read_in_every_character_set", |env| {
            track_values(Trio::new(env)?, &["filename"])
        }),
        Case::parallel(
            "diagnostics::values_of_session_track_are_read_in_every_character_set_at_mysql",
            |env| track_values(Trio::at_mysql(env)?, &[]),
        ),
        Case::parallel("diagnostics::found_rows_in_every_character_set", |env| found_rows(Trio::new(env)?)),
        Case::parallel("diagnostics::found_rows_in_every_character_set_at_mysql", |env| {
            found_rows(Trio::at_mysql(env)?)
        }),
        Case::parallel("diagnostics::errors_that_weir_passes_on_keep_their_text", passed_on),
        Case::parallel("diagnostics::counting_warnings_ends_them_at_mysql", counted_at_mysql),
        Case::parallel("diagnostics::lost_warnings_are_refused", |env| {
            let node = env.cluster()?.node(1);
            lost(Trio::new(env)?, |sql| Ok(node.root_query(sql).map(drop)?))
        }),
        Case::parallel("diagnostics::lost_warnings_are_refused_at_mysql", |env| {
            let server = env.mysql()?.source();
            lost(Trio::at_mysql(env)?, |sql| Ok(server.root_query(sql).map(drop)?))
        }),
    ]
}

/// Sets that write ASCII in other bytes, that have other signs in its place, that lack characters, and others.
const SETS: [&str; 11] =
    ["utf16", "ucs2", "utf16le", "utf32", "swe7", "latin1", "gbk", "sjis", "binary", "NULL", "utf8mb4"];
const SHOWING: [&str; 6] = [
    "SHOW COUNT(*) ERRORS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SHOW WARNINGS",
    "SHOW WARNINGS LIMIT 1, 2",
    "SELECT @@error_count",
];

/// An error without a name of a schema.
const RAISE: &str = "SELECT `nowhereä`";

fn in_every_set(mut trio: Trio, more: &[&str]) -> CaseResult {
    for set in SETS.iter().chain(more) {
        trio.same(&format!("SET character_set_results = {set}"))?;
        trio.same(RAISE)?;
        trio.all_same(&SHOWING)?;
        trio.all_same(&["SELECT CAST('ä' AS SIGNED), CAST('b' AS SIGNED)", "SHOW ERRORS", "SHOW WARNINGS"])?;
        trio.all_same(&["SHOW COUNT(*) ERRORS", "SELECT HEX(@@error_count), HEX(@@warning_count)"])?;
        // ASCII is certain to be all there.
        trio.same("SELECT nowhere")?;
        trio.same("GET DIAGNOSTICS CONDITION 1 @a = MYSQL_ERRNO, @b = MESSAGE_TEXT, @c = RETURNED_SQLSTATE")?;
        trio.same("SELECT HEX(@a), HEX(@b), HEX(@c)")?;
        trio.begin_anew()?;
        trio.same(&format!("SET character_set_results = {set}"))?;
        trio.all_same(&["SELECT nowhere", "GET DIAGNOSTICS CONDITION 9 @a = MYSQL_ERRNO"])?;
        trio.all_same(&["SHOW WARNINGS", "SHOW COUNT(*) ERRORS"])?;
        trio.begin_anew()?;
    }
    Ok(())
}

/// MariaDB keeps its warnings over a SET.
fn in_another_set(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    for set in ["utf16", "ucs2", "utf16le", "utf32", "latin1", "swe7", "binary", "NULL"] {
        let set = format!("SET character_set_results = {set}");
        trio.all_same(&["SET character_set_results = utf8mb4", RAISE, &set])?;
        trio.all_same(&SHOWING)?;
        trio.all_same(&[&set, RAISE, "SET character_set_results = utf8mb4"])?;
        trio.all_same(&SHOWING)?;
    }
    // What can't be converted here is refused; in its own character set it is shown.
    trio.all_same(&["SET character_set_results = gbk", "SELECT `nowhere一`", "SHOW WARNINGS"])?;
    trio.all_same(&["SET character_set_results = utf8mb4", "SHOW COUNT(*) ERRORS"])?;
    trio.disturb()?;
    trio.mine.refused("SHOW WARNINGS", UNKNOWN_ERROR)?;
    trio.mine.refused("SHOW ERRORS", UNKNOWN_ERROR)?;
    trio.all_same(&["SET character_set_results = gbk", "SHOW WARNINGS", "SHOW ERRORS"])
}

fn track_values(mut trio: Trio, more: &[&str]) -> CaseResult {
    const LIST: &str = "SELECT @@session_track_system_variables, @@session_track_schema";
    for set in SETS.iter().chain(more) {
        trio.same(&format!("SET character_set_results = {set}"))?;
        trio.all_same(&["SET session_track_system_variables = CONCAT('time_zone', ',sql_mode')", LIST])?;
        trio.all_same(&["SET session_track_schema = 1 - 1", LIST, "SET session_track_schema = 2 - 1", LIST])?;
        // Names of which the server is asked.
        trio.all_same(&["SET session_track_system_variables = 'lc_time_names,div_precision_increment'"])?;
        trio.begin_anew()?;
    }
    Ok(())
}

/// The number goes in front of a statement that may leave it as it is, in a query of Weir's own.
fn found_rows(mut trio: Trio) -> CaseResult {
    let settings = [
        "SET NAMES swe7",
        "SET NAMES latin1",
        "SET character_set_connection = utf16",
        "SET character_set_connection = swe7",
    ];
    for setting in settings {
        trio.same(setting)?;
        for rows in [2, 10, 11, 100, 101, 250] {
            let rows = vec!["SELECT 1"; rows].join(" UNION ALL ");
            trio.all_same(&[&rows, "SHOW CREATE TABLE log"])?;
            trio.same_found_rows()?;
        }
        trio.begin_anew()?;
    }
    Ok(())
}

/// A statement is prepared anew on a connection that has the character set of another session, and refused.
fn passed_on(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    for (mine, other, shown) in [
        ("utf8mb4", "latin1", "nowhereä'"),
        ("utf8mb4", "swe7", "nowhereä'"),
        ("swe7", "utf8mb4", "nowhere{'"),
    ] {
        trio.mine.run(&format!("SET character_set_results = {mine}"))?;
        trio.other.run(&format!("SET character_set_results = {other}"))?;
        trio.mine.run("CREATE TABLE `nowhereä` (a INT)")?;
        let prepared = trio.mine.prepare("SELECT * FROM `nowhereä`")?;
        let id = trio.mine.value(OWN_ID)?;
        trio.mine.run("DROP TABLE `nowhereä`")?;
        env.cluster()?.node(1).root_query(&format!("KILL {id}"))?;
        eventually("another connection takes the place of that one", Duration::from_secs(15), || {
            Ok(trio.other.value(OWN_ID).is_ok_and(|other| other != id))
        })?;
        let answer = trio.mine.execute(&prepared, &[])?;
        let Some(Outcome::Err { code, message, .. }) = answer.results.first() else {
            return Err("a table that is gone was read".into());
        };
        ensure!(*code == NO_SUCH_TABLE && message.contains(shown), "{mine} behind {other}: {code} {message}");
    }
    Ok(())
}

fn counted_at_mysql(env: &Env) -> CaseResult {
    let mut trio = Trio::at_mysql(env)?;
    for counting in ["SELECT @@warning_count", "SELECT HEX(@@error_count), 1", "DO @@error_count"] {
        trio.all_same(&["SELECT * FROM nowhere", "SHOW WARNINGS", counting, "SHOW COUNT(*) WARNINGS"])?;
        trio.all_same(&["SHOW WARNINGS", "SELECT @@warning_count, @@error_count"])?;
    }
    Ok(())
}

/// The server's id of the connection.
const OWN_ID: &str =
    "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%PROCESSLIST%' AND DB = DATABASE()";

/// Nobody knows them any more when the connection goes that knew them.
fn lost(mut trio: Trio, at_server: impl Fn(&str) -> CaseResult) -> CaseResult {
    let id = trio.mine.value(OWN_ID)?;
    trio.mine.refused("SELECT * FROM nowhere", NO_SUCH_TABLE)?;
    at_server(&format!("KILL {id}"))?;
    eventually("another connection takes the place of that one", Duration::from_secs(15), || {
        Ok(trio.other.value(OWN_ID).is_ok_and(|other| other != id))
    })?;
    for asking in SHOWING.iter().chain(&["SELECT @@warning_count", "GET DIAGNOSTICS @n = NUMBER"]) {
        let message = trio.mine.refused(asking, UNKNOWN_ERROR)?;
        ensure!(message.contains("gone with its connection"), "{asking}: {message}");
    }
    // Until a statement leaves others.
    trio.mine.run("INSERT INTO t (v) VALUES (1)")?;
    ensure!(trio.mine.rows("SHOW WARNINGS")?.is_empty(), "an INSERT has no warnings");
    ensure!(trio.mine.value("SELECT @@warning_count")? == "0", "nor are any counted");
    Ok(())
}

/// What the copy of the warnings does not tell is refused, and nothing is made up.
/// Nobody has used the connection in between, so it is asked, and tells. It may have been logged in anew in between,
/// because another case has made an account on this server: then, but not time and again, the condition is gone.
fn asked_while_free(session: &mut Session, sql: &str) -> CaseResult {
    const ATTEMPTS: usize = 20;
    for _ in 0..ATTEMPTS {
        session.run("SIGNAL SQLSTATE '01234'")?;
        let told = session.query(sql)?;
        session.reset()?.done()?;
        match told.error() {
            None => return Ok(()),
            Some(code) => ensure!(code == UNKNOWN_ERROR, "{sql}: {told:?}"),
        }
    }
    Err(format!("{sql}: refused {ATTEMPTS} times").into())
}

fn unknown_diagnostics(env: &Env) -> CaseResult {
    let mut trio = Trio::new(env)?;
    let asked = [
        "GET DIAGNOSTICS CONDITION 1 @a = RETURNED_SQLSTATE",
        "GET DIAGNOSTICS CONDITION 1 @a = CLASS_ORIGIN",
        "GET DIAGNOSTICS CONDITION @i @a = MYSQL_ERRNO",
    ];
    for sql in asked {
        asked_while_free(&mut trio.mine, &sql.replace("@i", "1"))?;
        trio.mine.run("SIGNAL SQLSTATE '01234'")?;
        trio.disturb()?;
        trio.mine.refused(sql, UNKNOWN_ERROR)?;
        ensure!(trio.mine.value("SELECT @a IS NULL")? == "1", "{sql}: the variable has been set");
        trio.mine.reset()?.done()?;
    }
    // A message in a character set that may lack some of its characters.
    trio.mine.run("SET NAMES latin1")?;
    trio.mine.refused("SELECT * FROM `what?`", NO_SUCH_TABLE)?;
    trio.disturb()?;
    trio.mine.refused("GET DIAGNOSTICS CONDITION 1 @a = MESSAGE_TEXT", UNKNOWN_ERROR)?;
    trio.mine.run("GET DIAGNOSTICS CONDITION 1 @a = RETURNED_SQLSTATE")?;
    ensure!(trio.mine.value("SELECT @a")? == "42S02", "the SQLSTATE is another one");
    Ok(())
}
