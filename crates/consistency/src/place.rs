//! Names the servers, levels and ways to read that are measured.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;
use weir_testkit::Account;

/// Servers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Three nodes of MariaDB Galera.
    Galera,
    /// Three members of MySQL Group Replication.
    Group,
    /// A MariaDB source with two replicas, the second of them a second late.
    MariadbReplication,
    /// A MySQL source with two replicas, the second of them a second late.
    MysqlReplication,
}

impl Place {
    /// Whether its replicas are told of a write after it was acknowledged.
    pub(crate) fn is_replication(self) -> bool {
        matches!(self, Place::MariadbReplication | Place::MysqlReplication)
    }
}

/// How fresh reads have to be.
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

/// How a load reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// At a level, with `reads = spread`.
    At(Level),
    /// At `session`, with `reads = fastest`.
    Fastest,
    /// Everything on the writer.
    WriterOnly,
    /// At `eventual`, and every connection to a server has this setting: the servers see to it.
    Servers(Setting),
}

/// A setting of servers that makes each read wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    /// `wsrep_sync_wait = 1`: reads wait.
    SyncWait1,
    /// `wsrep_sync_wait = 3`: UPDATE and DELETE, too.
    SyncWait3,
    /// `group_replication_consistency = 'BEFORE'`.
    Before,
}

impl Setting {
    /// As a statement.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Setting::SyncWait1 => "SET SESSION wsrep_sync_wait = 1",
            Setting::SyncWait3 => "SET SESSION wsrep_sync_wait = 3",
            Setting::Before => "SET SESSION group_replication_consistency = 'BEFORE'",
        }
    }
}

/// Users whose reads are split.
const EVENTUAL: Account = Account { user: "eventual", password: "eventual" };
const SESSION: Account = Account { user: "session", password: "session" };
const GLOBAL: Account = Account { user: "global", password: "global" };
const STRICT: Account = Account { user: "strict", password: "strict" };
/// A rule sends all its statements to the writer.
pub(crate) const WRITER_ONLY: Account = Account { user: "writeronly", password: "writeronly" };

impl Level {
    /// All of them, the cheapest first.
    pub(crate) const ALL: [Level; 4] = [Level::Eventual, Level::Session, Level::Global, Level::Strict];

    /// The user whose sessions have it.
    pub(crate) fn account(self) -> Account {
        match self {
            Level::Eventual => EVENTUAL,
            Level::Session => SESSION,
            Level::Global => GLOBAL,
            Level::Strict => STRICT,
        }
    }

    /// Whether it rules out a session that misses its own writes or goes back in time.
    pub(crate) fn is_monotonic(self) -> bool {
        self >= Level::Session
    }

    /// Whether it rules out a read without what was acknowledged to others.
    pub(crate) fn is_global(self) -> bool {
        self >= Level::Global
    }
}

impl Way {
    /// Who reads so.
    pub(crate) fn account(self) -> Account {
        match self {
            Way::At(level) => level.account(),
            Way::Fastest => SESSION,
            Way::WriterOnly => WRITER_ONLY,
            Way::Servers(_) => EVENTUAL,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(word(self).as_str())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(word(self).as_str())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::At(level) => level.fmt(f),
            Way::Fastest => f.pad("session, fastest"),
            Way::WriterOnly => f.pad("all on the writer"),
            Way::Servers(Setting::SyncWait1) => f.pad("wsrep_sync_wait=1"),
            Way::Servers(Setting::SyncWait3) => f.pad("wsrep_sync_wait=3"),
            Way::Servers(Setting::Before) => f.pad("BEFORE"),
        }
    }
}

/// The word of the command line.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rule_out_more_and_more() {
        let ruled_out = |level: Level| (level.is_monotonic(), level.is_global());
        assert_eq!(ruled_out(Level::Eventual), (false, false));
        assert_eq!(ruled_out(Level::Session), (true, false));
        assert_eq!(ruled_out(Level::Global), (true, true));
        assert_eq!(ruled_out(Level::Strict), (true, true));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(Place::MariadbReplication.to_string(), "mariadb-replication");
        assert_eq!(Way::At(Level::Global).to_string(), "global");
    }
}
