//! Drives sockets by edge-triggered epoll, which works everywhere. All bytes that a batch of events has produced for a
//! socket leave in one write at the end of the batch.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use rustls::ServerConfig;

use super::lobby::{LISTENERS, Lobby, News, WAKER, connect, connected, now, socket_of, token};
use super::tls::{Received, Transport};
use crate::listener::{Accepted, Listening};
use crate::outbox::{Order, SocketId};
use crate::snapshot::ServerTls;
use crate::stream::{Stream, acknowledge_within, forfeit, keep_alive};
use crate::worker::{Nanos, Worker};

/// Bytes read from a socket at a time.
const READ_BYTES: usize = 128 << 10;
/// Events taken at a time.
const EVENTS: usize = 512;

/// A worker's sockets and its loop.
pub struct Driver {
    worker: Worker,
    lobby: Lobby,
    epoll: OwnedFd,
    tls: Option<Arc<ServerConfig>>,
    sockets: Vec<Option<Socket>>,
    /// Sockets whose last read did not reach the end.
    unread: Vec<SocketId>,
    buffer: Vec<u8>,
    orders: Vec<Order>,
    dirty: Vec<SocketId>,
}

struct Socket {
    id: SocketId,
    stream: Stream,
    transport: Transport,
    is_connecting: bool,
    /// Bytes may be waiting that a pause has kept us from reading.
    may_have_more: bool,
}

