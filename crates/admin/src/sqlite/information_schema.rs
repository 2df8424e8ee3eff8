//! `information_schema`, as far as clients look there: what schemas, tables and columns there are.

use rusqlite::{Connection, params};
use weir_store::{ColumnKind, SCHEMAS, tables};

const TABLES: &str = "
ATTACH DATABASE ':memory:' AS information_schema;
CREATE TABLE information_schema.SCHEMATA (CATALOG_NAME, SCHEMA_NAME COLLATE NOCASE, DEFAULT_CHARACTER_SET_NAME,
    DEFAULT_COLLATION_NAME, SQL_PATH);
CREATE TABLE information_schema.TABLES (TABLE_CATALOG, TABLE_SCHEMA COLLATE NOCASE, TABLE_NAME COLLATE NOCASE,
    TABLE_TYPE, ENGINE, VERSION, ROW_FORMAT, TABLE_ROWS, AVG_ROW_LENGTH, DATA_LENGTH, MAX_DATA_LENGTH, INDEX_LENGTH,
    DATA_FREE, AUTO_INCREMENT, CREATE_TIME, UPDATE_TIME, CHECK_TIME, TABLE_COLLATION, CHECKSUM, CREATE_OPTIONS,
    TABLE_COMMENT);
CREATE TABLE information_schema.COLUMNS (TABLE_CATALOG, TABLE_SCHEMA COLLATE NOCASE, TABLE_NAME COLLATE NOCASE,
    COLUMN_NAME COLLATE NOCASE, ORDINAL_POSITION, COLUMN_DEFAULT, IS_NULLABLE, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH,
    CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME,
    COLUMN_TYPE, COLUMN_KEY, EXTRA, PRIVILEGES, COLUMN_COMMENT, GENERATION_EXPRESSION);
CREATE TABLE information_schema.ENGINES (ENGINE, SUPPORT, COMMENT, TRANSACTIONS, XA, SAVEPOINTS);
CREATE TABLE information_schema.PLUGINS (PLUGIN_NAME, PLUGIN_VERSION, PLUGIN_STATUS, PLUGIN_TYPE);
CREATE TABLE information_schema.CHARACTER_SETS (CHARACTER_SET_NAME, DEFAULT_COLLATE_NAME, DESCRIPTION, MAXLEN);
CREATE TABLE information_schema.COLLATIONS (COLLATION_NAME, CHARACTER_SET_NAME, ID, IS_DEFAULT, IS_COMPILED, SORTLEN);
CREATE TABLE information_schema.VIEWS (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION);
CREATE TABLE information_schema.ROUTINES (SPECIFIC_NAME, ROUTINE_CATALOG, ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE,
    DATA_TYPE, DTD_IDENTIFIER, IS_DETERMINISTIC, SQL_DATA_ACCESS, SECURITY_TYPE, CREATED, LAST_ALTERED, SQL_MODE,
    ROUTINE_COMMENT, DEFINER);
CREATE TABLE information_schema.PARAMETERS (SPECIFIC_CATALOG, SPECIFIC_SCHEMA, SPECIFIC_NAME, ORDINAL_POSITION,
    PARAMETER_MODE, PARAMETER_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION,
    NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, DTD_IDENTIFIER, ROUTINE_TYPE);
CREATE TABLE information_schema.TABLE_CONSTRAINTS (CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME, TABLE_SCHEMA,
    TABLE_NAME, CONSTRAINT_TYPE);
CREATE TABLE information_schema.REFERENTIAL_CONSTRAINTS (CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME,
    UNIQUE_CONSTRAINT_CATALOG, UNIQUE_CONSTRAINT_SCHEMA, UNIQUE_CONSTRAINT_NAME, MATCH_OPTION, UPDATE_RULE, DELETE_RULE,
    TABLE_NAME, REFERENCED_TABLE_NAME);
CREATE TABLE information_schema.DUAL (DUMMY);
INSERT INTO information_schema.DUAL VALUES ('X');
CREATE TABLE information_schema.TRIGGERS (TRIGGER_CATALOG, TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE);
CREATE TABLE information_schema.STATISTICS (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, NON_UNIQUE, INDEX_SCHEMA,
    INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, COLLATION, CARDINALITY, SUB_PART, PACKED, NULLABLE, INDEX_TYPE, COMMENT,
    INDEX_COMMENT);
CREATE TABLE information_schema.KEY_COLUMN_USAGE (CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME,
    TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION, POSITION_IN_UNIQUE_CONSTRAINT,
    REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME);
CREATE TABLE information_schema.PROCESSLIST (ID, USER, HOST, DB, COMMAND, TIME, STATE, INFO, TIME_MS);
INSERT INTO information_schema.ENGINES VALUES ('SQLITE', 'DEFAULT', 'The tables of the admin interface', 'NO', 'NO',
    'NO');
INSERT INTO information_schema.CHARACTER_SETS VALUES ('utf8mb4', 'utf8mb4_general_ci', 'UTF-8', 4);
INSERT INTO information_schema.COLLATIONS VALUES ('utf8mb4_general_ci', 'utf8mb4', 45, 'Yes', 'Yes', 1);
";

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

/// Adds the schema to a connection.
pub(crate) fn attach(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    for schema in SCHEMAS.into_iter().chain(["information_schema"]) {
        connection.execute(
            "INSERT INTO information_schema.SCHEMATA VALUES ('def', ?1, 'utf8mb4', 'utf8mb4_general_ci', NULL)",
            [schema],
        )?;
    }
    for table in tables() {
        connection.execute(
            "INSERT INTO information_schema.TABLES (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, \
             VERSION, TABLE_COLLATION, TABLE_COMMENT) \
             VALUES ('def', ?1, ?2, 'BASE TABLE', 'SQLITE', 10, 'utf8mb4_general_ci', '')",
            params![table.schema, table.name],
        )?;
        for (at, column) in table.columns.iter().enumerate() {
            let kind = match column.kind {
                ColumnKind::Integer => "bigint",
                ColumnKind::Text => "varchar",
                ColumnKind::Real => "double",
            };
            connection.execute(
                "INSERT INTO information_schema.COLUMNS (TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, \
                 ORDINAL_POSITION, IS_NULLABLE, DATA_TYPE, COLUMN_TYPE, COLUMN_KEY, EXTRA, PRIVILEGES, \
                 COLUMN_COMMENT) VALUES ('def', ?1, ?2, ?3, ?4, 'YES', ?5, ?5, '', '', 'select', '')",
                params![table.schema, table.name, column.name, at as i64 + 1, kind],
            )?;
        }
    }
    Ok(())
}
