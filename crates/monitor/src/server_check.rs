//! Looks once at every server of the clusters, as the monitor would: what is missing there?

mod risks;

use std::collections::BTreeSet;
use std::thread;

use weir_client::Options;
use weir_config::Config;
use weir_eviction::{MEASURED_OPTIONS, Obstacle};
use weir_topology::{ClusterPolicy, Endpoint};

pub use self::risks::Risk;
pub(crate) use self::risks::{RiskWatch, SeveralWriters};
use crate::probe::Probe;
use crate::settings::{Kind, Reach, Settings};

/// The findings about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCheck {
    /// The writer hostgroup of its cluster.
    pub writer_hostgroup: u32,
    /// The server.
    pub server: Endpoint,
    /// What is missing there; nothing if all is well.
    pub findings: Vec<Finding>,
    /// Settings with which data may be lost or mixed up, whatever a proxy does.
    pub risks: Vec<Risk>,
}

/// Something that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is, in words.
    pub what: String,
    /// What does not work without.
    pub lost: &'static str,
    /// What to do, if that is known.
    pub remedy: Option<Remedy>,
}

/// The remedy for a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// These provider options in the server's own configuration.
    ProviderOptions(&'static str),
    /// This privilege for an account.
    Grant {
        /// Privileges and what they are on, as GRANT has them.
        privilege: &'static str,
        /// The account's name.
        user: String,
    },
}

const NO_ROLE: &str = "the server gets no role";
/// What [`Finding::lost`] is where only evictions are.
pub const NOT_EVICTED: &str = "a dead node of the cluster is not evicted";

/// Connects to every server of the configuration's clusters and looks what the monitor and, for Galera, the account
/// that evicts dead nodes would miss. Changes nothing.
///
/// Takes no longer than the monitor's time-outs and a few seconds, as all servers are asked at once.
pub fn examine(config: &Config, reach: &Reach) -> Vec<ServerCheck> {
    let settings = Settings::of(config, &BTreeSet::new(), reach);
    let servers = servers(&settings);
    thread::scope(|scope| {
        let looks: Vec<_> = servers
            .iter()
            .map(|server| {
                let settings = &settings;
                (
                    server,
                    scope
                        .spawn(move || (findings(settings, server.0, &server.1), risks(settings, &server.1))),
                )
            })
            .collect();
        let examined =
            |((writer_hostgroup, server), look): (&(u32, Endpoint), thread::ScopedJoinHandle<'_, _>)| {
                let (findings, risks) = look.join().ok()?;
                let server = server.clone();
                Some(ServerCheck { writer_hostgroup: *writer_hostgroup, server, findings, risks })
            };
        looks.into_iter().filter_map(examined).collect()
    })
}

/// Each cluster's servers.
fn servers(settings: &Settings) -> BTreeSet<(u32, Endpoint)> {
    let policy = &settings.policy;
    let clusters = policy.galera.iter().chain(&policy.group_replication);
    let owner = |hostgroup: u32| {
        let cluster = clusters.clone().find(|cluster| cluster.owns(hostgroup));
        let replicas = policy.replication.iter().find(|cluster| cluster.owns(hostgroup));
        let of_cluster = cluster.map(|cluster: &ClusterPolicy| cluster.writer_hostgroup);
        of_cluster.or(replicas.map(|cluster| cluster.writer_hostgroup))
    };
    let rows = settings.intents.iter();
    rows.filter_map(|row| Some((owner(row.hostgroup)?, row.endpoint.clone()))).collect()
}

/// None if it can't be asked: the findings tell that.
fn risks(settings: &Settings, server: &Endpoint) -> Vec<Risk> {
    let probe = settings.probes.get(server);
    probe.and_then(|probe| risks::of_server(&probe.options).ok()).unwrap_or_default()
}

fn findings(settings: &Settings, writer_hostgroup: u32, server: &Endpoint) -> Vec<Finding> {
    let Some(probe) = settings.probes.get(server) else { return Vec::new() };
    let look = Probe::new(probe.kind, probe.options.clone()).look(false);
    if let Err(fault) = look.result {
        let user = probe.options.user.clone();
        let remedy = privilege(probe.kind).map(|privilege| Remedy::Grant { privilege, user });
        return vec![Finding { what: fault.to_string(), lost: NO_ROLE, remedy }];
    }
    let evictor = settings.evictors.iter().find(|evictor| evictor.writer_hostgroup == writer_hostgroup);
    let node = evictor.and_then(|evictor| evictor.nodes.iter().find(|(endpoint, _)| endpoint == server));
    node.map(|(_, options)| of_evictor(options)).unwrap_or_default()
}

/// What a probe that can log in may still miss.
fn privilege(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Ping | Kind::Galera | Kind::Replication { asks_source: false } => None,
        Kind::GroupReplication => Some("SELECT ON performance_schema.*"),
        Kind::Replication { asks_source: true } => {
            Some("REPLICATION CLIENT, on MariaDB REPLICA MONITOR, ON *.*")
        }
    }
}

fn of_evictor(options: &Options) -> Vec<Finding> {
    let obstacles = match weir_eviction::obstacles(options.clone()) {
        Ok(obstacles) => obstacles,
        Err(error) => {
            let what = format!("{error} (assist_username {})", options.user);
            return vec![Finding { what, lost: NOT_EVICTED, remedy: None }];
        }
    };
    let finding = |obstacle: Obstacle| Finding {
        what: obstacle.to_string(),
        lost: NOT_EVICTED,
        remedy: match &obstacle {
            Obstacle::Option { .. } => Some(Remedy::ProviderOptions(MEASURED_OPTIONS)),
            Obstacle::NoPrivilege { user } => {
                Some(Remedy::Grant { privilege: "SUPER ON *.*", user: user.clone() })
            }
            _ => None,
        },
    };
    obstacles.into_iter().map(finding).collect()
}
