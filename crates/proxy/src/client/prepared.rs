//! Handles prepared statements of clients: their ids, and how they come to exist on the connection that runs them.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, StmtExecute};
use weir_protocol::error;
use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::{ClientStatement, LongData};
use weir_sql::{Access, Effects, Kind, Uses};

use crate::answers::own_replies::KILL_ALONE;
use crate::answers::session_track::{PLAIN_ONLY, plain_set, preparable_set};
use crate::client::command::statement_id;
use crate::context::Context;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::session::Session;
use crate::session::prepared::reads_diagnostics;
use crate::statement::route::Routed;
use crate::work::Work;

/// Statements that one session may have prepared at a time (MySQL's max_prepared_stmt_count is 16382 for all).
const STATEMENTS_MAX: usize = 16_384;
/// And with so many bytes of text and types.
const STATEMENT_BYTES_MAX: usize = 32 << 20;
/// Bytes of text that all sessions of a worker may have prepared; the same text under the same settings counts once.
const WORKER_STATEMENT_BYTES_MAX: usize = 256 << 20;
/// The id of the statement prepared last.
const LAST_PREPARED: [u8; 4] = [0xFF; 4];
/// What is put in the place of it changes with every write.
const GTID_IN_TEXT: &str =
    "@@last_gtid can't be prepared (it could be another session's): send it as a plain query";

