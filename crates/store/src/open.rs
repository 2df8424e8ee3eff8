//! Opens the database, makes what is missing, and brings what is of an older format up to date.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::edits::Edits;
use crate::runtime::add_default_variables;
use crate::tables::{DISK, INTENT, MAIN, MONITOR, STATS, STATS_HISTORY, TableDef, tables};
use crate::{Layer, Module, Store, StoreError};

/// The configuration, in the datadir.
pub const DATABASE_FILE: &str = "weir.db";
/// What was counted, in the datadir.
pub const STATS_FILE: &str = "weir_stats.db";

/// The format of `weir.db` (its `user_version`).
const FORMAT: i64 = 1;
/// How long a statement waits for another process that writes, such as `weir config import`.
const BUSY: Duration = Duration::from_secs(5);
/// Prepared statements kept: two for each table of configuration.
const STATEMENTS_KEPT: usize = 64;

/// A store that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store, with nothing but the variables' defaults in `main`.
    pub store: Store,
    /// Whether `weir.db` was not there before.
    pub is_new: bool,
    /// What somebody should know, such as that statistics could not be read and begin anew.
    pub notes: Vec<String>,
}

impl Store {
    /// Opens `weir.db` in `datadir`, and makes both where they are missing (0700 and 0600).
    ///
    /// # Errors
    /// If they can't be opened or made, or `weir.db` is damaged or of a newer format. Nothing is changed then.
    pub fn open(datadir: &Path) -> Result<Opened, StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(datadir)
            .map_err(|cause| StoreError::File { path: datadir.to_owned(), cause })?;
        let path = datadir.join(DATABASE_FILE);
        let is_new = create(&path)?;
        let connection = Connection::open_in_memory()?;
        connection.busy_timeout(BUSY)?;
        attach_disk(&connection, &path)?;
        examine(&connection, &path)?;
        upgrade(&connection).map_err(|cause| of_file(&path, cause))?;
        let mut notes = Vec::new();
        let stats_path = datadir.join(STATS_FILE);
        if let Err(cause) = attach_history(&connection, &stats_path) {
            notes.push(set_aside(&connection, &stats_path, &cause)?);
        }
        let store = Self::complete(connection, datadir.to_owned(), true)?;
        Ok(Opened { store, is_new, notes })
    }

    /// A store for `datadir` of which nothing is written there before [`Store::settle`].
    ///
    /// # Errors
    /// If SQLite has no memory.
    pub fn unsettled(datadir: &Path) -> Result<Self, StoreError> {
        let mut store = Self::in_memory()?;
        store.connection.busy_timeout(BUSY)?;
        store.datadir = datadir.to_owned();
        Ok(store)
    }

    /// Makes `weir.db` in the datadir, and saves to it all that is in memory. One that is there is `weir.db.bak` then.
    /// From now on the store is as one that was [opened](Store::open). Comes with the same notes.
    ///
    /// # Errors
    /// If that can't be done: then `weir.db` is as before, and the store of no further use.
    pub fn settle(&mut self) -> Result<Vec<String>, StoreError> {
        let path = self.datadir.join(DATABASE_FILE);
        // Under another name until it is whole: a database that is there wins over the file at the next start.
        let unfinished = self.datadir.join(format!("{DATABASE_FILE}.new"));
        remove(&unfinished)?;
        self.connection.execute_batch("DETACH DATABASE disk")?;
        create(&unfinished)?;
        attach_disk(&self.connection, &unfinished)?;
        upgrade(&self.connection).map_err(|cause| of_file(&unfinished, cause))?;
        self.copy_all(&Module::ALL, Layer::Memory, Layer::Disk)?;
        self.connection.execute_batch("DETACH DATABASE disk")?;
        // A journal of an unfinished change belongs to the old one.
        for suffix in ["-journal", ""] {
            let name = |end: &str| self.datadir.join(format!("{DATABASE_FILE}{end}"));
            rename_if_there(&name(suffix), &name(&format!(".bak{suffix}")))?;
        }
        rename_if_there(&unfinished, &path)?;
        attach_disk(&self.connection, &path)?;
        self.is_persistent = true;
        let datadir = self.datadir.clone();
        Ok(self.keep_history(&datadir)?.into_iter().collect())
    }

    /// A store of which nothing outlives the process.
    ///
    /// # Errors
    /// If SQLite has no memory.
    pub fn in_memory() -> Result<Self, StoreError> {
        let connection = Connection::open_in_memory()?;
        attach(&connection, Path::new(":memory:"), DISK)?;
        upgrade(&connection)?;
        attach_history(&connection, Path::new(":memory:"))?;
        Self::complete(connection, weir_config::Config::default().datadir, false)
    }

    /// Keeps `stats_history` in `datadir`, which must be there, also where all else is in memory. Gives a note if what
    /// was there could not be read, and was set aside.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn keep_history(&mut self, datadir: &Path) -> Result<Option<String>, StoreError> {
        self.connection.execute_batch("DETACH DATABASE stats_history")?;
        let path = datadir.join(STATS_FILE);
        match attach_history(&self.connection, &path) {
            Ok(()) => Ok(None),
            Err(cause) => set_aside(&self.connection, &path, &cause).map(Some),
        }
    }

    /// Adds the schemas in memory.
    fn complete(connection: Connection, datadir: PathBuf, is_persistent: bool) -> Result<Self, StoreError> {
        for schema in [STATS, MONITOR, INTENT] {
            attach(&connection, Path::new(":memory:"), schema)?;
        }
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        let transaction = connection.unchecked_transaction()?;
        for table in tables().iter().filter(|table| [MAIN, STATS, MONITOR].contains(&table.schema)) {
            create_table(&transaction, table.schema, table)?;
        }
        for table in tables().iter().filter(|table| table.schema == MAIN && table.module.is_some()) {
            create_table(&transaction, INTENT, table)?;
        }
        add_default_variables(&transaction, &Module::ALL)?;
        transaction.commit()?;
        let edits = Edits::default();
        edits.watch(&connection)?;
        let (hashes, filled) = (BTreeMap::new(), 0);
        Ok(Self { connection, datadir, is_persistent, sealed: None, in_force: None, hashes, edits, filled })
    }
}

