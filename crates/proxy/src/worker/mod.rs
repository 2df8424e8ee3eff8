//! Runs all sessions, server connections and pools of a worker as one state machine without I/O.
//!
//! The driver hands in events ([`Worker::accept`], [`Worker::data`], [`Worker::connected`], [`Worker::closed`],
//! [`Worker::drained`], [`Worker::message`], [`Worker::tick`]) with the time, and afterwards empties [`Worker::out`].
//! Nothing here reads a clock, a socket or a random source, so that everything can be tested as bytes in and
//! bytes out.

pub mod census;
pub(crate) mod clients;
pub(crate) mod idle_timeout;
pub(crate) mod kill;
pub(crate) mod late_writes;
pub(crate) mod leaving;
pub(crate) mod maintenance;
pub(crate) mod reload;
pub(crate) mod replies;
pub(crate) mod report;
pub(crate) mod sessions;
pub(crate) mod timers;
pub(crate) mod turns;

use std::sync::Arc;
use std::time::Duration;

use weir_config::Listener;

use crate::context::Context;
pub use crate::keys::Nanos;
use crate::outbox::{Outbox, Owner, SocketId};
use crate::peer::Peer;
use crate::pool::pools::Pools;
use crate::shared::{Message, Shared};
use crate::snapshot::Snapshot;
use crate::worker::sessions::Sessions;

/// See the module's text.
pub struct Worker {
    pub(crate) ctx: Context,
    pub(crate) sessions: Sessions,
    pub(crate) pools: Pools,
}

impl Worker {
    /// A worker with this number. `seed` is secret: scrambles are made from it.
    pub fn new(
        worker: usize,
        shared: Arc<Shared>,
        snapshot: Arc<Snapshot>,
        seed: [u8; 32],
        now: Nanos,
    ) -> Self {
        let mut worker = Self {
            ctx: Context::new(worker, shared, snapshot.clone(), seed, now),
            sessions: Sessions::default(),
            pools: Pools::new(worker),
        };
        worker.take_snapshot(snapshot);
        worker
    }

    /// What is to be done to sockets.
    pub fn out(&mut self) -> &mut Outbox {
        &mut self.ctx.out
    }

    /// A client has connected to a listener. Its socket's events come under the id that is returned; `None` when the worker
    /// takes no clients any more.
    pub fn accept(&mut self, peer: Peer, listener: &Arc<Listener>, now: Nanos) -> Option<SocketId> {
        self.ctx.pass_to(now);
        let socket = self.greet(peer, listener);
        self.run_runnable();
        socket
    }

    /// Bytes have come. They may be changed in place (sequence ids are).
    pub fn data(&mut self, socket: SocketId, bytes: &mut [u8], now: Nanos) {
        self.ctx.pass_to(now);
        match self.ctx.out.owner(socket) {
            Some(Owner::Session(key)) => self.work(key).client_data(bytes),
            Some(Owner::Server(key)) => self.server_data(key, bytes),
            None => {}
        }
        self.run_runnable();
    }

    /// The peer has shown this certificate (DER) in TLS, before the bytes that come next; none: nothing new.
    pub fn certified(&mut self, socket: SocketId, certificate: Option<Vec<u8>>) {
        let Some(certificate) = certificate else { return };
        if let Some(Owner::Session(key)) = self.ctx.out.owner(socket) {
            self.work(key).client_certified(&certificate);
        }
    }

    /// A connection that was ordered stands, or could not be made.
    pub fn connected(&mut self, socket: SocketId, result: std::io::Result<()>, now: Nanos) {
        self.ctx.pass_to(now);
        if let Some(Owner::Server(key)) = self.ctx.out.owner(socket) {
            match result {
                Ok(()) => self.pools.reached(&mut self.ctx, key),
                Err(error) => self.pools.dial_failed(&mut self.ctx, key, None, &error.to_string()),
            }
        }
        self.run_runnable();
    }

    /// TLS towards a server has begun, as ordered: what is queued from now on goes through it.
    pub fn encrypted(&mut self, socket: SocketId, now: Nanos) {
        self.ctx.pass_to(now);
        if let Some(Owner::Server(key)) = self.ctx.out.owner(socket) {
            self.pools.connections[key].server_encrypted(&mut self.ctx);
        }
    }

