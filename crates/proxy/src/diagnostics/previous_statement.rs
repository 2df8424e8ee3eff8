//! Gives a statement the conditions (errors, warnings, notes) and ROW_COUNT() of the one before. They are its session's
//! own, or none. Plain texts have Weir's knowledge put into them, or are answered from it; this is about those for
//! which that is not enough: executions of prepared statements, and code whose text nobody sees. (FOUND_ROWS() and
//! LAST_INSERT_ID() are brought to the connection: see `found_rows` and `statement::prefix`.)

use weir_sql::Uses;

use crate::keys::ConnectionKey;
use crate::server::connection::Known;
use crate::server::connections::Connections;
use crate::session::Session;
use crate::session::retained::Retained;

/// Ends the conditions of the statement before, as a statement that uses a table does (MariaDB 10.11), and says
/// nothing itself.
pub(crate) const END_CONDITIONS: &[u8] = b"DO (SELECT 1 FROM (SELECT 1) weir)";
/// Behind it ROW_COUNT() is 0, and nothing else is another one.
pub(crate) const NO_ROWS: &[u8] = b"SET SESSION last_insert_id=LAST_INSERT_ID()";

/// What makes ROW_COUNT() on a connection the session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowCount {
    /// 0, also where it is a number that only a change of so many rows could make.
    Zero,
    /// A query of so many rows makes it -1.
    OfQuery(u64),
}

impl Session {
    /// The rows of a query that uses no table, after which FOUND_ROWS() is the session's; or, where the statement does not
    /// ask for that too, can be made so later.
    fn rows_of_a_query(&self) -> Option<u64> {
        let rows = self
            .diagnostics
            .found_rows
            .filter(|_| !self.diagnostics.retained.contains(Retained::FOUND_ROWS))?;
        match self.execution.plan.runs_code() || self.executes_with(Uses::FOUND_ROWS) {
            true => (rows <= 1).then_some(rows),
            false => Some(rows.min(1)),
        }
    }

    /// Whether its statement is one that was prepared and asks for the conditions of the one before.
    pub(crate) fn executes_question(&self) -> bool {
        self.executes_with(Uses::DIAGNOSTICS)
    }

    fn may_show_conditions(&self) -> bool {
        self.executes_question() || self.execution.plan.runs_code()
    }

    /// Whether its statement asks for conditions that no connection has: Weir has a copy of them, or not even that.
    pub(crate) fn asks_for_copied_conditions(&self) -> bool {
        self.executes_question()
            && (self.diagnostics.has_lost_warnings() || self.diagnostics.saved_rows(false).next().is_some())
    }
}

impl Connections {
    /// Whether the session's statement may show conditions, and those on its connection are not the session's.
    pub(crate) fn needs_no_conditions(&self, session: &Session, key: ConnectionKey) -> bool {
        self[key].known.has_conditions
            && !session.execution.has_ended_conditions
            && (session.execution.needs_no_conditions || session.may_show_conditions())
            && !self.has_own_conditions(session, key)
    }

    /// Whether the conditions on this lease are those of the session's last statement.
    pub(crate) fn has_own_conditions(&self, session: &Session, key: ConnectionKey) -> bool {
        session.diagnostics.retained.contains(Retained::WARNINGS)
            && !self.is_retained_elsewhere(session, key, Retained::WARNINGS)
    }
}

impl Known {
    /// What makes ROW_COUNT() the session's for a statement that may ask for it.
    pub(crate) fn row_count_to_set(&self, session: &Session) -> Option<RowCount> {
        if !self.needs_row_count(session) {
            return None;
        }
        // A query makes it -1, and has a number of rows itself.
        let query = session.rows_of_a_query().filter(|_| session.diagnostics.row_count < 0);
        Some(query.map_or(RowCount::Zero, RowCount::OfQuery))
    }

    /// Whether the session's statement may ask for ROW_COUNT() where no number can be put in its place, and the
    /// connection has another one, which a statement in front can change.
    pub(crate) fn needs_row_count(&self, session: &Session) -> bool {
        let known = self.row_count;
        let asks = session.execution.plan.runs_code() || session.executes_with(Uses::ROW_COUNT);
        let is_near =
            session.diagnostics.row_count < 0 && known == Some(0) && session.rows_of_a_query().is_none();
        asks && known != Some(session.diagnostics.row_count)
            && known != Some(session.diagnostics.row_count.min(0))
            && !is_near
    }

    /// Whether the session's statement is one that was prepared and asks for a ROW_COUNT() that the connection has not, and
    /// that nothing in front can make.
    pub(crate) fn asks_for_lost_row_count(&self, session: &Session) -> bool {
        session.executes_with(Uses::ROW_COUNT)
            && self.row_count != Some(session.diagnostics.row_count)
            && (session.diagnostics.row_count > 0
                || session.diagnostics.row_count < 0 && session.rows_of_a_query().is_none())
    }
}
