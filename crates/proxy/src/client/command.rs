//! Takes clients' commands apart: what each of them is, and whether Weir answers itself or a server has to.

use weir_protocol::command::{Command, StmtExecute};
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_query_log::AuditKind;
use weir_sql::{Access, Effects, Kind, Statement, Uses};

use crate::context::Context;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::bonds::Lease;
use crate::session::phase::Phase;
use crate::session::retained::Retained;
use crate::session::text::COMMAND_BYTES_KEPT;
use crate::statement::route::Routed;
use crate::work::Work;

/// Passwords that a client may try on one connection with COM_CHANGE_USER (MariaDB 10.11).
const CHANGES_REFUSED_MAX: u8 = 3;

impl Work<'_> {
    /// Takes up the next command of an idle session. False when there is none, or it has to wait.
    pub(crate) fn next_command(&mut self) -> bool {
        let session = &*self.session;
        if session.diagnostics.fetching > 0 {
            return false; // its diagnostics are on their way from the connection that it had
        }
        if !self.skips_rest() {
            return false;
        }
        let session = &*self.session;
        let Some(header) = Header::parse(&session.input.inbox) else {
            if self.ctx.drain.until.is_some() && self.ctx.drain.ends(session) {
                self.close_session();
            }
            return false;
        };
        if header.seq != 0 {
            self.fail_session(error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order");
            return false;
        }
        if self.session.must_read_first(self.ctx)
            || self.pools.connections.must_send_first(self.ctx, self.session)
        {
            return false; // a client that only sends must not have Weir keep the replies to all of it
        }
        let session = &*self.session;
        if header.len > COMMAND_BYTES_KEPT {
            return self.begin_upload(header);
        }
        let end = HEADER_LEN + header.len;
        if session.input.inbox.len() < end {
            return false;
        }
        let session = &mut *self.session;
        session.input.command_bytes = end;
        session.times.last_active_at = self.ctx.now;
        self.dispatch()
    }

    /// Answers the command at the front of the inbox, or starts it on a server. True when it is answered.
    pub(crate) fn dispatch(&mut self) -> bool {
        let session = &mut *self.session;
        let payload = &session.input.inbox[HEADER_LEN..session.input.command_bytes];
        let command = payload.first().and_then(|code| Command::parse(*code));
        let code = payload.first().copied().unwrap_or(0);
        session.execution.reset(self.ctx.now);
        session.execution.text.code = code;
        self.ctx.count_command(command);
        if self.gives_pending_error(command) {
            return matches!(self.session.phase, Phase::Idle);
        }
        self.session.name_last_prepared(self.ctx, command);
        let session = &mut *self.session;
        match command {
            Some(Command::Query) => return self.take_query_attributes() && self.query(),
            Some(Command::StmtPrepare) => return self.prepare(),
            Some(Command::StmtExecute) => return self.execute(),
            Some(Command::StmtClose) => self.close_statement(),
            Some(Command::StmtReset) => return self.reset_statement(),
            Some(Command::StmtSendLongData) => return self.long_data(),
            Some(Command::StmtFetch) => return self.fetch(),
            Some(Command::Ping) => {
                session.diagnostics.row_count = 0;
                self.session.reply_ok(self.ctx);
            }
            Some(Command::InitDb) if session.is_schema_locked() => {
                self.pools.refuse_schema(self.ctx, self.session)
            }
            Some(Command::InitDb) => {
                session.execution.plan = ExecutionPlan::of_command(CommandKind::InitDb);
                return self.start();
            }
            Some(Command::ResetConnection) => return self.reset_connection(),
            Some(Command::ChangeUser) => return self.change_user(),
            Some(Command::FieldList) => return self.field_list(),
            Some(Command::SetOption) => return self.set_option(),
            Some(Command::ProcessInfo) => return self.process_info(),
            Some(Command::ProcessKill) => return self.process_kill(),
            Some(Command::Statistics) => self.statistics(),
            Some(Command::Quit) => {
                self.session.audit(self.ctx, AuditKind::Quit, "");
                self.close_session();
                return false;
            }
            other => self.pools.refuse_command(self.ctx, self.session, other),
        }
        self.command_done();
        true
    }

    /// COM_QUERY.
    pub(crate) fn query(&mut self) -> bool {
        self.session.digest_command(self.ctx);
        if self.route(None) == Routed::Ended {
            return false;
        }
        let mut statement = self.pools.scan_command(self.ctx, self.session);
        let session = &mut *self.session;
        // Only the beginning of a long text has been looked at. One that does little by itself is not that long for nothing.
        let may_hide_more = matches!(statement.access, Access::Control | Access::Inspect);
        statement.multi |= session.input.upload.is_some() && may_hide_more;
        // FOUND_ROWS() may be asked for in a statement that writes.
        let is_read = statement.access == Access::Read
            && session.is_surely_read(self.ctx)
            && !statement.effects.contains(Effects::FOUND_ROWS_CALC);
        session.execution.plan =
            session.execution.plan.with_statement(CommandKind::Query, statement, is_read);
        match statement.kind {
            Kind::Use if session.is_schema_locked() && !statement.multi => {
                self.pools.refuse_schema(self.ctx, self.session);
                self.answered_here();
                return false;
            }
            Kind::SetTransaction if self.pools.announces_read_only(self.ctx, self.session).is_some() => {
                self.answered_here();
                return false;
            }
            Kind::Begin | Kind::StartTransactionReadOnly => self.session.plan_read_only(self.ctx),
            _ => {}
        }
        let asks_for_plan = self.session.asks_for_plan(self.ctx);
        let session = &mut *self.session;
        let special = Uses::CONNECTION_ID
            | Uses::ROW_COUNT
            | Uses::FOUND_ROWS
            | Uses::VIRTUAL_VARIABLE
            | Uses::LAST_GTID
            | Uses::DIAGNOSTICS;
        if statement.effects.contains(Effects::VIRTUAL_VARIABLE)
            || statement.effects.contains(Effects::KILL)
            || statement.kind == Kind::Kill
            || statement.uses.intersects(special)
            || asks_for_plan
        {
            if session.input.upload.is_some() {
                let message = "A statement that asks for what Weir itself knows of the session \
                    (CONNECTION_ID(), ROW_COUNT(), FOUND_ROWS(), SHOW WARNINGS, KILL) is too long";
                self.fail_session(error::NET_PACKET_TOO_LARGE, message);
                return false;
            }
            match self.answer_or_rewrite() {
                crate::answers::own_replies::Outcome::Answered => {
                    self.answered_here();
                    return false;
                }
                crate::answers::own_replies::Outcome::Asked => return false,
                crate::answers::own_replies::Outcome::Run => {}
            }
        }
        self.start()
    }

    /// COM_RESET_CONNECTION: on the lease if the session is pinned to one, else nothing needs a server.
    fn reset_connection(&mut self) -> bool {
        let session = &mut *self.session;
        if session.lease().is_some() {
            session.execution.plan = ExecutionPlan::of_command(CommandKind::Reset);
            return self.start();
        }
        if let Some(retained_on) = session.diagnostics.retained_on
            && self.pools.connections[retained_on]
                .traces
                .retained_for
                .is_some_and(|mark| mark.what.contains(Retained::FOUND_ROWS))
        {
            // It stays over a reset.
            self.pools.fetch_retained(self.ctx, self.session, retained_on);
            self.session.begin_again(self.ctx);
            return false;
        }
        self.pools.finish_reset(self.ctx, self.session);
        self.session.reply_ok(self.ctx);
        self.command_done();
        true
    }

    /// COM_CHANGE_USER: a new login on an open connection.
    fn change_user(&mut self) -> bool {
        if self.session.client.refused_changes >= CHANGES_REFUSED_MAX {
            self.pools.reply_error(self.ctx, self.session, error::UNKNOWN_COM_ERROR, "Unknown command");
            self.command_done();
            return true;
        }
        if let Some(Lease { on: lease, .. }) = self.session.lease.take() {
            self.pools.connections[lease].holder = None;
            self.pools.recycle(self.ctx, lease, self.session.pins.pins());
        }
        self.pools.connections.forget_retained(self.session);
        let plugin = crate::client::login::default_plugin(&self.ctx.snapshot.variables);
        let session = &mut *self.session;
        let mut login = Box::new(weir_session::login::ClientLogin::new(
            session.capabilities,
            plugin,
            session.client.scramble,
            session.client.peer.ip(),
        ));
        let payload = session.input.inbox[HEADER_LEN..session.input.command_bytes].to_vec();
        session.input.inbox.drain(..session.input.command_bytes);
        session.input.command_bytes = 0;
        let mut reply = Vec::new();
        match login.change_user(&payload, session.capabilities, &mut reply) {
            Ok(()) => {
                session.phase = Phase::Login(login);
                self.ctx.out.send(self.session.socket, &reply);
                true
            }
            Err(_) => {
                self.fail_session(error::UNKNOWN_COM_ERROR, "Unknown command");
                false
            }
        }
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
}

/// The statement id of an EXECUTE, RESET, CLOSE or SEND_LONG_DATA.
pub(crate) fn statement_id(payload: &[u8]) -> Option<u32> {
    let bytes = payload.get(StmtExecute::STMT_ID)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl Pools {
    /// Looks at the text of a COM_QUERY or COM_STMT_PREPARE. What it assigns and the server would not report gets
    /// the scope that it means, in the inbox itself.
    pub(crate) fn scan_command(&self, ctx: &Context, session: &mut Session) -> Statement {
        let reads_as = self.reading_of(ctx, session);
        session.tracked.dialect.server = reads_as;
        let text = &session.input.inbox[HEADER_LEN + 1..session.input.command_bytes];
        let statement = weir_sql::scan(text, session.tracked.dialect);
        if !statement.effects.contains(Effects::UNTRACKED) || session.input.upload.is_some() {
            return statement;
        }
        let Some(scoped) = weir_sql::scoped_assignments(text, session.tracked.dialect) else {
            return statement;
        };
        let statement = weir_sql::scan(&scoped, session.tracked.dialect);
        session.input.replace_text(&scoped);
        statement
    }
}
