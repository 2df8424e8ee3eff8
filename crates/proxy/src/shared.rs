//! Connects the workers: their mailboxes and a few counters. Nothing of it is touched on the steady path of a
//! statement.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use weir_protocol::handshake::ConnectAttributes;
use weir_query_log::QueryLogs;
use weir_session::login::PasswordResult;
use weir_topology::ServerShared;

use crate::listener::{Accepted, Listening};
use crate::outbox::SocketId;
use crate::snapshot::{Snapshot, Users};
use crate::stats::{FullTables, ReportPart, WorkerReport};

/// What one thread tells a worker.
#[derive(Debug)]
pub enum Message {
    /// A client that another worker accepted and that this one is to serve.
    Client(Accepted),
    /// Listen on these from now on, and on nothing else.
    Listen(Vec<Listening>),
    /// What came of the check of a password that the worker ordered.
    Checked(SocketId, PasswordResult),
    /// New configuration or roles.
    Snapshot(Arc<Snapshot>),
    /// Another worker needs a connection to a server and may not open one.
    Wanted {
        /// The server.
        endpoint: Arc<str>,
        /// The worker that asks.
        by: usize,
    },
    /// The right to open one connection to a server, given up by another worker.
    Credit {
        /// The server's counters.
        server: Arc<ServerShared>,
    },
    /// Nothing but a reason to look up: the service is stopping.
    Wake,
    /// Kill sessions of this worker, or only their statements. Answered by [`Message::Killed`].
    Kill {
        /// Whose.
        victims: Victims,
        /// KILL QUERY.
        query_only: bool,
        /// Who asks for it: a user may kill its own sessions only.
        user: String,
        /// Where the answer goes.
        by: Asker,
    },
    /// What has become of a [`Message::Kill`].
    Killed {
        /// Who asked.
        to: Asker,
        /// What has become of it.
        outcome: KillOutcome,
    },
    /// Kill a session of this worker, or only its statement, for an admin, who may.
    KillByAdmin {
        /// The connection id.
        session: u32,
        /// KILL QUERY.
        query_only: bool,
        /// Whether there was such a session.
        to: Sender<bool>,
    },
    /// Tell what you have counted.
    Report {
        /// What of it.
        part: ReportPart,
        /// These counters begin again: those of digests, errors and servers can.
        begins_again: bool,
        /// Where the answer goes.
        to: Sender<WorkerReport>,
    },
    /// Servers have applied what sessions of this worker wait for, or nobody can tell any more.
    Covered,
    /// Sessions that may write to a server are to leave it, with open transactions that can run again elsewhere.
    MoveWriters {
        /// As `host:port`.
        endpoint: Arc<str>,
    },
    /// Close the sessions that may still write to this server: it is to be the writer no more.
    CutWriters {
        /// The server.
        endpoint: Arc<str>,
    },
    /// Dropped in its turn, so that whoever holds the other end sees that all messages before it have been taken.
    Barrier(Sender<()>),
    /// Take no more clients, let the running work end.
    Drain(Drain),
}

/// Why a worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The service is stopped.
    Stop,
    /// Another process takes the clients that come from now on. Those who have just come must not notice: a login goes on,
    /// and its first command is served.
    Takeover,
}

/// The sessions that a KILL means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The one with this connection id.
    Session(u32),
    /// All of the user who asks.
    OfUser,
}

/// A session that waits for an answer from another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its worker.
    pub worker: usize,
    /// Its key there.
    pub session: usize,
    /// Tells whether the key still means the same session.
    pub socket: SocketId,
}

/// What has become of a KILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillOutcome {
    /// So many sessions were struck.
    Killed(u32),
    /// Nobody has this connection id.
    Unknown,
    /// The session is another user's.
    NotOwner,
}

/// One worker, seen from outside.
#[derive(Debug)]
pub struct Mailbox {
    sender: Sender<Message>,
    waker: OwnedFd,
    /// Clients of this worker, on their way to it included.
    pub sessions: AtomicUsize,
    /// Commands that this worker's clients have sent, as of its last look at the clock.
    pub questions: AtomicU64,
}

impl Mailbox {
    /// Delivers a message and wakes the worker. False if the worker has ended.
    pub fn send(&self, message: Message) -> bool {
        let is_there = self.sender.send(message).is_ok();
        if is_there {
            let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        }
        is_there
    }

    /// The eventfd that becomes readable with each message.
    pub fn waker(&self) -> &OwnedFd {
        &self.waker
    }
}

