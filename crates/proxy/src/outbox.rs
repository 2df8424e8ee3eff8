//! Collects what a worker wants done to sockets: bytes to send and a few orders. The worker fills it, the I/O driver
//! empties it at the end of each batch of events, so that all bytes for one socket leave in one system call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use weir_session::login::Check;

use crate::snapshot::ServerTls;

/// Output waiting for one socket above which the core stops reading from the other side.
pub const BACKLOG_HIGH_BYTES: usize = 256 << 10;
/// Buffers that grew beyond this do not go to the spare list.
const SPARE_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Spare buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 1024;
/// A piece of this size is put into a large buffer, if there is one to spare.
const LARGE_PIECE_BYTES: usize = 8 << 10;
/// Large buffers beyond this are given back to the allocator,
const LARGE_BUFFER_BYTES_MAX: usize = 512 << 10;
/// and so are more than these.
const LARGE_BUFFERS_MAX: usize = 2;
/// Sent bytes that stay at the front of a buffer, if less than half of it: moving the rest has a cost, too.
const SENT_BYTES_KEPT: usize = 64 << 10;
/// First capacity of an output buffer.
const BUFFER_BYTES: usize = 1 << 10;

/// A socket of this worker. Never reused for another socket: the generation tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    /// Place in the driver's and the outbox's tables.
    pub index: u32,
    /// Counts the sockets that have had this place.
    pub generation: u32,
}

/// Whose socket it is: the key of a session or of a backend connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A client's.
    Session(usize),
    /// A server's.
    Server(usize),
}

/// An order to the driver, carried out in sequence.
#[derive(Debug)]
pub enum Order {
    /// Open a TCP connection; answered by `Core::connected`.
    Connect(SocketId, SocketAddr),
    /// Speak TLS (as the server) from here on; `leftover` bytes were read behind the request for it.
    StartTls(SocketId, Vec<u8>),
    /// Speak TLS (as the client) from here on, once everything queued has left; answered by `Core::encrypted`.
    StartServerTls(SocketId, Arc<ServerTls>),
    /// Have a password checked elsewhere; answered by `Message::Checked`.
    Check(SocketId, Box<Check>),
    /// Bytes may be waiting that nobody has read since the socket was paused.
    Resume(SocketId),
    /// Give up the connection when bytes that have left are not acknowledged within this time, in place of sending them
    /// again and again; zero: as the system has it.
    AcknowledgeWithin(SocketId, Duration),
    /// What the system has of this socket and the peer does not is not to be delivered any more; a Close follows.
    Forfeit(SocketId),
    /// Close, after what can be sent at once has been sent. No event of this socket comes after it.
    Close(SocketId),
}

#[derive(Debug)]
struct Out {
    /// `None` once the core has closed it.
    owner: Option<Owner>,
    buffer: Vec<u8>,
    sent: usize,
    /// What is behind this place in the buffer is not to be sent yet, and may be taken back.
    held_from: Option<usize>,
    is_dirty: bool,
    is_paused: bool,
    /// The core wants to know when everything has been sent.
    wants_drained: bool,
    /// Bytes that the driver has taken and not said to be sent yet.
    in_flight: usize,
}

/// Bytes that the driver has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBytes {
    /// To clients.
    pub clients: u64,
    /// To servers.
    pub servers: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Outbox {
    sockets: Slab<Out>,
    generations: Vec<u32>,
    dirty: Vec<SocketId>,
    orders: Vec<Order>,
    spare: Vec<Vec<u8>>,
    /// Bytes sent so far to clients and to servers.
    sent_bytes: SentBytes,
    /// Spare buffers of large transfers, which would grow to the same size again and again.
    large: Vec<Vec<u8>>,
}

impl Outbox {
    /// A place for a new socket.
    pub fn open(&mut self, owner: Owner) -> SocketId {
        let index = self.sockets.insert(Out {
            owner: Some(owner),
            buffer: Vec::new(),
            sent: 0,
            held_from: None,
            is_dirty: false,
            is_paused: false,
            wants_drained: false,
            in_flight: 0,
        });
        if index == self.generations.len() {
            self.generations.push(0);
        }
        SocketId { index: index as u32, generation: self.generations[index] }
    }

    /// Who owns it; `None` when it is closed.
    pub fn owner(&self, socket: SocketId) -> Option<Owner> {
        self.out(socket).and_then(|out| out.owner)
    }

    /// Queues bytes.
    pub fn send(&mut self, socket: SocketId, bytes: &[u8]) {
        if bytes.len() >= LARGE_PIECE_BYTES {
            self.take_large(socket, bytes.len());
        }
        if let Some(buffer) = self.buffer(socket) {
            buffer.extend_from_slice(bytes);
        }
    }

