//! Servers that can't be reached: what clients are told, and what the servers have to bear.

use std::time::{Duration, Instant};

use weir_protocol::error::CON_COUNT_ERROR;
use weir_testkit::wire::Login;
use weir_testkit::{Account, FakeServer, Script, Step, WeirConfig};
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Forwarder, Session, ensure};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("pool::an_unreachable_hostgroup_is_an_error_with_its_cause", unreachable),
        Case::parallel("pool::a_server_that_never_greets", never_greets),
        Case::parallel("pool::all_connections_in_use_is_an_error_with_its_cause", all_in_use),
        Case::parallel("pool::a_server_that_comes_back_serves_again", comes_back),
        Case::parallel("pool::a_server_that_refuses_is_not_stormed", not_stormed),
        Case::parallel("pool::a_server_that_refuses_logins_is_not_stormed", logins_refused),
    ]
}

/// One server, no monitor to speak of.
fn config(env: &Env, server: std::net::SocketAddrV4) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(server, 7, &[]);
    config.user(Account::APP, 7, &[]);
    config.monitor(Account::MONITOR);
    config.variable("connect_timeout_server_max", 1000);
    config.variable("threads", 2);
    Ok(config)
}

/// Runs a statement that must fail with 9001 after about a second; returns the message.
fn told(session: &mut Session) -> Result<String, Box<dyn std::error::Error>> {
    let started = Instant::now();
    let answer = session.query("SELECT 1")?;
    let waited = started.elapsed();
    match answer.results.as_slice() {
        [Outcome::Err { code: 9001, sqlstate, message }] => {
            ensure!(sqlstate == "HY000", "SQLSTATE {sqlstate}");
            ensure!((0.9..10.0).contains(&waited.as_secs_f64()), "told after {waited:?}: {message}");
            ensure!(message.contains("hostgroup 7"), "{message}");
            Ok(message.clone())
        }
        other => Err(format!("expected 9001, got {other:?} after {waited:?}").into()),
    }
}

fn unreachable(env: &Env) -> CaseResult {
    let closed = env.free_address()?;
    let weir = env.weir_with(&config(env, closed)?)?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..2 {
        let message = told(&mut session)?;
        ensure!(
            message.starts_with("Max connect timeout reached while reaching hostgroup 7 after "),
            "{message}"
        );
        ensure!(message.contains(&closed.to_string()), "{message}");
        ensure!(message.to_lowercase().contains("refused"), "the cause is missing: {message}");
    }
    // The session lives: what needs no server still works.
    session.ping()?.done()?;
    Ok(())
}

fn never_greets(env: &Env) -> CaseResult {
    let server = FakeServer::raw(|_| Script::new().step(Step::Ignore))?;
    let mut config = config(env, server.addr())?;
    config.variable("connect_timeout_server", 300);
    let weir = env.weir_with(&config)?;
    let message = told(&mut Session::open(weir.addr(), "test")?)?;
    ensure!(message.contains(&server.addr().to_string()), "{message}");
    Ok(())
}

fn all_in_use(env: &Env) -> CaseResult {
    let node = env.cluster()?.node(1).addr();
    let mut config = config(env, node)?;
    config.document_mut().remove("mysql_servers");
    config.server(node, 7, &[("max_connections", 1.into())]);
    let weir = env.weir_with(&config)?;
    let mut holder = Session::open(weir.addr(), "test")?;
    holder.run("BEGIN")?;
    holder.run("SELECT 1 FOR UPDATE")?;
    let mut session = Session::open(weir.addr(), "test")?;
    let message = told(&mut session)?;
    ensure!(message.contains("max_connections"), "{message}");
    holder.run("COMMIT")?;
    session.value("SELECT 1")?;
    Ok(())
}

fn comes_back(env: &Env) -> CaseResult {
    let (node, between) = (env.cluster()?.node(1).addr(), env.free_address()?);
    let weir = env.weir_with(&config(env, between)?)?;
    let mut session = Session::open(weir.addr(), "test")?;
    told(&mut session)?;
    for round in 0..2 {
        let forwarder = Forwarder::start(between, node)?;
        let started = Instant::now();
        let mut answer = session.query("SELECT 'back'")?;
        while answer.error() == Some(9001) && started.elapsed() < Duration::from_secs(20) {
            answer = session.query("SELECT 'back'")?;
        }
        ensure!(answer.value()? == "back", "round {round}: {answer:?}");
        ensure!(
            started.elapsed() < Duration::from_secs(10),
            "round {round}: back after {:?}",
            started.elapsed()
        );
        drop(forwarder);
        // Gone again: the idle connection is noticed, and the session is not harmed.
        told(&mut session)?;
    }
    Ok(())
}

/// Clients that ask without end for three seconds.
fn ask_for_three_seconds(weir: std::net::SocketAddrV4) -> Result<u64, Box<dyn std::error::Error>> {
    let until = Instant::now() + Duration::from_secs(3);
    let threads: Vec<_> = (0..20)
        .map(|_| {
            std::thread::spawn(move || -> Result<u64, String> {
                let mut asked = 0;
                let login = Login::new(Account::APP).schema("test");
                let mut session = Session::with(weir, &login).map_err(|error| error.to_string())?;
                while Instant::now() < until {
                    let answer = session.query("SELECT 1").map_err(|error| error.to_string())?;
                    if answer.error() != Some(9001) {
                        return Err(format!("{answer:?}"));
                    }
                    asked += 1;
                }
                Ok(asked)
            })
        })
        .collect();
    let mut asked = 0;
    for thread in threads {
        asked += thread.join().map_err(|_| "panicked")??;
    }
    Ok(asked)
}

fn not_stormed(env: &Env) -> CaseResult {
    let server = FakeServer::raw(|_| Script::new())?;
    let mut config = config(env, server.addr())?;
    config.variable("connect_timeout_server_max", 100);
    // Of the connections counted, these are the monitor's, about.
    config.variable("monitor_ping_interval", 1000);
    let weir = env.weir_with(&config)?;
    ask_for_three_seconds(weir.addr())?;
    let connections = server.connections();
    ensure!((2..=60).contains(&connections), "{connections} connections in three seconds");
    Ok(())
}

fn logins_refused(env: &Env) -> CaseResult {
    let server = FakeServer::refusing(CON_COUNT_ERROR, "Too many connections there")?;
    let mut config = config(env, server.addr())?;
    config.variable("connect_timeout_server_max", 1000);
    let weir = env.weir_with(&config)?;
    let message = told(&mut Session::open(weir.addr(), "test")?)?;
    ensure!(message.contains("Too many connections there"), "the server's words are missing: {message}");
    let of_app = |server: &FakeServer| {
        server
            .received()
            .iter()
            .filter(|(_, packet)| packet.payload.windows(4).any(|w| w == b"app\0"))
            .count()
    };
    let before = of_app(&server);
    ask_for_three_seconds(weir.addr())?;
    let logins = of_app(&server) - before;
    ensure!((1..=60).contains(&logins), "{logins} logins in three seconds");
    Ok(())
}
