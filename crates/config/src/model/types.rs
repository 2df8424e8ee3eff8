//! Declares the rows of the configuration as types. Every value in them has been checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use weir_routing::{Consistency, FastRoute, QueryRule, Rules};
use weir_topology::Endpoint;

use crate::model::admin_variables::AdminVariables;
use crate::model::clusters::{ClusterHostgroup, ReplicationHostgroup};
use crate::model::hostgroups::{HostgroupAttributes, WeirHostgroup};
use crate::model::listeners::Listener;
use crate::model::mysql_variables::MysqlVariables;
use crate::model::partial_read::WarnedRows;
use crate::model::peers::{Job, ProxysqlServer};
use crate::model::server_tls::ServerSslParams;
use crate::model::topology_table::WeirTopology;
use crate::report::place::Keyed;
use crate::value::password::{Password, Secret};
use crate::value::rows::TableRow;

/// A whole, checked configuration. A clone shares the tables that may be very large.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where Weir keeps what it must remember, such as its self-signed certificate. Default `/var/lib/weir`.
    pub datadir: PathBuf,
    /// Rows of `[[mysql_servers]]` in file order.
    pub servers: Vec<MysqlServer>,
    /// Rows of `[[mysql_servers_ssl_params]]` in file order.
    pub servers_ssl_params: Vec<ServerSslParams>,
    /// Rows of `[[mysql_users]]` in file order.
    pub users: Arc<Vec<Arc<MysqlUser>>>,
    /// Rows of `[[mysql_galera_hostgroups]]` in file order, inactive ones too.
    pub galera_hostgroups: Vec<ClusterHostgroup>,
    /// Rows of `[[mysql_group_replication_hostgroups]]` in file order, inactive ones too.
    pub group_replication_hostgroups: Vec<ClusterHostgroup>,
    /// Rows of `[[mysql_replication_hostgroups]]` in file order.
    pub replication_hostgroups: Vec<ReplicationHostgroup>,
    /// Rows of `[[weir_listeners]]` in file order.
    pub weir_listeners: Vec<Listener>,
    /// Rows of `[[mysql_hostgroup_attributes]]` in file order.
    pub hostgroup_attributes: Vec<HostgroupAttributes>,
    /// Rows of `[[weir_hostgroups]]` in file order.
    pub weir_hostgroups: Vec<WeirHostgroup>,
    /// Rows of `[[weir_topology]]` in file order.
    pub weir_topology: Vec<WeirTopology>,
    /// Rows of `[[mysql_query_rules]]` in file order, inactive ones too.
    pub query_rules: Arc<Vec<Arc<QueryRule>>>,
    /// Rows of `[[mysql_query_rules_fast_routing]]` in file order.
    pub fast_routing: Arc<Vec<FastRoute>>,
    /// What the rows of these two tables mean, compiled.
    pub rules: Arc<Rules>,
    /// Rows of `[[scheduler]]` in file order, inactive ones too.
    pub scheduler: Vec<Job>,
    /// Rows of `[[proxysql_servers]]` in file order.
    pub proxysql_servers: Vec<ProxysqlServer>,
    /// `[mysql_variables]`.
    pub variables: MysqlVariables,
    /// `[admin_variables]`.
    pub admin: AdminVariables,
    /// Of rows of a database: which of them are to be read each time.
    pub told: WarnedRows,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            datadir: PathBuf::from("/var/lib/weir"),
            servers: Vec::new(),
            servers_ssl_params: Vec::new(),
            users: Arc::default(),
            galera_hostgroups: Vec::new(),
            group_replication_hostgroups: Vec::new(),
            replication_hostgroups: Vec::new(),
            weir_listeners: Vec::new(),
            hostgroup_attributes: Vec::new(),
            weir_hostgroups: Vec::new(),
            weir_topology: Vec::new(),
            query_rules: Arc::default(),
            fast_routing: Arc::default(),
            told: WarnedRows::default(),
            rules: Arc::default(),
            scheduler: Vec::new(),
            proxysql_servers: Vec::new(),
            variables: MysqlVariables::default(),
            admin: AdminVariables::default(),
        }
    }
}