    /// A larger buffer for a socket that has none yet, or a small one that would have to grow: the end of a row may come
    /// before a large piece.
    fn take_large(&mut self, socket: SocketId, more: usize) {
        let has_room = |out: &Out| {
            let len = out.buffer.len();
            len > LARGE_PIECE_BYTES || (out.buffer.capacity() > 0 && len + more <= out.buffer.capacity())
        };
        if self.out(socket).is_some_and(|out| !has_room(out))
            && let Some(mut large) = self.large.pop()
            && let Some(out) = self.out_mut(socket)
        {
            large.extend_from_slice(&out.buffer);
            let small = std::mem::replace(&mut out.buffer, large);
            if small.capacity() > 0 {
                self.spare(small);
            }
        }
    }

    /// The buffer to append to; `None` when the socket is closed.
    pub fn buffer(&mut self, socket: SocketId) -> Option<&mut Vec<u8>> {
        if self.generations.get(socket.index as usize) != Some(&socket.generation) {
            return None;
        }
        let out = self.sockets.get_mut(socket.index as usize)?;
        if !out.is_dirty {
            out.is_dirty = true;
            self.dirty.push(socket);
        }
        if out.buffer.capacity() == 0 {
            out.buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES));
        }
        Some(&mut out.buffer)
    }

    /// Bytes queued and not yet sent.
    pub fn backlog_bytes(&self, socket: SocketId) -> usize {
        self.out(socket).map_or(0, |out| out.buffer.len() - out.sent + out.in_flight)
    }

    /// What is queued from now on waits for [`Outbox::release`], or is taken back.
    pub fn hold(&mut self, socket: SocketId) {
        if let Some(out) = self.out_mut(socket) {
            out.held_from.get_or_insert(out.buffer.len());
        }
    }

    /// Bytes that wait for [`Outbox::release`].
    pub fn held_bytes(&self, socket: SocketId) -> usize {
        self.out(socket).map_or(0, |out| out.buffer.len() - out.sendable())
    }

    /// The bytes themselves.
    pub fn held(&mut self, socket: SocketId) -> &mut [u8] {
        match self.out_mut(socket) {
            Some(out) => {
                let from = out.sendable();
                &mut out.buffer[from..]
            }
            None => &mut [],
        }
    }

    /// What was held goes to the driver.
    pub fn release(&mut self, socket: SocketId) {
        if let Some(out) = self.out_mut(socket)
            && out.held_from.take().is_some_and(|from| from < out.buffer.len())
            && !std::mem::replace(&mut out.is_dirty, true)
        {
            self.dirty.push(socket);
        }
    }

    /// Forgets what was held, as if it had never been queued.
    pub fn take_back(&mut self, socket: SocketId) {
        if let Some(out) = self.out_mut(socket)
            && let Some(from) = out.held_from.take()
        {
            out.buffer.truncate(from);
        }
    }

    /// Asks for `Core::drained` once everything queued has been sent, but for what is held.
    pub fn notify_drained(&mut self, socket: SocketId) {
        if let Some(out) = self.out_mut(socket) {
            out.wants_drained = true;
        }
    }

    /// Stops (or takes up) reading from a socket.
    pub fn pause(&mut self, socket: SocketId, pause: bool) {
        if let Some(out) = self.out_mut(socket)
            && out.is_paused != pause
        {
            out.is_paused = pause;
            if !pause {
                self.orders.push(Order::Resume(socket));
            }
        }
    }

    /// Whether reading is stopped.
    pub fn is_paused(&self, socket: SocketId) -> bool {
        self.out(socket).is_some_and(|out| out.is_paused)
    }

    /// Gives an order.
    pub fn order(&mut self, order: Order) {
        self.orders.push(order);
    }

    /// Bytes that have come behind a request for TLS, before the driver could carry out the order for it, belong to
    /// TLS. False if no such order waits.
    pub fn add_to_tls(&mut self, socket: SocketId, bytes: &[u8]) -> bool {
        let leftover = self.orders.iter_mut().find_map(|order| match order {
            Order::StartTls(id, leftover) if *id == socket => Some(leftover),
            _ => None,
        });
        let Some(leftover) = leftover else { return false };
        leftover.extend_from_slice(bytes);
        true
    }

    /// Closes a socket: nothing more is queued for it and none of its events reach the core.
    pub fn close(&mut self, socket: SocketId) {
        if let Some(out) = self.out_mut(socket)
            && out.owner.take().is_some()
        {
            self.orders.push(Order::Close(socket));
        }
    }

    /// The same, and what has not reached the peer yet is not to reach it, as far as that can be prevented.
    pub fn abort(&mut self, socket: SocketId) {
        let Some(out) = self.out_mut(socket) else { return };
        if out.owner.is_none() {
            return;
        }
        out.buffer.clear();
        out.sent = 0;
        out.held_from = None;
        self.orders.push(Order::Forfeit(socket));
        self.close(socket);
    }

    /// The driver takes the orders given so far, into `orders`.
    pub fn take_orders(&mut self, orders: &mut Vec<Order>) {
        orders.append(&mut self.orders);
    }

    /// The driver takes the list of sockets with new bytes, into `dirty`.
    pub fn take_dirty(&mut self, dirty: &mut Vec<SocketId>) {
        for socket in &self.dirty {
            if let Some(out) = self.sockets.get_mut(socket.index as usize) {
                out.is_dirty = false;
            }
        }
        dirty.append(&mut self.dirty);
    }

    /// Whether some socket has new bytes.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// What is to be sent now.
    pub fn unsent(&self, socket: SocketId) -> &[u8] {
        self.out(socket).map_or(&[], |out| &out.buffer[out.sent..out.sendable()])
    }

    /// The driver takes what is to be sent; it gets nothing more until it says [`Outbox::all_sent`].
    pub fn take_unsent(&mut self, socket: SocketId) -> Option<Vec<u8>> {
        let out = self.out_mut(socket)?;
        if out.in_flight > 0 || out.sendable() <= out.sent {
            return None;
        }
        let mut bytes = std::mem::take(&mut out.buffer);
        if let Some(from) = out.held_from.as_mut() {
            // An earlier reply is still there: it goes alone.
            out.buffer = bytes.split_off(std::mem::take(from));
        }
        bytes.drain(..std::mem::take(&mut out.sent));
        out.in_flight = bytes.len();
        Some(bytes)
    }

    /// What the driver took is sent. True when there is no more and the core wants to know.
    pub fn all_sent(&mut self, socket: SocketId, bytes: Vec<u8>) -> bool {
        self.count(socket, bytes.len());
        self.spare(bytes);
        let Some(out) = self.out_mut(socket) else { return false };
        out.in_flight = 0;
        out.sendable() <= out.sent && std::mem::take(&mut out.wants_drained)
    }

    fn spare(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        match buffer.capacity() {
            ..=SPARE_BUFFER_BYTES_MAX if self.spare.len() < SPARE_BUFFERS_MAX => self.spare.push(buffer),
            ..=SPARE_BUFFER_BYTES_MAX => {}
            ..=LARGE_BUFFER_BYTES_MAX if self.large.len() < LARGE_BUFFERS_MAX => self.large.push(buffer),
            _ => {}
        }
    }

    /// The driver has sent `count` bytes. True when that was all and the core wants to know.
    pub fn sent(&mut self, socket: SocketId, count: usize) -> bool {
        self.count(socket, count);
        let Some(out) = self.out_mut(socket) else { return false };
        out.sent += count;
        if out.sent < out.sendable() {
            // What is sent goes, or the buffer of a client that is always a little behind would grow for ever.
            if out.sent >= SENT_BYTES_KEPT && out.sent >= out.buffer.len() - out.sent {
                out.buffer.drain(..out.sent);
                out.held_from = out.held_from.map(|from| from - out.sent);
                out.sent = 0;
            }
            return false;
        }
        let sent = std::mem::take(&mut out.sent);
        let wants_drained = std::mem::take(&mut out.wants_drained);
        if out.held_from.is_some() {
            out.buffer.drain(..sent);
            out.held_from = Some(0);
            return wants_drained;
        }
        let buffer = std::mem::take(&mut out.buffer);
        self.spare(buffer);
        wants_drained
    }

    fn count(&mut self, socket: SocketId, sent: usize) {
        match self.owner(socket) {
            Some(Owner::Session(_)) => self.sent_bytes.clients += sent as u64,
            Some(Owner::Server(_)) => self.sent_bytes.servers += sent as u64,
            None => {}
        }
    }

    /// Bytes sent so far.
    pub fn sent_bytes(&self) -> SentBytes {
        self.sent_bytes
    }

    /// The driver has closed the socket.
    pub fn forget(&mut self, socket: SocketId) {
        if self.out(socket).is_some() {
            self.sockets.remove(socket.index as usize);
            let generation = &mut self.generations[socket.index as usize];
            *generation = generation.wrapping_add(1);
        }
    }

    fn out(&self, socket: SocketId) -> Option<&Out> {
        let index = socket.index as usize;
        (self.generations.get(index) == Some(&socket.generation)).then(|| self.sockets.get(index)).flatten()
    }

    fn out_mut(&mut self, socket: SocketId) -> Option<&mut Out> {
        let index = socket.index as usize;
        if self.generations.get(index) != Some(&socket.generation) {
            return None;
        }
        self.sockets.get_mut(index)
    }
}

