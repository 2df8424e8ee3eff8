//! The end of a statement: what it has left behind, what has to be asked for, and whether the lease may go.

use weir_protocol::error::{LOCK_DEADLOCK, PARSE_ERROR, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind};

use crate::context::Context;
use crate::context::keys::{ConnectionKey, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::{
    Access, DiscardReason, Expected, Retained, ServerConnection, Settling, Traces,
};
use crate::session::Session;
use crate::session::execution::{Ending, Execution, Settle};
use crate::session::phase::Phase;
use crate::statement::completion_type::Closes;
use crate::statement::recovery::rejected::is_wsrep_refusal;
use crate::statement::work::Work;

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
pub(crate) const REFUSED: [u16; 10] = [1044, 1046, 1049, 1054, 1064, 1142, 1143, 1146, 1193, 1305];
/// SET statements whose effect on the collation is remembered.
const COLLATIONS_MAX: usize = 256;

/// character_set_connection and collation_connection.
pub(crate) type CharsetAndCollation = (Box<str>, Box<str>);
/// The words of a SET NAMES, the server that has them, and what decides about their meaning in the session.
pub(crate) type NamesOnServer = (ServerIndex, Box<[u8]>, [Option<Box<str>>; 3]);

impl Work<'_> {
    /// The reply to a session's command is complete.
    pub(crate) fn finish(&mut self, key: ConnectionKey) {
        // Its client may still be busy with the result, but whoever comes next is not to wait for that.
        let socket = self.pools.connections[key].socket;
        self.ctx.out.pause(socket, false);
        self.pools.connections[key].end_hurry(self.ctx);
        let session = &*self.session;
        let is_cut_short = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        if is_cut_short || session.input.infile.is_some() {
            // The server has answered before the command was complete, and there is no telling what it will do
            // with the rest.
            return self.close_session();
        }
        self.session.send_buffered_result(self.ctx);
        let rows = self.pools.connections[key].replies.rows;
        let session = &mut *self.session;
        session.execution.kill.deadline_passed = false;
        if let Some(refusal) = session.execution.reply.refusal.take() {
            return self.refused(key, refusal);
        }
        if session.execution.plan.kind() == CommandKind::Reset {
            return self.finish_reset_on(key);
        }
        self.pools.count_statement(self.ctx, self.session, key);
        let session = &mut *self.session;
        if session.execution.may_have_written {
            let server = self.pools.connections[key].server;
            let covers_earlier = session.writes.last_at == 0
                || session.writes.last_server == server
                || self.pools.servers[server].server.shared.covers(session.writes.last_at);
            // A writer that has just taken over may not have applied what this session wrote at the one before.
            session.writes.last_server = if covers_earlier { server } else { ServerIndex::MAX };
            session.writes.last_at = self.ctx.now;
            self.pools.servers[server].server.shared.note_write(self.ctx.now);
            if !session.is_surely_uncommitted() {
                session.writes.last_commit_at = self.ctx.now;
            }
        }
        let (kind, is_ok) =
            (session.execution.plan.kind(), matches!(session.execution.ending, Ending::Ok { .. }));
        if kind == CommandKind::Track && is_ok && !self.tracked(key) {
            return;
        }
        match kind {
            CommandKind::Execute => self.pools.connections[key].note_executed(self.ctx, self.session),
            CommandKind::LoginSchema => return self.schema_checked(),
            CommandKind::Fetch => self.pools.connections[key].note_fetched(self.ctx, self.session),
            CommandKind::StmtReset => {
                self.pools.connections[key].note_statement_reset(self.ctx, self.session)
            }
            _ => {}
        }
        let session = &mut *self.session;
        if session.execution.plan.statement().hidden_code && !session.execution.plan.kind().is_harmless() {
            self.pools.connections[key].traces.hidden_code_of.note(session.socket);
        }
        session.apply_multiplex();
        match session.execution.ending {
            // The answer is Weir's.
            Ending::Ok { .. } if session.execution.plan.kind() == CommandKind::Track => {}
            // A PREPARE leaves ROW_COUNT() and the rest alone (MariaDB 10.11).
            Ending::Ok { warnings, .. } if session.execution.plan.kind().is_harmless() => {
                if session.execution.plan.kind() == CommandKind::SetOption {
                    self.pools.take_option(self.session, key);
                }
                if warnings > 0 {
                    self.pools.connections[key].known.has_conditions = true;
                    self.pools.retain_warnings(self.session);
                }
            }
            Ending::Ok { affected_rows, insert_id, warnings, has_rows } => {
                let statement = session.execution.plan.statement();
                let count = if has_rows { -1 } else { i64::try_from(affected_rows).unwrap_or(i64::MAX) };
                session.diagnostics.row_count = match statement.kind {
                    // It leaves the count alone, unless there is no such condition, of which the OK warns.
                    Kind::GetDiagnostics if !statement.multi && warnings == 0 => {
                        session.diagnostics.row_count
                    }
                    Kind::GetDiagnostics if !statement.multi => -1,
                    _ => count,
                };
                self.pools.connections[key].known.row_count = Some(session.diagnostics.row_count);
                let has_warned = warnings > 0 || session.execution.reply.has_warned;
                let changes_rows = statement.kind.may_run_triggers() && !statement.multi;
                // A statement that changes rows ends those of before, on either family.
                self.pools.connections[key].known.has_conditions =
                    has_warned || (self.pools.connections[key].known.has_conditions && !changes_rows);
                self.pools.note_retained(self.ctx, self.session, insert_id, warnings, has_rows);
                let counted = self.pools.counted(self.ctx, self.session, has_rows.then_some(rows));
                self.pools.note_found_rows(self.session, key, counted);
                self.session.apply_effects(self.pools.connections[key].access.greeted.is_mariadb);
                self.pools.connections[key].traces.check_tracking(self.session);
                self.pools.note_renewal(self.session);
                self.session.audit_schema(self.ctx);
            }
            Ending::Err(_) => {
                session.undo_tracking();
                if let (CommandKind::Execute, Some(prepared)) =
                    (session.execution.plan.kind(), &session.execution.text.prepared)
                {
                    self.pools.connections[key].statements.forget_types(prepared);
                }
                self.pools.note_error(self.ctx, self.session);
                self.pools.connections[key].known.row_count = Some(self.session.diagnostics.row_count);
                self.pools.connections[key].known.has_conditions = true;
            }
            Ending::None => {}
        }
        let closes = self.pools.connections[key].closes(self.session);
        if closes == Closes::Yes {
            self.pools.connections[key].discard_reason = Some(DiscardReason::ClientGone);
            return self.close_session();
        }
        let mut settle = self.pools.connections[key].what_to_settle(self.ctx, self.session);
        if closes == Closes::Perhaps && settle == Settle::Nothing {
            // A connection that answers is none that is being closed.
            settle = Settle::Status;
        }
        if settle == Settle::Nothing {
            return self.settle_down();
        }
        self.session.phase = Phase::Settling;
        if settle == Settle::Collation && self.session.diagnostics.retained.contains(Retained::FOUND_ROWS) {
            // The question is a query, and has a number of rows itself.
            self.save_diagnostics(key);
        }
        self.pools.connections[key].ask(self.ctx, settle);
    }
}

