//! Weirs with so few connections to the servers that sessions surely share them.

use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{TestkitError, Weir, WeirConfig, hostgroup};

use crate::{CaseResult, Env, Session, ensure, eventually};

/// Weir's error where no connection gets free in time.
const NO_CONNECTION: u16 = 9001;
/// How long a connection may take until nobody needs it any more.
const FREED_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the servers' roles and variables may take to become known.
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl Env {
    /// A Weir with one worker that knows the given nodes (1 for n1) and opens at most `connections_max` connections
    /// to each of them. It returns when statements can run.
    pub fn narrow_weir(&self, nodes: &[usize], connections_max: i64) -> Result<Weir, String> {
        self.narrow_weir_with(nodes, connections_max, |_| {})
    }

    /// As [`Env::narrow_weir`], with further changes to the configuration.
    pub fn narrow_weir_with(
        &self,
        nodes: &[usize],
        connections_max: i64,
        change: impl FnOnce(&mut WeirConfig),
    ) -> Result<Weir, String> {
        let mut config = WeirConfig::for_servers(&[], self.free_address()?);
        for node in nodes {
            let columns = [("max_connections", connections_max.into())];
            config.server(self.cluster()?.node(*node).addr(), hostgroup::WRITER, &columns);
        }
        config.variable("threads", 1);
        // Every connection stays open when it is idle, also the only one.
        config.variable("free_connections_pct", 100);
        change(&mut config);
        let weir = self.weir_with(&config)?;
        wait_ready(&weir).map_err(|error| format!("{error}\n{}", weir.log()))?;
        wait_variables(&weir, nodes.len().max(1))?;
        Ok(weir)
    }
}

/// Waits until a statement runs.
pub(crate) fn wait_ready(weir: &Weir) -> Result<(), TestkitError> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let tried = Session::open(weir.addr(), "test").and_then(|mut session| session.run("DO 0"));
        match tried {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Waits until Weir has read the session variables of so many servers: then it logs connections in anew, which holds up
/// whoever gets one next.
pub(crate) fn wait_variables(weir: &Weir, servers: usize) -> Result<(), String> {
    let count = || weir.log().matches("session variables have been read").count();
    eventually("session variables have been read", START_TIMEOUT, || Ok(count() >= servers))
        .map_err(|error| format!("{error}\n{}", weir.log()))
}

/// Waits until the session gets the only connection, which may have to be cleaned up first.
pub fn wait_free(session: &mut Session) -> CaseResult {
    let deadline = Instant::now() + FREED_TIMEOUT;
    loop {
        let answer = session.query("DO 0")?;
        if answer.error() != Some(NO_CONNECTION) {
            answer.done()?;
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the connection does not get free: {answer:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
