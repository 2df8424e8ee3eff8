//! Cursors: an execution that leaves its rows at the server, COM_STMT_FETCH, and COM_STMT_RESET.
//!
//! A cursor belongs to one statement of one connection: the session stays there ([`Pins::CURSOR`]) until the last row
//! was sent, or the statement is executed again, reset or closed.

use weir_protocol::command::{self, StmtFetch};
use weir_protocol::error;
use weir_protocol::frame::HEADER_LEN;
use weir_session::pin::Pins;
use weir_session::prepared::{ClientStatement, LongData};

use super::Core;
use super::command::statement_id;
use super::model::{BackendKey, Ending, SessionKey, WorkKind};

impl Core {
    /// COM_STMT_FETCH.
    pub(super) fn fetch(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        let fetch = StmtFetch::parse(&session.inbox[HEADER_LEN..session.command_bytes]);
        let (error, message) =
            match fetch.map(|fetch| (fetch.stmt_id, session.statements.get(&fetch.stmt_id))) {
                Err(_) => (error::MALFORMED_PACKET, "Malformed communication packet".to_owned()),
                Ok((id, None)) => (
                    error::UNKNOWN_STMT_HANDLER,
                    format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_fetch"),
                ),
                Ok((id, Some(statement))) if statement.has_cursor => {
                    session.work.kind = WorkKind::Fetch;
                    session.work.statement_id = id;
                    session.work.is_read = true;
                    return self.start(key);
                }
                Ok((id, Some(_))) => {
                    (error::STMT_HAS_NO_OPEN_CURSOR, format!("The statement ({id}) has no open cursor"))
                }
            };
        self.reply_error(key, error, &message);
        self.command_done(key);
        true
    }

    /// COM_STMT_RESET: at the server where there is something of the statement, else only here.
    pub(super) fn reset_statement(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        let id = statement_id(&session.inbox[HEADER_LEN..session.command_bytes]).unwrap_or(0);
        match session.statements.get_mut(&id) {
            Some(statement) if statement.own.is_some() => {
                session.work.kind = WorkKind::StmtReset;
                session.work.statement_id = id;
                session.work.is_read = true;
                return self.start(key);
            }
            Some(statement) => {
                session.long_data_bytes -= statement.long_data_bytes();
                statement.long_data = LongData::None;
                self.reply_ok(key);
            }
            None => {
                let message = format!("Unknown prepared statement handler ({id}) given to mysqld_stmt_reset");
                self.reply_error(key, error::UNKNOWN_STMT_HANDLER, &message);
            }
        }
        self.command_done(key);
        true
    }

    /// COM_STMT_CLOSE: nothing is answered. The servers' statements stay for others, until they are the least
    /// recently used ones.
    pub(super) fn close_statement(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let id = statement_id(&session.inbox[HEADER_LEN..session.command_bytes]).unwrap_or(0);
        let Some(statement) = session.statements.remove(&id) else { return };
        session.statement_bytes -= statement.bytes();
        session.long_data_bytes -= statement.long_data_bytes();
        if let (Some(own), Some(lease)) = (statement.own, session.lease) {
            self.close_on(lease, own.id);
        }
        self.update_statement_pins(key);
        if !self.stays(key) {
            self.release(key);
        }
    }

    /// The reply to a COM_STMT_EXECUTE is complete: its long data is used up, and its rows were sent or are behind a
    /// cursor.
    pub(super) fn note_executed(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        let work = &session.work;
        let Some(statement) = session.statements.get_mut(&work.statement_id) else { return };
        let is_plain = statement.own.is_none() && statement.long_data == LongData::None;
        if is_plain && !work.has_cursor {
            return;
        }
        session.long_data_bytes -= statement.long_data_bytes();
        let had_long_data = std::mem::take(&mut statement.long_data) != LongData::None;
        let has_failed = matches!(work.ending, Ending::Err(_));
        statement.has_cursor = work.has_cursor && !has_failed;
        let backend = &mut self.backends[key];
        if statement.own.is_none() {
            statement.own = backend.statements.take(&statement.prepared);
        }
        if had_long_data && has_failed {
            // The data may be what was wrong, and stay so for this statement of the server's.
            if let Some(own) = statement.own.take() {
                self.close_on(key, own.id);
            }
        } else if !statement.has_cursor {
            self.give_back(key, holder);
        }
        self.update_statement_pins(holder);
    }

    /// The reply to a COM_STMT_FETCH is complete.
    pub(super) fn note_fetched(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        let is_over = session.work.is_last_row
            || session.work.ending == Ending::Err(error::STMT_HAS_NO_OPEN_CURSOR.code);
        let Some(statement) = session.statements.get_mut(&session.work.statement_id) else { return };
        if is_over {
            statement.has_cursor = false;
            if statement.long_data != LongData::Sent {
                self.give_back(key, holder);
            }
            self.update_statement_pins(holder);
        }
    }

    /// The server has reset the session's statement.
    pub(super) fn note_statement_reset(&mut self, key: BackendKey, holder: SessionKey) {
        if matches!(self.sessions[holder].work.ending, Ending::Ok { .. }) {
            self.give_back(key, holder);
            self.update_statement_pins(holder);
        }
    }

    /// The server's statement of the session's current one has nothing of the session any more.
    fn give_back(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        let Some(statement) = session.statements.get_mut(&session.work.statement_id) else { return };
        statement.has_cursor = false;
        statement.long_data = LongData::None;
        let Some(own) = statement.own.take() else { return };
        if let Some(id) = self.backends[key].statements.give_back(own) {
            self.close_on(key, id);
        }
    }

    /// Closes a statement of a server.
    pub(super) fn close_on(&mut self, key: BackendKey, id: u32) {
        let socket = self.backends[key].socket;
        if let Some(buffer) = self.out.buffer(socket) {
            command::put_stmt_close(buffer, id);
            self.statistics.totals.server_closes += 1;
        }
    }

    /// The pins that hold as long as one of the session's statements needs them.
    pub(super) fn update_statement_pins(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let any = |has: &dyn Fn(&ClientStatement) -> bool| session.statements.values().any(has);
        let reads_diagnostics = session.pins.pins().contains(Pins::PREPARED_DIAGNOSTICS)
            && any(&|statement| super::prepared::reads_diagnostics(&statement.prepared.statement));
        let has_cursor = any(&|statement| statement.has_cursor);
        let has_long_data = any(&|statement| !statement.has_cursor && statement.own.is_some());
        session.pins.set(Pins::PREPARED_DIAGNOSTICS, reads_diagnostics);
        session.pins.set(Pins::CURSOR, has_cursor);
        session.pins.set(Pins::LONG_DATA, has_long_data);
    }
}
