//! Finds faults that only several rows together show.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::check::clusters::{ClusterLines, lag_limits, one_cluster_per_server, one_kind_per_server};
use crate::check::hostgroups::{has_no_server, with_servers};
use crate::check::query_rules::{check_fast, compile};
use crate::check::server_tls::consistent;
use crate::check::topology_table::have_clusters;
use crate::check::{clusters, listeners, query_rules};
use crate::model::clusters::Cluster;
use crate::model::config::Config;
use crate::model::hostgroups::HostgroupAttributes;
use crate::model::partial_read::PartialRead;
use crate::model::servers::MysqlServer;
use crate::model::users::MysqlUser;
use crate::report::error::Report;
use crate::report::place::Lines;

/// The lines of the rows of each table.
pub(crate) struct TableLines<'t> {
    pub(crate) servers: Lines<'t>,
    pub(crate) ssl_params: Lines<'t>,
    pub(crate) users: Lines<'t>,
    pub(crate) clusters: ClusterLines<'t>,
    pub(crate) listeners: Lines<'t>,
    pub(crate) topology: Lines<'t>,
    pub(crate) rules: Lines<'t>,
    pub(crate) fast: Lines<'t>,
}

/// Checks keys and references, and compiles the rules. A table of which a row was refused is left out: its rows are not all known, so what
/// seems missing may only be misspelt.
pub(crate) fn across(
    config: &mut Config,
    kept: Option<PartialRead<'_>>,
    lines: &TableLines<'_>,
    report: &mut Report,
) {
    let TableLines { servers, clusters, listeners, rules, fast, users, .. } = lines;
    if !servers.are_kept() {
        servers_and_clusters(config, lines, report);
    }
    // Whoever names a hostgroup is looked at again when that may have lost its servers.
    let is_known = servers.are_complete(&config.servers) && clusters.are_complete(config);
    let known = is_known.then(|| with_servers(config));
    let known_for = |lines: &Lines<'_>| known.as_ref().filter(|_| !(lines.are_kept() && servers.are_kept()));
    if listeners.are_complete(&config.weir_listeners) {
        listeners::distinct(config, listeners, report);
        if let Some(known) = known_for(listeners) {
            listeners_have_servers(config, known, listeners, report);
        }
    }
    if rules.are_complete(&config.query_rules) {
        config.rules = compile(config, kept, rules, report);
        if let Some(known) = known_for(rules) {
            query_rules::have_servers(config, known, rules, report);
        }
    }
    if fast.are_complete(&config.fast_routing) && !(fast.are_kept() && servers.are_kept()) {
        check_fast(config, known.as_ref(), fast, report);
    }
    if users.are_complete(&config.users) {
        if !users.are_kept() {
            distinct_users(&config.users, users, report);
        }
        if !config.variables.have_ssl {
            tls_possible(&config.users, users, report);
        }
        if let Some(known) = known_for(users) {
            users_have_servers(config, known, users, report);
        }
    }
}

/// What is loaded with `mysql_servers`: all of it was read.
fn servers_and_clusters(config: &Config, lines: &TableLines<'_>, report: &mut Report) {
    let TableLines { servers, ssl_params, clusters, topology, .. } = lines;
    let servers_complete = servers.are_complete(&config.servers);
    let clusters_complete = clusters.are_complete(config);
    if servers_complete {
        distinct_servers(&config.servers, servers, report);
    }
    let params_complete = ssl_params.are_complete(&config.servers_ssl_params);
    consistent(config, servers_complete.then_some(servers), params_complete.then_some(ssl_params), report);
    if clusters_complete {
        clusters::distinct(config, clusters, report);
        if topology.are_complete(&config.weir_topology) {
            have_clusters(config, topology, report);
        }
    }
    if clusters_complete && servers_complete {
        clusters::have_servers(config, clusters, report);
        one_kind_per_server(config, servers, report);
        one_cluster_per_server(config, servers, report);
        lag_limits(config, servers, report);
    }
}

/// Checks what is said of hostgroups as a whole: once each, only of those that are used, and nothing that contradicts
/// itself where a server is in several.
pub(crate) fn hostgroups(config: &Config, attributes: &Lines<'_>, own: &Lines<'_>, report: &mut Report) {
    if attributes.are_kept() {
        return;
    }
    let servers = config.servers.iter().map(|server| server.hostgroup_id);
    let inactive = config.galera_hostgroups.iter().chain(&config.group_replication_hostgroups);
    let inactive = inactive.flat_map(|row| row.hostgroups()).map(|(_, id)| id);
    let active = config.clusters().flat_map(Cluster::hostgroups);
    let used: HashSet<u32> = servers.chain(inactive).chain(active).collect();
    if attributes.are_complete(&config.hostgroup_attributes) {
        let ids = config.hostgroup_attributes.iter().map(|row| row.hostgroup_id);
        distinct_and_used(ids, &used, attributes, report);
        same_init_connect(config, attributes, report);
    }
    if own.are_complete(&config.weir_hostgroups) {
        let ids = config.weir_hostgroups.iter().map(|row| row.hostgroup_id);
        distinct_and_used(ids, &used, own, report);
    }
}

