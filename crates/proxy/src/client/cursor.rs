//! Serves cursors: an execution that leaves its rows at the server, COM_STMT_FETCH, and COM_STMT_RESET.
//!
//! A cursor belongs to one statement of one connection: the session stays there ([`Pins::CURSOR`]) until the last row
//! was sent, or the statement is executed again, reset or closed.

use weir_protocol::command::StmtFetch;
use weir_protocol::error;
use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::LongData;

use crate::client::command::statement_id;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::work::Work;

impl Work<'_> {
    /// COM_STMT_FETCH.
    pub(crate) fn fetch(&mut self) -> bool {
        let session = &mut *self.session;
        let fetch = StmtFetch::parse(&session.input.inbox[HEADER_LEN..session.input.command_bytes]);
        let (error, message) =
            match fetch.map(|fetch| (fetch.stmt_id, session.prepared.all.get(&fetch.stmt_id))) {
                Err(_) => (error::MALFORMED_PACKET, "Malformed communication packet".to_owned()),
                Ok((id, None)) => (
                    error::UNKNOWN_STMT_HANDLER,
                    format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_fetch"),
                ),
                Ok((id, Some(statement))) if statement.has_cursor => {
                    session.execution.plan = ExecutionPlan::of_command(CommandKind::Fetch).reading(true);
                    session.execution.text.statement_id = id;
                    return self.start();
                }
                Ok((id, Some(_))) => {
                    (error::STMT_HAS_NO_OPEN_CURSOR, format!("The statement ({id}) has no open cursor"))
                }
            };
        self.pools.reply_error(self.ctx, self.session, error, &message);
        self.command_done();
        true
    }

    /// COM_STMT_RESET: at the server where there is something of the statement, else only here.
    pub(crate) fn reset_statement(&mut self) -> bool {
        let session = &mut *self.session;
        let id = statement_id(&session.input.inbox[HEADER_LEN..session.input.command_bytes]).unwrap_or(0);
        match session.prepared.all.get_mut(&id) {
            Some(statement) if statement.own.is_some() => {
                session.execution.plan = ExecutionPlan::of_command(CommandKind::StmtReset).reading(true);
                session.execution.text.statement_id = id;
                return self.start();
            }
            Some(statement) => {
                session.prepared.long_data_bytes -= statement.long_data_bytes();
                statement.long_data = LongData::None;
                self.session.reply_ok(self.ctx);
            }
            None => {
                let message = format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_reset");
                self.pools.reply_error(self.ctx, self.session, error::UNKNOWN_STMT_HANDLER, &message);
            }
        }
        self.command_done();
        true
    }

    /// COM_STMT_CLOSE: nothing is answered. The servers' statements stay for others, until they are the least
    /// recently used ones.
    pub(crate) fn close_statement(&mut self) {
        let session = &mut *self.session;
        let id = statement_id(&session.input.inbox[HEADER_LEN..session.input.command_bytes]).unwrap_or(0);
        let Some(statement) = session.prepared.all.remove(&id) else { return };
        session.prepared.bytes -= statement.bytes();
        session.prepared.long_data_bytes -= statement.long_data_bytes();
        if let (Some(own), Some(lease)) = (statement.own, session.lease()) {
            self.pools.connections[lease].close_on(self.ctx, own.id);
        }
        self.session.update_statement_pins();
        if !self.pools.stays(self.session) {
            self.pools.release(self.ctx, self.session);
        }
    }
}
