//! Chooses the servers that are asked for their accounts.

use std::collections::BTreeMap;

use weir_accounts::FollowedHostgroup;
use weir_client::Options;
use weir_config::{Config, MysqlServer};
use weir_monitor::Reach;
use weir_topology::{Endpoint, Place, Role, Roles, ServerRegistry, Status};

/// For each hostgroup whose accounts are followed the servers that take its work now, with the monitor's account: their
/// data is that of the cluster. Of a cluster these are its writers.
pub(crate) fn followed_servers(
    config: &Config,
    roles: &Roles,
    reach: &Reach,
    registry: &ServerRegistry,
) -> BTreeMap<u32, FollowedHostgroup> {
    let followed = config.weir_hostgroups.iter().filter(|row| row.follow_accounts);
    let hostgroup = |id: u32| {
        let working = |id: u32| {
            let works = move |place: &&Place| {
                place.hostgroup == id && place.status == Status::Online && place.role != Role::Offline
            };
            roles.places.iter().filter(works).map(|place| options(config, &place.endpoint, reach))
        };
        let cluster = config.clusters().find(|cluster| cluster.writer_hostgroup == id);
        let mut servers: Vec<Options> = working(id).collect();
        // Members of a cluster have the same accounts, also before its writer is agreed on; replicas may be behind.
        if let Some(cluster) = cluster.as_ref().filter(|_| servers.is_empty() && is_synchronous(config, id)) {
            servers.extend(working(cluster.reader_hostgroup));
        }
        let is_member = |row: &&MysqlServer| {
            row.hostgroup_id == id
                || cluster
                    .as_ref()
                    .is_some_and(|cluster| cluster.hostgroups().any(|of| of == row.hostgroup_id))
        };
        let members = config.servers.iter().filter(is_member).map(MysqlServer::endpoint);
        // Rules may send its users anywhere.
        let concerned = config.servers.iter().map(|row| registry.server(&row.endpoint()));
        FollowedHostgroup { servers, members: members.collect(), concerned: concerned.collect() }
    };
    followed.map(|row| (row.hostgroup_id, hostgroup(row.hostgroup_id))).collect()
}

/// Whether the hostgroup is the writers' of a Galera cluster or a group.
fn is_synchronous(config: &Config, id: u32) -> bool {
    let rows = config.galera_hostgroups.iter().chain(&config.group_replication_hostgroups);
    rows.into_iter().any(|row| row.writer_hostgroup == id)
}

fn options(config: &Config, server: &Endpoint, reach: &Reach) -> Options {
    let variables = &config.variables;
    let password = variables.monitor_password.expose();
    Options::new(&server.host, server.port, &variables.monitor_username, password)
        .at(reach.addresses.get(server).cloned().unwrap_or_default())
        .tls(reach.tls.get(server).cloned())
}
