//! Takes the monitor's settings from the configuration.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::time::Duration;

use weir_client::{Address, Options, Tls};
use weir_config::{Assist, Config, MysqlVariables};
use weir_eviction::EvictorSettings;
use weir_topology::{ClusterPolicy, Endpoint, Intent, Policy, ReplicationPolicy, Wish};

/// How servers are reached, as far as the configuration does not say it.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// How connections are encrypted, those that are.
    pub tls: BTreeMap<Endpoint, Tls>,
    /// Where servers are. One that is missing is looked up by its name at each connect. What was seen of a server
    /// counts for one address: at another one it is a server of which nothing is known.
    pub addresses: BTreeMap<Endpoint, Address>,
}

/// The monitor's part of a configuration.
#[derive(Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) intents: Vec<Intent>,
    pub(crate) probes: BTreeMap<Endpoint, ProbeSettings>,
    /// Of the Galera clusters that are to be helped to get over a dead node.
    pub(crate) evictors: Vec<EvictorSettings>,
}

/// The settings of a probe. A probe goes on over a reload if this is the same.
#[derive(Clone, PartialEq)]
pub(crate) struct ProbeSettings {
    pub(crate) kind: Kind,
    pub(crate) interval: Duration,
    pub(crate) options: Options,
    /// Where a binlog reader of the server's is followed.
    pub(crate) gtid_port: Option<GtidPort>,
}

/// `mysql_servers.gtid_port`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GtidPort {
    pub(crate) port: u16,
    /// The pause before it is tried again.
    pub(crate) retry: Duration,
}

/// The question that a server is asked, by the kind of cluster that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whether it answers: a server without a cluster.
    Ping,
    /// The state of a Galera node.
    Galera,
    /// The state of a member of a MySQL Group Replication group.
    GroupReplication,
    /// Whether it is read_only.
    Replication {
        /// And how far it is behind which source.
        asks_source: bool,
    },
}

impl Kind {
    fn of(policy: &Policy, hostgroup: u32, asks_source: bool) -> Self {
        if policy.galera.iter().any(|row| row.owns(hostgroup)) {
            Self::Galera
        } else if policy.group_replication.iter().any(|row| row.owns(hostgroup)) {
            Self::GroupReplication
        } else if policy.replication.iter().any(|row| row.owns(hostgroup)) {
            Self::Replication { asks_source }
        } else {
            Self::Ping
        }
    }

    /// How often a server is asked, and how long an answer may take.
    fn pace(self, variables: &MysqlVariables) -> (Duration, Duration) {
        match self {
            Self::Ping => (variables.monitor_ping_interval, variables.monitor_ping_timeout),
            Self::Galera => {
                (variables.monitor_galera_healthcheck_interval, variables.monitor_galera_healthcheck_timeout)
            }
            Self::GroupReplication => (
                variables.monitor_groupreplication_healthcheck_interval,
                variables.monitor_groupreplication_healthcheck_timeout,
            ),
            Self::Replication { .. } => {
                (variables.monitor_read_only_interval, variables.monitor_read_only_timeout)
            }
        }
    }
}

impl Settings {
    pub(crate) fn of(config: &Config, drained: &BTreeSet<Endpoint>, reach: &Reach) -> Self {
        let policy = config.policy();
        let mut intents = config.intents();
        for intent in &mut intents {
            if intent.wish == Wish::Online && drained.contains(&intent.endpoint) {
                intent.wish = Wish::OfflineSoft;
            }
        }
        let variables = &config.variables;
        let mut probes = BTreeMap::new();
        let failovers: Vec<&ReplicationPolicy> =
            policy.replication.iter().filter(|row| row.failover_after_ms.is_some()).collect();
        let is_asked =
            |row: &&Intent| row.lag_max_s > 0 || failovers.iter().any(|cluster| cluster.owns(row.hostgroup));
        // Servers of which it counts from whom they replicate.
        let limited: HashSet<&Endpoint> = intents.iter().filter(is_asked).map(|row| &row.endpoint).collect();
        for Intent { endpoint, hostgroup, .. } in &intents {
            let kind = Kind::of(&policy, *hostgroup, limited.contains(endpoint));
            let (interval, timeout) = kind.pace(variables);
            let options = Options::new(
                &endpoint.host,
                endpoint.port,
                &variables.monitor_username,
                variables.monitor_password.expose(),
            )
            .timeouts(variables.monitor_connect_timeout, timeout)
            .at(reach.addresses.get(endpoint).cloned().unwrap_or_default())
            .tls(reach.tls.get(endpoint).cloned());
            let gtid_port = gtid_port(config, endpoint);
            let settings = ProbeSettings { kind, interval, options, gtid_port };
            let probe = probes.entry(endpoint.clone()).or_insert_with(|| settings.clone());
            if kind != Kind::Ping {
                *probe = settings;
            }
        }
        let evictors = evictors(config, &policy, &intents, &probes);
        Self { policy, intents, probes, evictors }
    }
}

fn gtid_port(config: &Config, endpoint: &Endpoint) -> Option<GtidPort> {
    let rows = config.servers.iter().filter(|row| row.endpoint() == *endpoint);
    let port = rows.map(|row| row.gtid_port).max().filter(|port| *port != 0)?;
    Some(GtidPort { port, retry: config.variables.binlog_reader_connect_retry_msec })
}

/// Of the Galera clusters with more than two servers in their hostgroups: of two, one is never a majority.
fn evictors(
    config: &Config,
    policy: &Policy,
    intents: &[Intent],
    probes: &BTreeMap<Endpoint, ProbeSettings>,
) -> Vec<EvictorSettings> {
    let evictor = |cluster: &ClusterPolicy| {
        let wanted = config.topology_of(cluster.writer_hostgroup);
        let members: BTreeSet<&Endpoint> =
            intents.iter().filter(|row| cluster.owns(row.hostgroup)).map(|row| &row.endpoint).collect();
        let options = |endpoint: &Endpoint| {
            let mut options = probes.get(endpoint)?.options.clone();
            if let Some(account) = &wanted.assist_account {
                options.user.clone_from(&account.username);
                account.password.expose().clone_into(&mut options.password);
            }
            Some((endpoint.clone(), options))
        };
        let nodes: Vec<(Endpoint, Options)> = members.into_iter().filter_map(options).collect();
        let evicts_hung = wanted.assist == Assist::Hung;
        let is_wanted = wanted.assist != Assist::Off && nodes.len() > 2;
        let writer_hostgroup = cluster.writer_hostgroup;
        is_wanted.then_some(EvictorSettings { writer_hostgroup, evicts_hung, nodes })
    };
    policy.galera.iter().filter_map(evictor).collect()
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).finish_non_exhaustive()
    }
}
