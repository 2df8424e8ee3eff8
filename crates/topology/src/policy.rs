//! Defines the user's policy: the cluster's hostgroups, the servers, and the limits.

use crate::{Endpoint, EpochPolicy};

/// The rules of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The active rows of `mysql_galera_hostgroups`. Servers in hostgroups without rules keep the role they are given.
    pub galera: Vec<ClusterPolicy>,
    /// The active rows of `mysql_group_replication_hostgroups`.
    pub group_replication: Vec<ClusterPolicy>,
    /// The rows of `mysql_replication_hostgroups`.
    pub replication: Vec<ReplicationPolicy>,
    /// An observation older than this says nothing any more.
    pub observation_age_max_ms: u64,
    /// Probes in a row without an answer after which a server of a plain hostgroup counts as lost, at least 1.
    pub ping_failures_max: u32,
    /// Failed connections of the data path within a second after which a server is shunned, at least 1.
    pub shun_on_failures: u32,
    /// How long it then rests at least.
    pub shun_recovery_ms: u64,
    /// Planned changes of writers, of each cluster one at most.
    pub switches: Vec<Switch>,
    /// How this Weir agrees with others in front of the same Galera clusters; none: it goes by facts alone.
    pub epoch: Option<EpochPolicy>,
    /// Clusters, by writer hostgroup, in which the epoch can't be read or written: facts alone must do there, and other
    /// Weirs hear nothing of what this one plans.
    pub by_facts: Vec<u32>,
    /// Switchovers of other Weirs for which this one holds, with none of its sessions writing any more.
    pub cleared: Vec<Cleared>,
}

/// None of this Weir's sessions may write to a cluster's writer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The version of the epoch row that announces the switchover.
    pub version: u64,
}

/// A planned change of the writer where each server could be it, with Galera or in a group with several primaries: this
/// one comes before the present writer, if it can write. Without an epoch one decision does it. With an epoch it stays until the row names the node, or it is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The writer whose sessions have ended, or are to. If it is another one by now, the order has lapsed: somebody else
    /// has moved the role, and nobody asked for the present writer to be left.
    pub from: Endpoint,
    /// The next writer.
    pub to: Endpoint,
    /// How far it has come.
    pub step: SwitchStep,
    /// The version of the newest epoch row that was known when it was ordered, 0 without one. What that row announces
    /// belongs to an earlier order, whose end may be on its way to the table.
    pub ordered_at: u64,
}

/// The steps of a planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// Other Weirs are asked to hold. Without any, and without an epoch, nothing happens.
    Ask,
    /// The role moves, once no other Weir may write.
    Move,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            galera: Vec::new(),
            group_replication: Vec::new(),
            replication: Vec::new(),
            observation_age_max_ms: 10_000,
            ping_failures_max: 3,
            shun_on_failures: 5,
            shun_recovery_ms: 9_000,
            switches: Vec::new(),
            epoch: None,
            by_facts: Vec::new(),
            cleared: Vec::new(),
        }
    }
}

impl Policy {
    /// How this Weir takes part in the epoch of a Galera cluster; none: it goes by facts alone there.
    pub(crate) fn epoch_of(&self, cluster: &ClusterPolicy) -> Option<&EpochPolicy> {
        let is_in_force = cluster.has_epoch() && !self.by_facts.contains(&cluster.writer_hostgroup);
        self.epoch.as_ref().filter(|_| is_in_force)
    }

    /// How this Weir agrees with others in front of servers with replication; none: it does not. No write needs a lease
    /// there, so there is no long one that others would have to wait for.
    pub(crate) fn epoch_of_replicas(&self, writer_hostgroup: u32) -> Option<EpochPolicy> {
        let policy = self.epoch.clone().filter(|_| !self.by_facts.contains(&writer_hostgroup))?;
        Some(EpochPolicy { lone_lease_ms: policy.lease_ms, ..policy })
    }

    /// The planned change of a cluster's writer.
    pub(crate) fn switch_of(&self, writer_hostgroup: u32) -> Option<&Switch> {
        self.switches.iter().find(|switch| switch.writer_hostgroup == writer_hostgroup)
    }

    /// Whether a hostgroup belongs to a cluster, by whose rules its servers get their roles.
    pub fn owns(&self, hostgroup: u32) -> bool {
        self.galera.iter().chain(&self.group_replication).any(|row| row.owns(hostgroup))
            || self.replication.iter().any(|row| row.owns(hostgroup))
    }
}

/// A row of `mysql_galera_hostgroups` or `mysql_group_replication_hostgroups`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPolicy {
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
    /// How far a reader may be behind, in transactions; 0: no limit. Galera: its receive queue; Group Replication: what
    /// it has to certify and to apply.
    pub max_transactions_behind: u32,
    /// Probes in a row without an answer after which a server counts as lost, at least 1.
    pub timeouts_max: u32,
    /// What else decides between its servers.
    pub choices: Choices,
}

