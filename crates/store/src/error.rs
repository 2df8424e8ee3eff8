//! Describes errors, with what to do about them.

use std::path::PathBuf;

/// A fault of the store. Never contains the value of a column, which may be a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory or the file can't be made or opened.
    #[error("{}: {cause}", path.display())]
    File {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The database is no database, or a damaged one.
    #[error(
        "{path} is damaged ({reason}), and was neither used nor changed. Restore a copy, or move it away and start again: Weir then reads the configuration file into a new one",
        path = path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What SQLite says of it.
        reason: String,
    },
    /// A newer Weir has written the database.
    #[error(
        "{path} is of format {found}, and this Weir knows {known}: start the Weir that wrote it, or move it away",
        path = path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// Somebody else is writing to the database.
    #[error("{path} is in use by another process", path = path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// Nothing may be saved now: [`Store::seal`](crate::Store::seal).
    #[error("the saved configuration can't be changed now: {0}")]
    Sealed(&'static str),
    /// There is no such table, or it is of another schema.
    #[error("there is no table {0}")]
    NoTable(String),
    /// A table has no such column.
    #[error("{table} has no column {column}")]
    NoColumn {
        /// The table.
        table: String,
        /// What was given.
        column: String,
    },
    /// A row breaks a constraint of its table.
    #[error("{row}: {reason}")]
    Row {
        /// The row, by its table and key.
        row: String,
        /// What SQLite says.
        reason: String,
    },
    /// Runtime is reached by LOAD, which checks what it takes.
    #[error("runtime can't be copied to")]
    IntoRuntime,
    /// SQLite says so.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
}
