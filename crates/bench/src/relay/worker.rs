//! Runs a thread of the relay: its sockets and its ring.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;
use weir_uring::{Buffer, Completion, Operation, Ring};

/// Buffers that bytes arrive in, as many and as large as Weir's.
const RECEIVE_BUFFERS: u16 = 64;
/// Size of each.
const RECEIVE_BYTES: u32 = 32 << 10;
/// More than this waiting behind a send, and nothing more is received until the other side has taken it.
const QUEUE_BYTES: usize = 256 << 10;
/// Nothing happens by time.
const WAIT: Duration = Duration::from_secs(3600);
/// Who asks for the mailbox's news; all others are sides of pairs.
const MAILBOX: u64 = u64::MAX;
/// Of poll(2).
const POLLIN: u32 = 0x1;
/// errno of a receive for which no buffer was free, of one that was cancelled, and of one that a signal has ended: one
/// may receive again.
const PASSING: [i32; 3] = [105, 125, 4];

/// A ring for a worker on this thread.
pub(super) fn ring() -> io::Result<Ring> {
    Ring::new(RECEIVE_BUFFERS, RECEIVE_BYTES)
}

/// A client's socket and its server's.
type Sockets = [TcpStream; 2];

/// Where pairs are left for a worker.
#[derive(Debug)]
pub(super) struct Mailbox {
    sender: Sender<Sockets>,
    bell: Arc<OwnedFd>,
}

/// The worker's side of it.
#[derive(Debug)]
pub(super) struct Letters {
    receiver: Receiver<Sockets>,
    bell: Arc<OwnedFd>,
}

pub(super) fn mailbox() -> io::Result<(Mailbox, Letters)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((Mailbox { sender, bell: Arc::clone(&bell) }, Letters { receiver, bell }))
}

impl Mailbox {
    pub(super) fn post(&self, sockets: Sockets) -> io::Result<()> {
        self.sender.send(sockets).map_err(|_| io::Error::other("a worker has ended"))?;
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

/// A thread of the relay: its sockets, its ring, and the pairs that it forwards between.
#[derive(Debug)]
pub(super) struct Worker {
    ring: Ring,
    letters: Letters,
    pairs: Slab<Pair>,
    /// Tokens of the sides on which something has happened in this batch.
    touched: Vec<u64>,
}

/// A client's socket, its server's, and what is on its way in between.
#[derive(Debug)]
struct Pair {
    sockets: Sockets,
    /// What comes from the socket with the same index.
    ways: [Way; 2],
    /// One of the sockets has failed: only the end of what is under way is waited for.
    is_broken: bool,
}

/// What comes from one socket and goes to the other.
#[derive(Debug, Default)]
struct Way {
    /// The running receive; none while paused or when the stream has ended.
    receive: Option<Operation>,
    /// The receive has been cancelled and has not ended yet.
    is_pausing: bool,
    /// There is one send at a time: a second one could overtake what the first has left.
    is_sending: bool,
    /// What has come meanwhile.
    queue: Vec<u8>,
    /// Room for what comes next.
    spare: Vec<u8>,
    /// Nothing more will come.
    has_ended: bool,
    /// And the other side knows.
    is_shut: bool,
    /// In `touched`.
    is_touched: bool,
}

impl Way {
    fn is_idle(&self) -> bool {
        self.receive.is_none() && !self.is_sending
    }
}

impl Worker {
    pub(super) fn new(mut ring: Ring, letters: Letters) -> io::Result<Self> {
        ring.watch(letters.bell.as_fd(), POLLIN, MAILBOX)?;
        Ok(Self { ring, letters, pairs: Slab::new(), touched: Vec::new() })
    }

    /// Forwards until the ring itself fails.
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            self.ring.wait(1, WAIT)?;
            while let Some(completion) = self.ring.next_completion() {
                self.completed(completion)?;
            }
            // All that a batch has brought goes on in one send for each way.
            while let Some(token) = self.touched.pop() {
                self.go_on(token)?;
            }
        }
    }

