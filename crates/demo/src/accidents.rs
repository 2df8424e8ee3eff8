//! Plays the script: a reader is stopped and comes back, then the writer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::{Error, Stop};
use weir_testkit::{Galera, TestkitError};

use crate::servers::ServerWatch;
use crate::stats::{Pauses, Stats};

/// Quiet time before the first accident and after each.
const QUIET: Duration = Duration::from_secs(3);

/// One thing that happened to a node, and what the load noticed of it until the next.
#[derive(Debug, Clone)]
pub(crate) struct Accident {
    /// Since the load's start.
    pub(crate) at: Duration,
    /// As in "n3 (reader) stopped with SIGTERM".
    pub(crate) what: String,
    pub(crate) pauses: Pauses,
    pub(crate) errors: u64,
}

/// What has happened so far.
#[derive(Default)]
pub(crate) struct Accidents {
    happened: Mutex<Vec<Accident>>,
}

impl Accidents {
    /// All so far, in order.
    pub(crate) fn so_far(&self) -> Vec<Accident> {
        self.lock().clone()
    }

    /// Plays the whole script; returns early when `stop` is raised.
    pub(crate) fn play(
        &self,
        cluster: &Galera,
        watch: &ServerWatch,
        stats: &Stats,
        stop: &Stop,
    ) -> Result<(), Error> {
        if stop.sleep(QUIET).is_err() {
            return Ok(());
        }
        for role in ["reader", "writer"] {
            let index = if role == "reader" { watch.reader() } else { watch.writer() };
            let node = cluster.node(index);
            self.observe(stats, stop, format!("{} ({role}) stopped with SIGTERM", node.name()), || {
                node.stop()
            })?;
            let back = format!("{} started again, joins the cluster", node.name());
            self.observe(stats, stop, back, || cluster.start_node(index))?;
            if stop.is_raised() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lets something happen, and keeps the record of it up to date for a while.
    fn observe(
        &self,
        stats: &Stats,
        stop: &Stop,
        what: String,
        happen: impl FnOnce() -> Result<(), TestkitError> + Send,
    ) -> Result<(), Error> {
        let errors_before = stats.totals().errors;
        stats.take_pauses();
        self.lock().push(Accident { at: stats.elapsed(), what, pauses: Pauses::default(), errors: 0 });
        let update = || {
            let pauses = stats.take_pauses();
            if let Some(accident) = self.lock().last_mut() {
                accident.pauses.reads = accident.pauses.reads.max(pauses.reads);
                accident.pauses.writes = accident.pauses.writes.max(pauses.writes);
                accident.errors = stats.totals().errors - errors_before;
            }
        };
        thread::scope(|scope| {
            let happening = scope.spawn(happen);
            while !happening.is_finished() {
                thread::sleep(Duration::from_millis(50));
                update();
            }
            happening.join().unwrap_or_else(|_| Err(TestkitError::Options("an accident panicked".to_owned())))
        })?;
        let end = Instant::now() + QUIET;
        while Instant::now() < end && stop.sleep(Duration::from_millis(100)).is_ok() {
            update();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Accident>> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