/// Makes an empty file that only its owner can read; whether it was missing.
fn create(path: &Path) -> Result<bool, StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(StoreError::File { path: path.to_owned(), cause }),
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(StoreError::File { path: path.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

fn rename_if_there(from: &Path, to: &Path) -> Result<(), StoreError> {
    match std::fs::rename(from, to) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(StoreError::File { path: from.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

/// The file of the configuration.
fn attach_disk(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    attach(connection, path, DISK)?;
    // A rollback journal, not a write-ahead log: the file alone is always the whole database, so that it can be
    // copied. EXTRA: a commit is on the disk when it returns, the journal's removal too.
    connection
        .execute_batch("PRAGMA disk.journal_mode = DELETE; PRAGMA disk.synchronous = EXTRA;")
        .map_err(|cause| of_file(path, cause))
}

fn attach(connection: &Connection, path: &Path, schema: &str) -> Result<(), StoreError> {
    let name = path.to_string_lossy();
    connection
        .execute(&format!("ATTACH DATABASE ?1 AS {schema}"), [&name])
        .map(|_| ())
        .map_err(|cause| of_file(path, cause))
}

/// Whether the database is whole and of a format that is known.
fn examine(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let fault = |cause| of_file(path, cause);
    let result: String =
        connection.query_row("PRAGMA disk.quick_check(1)", [], |row| row.get(0)).map_err(fault)?;
    if result != "ok" {
        return Err(StoreError::Damaged { path: path.to_owned(), reason: result });
    }
    let found: i64 = connection.query_row("PRAGMA disk.user_version", [], |row| row.get(0)).map_err(fault)?;
    if found > FORMAT {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

/// What a column holds in a row of an older format: an expression of that row's columns.
struct Conversion {
    table: &'static str,
    column: &'static str,
    /// The older table has this column.
    of: &'static str,
    /// It has this one where it needs no conversion.
    unless: &'static str,
    value: &'static str,
}

/// 0 bytes meant that no transaction runs again.
const CONVERSIONS: [Conversion; 2] = [
    Conversion {
        table: "weir_hostgroups",
        column: "transaction_replay",
        of: "transaction_replay_max_bytes",
        unless: "transaction_replay",
        value: "CASE transaction_replay_max_bytes WHEN 0 THEN 'off' ELSE 'safe' END",
    },
    Conversion {
        table: "weir_hostgroups",
        column: "transaction_replay_max_bytes",
        of: "transaction_replay_max_bytes",
        unless: "transaction_replay",
        value: "CASE transaction_replay_max_bytes WHEN 0 THEN 65536 ELSE MAX(transaction_replay_max_bytes, 1024) END",
    },
];

/// Makes the tables of `disk` that are missing, and makes those anew that have other columns than they should: rows
/// keep the columns that both have, or what these have become. All or nothing.
fn upgrade(connection: &Connection) -> Result<(), rusqlite::Error> {
    let transaction = connection.unchecked_transaction()?;
    for table in tables().iter().filter(|table| table.schema == DISK) {
        let there = columns(&transaction, table)?;
        if there.is_empty() {
            create_table(&transaction, DISK, table)?;
        } else if !there.iter().eq(table.columns.iter().map(|column| column.name)) {
            let name = &*table.name;
            let is_there = |name: &str| there.iter().any(|known| known == name);
            let values = table.columns.iter().filter_map(|column| {
                let converted = CONVERSIONS.iter().find(|conversion| {
                    (conversion.table, conversion.column) == (name, column.name)
                        && is_there(conversion.of)
                        && !is_there(conversion.unless)
                });
                let kept = is_there(column.name).then_some(column.name);
                Some((column.name, converted.map(|conversion| conversion.value).or(kept)?))
            });
            let (columns, values): (Vec<&str>, Vec<&str>) = values.unzip();
            let (columns, values) = (columns.join(", "), values.join(", "));
            transaction.execute_batch(&format!("ALTER TABLE disk.{name} RENAME TO weir_before_upgrade"))?;
            create_table(&transaction, DISK, table)?;
            transaction.execute_batch(&format!(
                "INSERT INTO disk.{name} ({columns}) SELECT {values} FROM disk.weir_before_upgrade ORDER BY rowid; \
                 DROP TABLE disk.weir_before_upgrade"
            ))?;
        }
    }
    transaction.execute_batch(&format!("PRAGMA disk.user_version = {FORMAT}"))?;
    transaction.commit()
}

/// The columns that a table of `disk` has; none if it isn't there.
fn columns(connection: &Connection, table: &TableDef) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection.prepare(&format!("PRAGMA disk.table_info({})", table.name))?;
    let names = statement.query_map([], |row| row.get("name"))?;
    names.collect()
}

fn create_table(connection: &Connection, schema: &str, table: &TableDef) -> Result<(), rusqlite::Error> {
    let rest = table.ddl.strip_prefix("CREATE TABLE ").unwrap_or(&table.ddl);
    connection.execute_batch(&format!("CREATE TABLE {schema}.{rest}"))
}

/// The file of statistics. They are written every few seconds and may lose the last ones.
fn attach_history(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if path != Path::new(":memory:") {
        create(path)?;
    }
    attach(connection, path, STATS_HISTORY)?;
    let prepare = || {
        connection.execute_batch(
            "PRAGMA stats_history.journal_mode = WAL; PRAGMA stats_history.synchronous = NORMAL;",
        )?;
        let transaction = connection.unchecked_transaction()?;
        for table in tables().iter().filter(|table| table.schema == STATS_HISTORY) {
            let rest = table.ddl.strip_prefix("CREATE TABLE ").unwrap_or(&table.ddl);
            transaction.execute_batch(&format!("CREATE TABLE IF NOT EXISTS stats_history.{rest}"))?;
        }
        transaction.commit()
    };
    prepare().map_err(|cause| of_file(path, cause))
}

/// Statistics are no reason not to start.
fn set_aside(connection: &Connection, path: &Path, cause: &StoreError) -> Result<String, StoreError> {
    let is_attached: i64 = connection.query_row(
        "SELECT count(*) FROM pragma_database_list WHERE name = 'stats_history'",
        [],
        |row| row.get(0),
    )?;
    if is_attached > 0 {
        connection.execute_batch("DETACH DATABASE stats_history")?;
    }
    let mut away = path.as_os_str().to_owned();
    away.push(".damaged");
    std::fs::rename(path, &away).map_err(|cause| StoreError::File { path: path.to_owned(), cause })?;
    attach_history(connection, path)?;
    Ok(format!(
        "{} could not be read ({cause}): it is now {}, and statistics start from zero",
        path.display(),
        Path::new(&away).display()
    ))
}

/// What a fault of SQLite says of the file.
pub(crate) fn of_file(path: &Path, cause: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match cause.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Damaged { path, reason: cause.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { path },
        Some(
            ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::DiskFull | ErrorCode::SystemIoFailure,
        ) => StoreError::File { path, cause: std::io::Error::other(cause) },
        _ => StoreError::Sqlite(cause),
    }
}
