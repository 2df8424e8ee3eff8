//! What the user wants: the cluster's hostgroups, the servers, and the limits.

use crate::Endpoint;

/// The rules of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The active rows of `mysql_galera_hostgroups`. Servers in other hostgroups keep the role they are given.
    pub galera: Vec<GaleraPolicy>,
    /// Probes in a row without an answer after which a server counts as lost, at least 1.
    pub timeouts_max: u32,
    /// An observation older than this says nothing any more.
    pub observation_age_max_ms: u64,
    /// How long a lost writer is waited for if the cluster goes on without a new view.
    pub unconfirmed_failover_ms: u64,
    /// The same as `timeouts_max` for servers of plain hostgroups.
    pub ping_failures_max: u32,
    /// Failed connections of the data path within a second after which a server is shunned, at least 1.
    pub shun_on_failures: u32,
    /// How long it then rests at least.
    pub shun_recovery_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            galera: Vec::new(),
            timeouts_max: 3,
            observation_age_max_ms: 10_000,
            unconfirmed_failover_ms: 10_000,
            ping_failures_max: 3,
            shun_on_failures: 5,
            shun_recovery_ms: 9_000,
        }
    }
}

/// A Galera cluster: a row of `mysql_galera_hostgroups`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaleraPolicy {
    /// Holds the writers.
    pub writer_hostgroup: u32,
    /// Holds the servers that could write and need not.
    pub backup_writer_hostgroup: u32,
    /// Holds the readers.
    pub reader_hostgroup: u32,
    /// Holds the servers without work.
    pub offline_hostgroup: u32,
    /// The most writers at a time, at least 1.
    pub max_writers: u32,
    /// Whether writers read.
    pub writer_reads: WriterReads,
    /// The longest receive queue of a reader, in transactions; 0: no limit.
    pub max_transactions_behind: u32,
}

impl GaleraPolicy {
    /// Whether one of the four hostgroups is `hostgroup`.
    pub fn owns(&self, hostgroup: u32) -> bool {
        [self.writer_hostgroup, self.backup_writer_hostgroup, self.reader_hostgroup, self.offline_hostgroup]
            .contains(&hostgroup)
    }
}

/// `writer_is_also_reader`. A writer that is the last server left reads in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterReads {
    /// 0: no.
    No,
    /// 1: yes.
    Yes,
    /// 2: no, backup writers do. (They do at 0 too: a healthy node is never idle.)
    OnlyBackups,
}

/// A row of `mysql_servers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The server.
    pub endpoint: Endpoint,
    /// The hostgroup that the user put it into.
    pub hostgroup: u32,
    /// What the user wants of it there.
    pub wish: Wish,
    /// Its share of the hostgroup's work.
    pub weight: u32,
    /// The most connections to it in the hostgroup.
    pub max_connections: u32,
    /// Work goes elsewhere while its pings take longer, in microseconds; 0: no limit.
    pub latency_max_us: u64,
}

/// `mysql_servers.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Takes work.
    Online,
    /// No new work.
    OfflineSoft,
    /// No work, connections closed.
    OfflineHard,
}