impl Work<'_> {
    /// COM_STMT_PREPARE: the server that would run it parses it.
    pub(crate) fn prepare(&mut self) -> bool {
        let session = &mut *self.session;
        session.prepared.last_prepared = 0;
        if session.prepared.all.len() >= STATEMENTS_MAX {
            return self.refuse_prepare(&format!("current value: {STATEMENTS_MAX}"));
        }
        if session.prepared.bytes + session.input.command_bytes > STATEMENT_BYTES_MAX {
            let why = format!("of one session, with more than {} MiB of text", STATEMENT_BYTES_MAX >> 20);
            return self.refuse_prepare(&why);
        }
        self.session.digest_command(self.ctx);
        self.session.execution.plan = ExecutionPlan::of_command(CommandKind::Prepare);
        if self.route(None) == Routed::Ended {
            return false;
        }
        let mut statement = self.pools.scan_command(self.ctx, self.session);
        if !self.session.is_surely_read(self.ctx) && statement.access == Access::Read {
            statement.access = Access::Write; // for its executions, too
        }
        if statement.kind == Kind::Kill {
            self.pools.refuse(self.ctx, self.session, KILL_ALONE);
            self.command_done();
            return true;
        }
        if statement.uses.contains(Uses::LAST_GTID) && self.pools.speaks_mariadb(self.ctx, self.session) {
            self.pools.refuse(self.ctx, self.session, GTID_IN_TEXT);
            self.command_done();
            return true;
        }
        let sets_virtual = statement.effects.contains(Effects::VIRTUAL_VARIABLE);
        let session = &mut *self.session;
        if sets_virtual {
            let (text, dialect) = (session.command_text(), session.tracked.dialect);
            let Some(parts) = plain_set(text, &statement, dialect) else {
                self.pools.refuse(self.ctx, self.session, PLAIN_ONLY);
                self.command_done();
                return true;
            };
            session.execution.text.rewritten = preparable_set(text, &parts, dialect);
        }
        // One that reads diagnostics pins the session, and pins belong on the writer.
        let is_read = statement.access == Access::Read && !reads_diagnostics(&statement);
        session.execution.plan =
            session.execution.plan.with_statement(CommandKind::Prepare, statement, is_read);
        // It is never executed by a server, and what it reads is put into each execution.
        if statement.uses.intersects(Uses::CONNECTION_ID | Uses::VIRTUAL_VARIABLE) && !sets_virtual {
            self.pools.substitute(self.ctx, self.session);
        }
        let session = &mut *self.session;
        let original = &session.input.inbox[HEADER_LEN + 1..session.input.command_bytes];
        let text = session.execution.text.rewritten.as_deref().unwrap_or(original);
        let scanned = (statement, session.tracked.dialect.server);
        let interned =
            self.ctx.registry.intern(text, &session.tracked.state, scanned, WORKER_STATEMENT_BYTES_MAX);
        let Some(prepared) = interned else {
            return self.refuse_prepare(&too_many_bytes());
        };
        prepared.digest.set(session.execution.digest);
        *prepared.digest_text.borrow_mut() = self.ctx.digester.text().into();
        session.execution.text.prepared = Some(prepared);
        self.start()
    }

    /// Weir has put values in the place of variables that may have changed since: then another statement serves from now
    /// on. One that has a cursor or long data at its server stays what it is.
    fn renew_values(&mut self, id: u32) {
        let session = &*self.session;
        let Some(statement) = session.prepared.all.get(&id).filter(|statement| statement.own.is_none())
        else {
            return;
        };
        let Some(original) = &statement.original else { return };
        let text = self.pools.substituted(self.ctx, session, original, true);
        let text = text.as_deref().unwrap_or(original);
        if text == statement.prepared.text() {
            return;
        }
        let before = statement.prepared.clone();
        let state = before.state_to_prepare_in(&session.tracked.state);
        let scanned = (before.statement, session.tracked.dialect.server);
        let Some(renewed) = self.ctx.registry.intern(text, &state, scanned, WORKER_STATEMENT_BYTES_MAX)
        else {
            return;
        };
        renewed.digest.set(before.digest.get());
        renewed.digest_text.borrow_mut().clone_from(&before.digest_text.borrow());
        let session = &mut *self.session;
        if let Some(statement) = session.prepared.all.get_mut(&id) {
            session.prepared.bytes -= statement.bytes();
            statement.prepared = renewed;
            session.prepared.bytes += statement.bytes();
        }
    }

    fn refuse_prepare(&mut self, why: &str) -> bool {
        let message = format!("Can't create more than max_prepared_stmt_count statements ({why})");
        self.pools.reply_error(self.ctx, self.session, error::MAX_PREPARED_STMT_COUNT_REACHED, &message);
        self.command_done();
        true
    }

    /// COM_STMT_EXECUTE.
    pub(crate) fn execute(&mut self) -> bool {
        let session = &mut *self.session;
        let payload = &session.input.inbox[HEADER_LEN..session.input.command_bytes];
        let id = statement_id(payload).unwrap_or(0);
        let found = session.prepared.all.get(&id);
        let refused = match found {
            _ if payload.len() < StmtExecute::LEN => Some(malformed()),
            None => Some((
                error::UNKNOWN_STMT_HANDLER,
                format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_execute"),
            )),
            Some(ClientStatement { long_data: LongData::Refused(error, message), .. }) => {
                Some((*error, message.to_string()))
            }
            Some(statement) => check_parameters(payload, statement, session.capabilities),
        };
        if let Some((error, message)) = refused {
            if self.session.input.upload.is_some() {
                self.fail_session(error, &message);
                return false;
            }
            self.pools.drop_long_data(self.ctx, self.session, id);
            self.pools.reply_error(self.ctx, self.session, error, &message);
            self.command_done();
            return true;
        }
        let session = &mut *self.session;
        if let Some(statement) = session.prepared.all.get_mut(&id) {
            // They hold from now on, even if this execution never reaches a server.
            let payload = &session.input.inbox[HEADER_LEN..session.input.command_bytes];
            note_types(statement, payload, session.capabilities);
        }
        let found = session.prepared.all.get(&id);
        if found.is_some_and(|found| found.prepared.statement.effects.contains(Effects::VIRTUAL_VARIABLE)) {
            return self.execute_session_track(id);
        }
        self.renew_values(id);
        let session = &mut *self.session;
        let prepared = session.prepared.all.get(&id).map(|found| found.prepared.clone());
        if let Some(prepared) = prepared {
            session.execution.text.statement_id = id;
            // A cursor holds the session, and writes of a session that is held have to go to the writer.
            let flags = session.input.inbox.get(HEADER_LEN + StmtExecute::FLAGS).copied().unwrap_or(0);
            session.execution.text.wants_cursor = flags & StmtExecute::CURSOR_TYPE_READ_ONLY != 0;
            let is_read = prepared.statement.access == Access::Read
                && session.input.upload.is_none()
                && (!session.execution.text.wants_cursor || session.lease().is_some());
            let plan = session.execution.plan;
            session.execution.plan = plan.with_statement(CommandKind::Execute, prepared.statement, is_read);
            session.execution.text.prepared = Some(prepared.clone());
            self.session.digest_prepared(self.ctx, &prepared);
            if self.route(Some(&prepared)) == Routed::Ended {
                return false;
            }
        }
        self.start()
    }

    /// A statement that sets such variables is executed: that is a query with its text.
    pub(crate) fn execute_session_track(&mut self, id: u32) -> bool {
        let session = &*self.session;
        let payload = session.input.inbox.get(HEADER_LEN..session.input.command_bytes).unwrap_or_default();
        let text = session.prepared.all.get(&id).and_then(|statement| {
            crate::answers::parameters::as_text(
                statement,
                payload,
                session.capabilities,
                session.tracked.dialect,
            )
        });
        self.pools.drop_long_data(self.ctx, self.session, id);
        let Some(text) = text.filter(|_| self.session.input.upload.is_none()) else {
            if self.session.input.upload.is_some() {
                self.fail_session(error::UNKNOWN_ERROR, PLAIN_ONLY);
                return false;
            }
            self.pools.refuse(self.ctx, self.session, "session_track and Weir's own variables can be set with parameters that are numbers, NULL or strings of ASCII only");
            self.command_done();
            return true;
        };
        self.session.put_query_text(&text);
        self.query()
    }
}

