//! Receives what comes to a worker from elsewhere, with either driver: messages of other threads, and new clients.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::time::{ClockId, clock_gettime};

use weir_session::login::Check;

use crate::listener::{Accepted, Listening};
use crate::outbox::SocketId;
use crate::shared::{Message, Shared};
use crate::stream::{Stream, keep_alive};
use crate::verifier::Verifier;
use crate::worker::{Nanos, Worker};

/// Clients accepted in a row before the others get their turn.
const ACCEPTS: usize = 64;
/// Event data of the mailbox; sockets' are made by [`token`].
pub(crate) const WAKER: u64 = u64::MAX;
/// Event data of the first listener.
pub(crate) const LISTENERS: u64 = u64::MAX - 1024;

/// Nanoseconds of CLOCK_BOOTTIME, the clock of all deadlines, leases and positions: also of those of the monitor.
pub fn now() -> Nanos {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Event data of a socket.
pub(crate) fn token(id: SocketId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The socket of event data.
pub(crate) fn socket_of(token: u64) -> SocketId {
    SocketId { index: token as u32, generation: (token >> 32) as u32 }
}

/// A worker's mailbox and listeners.
pub struct Lobby {
    worker: usize,
    shared: Arc<Shared>,
    verifier: Verifier,
    inbox: Receiver<Message>,
    listeners: Vec<Listening>,
    is_accepting: bool,
}

/// What a driver has to do after messages.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Clients to be served by this worker.
    pub(crate) clients: Vec<Accepted>,
    /// The listeners are others now: watch these.
    pub(crate) listeners: Option<Vec<Listening>>,
    /// Dropped when all that has been done: who waits for it goes on then.
    pub(crate) barriers: Vec<Sender<()>>,
}

impl Lobby {
    /// The lobby of this worker. It listens where it is told to by message.
    pub fn new(worker: usize, shared: Arc<Shared>, verifier: Verifier, inbox: Receiver<Message>) -> Self {
        Self { worker, shared, verifier, inbox, listeners: Vec::new(), is_accepting: true }
    }

    /// Becomes readable when there are messages.
    pub(crate) fn waker(&self) -> &OwnedFd {
        self.shared.mailboxes[self.worker].waker()
    }

    /// Listeners to take clients from.
    pub(crate) fn listeners(&self) -> &[Listening] {
        &self.listeners
    }

    /// From now on these.
    pub(crate) fn set_listeners(&mut self, listeners: Vec<Listening>) {
        self.listeners = listeners;
    }

    /// Reads the mailbox; what concerns the core is told to it.
    pub(crate) fn messages(&mut self, worker: &mut Worker, now: Nanos) -> News {
        let mut counter = [0; 8];
        let _ = rustix::io::read(self.waker(), &mut counter);
        let mut news = News::default();
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Client(client) => news.clients.push(client),
                Message::Listen(listeners) if self.is_accepting => news.listeners = Some(listeners),
                Message::Listen(_) => {}
                Message::Barrier(barrier) => news.barriers.push(barrier),
                Message::Drain(drain) => {
                    self.is_accepting = false;
                    news.listeners = Some(Vec::new());
                    worker.message(Message::Drain(drain), now);
                }
                message => worker.message(message, now),
            }
        }
        news
    }

    /// Takes clients that wait at a listener: returns those that are for this worker, the others go to the worker with
    /// the fewest. Not all that wait: the others have their turn first.
    pub(crate) fn accept(&mut self, listener: usize) -> Vec<Accepted> {
        let mut own = Vec::new();
        let Some(listener) = self.listeners.get(listener) else { return own };
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok(client) => {
                    let worker = self.shared.worker_for_client(self.worker);
                    self.shared.mailboxes[worker].sessions.fetch_add(1, Ordering::Relaxed);
                    if worker == self.worker {
                        own.push(client);
                    } else {
                        self.shared.mailboxes[worker].send(Message::Client(client));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::error!(%error, "a client could not be accepted");
                    break;
                }
            }
        }
        own
    }

    /// Has a password checked on another thread, if that has room for it.
    pub(crate) fn check(&self, id: SocketId, check: Box<Check>, worker: &mut Worker, now: Nanos) {
        if let Some(verdict) = self.verifier.check(self.worker, id, check) {
            worker.message(Message::Checked(id, verdict), now);
        }
    }

    /// A client that was counted for this worker is not served.
    pub(crate) fn turned_away(&self) {
        self.shared.mailboxes[self.worker].sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Begins to connect to a server; `keepalive` as [`Worker::keepalive`].
///
/// # Errors
/// When the system refuses a socket, or the connection at once.
pub(crate) fn connect(addr: SocketAddr, keepalive: Option<Duration>) -> io::Result<Stream> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(socket.as_fd(), true)?;
    let stream = Stream::new(socket);
    keep_alive(&stream, keepalive);
    match rustix::net::connect(&stream, &addr) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// How a connection that was begun has ended.
pub(crate) fn connected(stream: &Stream) -> io::Result<()> {
    match sockopt::socket_error(stream) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => Err(error.into()),
    }
}
