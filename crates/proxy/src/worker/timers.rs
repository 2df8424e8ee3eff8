//! Everything that happens because time has passed. No session has a timer of its own while it is idle, nor while its
//! statement runs, unless a rule gives it little time: the few kinds of deadlines are queues, and once a second the
//! connections are looked over.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::outbox::{Owner, SocketId};
use crate::session::phase::Phase;
use crate::session::session::Session;
use crate::shared::Drain;
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::{Nanos, SessionKey};

/// How often connections are looked over.
const LOOK_OVER_NS: Nanos = 1_000_000_000;
/// A client that does not take its last bytes within this time is cut off.
const CLOSING_NS: Nanos = 10_000_000_000;
/// While draining for another process that has the listeners: how long a client that came just before may take for its
/// first command. As long as a login may take: on a busy machine a client that has just connected needs seconds for it.
const NEWCOMERS_NS: Nanos = 10_000_000_000;
/// Statements with a shorter time limit are not left to the look-over.
const WATCHED_BELOW_NS: Nanos = 10 * LOOK_OVER_NS;
/// Sessions are looked over for wait_timeout every so many rounds.
const IDLE_ROUNDS: u32 = 10;

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
}

/// Something to be done for a session, if its key still means the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Nanos,
    key: SessionKey,
    socket: SocketId,
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

impl Worker {
    /// When [`Worker::tick`] is due.
    pub fn next_deadline(&self) -> Nanos {
        let timers = &self.ctx.timers;
        let fronts =
            [timers.logins.front(), timers.dials.front(), timers.closings.front(), timers.pings.front()];
        let heaps = [timers.held.peek(), timers.watched.peek(), timers.waits.peek()];
        let of_heaps = heaps.into_iter().flatten().map(|Reverse(due)| due.at);
        let first = fronts.iter().flatten().map(|(due, _)| *due).chain(of_heaps);
        let retries = self.pools.servers.iter().map(|pool| pool.supply_at.min(pool.lapses_at()));
        first
            .chain(retries)
            .chain([timers.look_over_at, timers.unpark_at, self.pools.first_wait_deadline()])
            .min()
            .unwrap_or(Nanos::MAX)
    }

    /// Time has passed. To be called at [`Worker::next_deadline`], harmless at any other time.
    pub fn tick(&mut self, now: Nanos) {
        self.ctx.now = now;
        while let Some(socket) = pop_due(&mut self.ctx.timers.logins, now) {
            if let Some(Owner::Session(key)) = self.ctx.out.owner(socket) {
                self.work(key).login_timed_out();
            }
        }
        while let Some(socket) = pop_due(&mut self.ctx.timers.dials, now) {
            self.pools.dial_timed_out(&mut self.ctx, socket);
        }
        while let Some(socket) = pop_due(&mut self.ctx.timers.closings, now) {
            if let Some(Owner::Session(key)) = self.ctx.out.owner(socket) {
                self.work(key).forget();
            }
        }
        while let Some(socket) = pop_due(&mut self.ctx.timers.pings, now) {
            self.pools.ping_timed_out(&self.ctx, socket);
        }
        for server in 0..self.pools.servers.len() {
            if self.pools.servers[server].supply_at <= now {
                self.pools.servers[server].supply_at = Nanos::MAX;
                self.pools.retry_supply(&mut self.ctx, server);
            }
        }
        while let Some(due) = pop_first(&mut self.ctx.timers.held, now) {
            if let Some(mut work) = self.work_of(due.key, due.socket) {
                work.end_hold();
            }
        }
        while let Some(due) = pop_first(&mut self.ctx.timers.watched, now) {
            if let Some(mut work) = self.work_of(due.key, due.socket) {
                work.look_at_watched(due.at);
            }
        }
        while let Some(due) = pop_first(&mut self.ctx.timers.waits, now) {
            if let Some(mut work) = self.work_of(due.key, due.socket) {
                work.look_at_silent();
            }
        }
        if self.ctx.timers.unpark_at <= now {
            self.ctx.timers.unpark_at = Nanos::MAX;
            self.unpark();
        }
        self.end_waits();
        self.look_at_leases();
        if self.ctx.timers.look_over_at <= now {
            self.ctx.timers.look_over_at = now + LOOK_OVER_NS;
            self.look_over();
        }
        self.run_runnable();
    }

