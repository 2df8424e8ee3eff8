//! No session ever sees what another one has left on the connection that they share.
//!
//! Each case has a Weir with a single connection to its server. One session changes something in a way that the text
//! of its statement does not show, and the next one looks. All ways and all states: `make fidelity`.

mod hidden;
mod mysql;

use std::time::Duration;

use weir_protocol::status::StatusFlags;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually, wait_free};

/// Weir's number for "no connection within connect_timeout_server_max".
const NO_CONNECTION: u16 = 9001;
/// How long it takes at most until a Weir has read a server's session variables.
const LEARNT: Duration = Duration::from_secs(20);
/// How long a new connection may take to be asked for its defaults.
const ASKED_TIMEOUT: Duration = Duration::from_secs(20);
const DUPLICATE_KEY: u16 = 1062;
/// What a case fails with.
type Fault = Box<dyn std::error::Error>;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut trials = mysql::trials();
    trials.extend(hidden::trials());
    trials.extend([
        Case::parallel("isolation::what_a_trigger_changes_is_seen_by_nobody_else", triggers),
        Case::parallel("isolation::a_role_ends_with_its_session_however_it_came", roles),
        Case::parallel("isolation::tracking_that_was_switched_off_leads_no_write_astray", tracking_off),
        Case::parallel("isolation::a_use_that_is_not_reported_is_noticed", unreported_use),
        Case::parallel("isolation::last_insert_id_of_an_expression_is_the_sessions_own", insert_ids),
        Case::parallel("isolation::sql_auto_is_null_finds_only_the_sessions_own_row", auto_is_null),
        Case::parallel("isolation::a_savepoint_without_autocommit_keeps_its_connection", savepoint),
        Case::parallel("isolation::results_in_utf_16_confuse_nobody", utf16),
        Case::parallel("isolation::utf8_means_what_the_sessions_old_mode_says", old_mode),
        Case::parallel("isolation::a_list_of_set_that_fails_at_its_end_is_the_sessions_own", failing_list),
        Case::parallel("isolation::completion_type_does_not_touch_weirs_own_questions", completion_type),
        Case::parallel("isolation::reset_after_hidden_code_leaves_nothing_unreported", unreported),
        Case::parallel("isolation::a_trigger_that_switches_tracking_off_and_fails_hides_nothing", silenced),
        Case::parallel(
            "isolation::a_role_that_hides_behind_set_statement_reaches_no_other_user",
            hidden_role,
        ),
        Case::parallel("isolation::diagnostics_beside_a_user_variable_are_the_sessions_own", own_diagnostics),
        Case::parallel("isolation::a_duplicate_key_holds_nothing", duplicate_key),
        Case::parallel("isolation::settings_behind_a_refused_reset_are_nobodys_defaults", refused_reset),
        Case::parallel(
            "isolation::a_transaction_that_is_aborted_under_a_question_of_weirs_is_told",
            aborted_unasked,
        ),
    ]);
    trials
}

fn one_connection(env: &Env) -> Result<Weir, String> {
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        config.variable("connect_timeout_server_max", 150);
    })?;
    // Then connections are logged in anew, with all that a session has left there.
    weir.wait_log("session variables have been read", LEARNT).map_err(|error| error.to_string())?;
    Ok(weir)
}

/// Galera has rolled the transaction back.
const DEADLOCK: u16 = 1213;

/// What other sessions must not see, as one row.
const LOOK: &str =
    "SELECT @seen, @@time_zone, @@insert_id, @@tx_isolation, CURRENT_ROLE(), DATABASE(), @@timestamp < 100";

/// A table with a trigger that does this, and a row that has the key 1.
fn table_with_trigger(env: &Env, body: &str) -> Result<String, Fault> {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!(
        "CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT); INSERT INTO {schema}.t VALUES (1, 1); \
         CREATE TABLE {schema}.log (id INT AUTO_INCREMENT PRIMARY KEY, v INT); \
         CREATE TRIGGER {schema}.changes BEFORE INSERT ON {schema}.t FOR EACH ROW {body}"
    ))?;
    Ok(schema)
}