impl Work<'_> {
    /// COM_RESET_CONNECTION on a lease: session and connection start anew.
    fn finish_reset_on(&mut self, key: ConnectionKey) {
        if matches!(self.session.execution.ending, Ending::Err(_)) {
            // Nothing was reset (Galera's 1213): the client has the error, the state is what it was.
            self.session.diagnostics.row_count = -1;
            return self.pools.connections[key].settle_after_error(self.ctx, self.session);
        }
        let left = self.session.pins.pins();
        let is_opaque = left.intersects(Pins::OPAQUE) || self.pools.connections[key].traces.is_suspect;
        self.pools.finish_reset(self.ctx, self.session);
        if is_opaque && !self.pools.connections[key].access.greeted.is_mariadb {
            return self.finish_reset_by_login(key);
        }
        let stays = is_opaque || !self.session.pins.is_empty();
        if !stays && self.pools.connections[key].forgets_its_sql_mode() {
            self.pools.connections[key].discard_reason = Some(DiscardReason::Stale);
        }
        if !stays {
            self.pools.detach(self.ctx, self.session);
        }
        self.pools.set_up_again(self.ctx, key, is_opaque);
        self.answered_here();
    }

    /// The same where a role may be left, for which MySQL can't be asked: a login gives those that the user should have.
    fn finish_reset_by_login(&mut self, key: ConnectionKey) {
        if !self.session.pins.is_empty() {
            // The connection is closed in the end.
            self.session.pins.insert(Pins::ROLE);
            self.pools.set_up_again(self.ctx, key, true);
        } else {
            self.pools.detach(self.ctx, self.session);
            self.pools.recycle(self.ctx, key, Pins::OPAQUE);
        }
        self.answered_here();
    }

    pub(crate) fn settle_ok(&mut self, key: ConnectionKey, settle: Settle, ok: &OkPacket<'_>) {
        let session = &mut *self.session;
        match settle {
            Settle::Status => session.take_status(ok.status, self.ctx.now),
            Settle::Pending => {
                session.take_status(ok.status, self.ctx.now);
                session.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
                self.pools.take_pending(self.ctx, self.session, key, ok);
            }
            Settle::Undone => {
                session.take_status(ok.status, self.ctx.now);
                session.pins.remove(Pins::NEXT_TRANSACTION);
            }
            Settle::Tracking => {
                session.take_status(ok.status, self.ctx.now);
                self.pools.connections[key].traces.check_reports(self.session, ok);
            }
            Settle::Collation | Settle::Nothing => {}
        }
    }

    /// The server can't answer (Galera's 1213 for the next command of any kind): once more.
    ///
    /// In a transaction that 1213 was for the client, whose next command gets it.
    pub(crate) fn settle_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        if error.code == TRANSACTION_IN_PROGRESS {
            return self.session.pins.insert(Pins::TRANSACTION);
        }
        connection.settling.again = true;
        connection.settling.is_rejected |= is_wsrep_refusal(error.code, text.as_bytes());
        let session = &mut *self.session;
        if error.code == LOCK_DEADLOCK.code && session.pins.pins().contains(Pins::TRANSACTION) {
            session.farewell.owed_error = Some(Box::new((error, text.into())));
        }
    }

    /// An answer is complete.
    pub(crate) fn settled(&mut self, key: ConnectionKey, settle: Settle) {
        let is_refused = self.pools.connections[key].settling.again;
        match settle {
            // Its other half, now that it is certain that no transaction is open.
            Settle::Pending if self.pools.connections[key].access.greeted.is_mariadb && !is_refused => {
                let is_open = self.session.pins.pins().contains(Pins::TRANSACTION);
                return if is_open {
                    self.settle_down()
                } else {
                    self.pools.connections[key].ask(self.ctx, Settle::Undone)
                };
            }
            Settle::Undone => return, // the last answer is still to come
            _ => {}
        }
        let bytes = std::mem::take(&mut self.pools.connections[key].settling.bytes);
        let is_rejected = std::mem::take(&mut self.pools.connections[key].settling.is_rejected);
        if std::mem::take(&mut self.pools.connections[key].settling.again) {
            if is_rejected && matches!(settle, Settle::Pending | Settle::Tracking) {
                return self.rejected_settling(key);
            }
            self.pools.connections[key].settling.refusals += 1;
            if self.pools.connections[key].settling.refusals < SETTLE_REFUSALS_MAX {
                let settle = if settle == Settle::Tracking { Settle::Pending } else { settle };
                return self.pools.connections[key].ask(self.ctx, settle);
            }
            // No answer is to be had: the session keeps the connection, of which nothing is known.
            self.pools.connections[key].settling.refusals = 0;
            self.session.pins.insert(Pins::UNREADABLE_VARIABLE);
            return self.settle_down();
        }
        self.pools.connections[key].settling.refusals = 0;
        if settle == Settle::Collation {
            match last_row(&bytes) {
                Some((charset, collation)) => {
                    self.pools.connections[key].remember_collation(
                        self.ctx,
                        self.session,
                        &charset,
                        &collation,
                    );
                    self.pools.connections[key].take_collation(self.ctx, self.session, &charset, &collation);
                }
                None => self.session.pins.insert(Pins::UNREADABLE_VARIABLE),
            }
        } else if self.session.execution.reply.charset_reported {
            // Before the error, as the first of several statements.
            return self.pools.connections[key].ask(self.ctx, Settle::Collation);
        } else if settle == Settle::Status && self.session.pins.pins() == Pins::UNKNOWN_AFTER_ERROR {
            // Now that it is known that no transaction is open.
            return self.pools.connections[key].ask(self.ctx, Settle::Pending);
        }
        self.settle_down();
    }

    /// The session's command is over; its lease stays if a pin says so.
    pub(crate) fn settle_down(&mut self) {
        let session = &*self.session;
        // A lease that was put aside takes the place of this one.
        let stays = session.stay.detour.is_some() || self.pools.stays(self.session);
        let ends = session.input.close_when_done;
        self.command_done();
        if ends {
            return self.close_session();
        }
        if !stays {
            self.pools.release(self.ctx, self.session);
            self.hear();
        } else if self.moves_away() {
            return;
        }
        let session = &*self.session;
        if !session.input.inbox.is_empty() || self.ctx.drain.until.is_some() {
            self.ctx.runnable.push_back((self.session.key, session.socket));
        }
    }
}

