//! Lists what Weir sends on a connection in front of a session's statement: which of it is due follows from the session
//! and the connection, and changes nothing; `put_prefix` alone sends it and takes note of it.

use std::borrow::Cow;

use weir_session::pin::Pins;

use crate::context::Context;
use crate::diagnostics::found_rows::query_of;
use crate::diagnostics::previous_statement::{END_CONDITIONS, NO_ROWS, RowCount};
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::server::connection::Expected;
use crate::server::verify::TRACKS;
use crate::session::Session;
use crate::work::Work;

/// A command of Weir's own in front of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Asks a connection on which a statement of another session has failed whether it still tracks.
    Tracks,
    /// SET TRANSACTION READ ONLY was answered by Weir, and something else than BEGIN follows: now it is sent.
    Announced,
    /// Ends the conditions of another session's statement.
    NoConditions,
    /// Sets what a session carries that has left its server.
    Carried,
    /// A number that the statement may ask for, of its session's statement before.
    Number(Number),
}

/// A number that a connection knows of the statement before, as its session is to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// LAST_INSERT_ID()
    InsertId(u64),
    /// FOUND_ROWS()
    FoundRows(u64),
    /// ROW_COUNT()
    RowCount(RowCount),
}

/// A number, if it is to be set.
type Due = fn(&Pools, &Context, &Session, ConnectionKey) -> Option<Number>;
/// In which order numbers are looked at: each may be changed by the one in front of it.
const NUMBERS: [Due; 3] = [
    |_, ctx, session, _| session.insert_id_to_set(ctx).map(Number::InsertId),
    |pools, ctx, session, key| pools.found_rows_to_set(ctx, session, key).map(Number::FoundRows),
    |pools, _, session, key| pools.connections[key].known.row_count_to_set(session).map(Number::RowCount),
];

impl Prefix {
    fn text(self, session: &Session) -> Cow<'_, [u8]> {
        match self {
            Prefix::Tracks => Cow::Borrowed(TRACKS.as_bytes()),
            Prefix::Announced => Cow::Borrowed(b"SET TRANSACTION READ ONLY"),
            Prefix::NoConditions => Cow::Borrowed(END_CONDITIONS),
            Prefix::Carried => Cow::Borrowed(session.carried().map_or(&[], |carried| &carried.set)),
            Prefix::Number(Number::InsertId(id)) => {
                Cow::Owned(format!("SET SESSION last_insert_id={id}").into_bytes())
            }
            Prefix::Number(Number::RowCount(RowCount::Zero)) => Cow::Borrowed(NO_ROWS),
            Prefix::Number(Number::FoundRows(rows) | Number::RowCount(RowCount::OfQuery(rows))) => {
                Cow::Owned(query_of(rows).into_bytes())
            }
        }
    }

    fn expected(self) -> Expected {
        match self {
            Prefix::Tracks => Expected::Tracks,
            Prefix::Announced | Prefix::NoConditions => Expected::Sync(None),
            Prefix::Carried => Expected::Carried,
            Prefix::Number(Number::InsertId(_) | Number::RowCount(RowCount::Zero)) => Expected::InsertId,
            Prefix::Number(Number::FoundRows(_) | Number::RowCount(RowCount::OfQuery(_))) => {
                Expected::FoundRows
            }
        }
    }
}

impl Pools {
    /// What goes out in front of everything else, also of the statement's PREPARE and of its state. Its reply has to be
    /// waited for.
    pub(crate) fn first_prefix(&self, session: &Session, key: ConnectionKey) -> Option<Prefix> {
        if self.connections[key].has_to_tell_if_it_tracks(session) {
            Some(Prefix::Tracks)
        } else if session.transaction.is_next_read_only {
            Some(Prefix::Announced)
        } else if self.connections.needs_no_conditions(session, key) {
            Some(Prefix::NoConditions)
        } else {
            None
        }
    }
}

impl Work<'_> {
    /// Sends the numbers that the statement may ask for and that the connection does not know, or not of this session.
    /// They can't fail, and nothing depends on their success: so they may go in the same write as the statement.
    ///
    /// True if it has to wait for a reply all the same: inside a transaction Galera may answer any command with 1213, and
    /// then the statement behind it would run on its own.
    pub(crate) fn puts_numbers_first(&mut self, key: ConnectionKey) -> bool {
        for due in NUMBERS {
            if let Some(number) = due(self.pools, self.ctx, self.session, key) {
                self.put_prefix(key, Prefix::Number(number));
                if !self.session.pins.is_empty() {
                    return true;
                }
            }
        }
        false
    }

    /// Sends it, and takes note of what it changes.
    pub(crate) fn put_prefix(&mut self, key: ConnectionKey, prefix: Prefix) {
        let (session, connection) = (&mut *self.session, &mut self.pools.connections[key]);
        connection.send_query(self.ctx, &prefix.text(session));
        let known = &mut connection.known;
        match prefix {
            Prefix::Tracks | Prefix::Carried | Prefix::Number(Number::RowCount(RowCount::Zero)) => {}
            Prefix::Announced => {
                session.transaction.is_next_read_only = false;
                session.execution.has_announced = !session.pins.pins().contains(Pins::NEXT_TRANSACTION);
                session.pins.insert(Pins::NEXT_TRANSACTION);
            }
            Prefix::NoConditions => {
                session.execution.has_ended_conditions = true;
                known.has_conditions = false;
            }
            Prefix::Number(Number::InsertId(id)) => {
                session.diagnostics.has_own_insert_id = true;
                known.insert_id = Some(id);
            }
            Prefix::Number(Number::FoundRows(rows) | Number::RowCount(RowCount::OfQuery(rows))) => {
                known.found_rows = Some(rows);
            }
        }
        connection.expect(self.ctx, prefix.expected());
    }
}