impl Config {
    /// The hostgroups in which a server may serve: those of its rows, and of its clusters.
    pub fn hostgroups_of(&self, endpoint: &Endpoint) -> BTreeSet<u32> {
        let rows = self.servers.iter().filter(|row| row.endpoint() == *endpoint);
        let mut ids: BTreeSet<u32> = rows.map(|row| row.hostgroup_id).collect();
        for cluster in self.clusters() {
            if cluster.hostgroups().any(|id| ids.contains(&id)) {
                ids.extend(cluster.hostgroups());
            }
        }
        ids
    }

    /// [`Config::hostgroups_of`] for all servers at once, in time linear in their number.
    pub fn hostgroups_by_server(&self) -> BTreeMap<Endpoint, BTreeSet<u32>> {
        let mut clusters: HashMap<u32, Vec<u32>> = HashMap::new();
        for cluster in self.clusters() {
            for id in cluster.hostgroups() {
                clusters.entry(id).or_default().extend(cluster.hostgroups());
            }
        }
        let mut servers: BTreeMap<Endpoint, BTreeSet<u32>> = BTreeMap::new();
        for row in &self.servers {
            let ids = servers.entry(row.endpoint()).or_default();
            ids.insert(row.hostgroup_id);
            ids.extend(clusters.get(&row.hostgroup_id).into_iter().flatten());
        }
        servers
    }

    /// The row of `mysql_hostgroup_attributes` for a hostgroup.
    pub fn attributes_of(&self, hostgroup_id: u32) -> Option<&HostgroupAttributes> {
        self.hostgroup_attributes.iter().find(|row| row.hostgroup_id == hostgroup_id)
    }
}

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

/// A row of `mysql_users`: an account for clients and for Weir's connections to servers. Key: username.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlUser {
    /// Required.
    pub username: String,
    /// Default: empty.
    pub password: Password,
    /// Whether the account may log in, default true.
    pub active: bool,
    /// Whether its clients must use TLS, default false.
    pub use_ssl: bool,
    /// Where its statements go without a rule, default 0.
    pub default_hostgroup: u32,
    /// The schema of a client that names none; none: `MysqlVariables::default_schema`.
    pub default_schema: Option<String>,
    /// Whether its sessions stay in the schema that their login has given them, default false.
    pub schema_locked: bool,
    /// Whether each of its sessions keeps one connection to a server of its hostgroup, as at a listener with mode
    /// primary, default false.
    pub fast_forward: bool,
    /// Whether a transaction keeps all of its statements where it began, whatever the rules say, default true.
    pub transaction_persistent: bool,
    /// `default-transaction_isolation` of its attributes: the isolation level with which its sessions begin.
    pub default_isolation: Option<IsolationLevel>,
    /// `weir_consistency` of its attributes: how fresh the reads of its sessions have to be.
    pub consistency: Option<Consistency>,
    /// `additional_password` of its attributes: clients may log in with this one, too.
    pub additional_password: Option<Secret>,
    /// The most clients of this account at a time, default 10000.
    pub max_connections: u32,
    /// For humans.
    pub comment: String,
}

/// The isolation of transactions from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Sees what others have not committed.
    ReadUncommitted,
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed when the first began; the servers' own default.
    RepeatableRead,
    /// Plain reads lock, too.
    Serializable,
}

impl IsolationLevel {
    /// As servers show it in `@@transaction_isolation`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ-UNCOMMITTED",
            Self::ReadCommitted => "READ-COMMITTED",
            Self::RepeatableRead => "REPEATABLE-READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// The certificate and behind it the intermediate ones.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Keyed for MysqlUser {
    fn table(&self) -> &'static str {
        "mysql_users"
    }

    fn key(&self) -> TableRow {
        [("username".into(), self.username.clone().into())].into()
    }
}

impl Keyed for QueryRule {
    fn table(&self) -> &'static str {
        "mysql_query_rules"
    }

    fn key(&self) -> TableRow {
        [("rule_id".into(), i64::from(self.rule_id).into())].into()
    }
}

impl Keyed for FastRoute {
    fn table(&self) -> &'static str {
        "mysql_query_rules_fast_routing"
    }

    fn key(&self) -> TableRow {
        let Self { username, schemaname, flag_in, .. } = self;
        [
            ("username".into(), username.clone().into()),
            ("schemaname".into(), schemaname.clone().into()),
            ("flagIN".into(), i64::from(*flag_in).into()),
        ]
        .into()
    }
}