/// Whether a statement may have changed its session before it failed: the code that it has run, the statements before the
/// one that failed, or the first items of a list of SET, of which the last ones (PASSWORD, say) may fail on their own.
fn may_have_changed_before_error(execution: &Execution, is_several: bool) -> bool {
    let statement = &execution.plan.statement();
    let is_certain = matches!(execution.ending, Ending::Err(code) if code == PARSE_ERROR.code)
        && !statement.effects.intersects(Effects::ROUTINE);
    let runs_code =
        statement.hidden_code || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
    is_several || (!is_certain && (runs_code || statement.kind == Kind::Set))
}

/// What a statement may have done to its session before it failed with this error: expressions are evaluated row
/// by row.
fn effects_before_error(execution: &Execution, is_several: bool) -> Effects {
    const BEGUN: Effects = Effects::USER_VARIABLE.union(Effects::LOCK_ACQUIRED).union(Effects::SEQUENCE);
    let Ending::Err(code) = execution.ending else { return Effects::empty() };
    let statement = &execution.plan.statement();
    if execution.plan.kind() == CommandKind::Prepare || (REFUSED.contains(&code) && !is_several) {
        return Effects::empty();
    }
    // SET assigns everything or nothing (MariaDB 10.11).
    let is_set = statement.kind == Kind::Set && !is_several;
    (statement.effects & BEGUN) - if is_set { Effects::USER_VARIABLE } else { Effects::empty() }
}

