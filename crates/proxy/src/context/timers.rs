//! Keeps what is due when: a line for each kind of time limit.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::keys::{Nanos, SessionKey};
use crate::outbox::SocketId;

/// How often connections are looked over.
const LOOK_OVER_NS: Nanos = 1_000_000_000;

/// A client that does not take its last bytes within this time is cut off.
const CLOSING_NS: Nanos = 10_000_000_000;

/// Statements with a shorter time limit are not left to the look-over.
pub(crate) const WATCHED_BELOW_NS: Nanos = 10 * LOOK_OVER_NS;

/// See the module's text.
pub(crate) struct Timers {
    /// Logins and dials have the same time limit each, so that the oldest is due first.
    logins: VecDeque<(Nanos, SocketId)>,
    dials: VecDeque<(Nanos, SocketId)>,
    closings: VecDeque<(Nanos, SocketId)>,
    /// Pings of idle connections.
    pings: VecDeque<(Nanos, SocketId)>,
    /// Statements that are held until a time.
    held: BinaryHeap<Reverse<Due>>,
    /// Running statements that have less time than the look-over is apart.
    watched: BinaryHeap<Reverse<Due>>,
    /// Sessions that close when they have been silent until a time.
    waits: BinaryHeap<Reverse<Due>>,
    unpark_at: Nanos,
    look_over_at: Nanos,
    round: u32,
}

impl Timers {
    pub(crate) fn new(now: Nanos) -> Self {
        Self {
            logins: VecDeque::new(),
            dials: VecDeque::new(),
            closings: VecDeque::new(),
            pings: VecDeque::new(),
            held: BinaryHeap::new(),
            watched: BinaryHeap::new(),
            waits: BinaryHeap::new(),
            unpark_at: Nanos::MAX,
            look_over_at: now + LOOK_OVER_NS,
            round: 0,
        }
    }

    pub(crate) fn login_started(&mut self, socket: SocketId, due: Nanos) {
        self.logins.push_back((due, socket));
    }

    /// A login that has ended leaves at the front at once, elsewhere when its turn comes.
    pub(crate) fn login_ended(&mut self, socket: SocketId) {
        if self.logins.front().is_some_and(|(_, first)| *first == socket) {
            self.logins.pop_front();
        }
    }

    pub(crate) fn dial(&mut self, socket: SocketId, due: Nanos) {
        self.dials.push_back((due, socket));
    }

    pub(crate) fn dial_ended(&mut self, socket: SocketId) {
        if let Some(at) = self.dials.iter().position(|(_, dial)| *dial == socket) {
            self.dials.remove(at);
        }
    }

    pub(crate) fn closing(&mut self, socket: SocketId, now: Nanos) {
        self.closings.push_back((now + CLOSING_NS, socket));
    }

    pub(crate) fn ping(&mut self, socket: SocketId, due: Nanos) {
        self.pings.push_back((due, socket));
    }

    /// A statement is to start at this time.
    pub(crate) fn hold(&mut self, key: SessionKey, socket: SocketId, at: Nanos) {
        self.held.push(Reverse(Due { at, key, socket }));
    }

    /// Look at this time whether a session has been silent for too long.
    pub(crate) fn wait(&mut self, key: SessionKey, socket: SocketId, at: Nanos) {
        self.waits.push(Reverse(Due { at, key, socket }));
    }

    /// Let the parked sessions look again at this time, or sooner.
    pub(crate) fn unpark(&mut self, at: Nanos) {
        self.unpark_at = self.unpark_at.min(at);
    }

    /// Look at this time at a session's running statement, which has little time.
    pub(crate) fn watch(&mut self, key: SessionKey, socket: SocketId, at: Nanos) {
        self.watched.push(Reverse(Due { at, key, socket }));
    }

    /// When the first is due.
    pub(crate) fn first(&self) -> Nanos {
        let lines = [&self.logins, &self.dials, &self.closings, &self.pings];
        let fronts = lines.into_iter().filter_map(|line| line.front()).map(|(due, _)| *due);
        let heaps = [&self.held, &self.watched, &self.waits];
        let of_heaps = heaps.into_iter().filter_map(BinaryHeap::peek).map(|Reverse(due)| due.at);
        fronts.chain(of_heaps).fold(self.look_over_at.min(self.unpark_at), Nanos::min)
    }

    /// The next socket for which something is due, kind by kind.
    pub(crate) fn socket_due(&mut self, now: Nanos) -> Option<(OfSocket, SocketId)> {
        let mut pop = |kind, line: fn(&mut Self) -> &mut VecDeque<(Nanos, SocketId)>| {
            Some((kind, pop_due(line(self), now)?))
        };
        pop(OfSocket::Login, |timers| &mut timers.logins)
            .or_else(|| pop(OfSocket::Dial, |timers| &mut timers.dials))
            .or_else(|| pop(OfSocket::Closing, |timers| &mut timers.closings))
            .or_else(|| pop(OfSocket::Ping, |timers| &mut timers.pings))
    }

    /// The next session for which something is due, kind by kind.
    pub(crate) fn session_due(&mut self, now: Nanos) -> Option<(OfSession, Due)> {
        let mut pop = |kind, heap: fn(&mut Self) -> &mut BinaryHeap<Reverse<Due>>| {
            Some((kind, pop_first(heap(self), now)?))
        };
        pop(OfSession::Held, |timers| &mut timers.held)
            .or_else(|| pop(OfSession::Watched, |timers| &mut timers.watched))
            .or_else(|| pop(OfSession::Wait, |timers| &mut timers.waits))
    }

    /// Whether the parked sessions are to look again now. Asked once for each time that they are.
    pub(crate) fn takes_unpark(&mut self, now: Nanos) -> bool {
        let is_due = self.unpark_at <= now;
        if is_due {
            self.unpark_at = Nanos::MAX;
        }
        is_due
    }

    /// The number of the look-over that is due now, if one is.
    pub(crate) fn takes_round(&mut self, now: Nanos) -> Option<u32> {
        if self.look_over_at > now {
            return None;
        }
        self.look_over_at = now + LOOK_OVER_NS;
        self.round = self.round.wrapping_add(1);
        Some(self.round)
    }
}

/// What is due for a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfSocket {
    Login,
    Dial,
    Closing,
    Ping,
}

/// What is due for a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfSession {
    Held,
    Watched,
    Wait,
}

fn pop_first(heap: &mut BinaryHeap<Reverse<Due>>, now: Nanos) -> Option<Due> {
    let Reverse(first) = heap.peek()?;
    if first.at > now {
        return None;
    }
    heap.pop().map(|Reverse(due)| due)
}

fn pop_due(queue: &mut VecDeque<(Nanos, SocketId)>, now: Nanos) -> Option<SocketId> {
    let (due, socket) = *queue.front()?;
    if due > now {
        return None;
    }
    queue.pop_front();
    Some(socket)
}

/// Something to be done for a session, if its key still means the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub at: Nanos,
    pub key: SessionKey,
    pub socket: SocketId,
}
