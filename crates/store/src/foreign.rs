//! Reads the tables of a database that is not this Weir's: a `proxysql.db`, or the `weir.db` of another Weir or of one that runs.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use weir_config::{TableRow, TableRows};
use weir_sql::literal::sqlite_identifier;

use crate::open::of_file;
use crate::rows::{cells_of, in_order};
use crate::tables::{DISK, tables};
use crate::{StoreError, Value};

/// More rows than this in a table are none of a proxy's configuration.
const ROWS_MAX: usize = 1_000_000;
/// How long a writer is waited for.
const BUSY: std::time::Duration = std::time::Duration::from_secs(5);

/// The contents of a database file.
#[derive(Debug, Default)]
pub struct Database {
    /// The rows of the tables that are known, with the columns that both sides have.
    pub rows: TableRows,
    /// Tables with rows, and columns with other values than their defaults, that nobody here knows.
    pub notes: Vec<String>,
}

impl Database {
    /// Reads a database; nothing of it is changed.
    ///
    /// # Errors
    /// If it can't be read or is no database of SQLite.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let of = |cause| of_file(path, cause);
        let connection = Connection::open_with_flags(path, flags).map_err(of)?;
        connection.busy_timeout(BUSY).map_err(of)?;
        // What the file says of views, triggers and functions is not believed.
        for (config, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        ] {
            connection.set_db_config(config, on).map_err(of)?;
        }
        read(&connection).map_err(|fault| match fault {
            StoreError::Sqlite(cause) => of(cause),
            fault => fault,
        })
    }
}

/// Reads all tables as of one moment.
fn read(connection: &Connection) -> Result<Database, StoreError> {
    let connection = connection.unchecked_transaction()?;
    let mut database = Database::default();
    let mut known = BTreeSet::new();
    for table in tables().iter().filter(|table| table.schema == DISK) {
        let there = columns(&connection, &table.name)?;
        let is_known = |name: &str| table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        let (common, others): (Vec<&String>, Vec<&String>) = there.iter().partition(|name| is_known(name));
        known.insert(table.name.to_ascii_lowercase());
        if common.is_empty() {
            continue;
        }
        let names: Vec<&'static str> = table
            .columns
            .iter()
            .map(|column| column.name)
            .filter(|name| common.iter().any(|there| there.eq_ignore_ascii_case(name)))
            .collect();
        let sql = format!("SELECT {} FROM main.{} LIMIT {}", names.join(", "), table.name, ROWS_MAX + 1);
        let rows = rows(&connection, &sql, &names)?;
        if rows.len() > ROWS_MAX {
            let reason = format!("more than {ROWS_MAX} rows");
            return Err(StoreError::Row { row: table.name.clone(), reason });
        }
        if !rows.is_empty() {
            let unknown =
                others.iter().map(|column| format!("{}.{column}: unknown column, not read", table.name));
            database.notes.extend(unknown);
        }
        database.rows.set(&table.name, rows);
    }
    database.notes.extend(strangers(&connection, &known)?);
    Ok(database)
}

/// The columns of a table; none if it isn't there.
fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT info.name FROM main.sqlite_schema AS made, pragma_table_info(made.name, 'main') AS info \
               WHERE made.type = 'table' AND made.name = ?1 COLLATE NOCASE";
    let mut statement = connection.prepare(sql)?;
    let names = statement.query_map([table], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

fn rows(connection: &Connection, sql: &str, names: &[&'static str]) -> Result<Vec<TableRow>, StoreError> {
    let columns = in_order(names.iter().copied());
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| cells_of(&columns, row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Tables with rows that nobody here knows. ProxySQL keeps those of its earlier versions; they say nothing.
fn strangers(connection: &Connection, known: &BTreeSet<String>) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table'")?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut notes = Vec::new();
    for name in names {
        let is_old = |base: &String| {
            let rest = name.strip_prefix(base.as_str()).and_then(|rest| rest.strip_prefix("_v"));
            rest.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        };
        let is_internal = name.starts_with("sqlite_") || name == "mysql_collations";
        if is_internal || known.contains(&name.to_ascii_lowercase()) || known.iter().any(is_old) {
            continue;
        }
        let has_rows = format!("SELECT EXISTS (SELECT 1 FROM main.{})", sqlite_identifier(&name));
        if connection.query_row(&has_rows, [], |row| row.get::<_, Value>(0))? == Value::Integer(1) {
            notes.push(format!("{}: unknown table, not read", name.escape_debug()));
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(sql: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxysql.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        (dir, path)
    }

    #[test]
    fn columns_are_found_by_name() {
        let (_dir, path) = made(
            "CREATE TABLE mysql_servers (hostname VARCHAR, hostgroup_id INT, shiny INT, comment VARCHAR);
             INSERT INTO mysql_servers VALUES ('db1', 10, 1, NULL);
             CREATE TABLE global_variables (variable_name VARCHAR, variable_value VARCHAR);
             INSERT INTO global_variables VALUES ('mysql-threads', '2');
             CREATE TABLE mysql_users_v1_3_0 (username VARCHAR); INSERT INTO mysql_users_v1_3_0 VALUES ('old');
             CREATE TABLE pgsql_users (username VARCHAR); INSERT INTO pgsql_users VALUES ('other');
             CREATE TABLE pgsql_servers (hostname VARCHAR);",
        );
        let database = Database::read(&path).unwrap();
        let servers = database.rows.of("mysql_servers");
        assert_eq!(servers.len(), 1);
        assert_eq!((&servers[0]["hostname"], &servers[0]["hostgroup_id"]), (&"db1".into(), &10.into()));
        assert!(!servers[0].contains_key("comment"), "NULL is as if it weren't given");
        assert_eq!(database.rows.variables()["mysql-threads"], &"2".into());
        let wanted =
            ["mysql_servers.shiny: unknown column, not read", "pgsql_users: unknown table, not read"];
        assert_eq!(database.notes, wanted);
    }

    #[test]
    fn a_hostile_file_runs_nothing() {
        let (_dir, path) = made("CREATE VIEW mysql_users AS SELECT randomblob(1000000000) AS username");
        let database = Database::read(&path).unwrap();
        assert!(database.rows.of("mysql_users").is_empty(), "a view is no table");
        std::fs::write(&path, "no database at all, but some text that is long enough").unwrap();
        assert!(matches!(Database::read(&path), Err(StoreError::Damaged { .. })));
        assert!(Database::read(&path.with_extension("none")).is_err());
        assert!(!path.with_extension("none").exists(), "reading makes no file");
    }
}
