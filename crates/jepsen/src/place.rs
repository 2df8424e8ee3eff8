//! Names the servers, who stands in front of them, levels and isolation.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;
use weir_jepsen::checker::Order;

/// Servers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Three nodes of MariaDB Galera.
    Galera,
    /// Five of them.
    #[value(name = "galera5")]
    Galera5,
    /// Three members of MySQL Group Replication.
    Group,
}

/// Who stands between clients and servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerKind {
    /// Weir, one or two of them.
    Weir,
    /// Nobody: each session is at one of the servers, in turn.
    Direct,
    /// HAProxy with a mysql check: one port for writes with the other nodes as backups, one for reads.
    #[value(name = "haproxy")]
    HaProxy,
}

/// How fresh Weir's reads have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// Whatever a server has.
    Eventual,
    /// The session's own writes, and nothing older than it has seen.
    Session,
    /// Everything acknowledged to anybody through Weir.
    Global,
    /// Everything committed anywhere.
    Strict,
}

impl Level {
    /// The latest order that transactions agree with.
    pub(crate) fn order(self) -> Order {
        match self {
            Level::Eventual => Order::Data,
            Level::Session => Order::Session,
            Level::Global | Level::Strict => Order::RealTime,
        }
    }
}

/// How far transactions are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Isolation {
    /// With innodb_snapshot_isolation = ON: snapshot isolation. MySQL has no such thing.
    RepeatableRead,
    /// As if one came after the other.
    Serializable,
}

impl Isolation {
    /// The one that excludes most of what the servers can exclude together.
    pub(crate) fn usual(place: Place) -> Isolation {
        match place {
            Place::Galera | Place::Galera5 => Isolation::RepeatableRead,
            Place::Group => Isolation::Serializable,
        }
    }

    /// What a session says for it.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Isolation::RepeatableRead => "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        }
    }
}

/// The name on the command line.
fn name(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let word = value.to_possible_value();
    f.pad(word.as_ref().map_or("", |word| word.get_name()))
}

macro_rules! named {
    ($($name:ty),*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                name(self, f)
            }
        })*
    };
}
named!(
    Place,
    PeerKind,
    Level,
    Isolation,
    crate::workload::Workload,
    crate::nemesis::Fault,
    crate::guard::Guard
);