/// Looks with a session of its own, once the connection is free.
fn look(weir: &Weir, schema: &str) -> Result<Vec<Vec<String>>, Fault> {
    let mut other = Session::open(weir.addr(), schema)?;
    wait_free(&mut other)?;
    Ok(other.rows(LOOK)?)
}

fn triggers(env: &Env) -> CaseResult {
    let role = format!("role_{}", env.schema()?);
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE ROLE {role}; GRANT {role} TO app"))?;
    let bodies = [
        "SET @seen = 5".to_owned(),
        "SELECT 5 INTO @seen".into(),
        "SET time_zone = '+03:00'".into(),
        "SET time_zone = '+03:00', @seen = 6".into(),
        "SET insert_id = 77".into(),
        "SET timestamp = 1".into(),
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE".into(),
        format!("SET ROLE {role}"),
        "SET session_track_system_variables = ''".into(),
        "SET session_track_state_change = OFF, @seen = 7".into(),
    ];
    for body in &bodies {
        let schema = table_with_trigger(env, body)?;
        for insert in ["INSERT INTO t VALUES (2, 2)", "INSERT INTO t VALUES (1, 2)"] {
            let weir = one_connection(env)?;
            let clean = look(&weir, &schema)?;
            let mut session = Session::open(weir.addr(), &schema)?;
            let mut direct = Session::open(node.addr(), &schema)?;
            direct.run("BEGIN")?;
            let directly = direct.query(insert)?.error();
            let own = direct.rows(LOOK)?;
            direct.run("ROLLBACK")?;
            drop(direct);
            let through = session.query(insert)?.error();
            ensure!(directly == through, "{body}, {insert}: {directly:?} directly, {through:?} through Weir");
            // Alone with its connection it sees what it has done.
            let seen = session.rows(LOOK)?;
            ensure!(seen == own, "{body}, {insert}: the session itself sees {seen:?} in place of {own:?}");
            let mut waiting = Session::open(weir.addr(), &schema)?;
            let answer = waiting.query(LOOK)?;
            if answer.error() != Some(NO_CONNECTION) {
                let rows = answer.rows()?;
                ensure!(rows == clean, "{body}, {insert}: a session beside it sees {rows:?}");
            }
            drop((session, waiting));
            let rows = look(&weir, &schema)?;
            ensure!(rows == clean, "{body}, {insert}: the next session sees {rows:?}");
        }
        node.root_query(&format!("DROP TABLE {schema}.t; DROP TABLE {schema}.log"))?;
    }
    node.root_query(&format!("DROP ROLE {role}"))?;
    Ok(())
}

fn roles(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let role = format!("role_{schema}");
    let node = env.cluster()?.node(1);
    node.root_query(&format!(
        "CREATE ROLE {role}; GRANT {role} TO app; \
         CREATE PROCEDURE {schema}.become() SQL SECURITY INVOKER SET ROLE {role}"
    ))?;
    let ways = [
        format!("SET ROLE {role}"),
        format!("EXECUTE IMMEDIATE 'SET ROLE {role}'"),
        format!("SET time_zone = '+00:00', ROLE {role}"),
        format!("BEGIN NOT ATOMIC SET ROLE {role}; END"),
        "CALL become()".into(),
        format!("PREPARE s FROM 'SET ROLE {role}'; EXECUTE s"),
    ];
    for way in &ways {
        let weir = one_connection(env)?;
        let mut session = Session::open(weir.addr(), &schema)?;
        for statement in way.split("; EXECUTE").enumerate().map(|(at, text)| match at {
            0 => text.to_owned(),
            _ => format!("EXECUTE{text}"),
        }) {
            // The compound statement has a `;` of its own, but no EXECUTE.
            session.run(&statement).map_err(|error| format!("{way}: {error}"))?;
        }
        let own = session.value("SELECT CURRENT_ROLE()")?;
        ensure!(own == role, "{way}: CURRENT_ROLE() is {own}");
        session.reset()?.done()?;
        let kept = session.value("SELECT CURRENT_ROLE()")?;
        ensure!(kept == role, "{way}: a role outlives a reset at a server, and here it is {kept}");
        drop(session);
        let next = look(&weir, &schema)?;
        ensure!(next[0][4] == "NULL", "{way}: the next session has the role {}", next[0][4]);
    }
    node.root_query(&format!("DROP ROLE {role}"))?;
    Ok(())
}

