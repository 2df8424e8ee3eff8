//! The door to a running Weir for its own commands: a Unix socket in `datadir`, one JSON object a line in each
//! direction. A client asks `{"report": "digests"}` and gets `{"columns": [...], "rows": [[...], ...]}`, asks
//! `{"drain": "db1:3306"}` and gets `{"done": "..."}`, or in any case `{"error": "..."}`. Only the user that Weir runs as
//! may open it.

mod client;
mod report;
mod server;
mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use weir_topology::Endpoint;

pub(crate) use client::{Door, DoorError};
pub(crate) use report::{Report, Reporter};
pub(crate) use server::Control;
pub(crate) use status::{ServerStatus, Status};

/// How long an order may take: a reload of all workers does not take a second.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);

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
}

/// A request line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// What has been counted.
    Report(Subject),
    /// Roles and servers now: `{"status": {}}`.
    Status {},
    /// Take no more work to this server, `HOST:PORT`.
    Drain(String),
    /// The end of that.
    Undrain(String),
}

/// An answer line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Report(Report),
    Status(Status),
    Done { done: String },
    Refused { error: String },
}

/// What a user wants done, for the thread that owns configuration and roles.
#[derive(Debug)]
pub(crate) enum Deed {
    Drain(Endpoint),
    Undrain(Endpoint),
}

/// A deed, and whom to tell what came of it: a sentence either way.
#[derive(Debug)]
pub(crate) struct Order {
    pub deed: Deed,
    pub reply: SyncSender<Result<String, String>>,
}

/// Hands orders over to where they are obeyed.
pub(crate) type Orders = Box<dyn Fn(Order) + Send>;

/// Has a deed done and waits for it.
fn order(orders: &Orders, deed: Deed) -> Result<String, String> {
    let (reply, answer) = sync_channel(1);
    orders(Order { deed, reply });
    answer.recv_timeout(ORDER_TIMEOUT).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => "not done yet: see `weir status`".to_owned(),
            RecvTimeoutError::Disconnected => "weir is ending".to_owned(),
        })
    })
}

/// Where the socket of a Weir with this `datadir` is.
pub(crate) fn socket_path(datadir: &Path) -> PathBuf {
    datadir.join("weir.sock")
}

/// Why the socket can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// Another Weir listens there.
    #[error("{}: another weir runs with this datadir", .0.display())]
    InUse(PathBuf),
    /// There is something else than a socket.
    #[error("{}: is in the way, and no socket", .0.display())]
    NoSocket(PathBuf),
    /// The system says no.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}
