//! Tells what a session's prepared statements hold it by.

use weir_protocol::error::ServerError;
use weir_session::pin::Pins;
use weir_session::prepared::{ClientStatement, LongData};
use weir_sql::{Statement, Uses};

use crate::session::Session;

/// Whether a statement reads what its session's last statement has left behind.
pub(crate) fn reads_diagnostics(statement: &Statement) -> bool {
    statement.uses.intersects(Uses::ROW_COUNT | Uses::FOUND_ROWS | Uses::DIAGNOSTICS)
}

impl Session {
    /// The pins that hold as long as one of the session's statements needs them.
    pub(crate) fn update_statement_pins(&mut self) {
        let any = |has: &dyn Fn(&ClientStatement) -> bool| self.prepared.all.values().any(has);
        let reads_diagnostics = self.pins.pins().contains(Pins::PREPARED_DIAGNOSTICS)
            && any(&|statement| reads_diagnostics(&statement.prepared.statement));
        let has_cursor = any(&|statement| statement.has_cursor);
        let has_long_data = any(&|statement| !statement.has_cursor && statement.own.is_some());
        self.pins.set(Pins::PREPARED_DIAGNOSTICS, reads_diagnostics);
        self.pins.set(Pins::CURSOR, has_cursor);
        self.pins.set(Pins::LONG_DATA, has_long_data);
    }
}

impl Session {
    /// Long data can't be taken: the statement's execution gets the error.
    pub(crate) fn long_data_refused(&mut self, error: ServerError, message: &str) {
        let Some(statement) = self.prepared.all.get_mut(&self.execution.text.statement_id) else { return };
        self.prepared.long_data_bytes -= statement.long_data_bytes();
        // What is at a server already is dropped there when the statement is reset, closed or its self ends.
        statement.long_data = LongData::Refused(error, message.into());
    }
}