/// However somebody switches tracking off, the next session's INSERT goes into its own schema.
fn tracking_off(env: &Env) -> CaseResult {
    let (ours, theirs) = (env.schema()?, env.schema()?);
    let node = env.cluster()?.node(1);
    for schema in [&ours, &theirs] {
        node.root_query(&format!("CREATE TABLE {schema}.t (v INT)"))?;
    }
    let off = "SET session_track_schema = OFF, session_track_state_change = OFF, session_track_system_variables = ''";
    node.root_query(&format!("CREATE PROCEDURE {ours}.off() {off}"))?;
    let quoted = off.replace('\'', "''");
    for way in [
        format!("EXECUTE IMMEDIATE '{quoted}'"),
        format!("BEGIN NOT ATOMIC {off}; END"),
        format!("CALL {ours}.off()"),
    ] {
        let weir = one_connection(env)?;
        let mut session = Session::open(weir.addr(), &ours)?;
        session.run(&way).map_err(|error| format!("{way}: {error}"))?;
        session.run(&format!("USE {theirs}"))?;
        drop(session);
        let mut next = Session::open(weir.addr(), &ours)?;
        wait_free(&mut next)?;
        next.run("INSERT INTO t VALUES (1)")?;
        let astray = node.root_query(&format!("SELECT COUNT(*) FROM {theirs}.t"))?;
        ensure!(astray == [["0"]], "{way}: the next session's row is in the schema of the one before");
        // The same where the session resets itself.
        let mut session = Session::open(weir.addr(), &ours)?;
        drop(next);
        wait_free(&mut session)?;
        session.run(&way)?;
        session.run(&format!("USE {theirs}"))?;
        session.reset()?.done()?;
        let schema = session.value("SELECT DATABASE()")?;
        ensure!(schema == theirs, "{way}: a reset leaves the schema, and here it is {schema}");
        let mut next = Session::open(weir.addr(), &ours)?;
        wait_free(&mut next)?;
        next.run("INSERT INTO t VALUES (2)")?;
        let astray = node.root_query(&format!("SELECT COUNT(*) FROM {theirs}.t"))?;
        ensure!(astray == [["0"]], "{way}, then a reset: a row is in the schema of another session");
    }
    Ok(())
}

/// A trigger switches all tracking off, of which no server says a word: the next USE shows it.
fn unreported_use(env: &Env) -> CaseResult {
    let off = "SET session_track_schema = OFF, session_track_state_change = OFF, session_track_system_variables = ''";
    let schema = table_with_trigger(env, off)?;
    let theirs = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE TABLE {theirs}.t (id INT, v INT)"))?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("INSERT INTO t VALUES (2, 2)")?;
    session.run(&format!("USE {theirs}"))?;
    let mut next = Session::open(weir.addr(), &schema)?;
    drop(session);
    wait_free(&mut next)?;
    next.run("INSERT INTO t VALUES (3, 3)")?;
    let astray = node.root_query(&format!("SELECT COUNT(*) FROM {theirs}.t"))?;
    ensure!(astray == [["0"]], "a row is in the schema of another session");
    Ok(())
}