/// The preferences between the servers of a cluster, beyond ProxySQL's columns: a row of `weir_topology`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// When a better writer takes the role back. Galera only; a group chooses its primary itself.
    pub failback: Failback,
    /// For so long a better writer must have been able to write before.
    pub uptime_min_ms: u64,
    /// Nodes of this network segment (`gmcast.segment`) read, those of others only while fewer than `readers_min` do.
    pub reader_segment: Option<u8>,
    /// While fewer servers read, those read too that should not: of other segments, then the writer, then those that
    /// are behind. At least 1.
    pub readers_min: u32,
    /// Whether donors read.
    pub donor_reads: DonorReads,
    /// How long a lost writer is waited for if a Galera cluster goes on without a new view.
    pub unconfirmed_failover_ms: u64,
    /// Whether writes need the epoch. Galera only.
    pub epoch: EpochUse,
}

/// Whether writes need the epoch on which several Weirs agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EpochUse {
    /// From the first time on that this Weir has read it. Where its account has never been allowed to, facts must do.
    #[default]
    Auto,
    /// Always.
    Required,
    /// Never: where it can't be read, facts must do, whatever other Weirs do.
    Optional,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            failback: Failback::default(),
            uptime_min_ms: 60_000,
            reader_segment: None,
            readers_min: 1,
            donor_reads: DonorReads::default(),
            unconfirmed_failover_ms: 10_000,
            epoch: EpochUse::default(),
        }
    }
}

/// When a node that comes before the writer by weight takes the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Failback {
    /// When the writer is lost or leaves.
    #[default]
    Never,
    /// By a switchover, in which statements wait and nothing is lost.
    Drained,
    /// At once: transactions of the present writer end there while the next ones begin elsewhere.
    Immediate,
}

/// Whether a node that gives a state transfer, and rejects no queries, reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DonorReads {
    /// While its receive queue is short.
    #[default]
    WhileQueueIsShort,
    /// Only while fewer than `readers_min` others do.
    AsLastResort,
}

impl ClusterPolicy {
    /// Whether one of the four hostgroups is `hostgroup`.
    pub fn owns(&self, hostgroup: u32) -> bool {
        self.hostgroups().contains(&hostgroup)
    }

    /// Whether several Weirs can agree on its writer: the epoch has one.
    pub fn has_epoch(&self) -> bool {
        self.max_writers == 1
    }

    /// The four hostgroups, the one with the best role first.
    pub(crate) fn hostgroups(&self) -> [u32; 4] {
        [self.writer_hostgroup, self.backup_writer_hostgroup, self.reader_hostgroup, self.offline_hostgroup]
    }
}

/// Servers with asynchronous replication between them: a row of `mysql_replication_hostgroups`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPolicy {
    /// Holds the servers that are not read_only.
    pub writer_hostgroup: u32,
    /// Holds the others.
    pub reader_hostgroup: u32,
    /// What makes a server read_only.
    pub check: ReadOnlyCheck,
    /// Whether writers read (`mysql-monitor_writer_is_also_reader`). A writer that is the only one left to read does in
    /// any case.
    pub writer_reads: bool,
    /// How far behind a replica counts as whose replication does not run (`mysql-monitor_slave_lag_when_null`).
    pub lag_when_stopped_s: u32,
    /// Probes in a row without an answer after which a server counts as lost, at least 1.
    pub timeouts_max: u32,
    /// `auto_failover`: a lost writer is replaced after all conditions have held for so long; none: never, and whoever
    /// sets read_only decides alone. It is to be longer than probes take to find a server silent, and two leases; what was
    /// seen counts for one lease less.
    pub failover_after_ms: Option<u64>,
}

impl ReplicationPolicy {
    /// With `auto_failover` no write is sent longer than this after the last decision, in milliseconds: a Weir that was
    /// stopped does not know what others have done meanwhile.
    pub const LEASE_MS: u64 = 1000;

    /// Whether one of the two hostgroups is `hostgroup`.
    pub fn owns(&self, hostgroup: u32) -> bool {
        self.hostgroups().contains(&hostgroup)
    }

    /// The two hostgroups, the one with the best role first.
    pub(crate) fn hostgroups(&self) -> [u32; 2] {
        [self.writer_hostgroup, self.reader_hostgroup]
    }
}

/// `check_type` of `mysql_replication_hostgroups`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadOnlyCheck {
    /// `read_only`
    #[default]
    ReadOnly,
    /// `innodb_read_only`
    InnodbReadOnly,
    /// `super_read_only`, which MariaDB does not have.
    SuperReadOnly,
    /// `read_only&innodb_read_only`: both.
    Both,
    /// `read_only|innodb_read_only`: at least one.
    Either,
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
    /// Share of the hostgroup's statements.
    pub weight: u32,
    /// The most connections to it in the hostgroup.
    pub max_connections: u32,
    /// Work goes elsewhere while its pings take longer, in microseconds; 0: no limit.
    pub latency_max_us: u64,
    /// `max_replication_lag`: with plain replication it does not read while it is further behind, in seconds; 0: no
    /// limit.
    pub lag_max_s: u32,
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
