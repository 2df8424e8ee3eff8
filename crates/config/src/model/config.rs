//! Declares the whole configuration, and answers what follows from several of its rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use weir_routing::{FastRoute, QueryRule, Rules};
use weir_topology::Endpoint;

use crate::model::admin_variables::AdminVariables;
use crate::model::clusters::{
    Cluster, ClusterHostgroup, GALERA, GROUP_REPLICATION, REPLICATION, ReplicationHostgroup,
};
use crate::model::hostgroups::{HostgroupAttributes, WeirHostgroup};
use crate::model::listeners::Listener;
use crate::model::mysql_variables::MysqlVariables;
use crate::model::peers::{Job, ProxysqlServer};
use crate::model::server_tls::{ServerSslParams, ServerTlsParams};
use crate::model::servers::MysqlServer;
use crate::model::topology_table::WeirTopology;
use crate::model::users::MysqlUser;

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

    /// The active clusters, table by table.
    pub fn clusters(&self) -> impl Iterator<Item = Cluster> {
        let cluster = |table: &'static str| {
            move |row: &ClusterHostgroup| Cluster {
                table,
                writer_hostgroup: row.writer_hostgroup,
                reader_hostgroup: row.reader_hostgroup,
                backup_writer_hostgroup: Some(row.backup_writer_hostgroup),
                offline_hostgroup: Some(row.offline_hostgroup),
            }
        };
        let replication = |row: &ReplicationHostgroup| Cluster {
            table: REPLICATION,
            writer_hostgroup: row.writer_hostgroup,
            reader_hostgroup: row.reader_hostgroup,
            backup_writer_hostgroup: None,
            offline_hostgroup: None,
        };
        let galera = self.galera_hostgroups.iter().filter(|row| row.active).map(cluster(GALERA));
        let groups = self.group_replication_hostgroups.iter().filter(|row| row.active);
        let groups = groups.map(cluster(GROUP_REPLICATION));
        galera.chain(groups).chain(self.replication_hostgroups.iter().map(replication))
    }

    /// How the cluster with this writer hostgroup is looked after.
    pub fn topology_of(&self, writer_hostgroup: u32) -> WeirTopology {
        let row = self.weir_topology.iter().find(|row| row.writer_hostgroup == writer_hostgroup);
        row.cloned().unwrap_or_else(|| WeirTopology::of(writer_hostgroup))
    }

    /// All listeners: those of `interfaces` first.
    pub fn listeners(&self) -> Vec<Listener> {
        let interfaces = self.variables.interfaces.iter().cloned().map(Listener::split);
        interfaces.chain(self.weir_listeners.iter().cloned()).collect()
    }

    /// How connections to a server are encrypted; none if they are not.
    pub fn server_tls(&self, endpoint: &Endpoint) -> Option<ServerTlsParams> {
        self.servers.iter().find(|row| row.use_ssl && row.endpoint() == *endpoint)?;
        let own = self.servers_ssl_params.iter().find(|row| row.endpoint == *endpoint);
        let variables = &self.variables.ssl_p2s;
        let params = own.map_or(variables, |row| &row.params).clone();
        Some(ServerTlsParams { verifies_identity: variables.verifies_identity, ..params })
    }
}

/// The rows of the tables that may be very large about which there is something to tell each time they are read, by
/// their position among those that were taken; in order.
///
/// It is no part of what a configuration means: any two are equal.
#[derive(Clone, Debug, Default)]
pub struct WarnedRows {
    /// Of `mysql_users`.
    pub users: Arc<Vec<usize>>,
    /// Of `mysql_query_rules`.
    pub rules: Arc<Vec<usize>>,
}

impl PartialEq for WarnedRows {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
