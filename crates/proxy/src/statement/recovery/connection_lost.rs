//! What becomes of a session whose connection to a server is lost: it goes on where nothing of it was there, else its
//! client is told, with the answer to its current command or to its next one. In the middle of a result the error takes
//! the place of the rows that are missing. Without a word it is closed only in the middle of a large row.

use weir_protocol::command::Command;
use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::ErrPacket;
use weir_session::pin::Pins;
use weir_sql::Effects;

use crate::plan::execution_plan::CommandKind;
use crate::server::errors::{LEASE_LOST, OUTCOME_UNKNOWN};
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::execution::Lost;
use crate::session::phase::Phase;
use crate::statement::work::Work;

impl Work<'_> {
    /// A session's lease is gone; `breaks_off` as [`Replies::breaks_off`] said before.
    pub(crate) fn lease_lost(&mut self, lost: Lost, endpoint: &str, breaks_off: Option<u8>) {
        self.session.lose_lease();
        self.session.take_withheld_back(self.ctx);
        let session = &mut *self.session;
        session.forget_what_was_unseen();
        session.take_announced_back();
        let session = &*self.session;
        let is_free = session.pins.is_empty();
        match session.phase {
            Phase::Running if is_free && self.session.may_retry(self.ctx, lost) => {
                tracing::debug!(session = session.id, endpoint, "statement is run again elsewhere");
                self.run_again(lost);
            }
            // What was to be given up is gone.
            Phase::Running
                if session.execution.plan.kind() == CommandKind::Reset
                    && !session.execution.reply.is_answering
                    && !session.pins.pins().intersects(Pins::OUTLIVE_RESET) =>
            {
                self.pools.finish_reset(self.ctx, self.session);
                self.session.reply_ok(self.ctx);
                self.answered_here();
            }
            Phase::Running => self.fail_running(endpoint, breaks_off),
            Phase::Settling => {
                let message = format!("Lost connection to {endpoint} after the last statement");
                self.lost_after_reply(LEASE_LOST, message);
            }
            // It is looked for another connection when its time has come.
            Phase::Held | Phase::Waiting(_) if is_free => {}
            Phase::Held | Phase::Waiting(_) => {
                let pins = session.all_pins().words();
                let message = format!(
                    "Lost connection to {endpoint} before the statement was sent, and with it: {pins}: it had no effect"
                );
                self.fail_session(LEASE_LOST, &message);
            }
            Phase::Idle | Phase::Asking(_) => {
                if !is_free {
                    let message = format!("Lost connection to {endpoint} between two statements");
                    self.session.fail_next(LEASE_LOST, message);
                }
                self.take_up();
            }
            Phase::Login(_) | Phase::Closing => self.close_session(),
        }
    }

    /// Tells a client that its statement's connection is gone.
    fn fail_running(&mut self, endpoint: &str, breaks_off: Option<u8>) {
        let session = &*self.session;
        let hostgroup = session.execution.hostgroup;
        let pins = session.all_pins();
        let is_answering = session.execution.reply.is_answering;
        let may_have_run =
            session.execution.may_have_run() && !(pins.is_empty() && session.execution.plan.is_boundary());
        let state = if pins.is_empty() { String::new() } else { format!(", and with it: {}", pins.words()) };
        let (error, fate) = match (may_have_run, is_answering) {
            (true, _) => (OUTCOME_UNKNOWN, "it may or may not have taken effect"),
            (false, false) => (LEASE_LOST, "it had no effect"),
            (false, true) => (LEASE_LOST, "the rest of its result is missing"),
        };
        let message = format!(
            "Lost connection to {endpoint} (hostgroup {hostgroup}) while the statement ran{state}: {fate}"
        );
        if is_answering {
            // Behind what it has sent of its file the client waits for an answer.
            let file_at = session.input.infile.as_deref().map(crate::session::infile::Infile::next_sequence);
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
        let session = &mut *self.session;
        session.forget_what_was_unseen();
        if session.knows_of_rollback() {
            session.pins.remove(Pins::TRANSACTION);
            session.transaction.is_read_only = false;
        }
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

    /// Answers a command with the farewell that the session has for it, if any. False if the command is to be taken as
    /// usual.
    pub(crate) fn gives_pending_error(&mut self, command: Option<Command>) -> bool {
        let session = &mut *self.session;
        let Some(pending_error) = &session.farewell.pending_error else { return false };
        match command {
            Some(Command::Quit | Command::StmtClose) => return false,
            // Everything that was lost would be given up.
            Some(Command::ChangeUser) => {
                session.farewell.pending_error = None;
                return false;
            }
            Some(Command::ResetConnection) if !pending_error.outlives_reset => {
                session.farewell.pending_error = None;
                return false;
            }
            // It is not answered; the EXECUTE behind it is.
            Some(Command::StmtSendLongData) => {
                self.drop_command();
                return true;
            }
            _ => {}
        }
        if let Some(pending_error) = session.farewell.pending_error.take() {
            self.fail_session(pending_error.error, &pending_error.message);
        }
        true
    }

    /// What has come of an idle session's next command is looked at.
    fn take_up(&mut self) {
        let session = &*self.session;
        let is_idle = matches!(session.phase, Phase::Idle);
        if is_idle && (!session.input.inbox.is_empty() || self.ctx.drain.until.is_some()) {
            self.ctx.runnable.push_back((self.session.key, session.socket));
        }
    }
}

impl Session {
    /// SET TRANSACTION READ ONLY that was sent in front of its statement is to be sent again where that runs next.
    fn take_announced_back(&mut self) {
        if std::mem::take(&mut self.execution.has_announced) && matches!(self.phase, Phase::Running) {
            self.pins.remove(Pins::NEXT_TRANSACTION);
            self.transaction.is_next_read_only = true;
        }
    }

    /// What code that no text shows may have changed before its statement failed went with the connection, and nobody has
    /// been told of it.
    fn forget_what_was_unseen(&mut self) {
        let is_plain = !self.runs_several()
            && !self.execution.plan.statement().effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
        if is_plain {
            self.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
        }
    }

    /// Whether its client knows, or will with its next statement, that its transaction is rolled back: 1213 says so.
    fn knows_of_rollback(&self) -> bool {
        let is_owed = self.farewell.owed_error.as_ref().is_some_and(|owed| owed.0.code == LOCK_DEADLOCK.code);
        self.execution.ending == Ending::Err(LOCK_DEADLOCK.code) || is_owed
    }
}
