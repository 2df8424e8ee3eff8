//! The events log, the slow log and the audit log, as the configuration wants them.

use weir_config::Config;
use weir_journal::{FileSettings, Journal, Settings};

/// The journal goes by this configuration from now on. What can't be written to is no reason to refuse it: traffic comes
/// first, and a disk may come back.
pub(crate) fn apply(journal: &Journal, config: &Config) -> Vec<String> {
    let faults = journal.take(settings(config));
    for fault in &faults {
        tracing::warn!(fault, "lines are left out until it can be written");
    }
    faults
}

/// Whether two configurations want the same of the logs.
pub(crate) fn are_as_before(new: &Config, old: &Config) -> bool {
    settings(new) == settings(old)
}

/// Goes on in the next files.
pub(crate) fn rotate(journal: &Journal) {
    match &*journal.flush() {
        [] => tracing::info!("logs flushed: the next files are in use"),
        faults => tracing::warn!(?faults, "logs flushed"),
    }
}

fn settings(config: &Config) -> Settings {
    let logs = &config.variables.logs;
    let files = [
        (&logs.eventslog_filename, logs.eventslog_filesize),
        (&logs.slowlog_filename, logs.slowlog_filesize),
        (&logs.auditlog_filename, logs.auditlog_filesize),
    ];
    // An absolute name takes the place of the datadir.
    let file = |(name, bytes_max): (&Option<std::path::PathBuf>, u64)| {
        name.as_ref().map(|name| FileSettings { base: config.datadir.join(name), bytes_max })
    };
    Settings { files: files.map(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_t_be_opened_is_told_of_once() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(1);
        let writer = journal.start().unwrap();
        let mut config = Config { datadir: dir.path().into(), ..Config::default() };
        config.variables.logs.eventslog_filename = Some("nowhere/events".into());
        let faults = apply(&journal, &config);
        assert!(faults.len() == 1 && faults[0].contains("nowhere/events"), "{faults:?}");
        let mut other = config.clone();
        other.variables.max_connections += 1;
        assert!(are_as_before(&other, &config), "the logs are not concerned");
        // Another log is switched on: the first one's fault is no news.
        other.variables.logs.auditlog_filename = Some("nowhere/audit".into());
        assert!(!are_as_before(&other, &config));
        let faults = apply(&journal, &other);
        assert!(faults.len() == 1 && faults[0].contains("nowhere/audit"), "{faults:?}");
        writer.stop();
    }
}
