//! Tests the decision of roles: tables of cases, scenarios over time, and properties that hold for every cluster.

mod articles;
mod auto_failover;
mod cases;
mod choices;
mod components;
mod group_properties;
mod group_replication;
mod properties;
mod remembered_components;
mod replication;
mod scenarios;
mod several_weirs;
mod shunning;

use crate::*;

/// The articles' cluster: three nodes, hostgroups 100/102/101/9101, the preferred writer with weights 10000 and 100.
const NODES: [&str; 3] = ["192.168.4.22", "192.168.4.23", "192.168.4.233"];

fn node(index: usize) -> Endpoint {
    Endpoint::new(NODES[index], 3306)
}

fn row(index: usize, hostgroup: u32, weight: u32) -> Intent {
    Intent {
        endpoint: node(index),
        hostgroup,
        wish: Wish::Online,
        weight,
        max_connections: 2000,
        latency_max_us: 0,
        lag_max_s: 0,
    }
}

fn article_rows() -> Vec<Intent> {
    vec![row(0, 100, 10_000), row(0, 101, 100), row(1, 101, 10_000), row(2, 101, 10_000)]
}

fn policy(writer_reads: WriterReads) -> Policy {
    let galera = cluster_policy(writer_reads);
    Policy { galera: vec![galera], ..Policy::default() }
}

fn cluster_policy(writer_reads: WriterReads) -> ClusterPolicy {
    ClusterPolicy {
        writer_hostgroup: 100,
        backup_writer_hostgroup: 102,
        reader_hostgroup: 101,
        offline_hostgroup: 9101,
        max_writers: 1,
        writer_reads,
        max_transactions_behind: 10,
        timeouts_max: 3,
        choices: Choices::default(),
    }
}

/// A healthy node in a view of three.
fn synced(index: usize) -> GaleraState {
    GaleraState {
        ready: true,
        connected: true,
        cluster_status: "Primary".to_owned(),
        cluster_state_uuid: "bf2509c7-e57f-11f1-a4d9-c66cc5a3980c".to_owned(),
        cluster_conf_id: 3,
        cluster_size: 3,
        members: NODES.iter().map(|host| format!("{host}:3306")).collect(),
        local_state: LocalState::Synced,
        last_committed: 100,
        local_index: u32::try_from(index).ok(),
        node_name: format!("n{index}"),
        ..GaleraState::default()
    }
}

/// What a server said last, if it is a Galera node.
fn galera_state(seen: &Observation) -> Option<&GaleraState> {
    match &seen.state {
        Some(ServerState::Galera(state)) => Some(state),
        _ => None,
    }
}

/// A cluster whose probes and decisions are driven by hand.
struct World {
    policy: Policy,
    rows: Vec<Intent>,
    seen: Vec<Observation>,
    roles: Roles,
    now: Millis,
}

impl World {
    /// All three nodes healthy and decided once.
    fn new(policy: Policy) -> Self {
        let mut world = Self::unseen(policy);
        for index in 0..NODES.len() {
            world.see(index, Ok(synced(index)));
        }
        world.decide();
        world
    }

    /// Nothing seen, nothing decided.
    fn unseen(policy: Policy) -> Self {
        let (rows, now) = (article_rows(), Millis(1000));
        Self { policy, rows, seen: Vec::new(), roles: Roles::default(), now }
    }

    fn see(&mut self, index: usize, result: Result<GaleraState, ProbeError>) {
        self.see_state(index, result.map(ServerState::from));
    }

    fn see_state(&mut self, index: usize, result: Result<ServerState, ProbeError>) {
        let endpoint = node(index);
        let before = self.seen.iter().find(|seen| seen.endpoint == endpoint);
        let after = Observation::after(before, &endpoint, self.now, result);
        self.seen.retain(|seen| seen.endpoint != endpoint);
        self.seen.push(after);
    }

    fn see_changed(&mut self, index: usize, change: impl FnOnce(&mut GaleraState)) {
        let mut state = synced(index);
        change(&mut state);
        self.see(index, Ok(state));
    }

    fn decide(&mut self) {
        self.roles = roles(&self.policy, &self.rows, &self.seen, &self.roles, self.now);
    }

    fn pass(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
        for seen in &mut self.seen {
            seen.at = self.now;
            if seen.fault.is_none() {
                seen.state_asked_at = self.now;
            }
        }
    }

    /// Short form: `W` writer, `B` backup writer, `R` reader, `r` reader without work, `-` offline, each node's roles
    /// together, nodes separated by a space.
    fn picture(&self) -> String {
        let node_picture = |index: usize| -> String {
            let mut places: Vec<&Place> =
                self.roles.places.iter().filter(|place| place.endpoint == node(index)).collect();
            places.sort_by_key(|place| place.role as u8);
            places
                .iter()
                .map(|place| match (place.role, place.status) {
                    (Role::Writer, _) => 'W',
                    (Role::BackupWriter, _) => 'B',
                    (Role::Reader, Status::Online) => 'R',
                    (Role::Reader, _) => 'r',
                    (Role::Offline, _) => '-',
                    (Role::Plain, _) => 'p',
                })
                .collect()
        };
        (0..NODES.len()).map(node_picture).collect::<Vec<_>>().join(" ")
    }

    fn writer(&self) -> Option<usize> {
        let writer = self.roles.groups.first()?.writers.first()?;
        NODES.iter().position(|host| *host == &*writer.host)
    }
}

fn refused() -> ProbeError {
    ProbeError::Unreachable("connection refused".to_owned())
}
