//! The scenarios, in the order of the report.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// What happens to the servers, or to Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// Planned switchovers, one after the other.
    Switchover,
    /// A reader is drained, stopped and started again.
    Reader,
    /// SIGTERM of the writer.
    WriterTerminated,
    /// SIGKILL of the writer.
    WriterKilled,
}

impl Scenario {
    /// All of them, in the report's order.
    pub(crate) fn all() -> &'static [Scenario] {
        Self::value_variants()
    }

    /// What happens, in a line.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Scenario::Switchover => "planned switchovers under load",
            Scenario::Reader => "drain and stop a reader, start it again",
            Scenario::WriterTerminated => "SIGTERM of the writer",
            Scenario::WriterKilled => "SIGKILL of the writer",
        }
    }

    /// Whether a smoke run has it: the quickest ones.
    pub(crate) fn is_quick(self) -> bool {
        matches!(self, Scenario::Switchover | Scenario::WriterTerminated)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.pad(name.as_ref().map_or("", |name| name.get_name()))
    }
}