/// All workers.
#[derive(Debug)]
pub struct Shared {
    /// By worker number.
    pub mailboxes: Vec<Mailbox>,
    /// Clients connected to all workers.
    pub clients: AtomicU32,
    /// Tells the clock of this process from all others', in causal tokens: a random number, not 0.
    pub origin: u64,
    /// What Weir says of itself at servers: encoded connection attributes.
    pub attributes: Arc<[u8]>,
    /// Where workers put tables of digests that are full.
    pub full_tables: Arc<FullTables>,
    /// The way to the events log, the slow log and the audit log.
    pub query_logs: QueryLogs,
    /// The users of the snapshot that was published last, for who reads statistics: no worker has to tell of them.
    users: Mutex<Arc<Users>>,
    reports: Reports,
}

/// What the workers tell: of servers, which they name by their endpoints, for the monitor, and of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report<'a> {
    /// A connection broke, or a statement was turned away.
    Suspect(&'a str),
    /// A connection could not be made.
    ConnectFailed {
        /// The server.
        endpoint: &'a str,
        /// Why.
        cause: &'a str,
    },
    /// A worker has ended although nobody wanted it to; its sessions are gone.
    WorkerEnded {
        /// Its number.
        worker: usize,
        /// Why.
        cause: &'a str,
    },
}

/// Takes reports. It must not block.
pub type Reporter = Box<dyn Fn(Report<'_>) + Send + Sync>;

struct Reports(Reporter);

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reports")
    }
}

impl Shared {
    /// Mailboxes for so many workers, and the ends that the workers read. `origin`: see [`Self::origin`].
    ///
    /// # Errors
    /// When the system gives no more file descriptors.
    pub fn new(
        workers: usize,
        origin: u64,
        reporter: Reporter,
    ) -> std::io::Result<(Arc<Self>, Vec<Receiver<Message>>)> {
        let mut mailboxes = Vec::with_capacity(workers);
        let mut receivers = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (sender, receiver) = channel();
            let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            mailboxes.push(Mailbox {
                sender,
                waker,
                sessions: AtomicUsize::new(0),
                questions: AtomicU64::new(0),
            });
            receivers.push(receiver);
        }
        let shared = Self {
            mailboxes,
            clients: AtomicU32::new(0),
            origin,
            attributes: attributes(std::process::id()).into(),
            full_tables: Arc::default(),
            query_logs: QueryLogs::new(workers),
            users: Mutex::default(),
            reports: Reports(reporter),
        };
        Ok((Arc::new(shared), receivers))
    }

    /// The users of the snapshot that was published last.
    pub fn users(&self) -> Arc<Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// These are the users from now on.
    pub fn set_users(&self, users: &Arc<Users>) {
        *self.users.lock().unwrap_or_else(PoisonError::into_inner) = users.clone();
    }

    /// Something seems to be wrong with a server: somebody should look at it.
    pub fn suspect(&self, endpoint: &str) {
        (self.reports.0)(Report::Suspect(endpoint));
    }

    /// A server could not be connected to.
    pub fn connect_failed(&self, endpoint: &str, cause: &str) {
        (self.reports.0)(Report::ConnectFailed { endpoint, cause });
    }

    /// A worker can't go on.
    pub(crate) fn worker_ended(&self, worker: usize, cause: &str) {
        (self.reports.0)(Report::WorkerEnded { worker, cause });
    }

    /// Sends the same message to all workers.
    pub fn broadcast(&self, message: impl Fn() -> Message) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }

    /// The worker that should serve a new client which `accepting` has accepted: itself, unless another one has
    /// fewer clients.
    pub fn worker_for_client(&self, accepting: usize) -> usize {
        let load = |worker: usize| self.mailboxes[worker].sessions.load(Ordering::Relaxed);
        let least = (0..self.mailboxes.len()).min_by_key(|worker| load(*worker)).unwrap_or(accepting);
        if load(accepting) <= load(least) { accepting } else { least }
    }
}

/// Connection attributes by the names that MySQL's own client library gives (its manual, "Performance Schema Connection
/// Attribute Tables").
fn attributes(pid: u32) -> Vec<u8> {
    let pid = pid.to_string();
    let pairs = [
        ("program_name", "weir"),
        ("_client_name", "weir"),
        ("_client_version", env!("CARGO_PKG_VERSION")),
        ("_os", std::env::consts::OS),
        ("_platform", std::env::consts::ARCH),
        ("_pid", &pid),
    ];
    let mut encoded = Vec::new();
    for (name, value) in pairs {
        ConnectAttributes::put(&mut encoded, name.as_bytes(), value.as_bytes());
    }
    encoded
}
