//! Fills `runtime_mysql_servers`: the hostgroup and the state of each server now, not what was configured.

use std::collections::BTreeMap;

use weir_config::Config;
use weir_monitor::{ServerAddress, ServerAddresses};
use weir_topology::{Endpoint, Place, Reason, Roles, ServerRegistry, Status};

use super::{Rows, integer, text};

/// The rows, by hostgroup, then server. What the configuration alone knows comes from the server's row for the same
/// hostgroup, else from its first one.
pub(super) fn runtime_mysql_servers(roles: &Roles, config: &Config) -> Rows {
    let row = |place: &Place| {
        let mut of_server = config.servers.iter().filter(|row| row.endpoint() == place.endpoint);
        let same = config
            .servers
            .iter()
            .find(|row| row.hostgroup_id == place.hostgroup && row.endpoint() == place.endpoint);
        let wanted = same.or_else(|| of_server.next());
        vec![
            integer(place.hostgroup),
            text(&*place.endpoint.host),
            integer(place.endpoint.port),
            integer(wanted.map_or(0, |row| row.gtid_port)),
            text(status_word(place)),
            integer(place.weight),
            integer(0),
            integer(place.max_connections),
            integer(wanted.map_or(0, |row| row.max_replication_lag)),
            integer(wanted.map_or(0, |row| u32::from(row.use_ssl))),
            integer(wanted.map_or(0, |row| row.max_latency_ms)),
            text(wanted.map_or("", |row| row.comment.as_str())),
        ]
    };
    roles.places.iter().map(row).collect()
}

/// `stats_mysql_gtid_executed`: the servers of which it is known which transactions they have executed.
pub(super) fn gtid_executed(roles: &Roles, registry: &ServerRegistry) -> Rows {
    let mut servers: Vec<&Endpoint> = roles.places.iter().map(|place| &place.endpoint).collect();
    servers.sort_unstable();
    servers.dedup();
    let row = |endpoint: &Endpoint| {
        let shown = registry.server(endpoint).gtids.shown()?;
        Some(vec![text(&*endpoint.host), integer(endpoint.port), text(shown.executed), integer(shown.events)])
    };
    servers.into_iter().filter_map(row).collect()
}

/// `stats_weir_discovered_servers`: of which servers cluster and configuration do not say the same.
pub(super) fn discovered(found: &BTreeMap<u32, Vec<(Endpoint, String)>>) -> Rows {
    let row = |hostgroup: u32, (server, what): &(Endpoint, String)| {
        vec![integer(hostgroup), text(&*server.host), integer(server.port), text(what.as_str())]
    };
    found.iter().flat_map(|(hostgroup, servers)| servers.iter().map(|found| row(*hostgroup, found))).collect()
}

/// `stats_weir_addresses`: where servers are spoken to, and what else their names mean.
pub(super) fn addresses(known: &ServerAddresses) -> Rows {
    let row = |(endpoint, known): (&Endpoint, &ServerAddress)| {
        let all: Vec<String> = known.all.iter().map(ToString::to_string).collect();
        vec![
            text(&*endpoint.host),
            integer(endpoint.port),
            text(known.at.map(|at| at.to_string()).unwrap_or_default()),
            text(all.join(" ")),
            text(known.fault.as_deref().unwrap_or_default()),
        ]
    };
    known.iter().map(row).collect()
}

/// ProxySQL's word for what becomes of work for a server in a hostgroup.
pub(super) fn status_word(place: &Place) -> &'static str {
    match (place.status, &place.reason) {
        (Status::Shunned, Reason::ReplicationLag { .. }) => "SHUNNED_REPLICATION_LAG",
        (status, _) => status.word(),
    }
}

#[cfg(test)]
mod tests {
    use weir_config::{MysqlServer, ServerStatus};
    use weir_topology::Role;

    use super::*;

    fn place(hostgroup: u32, endpoint: &str) -> Place {
        Place {
            hostgroup,
            endpoint: endpoint.parse().expect("an endpoint"),
            role: Role::Plain,
            status: Status::Online,
            weight: 1,
            max_connections: 10,
            reason: Reason::NotObserved,
            trouble: None,
        }
    }

    #[test]
    fn lag_has_a_word_of_its_own() {
        let mut lagging = place(20, "db1:3306");
        assert_eq!(status_word(&lagging), "ONLINE");
        lagging.status = Status::Shunned;
        assert_eq!(status_word(&lagging), "SHUNNED");
        lagging.reason = Reason::ReplicationLag { lag_s: 9, limit_s: 5 };
        assert_eq!(status_word(&lagging), "SHUNNED_REPLICATION_LAG");
    }

    #[test]
    fn roles_are_shown_where_they_are_and_the_rest_is_the_configurations() {
        let server = MysqlServer {
            hostgroup_id: 10,
            hostname: "db1".to_owned(),
            port: 3306,
            status: ServerStatus::Online,
            weight: 5,
            max_connections: 99,
            max_latency_ms: 0,
            use_ssl: false,
            max_replication_lag: 7,
            gtid_port: 6020,
            comment: "first".to_owned(),
        };
        let config = Config { servers: vec![server], ..Config::default() };
        let roles = Roles { places: vec![place(20, "db1:3306"), place(20, "db2:3306")], ..Roles::default() };
        let rows = runtime_mysql_servers(&roles, &config);
        let expected = [
            integer(20),
            super::text("db1"),
            integer(3306),
            integer(6020),
            super::text("ONLINE"),
            integer(1),
            integer(0),
            integer(10),
            integer(7),
            integer(0),
            integer(0),
            super::text("first"),
        ];
        assert_eq!(rows[0], expected);
        assert_eq!(rows[1][11], super::text(""));
    }
}
