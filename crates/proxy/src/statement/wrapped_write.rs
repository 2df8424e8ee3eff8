//! Wraps a write with autocommit in a transaction of Weir's own where commits are marked, so that it can be known whether it
//! was carried out: see [`crate::statement::commit_outcome`].
//!
//! | step | what | the server is lost there, so |
//! | --- | --- | --- |
//! | wrap | START TRANSACTION | nothing was sent: it begins anew elsewhere |
//! | write | the client's statement, whose OK is kept | it is undone with the transaction: the same |
//! | mark | the row of `weir.outcomes`, if anything was changed | the same |
//! | commit | COMMIT; the client gets the OK that was kept | the next writer is asked; what was not committed begins anew |
//!
//! An error of the statement is its client's, and a ROLLBACK follows it. Warnings are fetched before the COMMIT ends them.
//! What has changed a table without transactions does not begin anew.

use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::ok::{OK_HEADER, OkPacket};
use weir_protocol::response::{BrokenReply, Control};
use weir_protocol::status::StatusFlags;
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::plan::repetition::Repetition;
use crate::pool::pools::Pools;
use crate::server::connection::Expected;
use crate::server::errors::{OUTCOME_UNKNOWN, is_cut_off, is_handing_over, is_read_only, is_wsrep_refusal};
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::retained::Retained;
use crate::session::text::has_word;
use crate::session::transaction_log::{StatementOk, Wrapped};
use crate::statement::commit_outcome::UNDONE;
use crate::work::Work;

impl Pools {
    /// Whether the session's statement, which is about to be sent here, is to be wrapped.
    fn is_to_wrap(&self, session: &Session, key: ConnectionKey) -> bool {
        let (plan, text) = (&session.execution.plan, &session.execution.text);
        let is_write =
            matches!(plan.statement().kind, Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete)
                && matches!(plan.kind(), CommandKind::Query | CommandKind::Execute);
        if !is_write || !session.pins.is_empty() || !self.marks_commits(session) {
            return false;
        }
        let client = session.prepared.all.get(&text.statement_id);
        let has_own = plan.kind() == CommandKind::Execute
            && client.is_none_or(|client| client.own.is_some() || client.long_data_bytes() > 0);
        // What it changes is told as a transaction's state.
        let traces = &self.connections[key].traces;
        session.is_transaction_of_its_own()
            && plan.repetition(session.tracked.is_text_certain) == Repetition::Again
            && session.input.upload.is_none()
            && !text.wants_cursor
            && !has_own
            && traces.is_tracked
            && traces.unproven.is_none()
            // Its rows could not be kept.
            && !has_word(session.statement_text(), "returning")
    }
}

