//! Serves the commands of `weir` at a running Weir: a Unix socket in `datadir`, one JSON object a line in each
//! direction. A client asks `{"report": "digests"}` and gets `{"columns": [...], "rows": [[...], ...]}`, asks
//! `{"drain": "db1:3306"}` and gets `{"done": "..."}`, or in any case `{"error": "..."}`. Only the user that Weir runs as
//! may open it.

mod client;
mod server;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use weir_operations::{Progress, ProgressEvent, SwitchoverOrder, progress};
use weir_statistics::{Report, Statistics, Status};
use weir_top::TopData;
use weir_topology::Endpoint;

use crate::takeover::TakeoverRequest;
use crate::tls::Certificate;

pub(crate) use client::{ControlClient, ControlClientError};
pub(crate) use server::Control;

/// How long a step of an order may take: a reload of all workers does not take a second, a switchover waits for its
/// grace.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest grace: statements that are held get an error after connect_timeout_server_max (10 s by default).
pub(crate) const GRACE_MS_MAX: u64 = weir_config::SWITCHOVER_GRACE_MS_MAX;

/// A longer request or answer is refused.
const REQUEST_BYTES_MAX: usize = 4 << 10;
/// Answers come from this side, but a mistaken socket must not fill the memory.
pub(crate) const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    /// Statements by digest: how often, how long, how many rows
    Digests,
    /// Statements by kind: how often, how long
    Commands,
    /// Servers with the role and the state they have now, and why
    Servers,
    /// Connections to each server, and what has gone over them
    Pool,
    /// Errors that servers have answered with
    Errors,
    /// Query rules: how often each has matched
    Rules,
    /// The events, slow and audit log: lines written, and lines left out
    Logs,
}

impl Subject {
    /// The report on it as of now.
    fn report(self, statistics: &Statistics) -> Report {
        match self {
            Self::Digests => statistics.digest_report(),
            Self::Commands => statistics.command_report(),
            Self::Servers => statistics.server_report(),
            Self::Pool => statistics.pool_report(),
            Self::Errors => statistics.error_report(),
            Self::Rules => statistics.rule_report(),
            Self::Logs => statistics.log_report(),
        }
    }
}

/// A request line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// What has been counted.
    Report(Subject),
    /// Roles and servers now: `{"status": {}}`.
    Status {},
    /// What `weir top` shows: `{"glance": {}}`.
    #[serde(rename = "glance")]
    TopData {},
    /// Take no more work to this server, `HOST:PORT`.
    Drain(String),
    /// The end of that.
    Undrain(String),
    /// The same, also for Weirs that are no more.
    #[serde(rename = "undrain_by_force")]
    UndrainByForce(String),
    /// Move the writer role. Progress comes before the answer: `{"step": "..."}` lines.
    Switchover { hostgroup: u32, to: Option<String>, force: bool, dry_run: bool, grace_ms: Option<u64> },
    /// A new process, of this version, wants to take over: see [`crate::takeover`].
    Takeover { version: String },
}

/// An answer line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Report(Report),
    Status(Status),
    TopData {
        #[serde(rename = "glance")]
        top_data: Box<TopData>,
    },
    Step {
        step: String,
    },
    Done {
        done: String,
    },
    Refused {
        error: String,
    },
}

/// A user's order, for the thread that owns configuration and roles.
#[derive(Debug)]
pub(crate) enum Action {
    Drain(Endpoint),
    /// With `force` also where Weirs want it out that are no more.
    Undrain {
        server: Endpoint,
        force: bool,
    },
    Switchover(SwitchoverOrder),
    /// Take no new clients; those who are there stay.
    Pause,
    /// The end of that.
    Resume,
    /// Use this certificate, which was read again.
    ReloadTls(Certificate),
    TakeOver(TakeoverRequest),
}

/// An action, and whom to tell what comes of it.
#[derive(Debug)]
pub(crate) struct Order {
    pub action: Action,
    pub progress: Progress,
}

/// Hands orders over to where they are obeyed.
pub(crate) type Orders = Arc<dyn Fn(Order) + Send + Sync>;

/// Has something done and waits for it; `step` is called with what is done meanwhile.
pub(crate) fn order(orders: &Orders, action: Action, mut step: impl FnMut(String)) -> Result<String, String> {
    let (progress, events) = progress();
    orders(Order { action, progress });
    loop {
        match events.recv_timeout(ORDER_TIMEOUT) {
            Ok(ProgressEvent::Step(text)) => step(text),
            Ok(ProgressEvent::End(done)) => return done,
            Err(RecvTimeoutError::Timeout) => return Err("not done yet: see `weir status`".to_owned()),
            Err(RecvTimeoutError::Disconnected) => return Err("weir is shutting down".to_owned()),
        }
    }
}

/// Where the socket of a Weir with this `datadir` is.
pub(crate) fn socket_path(datadir: &Path) -> PathBuf {
    datadir.join(weir_config::CONTROL_SOCKET)
}

/// Why the socket can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// Another Weir listens there.
    #[error("{}: another weir runs with this datadir", .0.display())]
    InUse(PathBuf),
    /// There is something else than a socket.
    #[error("{} is not a socket: move it away", .0.display())]
    NoSocket(PathBuf),
    /// The system says no.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}
