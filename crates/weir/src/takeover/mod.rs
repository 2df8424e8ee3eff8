//! Hands the listening sockets of a running process to a new one, which goes on while the old one drains.
//!
//! The way in is the control socket of the datadir. One JSON object a line in each direction; a socket goes with the line
//! that names it (SCM_RIGHTS, unix(7)):
//!
//! ```text
//! new process                                        old process
//! {"takeover": {"version": "0.2.0"}}            ──►  from here on nothing is changed: no reload, no order, no SAVE
//!      starts up, learns the roles              ◄──  {"begin": {"version": "0.1.0", "writers": [[10, ["db1:3306"]]]}}
//! {"sockets": {}}                               ──►
//!                                               ◄──  {"socket": {"name": "listener 0.0.0.0:6033"}} + descriptor, ...
//!                                               ◄──  {"socket": {"name": "admin 127.0.0.1:6032"}} + descriptor, ...
//!      everything stands that may fail          ◄──  {"sockets": {"count": 3}}
//! {"ready": {}}                                 ──►  lets go of the sockets, writes nothing into the datadir any more
//!      takes clients                            ◄──  {"done": {}}
//!                                                    drains, ends
//! ```
//!
//! "ready" decides: when the old process sees the end of the conversation before it, it goes on as if nothing had been; when
//! the new one sees it after having said it, it goes on alone. Clients that come between the two wait in the queues of the
//! sockets, which are never closed. Nobody else may connect than the user that Weir runs as.

mod message_stream;
mod new_process;
mod old_process;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(crate) use new_process::{Predecessor, Sockets, TakeoverError};
pub(crate) use old_process::{ReplySender, TakeoverRequest, converse};

/// Sockets of a Weir at most, of all kinds.
const SOCKETS_MAX: usize = 1024;
/// A longer line is refused.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The name of the control socket.
pub(crate) const CONTROL: &str = "control";
/// The names of clients' listeners begin with this; the address follows.
pub(crate) const LISTENER: &str = "listener ";
/// The same for the admin port.
pub(crate) const ADMIN: &str = "admin ";
/// The same for HTTP.
pub(crate) const HTTP: &str = "http ";

/// Has what is saved stay as it is, or ends that. Waits for what is being saved: not for the main thread.
pub(crate) type Seal = Arc<dyn Fn(bool) + Send + Sync>;

/// A listening socket with the name that both processes know it by.
#[derive(Debug)]
pub(crate) struct Socket {
    pub name: String,
    pub socket: OwnedFd,
}

/// The state of the old process at the time of a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PredecessorState {
    pub version: String,
    /// The present writers, by writer hostgroup.
    pub writers: Vec<(u32, Vec<String>)>,
}

/// A message of the new process after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ask {
    Sockets {},
    Ready {},
}

/// A message of the old process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Say {
    Begin(PredecessorState),
    Socket { name: String },
    Sockets { count: usize },
    Done {},
    Error(String),
}