fn insert_ids(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!(
        "CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT); INSERT INTO {schema}.t VALUES (1, 1)"
    ))?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    for text in [
        "DO LAST_INSERT_ID(42)",
        "DELETE FROM t WHERE id = LAST_INSERT_ID(42)",
        "UPDATE t SET v = LAST_INSERT_ID(42)",
        "INSERT INTO t SELECT 5, 5 FROM t WHERE LAST_INSERT_ID(42) = 1",
    ] {
        session.run(text)?;
        let theirs = other.value("SELECT LAST_INSERT_ID()")?;
        ensure!(theirs == "0", "{text}: another session has LAST_INSERT_ID() {theirs}");
        let own = session.value("SELECT LAST_INSERT_ID()")?;
        ensure!(own == "42", "{text}: LAST_INSERT_ID() is {own}");
    }
    session.run("SET insert_id = 1000")?;
    session.run("INSERT INTO t VALUES (9, 9)")?;
    drop(session);
    wait_free(&mut other)?;
    let left = other.value("SELECT @@insert_id")?;
    ensure!(left == "0", "@@insert_id of another session is {left}");
    Ok(())
}

fn auto_is_null(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"))?;
    let weir = one_connection(env)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    other.run("INSERT INTO t (v) VALUES (1)")?;
    session.run("SET sql_auto_is_null = 1")?;
    let found = session.rows("SELECT v FROM t WHERE id IS NULL")?;
    ensure!(found.is_empty(), "the row of another session is found: {found:?}");
    session.run("INSERT INTO t (v) VALUES (2)")?;
    let found = session.rows("SELECT v FROM t WHERE id IS NULL")?;
    ensure!(found == [["2"]], "the session's own row: {found:?}");
    session.run("SET sql_auto_is_null = 0")?;
    wait_free(&mut other)?;
    Ok(())
}

fn savepoint(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (v INT)"))?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    session.run("SET autocommit = 0")?;
    for end in ["COMMIT", "ROLLBACK", "SET autocommit = 1"] {
        session.run("SAVEPOINT a")?;
        other.refused("BEGIN", NO_CONNECTION)?;
        session.run("INSERT INTO t VALUES (1)")?;
        session.run("ROLLBACK TO a")?;
        session.run("RELEASE SAVEPOINT a")?;
        session.run(end)?;
        other.run("DO 0").map_err(|error| format!("after {end}: {error}"))?;
    }
    let rows = other.rows("SELECT v FROM t")?;
    ensure!(rows.is_empty(), "what was rolled back is there: {rows:?}");
    Ok(())
}

fn utf16(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    env.cluster()?
        .node(1)
        .root_query(&format!("CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY)"))?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    session.run("SET character_set_results = utf16")?;
    session.run("SET character_set_connection = utf16")?;
    session.run("INSERT INTO t VALUES (NULL)")?;
    let first = other.value("SELECT MAX(id) FROM t")?;
    session.run("SET character_set_results = utf8mb4")?;
    let own = session.value("SELECT CAST(LAST_INSERT_ID() AS UNSIGNED)")?;
    ensure!(own == first, "LAST_INSERT_ID() is {own}, the row has {first}");
    let collation = session.value("SELECT CONVERT(@@collation_connection USING utf8mb4)")?;
    ensure!(collation == "utf16_general_ci", "collation_connection is {collation}");
    Ok(())
}

/// `utf8` is one character set or another: what one session means by it is no other's business.
fn old_mode(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    env.cluster()?
        .node(1)
        .root_query(&format!("CREATE TABLE {schema}.t (v VARCHAR(9) CHARACTER SET utf8mb4)"))?;
    let weir = one_connection(env)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    other.run("SET NAMES utf8")?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("SET old_mode = ''")?;
    session.run("SET NAMES utf8")?;
    other.run("DO 0")?;
    session.run("INSERT INTO t VALUES ('\u{1F600}')")?;
    let stored = session.value("SELECT HEX(v) FROM t")?;
    ensure!(stored == "F09F9880", "stored is {stored}");
    other.run("DO 0")?;
    let charset = session.value("SELECT @@character_set_connection")?;
    ensure!(charset == "utf8mb4", "character_set_connection is {charset}");
    Ok(())
}

