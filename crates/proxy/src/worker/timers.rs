//! Does everything that happens because time has passed. No session has a timer of its own while it is idle, nor while
//! its statement runs, unless a rule gives it little time: the few kinds of deadlines are queues, and once a second the
//! connections are looked over.

use crate::context::timers::{OfSession, OfSocket};
use crate::keys::Nanos;
use crate::outbox::Owner;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::shared::Drain;
use crate::work::Work;
use crate::worker::Worker;

/// While draining for another process that has the listeners: how long a client that came just before may take for its
/// first command. As long as a login may take: on a busy machine a client that has just connected needs seconds for it.
const NEWCOMERS_NS: Nanos = 10_000_000_000;
/// Sessions are looked over for wait_timeout every so many rounds.
const IDLE_ROUNDS: u32 = 10;

impl Worker {
    /// When [`Worker::tick`] is due.
    pub fn next_deadline(&self) -> Nanos {
        let retries = self.pools.servers.iter().map(|pool| pool.supply_at.min(pool.lapses_at()));
        let waits = [self.ctx.timers.first(), self.pools.first_wait_deadline(), self.pools.next_look()];
        retries.chain(waits).min().unwrap_or(Nanos::MAX)
    }

    /// Time has passed. To be called at [`Worker::next_deadline`], harmless at any other time.
    pub fn tick(&mut self, now: Nanos) {
        self.ctx.pass_to(now);
        while let Some((kind, socket)) = self.ctx.timers.socket_due(now) {
            match (kind, self.ctx.out.owner(socket)) {
                (OfSocket::Login, Some(Owner::Session(key))) => self.work(key).login_timed_out(),
                (OfSocket::Closing, Some(Owner::Session(key))) => self.work(key).forget(),
                (OfSocket::Dial, _) => self.pools.dial_timed_out(&mut self.ctx, socket),
                (OfSocket::Ping, _) => self.pools.ping_timed_out(&self.ctx, socket),
                (OfSocket::Login | OfSocket::Closing, _) => {}
            }
        }
        for server in 0..self.pools.servers.len() {
            if self.pools.servers[server].supply_at <= now {
                self.pools.servers[server].supply_at = Nanos::MAX;
                self.pools.retry_supply(&mut self.ctx, server);
            }
        }
        while let Some((kind, due)) = self.ctx.timers.session_due(now) {
            let Some(mut work) = self.work_of(due.key, due.socket) else { continue };
            match kind {
                OfSession::Held => work.end_hold(),
                OfSession::Watched => work.look_at_watched(due.at),
                OfSession::Wait => work.look_at_silent(),
            }
        }
        if self.ctx.timers.takes_unpark(now) {
            self.unpark();
        }
        self.pools.look_again(now);
        self.end_waits();
        self.look_at_leases();
        if let Some(round) = self.ctx.timers.takes_round(now) {
            self.look_over(round);
        }
        self.run_runnable();
    }

    /// Once a second: statements that run too long, idle connections that need a ping or are too many, sessions
    /// that have been silent too long, the end of a drain.
    fn look_over(&mut self, round: u32) {
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
        if round.is_multiple_of(IDLE_ROUNDS) {
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
            Drain::Takeover => self.ctx.now + NEWCOMERS_NS,
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
