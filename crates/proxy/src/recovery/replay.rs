//! Decides which transactions may run again where their server is lost, and what keeps them from it: see
//! [`crate::statement::replay`].

use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_session::pin::Pins;
use weir_session::prepared::LongData;
use weir_sql::{Access, Effects, Kind};

use crate::context::Context;
use crate::keys::{Nanos, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::plan::repetition::Repetition;
use crate::recovery::connection_lost::AfterLoss;
use crate::session::Session;
use crate::session::execution::{Ending, Lost};
use crate::session::phase::Phase;
use crate::session::text::has_word;
use crate::session::transaction_log::{Inquiry, LoggedExecution, Obstacle, Replay, Wrapped};

/// In the state that a server tells of a transaction: it has written to a table without transactions.
const WROTE_WITHOUT_TRANSACTION: usize = 3;

/// And: it has changed rows that are undone with it.
const WROTE: usize = 4;

const NS_PER_US: Nanos = 1000;

/// So often a transaction is begun again whose connection has to be logged in anew for it.
const WIPES_MAX: u8 = 20;

/// What comes back with a transaction: its savepoints, and what code may have changed before a statement failed.
pub(crate) const REPEATED: Pins = Pins::SAVEPOINT.union(Pins::UNKNOWN_AFTER_ERROR);

impl Session {
    /// Why the statement that has just been answered keeps its transaction from running again.
    pub(crate) fn obstacle_to_repetition(&self) -> Option<Obstacle> {
        let execution = &self.execution;
        let statement = execution.plan.statement();
        let is_sent_in_parts = self.input.upload.is_some()
            || self.input.infile.is_some()
            || execution.text.rewritten.is_some()
            || self.input.command_bytes == 0
            || execution.text.wants_cursor
            || execution.reply.has_cursor;
        let client = self.prepared.all.get(&execution.text.statement_id);
        let is_unknown = execution.plan.kind() == CommandKind::Execute && client.is_none();
        // Servers say nothing more of an INSERT with one row in its VALUES, unless it has warned; REPLACE and ON DUPLICATE KEY
        // UPDATE affect two for it (seen on MariaDB 10.11 and MySQL 9).
        let gives_several = matches!(execution.ending, Ending::Ok { affected_rows, insert_id, has_info: true, .. }
            if affected_rows > 1 && insert_id != 0 && matches!(statement.kind, Kind::Insert | Kind::Replace));
        if !(self.pins.pins() - REPEATED - Pins::TRANSACTION).is_empty()
            || self.writes_file()
            || is_sent_in_parts
            || is_unknown
        {
            Some(Obstacle::Statement)
        } else if self.pins.pins().contains(Pins::AUTO_IS_NULL) {
            Some(Obstacle::EarlierStatement)
        } else if gives_several {
            Some(Obstacle::SeveralIds)
        } else {
            None
        }
    }

    /// An execution has been answered. What was sent in front of it (COM_STMT_SEND_LONG_DATA) is no part of it, and a cursor
    /// has a statement of its own at the server: it does not run again.
    pub(crate) fn note_data_beside_execution(&mut self) {
        let statement = self.prepared.all.get(&self.execution.text.statement_id);
        let is_all = statement
            .is_none_or(|statement| statement.own.is_none() && statement.long_data == LongData::None);
        let is_apart = self.stay.detour.is_some()
            || self.execution.plan.repetition(self.tracked.is_text_certain) == Repetition::Apart;
        if let Some(log) = self.transaction.log.as_mut().filter(|_| !is_all && !is_apart) {
            log.block(Obstacle::Statement);
        }
    }

    pub(crate) fn logged_execution(&self) -> Option<LoggedExecution> {
        let execution = &self.execution;
        let prepared =
            execution.text.prepared.as_ref().filter(|_| execution.plan.kind() == CommandKind::Execute)?;
        let client = self.prepared.all.get(&execution.text.statement_id)?;
        Some(LoggedExecution {
            prepared: prepared.clone(),
            params: client.params,
            types: client.types.clone(),
        })
    }

    pub(crate) fn put_logged(&self, out: &mut Vec<u8>) {
        if self.execution.plan.kind() == CommandKind::Execute {
            let end = self.input.command_bytes.min(self.input.inbox.len());
            out.extend_from_slice(&self.input.inbox[..end]);
        } else {
            self.put_command(out);
        }
    }

    /// The server tells what its transaction has done.
    pub(crate) fn note_transaction_state(&mut self, text: &[u8]) {
        let Some(log) = &mut self.transaction.log else { return };
        if text.get(WROTE_WITHOUT_TRANSACTION) == Some(&b'w') {
            log.block(Obstacle::NonTransactionalTable);
        }
        log.has_written |= text.get(WROTE) == Some(&b'W');
    }

    /// Whether its statement ends its transaction without a trace, and begins none that would be like it.
    pub(crate) fn gives_transaction_up(&self) -> bool {
        self.execution.plan.is_plain_rollback() && self.ends_transaction_only()
    }

    /// Whether its COMMIT or ROLLBACK neither begins another transaction nor ends the connection.
    fn ends_transaction_only(&self) -> bool {
        let own = self.tracked.state.variable("completion_type");
        let begun_with = self.tracked.defaults.as_ref();
        let begun_with = begun_with.and_then(|begun_with| begun_with.variables().variable("completion_type"));
        !self.execution.plan.statement().effects.contains(Effects::DISCONNECT)
            && !has_word(self.statement_text(), "chain")
            && own.or(begun_with).is_none_or(|value| matches!(value, "0" | "NO_CHAIN"))
    }

    /// Whether its transaction is all that it loses with its connection.
    pub(crate) fn loses_transaction_alone(&self) -> bool {
        self.pins.pins() - REPEATED == Pins::TRANSACTION
            && self.stay.detour.is_none()
            && self.transaction.log.is_some()
    }

    /// Whether its open transaction, which is all that holds it, can run again elsewhere.
    pub(crate) fn can_replay(&self, ctx: &Context) -> bool {
        let attempts_max = ctx.snapshot.variables.connect_retries_on_failure;
        let log = self.transaction.log.as_ref();
        self.loses_transaction_alone()
            && log.is_some_and(|log| {
                log.obstacle().is_none()
                    && log.statement(0).is_some()
                    && u32::from(log.attempts) < attempts_max
            })
    }

    /// Why its transaction, which is lost, can't be run again.
    pub(crate) fn why_lost(&self) -> Obstacle {
        let obstacle = self.transaction.log.as_ref().and_then(|log| log.obstacle());
        match obstacle {
            Some(obstacle) => obstacle,
            None if self.execution.reply.is_answering => Obstacle::HalfAnswered,
            None => Obstacle::TooManyAttempts,
        }
    }

    /// Whether its transaction is to run again before anything else.
    pub(crate) fn is_to_replay(&self) -> bool {
        self.pins.pins().contains(Pins::TRANSACTION)
            && self.transaction.log.as_ref().is_some_and(|log| log.replay.is_some())
    }

    /// Whether its transaction runs again, or waits for a server to do so, while its client asks for nothing.
    pub(crate) fn is_replaying_ahead(&self) -> bool {
        self.execution.plan.kind() == CommandKind::Replay
    }

    /// It does not run again by itself any more: its client is between two statements.
    pub(crate) fn end_replay_ahead(&mut self) {
        self.execution.plan = self.execution.plan.as_query();
        self.phase = Phase::Idle;
    }

    /// Its transaction, if there is one, is to run again from its begin.
    pub(crate) fn begin_replay(&mut self, now: Nanos) {
        if let Some(log) = &mut self.transaction.log
            && self.pins.pins().contains(Pins::TRANSACTION)
        {
            let inquiry = match log.replay {
                Some(Replay { inquiry: Inquiry::None, .. }) | None => Inquiry::None,
                // What another server has answered is not known to hold.
                Some(_) => Inquiry::Begin,
            };
            if inquiry == Inquiry::None {
                // A server may still have the row that it has written.
                log.outcome_slot = log.outcome_slot.filter(|_| log.marker.is_none());
                log.marker = None;
            }
            if log.lost_at == 0 {
                log.lost_at = now;
            }
            let replay = Replay { inquiry, ..Replay::default() };
            (log.replay, log.attempts) = (Some(replay), log.attempts.saturating_add(1));
            self.go_where_transaction_was();
        }
    }

    /// Its transaction did not run again while its client asked for nothing. What is to be said of that is said with its next
    /// statement.
    pub(crate) fn not_replayed(&mut self, error: ServerError, message: &str) {
        if error == LOCK_DEADLOCK {
            self.farewell.owed_error = Some(Box::new((error, message.into())));
        }
        // Whatever else it was: the transaction is still to run again.
    }

    /// Its transaction does not stay with its server, which is lost if it is named.
    pub(crate) fn note_server_left(&mut self, lost: Option<ServerIndex>) {
        if let Some(log) = &mut self.transaction.log {
            (log.has_left_server, log.lost_on) = (true, lost.or(log.lost_on));
        }
    }

    /// Whether its statement commits its transaction, which is all that would be lost with its server, and does nothing else.
    pub(crate) fn only_commits(&self) -> bool {
        let plan = &self.execution.plan;
        plan.statement().kind == Kind::Commit
            && plan.kind() == CommandKind::Query
            && !plan.statement().multi
            && self.loses_transaction_alone()
            && self.ends_transaction_only()
    }

    /// Whether its statement commits a transaction that has surely changed nothing.
    pub(crate) fn commits_nothing(&self) -> bool {
        let log = self.transaction.log.as_ref();
        let has_read = log.is_some_and(|log| {
            !log.may_have_written
                && !log.has_written
                && log.obstacle().is_none()
                && log.statement(0).is_some()
        });
        has_read && !self.execution.reply.is_answering && !self.awaits_outcome() && self.only_commits()
    }

    /// Whether nobody knows whether its COMMIT has been carried out, and its transaction's row would tell.
    pub(crate) fn can_ask_for_outcome(&self) -> bool {
        let log = self.transaction.log.as_ref();
        let is_sent = self.execution.tries.is_sent
            && match self.wrapped_write() {
                Some(wrapped) => wrapped.is_commit_sent,
                None => self.execution.plan.statement().kind == Kind::Commit,
            }
            && !self.execution.reply.is_answering;
        let is_marked = log.is_some_and(|log| log.marker.is_some());
        self.awaits_outcome() || (is_sent && is_marked && self.pins.pins().contains(Pins::TRANSACTION))
    }

    /// Whether it is to be asked before anything else whether its transaction was committed. Until then nobody may say that it
    /// was not.
    pub(crate) fn awaits_outcome(&self) -> bool {
        let replay = self.transaction.log.as_ref().and_then(|log| log.replay);
        replay.is_some_and(|replay| replay.inquiry != Inquiry::None)
    }

    /// What its transaction has done on its way again is undone. Not for ever.
    pub(crate) fn begin_replay_anew(&mut self, now: Nanos) {
        if !self.is_to_replay() {
            return;
        }
        self.begin_replay(now);
        if let Some(log) = self.transaction.log.as_mut().filter(|log| log.attempts > WIPES_MAX) {
            log.block(Obstacle::TooManyAttempts);
        }
    }

    /// The server that has its COMMIT is gone.
    pub(crate) fn begin_inquiry(&mut self, now: Nanos) {
        if let Some(log) = &mut self.transaction.log {
            log.replay = Some(Replay { inquiry: Inquiry::Begin, ..Replay::default() });
        }
        self.begin_replay(now);
    }

    /// How long its client has waited for what a lost server has made necessary, in microseconds; from now on that is another
    /// one's time.
    pub(crate) fn waited_for_loss_us(&mut self, now: Nanos) -> u64 {
        let Some(log) = &mut self.transaction.log else { return 0 };
        // Between two statements nobody waits.
        let since = std::mem::replace(&mut log.lost_at, now).max(self.execution.record.begun_at);
        if self.is_replaying_ahead() {
            return 0;
        }
        now.saturating_sub(since) / NS_PER_US
    }

    /// What runs behind its transaction runs where that was.
    pub(crate) fn go_where_transaction_was(&mut self) {
        if let Some(log) = self.transaction.log.as_ref().filter(|log| log.replay.is_some()) {
            (self.execution.hostgroup, self.execution.writer_only) = (log.hostgroup, true);
            self.execution.only_server = None;
        }
    }

    /// Whether the statement that its server has, or was to have, is undone with its transaction, and its client has seen
    /// nothing of it. Of one that was sent, and not answered, nobody knows whether its tables have transactions: where servers
    /// replicate asynchronously, what it has written without one may have reached the others. A write that is wrapped has
    /// been answered before its client is: what it has written without a transaction is an obstacle in its log.
    pub(crate) fn is_statement_undone(&self) -> bool {
        let keeps_to_itself = self.transaction.log.as_ref().is_some_and(|log| log.keeps_to_itself)
            || self.wrapped_write().is_some_and(|wrapped| wrapped.ok.is_some())
            || !self.execution.plan.may_write_rows();
        self.is_undone_if(keeps_to_itself)
    }

    /// The same where the server has answered that it has undone the statement: what that has written without a transaction it
    /// tells, too.
    pub(crate) fn is_statement_undone_by_server(&self) -> bool {
        self.is_undone_if(true)
    }

    fn is_undone_if(&self, keeps_to_itself: bool) -> bool {
        let execution = &self.execution;
        let has_seen_nothing = !execution.reply.is_answering || execution.reply.buffered_bytes_max > 0;
        let is_undone = execution.plan.is_undone_with_transaction(self.tracked.is_text_certain)
            && keeps_to_itself
            && self.input.upload.is_none()
            && !self.writes_file();
        has_seen_nothing && self.input.infile.is_none() && (!execution.tries.is_sent || is_undone)
    }

    /// What becomes of it where its transaction is careful: of a write in flight nobody may say that nothing is left of it.
    pub(crate) fn after_loss_with_care(&mut self, after: AfterLoss, lost: Lost) -> AfterLoss {
        let is_true = match after {
            AfterLoss::Replay | AfterLoss::RunAgain => self.note_write_in_flight(lost.server),
            AfterLoss::LoseTransaction => !self.is_careful_write_in_flight(),
            _ => true,
        };
        if is_true { after } else { AfterLoss::FailStatement }
    }

    /// Notes where a write of a careful transaction is in flight, which is to run again: there it may have written to a table
    /// without transactions. False where it was in flight at another server before: it must not run at either.
    pub(crate) fn note_write_in_flight(&mut self, server: ServerIndex) -> bool {
        if !self.is_careful_write_in_flight() {
            return true;
        }
        let before = self.execution.tries.written_on.replace(Box::new(server));
        before.is_none_or(|before| *before == server)
    }

    fn is_careful_write_in_flight(&self) -> bool {
        // The server has told what it has written.
        let is_answered = self.wrapped_write().is_some_and(|wrapped| wrapped.ok.is_some());
        self.transaction.log.as_ref().is_some_and(|log| log.is_careful)
            && self.execution.tries.is_sent
            && self.execution.plan.may_write_rows()
            && !is_answered
    }

    /// Whether its query may write a file at the server.
    fn writes_file(&self) -> bool {
        let statement = self.execution.plan.statement();
        let reads = matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table);
        reads
            && statement.access == Access::Write
            && ["outfile", "dumpfile"].iter().any(|word| has_word(self.statement_text(), word))
    }

    /// The transaction of Weir's own that its write is wrapped in.
    pub(crate) fn wrapped_write(&self) -> Option<&Wrapped> {
        self.transaction.log.as_ref()?.wrapped.as_ref()
    }

    /// Whether its write is wrapped in a transaction of Weir's own: see [`crate::statement`].
    pub(crate) fn is_wrapped(&self) -> bool {
        self.wrapped_write().is_some()
    }

    /// Whether its write, which is wrapped, is undone with what it is wrapped in, so that it may begin anew.
    pub(crate) fn may_write_begin_anew(&self) -> bool {
        let log = self.transaction.log.as_ref();
        self.is_statement_undone() && log.is_some_and(|log| log.obstacle().is_none())
    }

    /// The same where its server is lost: a COMMIT of what has been changed may have been carried out.
    pub(crate) fn is_wrapped_write_undone(&self) -> bool {
        let is_commit_sent = self.wrapped_write().is_some_and(|wrapped| wrapped.is_commit_sent);
        self.may_write_begin_anew() && !(is_commit_sent && self.has_changed_rows())
    }

    /// Whether its wrapped write has changed anything that its COMMIT keeps.
    pub(crate) fn has_changed_rows(&self) -> bool {
        let Some(log) = &self.transaction.log else { return false };
        let ok = log.wrapped.as_ref().and_then(|wrapped| wrapped.ok.as_ref());
        let is_undone_with_it = log.obstacle() != Some(Obstacle::NonTransactionalTable);
        log.has_written || (is_undone_with_it && ok.is_some_and(|ok| ok.affected_rows > 0))
    }

    /// Whether it may run again behind its transaction.
    pub(crate) fn may_run_behind_replay(&self, ctx: &Context, lost: Lost) -> bool {
        let tries = &self.execution.tries;
        let is_in_time = tries.attempts <= ctx.snapshot.variables.connect_retries_on_failure;
        let has_failed_servers = tries.is_sent
            && tries.failures_with(lost, ctx.now) > ctx.snapshot.variables.query_retries_on_failure;
        let is_whole = !tries.is_sent || self.input.upload.is_none();
        self.is_statement_undone() && is_in_time && !has_failed_servers && is_whole
    }
}
