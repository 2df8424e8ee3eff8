//! Declares `mysql_galera_hostgroups`, `mysql_group_replication_hostgroups` and `mysql_replication_hostgroups`: which hostgroups
//! belong together, and who says which of their servers writes.

use weir_topology::ReadOnlyCheck;

pub(crate) const GALERA: &str = "mysql_galera_hostgroups";
pub(crate) const GROUP_REPLICATION: &str = "mysql_group_replication_hostgroups";
pub(crate) const REPLICATION: &str = "mysql_replication_hostgroups";

/// A row of `mysql_galera_hostgroups` or `mysql_group_replication_hostgroups`: a cluster. Key: writer_hostgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterHostgroup {
    /// Where writes go. Required.
    pub writer_hostgroup: u32,
    /// Holds the servers that could write and are more than `max_writers`. Required.
    pub backup_writer_hostgroup: u32,
    /// Where reads go. Required.
    pub reader_hostgroup: u32,
    /// Holds the servers that must take no work. Required.
    pub offline_hostgroup: u32,
    /// Whether the row counts, default true.
    pub active: bool,
    /// The most servers that may write at a time, default 1.
    pub max_writers: u32,
    /// Whether writers read, default no.
    pub writer_is_also_reader: WriterIsAlsoReader,
    /// A reader that is further behind leaves, in transactions; 0 (default): no limit.
    pub max_transactions_behind: u32,
    /// For humans.
    pub comment: String,
}

impl ClusterHostgroup {
    /// The four hostgroups with their column names.
    pub fn hostgroups(&self) -> [(&'static str, u32); 4] {
        [
            ("writer_hostgroup", self.writer_hostgroup),
            ("backup_writer_hostgroup", self.backup_writer_hostgroup),
            ("reader_hostgroup", self.reader_hostgroup),
            ("offline_hostgroup", self.offline_hostgroup),
        ]
    }
}

/// The servers of a cluster that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriterIsAlsoReader {
    /// 0: every healthy server but the writer, unless that would leave none.
    No,
    /// 1: every healthy server.
    Yes,
    /// 2: backup writers read, writers do not.
    BackupWriters,
}

/// A row of `mysql_replication_hostgroups`: servers with asynchronous replication. Key: writer_hostgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationHostgroup {
    /// Where writes go. Required.
    pub writer_hostgroup: u32,
    /// Where reads go. Required.
    pub reader_hostgroup: u32,
    /// What makes a server a reader, default `read_only`.
    pub check_type: ReadOnlyCheck,
    /// For humans.
    pub comment: String,
}

impl ReplicationHostgroup {
    /// The two hostgroups with their column names.
    pub fn hostgroups(&self) -> [(&'static str, u32); 2] {
        [("writer_hostgroup", self.writer_hostgroup), ("reader_hostgroup", self.reader_hostgroup)]
    }
}

/// The hostgroups of an active cluster, whatever decides its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The table that it is from.
    pub table: &'static str,
    /// Where writes go.
    pub writer_hostgroup: u32,
    /// Where reads go.
    pub reader_hostgroup: u32,
    /// Holds the servers that could write and need not; replication has none.
    pub backup_writer_hostgroup: Option<u32>,
    /// Holds the servers that take no work; with replication they stay among the readers.
    pub offline_hostgroup: Option<u32>,
}

impl Cluster {
    /// All its hostgroups.
    pub fn hostgroups(self) -> impl Iterator<Item = u32> {
        let always = [self.writer_hostgroup, self.reader_hostgroup];
        always.into_iter().chain(self.backup_writer_hostgroup).chain(self.offline_hostgroup)
    }
}