fn distinct_and_used(
    ids: impl Iterator<Item = u32>,
    used: &HashSet<u32>,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let mut seen = HashMap::new();
    for (index, id) in ids.enumerate() {
        let place = lines.at(index);
        if let Some(first) = seen.insert(id, place) {
            let reason = format!("hostgroup {id} is already there ({})", first.pointer());
            report.refuse(place, "hostgroup_id", reason);
        } else if !used.contains(&id) {
            let reason = format!("no server and no cluster is in hostgroup {id}");
            report.tolerate(place, "hostgroup_id", reason);
        }
    }
}

/// Connections to a server serve all its hostgroups.
fn same_init_connect(config: &Config, lines: &Lines<'_>, report: &mut Report) {
    let with_statements: Vec<(usize, &HostgroupAttributes)> = config
        .hostgroup_attributes
        .iter()
        .enumerate()
        .filter(|(_, row)| !row.init_connect.is_empty())
        .collect();
    if with_statements.len() < 2 {
        return;
    }
    for (endpoint, ids) in config.hostgroups_by_server() {
        let mut rows = with_statements.iter().filter(|(_, row)| ids.contains(&row.hostgroup_id));
        let Some((_, first)) = rows.next() else { continue };
        if let Some((index, other)) = rows.find(|(_, row)| row.init_connect != first.init_connect) {
            let reason = format!(
                "connections to {endpoint} serve the hostgroups {} and {}, and the init_connect of these differs",
                first.hostgroup_id, other.hostgroup_id
            );
            return report.refuse(lines.at(*index), "init_connect", reason);
        }
    }
}

fn distinct_servers(servers: &[MysqlServer], lines: &Lines<'_>, report: &mut Report) {
    let mut seen = HashMap::new();
    for (index, server) in servers.iter().enumerate() {
        let key = (server.hostgroup_id, server.hostname.to_ascii_lowercase(), server.port);
        let place = lines.at(index);
        if let Some(first) = seen.insert(key, place) {
            let MysqlServer { hostgroup_id, hostname, port, .. } = server;
            let reason =
                format!("{hostname}:{port} is already in hostgroup {hostgroup_id} ({})", first.pointer());
            report.refuse(place, "", reason);
        }
    }
}

fn distinct_users(users: &[Arc<MysqlUser>], lines: &Lines<'_>, report: &mut Report) {
    // Those that are as they were were told apart before.
    let new = users.iter().enumerate().filter(|(index, _)| !lines.at(*index).is_in_force());
    let new: HashSet<&str> = new.map(|(_, user)| user.username.as_str()).collect();
    let mut seen = HashMap::new();
    for (index, user) in users.iter().enumerate().filter(|(_, user)| new.contains(user.username.as_str())) {
        let place = lines.at(index);
        if let Some(first) = seen.insert(&user.username, place) {
            let reason = format!("\"{}\" is already there ({})", user.username, first.pointer());
            report.refuse(place, "username", reason);
        }
    }
}

fn users_have_servers(config: &Config, known: &HashSet<u32>, lines: &Lines<'_>, report: &mut Report) {
    for (index, user) in config.users.iter().enumerate() {
        if user.active && !known.contains(&user.default_hostgroup) {
            let reason = has_no_server(user.default_hostgroup);
            report.tolerate_reference(
                &lines.of(index, &**user),
                "default_hostgroup",
                "mysql_servers",
                reason,
            );
        }
    }
}

fn listeners_have_servers(config: &Config, known: &HashSet<u32>, lines: &Lines<'_>, report: &mut Report) {
    for (index, listener) in config.weir_listeners.iter().enumerate() {
        if let Some(hostgroup) = listener.hostgroup.filter(|hostgroup| !known.contains(hostgroup)) {
            let reason = has_no_server(hostgroup);
            report.tolerate_reference(&lines.of(index, listener), "hostgroup", "mysql_servers", reason);
        }
    }
}

fn tls_possible(users: &[Arc<MysqlUser>], lines: &Lines<'_>, report: &mut Report) {
    for (index, user) in users.iter().enumerate() {
        if user.active && user.use_ssl {
            let reason = "no client could log in: mysql_variables.have_ssl is false";
            report.tolerate_reference(&lines.of(index, &**user), "use_ssl", "mysql-have_ssl", reason);
        }
    }
}
