//! Carries out what is due when a server takes no statements: see [`crate::recovery::rejected`].

use weir_protocol::error::{self, ServerError};
use weir_session::pin::Pins;
use weir_sql::Effects;

use crate::keys::ConnectionKey;
use crate::server::connection::DiscardReason;
use crate::server::errors::{LEASE_LOST, OUTCOME_UNKNOWN, is_wsrep_refusal};
use crate::session::execution::Refusal;
use crate::session::phase::Phase;
use crate::session::transaction_log::Rejected;
use crate::work::Work;

impl Work<'_> {
    /// A server does not prepare a statement that is to be executed there. Where it takes no statements at all, the
    /// execution, of which nothing has been sent, goes elsewhere; else the client gets the server's error, as if the server
    /// had to prepare it again itself.
    pub(crate) fn prepare_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        if self.pools.connections[key].can_make_room(error.code) {
            // It is prepared once more as soon as this answer is dealt with.
            return self.pools.connections[key].make_room(self.ctx);
        }
        let session = &*self.session;
        let group = self.pools.groups.get(&session.execution.hostgroup);
        if group.is_some_and(|group| group.is_replicated)
            && self.ctx.can_move(session)
            && is_wsrep_refusal(error.code, text.as_bytes())
        {
            return self.refused(key, Refusal::LeftCluster);
        }
        self.pools.reply_error(self.ctx, self.session, error, text);
        self.stop_refused(key);
    }

    /// Does what [`Pools::refusal`] has found to be due. A server that takes no statements although it is in the hostgroup
    /// is left alone until the monitor has had a look.
    pub(crate) fn refused(&mut self, key: ConnectionKey, refusal: Refusal) {
        if refusal == Refusal::Undone {
            return self.ask_what_is_left(key);
        }
        let server = self.pools.connections[key].server;
        if refusal != Refusal::StatementsFull {
            self.pools.suspect(self.ctx, server);
        }
        let endpoint = self.pools.servers[server].server.endpoint.clone();
        let because = match refusal {
            Refusal::Undone => return,
            Refusal::StatementsFull => {
                self.pools.connections[key].make_room(self.ctx);
                self.session.execution.tries.is_sent = false;
                return self.prepare_connection(key);
            }
            Refusal::LeftCluster => "has left its cluster",
            Refusal::ReadOnly => "has become read_only",
            Refusal::HandsOver => "hands over its role",
            Refusal::OutcomeUnknown if self.session.can_ask_for_outcome() => {
                self.discard_lease(key);
                self.begin_inquiry();
                return self.look_elsewhere();
            }
            Refusal::OutcomeUnknown => {
                let what = "has left its cluster while that was to decide on the transaction: it may or may not have \
                            taken effect";
                return self.fail_unknown(&format!("{endpoint} {what}"));
            }
            Refusal::LeftAmid => {
                let what = "has left its cluster: the statement runs others, and a part of it, or the transaction that it \
                            was in, may or may not have taken effect";
                return self.fail_unknown(&format!("{endpoint} {what}"));
            }
            Refusal::ReadOnlyAmid => {
                let what = "has become read_only: the statement had no effect, but the transaction before it, which it \
                            ends, may or may not have been committed";
                return self.fail_unknown(&format!("{endpoint} {what}"));
            }
        };
        if self.session.is_wrapped() {
            self.unwrap_write();
            return self.run_write_elsewhere(key);
        }
        if self.session.can_replay(self.ctx) {
            return self.replay_elsewhere(key, Rejected::ByServer);
        }
        if self.session.pins.pins().contains(Pins::TRANSACTION) {
            return self.transaction_refused(key, &format!("{endpoint} {because}"));
        }
        let may_have_left_something =
            self.session.execution.plan.statement().effects.contains(Effects::ROUTINE);
        if may_have_left_something {
            self.session.lose_lease();
            self.pools.connections[key].holder = None;
            self.pools.discard(self.ctx, key, Some(DiscardReason::Rejected));
            self.hear();
        } else {
            self.pools.detach(self.ctx, self.session);
            self.pools.offer(self.ctx, key);
        }
        let session = &mut *self.session;
        session.execution.tries.attempts += 1;
        session.phase = Phase::waiting(self.ctx.now);
        self.acquire();
    }

    /// The error that a server has answered is not all: in its place, which may be behind a part of the answer or a file,
    /// the client is told that nobody knows, and the session ends.
    fn fail_unknown(&mut self, message: &str) {
        let execution = &self.session.execution;
        if execution.reply.is_answering {
            let at = Some(execution.reply.refused_at);
            return self.break_off(at, OUTCOME_UNKNOWN, message);
        }
        self.fail_session(OUTCOME_UNKNOWN, message);
    }

    /// The server takes no statements any more, not even Weir's question for what an error has left behind. There was
    /// nothing but that (see `what_to_settle`), and what the questions themselves have begun: it goes with the connection.
    pub(crate) fn rejected_settling(&mut self, key: ConnectionKey) {
        let server = self.pools.connections[key].server;
        self.pools.suspect(self.ctx, server);
        let endpoint = self.pools.servers[server].server.endpoint.clone();
        let pins = &mut self.session.pins;
        pins.clear();
        pins.insert(Pins::UNKNOWN_AFTER_ERROR);
        self.session.lose_lease();
        self.pools.connections[key].holder = None;
        self.pools.discard(self.ctx, key, Some(DiscardReason::Rejected));
        self.hear();
        let message = format!("{endpoint} has left its cluster after the last statement");
        self.lost_after_reply(LEASE_LOST, message);
    }

    /// A server that takes no statements can't commit what was begun there, and has not begun to: the transaction ends
    /// with its connection, and the session goes on where statements are taken.
    fn transaction_refused(&mut self, key: ConnectionKey, because: &str) {
        self.pools.connections[key].holder = None;
        self.pools.discard(self.ctx, key, Some(DiscardReason::Rejected));
        self.hear();
        self.session.lose_lease();
        let session = &mut *self.session;
        session.pins.remove(Pins::TRANSACTION);
        session.transaction.is_read_only = false;
        self.pools.end_log(session);
        let message = format!("{because}, the transaction is rolled back; try restarting transaction");
        self.answer_error(error::LOCK_DEADLOCK, &message);
    }
}
