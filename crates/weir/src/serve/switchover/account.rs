//! The account that moves the role, where servers have to be told.

use std::time::Duration;

use weir_client::{Connection, Error, Options};
use weir_topology::Endpoint;

use super::Operator;

/// How long an answer may take that needs no wait.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

impl Operator {
    /// How to connect to a server with the account that may move the role: `weir_topology.switchover_username`, else
    /// the monitor's.
    pub(super) fn account_at(&self, hostgroup: u32, server: &Endpoint) -> Options {
        let variables = &self.config.variables;
        let own = self.config.topology_of(hostgroup).switchover_account;
        let (user, password) = match &own {
            Some(own) => (own.username.as_str(), own.password.expose()),
            None => (variables.monitor_username.as_str(), variables.monitor_password.expose()),
        };
        Options::new(&server.host, server.port, user, password)
            .timeouts(variables.monitor_connect_timeout, ANSWER_WAIT)
            .at(self.reach.addresses.get(server).cloned().unwrap_or_default())
            .tls(self.reach.tls.get(server).cloned())
    }
}

/// Connects, or says why not.
pub(super) fn connect(options: &Options) -> Result<Connection, String> {
    Connection::connect(options).map_err(|error| {
        format!("can't log in at {}:{} as {}: {error}", options.host, options.port, options.user)
    })
}

/// Whether a server lives, whatever it answers.
pub(super) fn is_there(options: &Options) -> bool {
    matches!(Connection::connect(options), Ok(_) | Err(Error::Server { .. }))
}
