//! What a statement finds on its connection of the past: the conditions (errors, warnings, notes) and ROW_COUNT() of the
//! statement before. They are its session's own, or none. Plain texts have Weir's knowledge put into them, or are
//! answered from it; this is about those for which that is not enough: executions of prepared statements, and code
//! whose text nobody sees. (FOUND_ROWS() and LAST_INSERT_ID() are brought to the connection: see `found_rows` and `run`.)

use std::rc::Rc;

use weir_session::prepared::Prepared;
use weir_sql::{Effects, Uses};

use super::Core;
use super::found_rows::query_of;
use super::model::{BackendKey, Expected, Keeps, Session, SessionKey, WorkKind};
use super::prepared::WORKER_STATEMENT_BYTES_MAX;

/// Ends the conditions of the statement before, as a statement that uses a table does (MariaDB 10.11), and says
/// nothing itself.
const END_CONDITIONS: &[u8] = b"DO (SELECT 1 FROM (SELECT 1) weir)";
/// Behind it ROW_COUNT() is 0, and nothing else is another one.
const NO_ROWS: &[u8] = b"SET SESSION last_insert_id=LAST_INSERT_ID()";

/// There is no room for another text.
pub(super) struct NoRoom;

impl Core {
    /// The statement to execute in place of one that asks for numbers which the session knows, and its connection may
    /// not: the same with the numbers in it. None if nothing is to be put in.
    pub(super) fn with_numbers(
        &mut self,
        key: SessionKey,
        id: u32,
        prepared: &Prepared,
    ) -> Result<Option<Rc<Prepared>>, NoRoom> {
        let session = &self.sessions[key];
        let asked = Uses::ROW_COUNT | Uses::FOUND_ROWS | Uses::DIAGNOSTICS;
        // Its long data or its cursor are the server's.
        let has_own = session.statements.get(&id).is_some_and(|found| found.own.is_some());
        if !prepared.statement.uses.intersects(asked) || has_own || session.upload.is_some() {
            return Ok(None);
        }
        let Some(text) = self.substituted(key, prepared.text(), false) else { return Ok(None) };
        let mut statement = prepared.statement;
        statement.uses -= Uses::ROW_COUNT;
        if !session.keeps.contains(Keeps::WARNINGS) && !session.has_lost_warnings() {
            statement.uses -= Uses::DIAGNOSTICS;
        }
        if !session.keeps.contains(Keeps::FOUND_ROWS) && session.found_rows.is_some() {
            statement.uses -= Uses::FOUND_ROWS;
        }
        let with = self
            .registry
            .intern_with(prepared, &text, statement, WORKER_STATEMENT_BYTES_MAX)
            .ok_or(NoRoom)?;
        with.digest.set(prepared.digest.get());
        with.digest_text.borrow_mut().clone_from(&prepared.digest_text.borrow());
        Ok(Some(with))
    }

    /// Ends the conditions that the connection has from others, or from Weir, in front of a statement that may show
    /// them. True if the reply has to be waited for.
    pub(super) fn end_conditions(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        if !self.needs_no_conditions(key, holder) {
            return false;
        }
        self.sessions[holder].work.has_ended_conditions = true;
        self.send_query(key, END_CONDITIONS);
        self.backends[key].has_conditions = false;
        self.expect(key, Expected::Sync(None));
        true
    }

    /// Whether the session's statement may show conditions, and those on its connection are not the session's.
    pub(super) fn needs_no_conditions(&self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        self.backends[key].has_conditions
            && !session.work.has_ended_conditions
            && (session.work.needs_no_conditions || session.may_show_conditions())
            && !self.has_own_conditions(key, holder)
    }

    /// Whether the conditions on this lease are those of the session's last statement.
    pub(super) fn has_own_conditions(&self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        let is_elsewhere = session.kept.filter(|kept| *kept != key).is_some_and(|kept| {
            self.backends[kept].kept_for.is_some_and(|mark| mark.what.contains(Keeps::WARNINGS))
        });
        session.keeps.contains(Keeps::WARNINGS) && !is_elsewhere
    }

    /// Whether the session's statement may ask for ROW_COUNT() where no number can be put in its place, and the
    /// connection has another one.
    pub(super) fn needs_row_count(&self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        let known = self.backends[key].row_count;
        session.runs_code() && known != Some(session.row_count) && known != Some(session.row_count.min(0))
    }

    /// A statement that may ask for ROW_COUNT() gets one in front that makes it the session's, or 0 where that is a
    /// number that only a change of so many rows could make.
    ///
    /// True if the statement has to wait for its reply, as in `before_insert_id`.
    pub(super) fn before_row_count(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        if !self.needs_row_count(key, holder) {
            return false;
        }
        let session = &self.sessions[holder];
        let waits = !session.pins.is_empty();
        if session.row_count >= 0 {
            self.send_query(key, NO_ROWS);
            self.expect(key, Expected::InsertId);
            return waits;
        }
        // A query makes it -1, and has a number of rows itself.
        let Some(rows) = session.found_rows.filter(|rows| *rows <= 1) else { return false };
        self.send_query(key, query_of(rows).as_bytes());
        self.backends[key].found_rows = Some(rows);
        self.expect(key, Expected::FoundRows);
        waits
    }
}

impl Session {
    /// Whether its statement runs code of which the text is not seen, and which may ask for anything.
    fn runs_code(&self) -> bool {
        matches!(self.work.kind, WorkKind::Query | WorkKind::Execute)
            && self.work.statement.effects.contains(Effects::ROUTINE)
            && self.upload.is_none()
    }

    /// Whether its statement is one that was prepared and asks for the conditions of the one before.
    pub(super) fn executes_question(&self) -> bool {
        self.work.kind == WorkKind::Execute && self.work.statement.uses.contains(Uses::DIAGNOSTICS)
    }

    fn may_show_conditions(&self) -> bool {
        self.executes_question() || self.runs_code()
    }

    /// Whether its statement asks for conditions that no connection has: Weir has a copy of them, or not even that.
    pub(super) fn asks_for_copied_conditions(&self) -> bool {
        self.executes_question() && (self.has_lost_warnings() || self.saved_rows(false).next().is_some())
    }
}
