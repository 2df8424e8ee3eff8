//! Names the guards that can be switched off, and the anomalies that must be found then.
//!
//! A guard that gets a switch gets a variant here, its setting in [`Guard`]'s functions, and leaves [`WITHOUT_SWITCH`].

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::nemesis::Fault;
use crate::place::Level;
use crate::workload::Workload;

/// Something that keeps anomalies away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Guard {
    /// Each of them, one after the other.
    All,
    /// Reads wait for nothing: `eventual`, judged as `global`.
    Consistency,
    /// innodb_snapshot_isolation = OFF.
    SnapshotIsolation,
    /// Weir writes on every Galera node (max_writers).
    OneWriter,
    /// innodb_flush_log_at_trx_commit = 0, and all nodes crash at once.
    FlushLog,
}

/// Guards that no setting switches off, and what to look for once one does.
pub(crate) const WITHOUT_SWITCH: [(&str, &str); 4] = [
    ("safe retry (a statement runs again only if it had no effect)", "duplicate"),
    ("epoch of the writer role", "G0, lost"),
    ("replay compares answers by hashes", "G-single, lost-update"),
    ("unknown outcome is told (08007)", "duplicate, lost"),
];

impl Guard {
    /// What is switched off, in words.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Guard::All => "all",
            Guard::Consistency => "consistency level eventual in place of global",
            Guard::SnapshotIsolation => "innodb_snapshot_isolation off",
            Guard::OneWriter => "several writers (max_writers = 3)",
            Guard::FlushLog => "innodb_flush_log_at_trx_commit = 0, and all nodes crash",
        }
    }

    /// Of these classes at least one must be found.
    pub(crate) fn anomalies(self) -> &'static [&'static str] {
        match self {
            Guard::All => &[],
            Guard::Consistency => &[
                "stale-read-realtime",
                "own-write-missed-session",
                "non-monotonic-read-session",
                "not-linearizable",
                "G-single-session",
                "G-single-realtime",
            ],
            Guard::SnapshotIsolation => &["lost-update", "G-single", "wrong-total"],
            Guard::OneWriter => &[
                "stale-read-realtime",
                "G-single-realtime",
                "G-single-session",
                "not-linearizable",
                "lost-update",
            ],
            Guard::FlushLog => &["lost", "diverged"],
        }
    }

    /// At what level the sessions run.
    pub(crate) fn level(self) -> Level {
        match self {
            // With one writer transactions on it need no level.
            Guard::Consistency | Guard::OneWriter => Level::Eventual,
            _ => Level::Global,
        }
    }

    /// What sessions do: what shows the fault.
    pub(crate) fn workloads(self) -> &'static [Workload] {
        match self {
            Guard::FlushLog => &[Workload::ListAppend, Workload::Set],
            Guard::OneWriter => &[Workload::ListAppend, Workload::RwRegister],
            Guard::SnapshotIsolation => &[Workload::ListAppend, Workload::RwRegister, Workload::Bank],
            _ => Workload::value_variants(),
        }
    }

    /// What happens to the servers meanwhile.
    pub(crate) fn faults(self) -> &'static [Fault] {
        match self {
            Guard::FlushLog => &[Fault::All],
            Guard::Consistency => &[Fault::Lag],
            _ => &[],
        }
    }

    /// Quiet time between two faults: a reader that is late has to be late often.
    pub(crate) fn interval(self) -> Option<Duration> {
        match self {
            Guard::Consistency => Some(Duration::from_millis(400)),
            Guard::FlushLog => Some(Duration::from_secs(2)),
            _ => None,
        }
    }

    /// A run takes at least so long: a crash loses what was written last, and sometimes that is nothing.
    pub(crate) fn time_min(self) -> Duration {
        Duration::from_secs(if self == Guard::FlushLog { 30 } else { 1 })
    }

    /// Whether all transactions begin with BEGIN, and so are the writer's.
    pub(crate) fn has_only_begin(self) -> bool {
        self == Guard::OneWriter
    }

    /// What is set on every server before, and what undoes it.
    pub(crate) fn server_setting(self) -> Option<(&'static str, &'static str)> {
        match self {
            Guard::SnapshotIsolation => Some((
                "SET GLOBAL innodb_snapshot_isolation = OFF",
                "SET GLOBAL innodb_snapshot_isolation = ON",
            )),
            Guard::FlushLog => Some((
                "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
                "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            )),
            _ => None,
        }
    }
}
