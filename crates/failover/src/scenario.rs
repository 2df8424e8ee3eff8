//! Names the scenarios, in the order of the report.

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
    /// SIGSTOP of the writer, and after a while SIGCONT.
    WriterHung,
    /// The path between one of two Weirs and the writer is gone.
    Path,
    /// The writer and one of two Weirs are cut off from everything else.
    Partition,
    /// The writer falls silent: its network is gone, without a goodbye; later it is back.
    SilentWriter,
    /// The same with a reader.
    SilentReader,
    /// The writer and one more of three nodes are killed at once.
    TwoKilled,
    /// A donor, a desynced node, flow control, read_only, a drained writer.
    DegradedNodes,
    /// Weir is killed, with another one beside it.
    WeirKilled,
    /// A killed node comes back under load.
    Rejoin,
    /// Nodes are killed and come back, in turn.
    Cycles,
    /// Switchovers, drains and OFFLINE_SOFT, ordered in turn from either of two Weirs.
    Maintenance,
    /// A group's planned switchovers.
    GroupSwitchover,
    /// SIGTERM of a group's primary.
    GroupTerminated,
    /// SIGKILL of a group's primary.
    GroupKilled,
    /// Maintenance of a source and its replicas.
    ReplicationMaintenance,
}

/// The servers that a scenario needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Three Galera nodes on loopback addresses.
    Galera,
    /// Three Galera nodes, each in a network namespace.
    Namespaces,
    /// Three members of a MySQL group.
    Group,
    /// Three MariaDB servers with asynchronous replication.
    Replication,
}

impl Place {
    /// In the order in which they are set up; one at a time, for memory's sake.
    pub(crate) const ALL: [Place; 4] = [Place::Galera, Place::Namespaces, Place::Group, Place::Replication];
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
            Scenario::WriterHung => "SIGSTOP of the writer, then SIGCONT",
            Scenario::Path => "the path between one of two Weirs and the writer breaks",
            Scenario::Partition => "the writer is cut off, together with one of two Weirs",
            Scenario::SilentWriter => "the writer falls silent, and comes back",
            Scenario::SilentReader => "a reader falls silent, and comes back",
            Scenario::TwoKilled => "two of three nodes are killed at once, and come back",
            Scenario::DegradedNodes => "donor, desync, flow control, read_only, a drained writer",
            Scenario::WeirKilled => "Weir is killed, a second one beside it",
            Scenario::Rejoin => "a killed node comes back under load",
            Scenario::Cycles => "nodes are killed and come back, in turn",
            Scenario::Maintenance => "switchovers, drains and OFFLINE_SOFT by either of two Weirs",
            Scenario::GroupSwitchover => "Group Replication: planned switchovers",
            Scenario::GroupTerminated => "Group Replication: SIGTERM of the primary",
            Scenario::GroupKilled => "Group Replication: SIGKILL of the primary",
            Scenario::ReplicationMaintenance => {
                "asynchronous replication: switchovers, drains and OFFLINE_SOFT by either of two Weirs"
            }
        }
    }

    /// The servers that it needs.
    pub(crate) fn place(self) -> Place {
        match self {
            Scenario::Path | Scenario::Partition | Scenario::SilentWriter | Scenario::SilentReader => {
                Place::Namespaces
            }
            Scenario::GroupSwitchover | Scenario::GroupTerminated | Scenario::GroupKilled => Place::Group,
            Scenario::ReplicationMaintenance => Place::Replication,
            _ => Place::Galera,
        }
    }

    /// Whether a smoke run has it: the quickest ones, and one that needs network namespaces.
    pub(crate) fn is_quick(self) -> bool {
        matches!(self, Scenario::Switchover | Scenario::WriterTerminated | Scenario::SilentWriter)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.pad(name.as_ref().map_or("", |name| name.get_name()))
    }
}