impl Work<'_> {
    /// Begins a transaction around the write that is about to be sent; the answer leads on. False if there is one, or none is
    /// wanted.
    pub(crate) fn wraps(&mut self, key: ConnectionKey) -> bool {
        if self.session.is_wrapped() || !self.pools.is_to_wrap(self.session, key) {
            return false;
        }
        self.pools.open_log_of_write(self.session);
        let connection = &mut self.pools.connections[key];
        connection.send_query(self.ctx, b"START TRANSACTION");
        connection.known.row_count = None;
        connection.expect(self.ctx, Expected::Wrap);
        self.session.pins.insert(Pins::TRANSACTION);
        self.session.transaction.since = self.ctx.now;
        self.watch_own();
        true
    }

    /// The server begins no transaction.
    pub(crate) fn wrap_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        self.unwrap_write();
        if self.is_of_server(error, text) && self.ctx.can_move(self.session) {
            return self.run_write_elsewhere(key);
        }
        self.pools.refused_in_front(self.ctx, self.session, key, error, text);
    }

    /// The server has answered the write with anything but an error.
    pub(crate) fn wrapped_answered(
        &mut self,
        key: ConnectionKey,
        control: Control,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        if control != Control::Ok {
            return Err(BrokenReply::UnexpectedPacket(bytes.get(HEADER_LEN).copied().unwrap_or_default()));
        }
        let ok = OkPacket::parse(&bytes[HEADER_LEN..], BACKEND_CAPABILITIES)
            .map_err(|_| BrokenReply::Malformed)?;
        if !ok.status.contains(StatusFlags::IN_TRANS) || ok.status.contains(StatusFlags::MORE_RESULTS_EXISTS)
        {
            // Whatever has become of the transaction: this was not in it.
            self.fail_session(OUTCOME_UNKNOWN, "It ran outside the transaction that was begun for it");
            return Ok(());
        }
        if !ok.session_state.is_empty() {
            self.pools.take_tracked(self.ctx, self.session, key, &ok)?;
        }
        let session = &mut *self.session;
        session.take_status(ok.status, self.ctx.now);
        let OkPacket { affected_rows, last_insert_id: insert_id, warnings, .. } = ok;
        let (has_rows, has_info) = (false, !ok.info.is_empty());
        session.execution.ending = Ending::Ok { affected_rows, insert_id, warnings, has_rows, has_info };
        session.execution.reply.has_warned |= warnings > 0;
        session.execution.reply.results += 1;
        if let Some(wrapped) = session.wrapped_mut() {
            let (sequence, info) = (bytes[3], ok.info.into());
            wrapped.ok = Some(StatementOk { sequence, affected_rows, insert_id, warnings, info });
        }
        Ok(())
    }

    /// The reply to the write is complete: if it has succeeded, it is to be committed. False if there is nothing of that kind.
    pub(crate) fn commits_wrapped(&mut self, key: ConnectionKey, rows: u64) -> bool {
        let has_succeeded = self.session.execution.reply.refusal.is_none()
            && self.session.wrapped_write().is_some_and(|wrapped| wrapped.ok.is_some());
        if !has_succeeded {
            return false;
        }
        self.note_ending(key, rows);
        self.session.execution.reply.is_noted = true;
        if self.session.execution.reply.has_warned {
            self.pools.save_diagnostics(self.ctx, self.session, key);
        }
        self.prepare_connection(key);
        true
    }

    /// Marks and commits the write that was answered, one step at a time. False if there is none.
    pub(crate) fn ends_wrapped(&mut self, key: ConnectionKey) -> bool {
        let Some(log) = &self.session.transaction.log else { return false };
        let is_answered = log.wrapped.as_ref().is_some_and(|wrapped| wrapped.ok.is_some());
        if !is_answered || log.replay.is_some() {
            return false;
        }
        if self.session.diagnostics.fetching > 0 {
            // Galera may answer that with 1213, and a COMMIT behind it would be one of nothing.
            return true;
        }
        if self.session.has_changed_rows() && log.marker.is_none() && !log.is_marker_refused {
            self.put_marker(key);
            return true;
        }
        if let Some(wrapped) = self.session.wrapped_mut() {
            wrapped.is_commit_sent = true;
        }
        let connection = &mut self.pools.connections[key];
        connection.send_query(self.ctx, b"COMMIT AND NO CHAIN NO RELEASE");
        connection.known.row_count = None;
        connection.expect(self.ctx, Expected::CommitWrapped);
        self.watch_own();
        true
    }

    /// The server has committed it: its client gets what the server has answered to it, with what is told of the COMMIT.
    pub(crate) fn wrapped_committed(
        &mut self,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<(), BrokenReply> {
        self.pools.take_entries(self.ctx, self.session, key, ok)?;
        self.session.take_status(ok.status, self.ctx.now);
        self.tell_of_write(ok.session_state)
    }

    /// Its client gets the OK that was kept, and what it was wrapped in is over.
    pub(crate) fn tell_of_write(&mut self, session_state: &[u8]) -> Result<(), BrokenReply> {
        let kept = self.session.wrapped_mut().and_then(|wrapped| wrapped.ok.take());
        self.session.free_outcome_row();
        self.forget_transaction();
        let Some(kept) = kept else { return Ok(()) };
        let StatementOk { sequence, affected_rows, insert_id, warnings, info } = kept;
        let session = &mut *self.session;
        session.execution.reply.is_answering = true;
        let (has_rows, has_info) = (false, !info.is_empty());
        session.execution.ending = Ending::Ok { affected_rows, insert_id, warnings, has_rows, has_info };
        let ok = OkPacket {
            affected_rows,
            last_insert_id: insert_id,
            warnings,
            info: &info,
            session_state,
            ..OkPacket::new(OK_HEADER, session.status())
        };
        self.pools.send_ok(self.ctx, session, &ok, sequence)
    }

    /// The statement has failed, which its client has been told: what it was wrapped in goes.
    pub(crate) fn undo_wrapped(&mut self, key: ConnectionKey) {
        if !self.session.is_wrapped() {
            return;
        }
        // A client may ask for them, and a ROLLBACK ends them.
        self.pools.save_diagnostics(self.ctx, self.session, key);
        let connection = &mut self.pools.connections[key];
        connection.send_query(self.ctx, b"ROLLBACK AND NO CHAIN NO RELEASE");
        connection.known.row_count = None;
        connection.expect(self.ctx, Expected::UndoWrapped);
        self.forget_transaction();
    }

    /// Warnings could not be fetched. Where that is because the transaction is gone, the write is.
    pub(crate) fn fetch_from_wrapped_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        if error.code == LOCK_DEADLOCK.code {
            self.write_undone(key, error, text);
        }
    }

    /// The server does not commit it.
    pub(crate) fn commit_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        if is_cut_off(error.code, text.as_bytes()) {
            // The node has undone it, and what the others have is not known.
            if !self.session.can_ask_for_outcome() {
                return self.fail_session(OUTCOME_UNKNOWN, text);
            }
            self.discard_lease(key);
            self.begin_inquiry();
            return self.look_elsewhere();
        }
        self.write_undone(key, error, text);
    }

    /// The server has undone the write, or does not go on with it, so that it will be: it begins anew where that may help.
    pub(crate) fn write_undone(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let is_free = self.session.may_write_begin_anew();
        let is_of_moment = UNDONE.contains(&error.code);
        let group = self.pools.groups.get(&self.session.execution.hostgroup);
        let repeats_max = group.map_or(0, |group| group.deadlock_retries);
        let is_of_server = self.is_of_server(error, text);
        if is_of_moment {
            // All of it is undone, also its row.
            self.session.free_outcome_row();
        }
        self.unwrap_write();
        if is_free && is_of_moment && u32::from(self.session.execution.tries.repeats) < repeats_max {
            self.discard_lease(key);
            return self.repeat_after_pause();
        }
        if is_free && is_of_server && self.ctx.can_move(self.session) {
            return self.run_write_elsewhere(key);
        }
        // What the error has left of the transaction goes with its connection.
        self.discard_lease(key);
        self.answer_error(error, text);
    }

    /// The server takes no writes now: another one may.
    pub(crate) fn run_write_elsewhere(&mut self, key: ConnectionKey) {
        let server = self.pools.connections[key].server;
        self.pools.suspect(self.ctx, server);
        self.discard_lease(key);
        self.look_elsewhere();
    }

    /// What was wrapped is undone: nothing of the statement has been done.
    pub(crate) fn unwrap_write(&mut self) {
        self.take_insert_id_back();
        self.forget_transaction();
        let execution = &mut self.session.execution;
        execution.ending = Ending::None;
        execution.reply.is_noted = false;
        execution.reply.has_warned = false;
        execution.reply.results = 0;
    }

    /// LAST_INSERT_ID() is what it was before the write.
    fn take_insert_id_back(&mut self) {
        let Some(log) = &self.session.transaction.log else { return };
        let has_given = matches!(self.session.execution.ending, Ending::Ok { insert_id: 1.., .. });
        let begun_with = log.begun_with_id;
        if !has_given || !self.session.execution.reply.is_noted {
            return;
        }
        self.pools.connections.drop_outdated(self.session, Retained::INSERT_ID);
        let diagnostics = &mut self.session.diagnostics;
        diagnostics.has_own_insert_id = false;
        diagnostics.is_insert_id_lost = begun_with.is_none();
        diagnostics.last_insert_id = begun_with.unwrap_or(diagnostics.last_insert_id);
    }

    /// Whether an error says that the server takes no writes now.
    fn is_of_server(&self, error: ServerError, text: &str) -> bool {
        let message = text.as_bytes();
        is_wsrep_refusal(error.code, message)
            || is_read_only(error.code, message)
            || is_handing_over(error.code, message)
    }
}

impl Session {
    fn wrapped_mut(&mut self) -> Option<&mut Wrapped> {
        self.transaction.log.as_mut()?.wrapped.as_mut()
    }
}
