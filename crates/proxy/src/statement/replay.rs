//! Runs an open transaction again on another server when its own is lost, or when its server has undone it (1213).
//!
//! Every statement of the transaction runs again in the state in which it ran first, and has to give the same answer: row by
//! row, count by count. For its client nothing has happened then but a pause. If one differs, what the client has seen is not
//! true any more, and it is told that the transaction is rolled back (1213, SQLSTATE 40001): it begins again. A COMMIT
//! that was sent and not answered is never repeated, and nor is what commits by itself.
//!
//! | what is lost | so |
//! | --- | --- |
//! | the server, between two statements | the transaction runs again at once: see [`crate::statement::replay_ahead`]; if that can't be, in front of the next statement, which for a ROLLBACK is not needed |
//! | the server, while a statement runs that is undone with its transaction | the same, and then that statement |
//! | the server, while a COMMIT or a statement that commits runs | nobody knows (08007): see [`crate::recovery::connection_lost`] |
//! | the transaction alone: 1213 for a statement or for COMMIT | the same server runs it again after a moment, if nothing of it is left |
//!
//! Servers of one cluster give different AUTO_INCREMENT values. An INSERT that has given another one than before is taken back
//! to a savepoint, and runs once more with the value set (MariaDB; at MySQL applications may not).

use std::rc::Rc;

use weir_protocol::command;
use weir_protocol::error::LOCK_DEADLOCK;
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::ok::{ErrPacket, OkPacket, SessionTrack};
use weir_protocol::response::{BrokenReply, Control, Step};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Reader;
use weir_session::defaults::carried;
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::state::State;
use weir_sql::Kind;

use crate::diagnostics::conditions::word;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::plan::repetition::Repetition;
use crate::server::connection::Expected;
use crate::server::errors::{OUTCOME_UNKNOWN, is_handing_over, is_read_only, is_wsrep_refusal};
use crate::server::fetch::last_packet;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::session::transaction_log::{
    Inquiry, InsertId, LoggedExecution, Numbering, Obstacle, Rejected, Replay,
};
use crate::statement::prepare_connection::put_execution;
use crate::stats::Totals;
use crate::work::Work;

/// ER_LOCK_DEADLOCK
const DEADLOCK: u16 = LOCK_DEADLOCK.code;

/// What a server says of a deadlock.
const DEADLOCK_FOUND: &str = "Deadlock found when trying to get lock; try restarting transaction";

fn count_lost(totals: &mut Totals, obstacle: Obstacle, has_left_server: bool) {
    if !has_left_server {
        totals.deadlocks_told += 1;
        return;
    }
    totals.transactions_lost += 1;
    let reason = match obstacle {
        Obstacle::Statement => &mut totals.lost_statement,
        Obstacle::NonTransactionalTable => &mut totals.lost_non_transactional_table,
        Obstacle::EarlierStatement => &mut totals.lost_earlier_statement,
        Obstacle::SeveralIds => &mut totals.lost_several_ids,
        Obstacle::Announced => &mut totals.lost_announced,
        Obstacle::TooLong => &mut totals.lost_too_long,
        Obstacle::HalfAnswered => &mut totals.lost_half_answered,
        Obstacle::TooManyAttempts => &mut totals.lost_too_many_attempts,
        Obstacle::Different => &mut totals.lost_different,
    };
    *reason += 1;
}

fn message_of(obstacle: Obstacle, has_left_server: bool) -> String {
    if !has_left_server {
        return DEADLOCK_FOUND.to_owned();
    }
    format!(
        "The transaction was lost with its server, and can't be run again ({}): it is rolled back; try restarting \
         transaction",
        obstacle.words()
    )
}

/// Whether an error says that its server takes no statements, or no writes, now.
fn is_by_server(code: u16, message: &[u8]) -> bool {
    is_wsrep_refusal(code, message) || is_read_only(code, message) || is_handing_over(code, message)
}

