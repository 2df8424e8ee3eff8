//! Relays the reply of a session's own statement to the client: what passes untouched, what is read, and what is
//! changed for this client.

use std::borrow::Cow;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::StmtPrepareOk;
use weir_protocol::error::ServerError;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{ErrPacket, OkPacket, SessionTrack};
use weir_protocol::response::{BrokenReply, Control, Step};
use weir_protocol::status::StatusFlags;
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::pin::Pins;
use weir_session::state::{State, is_restorable};
use weir_sql::{Effects, Kind, Statement};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::server::reported_state::{Explanation, explain};
use crate::server::variables::{Meaning, meaning_of};
use crate::session::Session;
use crate::session::execution::{Deadlock, Ending, Refusal, Reported};
use crate::work::Work;

impl Work<'_> {
    /// One step of a relayed reply.
    pub(crate) fn relay(&mut self, key: ConnectionKey, step: Step, bytes: &[u8]) -> Result<(), BrokenReply> {
        if self.session.execution.plan.kind() == CommandKind::Track {
            return self.pools.take_track_reply(self.ctx, self.session, key, step, bytes);
        }
        if let Some(log) = &mut self.session.transaction.log {
            log.digest.take_step(step, bytes)?;
        }
        match step {
            Step::Pass(_) => {
                let session = &mut *self.session;
                session.execution.reply.is_answering = true;
                let socket = session.socket;
                self.session.put_owed_eof(self.ctx);
                self.ctx.out.send(socket, bytes);
                self.session.limit_withheld(self.ctx);
                self.session.limit_open_eof(self.ctx);
                self.pools.connections.hold_back(self.ctx, self.session);
            }
            Step::ColumnsEnd => self.pools.connections[key].columns_end(self.ctx, self.session),
            Step::Control(control, _) => self.relay_control(key, control, bytes)?,
            Step::Done | Step::NeedMore => {}
        }
        Ok(())
    }

    fn relay_control(
        &mut self,
        key: ConnectionKey,
        control: Control,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        if control == Control::Err
            && let Some(refusal) = self.pools.refusal(self.ctx, self.session, key, &bytes[HEADER_LEN..])
        {
            let reply = &mut self.session.execution.reply;
            (reply.refusal, reply.refused_at) = (Some(refusal), bytes[3]);
            if refusal == Refusal::Undone {
                reply.deadlock = Some(Box::new(Deadlock { packet: bytes.into(), ..Deadlock::default() }));
            }
            return Ok(());
        }
        if control != Control::Err && self.session.is_wrapped() {
            return self.wrapped_answered(key, control, bytes);
        }
        if control == Control::LocalInfile {
            return self.file_wanted(key, bytes);
        }
        if self.session.execution.plan.kind() == CommandKind::LoginSchema {
            return self.pools.take_login_reply(self.ctx, self.session, key, control, bytes);
        }
        let session = &mut *self.session;
        if !std::mem::replace(&mut session.execution.reply.is_answering, true) {
            // The first packet: how fast the client takes the rest says nothing about the server.
            let took = self.ctx.now.saturating_sub(session.execution.tries.started_at);
            self.pools.servers[self.pools.connections[key].server].latency.observe(took, self.ctx.now);
        }
        let socket = session.socket;
        match control {
            Control::ColumnCount => {
                if self.pools.buffers_results {
                    self.pools.withhold(self.ctx, self.session);
                }
                self.ctx.out.send(socket, bytes);
            }
            Control::Err => self.relay_error(key, bytes)?,
            Control::Ok | Control::ResultEnd => {
                self.pools.relay_ok(self.ctx, self.session, key, control, bytes)?
            }
            Control::PrepareOk => {
                self.pools.connections[key].relay_prepare_ok(self.ctx, self.session, bytes)?
            }
            Control::LocalInfile => {}
        }
        Ok(())
    }
}

impl Work<'_> {
    /// The client gets the server's error.
    pub(crate) fn relay_error(&mut self, key: ConnectionKey, bytes: &[u8]) -> Result<(), BrokenReply> {
        let err = ErrPacket::parse(&bytes[HEADER_LEN..]).map_err(|_| BrokenReply::Malformed)?;
        self.session.put_owed_eof(self.ctx);
        self.session.close_eof(self.ctx, None);
        let session = &mut *self.session;
        session.execution.ending = Ending::Err(err.code);
        let sqlstate = err.sqlstate.unwrap_or(*b"HY000");
        session.diagnostics.last_error = Some(ServerError { code: err.code, sqlstate });
        self.ctx.out.send(session.socket, bytes);
        self.pools.connections[key].count_error(self.ctx, self.session, err.code, err.message);
        Ok(())
    }
}

impl Session {
    /// The statement that the present result answers: of several in one text, each has a result of its own.
    fn statement_answered(&mut self) -> Statement {
        let execution = &self.execution;
        let whole = execution.plan.statement();
        if !whole.multi
            || execution.plan.kind() != CommandKind::Query
            || whole.effects.contains(Effects::ROUTINE)
        {
            return whole;
        }
        let (mut several, index) = (execution.reply.several, execution.reply.results as usize);
        let one = several.read(self.command_text(), self.tracked.dialect, index);
        self.execution.reply.several = several;
        one.unwrap_or(whole)
    }
}

