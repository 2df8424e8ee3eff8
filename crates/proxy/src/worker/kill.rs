//! KILL: of statements whose client is gone or whose time is up, and of sessions by other clients.
//!
//! A KILL names a server's thread, and by the time it arrives the thread may run something else. So a connection
//! with a KILL under way is fenced: it runs nothing further until the server has confirmed the KILL.

use weir_protocol::error;
use weir_sql::KillTarget;

use crate::answers::own_replies::{KILL_DENIED, Outcome};
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::{DiscardReason, Expected, Kill, Purpose, ServerConnection};
use crate::session::phase::{Asking, Phase};
use crate::session::session::Session;
use crate::session_id;
use crate::shared::{Asker, KillOutcome, Message, Victims};
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::{ConnectionKey, SessionKey};

impl Pools {
    /// Sends a KILL against what runs on a connection, over a connection of its own.
    pub(crate) fn kill_backend(&mut self, ctx: &mut Context, key: ConnectionKey, query_only: bool) {
        let connection = &mut self.connections[key];
        connection.kills_pending += 1;
        let kill = Kill {
            victim: key,
            victim_socket: connection.socket,
            thread_id: connection.access.greeted.thread_id,
            query_only,
        };
        let (server, identity) = (connection.server, connection.identity);
        let totals = &mut ctx.statistics.totals;
        let count = if query_only { &mut totals.killed_queries } else { &mut totals.killed_connections };
        *count += 1;
        self.dial_kill(ctx, server, identity, kill);
    }

    /// The server has answered a KILL: it has struck, or never will.
    pub(crate) fn kill_sent(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let Purpose::Kill(kill) = self.connections[key].purpose else { return };
        self.discard(ctx, key, None);
        self.kill_over(ctx, kill);
    }

    /// A KILL could not be sent, or was not answered: then it may still strike at any time, and its victim must
    /// not come to anybody else.
    pub(crate) fn kill_failed(&mut self, ctx: &mut Context, kill: Kill, was_sent: bool) {
        if was_sent && self.connection_is(kill.victim, kill.victim_socket) {
            self.connections[kill.victim].discard_reason.get_or_insert(DiscardReason::KillAstray);
        }
        self.kill_over(ctx, kill);
    }

    fn kill_over(&mut self, ctx: &mut Context, kill: Kill) {
        if !self.connection_is(kill.victim, kill.victim_socket) {
            return;
        }
        let victim = &mut self.connections[kill.victim];
        victim.kills_pending -= 1;
        if victim.kills_pending > 0 {
            return;
        }
        if victim.discard_reason == Some(DiscardReason::ClientGone) {
            return self.discard(ctx, kill.victim, Some(DiscardReason::ClientGone));
        }
        if victim.holder.is_some() {
            let (connection, socket) = (kill.victim, kill.victim_socket);
            self.turns.push_back(Turn::GoOn { connection, socket });
        } else if victim.replies.expected.is_empty() {
            self.offer(ctx, kill.victim);
        }
    }
}

