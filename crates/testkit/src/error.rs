//! Describes why a server could not be started, stopped or asked.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;

/// Why a server could not be started, stopped or asked. Every message says what the user can do about it.
#[derive(Debug, thiserror::Error)]
pub enum TestkitError {
    /// A program is not installed.
    #[error("{program} is not installed: run scripts/install-deps (Debian package {package})")]
    MissingProgram {
        /// The program's or library's name.
        program: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// There is no MySQL where `scripts/get-mysql` puts it.
    #[error("there is no {path}: run scripts/get-mysql (it unpacks MySQL without installing it)", path = path.display())]
    NoMysql {
        /// The program that is missing.
        path: PathBuf,
    },
    /// Somebody else listens where a server of ours shall listen.
    #[error("port {address} is in use by {holder}: stop it or use other addresses")]
    PortInUse {
        /// The address that could not be bound.
        address: SocketAddrV4,
        /// Who holds it.
        holder: PortHolder,
    },
    /// Too little memory is available.
    #[error(
        "{what} needs about {needed_mib} MiB of memory, {available_mib} MiB are available: stop something else"
    )]
    Memory {
        /// What needs the memory.
        what: String,
        /// Needed, MiB.
        needed_mib: u64,
        /// Available (`MemAvailable` of /proc/meminfo), MiB.
        available_mib: u64,
    },
    /// Too little disk space is free.
    #[error("{dir} has {available_mib} MiB of free disk space, {needed_mib} MiB are needed: free some", dir = dir.display())]
    Disk {
        /// The directory on the file system in question.
        dir: PathBuf,
        /// Needed, MiB.
        needed_mib: u64,
        /// Free for this user, MiB.
        available_mib: u64,
    },
    /// An operating system call failed.
    #[error("can't {doing}: {source}")]
    Io {
        /// What was tried, as in "can't read /proc/meminfo".
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program ran and failed.
    #[error("{program} failed ({status}): {output}")]
    ProgramFailed {
        /// The program's name.
        program: String,
        /// Its exit status in words.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A server process ended by itself while it was needed.
    #[error("{name} ended by itself ({status}); the end of its log:\n{log_tail}")]
    ServerExited {
        /// Which server.
        name: String,
        /// Its exit status in words.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {timeout_s} s{details}")]
    Timeout {
        /// The awaited event, as in "node n2 synced".
        what: String,
        /// How long it was waited for, seconds.
        timeout_s: f64,
        /// What was seen instead (starts with ": "), or nothing.
        details: String,
    },
    /// The node is not running, so it can't be asked or signalled.
    #[error("{0} is not running")]
    NotRunning(String),
    /// The caller's cancel flag was raised.
    #[error("interrupted")]
    Cancelled,
    /// The options contradict themselves or the machine.
    #[error("{0}")]
    Options(String),
    /// The other side of a test connection broke the protocol, or closed.
    #[error("protocol: {0}")]
    Protocol(String),
}

impl TestkitError {
    /// Wraps an I/O error with what was being done, for use in `map_err`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> TestkitError {
        move |source| TestkitError::Io { doing: doing.into(), source }
    }
}

/// The process that holds a port, as far as /proc shows it to this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    /// Process id and program name; `None` when the process belongs to another user.
    pub process: Option<(u32, String)>,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some((pid, program)) => write!(f, "pid {pid} ({program})"),
            None => write!(f, "a process of another user"),
        }
    }
}
