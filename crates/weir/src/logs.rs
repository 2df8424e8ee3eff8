//! Configures the events log, the slow log and the audit log.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use weir_config::Config;
use weir_query_log::{FileSettings, QueryLogs, Settings};

/// How long one who wants to know of faults waits: a disk may hang.
const PATIENCE: Duration = Duration::from_secs(5);

/// The faults of the logs' files, once they are known.
#[derive(Debug)]
pub(crate) struct Pending(Receiver<Vec<String>>);

impl Pending {
    /// What can't be written to. Not for a thread that others wait for.
    pub(crate) fn faults(self) -> Vec<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(faults) => faults,
            Err(RecvTimeoutError::Disconnected) => Vec::new(),
            Err(RecvTimeoutError::Timeout) => {
                vec![format!("the logs' files have not answered within {} s", PATIENCE.as_secs())]
            }
        }
    }
}

/// The logs go by this configuration from now on. What can't be written to is no reason to refuse it: traffic comes
/// first, and a disk may come back. Never waits.
pub(crate) fn apply(query_logs: &QueryLogs, config: &Config) -> Pending {
    let (to, faults) = channel();
    query_logs.take(settings(config), move |faults| {
        for fault in &faults {
            tracing::warn!(fault, "lines are dropped until it can be written");
        }
        // Who wanted to know may have lost patience.
        let _ = to.send(faults);
    });
    Pending(faults)
}

/// Whether two configurations want the same of the logs.
pub(crate) fn are_as_before(new: &Config, old: &Config) -> bool {
    settings(new) == settings(old)
}

/// Goes on in the next files. Never waits.
pub(crate) fn rotate(query_logs: &QueryLogs) {
    query_logs.flush(|faults| match &*faults {
        [] => tracing::info!("logs flushed: the next files are in use"),
        faults => tracing::warn!(?faults, "logs flushed"),
    });
}

fn settings(config: &Config) -> Settings {
    let logs = &config.variables.logs;
    let files = [
        (&logs.eventslog_filename, logs.eventslog_filesize, logs.eventslog_files_max),
        (&logs.slowlog_filename, logs.slowlog_filesize, logs.slowlog_files_max),
        (&logs.auditlog_filename, logs.auditlog_filesize, logs.auditlog_files_max),
    ];
    // An absolute name takes the place of the datadir.
    let file = |(name, bytes_max, files_max): (&Option<std::path::PathBuf>, u64, u32)| {
        name.as_ref().map(|name| FileSettings { base: config.datadir.join(name), bytes_max, files_max })
    };
    Settings { files: files.map(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_t_be_opened_is_told_of_once() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(1);
        let writer = query_logs.start().unwrap();
        let mut config = Config { datadir: dir.path().into(), ..Config::default() };
        config.variables.logs.eventslog_filename = Some("nowhere/events".into());
        let faults = apply(&query_logs, &config).faults();
        assert!(faults.len() == 1 && faults[0].contains("nowhere/events"), "{faults:?}");
        let mut other = config.clone();
        other.variables.max_connections += 1;
        assert!(are_as_before(&other, &config), "the logs are not concerned");
        // Another log is switched on: the first one's fault is no news.
        other.variables.logs.auditlog_filename = Some("nowhere/audit".into());
        assert!(!are_as_before(&other, &config));
        let faults = apply(&query_logs, &other).faults();
        assert!(faults.len() == 1 && faults[0].contains("nowhere/audit"), "{faults:?}");
        writer.stop();
    }
}
