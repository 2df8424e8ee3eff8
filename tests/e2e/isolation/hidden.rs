//! Statements that stand where only the server's own reading of a text shows them.

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::{NO_CONNECTION, one_connection};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("isolation::a_statement_between_brackets_is_seen", brackets),
        Case::parallel("isolation::what_a_schedule_does_is_seen", schedules),
        Case::parallel("isolation::on_mysql_what_a_schedule_does_is_seen", mysql_schedules),
        Case::parallel("isolation::a_statement_behind_a_body_is_seen", bodies),
        Case::parallel("isolation::on_mysql_a_statement_behind_a_body_is_seen", mysql_bodies),
        Case::parallel("isolation::on_mysql_a_statement_between_dollar_signs_is_seen", dollar_signs),
    ]
}

/// Runs `text`, which takes a lock, and has another session ask for the only connection.
///
/// The lock's name is `0x6B` in `text`; the server sees one of this case's own, since cases run beside
/// each other on one server, and some of these locks don't wait.
fn holds(weir: &Weir, schema: &str, mode: Option<&str>, text: &str) -> CaseResult {
    let lock = schema.bytes().fold(String::from("0x"), |name, byte| format!("{name}{byte:02X}"));
    let text = &text.replace("0x6B", &lock);
    let login = Login::new(Account::APP).schema(schema).with(Capabilities::MULTI_STATEMENTS);
    let mut session = Session::with(weir.addr(), &login)?;
    super::wait_free(&mut session)?;
    if let Some(mode) = mode {
        session.run(&format!("SET sql_mode = '{mode}'"))?;
    }
    session.query(text)?.done().map_err(|error| format!("{text}: {error}"))?;
    let answer = Session::open(weir.addr(), schema)?.query("DO 0")?;
    ensure!(
        answer.error() == Some(NO_CONNECTION),
        "{text}: another session got the connection with the lock"
    );
    let is_held = session.value(&format!("SELECT IS_USED_LOCK({lock}) IS NOT NULL"))?;
    ensure!(is_held == "1", "{text}: took no lock");
    Ok(())
}

fn brackets(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = one_connection(env)?;
    for text in [
        "SELECT 1 AS [']; DO GET_LOCK(0x6B, 1); SELECT 2 AS [']",
        "SELECT [a'], GET_LOCK(0x6B, 1), [b'] FROM (SELECT 1 AS [a'], 2 AS [b']) x",
        "SELECT [/*], GET_LOCK(0x6B, 1), [*/] FROM (SELECT 1 AS [/*], 2 AS [*/]) x",
    ] {
        holds(&weir, &schema, Some("MSSQL"), text)?;
    }
    // The mode changes before the brackets come.
    let text = "SET sql_mode = 'MSSQL'; SELECT 1 AS [']; DO GET_LOCK(0x6B, 1); SELECT 2 AS [']";
    holds(&weir, &schema, None, text)
}

fn one_mysql_connection(env: &Env) -> Result<Weir, String> {
    env.mysql_weir_with(1, |config| {
        config.variable("connect_timeout_server_max", 150);
    })
}

fn dollar_signs(env: &Env) -> CaseResult {
    let schema = env.mysql_schema()?;
    let weir = one_mysql_connection(env)?;
    for text in [
        "CREATE PROCEDURE f1() LANGUAGE JAVASCRIPT AS $$ /* $$; DO GET_LOCK(0x6B, 1); SELECT 1 /*$$ */",
        "CREATE PROCEDURE f2() LANGUAGE JAVASCRIPT AS $js$ '$$ $js$; DO GET_LOCK(0x6B, 1); SELECT '$js$'",
        "CREATE PROCEDURE f3() LANGUAGE JAVASCRIPT AS $$ BEGIN $$; DO GET_LOCK(0x6B, 1); \
         CREATE PROCEDURE p3() BEGIN SELECT 1; END",
    ] {
        holds(&weir, &schema, None, text)?;
    }
    // A body that has a quote of its own holds nothing.
    let mut session = Session::open(weir.addr(), &schema)?;
    super::wait_free(&mut session)?;
    session.run("CREATE PROCEDURE f4() LANGUAGE JAVASCRIPT AS $$ return \"don't\".length; $$")?;
    let mut next = Session::open(weir.addr(), &schema)?;
    super::wait_free(&mut next)
}

/// Bodies with names that look like the beginning of a block, which seems to end only behind the lock.
const BODIES: &[&str] = &[
    "CREATE PROCEDURE a . begin() SELECT 1; DO GET_LOCK(0x6B, 1); CREATE PROCEDURE p1() BEGIN SELECT 1; END",
    "CREATE PROCEDURE p2() BEGIN DECLARE begin CONDITION FOR 1051; \
     DECLARE CONTINUE HANDLER FOR begin SET @a = 1; END; \
     DO GET_LOCK(0x6B, 1); CREATE PROCEDURE p3() BEGIN SELECT 1; END",
];

fn hold_behind_bodies(weir: &Weir, schema: &str) -> CaseResult {
    for text in BODIES {
        holds(weir, schema, None, &text.replace("a . begin", &format!("{schema} . begin")))?;
    }
    // A body alone holds nothing.
    let mut session = Session::open(weir.addr(), schema)?;
    super::wait_free(&mut session)?;
    session.run("CREATE PROCEDURE p4() BEGIN SELECT 1; BEGIN SELECT 2; END; END")?;
    let mut next = Session::open(weir.addr(), schema)?;
    super::wait_free(&mut next)
}

fn bodies(env: &Env) -> CaseResult {
    hold_behind_bodies(&one_connection(env)?, &env.schema()?)
}

fn mysql_bodies(env: &Env) -> CaseResult {
    hold_behind_bodies(&one_mysql_connection(env)?, &env.mysql_schema()?)
}

/// Schedules are evaluated when an event is created or altered.
const SCHEDULES: &[&str] = &[
    "CREATE EVENT e1 ON SCHEDULE EVERY GET_LOCK(0x6B, 30) DAY DO SELECT 1",
    "ALTER EVENT e1 ON SCHEDULE AT FROM_UNIXTIME(2000000000 + GET_LOCK(0x6B, 0)) DO SELECT 2",
    "CREATE EVENT do ON SCHEDULE EVERY 1 DAY STARTS FROM_UNIXTIME(2000000000 + GET_LOCK(0x6B, 0)) DO SELECT 1",
];

fn schedules(env: &Env) -> CaseResult {
    let (weir, schema) = (one_connection(env)?, env.schema()?);
    SCHEDULES.iter().try_for_each(|text| holds(&weir, &schema, None, text))
}

fn mysql_schedules(env: &Env) -> CaseResult {
    let (weir, schema) = (one_mysql_connection(env)?, env.mysql_schema()?);
    SCHEDULES.iter().try_for_each(|text| holds(&weir, &schema, None, text))
}