impl Work<'_> {
    /// The session's transaction is rolled back, and its next statement is told.
    pub(crate) fn lose_transaction_next(&mut self) {
        let obstacle = self.session.why_lost();
        self.forget_transaction();
        count_lost(&mut self.ctx.statistics.totals, obstacle, true);
        self.session.farewell.owed_error = Some(Box::new((LOCK_DEADLOCK, message_of(obstacle, true).into())));
    }

    /// A statement comes while its session's transaction is to run again in front of it. False if it has been answered: what
    /// would commit that transaction is none of those that were meant to.
    pub(crate) fn begins_behind_replay(&mut self) -> bool {
        if let Some(lease) = self.session.lease() {
            // What it has there is of the first time, or of a part that has run again.
            self.discard_lease(lease);
            self.session.begin_replay(self.ctx.now);
        }
        let is_commit = self.session.only_commits() || self.session.is_wrapped();
        if self.session.awaits_outcome() && !is_commit {
            self.fail_session(OUTCOME_UNKNOWN, "it is not known yet");
            return false;
        }
        if self.session.gives_transaction_up() {
            self.give_transaction_up();
            return false;
        }
        let plan = &self.session.execution.plan;
        let commits = plan.is_boundary() && plan.statement().kind == Kind::Commit;
        let repetition = plan.repetition(self.session.tracked.is_text_certain);
        if commits || matches!(repetition, Repetition::Again | Repetition::Apart) {
            return true;
        }
        self.lose_transaction(None, Obstacle::Statement);
        false
    }

    /// The session's ROLLBACK needs no server, whose end has undone its transaction.
    pub(crate) fn give_transaction_up(&mut self) {
        self.forget_transaction();
        self.answer_ok();
    }

    /// What a server would do is done without one.
    pub(crate) fn answer_ok(&mut self) {
        let session = &mut *self.session;
        session.execution.ending =
            Ending::Ok { affected_rows: 0, insert_id: 0, warnings: 0, has_rows: false, has_info: false };
        session.diagnostics.row_count = 0;
        session.reply_ok(self.ctx);
        self.answered_here();
    }

    /// Brings a lease one step nearer to having the session's transaction. False if it has it, or there is none to run again.
    pub(crate) fn replay(&mut self, key: ConnectionKey) -> bool {
        if !self.session.is_to_replay() {
            return false;
        }
        if self.session.awaits_outcome() {
            self.ask_for_outcome(key);
            return true;
        }
        let Some(log) = &self.session.transaction.log else { return false };
        let Some(replay) = log.replay else { return false };
        if let Some(obstacle) = log.obstacle() {
            self.lose_transaction(Some(key), obstacle);
            return true;
        }
        let there = &self.pools.connections[key].defaults;
        let own = log.defaults.as_ref();
        let is_known = own.is_some_and(|own| own.is_known() || !there.is_known()) || there.says_nothing();
        if !is_known {
            self.lose_transaction(Some(key), Obstacle::Different);
            return true;
        }
        if let Some(id) = log.insert_id_at_begin().filter(|_| !replay.is_begun) {
            self.note_replay(|replay| replay.is_begun = true);
            return self.put_in_front(key, &format!("SET SESSION last_insert_id={id}"));
        }
        match replay.numbering {
            Numbering::TakenBack => {
                let id = log.statement(replay.next).map_or(0, |statement| statement.insert_id);
                self.note_replay(|replay| replay.numbering = Numbering::Forced);
                return self.put_in_front(key, &format!("SET SESSION insert_id={id}"));
            }
            Numbering::Used => {
                self.note_replay(|replay| {
                    (replay.next, replay.numbering) = (replay.next + 1, Numbering::Free)
                });
                return self.put_in_front(key, "SET SESSION insert_id=0");
            }
            Numbering::Free | Numbering::Saved | Numbering::Forced => {}
        }
        let asks_for_id = log.statement(replay.next).is_none_or(|statement| statement.traits.asks_for_id);
        if asks_for_id && !self.knows_insert_id(key) {
            return true;
        }
        self.replay_next(key)
    }

    /// The same for the next statement, of which all is known that it asks for.
    fn replay_next(&mut self, key: ConnectionKey) -> bool {
        let Some(log) = &self.session.transaction.log else { return false };
        let Some(replay) = log.replay else { return false };
        let Some(statement) = log.statement(replay.next) else {
            self.replayed_all();
            return false;
        };
        if statement.traits.asks_for_id && replay.id == InsertId::Asked {
            self.lose_transaction(Some(key), Obstacle::EarlierStatement);
            return true;
        }
        let connection = &self.pools.connections[key];
        // What is different there was a part of what the session had.
        let state = match log.defaults.as_ref().filter(|own| !Rc::ptr_eq(own, &connection.defaults)) {
            Some(own) => self.ctx.interner.intern(carried(&statement.state, own, &connection.defaults)),
            None => statement.state.clone(),
        };
        let execution = statement.execution.clone();
        let may_differ = statement.insert_id != 0 && connection.access.greeted.is_mariadb;
        let unprepared = execution
            .as_ref()
            .map(|execution| &execution.prepared)
            .filter(|prepared| !connection.statements.contains(prepared));
        if let Some(prepared) = unprepared.cloned() {
            if prepared.can_be_prepared_in(&connection.state) {
                self.prepare_here(key, prepared);
                return true;
            }
            let wanted = self.ctx.interner.intern(prepared.state_to_prepare_in(&connection.state));
            return self.replay_in(key, &wanted);
        }
        if !Rc::ptr_eq(&connection.state, &state) {
            return self.replay_in(key, &state);
        }
        if may_differ && replay.numbering == Numbering::Free && statement.traits.asks_for_id {
            // A try would leave its own number where the next one looks for LAST_INSERT_ID().
            self.note_replay(|replay| replay.numbering = Numbering::TakenBack);
            return self.replay(key);
        }
        if may_differ && replay.numbering == Numbering::Free {
            self.note_replay(|replay| replay.numbering = Numbering::Saved);
            let savepoint = self.own_savepoint();
            return self.put_in_front(key, &format!("SAVEPOINT {savepoint}"));
        }
        self.send_logged(key, replay.next, execution);
        true
    }

    /// Fails a session whose write must not run at this server again, where it was in flight. False if it may.
    pub(crate) fn refuses_written(&mut self, key: ConnectionKey) -> bool {
        let server = self.pools.connections[key].server;
        if self.session.execution.tries.written_on.as_deref() != Some(&server)
            || self.session.awaits_outcome()
        {
            return false;
        }
        let message = format!(
            "Lost connection to {} while the statement ran: it may have written to a table without transactions, so it does not run there again (transaction_replay = 'safe')",
            self.pools.servers[server].server.endpoint
        );
        self.fail_session(OUTCOME_UNKNOWN, &message);
        true
    }

    /// A name that no client has given to a savepoint of its own.
    fn own_savepoint(&mut self) -> String {
        format!("weir_replay_{:x}", self.pools.outcomes.owner(self.ctx))
    }

    /// Sends a statement of Weir's own; its reply leads on.
    pub(crate) fn put_in_front(&mut self, key: ConnectionKey, text: &str) -> bool {
        self.pools.connections[key].send_query(self.ctx, text.as_bytes());
        self.pools.connections[key].expect(self.ctx, Expected::Sync(None));
        true
    }

    /// A statement of Weir's own for the session is sent, which has a time limit like the session's.
    pub(crate) fn watch_own(&mut self) {
        self.session.execution.tries.is_being_prepared = true;
        self.session.execution.tries.started_at = self.ctx.now;
        self.session.watch(self.ctx);
    }

    /// Asks the server for a number; the answer leads on.
    pub(crate) fn ask_number(&mut self, key: ConnectionKey, text: &str) {
        self.watch_own();
        self.pools.connections[key].send_query(self.ctx, text.as_bytes());
        self.pools.connections[key].expect(self.ctx, Expected::Number);
    }

    /// It is there.
    pub(crate) fn number_read(&mut self, key: ConnectionKey) {
        let bytes = std::mem::take(&mut self.pools.connections[key].settling.bytes);
        if self.session.lease() != Some(key) {
            // It was refused, and is asked for elsewhere.
            return self.go_on(key);
        }
        let digits = last_packet(&bytes).and_then(|row| Reader::new(row).lenenc_bytes().ok());
        let number = digits.and_then(|digits| std::str::from_utf8(&word(digits)).ok()?.parse().ok());
        self.note_replay(|replay| {
            replay.number = number;
            // A refusal has it begin anew.
            if replay.inquiry == Inquiry::Read {
                replay.inquiry = Inquiry::Commit;
            }
        });
        self.go_on(key);
    }

    /// Sees whether LAST_INSERT_ID() is what it was. False if the server has to be asked for that; its answer leads on.
    fn knows_insert_id(&mut self, key: ConnectionKey) -> bool {
        let Some(log) = &self.session.transaction.log else { return true };
        let Some(replay) = log.replay else { return true };
        let told = log.told_before(replay.next);
        match replay.id {
            InsertId::Same => true,
            _ if log.begun_with_id.is_some() || told.is_none() => true,
            InsertId::Asked => {
                if told == replay.number {
                    self.note_replay(|replay| replay.id = InsertId::Same);
                }
                true
            }
            InsertId::Unknown => {
                self.note_replay(|replay| replay.id = InsertId::Asked);
                self.ask_number(key, "SELECT LAST_INSERT_ID() LIMIT 1");
                false
            }
        }
    }

    /// The same once the connection is in this state.
    pub(crate) fn replay_in(&mut self, key: ConnectionKey, state: &Rc<State>) -> bool {
        let owed = self.pools.connections[key].replies.expected.len();
        if self.sync(key, state) && self.pools.connections[key].replies.expected.len() == owed {
            // It was in it, but for what a connection begins with.
            return self.replay(key);
        }
        true
    }

    pub(crate) fn note_replay(&mut self, change: impl FnOnce(&mut Replay)) {
        if let Some(replay) = self.session.transaction.log.as_mut().and_then(|log| log.replay.as_mut()) {
            change(replay);
        }
    }

    fn send_logged(&mut self, key: ConnectionKey, index: usize, execution: Option<LoggedExecution>) {
        let session = &mut *self.session;
        let Some(log) = &mut session.transaction.log else { return };
        log.digest.restart();
        let has_hidden_code = log.statement(index).is_some_and(|statement| statement.traits.has_hidden_code);
        let connection = &mut self.pools.connections[key];
        if has_hidden_code {
            connection.traces.hidden_code_of.note(session.socket);
        }
        let Some(buffer) = self.ctx.out.buffer(connection.socket) else { return };
        let command = log.command(index);
        match execution {
            None => buffer.extend_from_slice(command),
            Some(LoggedExecution { prepared, params, types }) => {
                let Some(server) = connection.statements.touch(&prepared) else { return };
                let capabilities = session.capabilities;
                put_execution(command, (params, types.as_ref()), capabilities, server, buffer);
            }
        }
        let known = &mut connection.known;
        (known.insert_id, known.found_rows, known.row_count, known.has_conditions) = (None, None, None, true);
        session.diagnostics.has_own_insert_id = false;
        session.execution.tries.is_being_prepared = true;
        session.execution.tries.started_at = self.ctx.now;
        session.phase = Phase::Running;
        self.session.watch(self.ctx);
        let server = self.pools.connections[key].server;
        let hostgroup = self.pools.connections[key].hostgroup;
        self.pools.servers[server].counts.of(hostgroup).queries += 1;
        self.pools.connections[key].expect(self.ctx, Expected::Replay);
    }

    /// A piece of the reply to a statement that runs again.
    pub(crate) fn replay_piece(
        &mut self,
        key: ConnectionKey,
        step: Step,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let Some(log) = &mut self.session.transaction.log else { return Ok(()) };
        log.digest.take_step(step, bytes)?;
        let mut has_failed = false;
        match step {
            Step::Control(Control::Ok | Control::ResultEnd, _) => {
                let ok = OkPacket::parse(&bytes[HEADER_LEN..], BACKEND_CAPABILITIES)
                    .map_err(|_| BrokenReply::Malformed)?;
                if !ok.status.contains(StatusFlags::IN_TRANS) {
                    log.block(Obstacle::Different);
                }
                for entry in ok.session_tracks().flatten() {
                    if let SessionTrack::TransactionState(text) = entry {
                        self.session.note_transaction_state(text);
                    }
                }
            }
            Step::Control(Control::Err, _) => {
                let err = ErrPacket::parse(&bytes[HEADER_LEN..]).map_err(|_| BrokenReply::Malformed)?;
                let is_by_server = is_by_server(err.code, err.message);
                let is_deadlock = err.code == DEADLOCK;
                let rejected = is_deadlock.then_some(Rejected::Deadlock);
                let rejected = rejected.or(is_by_server.then_some(Rejected::ByServer));
                self.note_replay(|replay| {
                    (replay.rejected, replay.refused_with) = (replay.rejected.or(rejected), err.code);
                });
                has_failed = true;
            }
            Step::Control(Control::PrepareOk | Control::LocalInfile, _) => {
                return Err(BrokenReply::UnexpectedPacket(bytes.get(HEADER_LEN).copied().unwrap_or(0)));
            }
            Step::ColumnsEnd => self.pools.connections[key].columns_end_unseen(self.session),
            _ => {}
        }
        if has_failed {
            let connection = &mut self.pools.connections[key];
            if !connection.access.greeted.is_mariadb {
                connection.traces.unproven = Some(self.session.socket);
            }
            self.note_replay(|replay| replay.has_failed = true);
        }
        Ok(())
    }

    /// A statement has run again.
    pub(crate) fn replayed(&mut self, key: ConnectionKey) {
        let Some(log) = &mut self.session.transaction.log else { return self.go_on(key) };
        let Some(replay) = log.replay else { return self.go_on(key) };
        let is_same = log.statement(replay.next).is_some_and(|statement| log.digest.is_of(statement));
        if let Some(obstacle) = log.obstacle() {
            return self.lose_transaction(Some(key), obstacle);
        }
        if let Some(rejected) = replay.rejected {
            return match self.session.can_replay(self.ctx) {
                true => self.replay_elsewhere(key, rejected),
                false => self.lose_transaction(Some(key), Obstacle::TooManyAttempts),
            };
        }
        if !is_same && replay.numbering == Numbering::Saved {
            // Perhaps only its number differs.
            self.note_replay(|replay| replay.numbering = Numbering::TakenBack);
            let savepoint = self.own_savepoint();
            self.put_in_front(key, &format!("ROLLBACK TO SAVEPOINT {savepoint}"));
            return self.go_on(key);
        }
        if !is_same {
            let statement = replay.next + 1;
            tracing::info!(
                session = self.session.id,
                statement,
                code = replay.refused_with,
                "a transaction that ran again gave another answer"
            );
            return self.lose_transaction(Some(key), Obstacle::Different);
        }
        self.note_replay(|replay| match replay.numbering {
            Numbering::Forced => replay.numbering = Numbering::Used,
            _ => (replay.next, replay.numbering) = (replay.next + 1, Numbering::Free),
        });
        if replay.has_failed {
            // An error does not tell whether the transaction is still open: what follows would be on its own.
            self.note_replay(|replay| replay.has_failed = false);
            let connection = &mut self.pools.connections[key];
            if let Some(buffer) = self.ctx.out.buffer(connection.socket) {
                command::put_ping(buffer);
            }
            connection.expect(self.ctx, Expected::IsOpen);
        }
        self.go_on(key);
    }

    /// The server says whether the transaction that runs again is still open.
    pub(crate) fn take_is_open(&mut self, status: StatusFlags) {
        if let Some(log) = self.session.transaction.log.as_mut().filter(|log| log.replay.is_some())
            && !status.contains(StatusFlags::IN_TRANS)
        {
            log.block(Obstacle::Different);
        }
    }

    fn replayed_all(&mut self) {
        let Some(log) = &mut self.session.transaction.log else { return };
        let replay = log.replay.take().unwrap_or_default();
        let is_id_known = log.begun_with_id.is_some() || replay.id == InsertId::Same;
        log.has_had_turn = false;
        self.leave_turn();
        if is_id_known {
            self.session.diagnostics.is_insert_id_lost = false;
            self.session.diagnostics.has_own_insert_id = true;
            self.pools.connections.retain_insert_id(self.session);
        }
        let waited_us = self.session.waited_for_loss_us(self.ctx.now);
        let totals = &mut self.ctx.statistics.totals;
        totals.transactions_replayed += 1;
        totals.transactions_replayed_us += waited_us;
        tracing::debug!(session = self.session.id, "transaction was run again");
    }

    /// The server takes no statements now, or has undone what was run again: from the begin, on whatever server takes it.
    pub(crate) fn replay_elsewhere(&mut self, key: ConnectionKey, because: Rejected) {
        if because == Rejected::ByServer {
            let server = self.pools.connections[key].server;
            self.pools.suspect(self.ctx, server);
            self.session.note_server_left(None);
        }
        self.discard_lease(key);
        self.session.begin_replay(self.ctx.now);
        self.look_elsewhere();
    }

    /// A server does not prepare a statement that is to run again, or does not take the state in which it ran.
    pub(crate) fn replay_refused(&mut self, key: ConnectionKey, code: u16, text: &str) {
        let because = if code == DEADLOCK { Rejected::Deadlock } else { Rejected::ByServer };
        let is_of_moment = code == DEADLOCK || is_by_server(code, text.as_bytes());
        if is_of_moment && self.session.can_replay(self.ctx) {
            return self.replay_elsewhere(key, because);
        }
        tracing::info!(
            session = self.session.id,
            code,
            text,
            "a server does not take what a transaction needs"
        );
        self.lose_transaction(Some(key), Obstacle::Different);
    }

    /// A session that must leave its server takes its transaction along: it is rolled back there, and runs again elsewhere in
    /// front of the next statement. False if that can't be.
    pub(crate) fn leave_with_transaction(&mut self) -> bool {
        let is_replay = self.session.is_replaying_ahead();
        let is_between =
            is_replay || matches!(self.session.phase, Phase::Idle | Phase::Held | Phase::Waiting(_));
        if !is_between || self.session.lease().is_none() || !self.session.can_replay(self.ctx) {
            return false;
        }
        let left = self.session.lease().map(|lease| self.pools.connections[lease].server);
        self.undo_on_lease();
        self.session.note_server_left(left);
        if is_replay {
            self.session.end_replay_ahead();
        }
        true
    }

    /// What its lease has of the session's transaction is undone there, and is to run again from the begin.
    pub(crate) fn undo_on_lease(&mut self) {
        self.abandon_lease();
        self.lose_what_lease_knew();
        self.session.lose_lease();
        self.session.begin_replay(self.ctx.now);
    }

    /// The transaction can't be run again: its client is told. Certainly nothing of it was committed.
    pub(crate) fn lose_transaction(&mut self, key: Option<ConnectionKey>, obstacle: Obstacle) {
        if self.session.awaits_outcome() {
            return self.fail_session(OUTCOME_UNKNOWN, &message_of(obstacle, true));
        }
        // Without a lease it is lost with it.
        let has_left_server =
            key.is_none() || self.session.transaction.log.as_ref().is_none_or(|log| log.has_left_server);
        if let Some(key) = key {
            // What has been run again goes with its connection.
            self.discard_lease(key);
        }
        self.forget_transaction();
        count_lost(&mut self.ctx.statistics.totals, obstacle, has_left_server);
        let message = message_of(obstacle, has_left_server);
        if self.session.input.upload.is_some() {
            return self.fail_session(LOCK_DEADLOCK, &message);
        }
        if self.session.execution.plan.kind() == CommandKind::LongData {
            // Nothing answers that.
            self.session.farewell.owed_error = Some(Box::new((LOCK_DEADLOCK, (&*message).into())));
        }
        self.answer_error(LOCK_DEADLOCK, &message);
    }
}
