//! Keeps the configuration in SQLite: as it is edited, as it is in force, as it was saved; and room for statistics.
//!
//! One connection has five schemas that are shown: `main` in memory, `disk` in `datadir/weir.db`, `stats` and `monitor`
//! in memory, `stats_history` in `datadir/weir_stats.db`. What was loaded to runtime last is in a sixth of its own, so
//! that what is observed never becomes what is wanted.
//!
//! ```
//! use weir_store::{Layer, Module, Store};
//!
//! let mut store = Store::in_memory()?;
//! store.connection().execute_batch("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (100, 'db1')")?;
//! store.copy(Module::MysqlServers, Layer::Memory, Layer::Disk)?;
//! assert_eq!(store.rows(Layer::Disk)?.of("mysql_servers").len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changed_rows;
mod edits;
mod error;
mod foreign;
mod open;
mod rows;
mod runtime;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::StoreError;
pub use foreign::Database;
pub use open::{DATABASE_FILE, Opened, STATS_FILE};
pub use rows::checksum_of_rows;
pub use runtime::{Loaded, Version};
pub use rusqlite::types::Value;
pub use tables::{
    Column, ColumnKind, DISK, GLOBAL_VARIABLES, MAIN, MONITOR, Module, SCHEMAS, STATS, STATS_HISTORY,
    TableDef, table, tables,
};

/// A layer of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// `main`: what is being edited.
    Memory,
    /// What was loaded to runtime last; nothing is copied there, see [`Store`].
    Runtime,
    /// `disk`: what was saved.
    Disk,
}

impl Layer {
    /// Its schema.
    pub(crate) fn schema(self) -> &'static str {
        match self {
            Self::Memory => tables::MAIN,
            Self::Runtime => tables::INTENT,
            Self::Disk => tables::DISK,
        }
    }
}

/// The database. Not `Sync`: who shares it puts it into a mutex.
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: rusqlite::Connection,
    pub(crate) datadir: PathBuf,
    /// Whether `disk` outlives the process.
    is_persistent: bool,
    /// Why `disk` can't be changed now.
    sealed: Option<&'static str>,
    /// What the rows in force mean; none where that is not known.
    in_force: Option<weir_config::Config>,
    /// Of the rows in force of large tables.
    hashes: BTreeMap<&'static str, rows::Hashes>,
    /// What of `main` is not as in force.
    edits: edits::Edits,
    /// Rows that were changed by who fills tables that nobody edits.
    filled: u64,
}

impl Store {
    /// The connection, for statements of admins. Limits, authorizer and hooks are the caller's business; what it sets
    /// must let this crate's statements through.
    pub fn connection(&self) -> &rusqlite::Connection {
        &self.connection
    }

    /// Whether what is saved outlives the process.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// From now on what is saved stays as it is: whatever would change it is refused, for this reason. What is written at
    /// this moment has been written when this returns, as the caller has the store to itself.
    pub fn seal(&mut self, because: &'static str) {
        self.sealed = Some(because);
    }

    /// The end of [`Store::seal`].
    pub fn unseal(&mut self) {
        self.sealed = None;
    }

    /// Whether what is saved may be changed.
    ///
    /// # Errors
    /// [`StoreError::Sealed`]
    pub fn check_seal(&self) -> Result<(), StoreError> {
        self.sealed.map_or(Ok(()), |because| Err(StoreError::Sealed(because)))
    }

    /// Where Weir keeps what it must remember.
    pub fn datadir(&self) -> &Path {
        &self.datadir
    }

    /// Changes what [`Store::datadir`] says, and with it the configurations that are made of the rows; for a store that
    /// is in memory only.
    pub fn set_datadir(&mut self, datadir: &Path) {
        self.datadir = datadir.to_owned();
    }
}

#[cfg(test)]
mod tests;