/// Keeps the parameter types of an execution: later ones may leave them out.
fn note_types(statement: &mut ClientStatement, payload: &[u8], capabilities: Capabilities) {
    let Ok(parameters) = StmtExecute::parameters(payload, statement.params, capabilities) else { return };
    if parameters.new_params_bound {
        let types = &payload[parameters.types];
        if statement.types.as_deref() != Some(types) {
            statement.types = Some(types.into());
        }
    }
}

/// What is wrong with the parameters of an execution, before a server sees them.
fn check_parameters(
    payload: &[u8],
    statement: &ClientStatement,
    capabilities: Capabilities,
) -> Option<(error::ServerError, String)> {
    match StmtExecute::parameters(payload, statement.params, capabilities) {
        Err(_) => Some(malformed()),
        // Attributes are others in every execution, and so are their types.
        Ok(parameters)
            if parameters.count > usize::from(statement.params) && !parameters.new_params_bound =>
        {
            Some(malformed())
        }
        Ok(parameters)
            if statement.params > 0 && !parameters.new_params_bound && statement.types.is_none() =>
        {
            Some(malformed())
        }
        Ok(_) => None,
    }
}

fn too_many_bytes() -> String {
    format!("of a worker, with more than {} MiB of text", WORKER_STATEMENT_BYTES_MAX >> 20)
}

fn malformed() -> (error::ServerError, String) {
    (error::MALFORMED_PACKET, "Malformed communication packet".to_owned())
}

impl Session {
    /// MariaDB (since 10.2) has an id that means the statement of the last COM_STMT_PREPARE, for clients that do not wait for
    /// its answer: Weir's own id of it takes its place in the command. There is none behind a PREPARE that failed.
    pub(crate) fn name_last_prepared(&mut self, ctx: &Context, command: Option<Command>) {
        let takes_id = matches!(
            command,
            Some(
                Command::StmtExecute
                    | Command::StmtClose
                    | Command::StmtReset
                    | Command::StmtFetch
                    | Command::StmtSendLongData
            )
        );
        if !takes_id
            || !ctx.snapshot.is_mariadb
            || !self.prepared.all.contains_key(&self.prepared.last_prepared)
        {
            return;
        }
        let place = HEADER_LEN + StmtExecute::STMT_ID.start..HEADER_LEN + StmtExecute::STMT_ID.end;
        if let Some(id) = self.input.inbox[..self.input.command_bytes].get_mut(place)
            && *id == LAST_PREPARED
        {
            id.copy_from_slice(&self.prepared.last_prepared.to_le_bytes());
        }
    }
}
