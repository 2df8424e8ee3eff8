//! Checks clusters: whose hostgroups and servers are whose.

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_topology::Endpoint;

use crate::model::clusters::ClusterHostgroup;
use crate::model::config::Config;
use crate::report::error::Report;
use crate::report::place::{Lines, Place};

/// The lines of the rows of the three tables.
pub(crate) struct ClusterLines<'t> {
    pub(crate) galera: Lines<'t>,
    pub(crate) group_replication: Lines<'t>,
    pub(crate) replication: Lines<'t>,
}

/// A row of any of the three tables: where it stands, whether it counts, and its hostgroups by column.
type AnyRow<'l> = (&'l Place<'l>, bool, Vec<(&'static str, u32)>);

impl ClusterLines<'_> {
    /// Whether no row was refused.
    pub(crate) fn are_complete(&self, config: &Config) -> bool {
        self.galera.are_complete(&config.galera_hostgroups)
            && self.group_replication.are_complete(&config.group_replication_hostgroups)
            && self.replication.are_complete(&config.replication_hostgroups)
    }

    fn rows<'l>(&'l self, config: &Config) -> Vec<AnyRow<'l>> {
        let cluster = |lines: &'l Lines<'l>| {
            move |(at, row): (usize, &ClusterHostgroup)| (lines.at(at), row.active, row.hostgroups().to_vec())
        };
        let galera = config.galera_hostgroups.iter().enumerate().map(cluster(&self.galera));
        let groups = config.group_replication_hostgroups.iter().enumerate();
        let groups = groups.map(cluster(&self.group_replication));
        let replication = config.replication_hostgroups.iter().enumerate();
        let replication =
            replication.map(|(at, row)| (self.replication.at(at), true, row.hostgroups().to_vec()));
        galera.chain(groups).chain(replication).collect()
    }
}

/// One hostgroup has one meaning: no two columns of a row and no two rows share one.
pub(crate) fn distinct(config: &Config, lines: &ClusterLines<'_>, report: &mut Report) {
    let mut seen: HashMap<u32, (&str, &Place<'_>)> = HashMap::new();
    for (place, _, hostgroups) in lines.rows(config) {
        for (column, hostgroup) in hostgroups {
            let Some((first_column, first)) = seen.get(&hostgroup) else {
                seen.insert(hostgroup, (column, place));
                continue;
            };
            let reason = if first.path() == place.path() {
                format!("{hostgroup} is already the {first_column} of this row")
            } else {
                format!("{hostgroup} is already the {first_column} of another row ({})", first.pointer())
            };
            report.refuse(place, column, reason);
        }
    }
}

/// A cluster is looked at through its servers.
pub(crate) fn have_servers(config: &Config, lines: &ClusterLines<'_>, report: &mut Report) {
    let used: HashSet<u32> = config.servers.iter().map(|server| server.hostgroup_id).collect();
    for (place, active, hostgroups) in lines.rows(config) {
        if active && !hostgroups.iter().any(|(_, hostgroup)| used.contains(hostgroup)) {
            report.tolerate(place, "", "no row of mysql_servers is in any of its hostgroups");
        }
    }
}

/// What the Weirs in front of a cluster agree on is kept on its servers, once: those of a second cluster can't agree on
/// anything of their own there.
pub(crate) fn one_cluster_per_server(config: &Config, servers: &Lines<'_>, report: &mut Report) {
    let clusters: HashMap<u32, (&'static str, u32)> = config
        .clusters()
        .flat_map(|cluster| {
            let whose = (cluster.table, cluster.writer_hostgroup);
            cluster.hostgroups().map(move |hostgroup| (hostgroup, whose))
        })
        .collect();
    let mut first: BTreeMap<Endpoint, (&'static str, u32)> = BTreeMap::new();
    let mut told: HashSet<Endpoint> = HashSet::new();
    for (index, server) in config.servers.iter().enumerate() {
        let Some(cluster) = clusters.get(&server.hostgroup_id) else { continue };
        let (table, known) = first.entry(server.endpoint()).or_insert(*cluster);
        if *table == cluster.0 && *known != cluster.1 && told.insert(server.endpoint()) {
            let reason = format!(
                "{} is also a server of the cluster with writer hostgroup {known}: a switchover or drain in one of them does \
                 not hold the other's statements, and several Weirs agree on the first one's writer only",
                server.endpoint()
            );
            let place = servers.at(index);
            report.warn_line(place.line(), place.key("hostgroup_id"), reason);
        }
    }
}

/// A server is asked for the state of one kind of cluster.
pub(crate) fn one_kind_per_server(config: &Config, servers: &Lines<'_>, report: &mut Report) {
    let tables: HashMap<u32, &'static str> = config
        .clusters()
        .flat_map(|cluster| cluster.hostgroups().map(move |hostgroup| (hostgroup, cluster.table)))
        .collect();
    let mut kinds: BTreeMap<Endpoint, &'static str> = BTreeMap::new();
    for (index, server) in config.servers.iter().enumerate() {
        let Some(table) = tables.get(&server.hostgroup_id) else { continue };
        let first = kinds.entry(server.endpoint()).or_insert(table);
        if first != table {
            let reason = format!("{} is in a cluster of {first} and in one of {table}", server.endpoint());
            report.refuse(servers.at(index), "hostgroup_id", reason);
        }
    }
}

/// How far behind a server is, is asked with asynchronous replication only.
pub(crate) fn lag_limits(config: &Config, servers: &Lines<'_>, report: &mut Report) {
    let hostgroups = config.hostgroups_by_server();
    for (index, server) in config.servers.iter().enumerate().filter(|(_, row)| row.max_replication_lag > 0) {
        let ids = hostgroups.get(&server.endpoint());
        let is_in = |hostgroup: u32| ids.is_some_and(|ids| ids.contains(&hostgroup));
        if !config.replication_hostgroups.iter().any(|row| is_in(row.writer_hostgroup)) {
            let reason = format!(
                "{} is not built yet for servers outside mysql_replication_hostgroups (only 0)",
                server.max_replication_lag
            );
            report.tolerate(servers.at(index), "max_replication_lag", reason);
        }
    }
}
