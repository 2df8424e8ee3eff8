//! Time limits, delays, and what becomes of a session's connection.

use std::thread;

use weir_tests::{Case, CaseResult, Env, Session, ensure, wait_free};

use super::{add_rules, weir};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("query_rules::a_timeout_ends_the_statement_and_not_the_session", timeout),
        Case::parallel("query_rules::a_delayed_statement_holds_up_nobody_and_can_be_killed", delay),
        Case::parallel("query_rules::multiplex_0_keeps_the_connection_until_multiplex_1", multiplex),
    ]
}

fn timeout(env: &Env) -> CaseResult {
    let weir = weir(env, &["match_digest = 'SLEEP', timeout = 200"])?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..3 {
        session.refused("SELECT SLEEP(600) FROM mysql.global_priv FOR UPDATE", 1317)?;
        session.value("SELECT 1")?;
    }
    session.refused("/* query_timeout=100 */ SELECT SLEEP(600) FROM mysql.global_priv", 1317)?;
    ensure!(session.value("SELECT SLEEP(0)")? == "0", "a short statement is left alone");
    Ok(())
}

fn delay(env: &Env) -> CaseResult {
    let weir = weir(env, &["match_pattern = 'held', delay = 600000", "match_digest = '^SELECT', delay = 5"])?;
    let mut held = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    let id = held.id();
    let waiting =
        thread::spawn(move || held.refused("DO 1 /* held */", 1317).map_err(|error| error.to_string()));
    // One worker serves both.
    ensure!(other.value("SELECT 1")? == "1", "another session is served meanwhile");
    while !waiting.is_finished() {
        // Until the statement has come, there is nothing to kill.
        other.run(&format!("KILL QUERY {id}"))?;
        other.value("SELECT 1")?;
    }
    waiting.join().map_err(|_| "the held session's thread broke")??;
    Ok(())
}

fn multiplex(env: &Env) -> CaseResult {
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        config.variable("connect_timeout_server_max", 300);
        let rules = [
            "match_pattern = 'keep', multiplex = 0",
            "match_pattern = 'leave', multiplex = 1",
            "match_digest = '@', multiplex = 2",
        ];
        add_rules(config, &rules);
    })?;
    let mut first = Session::open(weir.addr(), "test")?;
    let mut second = Session::open(weir.addr(), "test")?;
    wait_free(&mut first)?;
    first.run("DO 1 /* keep */")?;
    let message = second.refused("DO 2", 9001)?;
    ensure!(message.contains("max_connections"), "{message}");
    first.run("DO 1 /* leave */")?;
    wait_free(&mut second)?;
    wait_free(&mut first)?;
    first.run("DO 1 /* keep */")?;
    first.reset()?;
    wait_free(&mut second)?;
    wait_free(&mut first)?;
    first.value("SELECT @@version")?;
    wait_free(&mut second)
}
