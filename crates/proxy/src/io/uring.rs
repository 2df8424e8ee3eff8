//! Drives sockets by io_uring, on kernels that allow it: what a batch of completions has produced for all sockets is
//! handed over in one system call, which also waits for the next batch.
//!
//! Bytes in clear are received and sent by the ring. TLS needs the bytes in between, so its sockets are watched, and
//! read and written as with epoll.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::Timespec;
use rustls::ServerConfig;
use weir_uring::{Completion, Operation, Ring};

use super::lobby::{LISTENERS, Lobby, News, WAKER, connect, connected, now, socket_of, token};
use super::streak::Streak;
use super::tls::{Received, Transport};
use crate::listener::Accepted;
use crate::outbox::{Order, SocketId};
use crate::snapshot::ServerTls;
use crate::stream::{Stream, acknowledge_within, forfeit, keep_alive};
use crate::worker::{Nanos, Worker};

/// Buffers that bytes in clear arrive in; none is needed for a socket on which nothing comes. The kernel takes them in
/// turn, so that more of them than a processor's cache holds make each byte dearer. Where too many sockets are ready at
/// once for them, the rest are received after the batch.
const RECEIVE_BUFFERS: u16 = 64;
/// Size of each.
const RECEIVE_BYTES: u32 = 32 << 10;
/// Listeners that are looked at in one round.
const LISTENERS_AT_ONCE: usize = 16;
/// Bytes read from TLS at a time.
const READ_BYTES: usize = 64 << 10;

/// Events of poll(2).
const POLLIN: u32 = 0x1;
const POLLOUT: u32 = 0x4;
const POLLERR: u32 = 0x8;
const POLLHUP: u32 = 0x10;
const POLLRDHUP: u32 = 0x2000;

/// A worker's sockets and its loop.
pub struct Driver {
    worker: Worker,
    lobby: Lobby,
    ring: Ring,
    tls: Option<Arc<ServerConfig>>,
    sockets: Vec<Option<Socket>>,
    /// Watches the listeners, and is watched by the ring itself: what a ring watches stays open for a while after its
    /// process has ended, and a new process could not listen there.
    listening: OwnedFd,
    /// TLS sockets whose last read did not reach the end.
    unread: Vec<SocketId>,
    /// More clients may wait at the listeners.
    has_waiting_clients: bool,
    buffer: Vec<u8>,
    orders: Vec<Order>,
    dirty: Vec<SocketId>,
    streak: Streak,
    /// Sends under way.
    sending: usize,
}

struct Socket {
    id: SocketId,
    stream: Stream,
    link: Link,
}

/// How bytes move on a socket.
enum Link {
    /// Being connected.
    Connecting(Operation),
    /// In clear, by the ring.
    Clear {
        /// The running receive; none while reading is paused, or when the stream has ended.
        receive: Option<Operation>,
        /// A send is under way.
        is_sending: bool,
    },
    /// TLS begins as soon as nothing in clear is under way any more.
    Upgrading { receive: Option<Operation>, is_sending: bool, side: Side },
    /// TLS, by readiness.
    Tls {
        transport: Transport,
        /// Bytes may be waiting that a pause has kept us from reading.
        may_have_more: bool,
    },
}

/// Which side of TLS Weir will be.
enum Side {
    /// The server of a client, of whose TLS these bytes have come already.
    Server(Vec<u8>),
    /// The client of a server.
    Client(Arc<ServerTls>),
}

impl Driver {
    /// A ring for a driver on this thread.
    ///
    /// # Errors
    /// When io_uring is not to be had here.
    pub fn ring() -> io::Result<Ring> {
        Ring::new(RECEIVE_BUFFERS, RECEIVE_BYTES)
    }