    /// TLS can't go on, for this reason; the socket is of no use any more.
    pub fn tls_failed(&mut self, socket: SocketId, reason: &str, now: Nanos) {
        self.ctx.pass_to(now);
        match self.ctx.out.owner(socket) {
            Some(Owner::Server(key)) if self.pools.connections[key].access.login.is_some() => {
                self.pools.dial_failed(&mut self.ctx, key, None, &format!("TLS: {reason}"));
                self.run_runnable();
            }
            _ => self.closed(socket, now),
        }
    }

    /// The peer has closed, or the socket broke.
    pub fn closed(&mut self, socket: SocketId, now: Nanos) {
        self.ctx.pass_to(now);
        match self.ctx.out.owner(socket) {
            Some(Owner::Session(key)) => self.work(key).client_gone(),
            Some(Owner::Server(key)) => self.server_gone(key),
            None => {}
        }
        self.run_runnable();
    }

    /// Everything queued for a socket has been sent, after [`Outbox::notify_drained`].
    pub fn drained(&mut self, socket: SocketId, now: Nanos) {
        self.ctx.pass_to(now);
        match self.ctx.out.owner(socket) {
            Some(Owner::Session(key)) => self.work(key).client_drained(),
            Some(Owner::Server(key)) => {
                if let Some(holder) = self.pools.connections[key].holder {
                    self.work(holder).server_drained();
                }
            }
            None => {}
        }
        self.run_runnable();
    }

    /// Another thread has something to say. [`Message::Client`] and [`Message::Listen`] are the driver's own
    /// business.
    pub fn message(&mut self, message: Message, now: Nanos) {
        self.ctx.pass_to(now);
        match message {
            Message::Client(..) | Message::Listen(..) | Message::Wake | Message::Barrier(_) => {}
            Message::Checked(socket, verdict) => self.password_checked(socket, verdict),
            Message::Snapshot(snapshot) => self.take_snapshot(snapshot),
            Message::Wanted { endpoint, by } => self.pools.connection_wanted(&mut self.ctx, &endpoint, by),
            Message::Credit { server } => self.pools.credit_given(&mut self.ctx, &server),
            Message::Kill { victims, query_only, user, by } => {
                self.kill_asked(victims, query_only, &user, by);
            }
            Message::KillByAdmin { session, query_only, to } => {
                // Who asked may have given up.
                let _ = to.send(self.kill_by_admin(session, query_only));
            }
            Message::Killed { to, outcome } => self.kill_answered(to, outcome),
            Message::Report { part, begins_again, to } => {
                // Whoever asked may have gone.
                let _ = to.send(self.report(part, begins_again));
            }
            Message::Covered => {
                self.pools.coverage_grown(&self.ctx);
                if std::mem::take(&mut self.pools.awaits_gtid) {
                    self.ctx.timers.unpark(now);
                }
            }
            Message::MoveWriters { endpoint } => self.move_writers(&endpoint),
            Message::CutWriters { endpoint } => self.cut_writers(&endpoint),
            Message::Drain(drain) => self.drain(drain),
        }
        self.run_runnable();
    }

    /// After how long a silence the system asks a peer over TCP whether it is still there, for connections that begin
    /// now; zero: as the system has it, `None`: never.
    pub fn keepalive(&self) -> Option<Duration> {
        let variables = &self.ctx.snapshot.variables;
        variables.use_tcp_keepalive.then_some(variables.tcp_keepalive_time)
    }

    /// Clients connected to this worker.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Whether a drain is complete: nobody is left.
    pub fn is_drained(&self) -> bool {
        self.ctx.drain.until.is_some() && self.sessions.is_empty()
    }

    /// Gives those who have waited their turn, and takes up sessions that an event has set free, one after the other: a chain of sessions that hand on a
    /// connection must not become a chain of calls.
    pub(crate) fn run_runnable(&mut self) {
        loop {
            self.hear();
            if let Some(turn) = self.pools.turns.pop_front() {
                self.take_turn(turn);
            } else if let Some((key, socket)) = self.ctx.runnable.pop_front() {
                if self.sessions.is(key, socket) {
                    self.work(key).advance();
                }
            } else {
                break;
            }
        }
        while let Some((key, socket)) = self.ctx.ended.pop() {
            if self.sessions.is(key, socket) {
                self.remove(key);
            }
        }
    }

    /// The end of a batch: what was logged in it goes to the writer. Never waits.
    pub fn end_batch(&mut self) {
        self.ctx.query_log.feed.flush();
    }
}
