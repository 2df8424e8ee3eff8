//! The same in front of MySQL, which reports other things.

use weir_tests::{Case, CaseResult, Env, Session, ensure};

use weir_tests::wait_free;

use super::{DUPLICATE_KEY, NO_CONNECTION};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("isolation::on_mysql_hidden_code_leaves_nothing_behind", on_mysql),
        Case::parallel(
            "isolation::on_mysql_a_trigger_that_switches_tracking_off_and_fails_hides_nothing",
            silenced,
        ),
    ]
}

fn on_mysql(env: &Env) -> CaseResult {
    let schema = env.mysql_schema()?;
    let mysql = env.mysql()?;
    let role = format!("role_{schema}");
    for text in [
        format!("CREATE ROLE {role}"),
        format!("GRANT {role} TO app"),
        format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)"),
        format!("INSERT INTO {schema}.t VALUES (1, 1)"),
        format!(
            "CREATE TRIGGER {schema}.changes BEFORE INSERT ON {schema}.t FOR EACH ROW SET time_zone = '+03:00', @seen = 5"
        ),
        format!("CREATE PROCEDURE {schema}.become() SQL SECURITY INVOKER SET ROLE {role}"),
    ] {
        mysql.source().root_query(&text)?;
    }
    mysql.wait_replicated()?;
    let weir = env.mysql_weir_with(1, |config| {
        config.variable("connect_timeout_server_max", 150);
    })?;
    let look = "SELECT @seen, @@time_zone, CURRENT_ROLE(), DATABASE()";
    let mut first = Session::open(weir.addr(), &schema)?;
    wait_free(&mut first)?;
    let clean = first.rows(look)?;
    drop(first);
    for way in [
        "INSERT INTO t VALUES (2, 2)".to_owned(),
        "INSERT INTO t VALUES (1, 2)".into(),
        "CALL become()".into(),
        format!("SET ROLE {role}"),
        format!("PREPARE s FROM 'SET ROLE {role}'"),
        "DO LAST_INSERT_ID(42)".into(),
    ] {
        let mut session = Session::open(weir.addr(), &schema)?;
        wait_free(&mut session)?;
        let answer = session.query(&way)?;
        let failed = way.contains("(1, 2)");
        ensure!(answer.error() == failed.then_some(DUPLICATE_KEY), "{way}: {answer:?}");
        if way.starts_with("PREPARE") {
            session.run("EXECUTE s")?;
        }
        drop(session);
        let mut next = Session::open(weir.addr(), &schema)?;
        wait_free(&mut next)?;
        let seen = next.rows(look)?;
        ensure!(seen == clean, "{way}: the next session sees {seen:?}");
        let id = next.value("SELECT LAST_INSERT_ID()")?;
        ensure!(id == "0", "{way}: LAST_INSERT_ID() of the next session is {id}");
    }
    mysql.source().root_query(&format!("DROP ROLE {role}"))?;
    Ok(())
}

fn silenced(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    for off in [
        "session_track_system_variables = ''",
        "session_track_system_variables = 'sql_mode'",
        "session_track_state_change = OFF, session_track_system_variables = '', session_track_schema = OFF",
    ] {
        let schema = env.mysql_schema()?;
        for text in [
            format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)"),
            format!("INSERT INTO {schema}.t VALUES (1, 1)"),
            format!(
                "CREATE TRIGGER {schema}.changes BEFORE INSERT ON {schema}.t FOR EACH ROW SET {off}, time_zone = '+03:00'"
            ),
        ] {
            mysql.source().root_query(&text)?;
        }
        mysql.wait_replicated()?;
        let weir = env.mysql_weir_with(1, |config| {
            config.variable("connect_timeout_server_max", 150);
        })?;
        let mut session = Session::open(weir.addr(), &schema)?;
        wait_free(&mut session)?;
        session.refused("INSERT INTO t VALUES (1, 1)", DUPLICATE_KEY)?;
        let mut next = Session::open(weir.addr(), &schema)?;
        let look = "SELECT @@time_zone";
        let seen = next.query(look)?;
        // Its own session may hold the connection.
        if seen.error() != Some(NO_CONNECTION) {
            ensure!(seen.value()? == "SYSTEM", "{off}: the next session's time zone is {}", seen.value()?);
        }
        drop(session);
        wait_free(&mut next)?;
        let seen = next.value(look)?;
        ensure!(seen == "SYSTEM", "{off}: the next session's time zone is {seen}");
    }
    Ok(())
}