impl Work<'_> {
    /// A statement has run longer than it may.
    pub(crate) fn statement_timed_out(&mut self) {
        let session = &mut *self.session;
        let (Phase::Running, Some(lease)) = (&session.phase, session.lease) else { return };
        if std::mem::replace(&mut session.execution.kill.deadline_passed, true) {
            return;
        }
        let session = &*self.session;
        let timeout_ms = self.ctx.query_timeout(session) / 1_000_000;
        let (id, program) = (session.id, session.program());
        tracing::warn!(session = id, program, timeout_ms, "statement runs too long: killing it");
        self.pools.kill_backend(self.ctx, lease, true);
    }

    /// Ends a statement that was killed, or whose time was up, before it had gone out.
    pub(crate) fn is_killed_before_sent(&mut self, key: ConnectionKey) -> bool {
        let execution = &self.session.execution;
        if execution.tries.is_sent || !(execution.kill.is_killed_unsent || execution.kill.deadline_passed) {
            return false;
        }
        self.pools.reply_error(
            self.ctx,
            self.session,
            error::QUERY_INTERRUPTED,
            "Query execution was interrupted",
        );
        self.stop_running();
        self.go_on(key);
        true
    }

    /// KILL by a client, of connection ids that Weir gave out.
    pub(crate) fn kill(&mut self, target: &KillTarget, query_only: bool) -> Outcome {
        let session = &*self.session;
        let user = session.account.as_ref().map(|account| account.user.username.clone()).unwrap_or_default();
        let victims = match target {
            KillTarget::Connection(id) => {
                let session = u32::try_from(*id).ok();
                match session
                    .filter(|id| session_id::worker_of(*id, self.ctx.shared.mailboxes.len()).is_some())
                {
                    Some(session) => Victims::Session(session),
                    None => {
                        let below = session_id::BELOW_FIRST;
                        let message = format!(
                            "Unknown thread id: {id} (Weir's are above {below}, see CONNECTION_ID(); what a server's \
                             process list shows can be killed at that server)"
                        );
                        self.pools.reply_error(self.ctx, self.session, error::NO_SUCH_THREAD, &message);
                        return Outcome::Answered;
                    }
                }
            }
            KillTarget::User(name) if *name == user.as_bytes() => Victims::OfUser,
            KillTarget::User(_) => {
                self.pools.reply_error(
                    self.ctx,
                    self.session,
                    KILL_DENIED,
                    "You may kill connections of your own user only",
                );
                return Outcome::Answered;
            }
        };
        let workers = self.ctx.shared.mailboxes.len().max(1);
        let is_asked = |worker: usize| match victims {
            Victims::Session(id) => session_id::worker_of(id, workers) == Some(worker),
            Victims::OfUser => true,
        };
        let by = Asker { worker: self.ctx.worker, session: self.session.key, socket: self.session.socket };
        let asked = (0..workers).filter(|worker| is_asked(*worker));
        let due = asked.filter(|worker| {
            let user = user.clone();
            if *worker == by.worker {
                self.pools.turns.push_back(Turn::Kill { victims, query_only, user, by });
                return true;
            }
            self.ctx.shared.mailboxes[*worker].send(Message::Kill { victims, query_only, user, by })
        });
        let due = due.count() as u32;
        let outcome = KillOutcome::Unknown;
        if due > 0 {
            self.session.phase = Phase::Asking(Asking { due, victims, outcome });
            return Outcome::Asked;
        }
        self.pools.reply_killed(self.ctx, self.session, victims, outcome);
        Outcome::Answered
    }
}

impl Worker {
    /// KILL from a client of this worker or another.
    pub(crate) fn kill_asked(&mut self, victims: Victims, query_only: bool, user: &str, by: Asker) {
        if by.worker == self.ctx.worker {
            let outcome = self.kill_here(victims, query_only, user, Some(by.session));
            return self.kill_answered(by, outcome);
        }
        let outcome = self.kill_here(victims, query_only, user, None);
        self.ctx.shared.mailboxes[by.worker].send(Message::Killed { to: by, outcome });
    }

    /// KILL by an admin. False: nobody has this connection id.
    pub(crate) fn kill_by_admin(&mut self, session: u32, query_only: bool) -> bool {
        let victim = self.ctx.ids.get(&session).copied();
        if let Some(victim) = victim {
            self.strike(victim, query_only);
        }
        victim.is_some()
    }

    /// Another worker has answered.
    pub(crate) fn kill_answered(&mut self, to: Asker, outcome: KillOutcome) {
        if !self.sessions.is(to.session, to.socket) {
            return;
        }
        let Phase::Asking(asking) = &mut self.sessions[to.session].phase else { return };
        asking.due -= 1;
        asking.outcome = match (asking.outcome, outcome) {
            (KillOutcome::Killed(here), KillOutcome::Killed(there)) => KillOutcome::Killed(here + there),
            (KillOutcome::Unknown, outcome) => outcome,
            (outcome, _) => outcome,
        };
        let asking = *asking;
        if asking.due == 0 {
            self.pools.reply_killed(
                &mut self.ctx,
                &mut self.sessions[to.session],
                asking.victims,
                asking.outcome,
            );
            self.work(to.session).answered_here();
        }
    }

