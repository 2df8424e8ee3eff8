//! The door to a running Weir for its own commands: a Unix socket in `datadir`, one JSON object a line in each
//! direction. A client asks `{"report": "digests"}` and gets `{"columns": [...], "rows": [[...], ...]}`, or
//! `{"error": "..."}`. Only the user that Weir runs as may open it.

mod report;
mod server;

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use report::{Report, Reporter};
pub(crate) use server::Control;

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
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub report: Subject,
}

/// An answer line.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Report(Report),
    Refused { error: String },
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
