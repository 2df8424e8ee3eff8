//! Moves rows in and out.

use std::collections::BTreeMap;
use std::fmt::Write;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};
use sha2::{Digest, Sha256};
use weir_config::{Cell, TableRow, TableRows, Variable, variable};
use weir_sql::literal::sqlite_text;

use crate::open::{DATABASE_FILE, of_file};
use crate::runtime::{add_default_variables, save_epochs};
use crate::tables::{GLOBAL_VARIABLES, TableDef, table};
use crate::{Layer, MAIN, Module, Store, StoreError, Value};

/// Of the rows of a table, by `rowid`.
pub(crate) type Hashes = BTreeMap<i64, [u8; 32]>;

/// Each machine has its own.
const LISTENERS: &str = "weir_listeners";

impl Store {
    /// Copies the rows of a module, in place of those that are there: all or nothing, also where the process is killed
    /// or the machine loses power.
    ///
    /// # Errors
    /// [`StoreError::IntoRuntime`], [`StoreError::Sealed`]; else as SQLite says, such as that the disk is full.
    pub fn copy(&mut self, module: Module, from: Layer, to: Layer) -> Result<(), StoreError> {
        self.copy_all(&[module], from, to)
    }

    /// [`Store::copy`] for several modules, all or none.
    ///
    /// # Errors
    /// As [`Store::copy`].
    pub fn copy_all(&mut self, modules: &[Module], from: Layer, to: Layer) -> Result<(), StoreError> {
        if to == Layer::Runtime {
            return Err(StoreError::IntoRuntime);
        }
        if to == Layer::Disk {
            self.check_seal()?;
        }
        if from == to {
            return Ok(());
        }
        let path = self.datadir.join(DATABASE_FILE);
        self.copy_between(modules, from, to).map_err(|cause| of_file(&path, cause))
    }