/// The last of a reply's data packets; definitions of columns are among them.
pub(crate) fn last_packet(bytes: &[u8]) -> Option<&[u8]> {
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

impl Session {
    /// Pins by the statement's text.
    pub(crate) fn apply_effects(&mut self, is_mariadb: bool) {
        let execution = &self.execution;
        let (statement, kind) = (execution.plan.statement(), execution.plan.kind());
        if self.input.upload.is_some() && kind == CommandKind::Query {
            self.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let ends_transaction = matches!(
            statement.kind,
            Kind::Commit | Kind::Rollback | Kind::Begin | Kind::StartTransactionReadOnly
        );
        if ends_transaction && kind != CommandKind::Prepare && !statement.multi {
            self.pins.remove(Pins::SAVEPOINT);
        }
        if kind == CommandKind::Prepare || statement.effects.is_empty() {
            return;
        }
        let state = self.tracked.state.clone();
        let dialect = self.tracked.dialect;
        let prepared = execution.text.prepared.clone();
        let inbox = &self.input.inbox;
        let text: &[u8] = match (&prepared, kind) {
            (Some(prepared), CommandKind::Execute) => prepared.text(),
            _ => inbox
                .get(frame::HEADER_LEN + 1..self.input.command_bytes.min(inbox.len()))
                .unwrap_or_default(),
        };
        let names = || if statement.multi { Vec::new() } else { weir_sql::named_effects(text, dialect) };
        self.pins.apply(statement.effects, state.schema(), names);
        if statement.effects.contains(Effects::USER_VARIABLE) {
            // A MariaDB is asked for them.
            if !is_mariadb {
                self.pins.note_variables(weir_session::user_variables::names_in(text, dialect));
            }
            self.forget_obstacle();
        }
        if statement.effects.contains(Effects::SAVEPOINT) && !self.transaction.is_autocommit {
            self.pins.insert(Pins::SAVEPOINT);
        }
    }

    fn set_names_text(&self) -> Option<&[u8]> {
        let statement = self.execution.plan.statement();
        if self.execution.plan.kind() != CommandKind::Query || statement.kind != Kind::Set || statement.multi
        {
            return None;
        }
        let text = self
            .input
            .inbox
            .get(frame::HEADER_LEN + 1..self.input.command_bytes.min(self.input.inbox.len()))?;
        let starts = text.len() < 100 && text.get(..10)?.eq_ignore_ascii_case(b"SET NAMES ");
        let is_plain = starts
            && !text.contains(&b',')
            && !text.to_ascii_lowercase().windows(7).any(|word| word == b"default");
        is_plain.then_some(text)
    }
}

impl ServerConnection {
    pub(crate) fn ask(&mut self, ctx: &mut Context, settle: Settle) {
        match settle {
            Settle::Nothing => return,
            Settle::Collation => {
                self.send_query(ctx, COLLATION);
            }
            // Only an OK that reports a change of its own brings out what is pending, and that change must not be one of the
            // session's state, which it would hide (seen on MariaDB 10.11). MySQL (9.7) tells it in any OK.
            Settle::Pending if self.access.greeted.is_mariadb => {
                self.send_query(ctx, b"SET TRANSACTION READ WRITE");
            }
            Settle::Undone | Settle::Tracking => {
                // Whatever completion_type says.
                self.send_query(ctx, b"ROLLBACK AND NO CHAIN NO RELEASE");
                self.expect(ctx, Expected::Settle(Settle::Undone));
                self.send_query(ctx, b"SET SESSION sql_mode=@@session.sql_mode");
                return self.expect(ctx, Expected::Settle(Settle::Tracking));
            }
            Settle::Pending | Settle::Status => {
                let socket = self.socket;
                if let Some(buffer) = ctx.out.buffer(socket) {
                    weir_protocol::command::put_ping(buffer);
                }
            }
        }
        self.expect(ctx, Expected::Settle(settle));
    }
}

impl ServerConnection {
    fn what_to_settle(&mut self, ctx: &mut Context, session: &mut Session) -> Settle {
        let pins = session.pins.pins();
        let may_have_ended =
            session.execution.plan.kind() != CommandKind::Prepare || pins.contains(Pins::TRANSACTION);
        if matches!(session.execution.ending, Ending::Err(_)) && may_have_ended {
            // Where other reasons hold the session anyway, the pending changes can wait as well.
            let is_only_unknown = pins == Pins::UNKNOWN_AFTER_ERROR;
            let asks_at_once = is_only_unknown && self.access.may_ask_for_pending(session);
            return if asks_at_once { Settle::Pending } else { Settle::Status };
        }
        if session.execution.reply.charset_reported {
            if let Some(known) = self.known_collation(ctx, session) {
                self.take_collation(ctx, session, &known.0, &known.1);
                return Settle::Nothing;
            }
            return Settle::Collation;
        }
        if pins == Pins::UNKNOWN_AFTER_ERROR { Settle::Pending } else { Settle::Nothing }
    }

    /// The session's command ends with an error that has been queued, and that may have ended its transaction: Galera's
    /// 1213 meets commands of any kind.
    pub(crate) fn settle_after_error(&mut self, ctx: &mut Context, session: &mut Session) {
        session.phase = Phase::Settling;
        self.ask(ctx, Settle::Status);
    }

    fn take_collation(&mut self, ctx: &mut Context, session: &mut Session, charset: &str, collation: &str) {
        let state = self
            .state
            .with_variable("character_set_connection", charset)
            .with_variable("collation_connection", collation);
        let state = ctx.interner.intern(state);
        self.state = state.clone();
        session.set_state(ctx, state);
    }

    /// `SET NAMES` with the same words gives the same collation on the same server, unless one of the variables says
    /// otherwise that tell which collation or character set a name means, set by the session or what it began with.
    /// Anything else is asked for.
    fn known_collation(
        &self,
        ctx: &Context,
        session: &Session,
    ) -> Option<crate::statement::statement_end::CharsetAndCollation> {
        ctx.learnt.collations.get(&self.meaning_of_names(session)?).cloned()
    }

    fn remember_collation(&self, ctx: &mut Context, session: &Session, charset: &str, collation: &str) {
        if ctx.learnt.collations.len() < COLLATIONS_MAX
            && let Some(names) = self.meaning_of_names(session)
        {
            ctx.learnt.collations.insert(names, (charset.into(), collation.into()));
        }
    }

    fn meaning_of_names(&self, session: &Session) -> Option<NamesOnServer> {
        let text: Box<[u8]> = session.set_names_text()?.into();
        let begun_with = session.tracked.defaults.as_ref()?.variables();
        let value =
            |name| session.tracked.state.variable(name).or_else(|| begun_with.variable(name)).map(Box::from);
        let decides: [Option<Box<str>>; 3] = DECIDING.map(value);
        // Where none is known, the server's own values decide, which may be others at any time.
        decides.iter().any(Option::is_some).then_some((self.server, text, decides))
    }
}

impl Pools {
    /// After an ERR the state of the lease is unknown until proven.
    fn note_error(&mut self, ctx: &Context, session: &mut Session) {
        session.diagnostics.row_count = -1;
        let (statement, is_several) = (session.execution.plan.statement(), session.runs_several());
        self.retain_warnings(session);
        if is_several || statement.effects.intersects(Effects::LAST_INSERT_ID_SET | Effects::ROUTINE) {
            // A row before the one that failed has set it.
            self.retain_insert_id(session);
        }
        if let Some(lease) = session.lease {
            let counted = self.counted_before_error(ctx, session);
            self.note_found_rows(session, lease, counted);
        }
        if session.input.upload.is_some() && session.execution.plan.kind() == CommandKind::Query {
            session.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let happened = effects_before_error(&session.execution, is_several);
        session.pins.apply(happened, b"", Vec::new);
        if happened.contains(Effects::USER_VARIABLE) {
            session.pins.note_variables(None);
        }
        if session.execution.plan.kind() == CommandKind::Prepare {
            return;
        }
        if may_have_changed_before_error(&session.execution, is_several) {
            session.pins.insert(Pins::UNKNOWN_AFTER_ERROR);
            if let Some(lease) = session.lease
                && !self.connections[lease].access.greeted.is_mariadb
            {
                self.connections[lease].traces.unproven = Some(session.socket);
            }
        }
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
            if created.contains(Effects::USER_VARIABLE) {
                session.pins.note_variables(None);
            }
        }
    }

    /// What had changed before the error and is reported only now. The statement's text does not tell what of it has been
    /// done, so nothing explains it.
    fn take_pending(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) {
        let is_over = session.execution.plan.statement().kind == Kind::SetStatement;
        let has_own_change = ok
            .session_tracks()
            .flatten()
            .any(|entry| matches!(entry, SessionTrack::TransactionCharacteristics(_)));
        let is_silent = self.connections[key].access.greeted.is_mariadb
            && self.connections[key].traces.is_tracked
            && !has_own_change;
        match self.take_entries(ctx, session, key, ok) {
            // Not even its own change is reported, so nothing is: tracking has been switched off.
            Ok(_) if is_silent => {
                self.connections[key].traces.is_tracked = false;
                session.pins.insert(Pins::STATE_CHANGE);
            }
            Ok(reported) if !reported.is_change() => {}
            // Its own variables are back, which the server still tells.
            Ok(reported) if is_over && !reported.schema => self.connections[key].traces.is_suspect = true,
            Ok(_) => session.pins.insert(Pins::STATE_CHANGE),
            Err(_) => session.pins.insert(Pins::UNKNOWN_AFTER_ERROR),
        }
    }
}

impl Traces {
    /// The server was asked to set a variable, and must say so in every way: what says nothing has been switched off, and
    /// so may have hidden anything.
    pub(crate) fn check_reports(&mut self, session: &mut Session, ok: &OkPacket<'_>) {
        let says =
            |wanted: fn(&SessionTrack<'_>) -> bool| ok.session_tracks().flatten().any(|entry| wanted(&entry));
        let is_told = says(|entry| matches!(entry, SessionTrack::SystemVariable { .. }))
            && says(|entry| matches!(entry, SessionTrack::StateChange(true)));
        if self.is_tracked && !is_told {
            self.is_tracked = false;
            session.pins.insert(Pins::STATE_CHANGE);
        }
    }
}

impl Access {
    /// Whether what is pending may be asked for before the server has told its status: MariaDB's question ends with a
    /// ROLLBACK, so it must be certain that no transaction is open.
    pub(crate) fn may_ask_for_pending(&self, session: &Session) -> bool {
        !self.greeted.is_mariadb || (session.transaction.is_autocommit && !session.runs_several())
    }
}

impl Settling {
    /// A row of an answer: character_set_connection and collation_connection.
    pub(crate) fn settle_row(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}
