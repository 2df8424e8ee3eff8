//! The end of a statement: what it has left behind, what has to be asked for, and whether the lease may go.

use weir_protocol::error::{LOCK_DEADLOCK, PARSE_ERROR, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::{Dialect, Effects, Kind};

use super::completion::Closes;
use super::model::{
    BackendKey, Ending, Expected, Keeps, Phase, Poison, ServerIndex, SessionKey, Settle, Work, WorkKind,
};
use super::turned_away::is_wsrep_refusal;
use super::{Core, NamesOnServer};

/// As binary strings: results may be in a character set that does not write ASCII as such.
const COLLATION: &[u8] = b"SELECT CAST(CONVERT(@@session.character_set_connection USING latin1) AS BINARY), \
    CAST(CONVERT(@@session.collation_connection USING latin1) AS BINARY)";
/// Variables that say which character set or collation a name means (MariaDB: `utf8` is utf8mb3 or utf8mb4).
const DECIDING: [&str; 3] = ["old_mode", "character_set_collations", "default_collation_for_utf8mb4"];
/// ER_CANT_CHANGE_TX_CHARACTERISTICS: a transaction is open, and was not touched.
const TRANSACTION_IN_PROGRESS: u16 = 1568;
/// So often a server may refuse to answer what Weir asks after a statement (a Galera abort makes it refuse once).
const SETTLE_REFUSALS_MAX: u8 = 3;
/// Errors before anything has run: syntax, no schema, rights, unknown schemas, columns, tables, functions, variables.
pub(super) const REFUSED: [u16; 10] = [1044, 1046, 1049, 1054, 1064, 1142, 1143, 1146, 1193, 1305];
/// SET statements whose effect on the collation is remembered.
const COLLATIONS_MAX: usize = 256;

impl Core {
    /// The reply to a session's command is complete.
    pub(super) fn finish(&mut self, key: BackendKey) {
        // Its client may still be busy with the result, but whoever comes next is not to wait for that.
        let socket = self.backends[key].socket;
        self.out.pause(socket, false);
        self.end_hurry(key);
        let Some(holder) = self.backends[key].holder else { return self.finish_abandoned(key) };
        let session = &self.sessions[holder];
        let is_cut_short = session.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        if is_cut_short || session.infile.is_some() {
            // The server has answered before the command was complete, and there is no telling what it will do
            // with the rest.
            return self.close_session(holder);
        }
        self.send_withheld(holder);
        let rows = self.backends[key].reply_rows;
        let session = &mut self.sessions[holder];
        session.work.deadline_passed = false;
        if let Some(refusal) = session.work.refusal.take() {
            return self.refused(key, holder, refusal);
        }
        if session.work.kind == WorkKind::Reset {
            return self.finish_reset_on(key, holder);
        }
        self.count_statement(key, holder);
        let session = &mut self.sessions[holder];
        if session.work.may_have_written {
            let server = self.backends[key].server;
            let covers_earlier = session.last_write_at == 0
                || session.last_write_server == server
                || self.servers[server].server.shared.covers(session.last_write_at);
            // A writer that has just taken over may not have applied what this session wrote at the one before.
            session.last_write_server = if covers_earlier { server } else { ServerIndex::MAX };
            session.last_write_at = self.now;
            self.servers[server].server.shared.note_write(self.now);
            if !session.is_surely_uncommitted() {
                session.last_commit_at = self.now;
            }
        }
        let (kind, is_ok) = (session.work.kind, matches!(session.work.ending, Ending::Ok { .. }));
        if kind == WorkKind::Track && is_ok && !self.tracked(key, holder) {
            return;
        }
        match kind {
            WorkKind::Execute => self.note_executed(key, holder),
            WorkKind::LoginSchema => return self.schema_checked(holder),
            WorkKind::Fetch => self.note_fetched(key, holder),
            WorkKind::StmtReset => self.note_statement_reset(key, holder),
            _ => {}
        }
        let session = &mut self.sessions[holder];
        if session.work.statement.hidden_code && !session.work.kind.is_harmless() {
            self.backends[key].hidden_code_of.note(session.socket);
        }
        session.apply_multiplex();
        match session.work.ending {
            // The answer is Weir's.
            Ending::Ok { .. } if session.work.kind == WorkKind::Track => {}
            // A PREPARE leaves ROW_COUNT() and the rest alone (MariaDB 10.11).
            Ending::Ok { warnings, .. } if session.work.kind.is_harmless() => {
                if session.work.kind == WorkKind::SetOption {
                    self.take_option(key, holder);
                }
                if warnings > 0 {
                    self.backends[key].has_conditions = true;
                    self.keep_warnings(holder);
                }
            }
            Ending::Ok { affected_rows, insert_id, warnings, has_rows } => {
                let statement = session.work.statement;
                let count = if has_rows { -1 } else { i64::try_from(affected_rows).unwrap_or(i64::MAX) };
                session.row_count = match statement.kind {
                    // It leaves the count alone, unless there is no such condition, of which the OK warns.
                    Kind::GetDiagnostics if !statement.multi && warnings == 0 => session.row_count,
                    Kind::GetDiagnostics if !statement.multi => -1,
                    _ => count,
                };
                self.backends[key].row_count = Some(session.row_count);
                let has_warned = warnings > 0 || session.work.has_warned;
                let changes_rows = statement.kind.may_run_triggers() && !statement.multi;
                // A statement that changes rows ends those of before, on either family.
                self.backends[key].has_conditions =
                    has_warned || (self.backends[key].has_conditions && !changes_rows);
                self.note_kept(holder, insert_id, warnings, has_rows);
                let counted = self.counted(holder, has_rows.then_some(rows));
                self.note_found_rows(key, holder, counted);
                self.apply_effects(holder);
                self.check_tracking(key, holder);
                self.note_renewal(holder);
                self.audit_schema(holder);
            }
            Ending::Err(_) => {
                session.undo_tracking();
                if let (WorkKind::Execute, Some(prepared)) = (session.work.kind, &session.work.prepared) {
                    self.backends[key].statements.forget_types(prepared);
                }
                self.note_error(holder);
                self.backends[key].row_count = Some(self.sessions[holder].row_count);
                self.backends[key].has_conditions = true;
            }
            Ending::None => {}
        }
        let closes = self.closes(key, holder);
        if closes == Closes::Yes {
            self.backends[key].poison = Some(Poison::ClientGone);
            return self.close_session(holder);
        }
        let mut settle = self.what_to_settle(key, holder);
        if closes == Closes::Perhaps && settle == Settle::Nothing {
            // A connection that answers is none that is being closed.
            settle = Settle::Status;
        }
        if settle == Settle::Nothing {
            return self.settle_down(holder);
        }
        self.sessions[holder].phase = Phase::Settling;
        if settle == Settle::Collation && self.sessions[holder].keeps.contains(Keeps::FOUND_ROWS) {
            // The question is a query, and has a number of rows itself.
            self.save_diagnostics(key, holder);
        }
        self.ask(key, settle);
    }

    /// The statement of a client that has left is over. Where it had been answered before the client left, the
    /// connection is reset for the next one; otherwise it has served.
    fn finish_abandoned(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        backend.settle_bytes.clear();
        backend.settle_again = false;
        backend.is_turned_away = false;
        backend.settle_refusals = 0;
        backend.found_rows = None;
        (backend.row_count, backend.has_conditions) = (None, true);
        // A KILL may be on its way.
        if backend.kills_pending == 0 && backend.expected.is_empty() {
            self.recycle(key, Pins::empty());
        }
    }

    /// COM_RESET_CONNECTION on a lease: session and connection start anew.
    fn finish_reset_on(&mut self, key: BackendKey, holder: SessionKey) {
        if matches!(self.sessions[holder].work.ending, Ending::Err(_)) {
            // Nothing was reset (Galera's 1213): the client has the error, the state is what it was.
            self.sessions[holder].row_count = -1;
            return self.settle_after_error(key, holder);
        }
        let left = self.sessions[holder].pins.pins();
        let is_opaque = left.intersects(Pins::OPAQUE) || self.backends[key].is_suspect;
        self.finish_reset(holder);
        if is_opaque && !self.backends[key].greeted.is_mariadb {
            return self.finish_reset_by_login(key, holder);
        }
        let stays = is_opaque || !self.sessions[holder].pins.is_empty();
        if !stays && self.forgets_its_sql_mode(key) {
            self.backends[key].poison = Some(Poison::Stale);
        }
        if !stays {
            self.detach(holder);
        }
        self.set_up_again(key, is_opaque);
        self.answered_here(holder);
    }

    /// The same where a role may be left, for which MySQL can't be asked: a login gives those that the user should have.
    fn finish_reset_by_login(&mut self, key: BackendKey, holder: SessionKey) {
        if !self.sessions[holder].pins.is_empty() {
            // The connection is closed in the end.
            self.sessions[holder].pins.insert(Pins::ROLE);
            self.set_up_again(key, true);
        } else {
            self.detach(holder);
            self.recycle(key, Pins::OPAQUE);
        }
        self.answered_here(holder);
    }

    /// Pins by the statement's text.
    pub(super) fn apply_effects(&mut self, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        let work = &session.work;
        let (statement, kind) = (work.statement, work.kind);
        if session.upload.is_some() && kind == WorkKind::Query {
            session.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let ends_transaction = matches!(
            statement.kind,
            Kind::Commit | Kind::Rollback | Kind::Begin | Kind::StartTransactionReadOnly
        );
        if ends_transaction && kind != WorkKind::Prepare && !statement.multi {
            session.pins.remove(Pins::SAVEPOINT);
        }
        if kind == WorkKind::Prepare || statement.effects.is_empty() {
            return;
        }
        let state = session.state.clone();
        let dialect = session.dialect;
        let prepared = work.prepared.clone();
        let inbox = &session.inbox;
        let text: &[u8] = match (&prepared, kind) {
            (Some(prepared), WorkKind::Execute) => prepared.text(),
            _ => inbox.get(frame::HEADER_LEN + 1..session.command_bytes.min(inbox.len())).unwrap_or_default(),
        };
        let names = || if statement.multi { Vec::new() } else { weir_sql::named_effects(text, dialect) };
        session.pins.apply(statement.effects, state.schema(), names);
        if statement.effects.contains(Effects::SAVEPOINT) && !session.is_autocommit {
            session.pins.insert(Pins::SAVEPOINT);
        }
    }

    /// After an ERR the state of the lease is unknown until proven.
    fn note_error(&mut self, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        session.row_count = -1;
        let (statement, is_several) = (session.work.statement, session.runs_several());
        self.keep_warnings(holder);
        if is_several || statement.effects.intersects(Effects::LAST_INSERT_ID_SET | Effects::ROUTINE) {
            // A row before the one that failed has set it.
            self.keep_insert_id(holder);
        }
        if let Some(lease) = self.sessions[holder].lease {
            let counted = self.counted_before_error(holder);
            self.note_found_rows(lease, holder, counted);
        }
        let session = &mut self.sessions[holder];
        if session.upload.is_some() && session.work.kind == WorkKind::Query {
            session.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let happened = effects_before_error(&session.work, is_several);
        session.pins.apply(happened, b"", Vec::new);
        if session.work.kind == WorkKind::Prepare {
            return;
        }
        if may_have_changed_before_error(&session.work, is_several) {
            session.pins.insert(Pins::UNKNOWN_AFTER_ERROR);
            if let Some(lease) = session.lease
                && !self.backends[lease].greeted.is_mariadb
            {
                self.backends[lease].unproven = Some(session.socket);
            }
        }
        let session = &mut self.sessions[holder];
        if is_several && statement.effects.contains(Effects::SAVEPOINT) {
            // Without autocommit it may stand; the status tells if it can't.
            session.pins.insert(Pins::SAVEPOINT);
        }
        if is_several || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN) {
            // What it may have created before it failed is taken to exist.
            let created = statement.effects
                - (Effects::TABLE_DROPPED
                    | Effects::TEXT_DEALLOCATE
                    | Effects::HANDLER_CLOSED
                    | Effects::LOCK_RELEASED
                    | Effects::TABLES_UNLOCKED);
            session.pins.apply(created, b"", Vec::new);
        }
    }

    fn what_to_settle(&mut self, key: BackendKey, holder: SessionKey) -> Settle {
        let session = &self.sessions[holder];
        let pins = session.pins.pins();
        let may_have_ended = session.work.kind != WorkKind::Prepare || pins.contains(Pins::TRANSACTION);
        if matches!(session.work.ending, Ending::Err(_)) && may_have_ended {
            // Where other reasons hold the session anyway, the pending changes can wait as well.
            let is_only_unknown = pins == Pins::UNKNOWN_AFTER_ERROR;
            let asks_at_once = is_only_unknown && self.may_ask_for_pending(key, holder);
            return if asks_at_once { Settle::Pending } else { Settle::Status };
        }
        if session.work.charset_reported {
            if let Some(known) = self.known_collation(key, holder) {
                self.take_collation(key, holder, &known.0, &known.1);
                return Settle::Nothing;
            }
            return Settle::Collation;
        }
        if pins == Pins::UNKNOWN_AFTER_ERROR { Settle::Pending } else { Settle::Nothing }
    }

    /// Whether what is pending may be asked for before the server has told its status: MariaDB's question ends with a
    /// ROLLBACK, so it must be certain that no transaction is open.
    fn may_ask_for_pending(&self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        !self.backends[key].greeted.is_mariadb || (session.is_autocommit && !session.runs_several())
    }

    pub(super) fn ask(&mut self, key: BackendKey, settle: Settle) {
        match settle {
            Settle::Nothing => return,
            Settle::Collation => {
                self.send_query(key, COLLATION);
            }
            // Only an OK that reports a change of its own brings out what is pending, and that change must not be one of the
            // session's state, which it would hide (seen on MariaDB 10.11). MySQL (9.7) tells it in any OK.
            Settle::Pending if self.backends[key].greeted.is_mariadb => {
                self.send_query(key, b"SET TRANSACTION READ WRITE");
            }
            Settle::Undone | Settle::Tracking => {
                // Whatever completion_type says.
                self.send_query(key, b"ROLLBACK AND NO CHAIN NO RELEASE");
                self.expect(key, Expected::Settle(Settle::Undone));
                self.send_query(key, b"SET SESSION sql_mode=@@session.sql_mode");
                return self.expect(key, Expected::Settle(Settle::Tracking));
            }
            Settle::Pending | Settle::Status => {
                let socket = self.backends[key].socket;
                if let Some(buffer) = self.out.buffer(socket) {
                    weir_protocol::command::put_ping(buffer);
                }
            }
        }
        self.expect(key, Expected::Settle(settle));
    }

    /// A row of an answer: character_set_connection and collation_connection.
    pub(super) fn settle_row(&mut self, key: BackendKey, bytes: &[u8]) {
        self.backends[key].settle_bytes.extend_from_slice(bytes);
    }

    pub(super) fn settle_ok(&mut self, key: BackendKey, settle: Settle, ok: &OkPacket<'_>) {
        let Some(holder) = self.backends[key].holder else { return };
        let session = &mut self.sessions[holder];
        match settle {
            Settle::Status => session.take_status(ok.status, self.now),
            Settle::Pending => {
                session.take_status(ok.status, self.now);
                session.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
                self.take_pending(key, holder, ok);
            }
            Settle::Undone => {
                session.take_status(ok.status, self.now);
                session.pins.remove(Pins::NEXT_TRANSACTION);
            }
            Settle::Tracking => {
                session.take_status(ok.status, self.now);
                self.check_reports(key, holder, ok);
            }
            Settle::Collation | Settle::Nothing => {}
        }
    }

    /// The server was asked to set a variable, and must say so in every way: what says nothing has been switched off, and
    /// so may have hidden anything.
    fn check_reports(&mut self, key: BackendKey, holder: SessionKey, ok: &OkPacket<'_>) {
        let says =
            |wanted: fn(&SessionTrack<'_>) -> bool| ok.session_tracks().flatten().any(|entry| wanted(&entry));
        let is_told = says(|entry| matches!(entry, SessionTrack::SystemVariable { .. }))
            && says(|entry| matches!(entry, SessionTrack::StateChange(true)));
        if self.backends[key].is_tracked && !is_told {
            self.backends[key].is_tracked = false;
            self.sessions[holder].pins.insert(Pins::STATE_CHANGE);
        }
    }

    /// The session's command ends with an error that has been queued, and that may have ended its transaction: Galera's
    /// 1213 meets commands of any kind.
    pub(super) fn settle_after_error(&mut self, key: BackendKey, holder: SessionKey) {
        self.sessions[holder].phase = Phase::Settling;
        self.ask(key, Settle::Status);
    }

    /// What had changed before the error and is reported only now. The statement's text does not tell what of it has been
    /// done, so nothing explains it.
    fn take_pending(&mut self, key: BackendKey, holder: SessionKey, ok: &OkPacket<'_>) {
        let is_over = self.sessions[holder].work.statement.kind == Kind::SetStatement;
        let has_own_change = ok
            .session_tracks()
            .flatten()
            .any(|entry| matches!(entry, SessionTrack::TransactionCharacteristics(_)));
        let is_silent =
            self.backends[key].greeted.is_mariadb && self.backends[key].is_tracked && !has_own_change;
        match self.take_entries(key, holder, ok) {
            // Not even its own change is reported, so nothing is: tracking has been switched off.
            Ok(_) if is_silent => {
                self.backends[key].is_tracked = false;
                self.sessions[holder].pins.insert(Pins::STATE_CHANGE);
            }
            Ok(reported) if !reported.is_change() => {}
            // Its own variables are back, which the server still tells.
            Ok(reported) if is_over && !reported.schema => self.backends[key].is_suspect = true,
            Ok(_) => self.sessions[holder].pins.insert(Pins::STATE_CHANGE),
            Err(_) => self.sessions[holder].pins.insert(Pins::UNKNOWN_AFTER_ERROR),
        }
    }

    /// The server can't answer (Galera's 1213 for the next command of any kind): once more.
    ///
    /// In a transaction that 1213 was for the client, whose next command gets it.
    pub(super) fn settle_refused(&mut self, key: BackendKey, error: ServerError, text: &str) {
        let backend = &mut self.backends[key];
        if let (TRANSACTION_IN_PROGRESS, Some(holder)) = (error.code, backend.holder) {
            return self.sessions[holder].pins.insert(Pins::TRANSACTION);
        }
        backend.settle_again = true;
        backend.is_turned_away |= is_wsrep_refusal(error.code, text.as_bytes());
        let Some(holder) = backend.holder else { return };
        let session = &mut self.sessions[holder];
        if error.code == LOCK_DEADLOCK.code && session.pins.pins().contains(Pins::TRANSACTION) {
            session.owed_error = Some(Box::new((error, text.into())));
        }
    }

    /// An answer is complete.
    pub(super) fn settled(&mut self, key: BackendKey, settle: Settle) {
        let Some(holder) = self.backends[key].holder else { return self.finish_abandoned(key) };
        let is_refused = self.backends[key].settle_again;
        match settle {
            // Its other half, now that it is certain that no transaction is open.
            Settle::Pending if self.backends[key].greeted.is_mariadb && !is_refused => {
                let is_open = self.sessions[holder].pins.pins().contains(Pins::TRANSACTION);
                return if is_open { self.settle_down(holder) } else { self.ask(key, Settle::Undone) };
            }
            Settle::Undone => return, // the last answer is still to come
            _ => {}
        }
        let bytes = std::mem::take(&mut self.backends[key].settle_bytes);
        let is_turned_away = std::mem::take(&mut self.backends[key].is_turned_away);
        if std::mem::take(&mut self.backends[key].settle_again) {
            if is_turned_away && matches!(settle, Settle::Pending | Settle::Tracking) {
                return self.turned_away_settling(key, holder);
            }
            self.backends[key].settle_refusals += 1;
            if self.backends[key].settle_refusals < SETTLE_REFUSALS_MAX {
                let settle = if settle == Settle::Tracking { Settle::Pending } else { settle };
                return self.ask(key, settle);
            }
            // No answer is to be had: the session keeps the connection, of which nothing is known.
            self.backends[key].settle_refusals = 0;
            self.sessions[holder].pins.insert(Pins::UNREADABLE_VARIABLE);
            return self.settle_down(holder);
        }
        self.backends[key].settle_refusals = 0;
        if settle == Settle::Collation {
            match last_row(&bytes) {
                Some((charset, collation)) => {
                    self.remember_collation(key, holder, &charset, &collation);
                    self.take_collation(key, holder, &charset, &collation);
                }
                None => self.sessions[holder].pins.insert(Pins::UNREADABLE_VARIABLE),
            }
        } else if self.sessions[holder].work.charset_reported {
            // Before the error, as the first of several statements.
            return self.ask(key, Settle::Collation);
        } else if settle == Settle::Status && self.sessions[holder].pins.pins() == Pins::UNKNOWN_AFTER_ERROR {
            // Now that it is known that no transaction is open.
            return self.ask(key, Settle::Pending);
        }
        self.settle_down(holder);
    }

    fn take_collation(&mut self, key: BackendKey, holder: SessionKey, charset: &str, collation: &str) {
        let state = self.backends[key]
            .state
            .with_variable("character_set_connection", charset)
            .with_variable("collation_connection", collation);
        let state = self.interner.intern(state);
        self.backends[key].state = state.clone();
        self.set_state(holder, state);
    }

    /// `SET NAMES` with the same words gives the same collation on the same server, unless one of the variables says
    /// otherwise that tell which collation or character set a name means, set by the session or what it began with.
    /// Anything else is asked for.
    fn known_collation(&self, key: BackendKey, holder: SessionKey) -> Option<super::CharsetAndCollation> {
        self.collations.get(&self.meaning_of_names(key, holder)?).cloned()
    }

    fn remember_collation(&mut self, key: BackendKey, holder: SessionKey, charset: &str, collation: &str) {
        if self.collations.len() < COLLATIONS_MAX
            && let Some(names) = self.meaning_of_names(key, holder)
        {
            self.collations.insert(names, (charset.into(), collation.into()));
        }
    }

    fn meaning_of_names(&self, key: BackendKey, holder: SessionKey) -> Option<NamesOnServer> {
        let text: Box<[u8]> = self.set_names_text(holder)?.into();
        let session = &self.sessions[holder];
        let begun_with = session.defaults.as_ref()?.variables();
        let value = |name| session.state.variable(name).or_else(|| begun_with.variable(name)).map(Box::from);
        let decides: [Option<Box<str>>; 3] = DECIDING.map(value);
        // Where none is known, the server's own values decide, which may be others at any time.
        decides.iter().any(Option::is_some).then_some((self.backends[key].server, text, decides))
    }

    fn set_names_text(&self, holder: SessionKey) -> Option<&[u8]> {
        let session = &self.sessions[holder];
        let statement = session.work.statement;
        if session.work.kind != WorkKind::Query || statement.kind != Kind::Set || statement.multi {
            return None;
        }
        let text =
            session.inbox.get(frame::HEADER_LEN + 1..session.command_bytes.min(session.inbox.len()))?;
        let starts = text.len() < 100 && text.get(..10)?.eq_ignore_ascii_case(b"SET NAMES ");
        let is_plain = starts
            && !text.contains(&b',')
            && !text.to_ascii_lowercase().windows(7).any(|word| word == b"default");
        is_plain.then_some(text)
    }

    /// The session's command is over; its lease stays if a pin says so.
    pub(super) fn settle_down(&mut self, holder: SessionKey) {
        let session = &self.sessions[holder];
        // A lease that was put aside takes the place of this one.
        let stays = session.aside.is_some() || self.stays(holder);
        let ends = session.close_when_done;
        self.command_done(holder);
        if ends {
            return self.close_session(holder);
        }
        if !stays {
            self.release(holder);
        }
        let session = &self.sessions[holder];
        if !session.inbox.is_empty() || self.draining_until.is_some() {
            self.runnable.push_back((holder, session.socket));
        }
    }

    /// Replaces a session's state, and what is derived from it.
    pub(super) fn set_state(&mut self, key: SessionKey, state: std::rc::Rc<weir_session::state::State>) {
        let session = &mut self.sessions[key];
        let fallback = Dialect { server: session.dialect.server, ..self.default_dialect };
        let fallback = session.default_dialect(fallback);
        (session.dialect, session.is_text_certain) = super::local::dialect_of(&state, fallback);
        // Until a server has told its own sql_mode, quotes and backslashes may mean one thing or another.
        session.knows_sql_mode = state.variable("sql_mode").is_some() || session.default_sql_mode().is_some();
        session.state = state;
        self.note_wait_timeout(key);
    }
}

/// Whether a statement may have changed its session before it failed: the code that it has run, the statements before the
/// one that failed, or the first items of a list of SET, of which the last ones (PASSWORD, say) may fail on their own.
fn may_have_changed_before_error(work: &Work, is_several: bool) -> bool {
    let statement = &work.statement;
    let is_certain = matches!(work.ending, Ending::Err(code) if code == PARSE_ERROR.code)
        && !statement.effects.intersects(Effects::ROUTINE);
    let runs_code =
        statement.hidden_code || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
    is_several || (!is_certain && (runs_code || statement.kind == Kind::Set))
}

/// What a statement may have done to its session before it failed with this error: expressions are evaluated row
/// by row.
fn effects_before_error(work: &Work, is_several: bool) -> Effects {
    const BEGUN: Effects = Effects::USER_VARIABLE.union(Effects::LOCK_ACQUIRED).union(Effects::SEQUENCE);
    let Ending::Err(code) = work.ending else { return Effects::empty() };
    let statement = &work.statement;
    if work.kind == WorkKind::Prepare || (REFUSED.contains(&code) && !is_several) {
        return Effects::empty();
    }
    // SET assigns everything or nothing (MariaDB 10.11).
    let is_set = statement.kind == Kind::Set && !is_several;
    (statement.effects & BEGUN) - if is_set { Effects::USER_VARIABLE } else { Effects::empty() }
}

/// The last of a reply's data packets; definitions of columns are among them.
pub(super) fn last_packet(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    let mut row = None;
    while let Some(header) = frame::Header::parse(rest) {
        let end = frame::HEADER_LEN + header.len;
        row = rest.get(frame::HEADER_LEN..end);
        rest = rest.get(end..)?;
    }
    row
}

/// The two columns of the last row of a reply's data packets.
fn last_row(bytes: &[u8]) -> Option<(String, String)> {
    let mut reader = Reader::new(last_packet(bytes)?);
    let mut column = || String::from_utf8(reader.lenenc_bytes().ok()?.to_vec()).ok();
    Some((column()?, column()?))
}
