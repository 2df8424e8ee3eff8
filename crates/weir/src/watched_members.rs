//! Gives the watch of clusters' members what it needs: the clusters as configured now, and how servers are added.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_client::Options;
use weir_config::{AutoDiscover, Cluster, Config, InForce, MysqlServer, TableRow, TableRows};
use weir_discovery::{Configured, Dial, Dialling, Watched, WatchedCluster};
use weir_topology::Endpoint;

use crate::server_tls::{ServersTls, towards_server};

/// What adds servers to those that were compared, or says why not.
pub(crate) type Adder = Box<dyn Fn(&[MysqlServer], TableRows) -> Result<(), Vec<String>> + Send>;

/// The running Weir, as the watch sees it.
pub(crate) struct WatchedMembers {
    in_force: InForce,
    add: Adder,
}

impl WatchedMembers {
    pub(crate) fn new(in_force: InForce, add: Adder) -> Self {
        Self { in_force, add }
    }
}

impl Watched for WatchedMembers {
    fn clusters(&self) -> Vec<WatchedCluster> {
        let config = self.in_force.config();
        let wanted = |cluster: Cluster| {
            let auto_discover = config.topology_of(cluster.writer_hostgroup).auto_discover;
            (auto_discover != AutoDiscover::Off).then(|| WatchedCluster {
                writer_hostgroup: cluster.writer_hostgroup,
                configured: configured(&config, &cluster),
                is_followed: auto_discover == AutoDiscover::Follow,
                dial: dial(&config, &cluster),
            })
        };
        config.clusters().filter_map(wanted).collect()
    }

    fn add(&self, cluster: &WatchedCluster, servers: &[Endpoint]) -> Result<(), String> {
        let config = self.in_force.config();
        let hostgroup = cluster.writer_hostgroup;
        let now = config.clusters().find(|now| now.writer_hostgroup == hostgroup);
        let now = now.filter(|now| configured(&config, now) == cluster.configured);
        let like = now.and_then(|now| rows_of(&config, &now).next().cloned());
        let like = like.ok_or("other servers have been loaded meanwhile")?;
        let mut rows = TableRows::new();
        for server in servers {
            rows.push("mysql_servers", row(hostgroup, server, &like));
        }
        (self.add)(&config.servers, rows).map_err(|faults| faults.join("; "))
    }
}

fn configured(config: &Config, cluster: &Cluster) -> Configured {
    let members: BTreeSet<Endpoint> = rows_of(config, cluster).map(MysqlServer::endpoint).collect();
    let others = config.servers.iter().map(MysqlServer::endpoint).filter(|server| !members.contains(server));
    let kind = match cluster.table {
        "mysql_galera_hostgroups" => "galera",
        "mysql_group_replication_hostgroups" => "group",
        _ => "replication",
    };
    Configured { elsewhere: others.collect(), members, kind }
}

/// The rows of a cluster's servers.
fn rows_of<'c>(config: &'c Config, cluster: &Cluster) -> impl Iterator<Item = &'c MysqlServer> {
    let hostgroups: BTreeSet<u32> = cluster.hostgroups().collect();
    config.servers.iter().filter(move |row| hostgroups.contains(&row.hostgroup_id))
}

/// A server's row, with the limits of another one of its cluster.
fn row(writer_hostgroup: u32, server: &Endpoint, like: &MysqlServer) -> TableRow {
    let number = |number: u32| i64::from(number).into();
    let fields = [
        ("hostgroup_id", number(writer_hostgroup)),
        ("hostname", (&*server.host).into()),
        ("port", number(server.port.into())),
        ("max_connections", number(like.max_connections)),
        ("max_replication_lag", number(like.max_replication_lag)),
        ("max_latency_ms", number(like.max_latency_ms)),
        ("use_ssl", number(like.use_ssl.into())),
        ("comment", "found by auto_discover".into()),
    ];
    fields.into_iter().map(|(key, value)| (key.into(), value)).collect()
}

/// With the monitor's account. Servers that are not configured get its password only where they show a certificate: anybody can
/// be named.
fn dial(config: &Arc<Config>, cluster: &Cluster) -> Dial {
    let configured: BTreeSet<Endpoint> = rows_of(config, cluster).map(MysqlServer::endpoint).collect();
    let others_use_ssl = rows_of(config, cluster).any(|row| row.use_ssl);
    let of_configured = ServersTls::default().read(config).map(|tls| tls.for_monitor());
    let of_configured = of_configured.map_err(|error| format!("TLS: {error}"));
    let config = config.clone();
    Box::new(move |server| {
        let (variables, is_configured) = (&config.variables, configured.contains(server));
        let params = &variables.ssl_p2s;
        let tls = match is_configured {
            true => of_configured.as_ref().map_err(String::clone)?.get(server).cloned(),
            false if others_use_ssl => {
                let tls = towards_server(server, params.ca.clone(), params.verifies_identity);
                Some(tls.map_err(|error| format!("TLS: {error}"))?)
            }
            false => None,
        };
        let is_trusted = is_configured || (tls.is_some() && params.ca.is_some());
        let password = variables.monitor_password.expose();
        let options = Options::new(&server.host, server.port, &variables.monitor_username, password);
        Ok(Dialling { options: options.tls(tls).proofs_only(!is_trusted), is_tls_optional: false })
    })
}