    /// Strikes sessions of this worker. A user may kill its own only: Weir knows no privileges. Who asks is among
    /// them where it meant itself, and ends with its reply.
    fn kill_here(
        &mut self,
        victims: Victims,
        query_only: bool,
        user: &str,
        asker: Option<SessionKey>,
    ) -> KillOutcome {
        let is_own =
            |session: &Session| session.account.as_ref().is_some_and(|account| account.user.username == user);
        let keys: Vec<SessionKey> = match victims {
            Victims::Session(id) => {
                let Some(key) = self.ctx.ids.get(&id).copied() else { return KillOutcome::Unknown };
                if !is_own(&self.sessions[key]) {
                    return KillOutcome::NotOwner;
                }
                vec![key]
            }
            Victims::OfUser => self.sessions.keys_of(is_own),
        };
        for key in &keys {
            match asker {
                // KILL QUERY of oneself interrupts the KILL itself (MariaDB 10.11), unless it names the user.
                Some(asker) if asker == *key => {
                    if query_only && victims != Victims::OfUser {
                        self.sessions[asker].execution.kill.is_interrupted = true;
                    }
                    self.sessions[asker].input.close_when_done |= !query_only;
                }
                _ => self.strike(*key, query_only),
            }
        }
        KillOutcome::Killed(keys.len() as u32)
    }

    fn strike(&mut self, victim: SessionKey, query_only: bool) {
        let session = &self.sessions[victim];
        if !query_only {
            tracing::info!(session = session.id, "session killed");
            self.work(victim).abandon();
            return self.work(victim).forget();
        }
        if let (Phase::Running, Some(lease)) = (&session.phase, session.lease) {
            let execution = &mut self.sessions[victim].execution;
            execution.kill.is_killed_unsent = !execution.tries.is_sent;
            self.pools.kill_backend(&mut self.ctx, lease, true);
        } else if matches!(session.phase, Phase::Waiting(_) | Phase::Held) {
            self.pools.leave_queues(&self.sessions[victim]);
            self.pools.reply_error(
                &mut self.ctx,
                &mut self.sessions[victim],
                error::QUERY_INTERRUPTED,
                "Query execution was interrupted",
            );
            self.work(victim).answered_here();
        }
    }
}

impl ServerConnection {
    /// The connection for a KILL is logged in.
    pub(crate) fn send_kill(&mut self, ctx: &mut Context, kill: Kill) {
        let what = if kill.query_only { "QUERY" } else { "CONNECTION" };
        self.send_query(ctx, format!("KILL {what} {}", kill.thread_id).as_bytes());
        self.expect(ctx, Expected::Kill);
    }
}

impl Pools {
    fn reply_killed(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        victims: Victims,
        outcome: KillOutcome,
    ) {
        if victims != Victims::OfUser
            && (session.input.close_when_done || session.execution.kill.is_interrupted)
        {
            return match session.input.close_when_done && ctx.snapshot.is_mariadb {
                true => self.reply_error(ctx, session, error::CONNECTION_KILLED, "Connection was killed"),
                false => self.reply_error(
                    ctx,
                    session,
                    error::QUERY_INTERRUPTED,
                    "Query execution was interrupted",
                ),
            };
        }
        match (victims, outcome) {
            (Victims::Session(_), KillOutcome::Killed(_)) => session.reply_ok(ctx),
            (Victims::Session(id), KillOutcome::Unknown) => {
                self.reply_error(ctx, session, error::NO_SUCH_THREAD, &format!("Unknown thread id: {id}"));
            }
            (Victims::Session(id), KillOutcome::NotOwner) => {
                self.reply_error(ctx, session, KILL_DENIED, &format!("You are not owner of thread {id}"));
            }
            (Victims::OfUser, KillOutcome::Killed(count)) => session.reply_affected(ctx, u64::from(count)),
            (Victims::OfUser, _) => session.reply_affected(ctx, 0),
        }
    }
}
