//! Logs in with the account that moves the role, where servers have to be told.

use std::time::Duration;

use weir_client::{Connection, Error, Options};
use weir_topology::Endpoint;

use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;

/// How long an answer may take that needs no wait.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

impl OperationRunner {
    /// How to connect to a server with the account that may move the role: `weir_topology.switchover_username`, else
    /// the monitor's.
    pub(crate) fn account_at(&self, hostgroup: u32, server: &Endpoint) -> Options {
        let variables = &self.context.config.variables;
        let own = self.context.config.topology_of(hostgroup).switchover_account;
        let (user, password) = match &own {
            Some(own) => (own.username.as_str(), own.password.expose()),
            None => (variables.monitor_username.as_str(), variables.monitor_password.expose()),
        };
        Options::new(&server.host, server.port, user, password)
            .timeouts(variables.monitor_connect_timeout, ANSWER_WAIT)
            .at(self.context.reach.addresses.get(server).cloned().unwrap_or_default())
            .tls(self.context.reach.tls.get(server).cloned())
    }
}

/// Connects, or says why not.
pub(crate) fn connect(options: &Options) -> Result<Connection, SwitchoverError> {
    let Options { host, port, user, .. } = options;
    Connection::connect(options).map_err(|cause| SwitchoverError::Login {
        host: host.clone(),
        port: *port,
        user: user.clone(),
        cause,
    })
}

/// Whether a server lives, whatever it answers.
pub(crate) fn is_there(options: &Options) -> bool {
    matches!(Connection::connect(options), Ok(_) | Err(Error::Server { .. }))
}
