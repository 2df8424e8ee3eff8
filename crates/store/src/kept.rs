//! Which rows of large tables are as in force. SQLite compares them: only the others leave it, and only those are put in
//! force.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use weir_config::{Config, TableRow, TableRows};

use crate::rows::{Hashes, by_name, cells_of, hash_of, tables_of};
use crate::tables::{INTENT, MAIN, TableDef};
use crate::{Layer, Module, Store, StoreError};

const USERS: &str = "mysql_users";
const RULES: &str = "mysql_query_rules";
const LARGE: [&str; 2] = [USERS, RULES];
/// Where more than one row of so many changes, a table is copied.
const PATCHED_MAX: usize = 8;

/// By table: where the rows in force are that are kept, in order. `rowid`s of the schema `intent`.
pub(crate) type KeptRows = BTreeMap<&'static str, Vec<i64>>;

impl Store {
    /// The rows of some modules in `main`, to be read beside what is in force.
    pub(crate) fn rows_to_load(&self, modules: &[Module]) -> Result<(TableRows, KeptRows), StoreError> {
        let (mut all, mut kept) = (TableRows::new(), KeptRows::new());
        for (module, table) in tables_of(modules) {
            match self.in_force.as_ref().and_then(|config| Known::of(config, &table.name)) {
                Some(known) => {
                    let (rows, at) = self.rows_beside(table, known)?;
                    all.extend(&table.name, rows);
                    kept.insert(&table.name, at);
                }
                None => all.extend(&table.name, self.rows_in(module, table, Layer::Memory)?),
            }
        }
        Ok((all, kept))
    }

    fn rows_beside(
        &self,
        table: &'static TableDef,
        mut known: Known<'_>,
    ) -> Result<(Vec<TableRow>, Vec<i64>), StoreError> {
        let name = &table.name;
        let columns = |of: &str| {
            let columns = table.columns.iter().map(|column| format!("{of}.{}", column.name));
            columns.collect::<Vec<_>>().join(", ")
        };
        // A row that was copied has the same rowid.
        let sql = format!(
            "SELECT e.rowid, {}, ({}) IS ({}) FROM {MAIN}.{name} e LEFT JOIN {INTENT}.{name} f ON f.rowid = e.rowid \
             ORDER BY e.rowid",
            known.key(),
            columns("e"),
            columns("f")
        );
        let mut compared = self.connection.prepare_cached(&sql)?;
        let mut compared = compared.query([])?;
        let mut whole =
            self.connection.prepare_cached(&format!("SELECT * FROM {MAIN}.{name} WHERE rowid = ?"))?;
        let by_name = by_name(table);
        let (mut rows, mut kept) = (Vec::new(), Vec::new());
        while let Some(row) = compared.next()? {
            let rowid: i64 = row.get(0)?;
            let is_same: bool = row.get(2)?;
            let at = if is_same { known.position(row.get_ref(1)?) } else { None };
            match at {
                Some(at) => {
                    rows.push(TableRow::kept(at));
                    kept.push(rowid);
                }
                None => rows.push(whole.query_row([rowid], |row| cells_of(&by_name, row))?),
            }
        }
        Ok((rows, kept))
    }

    /// The same rows of some modules with all that is in them.
    pub(crate) fn whole(
        &self,
        modules: &[Module],
        rows: &TableRows,
        kept: &KeptRows,
    ) -> Result<TableRows, rusqlite::Error> {
        let mut all = rows.clone();
        for (_, table) in tables_of(modules) {
            let Some(kept) = kept.get(table.name.as_str()) else { continue };
            let (by_name, mut kept) = (by_name(table), kept.iter());
            let sql = format!("SELECT * FROM {INTENT}.{} WHERE rowid = ?", table.name);
            let mut in_force = self.connection.prepare_cached(&sql)?;
            let whole =
                rows.of(&table.name).iter().map(|row| match row.kept_at().and_then(|_| kept.next()) {
                    Some(rowid) => in_force.query_row([rowid], |row| cells_of(&by_name, row)),
                    None => Ok(row.clone()),
                });
            all.set(&table.name, whole.collect::<Result<_, _>>()?);
        }
        Ok(all)
    }
}

/// What makes a large table in force the same as it is in `main`. Rows are named by their `rowid`s.
pub(crate) struct Patch {
    gone: Vec<i64>,
    new: Vec<i64>,
}