impl Driver {
    /// A driver for this worker.
    ///
    /// # Errors
    /// When the system refuses an epoll instance or a registration.
    pub fn new(worker: Worker, lobby: Lobby, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, lobby.waker(), EventData::new_u64(WAKER), EventFlags::IN)?;
        let driver = Self {
            worker,
            lobby,
            epoll,
            tls,
            sockets: Vec::new(),
            unread: Vec::new(),
            buffer: vec![0; READ_BYTES],
            orders: Vec::new(),
            dirty: Vec::new(),
        };
        Ok(driver)
    }

    /// Runs until `stop` is set, or a drain is complete.
    ///
    /// # Errors
    /// When epoll itself fails.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            if stop.load(Ordering::Relaxed) || self.worker.is_drained() {
                return Ok(());
            }
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = now();
            for event in events.drain(..) {
                let epoll::Event { flags, data } = event;
                self.event(data.u64(), flags, now);
            }
            self.read_unread(now);
            if self.worker.next_deadline() <= now {
                self.worker.tick(now);
            }
            self.carry_out(now);
            self.worker.end_batch();
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.unread.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let wait = self.worker.next_deadline().saturating_sub(now());
        Some(Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as _ })
    }

    fn event(&mut self, data: u64, flags: EventFlags, now: Nanos) {
        if data == WAKER {
            let news = self.lobby.messages(&mut self.worker, now);
            return self.take(news, now);
        }
        if data >= LISTENERS {
            for client in self.lobby.accept((data - LISTENERS) as usize) {
                self.add_client(client, now);
            }
            return;
        }
        let id = socket_of(data);
        let Some(socket) = self.socket(id) else { return };
        if socket.is_connecting {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            socket.is_connecting = false;
            let result = connected(&socket.stream);
            self.worker.connected(id, result, now);
        }
        if flags.intersects(EventFlags::OUT) {
            self.flush(id, now);
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            self.read(id, ends, now);
        }
    }

    fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(id.index as usize)?.as_mut().filter(|socket| socket.id == id)
    }

    /// Reads once; `ends` if the peer has closed, so that the end must be reached.
    fn read(&mut self, id: SocketId, ends: bool, now: Nanos) {
        let is_paused = self.worker.out().is_paused(id);
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        if socket.id != id {
            return;
        }
        if is_paused {
            socket.may_have_more = true;
            return;
        }
        socket.may_have_more = false;
        match socket.transport.receive(&socket.stream, &mut self.buffer) {
            Received::Bytes { count, more } => {
                // Later than anything that these bytes report: a write that they acknowledge must not seem older
                // than a probe that began before it.
                let now = self::now();
                self.worker.certified(id, socket.transport.take_client_certificate());
                self.worker.data(id, &mut self.buffer[..count], now);
                if more || ends {
                    self.unread.push(id);
                }
                if self.socket(id).is_some_and(|socket| socket.transport.wants_write()) {
                    self.flush(id, now);
                }
            }
            // A handshake may be over, for which bytes wait.
            Received::Nothing if socket.transport.is_tls() => self.flush(id, now),
            Received::Nothing => {}
            Received::Closed => self.worker.closed(id, now),
            Received::Broken(reason) => self.worker.tls_failed(id, &reason.to_string(), now),
        }
    }

    fn read_unread(&mut self, now: Nanos) {
        if self.unread.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.unread) {
            // Reading on is safe at any time; the end is told again by whatever follows the last byte.
            self.read(id, true, now);
        }
    }

    fn take(&mut self, news: News, now: Nanos) {
        for client in news.clients {
            self.add_client(client, now);
        }
        if let Some(listeners) = news.listeners
            && let Err(error) = self.listen(listeners)
        {
            tracing::error!(%error, "a listener could not be registered");
        }
        drop(news.barriers);
    }

    /// Takes clients from these listeners and no others.
    fn listen(&mut self, listeners: Vec<Listening>) -> io::Result<()> {
        for listening in self.lobby.listeners() {
            let _ = epoll::delete(&self.epoll, &listening.socket);
        }
        self.lobby.set_listeners(listeners);
        self.watch_listeners()
    }

    fn watch_listeners(&self) -> io::Result<()> {
        for (at, listening) in self.lobby.listeners().iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + at as u64);
            epoll::add(&self.epoll, &listening.socket, data, EventFlags::IN | EventFlags::EXCLUSIVE)?;
        }
        Ok(())
    }

    fn add_client(&mut self, client: Accepted, now: Nanos) {
        let Some(id) = self.worker.accept(client.peer, &client.listener, now) else {
            return self.lobby.turned_away();
        };
        if !client.peer.is_local() {
            keep_alive(&client.stream, self.worker.keepalive());
        }
        if let Err(error) = self.add(id, client.stream, false) {
            tracing::error!(%error, "a client's socket could not be registered");
            self.worker.closed(id, now);
        }
    }

    fn add(&mut self, id: SocketId, stream: Stream, is_connecting: bool) -> io::Result<()> {
        let data = EventData::new_u64(token(id));
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &stream, data, interest)?;
        let index = id.index as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, || None);
        }
        let socket = Socket { id, stream, transport: Transport::Plain, is_connecting, may_have_more: false };
        self.sockets[index] = Some(socket);
        Ok(())
    }

    /// Carries out what the core has ordered and sends what it has queued, until it wants nothing more.
    fn carry_out(&mut self, now: Nanos) {
        loop {
            let mut dirty = std::mem::take(&mut self.dirty);
            self.worker.out().take_dirty(&mut dirty);
            for id in dirty.drain(..) {
                self.flush(id, now);
            }
            self.dirty = dirty;
            let mut orders = std::mem::take(&mut self.orders);
            self.worker.out().take_orders(&mut orders);
            let is_done = orders.is_empty();
            for order in orders.drain(..) {
                self.carry_out_one(order, now);
            }
            self.orders = orders;
            if is_done && !self.worker.out().has_dirty() {
                return;
            }
        }
    }

    fn carry_out_one(&mut self, order: Order, now: Nanos) {
        match order {
            Order::Connect(id, addr) => {
                let result =
                    connect(addr, self.worker.keepalive()).and_then(|stream| self.add(id, stream, true));
                if let Err(error) = result {
                    self.worker.connected(id, Err(error), now);
                }
            }
            Order::StartTls(id, leftover) => self.start_tls(id, &leftover, now),
            Order::StartServerTls(id, tls) => self.start_server_tls(id, &tls, now),
            Order::Check(id, check) => {
                self.lobby.check(id, check, &mut self.worker, now);
            }
            Order::Resume(id) => {
                if self.socket(id).is_some_and(|socket| socket.may_have_more) {
                    self.unread.push(id);
                }
            }
            Order::AcknowledgeWithin(id, time) => {
                if let Some(socket) = self.socket(id) {
                    acknowledge_within(&socket.stream, time);
                }
            }
            Order::Forfeit(id) => {
                if let Some(socket) = self.socket(id) {
                    forfeit(&socket.stream);
                }
            }
            Order::Close(id) => {
                self.flush(id, now);
                self.worker.out().forget(id);
                if self.socket(id).is_some() {
                    self.sockets[id.index as usize] = None;
                }
            }
        }
    }

    fn start_tls(&mut self, id: SocketId, leftover: &[u8], now: Nanos) {
        let Some(config) = self.tls.clone() else { return self.worker.closed(id, now) };
        let transport = Transport::start_tls(config, leftover);
        let Some(socket) = self.socket(id) else { return };
        match transport {
            Ok(transport) => {
                socket.transport = transport;
                // Bytes may have come between the request and here.
                self.unread.push(id);
                self.flush(id, now);
            }
            Err(error) => {
                tracing::debug!(%error, "TLS could not be started");
                self.worker.closed(id, now);
            }
        }
    }

    fn start_server_tls(&mut self, id: SocketId, tls: &ServerTls, now: Nanos) {
        // The request for TLS is the first that was ever sent: there is room for it, or something is wrong.
        let is_sent = self.worker.out().unsent(id).is_empty();
        let transport = Transport::start_server_tls(tls);
        let Some(socket) = self.socket(id) else { return };
        match transport {
            Ok(transport) if is_sent => {
                socket.transport = transport;
                self.worker.encrypted(id, now);
                self.unread.push(id);
            }
            Ok(_) => self.worker.closed(id, now),
            Err(error) => self.worker.tls_failed(id, &error.to_string(), now),
        }
    }

    /// Sends what is queued, as far as the socket takes it.
    fn flush(&mut self, id: SocketId, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        if socket.id != id || socket.is_connecting {
            return;
        }
        loop {
            let bytes = self.worker.out().unsent(id);
            if bytes.is_empty() && !socket.transport.wants_write() {
                return;
            }
            let length = bytes.len();
            match socket.transport.send(&socket.stream, bytes) {
                Ok(count) => {
                    if count > 0 && self.worker.out().sent(id, count) {
                        self.worker.drained(id, now);
                        return;
                    }
                    if count < length || count == 0 {
                        return;
                    }
                }
                Err(_) => return self.worker.closed(id, now),
            }
        }
    }
}
