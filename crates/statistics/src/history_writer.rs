//! Writes `stats_history`, on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_config::AdminVariables;

use crate::history::{Figures, History, Subject};
use crate::process;
use crate::statistics::Statistics;
use crate::stats_collector::clock;
use crate::tables::{self, Rows};

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_secs(1);
/// After a failure, such as a full disk, nothing is tried for so long.
const PAUSE: Duration = Duration::from_secs(10);
/// Rows of one snapshot of digests; those that took longest come first.
const DIGESTS_MAX: usize = 100_000;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct HistoryWriter {
    /// Closed by dropping it.
    _stop: Sender<()>,
}

impl HistoryWriter {
    /// Begins to keep rows in the file at `path`. Failures are logged, and hold nothing up.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(path: &Path, statistics: Statistics) -> std::io::Result<Self> {
        let path = path.to_owned();
        let (stop, stopped) = channel();
        thread::Builder::new().name("history".into()).spawn(move || {
            let mut history_thread =
                HistoryThread { path, history: None, last: Vec::new(), digests: Unwritten::default() };
            let (mut pause, mut is_failing) = (Duration::ZERO, false);
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let kept = history_thread.write(&statistics);
                let (has_failed, path) =
                    (std::mem::replace(&mut is_failing, kept.is_err()), history_thread.path.display());
                pause = match kept {
                    Ok(()) => {
                        if has_failed {
                            tracing::info!(%path, "statistics are saved again");
                        }
                        TICK
                    }
                    Err(error) => {
                        if !has_failed {
                            tracing::warn!(%path, %error, "statistics can't be saved");
                        }
                        history_thread.history = None;
                        PAUSE
                    }
                };
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

struct HistoryThread {
    path: PathBuf,
    history: Option<History>,
    /// When rows of each subject were kept last.
    last: Vec<(Subject, Instant)>,
    digests: Unwritten,
}

/// Digests that have begun again and are not on the disk yet, with when that was: they are nowhere else any more. With a
/// full disk they wait, and no others begin again meanwhile.
#[derive(Default)]
pub(crate) struct Unwritten(pub Option<(u64, Rows)>);

impl Unwritten {
    /// # Errors
    /// If the file can't be written; then they are still here.
    pub(crate) fn write(&mut self, history: &mut History) -> Result<(), rusqlite::Error> {
        if let Some((at_s, rows)) = &self.0 {
            history.record_digests(*at_s, rows)?;
            self.0 = None;
        }
        Ok(())
    }
}

impl HistoryThread {
    /// Keeps what is due.
    fn write(&mut self, statistics: &Statistics) -> Result<(), rusqlite::Error> {
        if !self.path.exists() {
            return Ok(()); // nobody has a database
        }
        let config = statistics.state.config();
        let history = match &mut self.history {
            Some(history) => history,
            None => self.history.insert(History::open(&self.path)?),
        };
        self.digests.write(history)?;
        for subject in Subject::ALL {
            let Some(interval) = interval(&config.admin, subject) else { continue };
            let last = self.last.iter_mut().find(|(known, _)| *known == subject);
            match last {
                // The first row comes when the first interval is over.
                None => self.last.push((subject, Instant::now())),
                Some((_, at)) if at.elapsed() >= interval => {
                    *at = Instant::now();
                    let now_s = clock().unix_s;
                    if subject != Subject::Digests {
                        history.record(subject, now_s, statistics)?;
                        continue;
                    }
                    let rows = tables::hottest_digests_and_reset(statistics, DIGESTS_MAX);
                    self.digests = Unwritten(Some((now_s, rows)));
                    self.digests.write(history)?;
                }
                Some(_) => {}
            }
        }
        history.tidy(clock().unix_s)
    }
}

/// How often rows of a subject are kept; none: never.
fn interval(admin: &AdminVariables, subject: Subject) -> Option<Duration> {
    let interval = match subject {
        Subject::Connections => admin.stats_mysql_connections,
        Subject::ConnectionPool => admin.stats_mysql_connection_pool,
        Subject::Cpu => admin.stats_system_cpu,
        Subject::Memory => admin.stats_system_memory,
        Subject::Digests => admin.stats_mysql_query_digest_to_disk,
    };
    (!interval.is_zero()).then_some(interval)
}

impl Figures for Statistics {
    fn global(&self) -> Vec<(&'static str, u64)> {
        tables::global_values(self)
    }

    fn connection_pool(&self) -> Rows {
        tables::connection_pool(self)
    }

    fn cpu_ticks(&self) -> (u64, u64) {
        let time = process::cpu_time();
        (time.user_ticks, time.system_ticks)
    }

    fn memory_bytes(&self) -> (u64, u64, u64) {
        let memory = process::memory();
        (memory.data_bytes, memory.resident_bytes, memory.virtual_bytes)
    }
}