impl Store {
    /// None where nothing is known of the table, or most of it changes: whole pages are quicker then.
    pub(crate) fn patch_of(
        &self,
        table: &TableDef,
        kept: &KeptRows,
    ) -> Result<Option<Patch>, rusqlite::Error> {
        let Some(kept) = kept.get(table.name.as_str()) else { return Ok(None) };
        let others = |schema: &str| -> Result<Vec<i64>, rusqlite::Error> {
            let sql = format!("SELECT rowid FROM {schema}.{} ORDER BY rowid", table.name);
            let mut statement = self.connection.prepare_cached(&sql)?;
            let all: Vec<i64> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(all.into_iter().filter(|rowid| kept.binary_search(rowid).is_err()).collect())
        };
        let patch = Patch { gone: others(INTENT)?, new: others(MAIN)? };
        Ok(Some(patch).filter(|patch| patch.gone.len().max(patch.new.len()) * PATCHED_MAX <= kept.len()))
    }

    /// The same change of what [`Store::checksum`] is made of. Without a patch all rows are hashed.
    pub(crate) fn note_hashes(
        &self,
        hashes: &mut BTreeMap<&'static str, Hashes>,
        module: Module,
        table: &'static TableDef,
        patch: Option<&Patch>,
    ) -> Result<(), rusqlite::Error> {
        if !LARGE.contains(&table.name.as_str()) {
            return Ok(());
        }
        let known = hashes.remove(table.name.as_str());
        let noted = match (known, patch) {
            (Some(mut known), Some(patch)) => {
                for rowid in &patch.gone {
                    known.remove(rowid);
                }
                let sql = format!("SELECT * FROM {INTENT}.{} WHERE rowid = ?", table.name);
                let mut statement = self.connection.prepare_cached(&sql)?;
                for rowid in &patch.new {
                    known.insert(*rowid, statement.query_row([rowid], |row| hash_of(table, row))?);
                }
                known
            }
            _ => self.hashes_of(module, table, Layer::Runtime)?,
        };
        hashes.insert(&table.name, noted);
        Ok(())
    }
}

impl Patch {
    pub(crate) fn apply(
        &self,
        connection: &Connection,
        table: &TableDef,
        to: &str,
    ) -> Result<(), rusqlite::Error> {
        let mut delete = connection.prepare_cached(&format!("DELETE FROM {to} WHERE rowid = ?"))?;
        for rowid in &self.gone {
            delete.execute([rowid])?;
        }
        let name = &table.name;
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let columns = columns.join(", ");
        // The number of a rule is its rowid.
        let columns = if columns.starts_with("rule_id, ") { columns } else { format!("rowid, {columns}") };
        let sql = format!("INSERT INTO {to} ({columns}) SELECT {columns} FROM {MAIN}.{name} WHERE rowid = ?");
        let mut insert = connection.prepare_cached(&sql)?;
        for rowid in &self.new {
            insert.execute([rowid])?;
        }
        Ok(())
    }
}

/// What is in force of a large table.
enum Known<'c> {
    Users {
        config: &'c Config,
        /// Most rows stand where they stood.
        next: usize,
        /// By name; made for the first one that does not.
        by_name: OnceCell<HashMap<&'c str, usize>>,
    },
    Rules(&'c Config),
}

impl<'c> Known<'c> {
    fn of(config: &'c Config, table: &str) -> Option<Self> {
        match table {
            USERS => Some(Self::Users { config, next: 0, by_name: OnceCell::new() }),
            RULES => Some(Self::Rules(config)),
            _ => None,
        }
    }

    /// An expression for what tells a row `e` from the others. A user's row for servers only is never taken.
    fn key(&self) -> &'static str {
        match self {
            Self::Users { .. } => "CASE WHEN e.frontend <> 0 THEN e.username END",
            Self::Rules(_) => "e.rule_id",
        }
    }

    /// Where what was made of the row with this key stands, unless there is something to tell of the row each time.
    fn position(&mut self, key: ValueRef<'_>) -> Option<usize> {
        let (at, told) = match self {
            Self::Users { config, next, by_name } => {
                let (config, name) = (*config, key.as_str().ok()?);
                // One may have been changed or deleted.
                let near = [*next, *next + 1];
                let is_it = |at: &usize| config.users.get(*at).is_some_and(|user| user.username == name);
                let at = match near.into_iter().find(is_it) {
                    Some(at) => at,
                    None => {
                        let users = || config.users.iter().enumerate();
                        let names = || users().map(|(at, user)| (user.username.as_str(), at)).collect();
                        *by_name.get_or_init(names).get(name)?
                    }
                };
                *next = at + 1;
                (at, &config.told.users)
            }
            Self::Rules(config) => {
                let rule_id = key.as_i64().ok()?;
                let rules = &config.query_rules;
                (
                    rules.binary_search_by_key(&rule_id, |rule| i64::from(rule.rule_id)).ok()?,
                    &config.told.rules,
                )
            }
        };
        told.binary_search(&at).is_err().then_some(at)
    }
}
