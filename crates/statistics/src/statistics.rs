//! Knows whom to ask for what is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use weir_config::Config;
use weir_monitor::{LatestRoles, ProbeLog, ServerAddresses};
use weir_query_log::QueryLogs;
use weir_topology::{Endpoint, ServerRegistry};

use crate::stats_collector::StatsCollector;

/// The state of the running Weir that is shown besides what is counted and observed. Called from any thread.
pub trait RunningState: Debug + Send + Sync {
    /// The configuration in force.
    fn config(&self) -> Arc<Config>;

    /// Where its servers are.
    fn addresses(&self) -> ServerAddresses;

    /// The servers that users have taken out.
    fn drained(&self) -> BTreeSet<Endpoint>;

    /// By writer hostgroup: the switchovers that others have left behind, in words.
    fn unfinished_switchovers(&self) -> BTreeMap<u32, String>;

    /// By writer hostgroup: servers of which cluster and configuration do not say the same, and what is so.
    fn discovered(&self) -> BTreeMap<u32, Vec<(Endpoint, String)>>;
}

/// The sources of all figures. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// What the workers have counted.
    pub collector: Arc<StatsCollector>,
    /// What has become of lines of logs.
    pub query_logs: QueryLogs,
    /// The roles of now.
    pub roles: LatestRoles,
    /// What the probes have seen.
    pub probes: Arc<ProbeLog>,
    /// What the monitor knows of the servers.
    pub registry: ServerRegistry,
    /// The rest.
    pub state: Arc<dyn RunningState>,
    /// This Weir's name among those in front of one cluster, at its start.
    pub instance: Arc<str>,
    /// When this Weir was started.
    pub started: Instant,
}
