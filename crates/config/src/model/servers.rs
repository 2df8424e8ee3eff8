//! Declares a row of `mysql_servers`. Every value in it has been checked.

/// A row of `mysql_servers`: a server's place in one hostgroup. Key: (hostgroup_id, hostname, port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlServer {
    /// The hostgroup. Required; `hostgroup` is accepted too.
    pub hostgroup_id: u32,
    /// Name or address. Required; `address` is accepted too.
    pub hostname: String,
    /// TCP port, default 3306.
    pub port: u16,
    /// What the user wants of the server. Default ONLINE.
    pub status: ServerStatus,
    /// Share of the hostgroup's work relative to its other servers, default 1. 0: only if all others are 0 too.
    pub weight: u32,
    /// The most connections that Weir opens to the server in this hostgroup, default 1000.
    pub max_connections: u32,
    /// Others are preferred while a ping takes longer, in milliseconds; 0 (default):
    /// `MysqlVariables::default_max_latency_ms`.
    pub max_latency_ms: u32,
    /// Whether connections to it are encrypted, default false; the same in all rows of a server.
    pub use_ssl: bool,
    /// With `mysql_replication_hostgroups` it does not read while it is further behind, in seconds; 0 (default): no limit.
    pub max_replication_lag: u32,
    /// Where a binlog reader of ProxySQL's tells which transactions the server has executed; 0 (default): nowhere.
    pub gtid_port: u16,
    /// For humans.
    pub comment: String,
}

/// The state of a server that the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerStatus {
    /// Takes work.
    Online,
    /// Takes no new work; running transactions finish.
    OfflineSoft,
    /// Its connections are closed at once.
    OfflineHard,
}
