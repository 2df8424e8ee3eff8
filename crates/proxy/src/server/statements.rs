//! Keeps the prepared statements of a connection.

use std::rc::Rc;

use weir_protocol::command::{self, StmtPrepareOk};
use weir_protocol::error;
use weir_session::prepared::Prepared;

use crate::context::Context;
use crate::server::connection::{Expected, ServerConnection};

impl ServerConnection {
    /// Takes note of a statement on a connection, and closes those that are too many.
    pub(crate) fn own_statement(&mut self, ctx: &mut Context, prepared: &Prepared, id: u32) {
        let limit = ctx.snapshot.variables.max_stmts_per_connection as usize;
        let closed = self.statements.insert(prepared, id, limit);
        self.close_statements(ctx, closed);
    }

    /// Whether a server refuses to prepare a statement for want of room that this connection can make: what clients have
    /// closed is kept for others (`max_prepared_stmt_count` counts it all the same).
    pub(crate) fn can_make_room(&self, code: u16) -> bool {
        code == error::MAX_PREPARED_STMT_COUNT_REACHED.code && !self.statements.is_empty()
    }

    /// Closes all statements that are kept on this connection.
    pub(crate) fn make_room(&mut self, ctx: &mut Context) {
        let closed = self.statements.give_up();
        self.close_statements(ctx, closed);
    }

    fn close_statements(&self, ctx: &mut Context, closed: Vec<u32>) {
        let socket = self.socket;
        for id in closed {
            if let Some(buffer) = ctx.out.buffer(socket) {
                command::put_stmt_close(buffer, id);
                ctx.statistics.totals.server_closes += 1;
            }
        }
    }

    /// The server has done so.
    pub(crate) fn prepared_here(&mut self, ctx: &mut Context, payload: &[u8]) {
        let Some(Expected::Prepare(prepared)) = self.replies.expected.front() else { return };
        let prepared = prepared.clone();
        if let Ok(answer) = StmtPrepareOk::parse(payload) {
            self.own_statement(ctx, &prepared, answer.stmt_id);
        }
    }

    /// Prepares a statement where it is about to run.
    pub(crate) fn prepare_here(&mut self, ctx: &mut Context, prepared: Rc<Prepared>) {
        let socket = self.socket;
        if let Some(buffer) = ctx.out.buffer(socket) {
            command::put_stmt_prepare(buffer, prepared.text());
            ctx.statistics.totals.server_prepares += 1;
        }
        self.expect(ctx, Expected::Prepare(prepared));
    }

    /// Closes a statement of a server.
    pub(crate) fn close_on(&self, ctx: &mut Context, id: u32) {
        let socket = self.socket;
        if let Some(buffer) = ctx.out.buffer(socket) {
            command::put_stmt_close(buffer, id);
            ctx.statistics.totals.server_closes += 1;
        }
    }
}