/// The items of a list are checked together, but set one after the other.
fn failing_list(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = one_connection(env)?;
    let text = "SET time_zone = '+03:00', @seen = 5, PASSWORD FOR nobody@nowhere = PASSWORD('x')";
    let mut direct = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    let directly = direct.query(text)?.error();
    ensure!(directly.is_some(), "it does not fail: choose another account");
    let expected = direct.rows(LOOK)?;
    let clean = look(&weir, &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let through = session.query(text)?.error();
    ensure!(through == directly, "{directly:?} directly, {through:?} through Weir");
    let seen = session.rows(LOOK)?;
    ensure!(seen == expected, "the session itself sees {seen:?} in place of {expected:?}");
    drop(session);
    let next = look(&weir, &schema)?;
    ensure!(next == clean, "the next session sees {next:?}");
    Ok(())
}

fn completion_type(env: &Env) -> CaseResult {
    let schema = table_with_trigger(env, "INSERT INTO log (v) VALUES (NEW.v)")?;
    let weir = one_connection(env)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    for kind in ["CHAIN", "'RELEASE'"] {
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run(&format!("SET completion_type = {kind}"))?;
        session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
        let status = session.run("DO 0").map_err(|error| format!("{kind}: {error}"))?.status;
        ensure!(status == StatusFlags::AUTOCOMMIT, "{kind}: the status is {status:?}");
        other.run("DO 0").map_err(|error| format!("{kind}: {error}"))?;
    }
    Ok(())
}

fn silenced(env: &Env) -> CaseResult {
    for off in [
        "session_track_transaction_info = 'OFF'",
        "session_track_state_change = OFF, session_track_system_variables = ''",
        "session_track_schema = OFF, session_track_transaction_info = 'OFF', session_track_state_change = OFF, \
         session_track_system_variables = ''",
    ] {
        let schema = table_with_trigger(env, &format!("SET time_zone = '+03:00', {off}"))?;
        let weir = one_connection(env)?;
        let mut session = Session::open(weir.addr(), &schema)?;
        session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
        let own = session.value("SELECT @@time_zone")?;
        ensure!(own == "+03:00", "{off}: the session itself sees {own}");
        drop(session);
        let next = look(&weir, &schema)?;
        ensure!(next[0][1] == "SYSTEM", "{off}: the next session's time zone is {}", next[0][1]);
    }
    Ok(())
}

/// SET STATEMENT reports a change of its own, behind which another one may hide.
fn hidden_role(env: &Env) -> CaseResult {
    let role = format!("role_{}", env.schema()?);
    let node = env.cluster()?.node(1);
    node.root_query(&format!("CREATE ROLE {role}; GRANT {role} TO app"))?;
    let schema = table_with_trigger(env, &format!("SET ROLE {role}"))?;
    let weir = one_connection(env)?;
    for id in [2, 1] {
        let mut session = Session::open(weir.addr(), &schema)?;
        wait_free(&mut session)?;
        session.query(&format!("SET STATEMENT max_statement_time = 5 FOR INSERT INTO t VALUES ({id}, 1)"))?;
        let login = Login::new(Account::APP2);
        let mut other = Session::with(weir.addr(), &login)?;
        let theirs = other.query("SELECT CURRENT_ROLE()")?;
        if theirs.error() != Some(NO_CONNECTION) {
            let theirs = theirs.rows()?;
            ensure!(theirs == [["NULL"]], "another user has the role {theirs:?}");
        }
        drop(session);
        wait_free(&mut other)?;
        let theirs = other.value("SELECT CURRENT_ROLE()")?;
        ensure!(theirs == "NULL", "another user has the role {theirs}");
    }
    node.root_query(&format!("DROP ROLE {role}"))?;
    Ok(())
}

fn own_diagnostics(env: &Env) -> CaseResult {
    let schema = table_with_trigger(env, "INSERT INTO log (v) VALUES (NEW.v)")?;
    let weir = one_connection(env)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    other.run("INSERT INTO t VALUES (5, 5)")?;
    session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
    session.run("GET DIAGNOSTICS CONDITION 1 @code = MYSQL_ERRNO")?;
    let code = session.value("SELECT @code")?;
    ensure!(code == "1062", "GET DIAGNOSTICS tells of {code}");
    Ok(())
}

/// What no server reports of a trigger, and what there is for those who have such triggers.
fn unreported(env: &Env) -> CaseResult {
    for (body, look) in [
        ("SET @@time_zone = '+03:00'", "SELECT @@time_zone"),
        ("CREATE TEMPORARY TABLE log SELECT 'temporary' AS v", "SELECT v FROM log"),
    ] {
        let schema = table_with_trigger(env, body)?;
        let weir = env.narrow_weir_with(&[1], 1, |config| {
            config.variable("reset_after_hidden_code", true);
        })?;
        let mut other = Session::open(weir.addr(), &schema)?;
        let clean = other.rows(look)?;
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("INSERT INTO t VALUES (2, 2)")?;
        let seen = other.rows(look)?;
        ensure!(seen == clean, "{body}: another session sees {seen:?}");
    }
    Ok(())
}

/// A statement that has failed without leaving anything behind holds its connection no longer than any other.
fn duplicate_key(env: &Env) -> CaseResult {
    let schema = table_with_trigger(env, "INSERT INTO log (v) VALUES (NEW.v)")?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
    other.run("DO 0")?;
    session.run("BEGIN")?;
    session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
    other.refused("DO 0", NO_CONNECTION)?;
    session.run("INSERT INTO t VALUES (5, 5)")?;
    session.run("COMMIT")?;
    other.run("DO 0")?;
    let rows = other.rows("SELECT id FROM t ORDER BY id")?;
    ensure!(rows == [["1"], ["5"]], "the transaction went on after the error, and left {rows:?}");
    session.run("SET autocommit = 0")?;
    session.refused("INSERT INTO nowhere VALUES (1)", 1146)?;
    other.run("DO 0")?;
    Ok(())
}

/// A transaction that the cluster aborts while its client is idle makes the server refuse the next command: the reset
/// after the client has left.
fn refused_reset(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let mut neighbour = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    neighbour.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
    let weir = one_connection(env)?;
    eventually("the defaults are asked for", ASKED_TIMEOUT, || {
        Ok(weir.log().contains("session variables have been read"))
    })?;
    let settings = "SELECT CONCAT_WS(' ', @@autocommit, @@sql_mode, @@tx_isolation)";
    let defaults = neighbour.value(settings)?;
    for round in 0..5 {
        let mut one = Session::open(weir.addr(), &schema)?;
        wait_free(&mut one)?;
        one.run("SET autocommit = 0, sql_mode = 'ANSI', SESSION tx_isolation = 'SERIALIZABLE'")?;
        one.query("SELECT * FROM t WHERE id = 77 FOR UPDATE")?;
        neighbour.run(&format!("ALTER TABLE t ADD COLUMN c{round} INT"))?;
        drop(one);
        let mut next = Session::open(weir.addr(), &schema)?;
        wait_free(&mut next)?;
        let seen = next.value(settings)?;
        ensure!(seen == defaults, "round {round}: {seen} instead of {defaults}");
    }
    Ok(())
}

/// The error that ends a transaction is the client's, also where Weir asks something first on its connection.
fn aborted_unasked(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let mut neighbour = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    neighbour.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let weir = one_connection(env)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    wait_free(&mut session)?;
    for round in 0..3 {
        session.run("BEGIN")?;
        session.run(&format!("INSERT INTO t (id) VALUES ({round})"))?;
        // Only the connection knows FOUND_ROWS() now, and has to be asked before the question for the list.
        session.query("SELECT SQL_CALC_FOUND_ROWS id FROM t LIMIT 1")?;
        neighbour.run(&format!("ALTER TABLE t ADD COLUMN c{round} INT"))?;
        let list = session.query("SET session_track_system_variables = CONCAT('time_zone', '')")?;
        let next = session.query(&format!("INSERT INTO t (id) VALUES ({})", 100 + round))?;
        ensure!(
            list.error() == Some(DEADLOCK) || next.error() == Some(DEADLOCK),
            "round {round}: nobody has told of the lost transaction: {list:?}, {next:?}"
        );
        session.run("ROLLBACK")?;
    }
    Ok(())
}
