//! Tracks what prepared statements and cursors leave at a server.

use weir_protocol::error;
use weir_session::pin::Pins;
use weir_session::prepared::{ClientStatement, LongData};

use crate::context::Context;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::prepared::reads_diagnostics;

impl ServerConnection {
    /// The reply to a COM_STMT_EXECUTE is complete: its long data is used up, and its rows were sent or are behind a
    /// cursor.
    pub(crate) fn note_executed(&mut self, ctx: &mut Context, session: &mut Session) {
        let execution = &session.execution;
        let Some(statement) = session.prepared.all.get_mut(&execution.text.statement_id) else { return };
        let is_plain = statement.own.is_none() && statement.long_data == LongData::None;
        if is_plain && !execution.reply.has_cursor {
            return;
        }
        session.prepared.long_data_bytes -= statement.long_data_bytes();
        let had_long_data = std::mem::take(&mut statement.long_data) != LongData::None;
        let has_failed = matches!(execution.ending, Ending::Err(_));
        statement.has_cursor = execution.reply.has_cursor && !has_failed;
        if statement.own.is_none() {
            statement.own = self.statements.take(&statement.prepared);
        }
        if had_long_data && has_failed {
            // The data may be what was wrong, and stay so for this statement of the server's.
            if let Some(own) = statement.own.take() {
                self.close_on(ctx, own.id);
            }
        } else if !statement.has_cursor {
            self.give_back(ctx, session);
        }
        session.update_statement_pins();
    }

    /// The reply to a COM_STMT_FETCH is complete.
    pub(crate) fn note_fetched(&mut self, ctx: &mut Context, session: &mut Session) {
        let is_over = session.execution.reply.is_last_row
            || session.execution.ending == Ending::Err(error::STMT_HAS_NO_OPEN_CURSOR.code);
        let Some(statement) = session.prepared.all.get_mut(&session.execution.text.statement_id) else {
            return;
        };
        if is_over {
            statement.has_cursor = false;
            if statement.long_data != LongData::Sent {
                self.give_back(ctx, session);
            }
            session.update_statement_pins();
        }
    }

    /// The server has reset the session's statement.
    pub(crate) fn note_statement_reset(&mut self, ctx: &mut Context, session: &mut Session) {
        if matches!(session.execution.ending, Ending::Ok { .. }) {
            self.give_back(ctx, session);
            session.update_statement_pins();
        }
    }

    /// The server's statement of the session's current one has nothing of the session any more.
    fn give_back(&mut self, ctx: &mut Context, session: &mut Session) {
        let Some(statement) = session.prepared.all.get_mut(&session.execution.text.statement_id) else {
            return;
        };
        statement.has_cursor = false;
        statement.long_data = LongData::None;
        let Some(own) = statement.own.take() else { return };
        if let Some(id) = self.statements.give_back(own) {
            self.close_on(ctx, id);
        }
    }
}

impl ServerConnection {
    /// The server has prepared the session's statement: the client gets an id of its own for it.
    pub(crate) fn register_statement(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        id: u32,
        params: u16,
    ) -> u32 {
        session.prepared.next_id = (session.prepared.next_id.wrapping_add(1) & i32::MAX as u32).max(1);
        let client_id = session.prepared.next_id;
        session.prepared.last_prepared = client_id;
        let Some(prepared) = session.execution.text.prepared.clone() else { return client_id };
        if reads_diagnostics(&prepared.statement) {
            session.pins.insert(Pins::PREPARED_DIAGNOSTICS);
        }
        let mut statement = ClientStatement::new(prepared.clone(), params);
        statement.original = session.original_text(&prepared.statement);
        session.prepared.bytes += statement.bytes();
        session.prepared.all.insert(client_id, statement);
        self.own_statement(ctx, &prepared, id);
        client_id
    }
}
