//! One look at a server.

use std::time::{Duration, Instant};

use weir_client::{Connection, Error, Options};
use weir_topology::{GaleraState, ProbeError, ServerState};

const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_connected', \
    'wsrep_cluster_status', 'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id', 'wsrep_cluster_size', \
    'wsrep_incoming_addresses', 'wsrep_local_state', 'wsrep_local_recv_queue', 'wsrep_flow_control_paused_ns', \
    'wsrep_last_committed', 'wsrep_local_index')";
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_node_name', 'wsrep_desync', \
    'wsrep_reject_queries', 'wsrep_sst_donor_rejects_queries', 'pxc_maint_mode', 'read_only', 'super_read_only')";
const PROVIDER_OPTIONS: &str = "SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'";

/// Server errors that say that the server is alive and has no room: ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS,
/// ER_USER_LIMIT_REACHED.
const BUSY: [u16; 3] = [1040, 1203, 1226];
/// ER_SERVER_SHUTDOWN.
const SHUTDOWN: u16 = 1053;

/// How often a Galera node is pinged for its latency. What it is asked at each look takes longer than a ping.
const PING_PAUSE: Duration = Duration::from_secs(1);
/// How often a new connection is tried while those of the data path fail.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);

/// What one look has shown.
pub(crate) struct Look {
    /// The server's state, or why there is none.
    pub(crate) result: Result<ServerState, ProbeError>,
    /// How long a ping took, if there was one.
    pub(crate) ping: Option<Duration>,
    /// A new connection was made.
    pub(crate) accepts: bool,
}

/// Looks at one server over a connection that is kept.
pub(crate) struct Probe {
    galera: bool,
    options: Options,
    connection: Option<Connection>,
    version: Option<String>,
    /// `wsrep_provider_options`, which doesn't change while the server runs as far as Weir uses it.
    provider_options: String,
    /// When flow control was last looked at, and what it said.
    paused: Option<(Instant, u64)>,
    /// The last ping.
    pinged_at: Option<Instant>,
    ping: Option<Duration>,
    /// The last attempt to make a new connection.
    connected_at: Option<Instant>,
}

impl Probe {
    pub(crate) fn new(galera: bool, options: Options) -> Self {
        Self {
            galera,
            options,
            connection: None,
            version: None,
            provider_options: String::new(),
            paused: None,
            pinged_at: None,
            ping: None,
            connected_at: None,
        }
    }

    /// The version in the last greeting.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Asks the server; also for a new connection, if it `is_shunned`.
    pub(crate) fn look(&mut self, is_shunned: bool) -> Look {
        let result = self.state();
        let is_due = self.connected_at.is_none_or(|at| at.elapsed() >= CONNECT_PAUSE);
        let mut accepts = false;
        if is_shunned && is_due && result.is_ok() {
            accepts = match Connection::connect(&self.options) {
                Ok(_) => true,
                // Without Galera an answer is enough, as it is for the state.
                Err(error) => !self.galera && is_alive(&error) && !is_full(&error),
            };
            self.connected_at = Some(Instant::now());
        }
        Look { result, ping: self.ping.take(), accepts }
    }

    /// The server's state. A kept connection that turns out to be broken proves nothing, somebody may have killed it:
    /// then a new one is made at once, and its fate is the result.
    fn state(&mut self) -> Result<ServerState, ProbeError> {
        let kept = self.connection.is_some();
        let mut result = self.ask();
        if kept && result.as_ref().is_err_and(|error| error.is_fatal() && !error.is_timeout()) {
            self.connection = None;
            result = self.ask();
        }
        if result.is_err() {
            // Never reuse what is in an unknown state; logging in again is a part of the answer.
            self.connection = None;
        }
        match result {
            Ok(state) => Ok(state),
            Err(error) if !self.galera && is_alive(&error) => Ok(ServerState::Alive),
            Err(error) => Err(self.fault(&error)),
        }
    }