impl Out {
    /// How far the buffer may be sent.
    fn sendable(&self) -> usize {
        self.held_from.unwrap_or(self.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_transfer_has_its_buffer_again_and_no_more_than_that() {
        let mut out = Outbox::default();
        let socket = out.open(Owner::Session(0));
        let piece = vec![7; 200_000];
        let mut places = std::collections::HashSet::new();
        for round in 0..10 {
            if round % 2 == 1 {
                out.send(socket, b"the end of a row that came in two parts");
            }
            out.send(socket, &piece);
            let bytes = out.take_unsent(socket).expect("there is something to send");
            places.insert(bytes.as_ptr());
            out.all_sent(socket, bytes);
        }
        assert!(places.len() <= 2, "{} buffers", places.len());
        out.send(socket, b"small");
        assert!(out.buffer(socket).is_some_and(|buffer| buffer.capacity() <= SPARE_BUFFER_BYTES_MAX));
        out.send(socket, &vec![7; LARGE_BUFFER_BYTES_MAX + 1]);
        let huge = out.take_unsent(socket).expect("there is something to send");
        out.all_sent(socket, huge);
        assert!(out.large.iter().chain(&out.spare).all(|spare| spare.capacity() <= LARGE_BUFFER_BYTES_MAX));
    }

    #[test]
    fn what_is_sent_is_counted_however_the_driver_sends() {
        let mut outbox = Outbox::default();
        let (client, server) = (outbox.open(Owner::Session(1)), outbox.open(Owner::Server(1)));
        for socket in [client, server] {
            outbox.send(socket, b"four");
            outbox.sent(socket, 4);
        }
        outbox.send(client, b"seven..");
        let bytes = outbox.take_unsent(client).unwrap();
        outbox.all_sent(client, bytes);
        let sent = outbox.sent_bytes();
        assert_eq!((sent.clients, sent.servers), (11, 4));
    }

    #[test]
    fn what_is_held_is_not_sent_and_can_be_taken_back() {
        let mut out = Outbox::default();
        let socket = out.open(Owner::Session(0));
        out.hold(socket);
        out.send(socket, b"half");
        assert_eq!((out.unsent(socket), out.held_bytes(socket)), (&b""[..], 4));
        assert_eq!((out.take_unsent(socket), out.backlog_bytes(socket)), (None, 4));
        out.take_back(socket);
        out.send(socket, b"first");
        out.hold(socket);
        out.send(socket, b"second");
        assert_eq!(out.unsent(socket), b"first");
        assert!(!out.sent(socket, 5) && out.unsent(socket).is_empty());
        let mut dirty = Vec::new();
        out.take_dirty(&mut dirty);
        out.release(socket);
        assert!(out.has_dirty() && out.unsent(socket) == b"second");
        assert!(!out.sent(socket, 6) && out.backlog_bytes(socket) == 0);
        // As io_uring takes it: whole buffers.
        out.send(socket, b"third");
        out.hold(socket);
        out.send(socket, b"four");
        assert_eq!(out.take_unsent(socket).as_deref(), Some(&b"third"[..]));
        assert!(!out.all_sent(socket, Vec::new()) && out.take_unsent(socket).is_none());
        out.send(socket, b"th");
        out.release(socket);
        assert_eq!(out.take_unsent(socket).as_deref(), Some(&b"fourth"[..]));
        // Held before the last bytes of an earlier reply have gone, and nothing queued since.
        out.all_sent(socket, Vec::new());
        out.send(socket, b"fifth");
        out.hold(socket);
        out.sent(socket, 5);
        out.send(socket, b"sixth");
        assert_eq!((out.unsent(socket), out.held_bytes(socket)), (&b""[..], 5));
    }

    #[test]
    fn a_reader_that_is_always_a_little_behind_costs_a_bounded_buffer() {
        let mut out = Outbox::default();
        let socket = out.open(Owner::Session(0));
        let piece = [7; 10_000];
        let mut taken = 0_usize;
        out.send(socket, &piece);
        for _ in 0..10_000 {
            out.send(socket, &piece);
            assert!(!out.sent(socket, piece.len()), "one piece is always left");
            taken += piece.len();
        }
        assert_eq!(out.backlog_bytes(socket), piece.len());
        let capacity = out.buffer(socket).map_or(0, |buffer| buffer.capacity());
        assert!(capacity <= 4 * SENT_BYTES_KEPT, "{capacity} bytes for {taken} that went through");
    }
}