impl ServerConnection {
    fn relay_prepare_ok(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let payload = &bytes[HEADER_LEN..];
        let prepare = StmtPrepareOk::parse(payload).map_err(|_| BrokenReply::Malformed)?;
        debug_assert_eq!(session.execution.plan.kind(), CommandKind::Prepare);
        let id = self.register_statement(ctx, session, prepare.stmt_id, prepare.params);
        session.execution.ending = Ending::Ok {
            affected_rows: 0,
            insert_id: 0,
            warnings: prepare.warnings,
            has_rows: false,
            has_info: false,
        };
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            let start = buffer.len() + HEADER_LEN + StmtPrepareOk::STMT_ID.start;
            buffer.extend_from_slice(bytes);
            buffer[start..start + 4].copy_from_slice(&id.to_le_bytes());
        }
        Ok(())
    }
}

impl Pools {
    /// The reply to Weir's own question for a login's schema: nothing of it is for the client.
    fn take_login_reply(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        control: Control,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let payload = &bytes[HEADER_LEN..];
        if control == Control::Err {
            let err = ErrPacket::parse(payload).map_err(|_| BrokenReply::Malformed)?;
            let error = ServerError { code: err.code, sqlstate: err.sqlstate.unwrap_or(*b"HY000") };
            let text = self.connections[key].message_from(err.message);
            session.execution.ending = Ending::Err(err.code);
            session.farewell.owed_error = Some(Box::new((error, text.into())));
            return Ok(());
        }
        let ok = OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
        self.take_tracked(ctx, session, key, &ok)?;
        session.take_status(ok.status, ctx.now);
        session.execution.ending = Ending::Ok {
            affected_rows: 0,
            insert_id: 0,
            warnings: ok.warnings,
            has_rows: false,
            has_info: false,
        };
        Ok(())
    }

