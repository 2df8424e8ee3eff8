//! Tracks which rows of large tables were edited since they were put in force. SQLite tells of each row that is
//! inserted, changed or deleted; rows that it deletes without telling (REPLACE, DELETE without a condition) are found
//! missing in the table.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use crate::changed_rows::LARGE;
use crate::tables::MAIN;

/// With more rows than these it takes as long to look for each as to compare all.
const ROWS_MAX: usize = 1000;

/// The edited rows of the large tables. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edits(Arc<Mutex<[Edited; LARGE.len()]>>);

/// `rowid`s in `main` that may be another row than in force, or none; all others are the same in both. `None`: it may be
/// any.
type Edited = Option<BTreeSet<i64>>;

impl Edits {
    /// Notes what is done through this connection from now on.
    pub(crate) fn watch(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let edits = self.clone();
        connection.update_hook(Some(move |_, schema: &str, table: &str, rowid| {
            if schema == MAIN {
                edits.note(table, rowid);
            }
        }))
    }

    fn note(&self, table: &str, rowid: i64) {
        let Some(at) = position(table) else { return };
        let edited = &mut self.all()[at];
        if let Some(rows) = edited {
            rows.insert(rowid);
            if rows.len() > ROWS_MAX {
                *edited = None;
            }
        }
    }

    /// The rows that are to be looked at; `None`: all of them.
    pub(crate) fn of(&self, table: &str) -> Edited {
        position(table).and_then(|at| self.all()[at].clone())
    }

    /// All rows are in force as they are in `main` (`true`), or nothing is known of them.
    pub(crate) fn set(&self, table: &str, are_in_force: bool) {
        if let Some(at) = position(table) {
            self.all()[at] = are_in_force.then(BTreeSet::new);
        }
    }

    fn all(&self) -> MutexGuard<'_, [Edited; LARGE.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn position(table: &str) -> Option<usize> {
    LARGE.iter().position(|large| *large == table)
}