    pub(crate) fn copy_between(
        &mut self,
        modules: &[Module],
        from: Layer,
        to: Layer,
    ) -> Result<(), rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        for (module, table) in tables_of(modules) {
            let of = |layer: Layer| format!("{}.{}", layer.schema(), table.name);
            transaction.execute_batch(&copy_sql(module, table, &of(from), &of(to)))?;
        }
        match to {
            Layer::Memory => add_default_variables(&transaction, modules)?,
            Layer::Disk => save_epochs(&transaction, modules)?,
            Layer::Runtime => {}
        }
        transaction.commit()
    }

    /// The rows of all tables of configuration, in the order in which they came; NULLs are left out.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn rows(&self, from: Layer) -> Result<TableRows, StoreError> {
        self.rows_of(&Module::ALL, from)
    }

    /// [`Store::rows`] of some modules only.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn rows_of(&self, modules: &[Module], from: Layer) -> Result<TableRows, StoreError> {
        let mut all = TableRows::new();
        for (module, table) in tables_of(modules) {
            all.extend(&table.name, self.rows_in(module, table, from)?);
        }
        Ok(all)
    }

    pub(crate) fn rows_in(
        &self,
        module: Module,
        table: &TableDef,
        from: Layer,
    ) -> Result<Vec<TableRow>, rusqlite::Error> {
        let sql = select(module, table, from);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let columns = by_name(table);
        statement.query_map([], |row| cells_of(&columns, row))?.collect()
    }

    /// Puts the rows of some modules in place of those in `main`. Tables without rows become empty, variables that
    /// `rows` does not give have their defaults.
    ///
    /// # Errors
    /// [`StoreError::NoColumn`], [`StoreError::Row`]; nothing is changed then.
    pub fn replace(&mut self, modules: &[Module], rows: &TableRows) -> Result<(), StoreError> {
        self.write(modules, rows, Layer::Memory, true)
    }

    /// Adds rows to those of some modules in `main`, in place of those with the same keys.
    ///
    /// # Errors
    /// As [`Store::replace`].
    pub fn merge(&mut self, modules: &[Module], rows: &TableRows) -> Result<(), StoreError> {
        self.write(modules, rows, Layer::Memory, false)
    }

    pub(crate) fn write(
        &mut self,
        modules: &[Module],
        rows: &TableRows,
        to: Layer,
        clears: bool,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        for (module, table) in tables_of(modules) {
            if clears {
                let (name, of_module) = (&table.name, of_module(module, table));
                transaction.execute_batch(&format!("DELETE FROM {}.{name}{of_module}", to.schema()))?;
            }
            let of_module = rows.of(&table.name).iter().filter(|row| is_of(module, table, row));
            insert(&transaction, to, table, of_module)?;
        }
        if to == Layer::Memory {
            add_default_variables(&transaction, modules)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Puts rows in place of those of a table that is not edited: of `stats`, `monitor`, `stats_history`, or a
    /// `runtime_` table. Values are in the order of the columns. The rows are taken one by one, all or none.
    ///
    /// # Errors
    /// [`StoreError::NoTable`]; [`StoreError::Row`] if a row has another number of values than the table columns.
    pub fn put(
        &mut self,
        schema: &str,
        name: &str,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Result<(), StoreError> {
        let found = table(schema, name).filter(|table| table.schema != MAIN || table.is_runtime());
        let found = found.filter(|table| table.module.is_none());
        let Some(table) = found else { return Err(StoreError::NoTable(format!("{schema}.{name}"))) };
        let before = self.connection.total_changes();
        let done = self.fill(table, rows);
        self.filled += self.connection.total_changes() - before;
        done
    }

    fn fill(
        &mut self,
        table: &TableDef,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Result<(), StoreError> {
        let (schema, name, count) = (table.schema, &table.name, table.columns.len());
        let transaction = self.connection.transaction()?;
        transaction.execute_batch(&format!("DELETE FROM {schema}.{name}"))?;
        {
            let places = vec!["?"; count].join(", ");
            let sql = format!("INSERT INTO {schema}.{name} VALUES ({places})");
            let mut statement = transaction.prepare_cached(&sql)?;
            for row in rows {
                if row.len() != count {
                    let reason = format!("{} values for {count} columns", row.len());
                    return Err(StoreError::Row { row: format!("{schema}.{name}"), reason });
                }
                statement.execute(params_from_iter(row))?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// A hash of a module's rows, whatever their order: two Weirs with the same configuration have the same one. What
    /// is of one machine (`weir_listeners`, [`Variable::is_local`]) does not count.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn checksum(&self, module: Module, of: Layer) -> Result<u64, StoreError> {
        let mut sums = Vec::new();
        for (of_module, table) in tables_of(&[module]) {
            sums.push(self.sum(of_module, table, of)?);
        }
        Ok(hash(sums))
    }

    /// [`Store::checksum`] of one table of configuration, such as `mysql_users`.
    ///
    /// # Errors
    /// [`StoreError::NoTable`]; else as SQLite says.
    pub fn table_checksum(&self, name: &str, of: Layer) -> Result<u64, StoreError> {
        let found = table(MAIN, name).and_then(|table| table.module.map(|module| (module, table)));
        let (module, table) = found.ok_or_else(|| StoreError::NoTable(name.to_owned()))?;
        Ok(hash(vec![self.sum(module, table, of)?]))
    }

    /// [`sum_of`] of the rows of a table.
    fn sum(&self, module: Module, table: &TableDef, of: Layer) -> Result<Vec<u8>, StoreError> {
        let known = self.hashes.get(table.name.as_str()).filter(|_| of == Layer::Runtime);
        let rows = match known {
            Some(known) => known.values().copied().collect(),
            None => self.hashes_of(module, table, of)?.into_values().collect(),
        };
        Ok(sum_of(table, rows))
    }

    pub(crate) fn hashes_of(
        &self,
        module: Module,
        table: &TableDef,
        of: Layer,
    ) -> Result<Hashes, rusqlite::Error> {
        let from = format!("{}.{}{}", of.schema(), table.name, of_module(module, table));
        let mut statement = self.connection.prepare_cached(&format!("SELECT *, rowid FROM {from}"))?;
        let mut found = statement.query([])?;
        let mut hashes = Hashes::new();
        while let Some(row) = found.next()? {
            let is_local = table.name == GLOBAL_VARIABLES
                && row.get_ref(0)?.as_str().is_ok_and(|name| variable(name).is_some_and(Variable::is_local));
            if !is_local {
                hashes.insert(row.get(table.columns.len())?, hash_of(table, row)?);
            }
        }
        Ok(hashes)
    }
}

/// The columns of a table with their positions, in the order in which a row has them.
pub(crate) fn by_name(table: &TableDef) -> Vec<(usize, &'static str)> {
    in_order(table.columns.iter().map(|column| column.name))
}

/// The same for columns with these names.
pub(crate) fn in_order(names: impl Iterator<Item = &'static str>) -> Vec<(usize, &'static str)> {
    let mut columns: Vec<_> = names.enumerate().collect();
    columns.sort_unstable_by_key(|(_, name)| *name);
    columns
}

/// A row; NULLs are left out. Each column goes to the end.
pub(crate) fn cells_of(
    columns: &[(usize, &'static str)],
    row: &Row<'_>,
) -> Result<TableRow, rusqlite::Error> {
    let mut cells = TableRow::with_capacity(columns.len());
    for (at, name) in columns {
        let cell = match row.get_ref(*at)? {
            ValueRef::Null => continue,
            ValueRef::Integer(number) => Cell::Integer(number),
            ValueRef::Real(number) => Cell::Real(number),
            ValueRef::Text(text) | ValueRef::Blob(text) => {
                Cell::Text(String::from_utf8_lossy(text).into_owned())
            }
        };
        cells.insert((*name).into(), cell);
    }
    Ok(cells)
}

/// Of a row, whatever its `rowid`.
pub(crate) fn hash_of(table: &TableDef, row: &Row<'_>) -> Result<[u8; 32], rusqlite::Error> {
    let mut hasher = Sha256::new();
    for at in 0..table.columns.len() {
        hash_value(&mut hasher, row.get_ref(at)?);
    }
    Ok(hasher.finalize().into())
}

/// [`Store::checksum`] of rows that are in no database, with the types of their columns.
pub fn checksum_of_rows(module: Module, rows: &TableRows) -> u64 {
    let sums = module.tables().map(|table| {
        let of_module = rows.of(&table.name).iter().filter(|row| is_of(module, table, row));
        let shared = of_module.filter(|row| is_shared(&table.name, row));
        let hashes = shared.map(|row| {
            let mut hasher = Sha256::new();
            for column in &table.columns {
                let value = match row.get(column.name) {
                    None | Some(Cell::Null) => ValueRef::Null,
                    Some(Cell::Integer(number)) => ValueRef::Integer(*number),
                    Some(Cell::Real(number)) => ValueRef::Real(*number),
                    Some(Cell::Text(text)) => ValueRef::Text(text.as_bytes()),
                };
                hash_value(&mut hasher, value);
            }
            hasher.finalize().into()
        });
        sum_of(table, hashes.collect())
    });
    hash(sums.collect())
}

/// Whether a row is for all proxies of a cluster, and not only for one machine.
pub(crate) fn is_shared(table: &str, row: &TableRow) -> bool {
    match (table, row.get("variable_name")) {
        (LISTENERS, _) => false,
        (GLOBAL_VARIABLES, Some(Cell::Text(name))) => !variable(name).is_some_and(Variable::is_local),
        _ => true,
    }
}

fn hash_value(hasher: &mut Sha256, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => hasher.update([0]),
        ValueRef::Integer(number) => {
            hasher.update([1]);
            hasher.update(number.to_le_bytes());
        }
        ValueRef::Real(number) => {
            hasher.update([2]);
            hasher.update(number.to_le_bytes());
        }
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            hasher.update([3]);
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
    }
}

/// Name and hashes of the rows of a table, sorted. Where clients come in is each machine's own affair.
fn sum_of(table: &TableDef, mut rows: Vec<[u8; 32]>) -> Vec<u8> {
    if table.name == LISTENERS {
        return Vec::new();
    }
    rows.sort_unstable();
    let mut sum = table.name.clone().into_bytes();
    sum.push(0);
    sum.extend((rows.len() as u64).to_le_bytes());
    sum.extend(rows.concat());
    sum
}

fn hash(parts: Vec<Vec<u8>>) -> u64 {
    let digest = Sha256::digest(parts.concat());
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

pub(crate) fn tables_of(modules: &[Module]) -> impl Iterator<Item = (Module, &'static TableDef)> {
    modules.iter().flat_map(|module| module.tables().map(|table| (*module, table)))
}

/// A condition for the rows of a table that are of a module; nothing where all are.
fn of_module(module: Module, table: &TableDef) -> String {
    match module.variable_prefix() {
        Some(prefix) if table.name == GLOBAL_VARIABLES => {
            format!(" WHERE variable_name LIKE {}", sqlite_text(&format!("{prefix}%")))
        }
        _ => String::new(),
    }
}

/// Puts the rows of one table in place of those of another one with the same columns. Without a condition SQLite empties a
/// table at once, and then takes over whole pages of one that is declared like it (its "Xfer optimization"), in their order.
pub(crate) fn copy_sql(module: Module, table: &TableDef, from: &str, to: &str) -> String {
    let of_module = of_module(module, table);
    format!("DELETE FROM {to}{of_module}; INSERT INTO {to} SELECT * FROM {from}{of_module}")
}

/// Whether a row of a table is of a module.
pub(crate) fn is_of(module: Module, table: &TableDef, row: &TableRow) -> bool {
    match (module.variable_prefix(), row.get("variable_name")) {
        (Some(prefix), Some(Cell::Text(name))) if table.name == GLOBAL_VARIABLES => {
            name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        }
        _ => true,
    }
}

fn select(module: Module, table: &TableDef, of: Layer) -> String {
    format!("SELECT * FROM {}.{}{} ORDER BY rowid", of.schema(), table.name, of_module(module, table))
}

/// Inserts rows; columns that one does not give have their defaults.
fn insert<'r>(
    connection: &Connection,
    to: Layer,
    table: &TableDef,
    rows: impl Iterator<Item = &'r TableRow>,
) -> Result<(), StoreError> {
    let mut statement = None;
    let mut before = Vec::new();
    for row in rows {
        let given = row.iter().map(|(name, cell)| (name, *cell == Cell::Null));
        // One row after the other gives the same columns.
        if statement.is_none() || !given.clone().eq(before.iter().copied()) {
            before = given.collect();
            statement = Some(connection.prepare_cached(&insert_sql(to, table, &before)?)?);
        }
        let Some(statement) = &mut statement else { continue };
        let values = row.iter().map(|(_, cell)| cell).filter(|cell| **cell != Cell::Null);
        statement
            .execute(params_from_iter(values.map(Bound)))
            .map_err(|cause| StoreError::Row { row: describe(table, row), reason: cause.to_string() })?;
    }
    Ok(())
}

/// A value as SQLite is given it.
struct Bound<'r>(&'r Cell);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.value()))
    }
}

impl<'r> Bound<'r> {
    fn value(&self) -> ValueRef<'r> {
        match self.0 {
            Cell::Null => ValueRef::Null,
            Cell::Integer(number) => ValueRef::Integer(*number),
            Cell::Real(number) => ValueRef::Real(*number),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        }
    }
}

