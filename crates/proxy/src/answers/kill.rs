//! Carries out a client's KILL of connection ids that Weir gave out.

use weir_protocol::error::{self, ServerError};
use weir_sql::KillTarget;

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::session::Session;
use crate::session::phase::{Asking, Phase};
use crate::session_id;
use crate::shared::{Asker, KillOutcome, Message, Victims};
use crate::work::Work;

/// MySQL's error for a KILL of somebody else's connection.
pub(crate) const KILL_DENIED: ServerError = ServerError { code: 1095, sqlstate: *b"HY000" };

impl Work<'_> {
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

impl Pools {
    pub(crate) fn reply_killed(
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
