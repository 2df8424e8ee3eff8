//! Runs statements that read nothing but digests, of which there may be a million: their tables take seconds to
//! fill and to read, and nobody else is to wait for the store meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use weir_store::{STATS, Store, StoreError, TableDef};

use crate::engine::{Engine, Rows};
use crate::error::SqlError;
use crate::sqlite::{self, SharedFacts};

/// Rows beyond which the database does not stay when nobody reads it any more: each takes some 600 bytes.
const ROWS_KEPT: usize = 100_000;
/// The tables that are read here.
const TABLES: [&str; 3] =
    ["stats_mysql_query_digest", "stats_mysql_query_digest_reset", "stats_weir_query_digest"];

/// A database beside the store. Statements run here one at a time.
#[derive(Default)]
pub(crate) struct DigestDb {
    /// Who reads here or waits for it.
    users: AtomicUsize,
    db: Mutex<Option<OpenDb>>,
}

/// The database.
pub(crate) struct OpenDb {
    pub store: Store,
    pub facts: SharedFacts,
    refreshed: Refreshed,
    rows: usize,
}

/// When which table was filled last.
pub(crate) type Refreshed = HashMap<String, Instant>;

/// Whether a table is read here.
pub(crate) fn has(schema: &str, name: &str) -> bool {
    schema == STATS && TABLES.contains(&name)
}

impl DigestDb {
    /// Works alone in the database.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut OpenDb) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let user = DbUser::new(&self.users);
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match db.take() {
            Some(opened) => opened,
            None => OpenDb::open().map_err(|error| SqlError::other(error.to_string()))?,
        };
        let opened = db.insert(opened);
        let done = work(opened);
        drop(user);
        // Who waits may share what is there.
        if opened.rows > ROWS_KEPT && self.users.load(Ordering::Relaxed) == 0 {
            *db = None;
        }
        done
    }
}

impl OpenDb {
    fn open() -> Result<Self, StoreError> {
        let (store, facts) = (Store::in_memory()?, SharedFacts::default());
        sqlite::register(store.connection(), &facts)?;
        store.connection().pragma_update(None, "temp_store", "MEMORY")?;
        Ok(Self { store, facts, refreshed: Refreshed::default(), rows: 0 })
    }

    /// Has the tables as they were at `oldest`, or later.
    pub(crate) fn refresh(
        &mut self,
        engine: &dyn Engine,
        tables: &[&TableDef],
        oldest: Instant,
    ) -> Result<Read, SqlError> {
        let Self { store, refreshed, rows: most, .. } = self;
        refresh(engine, tables, refreshed, oldest, |table, rows| {
            let mut count = 0;
            let put = store.put(table.schema, &table.name, rows.inspect(|_| count += 1));
            *most = (*most).max(count);
            put
        })
    }
}

/// The age of tables that were read.
pub(crate) struct Read {
    /// Of the oldest one.
    pub at: Instant,
    /// Whether something began again.
    pub has_reset: bool,
}

/// Has the engine's tables filled that are older than `oldest`; those that begin again are filled in any case.
pub(crate) fn refresh(
    engine: &dyn Engine,
    tables: &[&TableDef],
    refreshed: &mut Refreshed,
    oldest: Instant,
    mut put: impl FnMut(&TableDef, Rows<'_>) -> Result<(), StoreError>,
) -> Result<Read, SqlError> {
    let mut read = Read { at: Instant::now(), has_reset: false };
    for table in tables {
        let name = format!("{}.{}", table.schema, table.name);
        let is_reset = table.name.ends_with("_reset");
        if let Some(at) = refreshed.get(&name).filter(|at| !is_reset && **at >= oldest) {
            read.at = read.at.min(*at);
            continue;
        }
        read.has_reset |= is_reset;
        let now = Instant::now();
        let mut outcome = None;
        let mut take = |rows: Rows<'_>| outcome = Some(put(table, rows));
        match is_reset {
            true => engine.rows_and_reset(&table.name, &mut take),
            false => engine.rows(&table.name, &mut take),
        }
        let Some(outcome) = outcome else { continue };
        outcome.map_err(|error| SqlError::other(error.to_string()))?;
        refreshed.insert(name, now);
    }
    Ok(read)
}

/// One who reads or waits, until this is dropped.
struct DbUser<'a>(&'a AtomicUsize);

impl<'a> DbUser<'a> {
    fn new(users: &'a AtomicUsize) -> Self {
        users.fetch_add(1, Ordering::Relaxed);
        Self(users)
    }
}

impl Drop for DbUser<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
