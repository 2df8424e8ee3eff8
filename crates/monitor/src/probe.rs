//! Probes a server once, over a connection that is kept.

mod galera;
mod group_replication;
mod replication;

use std::time::{Duration, Instant, SystemTime};

use weir_client::{Connection, Error, Options};
use weir_topology::{Millis, ProbeError, ServerState};

use crate::change_watch::Watch;
use crate::clock::monotonic_ms;
use crate::server_check::RiskWatch;
use crate::settings::Kind;

/// Server errors that say that the server is alive and has no room: ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS,
/// ER_USER_LIMIT_REACHED.
const BUSY: [u16; 3] = [1040, 1203, 1226];
/// ER_SERVER_SHUTDOWN.
const SHUTDOWN: u16 = 1053;

/// How often a server of a cluster is pinged for its latency. What it is asked at each look takes longer than a ping.
const PING_PAUSE: Duration = Duration::from_secs(1);
/// How often a new connection is tried while those of the data path fail.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);

/// The result of one probe.
pub(crate) struct ProbeResult {
    /// The server's state, or why there is none.
    pub(crate) result: Result<ServerState, ProbeError>,
    /// How long a ping took, if there was one.
    pub(crate) ping: Option<Duration>,
    /// A new connection was made.
    pub(crate) accepts: bool,
    /// When it began.
    pub(crate) at: SystemTime,
    /// How long it took to get the state.
    pub(crate) took: Duration,
    /// When the server was asked for it, if it was.
    pub(crate) asked_at: Option<Millis>,
    /// What was tried on the way, for the log.
    pub(crate) attempts: Vec<Attempt>,
}

/// A connection or a ping.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) what: What,
    /// When it began.
    pub(crate) at: SystemTime,
    /// How long it took.
    pub(crate) took: Duration,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Connect,
    Ping,
}

impl Attempt {
    /// Does it, and notes how it went.
    fn make<T>(
        what: What,
        attempts: &mut Vec<Self>,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (at, began) = (SystemTime::now(), Instant::now());
        let result = make();
        let error = result.as_ref().err().map(ToString::to_string);
        attempts.push(Self { what, at, took: began.elapsed(), error });
        result
    }
}

/// Looks at one server over a connection that is kept.
pub(crate) struct Probe {
    kind: Kind,
    options: Options,
    connection: Option<Connection>,
    version: Option<String>,
    galera: galera::Memory,
    /// The last ping.
    pinged_at: Option<Instant>,
    ping: Option<Duration>,
    asked_at: Option<Millis>,
    /// The last attempt to make a new connection.
    connected_at: Option<Instant>,
    attempts: Vec<Attempt>,
    /// The server lives, and does not let the monitor in: the log has been told.
    is_kept_out: bool,
}

impl Probe {
    pub(crate) fn new(kind: Kind, options: Options) -> Self {
        Self {
            kind,
            options,
            connection: None,
            version: None,
            galera: galera::Memory::default(),
            pinged_at: None,
            ping: None,
            asked_at: None,
            connected_at: None,
            attempts: Vec::new(),
            is_kept_out: false,
        }
    }

    /// The version in the last greeting.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Asks the server; also for a new connection, if it `is_shunned`.
    pub(crate) fn look(&mut self, is_shunned: bool) -> ProbeResult {
        let (at, began) = (SystemTime::now(), Instant::now());
        let result = self.state();
        let took = began.elapsed();
        let is_due = self.connected_at.is_none_or(|at| at.elapsed() >= CONNECT_PAUSE);
        let mut accepts = false;
        if is_shunned && is_due && result.is_ok() {
            let options = &self.options;
            accepts = match Attempt::make(What::Connect, &mut self.attempts, || Connection::connect(options))
            {
                Ok(_) => true,
                // Without a cluster an answer is enough, as it is for the state.
                Err(error) => self.kind == Kind::Ping && is_alive(&error) && !is_full(&error),
            };
            self.connected_at = Some(Instant::now());
        }
        let attempts = std::mem::take(&mut self.attempts);
        ProbeResult {
            result,
            ping: self.ping.take(),
            accepts,
            at,
            took,
            asked_at: self.asked_at.take(),
            attempts,
        }
    }

