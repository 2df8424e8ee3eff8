//! KILL with the ids that Weir gave out.

use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::session::Answer;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{PATIENCE, gone_from_servers, runs_on_servers, weir};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("vanish::kill_query_ends_the_statement_of_another_session", kill_query),
        Case::parallel("vanish::kill_ends_another_session", kill_connection),
        Case::parallel("vanish::kill_of_another_users_session_does_nothing", kill_of_others),
        Case::parallel("vanish::kill_of_all_sessions_of_a_user", kill_user),
        Case::parallel("vanish::kill_of_a_waiting_session", kill_of_a_waiter),
        Case::parallel("vanish::kill_of_an_idle_session_and_of_oneself", kill_of_idle_and_self),
    ]
}

/// Two sessions of the same worker, or of different ones.
fn pair(
    server: std::net::SocketAddrV4,
    account: Account,
    victim: &Session,
    same_worker: bool,
) -> Result<Session, Box<dyn std::error::Error>> {
    let mut others = Vec::new();
    for _ in 0..50 {
        let session = Session::with(server, &Login::new(account).schema("test"))?;
        if (session.id() % 2 == victim.id() % 2) == same_worker {
            return Ok(session);
        }
        others.push(session);
    }
    Err("no session in the worker wanted".into())
}

/// Starts a statement in a thread; its answer comes when it ends.
fn start(mut session: Session, sql: String) -> thread::JoinHandle<Result<(Session, Answer), String>> {
    thread::spawn(move || {
        let answer = session.query(&sql).map_err(|error| error.to_string())?;
        Ok((session, answer))
    })
}

fn kill_query(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    for same_worker in [true, false] {
        for in_transaction in [false, true] {
            let mut victim = Session::open(weir.addr(), &schema)?;
            if in_transaction {
                victim.run("BEGIN")?;
            }
            let id = victim.id();
            let mut killer = pair(weir.addr(), Account::APP, &victim, same_worker)?;
            let mark = format!("{schema}_{same_worker}_{in_transaction}");
            let running = start(victim, format!("SELECT SLEEP(60) /* {mark} */"));
            runs_on_servers(env, &mark)?;
            let started = Instant::now();
            killer.run(&format!("KILL QUERY {id}"))?;
            let (mut victim, answer) = running.join().map_err(|_| "panicked")??;
            ensure!(started.elapsed() < PATIENCE, "ended after {:?}", started.elapsed());
            ensure!(super::is_interrupted(&answer), "same worker {same_worker}: {answer:?}");
            let value = victim.value("SELECT 'on'")?;
            ensure!(value == "on", "the session goes on: {value}");
        }
    }
    Ok(())
}

fn kill_connection(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    for same_worker in [true, false] {
        for command in ["KILL", "KILL CONNECTION", "KILL HARD"] {
            let victim = Session::open(weir.addr(), &schema)?;
            let id = victim.id();
            let mut killer = pair(weir.addr(), Account::APP, &victim, same_worker)?;
            let mark = format!("{schema}_{same_worker}_{}", command.len());
            let running = start(victim, format!("SELECT SLEEP(60) /* {mark} */"));
            runs_on_servers(env, &mark)?;
            killer.run(&format!("{command} {id}"))?;
            let started = Instant::now();
            match running.join().map_err(|_| "panicked")? {
                Err(_) => {}
                Ok((mut victim, answer)) => {
                    ensure!(super::is_interrupted(&answer), "{command}: {answer:?}");
                    ensure!(victim.ping().is_err(), "{command}: the session is still open");
                }
            }
            ensure!(started.elapsed() < PATIENCE, "{command}: ended after {:?}", started.elapsed());
            gone_from_servers(env, &mark, PATIENCE)?;
        }
    }
    let mut killer = Session::open(weir.addr(), &schema)?;
    // One of the two would be the other worker's.
    for id in [u32::MAX - 1, u32::MAX - 2] {
        let message = killer.refused(&format!("KILL {id}"), 1094)?;
        ensure!(message == format!("Unknown thread id: {id}"), "KILL of nobody: {message}");
    }
    Ok(())
}