    /// A driver for this worker.
    ///
    /// # Errors
    /// When the ring does not take what is to be watched.
    pub fn new(worker: Worker, lobby: Lobby, ring: Ring, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let listening = epoll::create(CreateFlags::CLOEXEC)?;
        let mut driver = Self {
            worker,
            lobby,
            ring,
            tls,
            sockets: Vec::new(),
            listening,
            unread: Vec::new(),
            has_waiting_clients: false,
            buffer: vec![0; READ_BYTES],
            orders: Vec::new(),
            dirty: Vec::new(),
            streak: Streak::default(),
            sending: 0,
        };
        driver.ring.watch(driver.lobby.waker().as_fd(), POLLIN, WAKER)?;
        driver.ring.watch(driver.listening.as_fd(), POLLIN, LISTENERS)?;
        Ok(driver)
    }

    /// Runs until `stop` is set, or a drain is complete.
    ///
    /// # Errors
    /// When the ring itself fails.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        loop {
            if stop.load(Ordering::Relaxed) || self.worker.is_drained() {
                return Ok(());
            }
            let is_idle = self.unread.is_empty() && !self.has_waiting_clients;
            let wait = if is_idle { self.worker.next_deadline().saturating_sub(now()) } else { 0 };
            let (completions, limit) = self.streak.wait(self.sending, Duration::from_nanos(wait));
            self.ring.wait(completions, limit)?;
            // Later than anything that the bytes report which are there now: a write that they acknowledge must not
            // seem older than a probe that began before it.
            let now = now();
            while let Some(completion) = self.ring.next_completion() {
                self.completed(completion, now)?;
            }
            for id in std::mem::take(&mut self.unread) {
                self.read_tls(id, true, now);
            }
            if self.has_waiting_clients {
                self.accept(now)?;
            }
            if self.worker.next_deadline() <= now {
                self.worker.tick(now);
            }
            self.carry_out(now)?;
            self.worker.end_batch();
        }
    }

    fn completed(&mut self, completion: Completion, now: Nanos) -> io::Result<()> {
        if matches!(completion, Completion::Ready { .. }) {
            self.streak.end();
        }
        match completion {
            Completion::Received { token, bytes, more } => {
                let id = socket_of(token);
                let is_open = match bytes {
                    Ok(Some(buffer)) => {
                        self.received(id, &buffer, now);
                        self.ring.recycle(buffer);
                        true
                    }
                    Ok(None) => false,
                    Err(error) => is_passing(&error),
                };
                self.after_receive(id, is_open, more, now)
            }
            Completion::Sent { token, bytes, sent } => {
                self.sending -= 1;
                let id = socket_of(token);
                let is_whole = sent.is_ok_and(|count| count == bytes.len());
                let is_drained = self.worker.out().all_sent(id, bytes);
                self.after_send(id, is_whole, is_drained, now)
            }
            Completion::Ready { token: WAKER, more, .. } => {
                if !more {
                    self.ring.watch(self.lobby.waker().as_fd(), POLLIN, WAKER)?;
                }
                let news = self.lobby.messages(&mut self.worker, now);
                self.take(news, now)
            }
            Completion::Ready { token: LISTENERS, more, .. } => {
                if !more {
                    self.ring.watch(self.listening.as_fd(), POLLIN, LISTENERS)?;
                }
                self.accept(now)
            }
            Completion::Ready { token, events, more } => self.ready(socket_of(token), events, more, now),
        }
    }

    fn take(&mut self, news: News, now: Nanos) -> io::Result<()> {
        for client in news.clients {
            self.add_client(client, now)?;
        }
        if let Some(listeners) = news.listeners {
            for listening in self.lobby.listeners() {
                let _ = epoll::delete(&self.listening, &listening.socket);
            }
            self.lobby.set_listeners(listeners);
            self.watch_listeners()?;
        }
        drop(news.barriers);
        Ok(())
    }

    fn watch_listeners(&self) -> io::Result<()> {
        for (at, listening) in self.lobby.listeners().iter().enumerate() {
            let data = EventData::new_u64(at as u64);
            epoll::add(&self.listening, &listening.socket, data, EventFlags::IN | EventFlags::EXCLUSIVE)?;
        }
        Ok(())
    }

    /// Takes clients from the listeners where some wait.
    fn accept(&mut self, now: Nanos) -> io::Result<()> {
        let mut events = [const { MaybeUninit::uninit() }; LISTENERS_AT_ONCE];
        let now_or_never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) = epoll::wait(&self.listening, &mut events, Some(&now_or_never))?;
        // The ring tells only of clients that come from now on: those who wait are for the next round.
        self.has_waiting_clients = !events.is_empty();
        for event in events {
            let epoll::Event { data, .. } = *event;
            for client in self.lobby.accept(data.u64() as usize) {
                self.add_client(client, now)?;
            }
        }
        Ok(())
    }

    fn add_client(&mut self, client: Accepted, now: Nanos) -> io::Result<()> {
        let Some(id) = self.worker.accept(client.peer, &client.listener, now) else {
            self.lobby.turned_away();
            return Ok(());
        };
        if !client.peer.is_local() {
            keep_alive(&client.stream, self.worker.keepalive());
        }
        let receive = Some(self.ring.receive(client.stream.as_fd(), token(id))?);
        self.add(id, client.stream, Link::Clear { receive, is_sending: false });
        Ok(())
    }

    fn add(&mut self, id: SocketId, stream: Stream, link: Link) {
        let index = id.index as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(Socket { id, stream, link });
    }

    fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(id.index as usize)?.as_mut().filter(|socket| socket.id == id)
    }

    fn received(&mut self, id: SocketId, buffer: &weir_uring::Buffer, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        if socket.id != id {
            return;
        }
        let bytes = self.ring.bytes(buffer);
        self.streak.received(id, bytes.len());
        match &mut socket.link {
            // What comes between a pause and the end of the receive is not lost either.
            Link::Clear { .. } => self.worker.data(id, bytes, now),
            Link::Upgrading { side: Side::Server(leftover), .. } => leftover.extend_from_slice(bytes),
            // A server has nothing to say before its client's TLS begins.
            Link::Upgrading { .. } => self.worker.closed(id, now),
            Link::Connecting(_) | Link::Tls { .. } => {}
        }
    }

    /// A receive has brought something or has ended: it goes on unless the core does not want more.
    fn after_receive(&mut self, id: SocketId, is_open: bool, more: bool, now: Nanos) -> io::Result<()> {
        let is_paused = self.worker.out().is_paused(id);
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        if socket.id != id {
            return Ok(());
        }
        match &mut socket.link {
            Link::Clear { receive, .. } => {
                if !more {
                    *receive = None;
                }
                if !is_open {
                    self.worker.closed(id, now);
                } else if is_paused {
                    if let Some(receive) = *receive {
                        self.ring.cancel(receive)?;
                    }
                } else if receive.is_none() {
                    *receive = Some(self.ring.receive(socket.stream.as_fd(), token(id))?);
                }
            }
            Link::Upgrading { receive, .. } => {
                if !more {
                    *receive = None;
                }
                if is_open {
                    return self.finish_upgrade(id, now);
                }
                self.worker.closed(id, now);
            }
            Link::Connecting(_) | Link::Tls { .. } => {}
        }
        Ok(())
    }

    fn after_send(&mut self, id: SocketId, is_whole: bool, is_drained: bool, now: Nanos) -> io::Result<()> {
        let Some(socket) = self.socket(id) else { return Ok(()) };
        if let Link::Clear { is_sending, .. } | Link::Upgrading { is_sending, .. } = &mut socket.link {
            *is_sending = false;
        }
        if !is_whole {
            self.worker.closed(id, now);
            return Ok(());
        }
        if is_drained {
            self.worker.drained(id, now);
        }
        self.finish_upgrade(id, now)?;
        self.flush(id, now)
    }

    /// A watched socket is ready: it is connected, or speaks TLS.
    fn ready(&mut self, id: SocketId, events: u32, more: bool, now: Nanos) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        if socket.id != id {
            return Ok(());
        }
        match &socket.link {
            Link::Connecting(watch) => {
                self.ring.cancel(*watch)?;
                let result = connected(&socket.stream);
                let receive = match result {
                    Ok(()) => Some(self.ring.receive(socket.stream.as_fd(), token(id))?),
                    Err(_) => None,
                };
                socket.link = Link::Clear { receive, is_sending: false };
                self.worker.connected(id, result, now);
                self.flush(id, now)
            }
            Link::Tls { .. } => {
                if !more {
                    self.ring.watch(socket.stream.as_fd(), POLLIN | POLLOUT | POLLRDHUP, token(id))?;
                }
                if events & POLLOUT != 0 {
                    self.flush(id, now)?;
                }
                let ends = events & (POLLRDHUP | POLLHUP | POLLERR) != 0;
                if ends || events & POLLIN != 0 {
                    self.read_tls(id, ends, now);
                }
                Ok(())
            }
            // The last word of a watch that was cancelled.
            Link::Clear { .. } | Link::Upgrading { .. } => Ok(()),
        }
    }

    /// Reads once; `ends` if the peer has closed, so that the end must be reached.
    fn read_tls(&mut self, id: SocketId, ends: bool, now: Nanos) {
        let is_paused = self.worker.out().is_paused(id);
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        let Link::Tls { transport, may_have_more } = &mut socket.link else { return };
        if socket.id != id {
            return;
        }
        *may_have_more = is_paused;
        if is_paused {
            return;
        }
        match transport.receive(&socket.stream, &mut self.buffer) {
            Received::Bytes { count, more } => {
                self.worker.certified(id, transport.take_client_certificate());
                self.worker.data(id, &mut self.buffer[..count], self::now()); // as in `prepare_connection`
                if more || ends {
                    self.unread.push(id);
                }
            }
            Received::Nothing => {}
            Received::Closed => return self.worker.closed(id, now),
            Received::Broken(reason) => return self.worker.tls_failed(id, &reason.to_string(), now),
        }
        // A handshake may be over, for which bytes wait.
        self.flush_tls(id, now);
    }

    /// Carries out what the core has ordered and queues what it has to send, until it wants nothing more.
    fn carry_out(&mut self, now: Nanos) -> io::Result<()> {
        loop {
            let mut dirty = std::mem::take(&mut self.dirty);
            self.worker.out().take_dirty(&mut dirty);
            for id in dirty.drain(..) {
                self.flush(id, now)?;
            }
            self.dirty = dirty;
            let mut orders = std::mem::take(&mut self.orders);
            self.worker.out().take_orders(&mut orders);
            let is_done = orders.is_empty();
            for order in orders.drain(..) {
                self.carry_out_one(order, now)?;
            }
            self.orders = orders;
            if is_done && !self.worker.out().has_dirty() {
                return Ok(());
            }
        }
    }

    fn carry_out_one(&mut self, order: Order, now: Nanos) -> io::Result<()> {
        match order {
            Order::Connect(id, addr) => match connect(addr, self.worker.keepalive()) {
                Ok(stream) => {
                    let watch = self.ring.watch(stream.as_fd(), POLLOUT, token(id))?;
                    self.add(id, stream, Link::Connecting(watch));
                }
                Err(error) => self.worker.connected(id, Err(error), now),
            },
            Order::StartTls(id, leftover) => return self.start_tls(id, Side::Server(leftover), now),
            Order::StartServerTls(id, tls) => return self.start_tls(id, Side::Client(tls), now),
            Order::Check(id, check) => self.lobby.check(id, check, &mut self.worker, now),
            Order::Resume(id) => return self.resume(id),
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
            Order::Close(id) => return self.close(id),
        }
        Ok(())
    }

    fn resume(&mut self, id: SocketId) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        if socket.id != id {
            return Ok(());
        }
        match &mut socket.link {
            Link::Clear { receive: receive @ None, .. } => {
                *receive = Some(self.ring.receive(socket.stream.as_fd(), token(id))?);
            }
            Link::Tls { may_have_more: true, .. } => self.unread.push(id),
            _ => {}
        }
        Ok(())
    }

    /// Closes a socket, after what can be sent at once has been sent.
    fn close(&mut self, id: SocketId) -> io::Result<()> {
        // What is queued for the descriptor must be with the kernel before its number can mean another one.
        self.ring.submit()?;
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            self.worker.out().forget(id);
            return Ok(());
        };
        if socket.id == id {
            let unsent = self.worker.out().unsent(id);
            match &mut socket.link {
                Link::Clear { is_sending: false, .. } if !unsent.is_empty() => {
                    let _ = Transport::Plain.send(&socket.stream, unsent);
                }
                Link::Tls { transport, .. } => {
                    let _ = transport.send(&socket.stream, unsent);
                }
                _ => {}
            }
            // The kernel holds the socket until its operations have ended, which this makes them do.
            let _ = rustix::net::shutdown(&socket.stream, rustix::net::Shutdown::Both);
            self.sockets[id.index as usize] = None;
        }
        self.worker.out().forget(id);
        Ok(())
    }

    fn start_tls(&mut self, id: SocketId, side: Side, now: Nanos) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let Link::Clear { receive, is_sending } = socket.link else { return Ok(()) };
        if let Some(receive) = receive {
            self.ring.cancel(receive)?;
        }
        socket.link = Link::Upgrading { receive, is_sending, side };
        self.finish_upgrade(id, now)
    }

    /// Begins TLS if nothing in clear is under way any more.
    fn finish_upgrade(&mut self, id: SocketId, now: Nanos) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let Link::Upgrading { receive: None, is_sending: false, side } = &socket.link else { return Ok(()) };
        let transport = match (side, &self.tls) {
            (Side::Server(leftover), Some(config)) => {
                Transport::start_tls(config.clone(), leftover).map_err(|error| error.to_string())
            }
            (Side::Server(_), None) => Err("no certificate".to_owned()),
            (Side::Client(tls), _) => Transport::start_server_tls(tls).map_err(|error| error.to_string()),
        };
        let is_client = matches!(side, Side::Client(_));
        match transport {
            Ok(transport) => {
                socket.link = Link::Tls { transport, may_have_more: false };
                self.ring.watch(socket.stream.as_fd(), POLLIN | POLLOUT | POLLRDHUP, token(id))?;
                if is_client {
                    self.worker.encrypted(id, now);
                }
                self.unread.push(id);
                self.flush_tls(id, now);
            }
            Err(error) => self.worker.tls_failed(id, &error, now),
        }
        Ok(())
    }

    /// Sends what is queued, or sees to it that it will be.
    fn flush(&mut self, id: SocketId, now: Nanos) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        if socket.id != id {
            return Ok(());
        }
        match &mut socket.link {
            Link::Clear { is_sending: is_sending @ false, .. } => {
                if let Some(bytes) = self.worker.out().take_unsent(id) {
                    *is_sending = true;
                    self.ring.send(socket.stream.as_fd(), bytes, token(id))?;
                    self.sending += 1;
                }
            }
            Link::Tls { .. } => self.flush_tls(id, now),
            Link::Clear { .. } | Link::Upgrading { .. } | Link::Connecting(_) => {}
        }
        Ok(())
    }

    fn flush_tls(&mut self, id: SocketId, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        let Link::Tls { transport, .. } = &mut socket.link else { return };
        loop {
            let bytes = self.worker.out().unsent(id);
            if bytes.is_empty() && !transport.wants_write() {
                return;
            }
            let length = bytes.len();
            match transport.send(&socket.stream, bytes) {
                Ok(count) => {
                    if count > 0 && self.worker.out().sent(id, count) {
                        return self.worker.drained(id, now);
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

/// Errors of a receive after which it can be begun again: no buffer was free, it was cancelled, a signal came.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::NOBUFS, Errno::CANCELED, Errno::INTR, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| passing.iter().any(|errno| errno.raw_os_error() == code))
}