    /// Looks for changes of accounts and defaults, over the same connection. What comes of it is no part of a look.
    pub(crate) fn watch(&mut self, watch: &mut Watch) {
        let Some(connection) = &mut self.connection else { return };
        watch.look(connection, &self.options);
        if connection.is_broken() {
            self.connection = None;
        }
    }

    /// The same for settings that are a risk.
    pub(crate) fn watch_risks(&mut self, watch: &mut RiskWatch) {
        let Some(connection) = &mut self.connection else { return };
        watch.look(connection);
        if connection.is_broken() {
            self.connection = None;
        }
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
            Ok(state) => {
                self.is_kept_out = false;
                Ok(state)
            }
            Err(error) if self.kind == Kind::Ping && is_alive(&error) => {
                self.tell_kept_out(&error);
                Ok(ServerState::Alive)
            }
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Without a cluster nothing else shows that the monitor is blind, and with it all that goes by what it sees.
    fn tell_kept_out(&mut self, error: &Error) {
        if is_full(error) || std::mem::replace(&mut self.is_kept_out, true) {
            return;
        }
        let (host, port, user) = (&self.options.host, self.options.port, &self.options.user);
        tracing::warn!(
            server = %format_args!("{host}:{port}"),
            monitor_username = user,
            %error,
            "the monitor can't log in: changes of accounts and defaults go unnoticed until login_max_age_ms is over, and \
             settings of the server are not known"
        );
    }

    fn ask(&mut self) -> Result<ServerState, Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let options = &self.options;
                let mut connection =
                    Attempt::make(What::Connect, &mut self.attempts, || Connection::connect(options))?;
                self.version = Some(connection.server_version().to_owned());
                if self.kind == Kind::Galera {
                    self.galera.begin(&mut connection)?;
                }
                self.connection.insert(connection)
            }
        };
        let now = Instant::now();
        let is_pinged =
            self.kind == Kind::Ping || self.pinged_at.is_none_or(|at| now.duration_since(at) >= PING_PAUSE);
        if is_pinged {
            Attempt::make(What::Ping, &mut self.attempts, || connection.ping())?;
            self.ping = Some(now.elapsed());
            self.pinged_at = Some(now);
        }
        self.asked_at = Some(monotonic_ms());
        Ok(match self.kind {
            Kind::Ping => ServerState::Alive,
            Kind::Galera => self.galera.state(connection)?.into(),
            Kind::GroupReplication => group_replication::state(connection)?.into(),
            Kind::Replication { asks_source } => replication::state(connection, asks_source)?.into(),
        })
    }

    fn fault(&self, error: &Error) -> ProbeError {
        match error {
            Error::Timeout(allowed) => {
                ProbeError::Timeout(u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX))
            }
            Error::Server { code, .. } if BUSY.contains(code) => ProbeError::Busy(error.to_string()),
            Error::Server { code: SHUTDOWN, .. } | Error::Io { .. } | Error::Unresolved(_) => {
                ProbeError::Unreachable(error.to_string())
            }
            _ => ProbeError::Refused(format!("{error} (monitor_username {})", self.options.user)),
        }
    }
}

/// Whether an error is the answer of a server that works: without a cluster it is enough that it speaks, whatever it
/// thinks of the monitor's account.
fn is_alive(error: &Error) -> bool {
    match error {
        Error::Server { code, .. } => *code != SHUTDOWN,
        Error::Unsupported(_) | Error::NoTls | Error::PasswordWithheld => true,
        _ => false,
    }
}

/// Whether the server has no room for another connection.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Server { code, .. } if BUSY.contains(code))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn server_error(code: u16) -> Error {
        Error::Server { code, sqlstate: "HY000".to_owned(), message: "m".to_owned() }
    }

    #[test]
    fn faults_by_what_they_prove() {
        let probe = Probe::new(Kind::Galera, Options::new("db1", 3306, "monitor", "geheim"));
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
