//! Finds hostgroups without any server.

use std::collections::HashSet;

use crate::model::clusters::Cluster;
use crate::model::config::Config;

/// Those that a server or an active cluster names.
pub(crate) fn with_servers(config: &Config) -> HashSet<u32> {
    let clusters = config.clusters().flat_map(Cluster::hostgroups);
    config.servers.iter().map(|server| server.hostgroup_id).chain(clusters).collect()
}

pub(crate) fn has_no_server(hostgroup: u32) -> String {
    format!("hostgroup {hostgroup} has no server: neither mysql_servers nor an active cluster names it")
}
