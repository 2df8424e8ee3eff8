//! Finds the rows of large tables that are as in force: unedited ones, and of the others those that SQLite finds
//! equal. The rest leaves SQLite, and only that is put in force.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};
use weir_config::{Config, TableRow, TableRows};

use crate::rows::{Hashes, by_name, cells_of, hash_of, tables_of};
use crate::tables::{INTENT, MAIN, TableDef, table};
use crate::{Layer, Module, Store, StoreError};

const USERS: &str = "mysql_users";
const RULES: &str = "mysql_query_rules";
pub(crate) const LARGE: [&str; 2] = [USERS, RULES];
/// Where more than one row of so many changes, a table is copied.
const PATCHED_MAX: usize = 8;

/// What becomes of the rows of large tables, by table.
pub(crate) type KeptRows = BTreeMap<&'static str, Parts>;

/// `rowid`s of a table in `main`, in order.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Those of rows in force that are kept: they have the same in the schema `intent`.
    kept: Vec<i64>,
    /// All others.
    new: Vec<i64>,
}

impl Store {
    /// The rows of some modules in `main`, to be read beside what is in force.
    pub(crate) fn rows_to_load(&self, modules: &[Module]) -> Result<(TableRows, KeptRows), StoreError> {
        let (mut all, mut kept) = (TableRows::new(), KeptRows::new());
        for (module, table) in tables_of(modules) {
            match self.in_force.as_ref().and_then(|config| Known::of(config, &table.name)) {
                Some(known) => {
                    let (rows, parts) = self.rows_beside(table, known)?;
                    all.extend(&table.name, rows);
                    kept.insert(&table.name, parts);
                }
                None => all.extend(&table.name, self.rows_in(module, table, Layer::Memory)?),
            }
        }
        Ok((all, kept))
    }

    fn rows_beside(
        &self,
        table: &'static TableDef,
        known: Known<'_>,
    ) -> Result<(Vec<TableRow>, Parts), StoreError> {
        let same = self.same_rows(table)?;
        let mut same = same.iter().copied().peekable();
        let is_same = |rowid: i64| {
            while same.next_if(|same| *same < rowid).is_some() {}
            same.next_if_eq(&rowid).is_some()
        };
        Ok(self.read(MAIN, table, None, known, is_same)?)
    }

    /// The users in force but for one, and that one as it is in `main`; none if it is not there.
    pub(crate) fn rows_with_user(&self, username: &str) -> Result<Option<(TableRows, KeptRows)>, StoreError> {
        let Some(table) = table(MAIN, USERS) else { return Ok(None) };
        let nothing = Config::default();
        let known = Known::Users {
            config: self.in_force.as_ref().unwrap_or(&nothing),
            next: 0,
            by_name: OnceCell::new(),
        };
        let (mut rows, parts) = self.read(INTENT, table, Some(username), known, |_| true)?;
        let sql = format!("SELECT * FROM {MAIN}.{USERS} WHERE username = ? ORDER BY rowid");
        let mut wanted = self.connection.prepare_cached(&sql)?;
        let by_name = by_name(table);
        let wanted: Vec<TableRow> =
            wanted.query_map([username], |row| cells_of(&by_name, row))?.collect::<Result<_, _>>()?;
        if wanted.is_empty() {
            return Ok(None);
        }
        rows.extend(wanted);
        let mut all = TableRows::new();
        all.set(USERS, rows);
        Ok(Some((all, [(USERS, parts)].into())))
    }

    /// Reads the rows of a table, but for a user's, and for those that are the same as in force or in a configuration that was
    /// read.
    fn read(
        &self,
        schema: &str,
        table: &'static TableDef,
        but_for: Option<&str>,
        mut known: Known<'_>,
        mut is_same: impl FnMut(i64) -> bool,
    ) -> Result<(Vec<TableRow>, Parts), rusqlite::Error> {
        let (name, key) = (&table.name, known.key());
        // A row that was copied has the same rowid.
        let (condition, given) = match but_for {
            Some(username) => (" WHERE username <> ?", vec![username]),
            None => ("", Vec::new()),
        };
        let sql = format!("SELECT rowid, {key} FROM {schema}.{name}{condition} ORDER BY rowid");
        let mut found = self.connection.prepare_cached(&sql)?;
        let mut found = found.query(params_from_iter(given))?;
        let sql = format!("SELECT * FROM {schema}.{name} WHERE rowid = ?");
        let mut whole = self.connection.prepare_cached(&sql)?;
        let by_name = by_name(table);
        let (mut rows, mut parts) = (Vec::new(), Parts::default());
        while let Some(row) = found.next()? {
            let rowid: i64 = row.get(0)?;
            let at = if is_same(rowid) { known.position(row.get_ref(1)?) } else { None };
            match at {
                Some(at) => {
                    rows.push(TableRow::kept(at));
                    parts.kept.push(rowid);
                }
                None => {
                    rows.push(whole.query_row([rowid], |row| cells_of(&by_name, row))?);
                    parts.new.push(rowid);
                }
            }
        }
        Ok((rows, parts))
    }

    /// The `rowid`s of the rows that are in force as they are in `main`, in order, and of some that are in force only.
    fn same_rows(&self, table: &'static TableDef) -> Result<Vec<i64>, rusqlite::Error> {
        let name = &table.name;
        let columns = |of: &str| {
            let columns = table.columns.iter().map(|column| format!("{of}.{}", column.name));
            columns.collect::<Vec<_>>().join(", ")
        };
        let compared = format!(
            "SELECT e.rowid FROM {MAIN}.{name} e JOIN {INTENT}.{name} f ON f.rowid = e.rowid WHERE ({}) IS ({})",
            columns("e"),
            columns("f")
        );
        let (Some(edited), Some(in_force)) = (self.edits.of(name), self.hashes.get(name.as_str())) else {
            let mut all = self.connection.prepare_cached(&format!("{compared} ORDER BY e.rowid"))?;
            return all.query_map([], |row| row.get(0))?.collect();
        };
        let mut one = self.connection.prepare_cached(&format!("{compared} AND e.rowid = ?"))?;
        let mut same = Vec::with_capacity(in_force.len());
        for rowid in in_force.keys() {
            if !edited.contains(rowid) || one.exists([rowid])? {
                same.push(*rowid);
            }
        }
        Ok(same)
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
            let Some(parts) = kept.get(table.name.as_str()) else { continue };
            let (by_name, mut kept) = (by_name(table), parts.kept.iter());
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

/// The changes that make a large table in force the same as it is in `main`. Rows are named by their `rowid`s.
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
        let Some(Parts { kept, new }) = kept.get(table.name.as_str()) else { return Ok(None) };
        let sql = format!("SELECT rowid FROM {INTENT}.{} ORDER BY rowid", table.name);
        let mut in_force = self.connection.prepare_cached(&sql)?;
        let in_force: Vec<i64> = in_force.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let gone = in_force.into_iter().filter(|rowid| kept.binary_search(rowid).is_err());
        let patch = Patch { gone: gone.collect(), new: new.clone() };
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

/// The rows of a large table in force.
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

    /// An expression for what tells a row from the others. A user's row for servers only is never taken.
    fn key(&self) -> &'static str {
        match self {
            Self::Users { .. } => "CASE WHEN frontend <> 0 THEN username END",
            Self::Rules(_) => "rule_id",
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