    /// Once a second: statements that run too long, idle connections that need a ping or are too many, sessions
    /// that have been silent too long, the end of a drain.
    fn look_over(&mut self) {
        self.ctx.timers.round = self.ctx.timers.round.wrapping_add(1);
        self.ctx.publish_questions();
        self.ctx.tell_of_refusals();
        let slow: Vec<usize> = self
            .pools
            .connections
            .iter()
            .filter_map(|(_, connection)| connection.holder)
            .filter(|key| {
                let session = &self.sessions[*key];
                matches!(session.phase, Phase::Running)
                    && session.execution.tries.is_under_way()
                    && self.ctx.now.saturating_sub(session.execution.tries.started_at)
                        > self.ctx.query_timeout(session)
            })
            .collect();
        for key in slow {
            self.work(key).statement_timed_out();
        }
        self.ctx.tell_given_up();
        self.unpark();
        self.look_over_transactions();
        self.move_sessions();
        self.end_grace();
        self.pools.give_up_hung(&self.ctx);
        self.pools.look_over_connections(&mut self.ctx);
        self.hear();
        if self.ctx.timers.round.is_multiple_of(IDLE_ROUNDS) {
            self.close_silent_sessions();
        }
        if self.ctx.drain.until.is_some_and(|until| until <= self.ctx.now) {
            self.end_drain();
        } else if self.ctx.drain.newcomers_until != 0 && self.ctx.drain.newcomers_until <= self.ctx.now {
            self.ctx.drain.newcomers_until = 0;
            self.close_drained();
        }
    }

    /// No more clients; idle sessions close now, others when their transaction ends, all at the time limit.
    pub(crate) fn drain(&mut self, drain: Drain) {
        let limit = self.ctx.snapshot.variables.drain_timeout_ms.as_nanos() as Nanos;
        self.ctx.drain.until = Some(self.ctx.now + limit);
        self.ctx.drain.newcomers_until = match drain {
            Drain::Stop => 0,
            Drain::HandedOver => self.ctx.now + NEWCOMERS_NS,
        };
        self.close_drained();
    }

    fn close_drained(&mut self) {
        let drains = |session: &Session| match session.phase {
            Phase::Idle => self.ctx.drain.ends(session),
            Phase::Login(_) => self.ctx.drain.newcomers_until == 0,
            _ => false,
        };
        let idle = self.sessions.keys_of(drains);
        for key in idle {
            self.work(key).close_session();
        }
    }

    fn end_drain(&mut self) {
        let all = self.sessions.keys_of(|_| true);
        for key in all {
            tracing::warn!(session = self.sessions[key].id, "session closed: drain_timeout_ms is over");
            self.work(key).abandon();
            self.work(key).forget();
        }
    }
}

impl Work<'_> {
    fn look_at_watched(&mut self, at: Nanos) {
        let session = &mut *self.session;
        if session.times.watched_at != at {
            return;
        }
        session.times.watched_at = 0;
        if !matches!(session.phase, Phase::Running) || !session.execution.tries.is_under_way() {
            return;
        }
        if session.execution.tries.started_at + self.ctx.query_timeout(session) <= self.ctx.now {
            self.statement_timed_out();
        } else {
            session.watch(self.ctx);
        }
    }
}

impl Session {
    /// A statement has been sent: where the look-over would come late, a timer of its own sees to its time limit. One
    /// timer serves all the statements of a session that follow each other.
    pub(crate) fn watch(&mut self, ctx: &mut Context) {
        let timeout = ctx.query_timeout(self);
        let at = self.execution.tries.started_at + timeout;
        let is_watched = self.times.watched_at != 0 && self.times.watched_at <= at;
        if timeout > WATCHED_BELOW_NS || is_watched {
            return;
        }
        let socket = self.socket;
        self.times.watched_at = at;
        ctx.timers.watched.push(Reverse(Due { at, key: self.key, socket }));
    }
}
