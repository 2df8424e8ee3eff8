//! Decides whether clients should be sent here: as long as any address that they come in by has somebody to serve them.

use std::collections::BTreeSet;

use weir_config::{Config, Listener, ListenerMode};
use weir_http::Readiness;
use weir_statistics::{ClusterStatus, cluster_status};
use weir_topology::{Group, Role, Roles, Status};

/// Of all clients, or of those of one hostgroup; `closed` is why nobody is taken at all.
pub(super) fn readiness(
    config: &Config,
    roles: &Roles,
    closed: Vec<String>,
    hostgroup: Option<u32>,
) -> Readiness {
    let view = View { config, roles };
    match hostgroup {
        Some(hostgroup) if !view.knows(hostgroup) => Readiness::Unknown,
        _ if !closed.is_empty() => Readiness::NotReady(closed),
        Some(hostgroup) if view.serves(hostgroup) => Readiness::Ready(Vec::new()),
        Some(hostgroup) => Readiness::NotReady(vec![view.why_not(hostgroup)]),
        None => view.of_all(),
    }
}

struct View<'v> {
    config: &'v Config,
    roles: &'v Roles,
}

impl View<'_> {
    fn of_all(&self) -> Readiness {
        let users = self.config.users.iter().filter(|user| user.active);
        let of_users: BTreeSet<u32> = users.map(|user| user.default_hostgroup).collect();
        let homes = |listener: &Listener| match listener.hostgroup {
            Some(hostgroup) => BTreeSet::from([hostgroup]),
            None => of_users.clone(),
        };
        let listeners = self.config.listeners();
        let is_served =
            |listener: &Listener| homes(listener).iter().any(|home| self.serves_by(*home, listener.mode));
        let wanted: BTreeSet<u32> = listeners.iter().flat_map(homes).collect();
        let clusters = self.roles.groups.iter().map(|group| group.writer_hostgroup);
        let all: BTreeSet<u32> = wanted.iter().copied().chain(clusters).collect();
        let silent = all.iter().filter(|hostgroup| !self.serves(**hostgroup));
        let silent: Vec<String> = silent.map(|hostgroup| self.why_not(*hostgroup)).collect();
        // Without users and clusters nobody is served anywhere, and nothing is wrong.
        if silent.is_empty() || listeners.iter().any(is_served) {
            Readiness::Ready(silent)
        } else {
            Readiness::NotReady(silent)
        }
    }

    /// Whether clients of a hostgroup are served that come in by a listener of this mode.
    fn serves_by(&self, home: u32, mode: ListenerMode) -> bool {
        let cluster = self.config.clusters().find(|cluster| cluster.writer_hostgroup == home);
        let reader =
            cluster.filter(|_| mode == ListenerMode::Replicas).map(|cluster| cluster.reader_hostgroup);
        self.serves(home) || reader.is_some_and(|reader| self.serves(reader))
    }

    /// Whether a server takes work in this hostgroup.
    fn serves(&self, hostgroup: u32) -> bool {
        if let Some(group) = self.roles.group(hostgroup) {
            return !group.writers.is_empty() && (!group.sends_no_writes() || self.reads_go_on(group));
        }
        let mut places = self.roles.places.iter().filter(|place| place.hostgroup == hostgroup);
        places.any(|place| place.status == Status::Online && place.role != Role::Offline)
    }

    /// Whether reads are served while no write is sent, and that is the cluster's own matter, such as a long ALTER: all
    /// Weirs wait for it, and clients have nowhere else to go. What this Weir's account is refused others may be allowed.
    fn reads_go_on(&self, group: &Group) -> bool {
        let cluster = self.config.clusters().find(|row| row.writer_hostgroup == group.writer_hostgroup);
        let readers =
            cluster.map(|cluster| self.roles.hostgroup(cluster.reader_hostgroup)).unwrap_or_default();
        let is_refused = group.epoch_trouble.as_ref().is_some_and(|trouble| trouble.is_refused);
        !is_refused && readers.iter().any(|place| place.status == Status::Online)
    }

    fn knows(&self, hostgroup: u32) -> bool {
        let is_of_cluster =
            || self.config.clusters().any(|cluster| cluster.hostgroups().any(|id| id == hostgroup));
        self.config.servers.iter().any(|server| server.hostgroup_id == hostgroup) || is_of_cluster()
    }

    fn why_not(&self, hostgroup: u32) -> String {
        if let Some(group) = self.roles.group(hostgroup) {
            let status: ClusterStatus = cluster_status(group);
            let what = if group.writers.is_empty() { "has no writer" } else { "gets no writes" };
            return format!("cluster of hostgroup {hostgroup} {what}: {}", status.why_no_writer());
        }
        let places = self.roles.places.iter().filter(|place| place.hostgroup == hostgroup);
        let reasons: Vec<String> =
            places.map(|place| format!("{}: {}", place.endpoint, place.reason)).collect();
        if reasons.is_empty() {
            return format!("hostgroup {hostgroup} has no server");
        }
        format!("hostgroup {hostgroup} has no server that accepts work: {}", reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use weir_topology::{Endpoint, EpochTrouble, Place, Reason};

    use super::*;

    const CONFIG: &str = "[[mysql_galera_hostgroups]]\nwriter_hostgroup = 10\nbackup_writer_hostgroup = 30\n\
                          reader_hostgroup = 20\noffline_hostgroup = 9999\n\
                          [[mysql_servers]]\nhostgroup_id = 10\nhostname = \"db1\"\n";

    fn serves(is_refused: bool, reads: Status) -> bool {
        let place = |hostgroup, role, status| Place {
            hostgroup,
            endpoint: Endpoint::new("db1", 3306),
            role,
            status,
            weight: 1,
            max_connections: 1,
            reason: Reason::Healthy,
            trouble: None,
        };
        let trouble = EpochTrouble { words: "no answer".into(), stops_writes: true, is_refused };
        let roles = Roles {
            places: vec![place(10, Role::Writer, Status::Online), place(20, Role::Reader, reads)],
            groups: vec![Group {
                writer_hostgroup: 10,
                writers: vec![Endpoint::new("db1", 3306)],
                epoch_trouble: Some(trouble),
                ..Group::default()
            }],
            ..Roles::default()
        };
        let config = weir_config::parse(CONFIG, "weir.toml").expect("a configuration");
        matches!(readiness(&config, &roles, Vec::new(), Some(10)), Readiness::Ready(_))
    }

    #[test]
    fn a_cluster_that_answers_no_weir_is_served_while_it_has_readers() {
        assert!(serves(false, Status::Online));
        assert!(!serves(false, Status::OfflineSoft), "nobody reads");
        assert!(!serves(true, Status::Online), "another Weir may be allowed to write");
    }
}