    fn relay_ok(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        control: Control,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let payload = &bytes[HEADER_LEN..];
        let mut ok = OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
        if !ok.session_state.is_empty() {
            self.take_tracked(ctx, session, key, &ok)?;
        }
        session.take_status(ok.status, ctx.now);
        if ok.status.contains(StatusFlags::MORE_RESULTS_EXISTS) {
            session.execution.plan = session.execution.plan.with_unseen_statements();
        }
        session.execution.ending = Ending::Ok {
            affected_rows: ok.affected_rows,
            insert_id: ok.last_insert_id,
            warnings: ok.warnings,
            has_rows: control == Control::ResultEnd,
            has_info: !ok.info.is_empty(),
        };
        // The server knows nothing of the transaction that waits elsewhere.
        ok.status |= session.flags_aside();
        session.execution.reply.has_warned |= ok.warnings > 0;
        session.execution.reply.has_cursor = ok.status.contains(StatusFlags::CURSOR_EXISTS);
        session.execution.reply.is_last_row = ok.status.contains(StatusFlags::LAST_ROW_SENT);
        let mut sequence = bytes[3];
        if session.execution.reply.has_cursor
            && let Some(owed) = session.execution.reply.owed_eof.take()
        {
            sequence = owed;
            self.connections[key].replies.reply.unshift_sequence();
        }
        session.put_owed_eof(ctx);
        session.execution.reply.results += 1;
        let capabilities = session.capabilities;
        if control == Control::ResultEnd && !capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.connections[key].result_end(ctx, session, &ok, sequence);
            return Ok(());
        }
        let is_plain = session.stay.detour.is_none()
            && ok.info.is_empty()
            && ok.session_state.is_empty()
            && !ok.status.contains(StatusFlags::SESSION_STATE_CHANGED);
        if is_plain {
            ctx.out.send(session.socket, bytes);
            return Ok(());
        }
        self.send_ok(ctx, session, &ok, sequence)
    }

    /// The client gets an OK, with as much of the session's state as it has asked for.
    pub(crate) fn send_ok(
        &self,
        ctx: &mut Context,
        session: &Session,
        ok: &OkPacket<'_>,
        mut sequence: u8,
    ) -> Result<(), BrokenReply> {
        let defaults = self.track_defaults(ctx, session);
        let capabilities = session.capabilities;
        let Some(buffer) = ctx.out.buffer(session.socket) else { return Ok(()) };
        let preferences = session.track.as_deref().unwrap_or(&defaults);
        let mut result = Ok(());
        frame::packet(buffer, &mut sequence, |out| {
            result = ok.write_filtered(capabilities, out, |entry| preferences.shows(entry));
        });
        result.map_err(|_| BrokenReply::Malformed)
    }

    /// What the server reports of the session's state is the truth about the session and its lease. What the text of the
    /// statement does not explain wholly keeps the session here, or has the connection wiped for the next one.
    pub(crate) fn take_tracked(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<(), BrokenReply> {
        let was_unknown = session.pins.pins().contains(Pins::UNKNOWN_AFTER_ERROR);
        let reported = self.take_entries(ctx, session, key, ok)?;
        if was_unknown {
            // The pending changes of the statement that failed have left with this.
            session.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
            session.pins.set(
                Pins::STATE_CHANGE,
                reported.is_change() || session.pins.pins().contains(Pins::STATE_CHANGE),
            );
        }
        session.execution.reply.reported.add(reported);
        match explain(&session.statement_answered(), reported) {
            Explanation::Whole => {}
            // A session that is held on a reader could not write any more; and a hint for the optimizer is over.
            Explanation::None if !session.is_pinned_to_reader() && !session.words().hint => {
                session.pins.insert(Pins::STATE_CHANGE);
            }
            Explanation::None | Explanation::Partial => self.connections[key].traces.is_suspect = true,
        }
        Ok(())
    }

    /// Takes in the changes that an OK reports, and tells which kinds of them there were.
    pub(crate) fn take_entries(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<Reported, BrokenReply> {
        let statement = session.execution.plan.statement();
        // What SET STATEMENT sets is over when its OK comes, which still reports it (seen on MariaDB 10.11).
        let may_hide_one = statement.multi && session.words().statement;
        if may_hide_one {
            // Which of the values are over can't be told, and none of them is reported once more.
            session.pins.insert(Pins::UNREADABLE_VARIABLE);
        }
        let takes_variables = statement.kind != Kind::SetStatement && !may_hide_one;
        let mut next: Option<State> = None;
        let mut reported = Reported::default();
        for entry in ok.session_tracks() {
            match entry.map_err(|_| BrokenReply::Malformed)? {
                SessionTrack::SystemVariable { name, value } => {
                    // Reported after statements that have not set a variable: the one by MariaDB, the other by MySQL 9.
                    reported.variable |= name != b"last_gtid" && name != b"statement_id";
                    if name == b"last_gtid" {
                        session.diagnostics.take_last_gtid(value);
                    } else if takes_variables {
                        self.take_variable(ctx, session, key, name, value, &mut next);
                    }
                }
                SessionTrack::Schema(schema) => {
                    reported.schema = true;
                    let state = next.get_or_insert_with(|| (*self.connections[key].state).clone());
                    state.assign_schema(schema);
                }
                SessionTrack::StateChange(changed) => reported.state |= changed,
                SessionTrack::TransactionCharacteristics(text) => {
                    let is_for_next = text.starts_with(b"SET TRANSACTION");
                    session.pins.set(Pins::NEXT_TRANSACTION, is_for_next);
                }
                SessionTrack::TransactionState(text) => {
                    session.note_transaction_state(text);
                    if text.get(7) == Some(&b'L') {
                        session.pins.insert(Pins::TABLE_LOCK);
                    }
                }
                SessionTrack::Gtids { .. } | SessionTrack::Unknown { .. } => {}
            }
        }
        if let Some(next) = next {
            let next = ctx.interner.intern(next);
            self.connections[key].state = next.clone();
            let strays = session.is_schema_locked() && session.tracked.state.schema() != next.schema();
            let next = match strays {
                // By a USE among several statements or in a routine: the next statement is in the session's schema again.
                true => ctx.interner.intern(next.with_schema(session.tracked.state.schema())),
                false => next,
            };
            session.set_state(ctx, next);
        }
        Ok(reported)
    }

    /// One reported variable.
    fn take_variable(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        key: ConnectionKey,
        name: &[u8],
        value: &[u8],
        next: &mut Option<State>,
    ) {
        let (Ok(name), Ok(text)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
            session.pins.insert(Pins::UNREADABLE_VARIABLE);
            return;
        };
        // MariaDB reports wsrep_OSU_method as it is spelled.
        let name = match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::from(name.to_ascii_lowercase()),
            false => Cow::from(name),
        };
        match meaning_of(&name) {
            Meaning::NotState if name.starts_with("session_track_") => {
                self.track_reported(ctx, session, &name, text)
            }
            Meaning::NotState => {}
            Meaning::InsertId => {
                session.diagnostics.last_insert_id =
                    text.parse().unwrap_or(session.diagnostics.last_insert_id);
                session.diagnostics.has_own_insert_id = true;
                session.diagnostics.is_insert_id_lost = false;
                self.connections[key].known.insert_id = Some(session.diagnostics.last_insert_id);
            }
            Meaning::NextStatement => session.pins.insert(Pins::NEXT_STATEMENT),
            Meaning::Unreadable => session.pins.insert(Pins::UNREADABLE_VARIABLE),
            Meaning::State if !is_restorable(value) => session.pins.insert(Pins::UNREADABLE_VARIABLE),
            Meaning::State => {
                match &*name {
                    "profiling" if text == "ON" => session.pins.insert(Pins::PROFILING),
                    "optimizer_trace" if text.contains("enabled=on") => session.pins.insert(Pins::PROFILING),
                    "sql_auto_is_null" => session.pins.set(Pins::AUTO_IS_NULL, text == "ON"),
                    _ => {}
                }
                session.execution.reply.charset_reported |=
                    name == "character_set_connection" || name == "collation_connection";
                let state = next.get_or_insert_with(|| (*self.connections[key].state).clone());
                state.assign(&name, text);
            }
        }
    }
}
