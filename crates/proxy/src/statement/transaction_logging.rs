//! Keeps the log of a session's open transaction: when it begins, what is added, what ends it. See
//! [`crate::statement::replay`] for what it is for.

use std::rc::Rc;

use weir_protocol::error::LOCK_DEADLOCK;
use weir_routing::ReplayMode;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind, Uses};

use crate::plan::repetition::Repetition;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::retained::Retained;
use crate::session::text::has_word;
use crate::session::transaction_log::{Obstacle, Traits, TransactionLog, Wrapped};
use crate::snapshot::StrictRead;
use crate::statement::commit_outcome::UNDONE;

/// ER_LOCK_WAIT_TIMEOUT
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// ER_QUERY_INTERRUPTED, ER_STATEMENT_TIMEOUT (MariaDB), ER_QUERY_TIMEOUT and ER_LOCK_NOWAIT (MySQL)
const BROKEN_OFF: [u16; 4] = [1317, 1969, 3024, 3572];
/// ER_LOCK_DEADLOCK
const DEADLOCK: u16 = LOCK_DEADLOCK.code;

impl Pools {
    /// How long a log of the session's transaction may become; 0: none is kept.
    fn log_bytes_max(&self, session: &Session) -> usize {
        if session.is_bound() || session.stay.detour.is_some() {
            return 0;
        }
        // As was decided when the transaction began, whatever a rule says of a single statement.
        if let Some(log) = &session.transaction.log {
            return log.bytes_max;
        }
        let group = self.groups.get(&session.execution.hostgroup);
        // Where one server is alone there is no other.
        let Some(group) = group.filter(|group| group.reader_hostgroup.is_some()) else { return 0 };
        match self.replay_mode(session) {
            ReplayMode::Off => 0,
            ReplayMode::Safe | ReplayMode::On => group.transaction_replay_max_bytes as usize,
        }
    }

    /// Whether the session's transaction, which begins now, runs again.
    fn replay_mode(&self, session: &Session) -> ReplayMode {
        let group = self.groups.get(&session.execution.hostgroup);
        let of_group = || group.map(|group| group.transaction_replay).unwrap_or_default();
        session.said_of_transaction().replay.unwrap_or_else(of_group)
    }

    /// What the log of a transaction, or of a write that is wrapped, has to know of where it runs.
    fn note_place(&self, session: &Session, log: &mut TransactionLog) {
        let group = self.groups.get(&session.execution.hostgroup);
        log.hostgroup = session.execution.hostgroup;
        log.is_on_reader = session.is_pinned_to_reader();
        log.keeps_to_itself = group.is_some_and(|group| group.replicates_transactions_only);
        // A group's members write to no table without transactions.
        let has_such_tables = group.is_none_or(|group| group.strict != StrictRead::GroupConsistency);
        log.is_careful = has_such_tables && self.replay_mode(session) != ReplayMode::On;
        log.begun_with_id = session.known_insert_id();
    }

    /// A statement is sent: from here on its reply is hashed, if it belongs to a transaction that may run again, or begins one.
    pub(crate) fn begin_logging(&mut self, session: &mut Session) {
        if session.stay.detour.is_some() {
            return;
        }
        let may_begin =
            matches!(session.execution.plan.statement().kind, Kind::Begin | Kind::StartTransactionReadOnly);
        if !may_begin && session.transaction.is_autocommit && session.transaction.log.is_none() {
            return;
        }
        let begins = may_begin && session.execution.plan.repetition(true) == Repetition::Begins;
        if begins || !session.pins.pins().contains(Pins::TRANSACTION) {
            // BEGIN commits what is open; and something may have ended it that nobody has told.
            self.end_log(session);
        }
        if session.transaction.log.is_none() {
            let is_within = session.transaction.is_unlogged;
            if is_within || (!begins && session.transaction.is_autocommit) {
                return;
            }
            // From the begin on: nobody else changes it behind the transaction's snapshot.
            let marks_commits = self.marks_commits(session);
            let bytes_max = self.log_bytes_max(session);
            session.transaction.is_unlogged = bytes_max == 0 && !marks_commits;
            if session.transaction.is_unlogged {
                return;
            }
            let mut log = self.spare_logs.pop().unwrap_or_default();
            let others = session.pins.pins() - Pins::TRANSACTION - Pins::SAVEPOINT;
            if others.contains(Pins::NEXT_TRANSACTION) {
                log.block(Obstacle::Announced);
            } else if !others.is_empty() || (!begins && !session.pins.is_empty()) {
                log.block(Obstacle::EarlierStatement);
            }
            self.note_place(session, &mut log);
            (log.bytes_max, log.marks_commits) = (bytes_max, marks_commits);
            // From the begin on: nobody else changes it behind the transaction's snapshot.
            log.outcome_slot = marks_commits.then(|| self.outcomes.take());
            if begins && has_word(session.statement_text(), "snapshot") {
                // What it sees belongs to a position that SHOW STATUS tells.
                log.block(Obstacle::Statement);
            }
            session.transaction.log = Some(log);
        }
        if let Some(log) = &mut session.transaction.log {
            log.digest.restart();
        }
    }

    /// A write is to be wrapped in a transaction of Weir's own.
    pub(crate) fn open_log_of_write(&mut self, session: &mut Session) {
        self.end_log(session);
        let mut log = self.spare_logs.pop().unwrap_or_default();
        self.note_place(session, &mut log);
        log.outcome_slot = Some(self.outcomes.take());
        (log.wrapped, log.marks_commits) = (Some(Wrapped::default()), true);
        session.transaction.log = Some(log);
    }