    fn ask(&mut self) -> Result<ServerState, Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let mut connection = Connection::connect(&self.options)?;
                self.version = Some(connection.server_version().to_owned());
                if self.galera {
                    let options = connection.query(PROVIDER_OPTIONS)?;
                    self.provider_options = options.text(0, 1).unwrap_or_default().to_owned();
                }
                self.connection.insert(connection)
            }
        };
        let now = Instant::now();
        if !self.galera || self.pinged_at.is_none_or(|at| now.duration_since(at) >= PING_PAUSE) {
            connection.ping()?;
            self.ping = Some(now.elapsed());
            self.pinged_at = Some(now);
        }
        if !self.galera {
            return Ok(ServerState::Alive);
        }
        let status = connection.query(STATUS)?;
        let variables = connection.query(VARIABLES)?;
        let options = [("wsrep_provider_options", self.provider_options.as_str())];
        let mut state = GaleraState::from_rows(status.pairs().chain(variables.pairs()).chain(options));
        let now = Instant::now();
        if let Some((then, paused_ns)) = self.paused.replace((now, state.flow_control_paused_ns)) {
            let elapsed_ns = now.duration_since(then).as_nanos();
            state.flow_control_paused_permille =
                permille(paused_ns, state.flow_control_paused_ns, elapsed_ns);
        }
        Ok(state.into())
    }

    fn fault(&self, error: &Error) -> ProbeError {
        match error {
            Error::Timeout(allowed) => {
                ProbeError::Timeout(u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX))
            }
            Error::Server { code, .. } if BUSY.contains(code) => ProbeError::Busy(error.to_string()),
            Error::Server { code: SHUTDOWN, .. } | Error::Io { .. } => {
                ProbeError::Unreachable(error.to_string())
            }
            _ => ProbeError::Refused(format!("{error} (monitor_username {})", self.options.user)),
        }
    }
}

/// Whether an error is the answer of a server that works: without Galera it is enough that it speaks, whatever it
/// thinks of the monitor's account.
fn is_alive(error: &Error) -> bool {
    match error {
        Error::Server { code, .. } => *code != SHUTDOWN,
        Error::Unsupported(_) => true,
        _ => false,
    }
}

/// Whether the server has no room for another connection.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Server { code, .. } if BUSY.contains(code))
}

/// Share of the elapsed time for which flow control held the node up. The counter starts again with the server.
fn permille(before_ns: u64, after_ns: u64, elapsed_ns: u128) -> u16 {
    let paused_ns = u128::from(after_ns.saturating_sub(before_ns));
    let share = (paused_ns * 1000).checked_div(elapsed_ns).unwrap_or(0);
    u16::try_from(share.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn server_error(code: u16) -> Error {
        Error::Server { code, sqlstate: "HY000".to_owned(), message: "m".to_owned() }
    }

    #[test]
    fn the_share_of_flow_control() {
        assert_eq!(permille(0, 50_000_000, 100_000_000), 500);
        assert_eq!(permille(10, 10, 100), 0);
        assert_eq!(permille(100, 5, 100), 0, "the server has been started again");
        assert_eq!(permille(0, 1000, 10), 1000);
        assert_eq!(permille(0, 1000, 0), 0);
    }

    #[test]
    fn faults_by_what_they_prove() {
        let probe = Probe::new(true, Options::new("db1", 3306, "monitor", "geheim"));
        let io = Error::Io { action: "connecting", cause: io::Error::from(io::ErrorKind::ConnectionRefused) };
        assert!(matches!(probe.fault(&io), ProbeError::Unreachable(_)));
        assert!(matches!(probe.fault(&server_error(SHUTDOWN)), ProbeError::Unreachable(_)));
        assert!(matches!(probe.fault(&server_error(1040)), ProbeError::Busy(_)));
        let timeout = Error::Timeout(std::time::Duration::from_millis(800));
        assert_eq!(probe.fault(&timeout), ProbeError::Timeout(800));
        let denied = probe.fault(&server_error(1045));
        assert_eq!(
            denied,
            ProbeError::Refused("error 1045 (HY000): m (monitor_username monitor)".to_owned())
        );
        assert!(is_alive(&server_error(1045)) && !is_alive(&server_error(SHUTDOWN)) && !is_alive(&io));
    }
}