fn kill_of_others(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    for same_worker in [true, false] {
        for command in ["KILL QUERY", "KILL"] {
            let victim = Session::open(weir.addr(), &schema)?;
            let id = victim.id();
            let mut stranger = pair(weir.addr(), Account::APP2, &victim, same_worker)?;
            let mark = format!("{schema}_{same_worker}_{}", command.len());
            let running = start(victim, format!("SELECT SLEEP(5), 'whole' /* {mark} */"));
            runs_on_servers(env, &mark)?;
            let refused = stranger.query(&format!("{command} {id}"))?;
            ensure!(refused.error() == Some(1095), "{command}, same worker {same_worker}: {refused:?}");
            let (_, answer) = running.join().map_err(|_| "panicked")??;
            ensure!(answer.rows()? == [["0", "whole"]], "{command}: {answer:?}");
        }
    }
    Ok(())
}

fn kill_user(env: &Env) -> CaseResult {
    let weir = weir(env, 2)?;
    let open = |account: Account| Session::with(weir.addr(), &Login::new(account).schema("test"));
    let mut others = [open(Account::APP2)?, open(Account::APP2)?];
    let mut victims = Vec::new();
    for _ in 0..5 {
        victims.push(open(Account::APP)?);
    }
    let mut killer = open(Account::APP)?;
    let done = killer.run(&format!("KILL QUERY USER {}", Account::APP.user))?;
    ensure!(done.affected_rows == 6, "KILL QUERY USER: {done:?}");
    for victim in &mut victims {
        victim.ping()?.done()?;
    }
    killer.refused(&format!("KILL USER {}", Account::APP2.user), 1095)?;
    let done = killer.run(&format!("KILL USER '{}'", Account::APP.user))?;
    ensure!(done.affected_rows == 6, "KILL USER: {done:?}");
    for victim in victims.iter_mut().chain([&mut killer]) {
        let what = format!("session {} is closed by KILL USER", victim.id());
        eventually(&what, PATIENCE, || Ok(victim.ping().is_err()))?;
    }
    for other in &mut others {
        other.ping()?.done()?;
    }
    Ok(())
}

fn kill_of_a_waiter(env: &Env) -> CaseResult {
    let weir = crate::prepared::weir_with_connections(env, 1, 1)?;
    let mut holder = Session::open(weir.addr(), "test")?;
    let waiter = Session::open(weir.addr(), "test")?;
    let id = waiter.id();
    holder.run("BEGIN")?;
    holder.run("SELECT 1 FOR UPDATE")?;
    let waiting = start(waiter, "SELECT 'served'".to_owned());
    while !waiting.is_finished() {
        // Until the statement has come, there is nothing to kill.
        holder.run(&format!("KILL QUERY {id}"))?;
        thread::sleep(Duration::from_millis(50));
    }
    let (mut waiter, answer) = waiting.join().map_err(|_| "panicked")??;
    ensure!(answer.error() == Some(1317), "{answer:?}");
    holder.run("COMMIT")?;
    let value = waiter.value("SELECT 'on'")?;
    ensure!(value == "on", "{value}");
    Ok(())
}

fn kill_of_idle_and_self(env: &Env) -> CaseResult {
    let (weir, schema) = (weir(env, 2)?, env.schema()?);
    let mut killer = Session::open(weir.addr(), &schema)?;
    // KILL QUERY of an idle session is lost, as with a server: it never hits the next statement.
    for same_worker in [true, false] {
        let mut idle = Session::open(weir.addr(), &schema)?;
        let mut other = pair(weir.addr(), Account::APP, &idle, same_worker)?;
        other.run(&format!("KILL QUERY {}", idle.id()))?;
        for _ in 0..20 {
            let value = idle.value("SELECT SLEEP(0.01)")?;
            ensure!(value == "0", "the statement after a lost KILL QUERY: {value}");
        }
        idle.run("BEGIN")?;
        other.run(&format!("KILL QUERY {}", idle.id()))?;
        let value = idle.value("SELECT SLEEP(0.05)")?;
        ensure!(value == "0", "the statement after a lost KILL QUERY, in a transaction: {value}");
        other.run(&format!("KILL {}", idle.id()))?;
        eventually("an idle session is closed by KILL", PATIENCE, || Ok(idle.ping().is_err()))?;
    }
    let own = killer.id();
    killer.refused(&format!("KILL QUERY {own}"), 1317)?;
    killer.value("SELECT 'on'")?;
    let answer = killer.query(&format!("KILL {own}"));
    ensure!(answer.is_err() || answer.is_ok_and(|answer| answer.error().is_some()), "KILL of oneself");
    ensure!(killer.ping().is_err(), "still open after KILL of oneself");
    Ok(())
}
