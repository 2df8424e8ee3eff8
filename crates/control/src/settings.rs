//! What the monitor takes from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use weir_client::{Options, Tls};
use weir_config::Config;
use weir_topology::{Endpoint, Intent, Policy, Wish};

/// The monitor's part of a configuration.
#[derive(Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) intents: Vec<Intent>,
    pub(crate) probes: BTreeMap<Endpoint, ProbeSettings>,
}

/// How a server is probed. A probe goes on over a reload if this is the same.
#[derive(Clone, PartialEq)]
pub(crate) struct ProbeSettings {
    /// Ask for the state of Galera, and keep a causal probe.
    pub(crate) galera: bool,
    pub(crate) interval: Duration,
    pub(crate) options: Options,
}

impl Settings {
    pub(crate) fn of(config: &Config, drained: &BTreeSet<Endpoint>, tls: &BTreeMap<Endpoint, Tls>) -> Self {
        let policy = config.policy();
        let mut intents = config.intents();
        for intent in &mut intents {
            if intent.wish == Wish::Online && drained.contains(&intent.endpoint) {
                intent.wish = Wish::OfflineSoft;
            }
        }
        let variables = &config.variables;
        let mut probes = BTreeMap::new();
        for Intent { endpoint, hostgroup, .. } in &intents {
            let galera = policy.galera.iter().any(|row| row.owns(*hostgroup));
            let (interval, timeout) = if galera {
                (variables.monitor_galera_healthcheck_interval, variables.monitor_galera_healthcheck_timeout)
            } else {
                (variables.monitor_ping_interval, variables.monitor_ping_timeout)
            };
            let options = Options::new(
                &endpoint.host,
                endpoint.port,
                &variables.monitor_username,
                variables.monitor_password.expose(),
            )
            .timeouts(variables.monitor_connect_timeout, timeout)
            .tls(tls.get(endpoint).cloned());
            let settings = ProbeSettings { galera, interval, options };
            let probe = probes.entry(endpoint.clone()).or_insert_with(|| settings.clone());
            if galera {
                *probe = settings;
            }
        }
        Self { policy, intents, probes }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).finish_non_exhaustive()
    }
}