/// The statement for rows that give these columns; true: NULL, which is as if it weren't given.
fn insert_sql(to: Layer, table: &TableDef, given: &[(&str, bool)]) -> Result<String, StoreError> {
    let mut columns = Vec::new();
    for (name, is_null) in given {
        let name = column_name(table, name);
        let Some(column) = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)) else {
            let (table, column) = (table.name.clone(), name.to_owned());
            return Err(StoreError::NoColumn { table, column });
        };
        columns.extend((!is_null).then_some(column.name));
    }
    let (schema, name) = (to.schema(), &table.name);
    if columns.is_empty() {
        return Ok(format!("INSERT OR REPLACE INTO {schema}.{name} DEFAULT VALUES"));
    }
    let mut places = vec!["?"; columns.len()];
    if to == Layer::Runtime {
        // Its rows were rows of a database, which leave out nothing but NULLs.
        let absent = table.columns.iter().filter(|column| column.may_be_null()).map(|column| column.name);
        columns.extend(absent.filter(|name| !columns.contains(name)).collect::<Vec<_>>());
        places.resize(columns.len(), "NULL");
    }
    let (columns, places) = (columns.join(", "), places.join(", "));
    Ok(format!("INSERT OR REPLACE INTO {schema}.{name} ({columns}) VALUES ({places})"))
}

/// The names of ProxySQL's configuration file, where they are others than those of its tables.
fn column_name<'n>(table: &TableDef, name: &'n str) -> &'n str {
    let has = |wanted: &str| table.columns.iter().any(|column| column.name == wanted);
    match name {
        "address" if has("hostname") => "hostname",
        "hostgroup" if has("hostgroup_id") => "hostgroup_id",
        name => name,
    }
}

/// A row by its table and its first columns up to the first one that may be a secret.
fn describe(table: &TableDef, row: &TableRow) -> String {
    let mut text = table.name.clone();
    let keys = row.iter().map(|(name, cell)| (column_name(table, name), cell));
    let keys: Vec<String> = table
        .columns
        .iter()
        .take(3)
        .take_while(|column| !matches!(column.name, "password" | "variable_value"))
        .filter_map(|column| {
            let (_, cell) = keys.clone().find(|(name, _)| *name == column.name)?;
            match cell {
                Cell::Text(text) => Some(text.clone()),
                Cell::Integer(number) => Some(number.to_string()),
                Cell::Real(number) => Some(number.to_string()),
                Cell::Null => None,
            }
        })
        .collect();
    let _ = write!(text, " ({})", keys.join(", "));
    text
}
