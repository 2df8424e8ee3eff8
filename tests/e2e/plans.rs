//! The plan of what another session runs, asked for by the connection id that Weir has given it.

use std::time::Duration;

use weir_testkit::Weir;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("plans::of_a_session_at_mariadb", |env: &Env| {
            plan(&env.narrow_weir(&[1, 2, 3], 4)?, "SHOW EXPLAIN FOR")
        }),
        Case::parallel("plans::of_a_session_at_mysql", |env: &Env| {
            plan(&env.mysql_weir(4)?, "EXPLAIN FOR CONNECTION")
        }),
    ]
}

fn plan(weir: &Weir, ask: &str) -> CaseResult {
    let mut running = Session::open(weir.addr(), "information_schema")?;
    ensure!(running.id() > 3_000_000_000, "{} may be a server's", running.id());
    let id = running.id();
    // The tables have rows everywhere, and each takes its time.
    running.send_query("SELECT SLEEP(0.3) FROM COLLATIONS LIMIT 20")?;
    let mut asking = Session::open(weir.addr(), "information_schema")?;
    let mut last = String::new();
    eventually("a plan is shown", Duration::from_secs(5), || {
        let answer = asking.rows(&format!("{ask} {id}"));
        last = format!("{answer:?}");
        Ok(answer.is_ok_and(|rows| !rows.is_empty()))
    })
    .map_err(|error| format!("{error}: {last}"))?;
    running.results()?;
    let refused = asking.rows(&format!("{ask} {id}"));
    ensure!(refused.is_err(), "nothing runs any more: {refused:?}");
    // Servers count from 1.
    let message = asking.refused("KILL 5", 1094)?;
    ensure!(message.contains("process list"), "{message}");
    Ok(())
}
