//! Decides what becomes of a session whose connection to a server is lost: it goes on where nothing of it was there, else its
//! client is told, with the answer to its current command or to its next one. In the middle of a result the error takes
//! the place of the rows that are missing. Without a word it is closed only in the middle of a large row.

use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_session::pin::Pins;
use weir_sql::Effects;

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::server::errors::{LEASE_LOST, OUTCOME_UNKNOWN};
use crate::session::Session;
use crate::session::execution::{Ending, Lost};
use crate::session::phase::Phase;

/// What becomes of a session whose lease is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// Its statement is run again.
    RunAgain,
    /// What its COM_RESET_CONNECTION was to give up is gone: that has succeeded.
    IsReset,
    /// Its COMMIT was that of a transaction which has only read: that has succeeded.
    HasRead,
    /// Its transaction is run again elsewhere, and its statement behind that.
    Replay,
    /// Another server is asked whether its COMMIT was carried out.
    AskForOutcome,
    /// Its transaction is rolled back, which its client is told with its statement, and nothing else is lost.
    LoseTransaction,
    /// The same with its next statement.
    LoseTransactionNext,
    /// Its client is told in place of its statement's answer, or of the rest of it.
    FailStatement,
    /// Its client has the answer, and what was to be asked behind that stays unknown.
    LeaveUnasked,
    /// Its client gets the answer that was kept from it.
    TellOfDeadlock,
    /// Its statement waits for another connection.
    Wait,
    /// It waits with a statement for which something is gone that it had: it ends.
    EndBeforeSent,
    /// Its next command is told.
    FailNext,
    /// Nothing of it was there.
    GoOn,
    /// It ends anyway.
    Close,
}

impl Session {
    /// What is to become of it, now that its lease is gone.
    pub(crate) fn after_loss(&self, ctx: &Context, lost: Lost) -> AfterLoss {
        let is_free = self.pins.is_empty() || self.can_replay(ctx);
        let execution = &self.execution;
        match self.phase {
            Phase::Running if self.commits_nothing() => AfterLoss::HasRead,
            Phase::Running if self.can_ask_for_outcome() => {
                let is_in_time =
                    execution.tries.attempts <= ctx.snapshot.variables.connect_retries_on_failure;
                if is_in_time { AfterLoss::AskForOutcome } else { AfterLoss::FailStatement }
            }
            Phase::Held | Phase::Waiting(_) if self.awaits_outcome() => AfterLoss::Wait,
            Phase::Running | Phase::Held | Phase::Waiting(_) if self.is_wrapped() => {
                self.after_loss_of_write(ctx, lost)
            }
            Phase::Running if self.pins.is_empty() && self.may_retry(ctx, lost) => AfterLoss::RunAgain,
            Phase::Running if self.can_replay(ctx) && self.may_run_behind_replay(ctx, lost) => {
                AfterLoss::Replay
            }
            Phase::Running
                if execution.plan.kind() == CommandKind::Reset
                    && !execution.reply.is_answering
                    && !self.pins.pins().intersects(Pins::OUTLIVE_RESET) =>
            {
                AfterLoss::IsReset
            }
            Phase::Running if self.loses_transaction_alone() && self.is_statement_undone() => {
                AfterLoss::LoseTransaction
            }
            Phase::Running => AfterLoss::FailStatement,
            Phase::Settling if execution.reply.deadlock.is_some() => AfterLoss::TellOfDeadlock,
            Phase::Settling => AfterLoss::LeaveUnasked,
            // It is looked for another connection when its time has come.
            Phase::Held | Phase::Waiting(_) if is_free => AfterLoss::Wait,
            Phase::Held | Phase::Waiting(_) => AfterLoss::EndBeforeSent,
            Phase::Idle | Phase::Asking(_) if is_free => AfterLoss::GoOn,
            Phase::Idle if self.loses_transaction_alone() => AfterLoss::LoseTransactionNext,
            Phase::Idle | Phase::Asking(_) => AfterLoss::FailNext,
            Phase::Login(_) | Phase::Closing => AfterLoss::Close,
        }
    }

    /// The same for a write that is wrapped in a transaction of Weir's own.
    fn after_loss_of_write(&self, ctx: &Context, lost: Lost) -> AfterLoss {
        if !self.is_wrapped_write_undone() {
            return AfterLoss::FailStatement;
        }
        match self.phase {
            Phase::Running if self.may_run_behind_replay(ctx, lost) => AfterLoss::RunAgain,
            Phase::Running => AfterLoss::LoseTransaction,
            _ => AfterLoss::Wait,
        }
    }

    /// What has become of its statement, whose server is gone: the error that says so, and the words for it.
    pub(crate) fn fate_of_statement(&self) -> (ServerError, &'static str) {
        let execution = &self.execution;
        let may_have_run =
            execution.may_have_run() && !(self.all_pins().is_empty() && execution.plan.is_boundary());
        match (may_have_run, execution.reply.is_answering) {
            (true, _) => (OUTCOME_UNKNOWN, "it may or may not have taken effect"),
            (false, false) => (LEASE_LOST, "it had no effect"),
            (false, true) => (LEASE_LOST, "the rest of its result is missing"),
        }
    }
}

impl Session {
    /// SET TRANSACTION READ ONLY that was sent in front of its statement is to be sent again where that runs next.
    pub(crate) fn take_announced_back(&mut self) {
        if std::mem::take(&mut self.execution.has_announced) && matches!(self.phase, Phase::Running) {
            self.pins.remove(Pins::NEXT_TRANSACTION);
            self.transaction.is_next_read_only = true;
        }
    }

    /// What code that no text shows may have changed before its statement failed went with the connection, and nobody has
    /// been told of it.
    pub(crate) fn forget_what_was_unseen(&mut self) {
        let is_plain = !self.runs_several()
            && !self.execution.plan.statement().effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
        if is_plain {
            self.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
        }
    }

    /// Whether its client knows, or will with its next statement, that its transaction is rolled back: 1213 says so.
    pub(crate) fn knows_of_rollback(&self) -> bool {
        let is_owed = self.farewell.owed_error.as_ref().is_some_and(|owed| owed.0.code == LOCK_DEADLOCK.code);
        self.execution.ending == Ending::Err(LOCK_DEADLOCK.code) || is_owed
    }
}
