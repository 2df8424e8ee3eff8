//! Rules rewrite a statement's text, or answer it themselves.

use weir_testkit::hostgroup;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::{WHERE, weir};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("query_rules::error_msg_and_ok_msg_answer_without_a_server", messages),
        Case::parallel("query_rules::a_text_is_replaced_before_it_is_looked_at", replaced),
        Case::parallel("query_rules::a_replaced_text_can_be_prepared", replaced_and_prepared),
        Case::parallel("query_rules::a_text_too_long_to_replace_is_refused", too_long),
    ]
}

fn messages(env: &Env) -> CaseResult {
    let rules = [
        "match_digest = '^DELETE FROM .*t$', error_msg = 'no DELETE without WHERE', apply = 1",
        "match_digest = '^SET GLOBAL', OK_msg = 'as you like', apply = 1",
    ];
    let weir = weir(env, &rules)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let message = session.refused("DELETE FROM nowhere.t", 1148)?;
    ensure!(message == "no DELETE without WHERE", "{message}");
    session.run("SET GLOBAL no_such_variable = 1")?;
    let refused = session.try_prepare("DELETE FROM nowhere.t")?;
    ensure!(refused.is_err(), "a PREPARE of it was not refused");
    ensure!(session.value("SELECT ROW_COUNT()")? == "-1", "after an error");
    session.value("SELECT 1")?;
    Ok(())
}

fn replaced(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let rules = [
        r"match_pattern = '^SELECT add\((\d+)\)$', replace_pattern = 'INSERT INTO t VALUES (\1)', apply = 1",
        r"match_pattern = 'old', replace_pattern = 't', re_modifiers = 'CASELESS,GLOBAL'",
        "match_pattern = '^UPDATE t SET a = 0$', replace_pattern = 'SELECT COUNT(*) FROM t'",
    ];
    let weir = weir(env, &rules)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (a INT PRIMARY KEY)")?;
    for value in 1..=20 {
        // Looks like a read, and must be sent to the writer as what it has become.
        session.run(&format!("SELECT add({value})"))?;
        let count = session.value("SELECT COUNT(OLD.a) FROM old")?;
        ensure!(count == value.to_string(), "after {value} rows: {count}");
    }
    ensure!(session.value("UPDATE t SET a = 0")? == "20", "a write that becomes a read");
    Ok(())
}

fn replaced_and_prepared(env: &Env) -> CaseResult {
    let rule = format!(
        "match_pattern = '^SELECT node$', replace_pattern = \"{}\", destination_hostgroup = {}",
        WHERE.replace('\'', "\\u0027"),
        hostgroup::READER
    );
    let weir = weir(env, &[&rule])?;
    let mut session = Session::open(weir.addr(), "test")?;
    let statement = session.prepare("SELECT node")?;
    for _ in 0..3 {
        let rows = session.execute(&statement, &[])?.binary_rows()?;
        ensure!(matches!(rows[0][0].as_str(), "n2" | "n3"), "ran on {rows:?}");
    }
    Ok(())
}

fn too_long(env: &Env) -> CaseResult {
    let weir = weir(env, &["match_pattern = '^SELECT /\\* long', replace_pattern = 'SELECT /* short'"])?;
    let mut session = Session::open(weir.addr(), "test")?;
    let text = format!("SELECT /* long */ '{}'", "x".repeat(1_200_000));
    let answer = session.query(&text)?;
    ensure!(answer.error() == Some(1153), "the statement was not refused");
    Ok(())
}
