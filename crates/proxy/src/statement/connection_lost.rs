//! Carries out what becomes of a session whose connection to a server is lost: see [`crate::recovery::connection_lost`].

use weir_protocol::error::ServerError;
use weir_protocol::frame;
use weir_protocol::ok::ErrPacket;

use crate::keys::Nanos;
use crate::recovery::connection_lost::AfterLoss;
use crate::server::errors::LEASE_LOST;
use crate::session::execution::Lost;
use crate::session::infile::Infile;
use crate::session::phase::Phase;
use crate::work::Work;

/// By then the worker has heard of all connections that were lost at the same time.
const AGAIN_AFTER_NS: Nanos = 1_000_000;

impl Work<'_> {
    /// A session's lease is gone; `breaks_off` as [`Replies::breaks_off`](crate::server::connection::Replies::breaks_off) said before.
    pub(crate) fn lease_lost(&mut self, lost: Lost, endpoint: &str, breaks_off: Option<u8>) {
        self.lose_what_lease_knew();
        self.session.lose_lease();
        self.session.take_withheld_back(self.ctx);
        let session = &mut *self.session;
        session.forget_what_was_unseen();
        session.take_announced_back();
        let is_rollback = matches!(self.session.phase, Phase::Running) && self.session.gives_transaction_up();
        if is_rollback && self.session.loses_transaction_alone() {
            // That is done.
            return self.give_transaction_up();
        }
        let after = self.session.after_loss(self.ctx, lost);
        let after = self.session.after_loss_with_care(after, lost);
        if matches!(after, AfterLoss::RunAgain | AfterLoss::Wait) && !self.session.awaits_outcome() {
            self.undo_lost_write();
        }
        let is_server_lost = self.note_interruption(after, lost);
        match after {
            AfterLoss::Replay => {
                tracing::debug!(session = self.session.id, endpoint, "transaction is run again elsewhere");
                self.run_again(lost);
            }
            AfterLoss::AskForOutcome => {
                self.begin_inquiry();
                self.run_again(lost);
            }
            AfterLoss::LoseTransaction => self.lose_transaction(None, self.session.why_lost()),
            AfterLoss::LoseTransactionNext => {
                self.lose_transaction_next();
                self.take_up();
            }
            AfterLoss::RunAgain => {
                tracing::debug!(session = self.session.id, endpoint, "statement is run again elsewhere");
                self.run_again(lost);
            }
            AfterLoss::IsReset => {
                self.pools.finish_reset(self.ctx, self.session);
                self.session.reply_ok(self.ctx);
                self.answered_here();
            }
            AfterLoss::HasRead => {
                self.forget_transaction();
                self.answer_ok();
            }
            AfterLoss::FailStatement => self.fail_running(endpoint, breaks_off),
            AfterLoss::LeaveUnasked => {
                let message = format!("Lost connection to {endpoint} after the last statement");
                self.lost_after_reply(LEASE_LOST, message);
            }
            AfterLoss::TellOfDeadlock => self.tell_of_lost_deadlock(),
            AfterLoss::Wait => {}
            AfterLoss::EndBeforeSent => {
                let pins = self.session.all_pins().words();
                let message = format!(
                    "Lost connection to {endpoint} before the statement was sent, and with it: {pins}: it had no effect"
                );
                self.fail_session(LEASE_LOST, &message);
            }
            AfterLoss::FailNext => {
                let message = format!("Lost connection to {endpoint} between two statements");
                self.session.fail_next(LEASE_LOST, message);
                self.take_up();
            }
            AfterLoss::GoOn => {
                if is_server_lost {
                    self.replay_ahead();
                }
                self.take_up();
            }
            AfterLoss::Close => self.close_session(),
        }
    }

    /// Notes what interrupts the session's transaction, which may run again; returns whether its server is lost.
    fn note_interruption(&mut self, after: AfterLoss, lost: Lost) -> bool {
        if matches!(after, AfterLoss::Replay | AfterLoss::Wait | AfterLoss::GoOn) {
            self.session.begin_replay(self.ctx.now);
        }
        if self.session.stay.detour.is_none() {
            self.session.note_server_left(Some(lost.server));
            self.pools.note_hold(self.session);
        }
        // Where only the connection was lost, others are not to wait for its locks.
        let is_server_lost = self.pools.has_lost_writer(self.session);
        let runs_again = matches!(after, AfterLoss::Replay | AfterLoss::Wait | AfterLoss::AskForOutcome);
        if is_server_lost && runs_again {
            self.pools.take_turn_for_replay(self.session);
        }
        is_server_lost
    }

    /// A write that was wrapped begins anew.
    fn undo_lost_write(&mut self) {
        if self.session.is_wrapped() {
            self.unwrap_write();
        }
    }

    /// Tells a client that its statement's connection is gone.
    fn fail_running(&mut self, endpoint: &str, breaks_off: Option<u8>) {
        let session = &*self.session;
        let hostgroup = session.execution.hostgroup;
        let pins = session.all_pins();
        let is_answering = session.execution.reply.is_answering;
        let state = if pins.is_empty() { String::new() } else { format!(", and with it: {}", pins.words()) };
        let (error, fate) = session.fate_of_statement();
        let message = format!(
            "Lost connection to {endpoint} (hostgroup {hostgroup}) while the statement ran{state}: {fate}"
        );
        if is_answering {
            // Behind what it has sent of its file the client waits for an answer.
            let file_at = session.input.infile.as_deref().map(Infile::next_sequence);
            return self.break_off(breaks_off.or(file_at), error, &message);
        }
        self.fail_session(error, &message);
    }

    /// Closes a session that has a part of its answer: no second one may follow it, but an error may stand in place of
    /// the rest, at [`Replies::breaks_off`].
    pub(crate) fn break_off(&mut self, at: Option<u8>, error: ServerError, message: &str) {
        let session = &*self.session;
        let is_told = at.is_some();
        tracing::warn!(
            session = session.id,
            is_told,
            told = message,
            "session closed in the middle of a result"
        );
        if let Some(mut sequence) = at {
            self.session.put_owed_eof(self.ctx);
            self.ctx.statistics.totals.errors_generated += 1;
            self.session.execution.note_error_text(self.ctx, message.as_bytes());
            let session = &mut *self.session;
            session.execution.record.own_errno = error.code;
            if let Some(buffer) = self.ctx.out.buffer(session.socket) {
                let error = ErrPacket::new(error, message.as_bytes());
                frame::packet(buffer, &mut sequence, |out| error.write(out));
            }
        }
        self.session.count_own_answer(self.ctx);
        self.close_session();
    }

    /// The connection is gone on which was to be asked what a reply did not tell. The client has that reply, and may have
    /// sent its next command.
    pub(crate) fn lost_after_reply(&mut self, error: ServerError, message: String) {
        self.session.forget_what_was_unseen();
        if self.session.knows_of_rollback() {
            self.forget_transaction();
        }
        let session = &*self.session;
        // Character set variables are reported in part only: what they are was to be asked.
        let is_whole = session.pins.is_empty() && !session.execution.reply.charset_reported;
        // A lease that was put aside has all that the session is.
        let is_lost = session.stay.detour.is_none() && !is_whole;
        let ends = session.input.close_when_done;
        self.command_done();
        if ends {
            return self.close_session();
        }
        if is_lost {
            self.session.fail_next(error, message);
        }
        self.take_up();
    }

    /// What has come of an idle session's next command is looked at.
    fn take_up(&mut self) {
        let session = &*self.session;
        let is_idle = matches!(session.phase, Phase::Idle);
        if is_idle && (!session.input.inbox.is_empty() || self.ctx.drain.until.is_some()) {
            self.ctx.runnable.push_back((self.session.key, session.socket));
        }
    }

    /// Starts a statement again whose connection to a server is lost. Where it was sent, only after a moment: the
    /// other connections to that server may be lost as well, and it is not to be sent on one of them.
    pub(crate) fn run_again(&mut self, lost: Lost) {
        let session = &mut *self.session;
        session.phase = Phase::waiting(self.ctx.now);
        let execution = &mut session.execution;
        execution.tries.attempts += 1;
        if execution.tries.is_sent {
            execution.tries.failures = execution.tries.failures_with(lost, self.ctx.now);
        }
        execution.tries.lost_on = Some(Box::new(lost.server));
        execution.tries.lost_at = self.ctx.now;
        if !execution.tries.is_sent {
            return self.acquire();
        }
        self.pools.parked.extend(session.waiter());
        self.ctx.timers.unpark(self.ctx.now + AGAIN_AFTER_NS);
    }
}