    fn completed(&mut self, completion: Completion) -> io::Result<()> {
        match completion {
            Completion::Received { token, bytes, more } => self.received(token, bytes, more),
            Completion::Sent { token, bytes, sent } => self.sent(token, bytes, sent),
            Completion::Ready { more, .. } => return self.open_letters(more),
        }
        Ok(())
    }

    fn received(&mut self, token: u64, bytes: io::Result<Option<Buffer>>, more: bool) {
        let (pair, side) = place(token);
        let pair = &mut self.pairs[pair];
        let way = &mut pair.ways[side];
        match bytes {
            Ok(Some(buffer)) => {
                way.queue.extend_from_slice(self.ring.bytes(&buffer));
                self.ring.recycle(buffer);
            }
            Ok(None) => way.has_ended = true,
            Err(error) => pair.is_broken |= !error.raw_os_error().is_some_and(|code| PASSING.contains(&code)),
        }
        if !more {
            way.receive = None;
            way.is_pausing = false;
        }
        touch(&mut self.touched, way, token);
    }

    fn sent(&mut self, token: u64, mut bytes: Vec<u8>, sent: io::Result<usize>) {
        let (pair, side) = place(token);
        let pair = &mut self.pairs[pair];
        let way = &mut pair.ways[side];
        way.is_sending = false;
        pair.is_broken |= sent.ok() != Some(bytes.len());
        bytes.clear();
        way.spare = bytes;
        touch(&mut self.touched, way, token);
    }

    fn open_letters(&mut self, more: bool) -> io::Result<()> {
        let bell = &self.letters.bell;
        if !more {
            self.ring.watch(bell.as_fd(), POLLIN, MAILBOX)?;
        }
        // Nothing to read is no fault: what matters lies in the channel.
        let _ = rustix::io::read(bell, &mut [0; 8]);
        while let Ok(sockets) = self.letters.receiver.try_recv() {
            let ways = [Way::default(), Way::default()];
            let pair = self.pairs.insert(Pair { sockets, ways, is_broken: false });
            for (side, way) in self.pairs[pair].ways.iter_mut().enumerate() {
                touch(&mut self.touched, way, (pair as u64) << 1 | side as u64);
            }
        }
        Ok(())
    }

    /// Does for a way what is to be done next.
    fn go_on(&mut self, token: u64) -> io::Result<()> {
        let (key, side) = place(token);
        let pair = &mut self.pairs[key];
        pair.ways[side].is_touched = false;
        if pair.is_broken {
            // Ends what is under way. Fails if the socket has ended already.
            pair.sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        } else {
            pair.go_on(side, token, &mut self.ring)?;
        }
        let is_over = pair.is_broken || pair.ways.iter().all(|way| way.is_shut);
        // A side that has been touched as well comes to its turn yet.
        if is_over && pair.ways.iter().all(|way| way.is_idle() && !way.is_touched) {
            self.pairs.remove(key);
        }
        Ok(())
    }
}

impl Pair {
    fn go_on(&mut self, side: usize, token: u64, ring: &mut Ring) -> io::Result<()> {
        let (from, to) = (&self.sockets[side], &self.sockets[1 - side]);
        let way = &mut self.ways[side];
        if !way.is_sending && !way.queue.is_empty() {
            let bytes = std::mem::replace(&mut way.queue, std::mem::take(&mut way.spare));
            ring.send(to.as_fd(), bytes, token)?;
            way.is_sending = true;
        } else if !way.is_sending && way.has_ended && !way.is_shut {
            // Fails if the other side has ended of its own accord.
            let _ = to.shutdown(Shutdown::Write);
            way.is_shut = true;
        }
        match way.receive {
            Some(receive) if way.queue.len() > QUEUE_BYTES && !way.is_pausing => {
                ring.cancel(receive)?;
                way.is_pausing = true;
            }
            None if way.queue.len() <= QUEUE_BYTES && !way.has_ended => {
                way.receive = Some(ring.receive(from.as_fd(), token)?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn touch(touched: &mut Vec<u64>, way: &mut Way, token: u64) {
    if !way.is_touched {
        way.is_touched = true;
        touched.push(token);
    }
}

/// Pair and side of a token.
fn place(token: u64) -> (usize, usize) {
    ((token >> 1) as usize, (token & 1) as usize)
}