    /// A statement has been answered, and its session's pins are as its server says.
    pub(crate) fn log_in_transaction(&mut self, session: &mut Session) {
        let is_logged = session.transaction.log.is_some();
        if !(is_logged || session.transaction.is_unlogged) || session.stay.detour.is_some() {
            return;
        }
        let plan = &session.execution.plan;
        let kind = plan.statement().kind;
        // COMMIT AND CHAIN begins one that has no BEGIN.
        let is_open =
            session.pins.pins().contains(Pins::TRANSACTION) && !matches!(kind, Kind::Commit | Kind::Rollback);
        if !is_open {
            match (&mut session.transaction.log, session.execution.ending) {
                // The server may still have the transaction, and its row.
                (Some(log), Ending::Err(code)) if !UNDONE.contains(&code) => log.outcome_slot = None,
                _ => session.free_outcome_row(),
            }
            return self.end_log(session);
        }
        if !is_logged {
            return;
        }
        let repetition = plan.repetition(session.tracked.is_text_certain);
        let bytes_max = self.log_bytes_max(session);
        let defaults = session.tracked.defaults.clone();
        let may_write = session.execution.plan.may_write_rows();
        let asks_for_id = session.execution.plan.statement().uses.contains(Uses::LAST_INSERT_ID);
        let Some(mut log) = session.transaction.log.take() else { return };
        // A COMMIT that has failed writes another one.
        log.marker = None;
        let is_based_elsewhere = match (&log.defaults, &defaults) {
            (Some(known), Some(now)) => !Rc::ptr_eq(known, now),
            _ => false,
        };
        log.defaults = defaults;
        log.may_have_written |= may_write;
        match (repetition, session.obstacle_to_repetition()) {
            _ if is_based_elsewhere || session.execution.ending == Ending::None => {
                log.block(Obstacle::Statement)
            }
            // Whether the whole transaction is undone then depends on the server; and a trigger's own 1213 looks like a
            // server's.
            _ if matches!(session.execution.ending, Ending::Err(LOCK_WAIT_TIMEOUT | DEADLOCK)) => {
                log.block(Obstacle::Statement);
            }
            // The one before goes on.
            (Repetition::Begins, _) if matches!(session.execution.ending, Ending::Err(_)) => {
                log.block(Obstacle::Statement);
            }
            // What a statement has written without a transaction before it failed is told with the next one.
            _ if matches!(session.execution.ending, Ending::Err(_)) && may_write && !log.keeps_to_itself => {
                log.block(Obstacle::Statement);
            }
            // Somebody's time or patience was over, or a lock was taken: its client has learnt nothing.
            _ if matches!(session.execution.ending, Ending::Err(code) if BROKEN_OFF.contains(&code))
                && !(may_write || log.digest.has_result) => {}
            (Repetition::Apart, _) => {}
            _ if asks_for_id && log.begun_with_id.is_none() && log.told_before(usize::MAX).is_none() => {
                log.block(Obstacle::EarlierStatement);
            }
            (Repetition::Never, _) => log.block(Obstacle::Statement),
            _ if session.input.command_bytes > bytes_max => log.block(Obstacle::TooLong),
            (_, Some(obstacle)) => log.block(obstacle),
            (Repetition::Again | Repetition::Begins, None) => {
                let (state, execution) = (session.tracked.state.clone(), session.logged_execution());
                let (insert_id, traits) = session.numbering_of_statement();
                log.add(state, execution, (insert_id, traits), bytes_max, |out| session.put_logged(out));
            }
        }
        session.transaction.log = Some(log);
    }
}

impl Session {
    /// The AUTO_INCREMENT value that its statement has been given, and what of it matters to those behind it.
    fn numbering_of_statement(&self) -> (u64, Traits) {
        let statement = self.execution.plan.statement();
        let (told, updates) = match self.execution.ending {
            Ending::Ok { insert_id, affected_rows, has_info, .. } => {
                (insert_id, statement.kind == Kind::Insert && affected_rows != 1 && !has_info)
            }
            _ => (0, false),
        };
        // Of ON DUPLICATE KEY UPDATE n = LAST_INSERT_ID(n + 1) it is the number of no row: set, it could hit another one.
        let gives_number = matches!(statement.kind, Kind::Insert | Kind::Replace)
            && !updates
            && !(statement.kind == Kind::Insert && statement.assigns_insert_id);
        let sets_id = statement.effects.contains(Effects::LAST_INSERT_ID_SET);
        let traits = Traits {
            asks_for_id: statement.uses.contains(Uses::LAST_INSERT_ID),
            has_hidden_code: statement.hidden_code,
            leaves_id: if sets_id { told } else { 0 },
        };
        (if gives_number { told } else { 0 }, traits)
    }

    /// Its LAST_INSERT_ID(); none if only a server knows it, or nobody.
    fn known_insert_id(&self) -> Option<u64> {
        let diagnostics = &self.diagnostics;
        let is_known = !diagnostics.is_insert_id_lost
            && !diagnostics.retained.contains(Retained::INSERT_ID)
            && diagnostics.fetching == 0;
        is_known.then_some(diagnostics.last_insert_id)
    }
}
