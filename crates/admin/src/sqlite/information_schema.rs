//! Makes `information_schema`, as far as clients look there: what schemas, tables and columns there are.

use rusqlite::{Connection, params};
use weir_store::{ColumnKind, SCHEMAS, TableDef, tables};

const TABLES: &str = include_str!("information_schema.sql");

/// `PROCESSLIST`, from what `stats_mysql_processlist` shows: SQLite has no views across schemas.
const FILL_PROCESSLIST: &str = "
DELETE FROM information_schema.PROCESSLIST;
INSERT INTO information_schema.PROCESSLIST
    SELECT SessionID, user, cli_host || coalesce(':' || cli_port, ''), db, command, CAST(time_ms AS INTEGER) / 1000, '',
        info, time_ms
    FROM stats.stats_mysql_processlist;
";

/// Whether a table that is read is the list of sessions. SQLite does not tell the schema with COUNT(*).
pub(crate) fn is_processlist(schema: &str, name: &str) -> bool {
    name.eq_ignore_ascii_case("PROCESSLIST")
        && (schema.is_empty() || schema.eq_ignore_ascii_case("information_schema"))
}

/// Puts into the list of sessions what the table of `stats` has.
pub(crate) fn fill_processlist(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(FILL_PROCESSLIST)
}

/// Adds the schema to a connection, and a few tables of the schema `mysql`, for drivers.
pub(crate) fn attach(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    for schema in SCHEMAS.into_iter().chain(["information_schema"]) {
        connection.execute(
            "INSERT INTO information_schema.SCHEMATA VALUES ('def', ?1, 'utf8mb4', 'utf8mb4_general_ci', NULL)",
            [schema],
        )?;
    }
    let transaction = connection.unchecked_transaction()?;
    tables().iter().try_for_each(|table| describe(&transaction, table))?;
    transaction.commit()
}

/// A table, its columns and its key.
fn describe(connection: &Connection, table: &TableDef) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO information_schema.TABLES (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, VERSION, \
         TABLE_COLLATION, TABLE_COMMENT) \
         VALUES ('def', ?1, ?2, 'BASE TABLE', 'SQLITE', 10, 'utf8mb4_general_ci', '')",
        params![table.schema, table.name],
    )?;
    let known = "SELECT name, \"notnull\", dflt_value, pk FROM pragma_table_info(?1, ?2) ORDER BY cid";
    let mut statement = connection.prepare_cached(known)?;
    let mut rows = statement.query([&table.name, table.schema])?;
    let mut has_key = false;
    while let Some(row) = rows.next()? {
        let (name, is_not_null, default, key): (String, bool, Option<String>, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let column = table.columns.iter().position(|column| column.name == name);
        let Some((at, column)) = column.and_then(|at| Some((at, table.columns.get(at)?))) else { continue };
        // A literal, with its quotes.
        let default = default.filter(|default| default != "NULL");
        let default = default.map(|default| default.trim_matches('\'').to_owned());
        // Digits, and where numbers stop; bytes of text.
        let (kind, digits, scale, bytes) = match column.kind {
            ColumnKind::Integer => ("bigint", Some(19), Some(0), None),
            ColumnKind::Text => ("varchar", None, None, Some(65_535)),
            ColumnKind::Real => ("double", Some(22), None, None),
        };
        connection.prepare_cached(COLUMN)?.execute(params![
            table.schema,
            table.name,
            column.name,
            at as i64 + 1,
            default,
            if is_not_null || key > 0 { "NO" } else { "YES" },
            kind,
            bytes,
            digits,
            scale,
            if key > 0 { "PRI" } else { "" },
        ])?;
        if key > 0 {
            connection.prepare_cached(KEY)?.execute(params![table.schema, table.name, key, column.name])?;
            let use_of_key = params![table.schema, table.name, column.name, key];
            connection.prepare_cached(USE_OF_KEY)?.execute(use_of_key)?;
            has_key = true;
        }
    }
    if has_key {
        connection.prepare_cached(CONSTRAINT)?.execute([table.schema, &table.name])?;
    }
    Ok(())
}

const COLUMN: &str = "INSERT INTO information_schema.COLUMNS (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, \
    ORDINAL_POSITION, COLUMN_DEFAULT, IS_NULLABLE, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH, \
    NUMERIC_PRECISION, NUMERIC_SCALE, COLUMN_TYPE, COLUMN_KEY, EXTRA, PRIVILEGES, COLUMN_COMMENT, IS_GENERATED) \
    VALUES ('def', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?7, ?11, '', 'select', '', 'NEVER')";
const KEY: &str = "INSERT INTO information_schema.STATISTICS (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, NON_UNIQUE, \
    INDEX_SCHEMA, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, COLLATION, NULLABLE, INDEX_TYPE, COMMENT, INDEX_COMMENT) \
    VALUES ('def', ?1, ?2, 0, ?1, 'PRIMARY', ?3, ?4, 'A', '', 'BTREE', '', '')";
const USE_OF_KEY: &str = "INSERT INTO information_schema.KEY_COLUMN_USAGE (CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, \
    CONSTRAINT_NAME, TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION) \
    VALUES ('def', ?1, 'PRIMARY', 'def', ?1, ?2, ?3, ?4)";
const CONSTRAINT: &str = "INSERT INTO information_schema.TABLE_CONSTRAINTS VALUES ('def', ?1, 'PRIMARY', ?1, ?2, \
    'PRIMARY KEY')";
