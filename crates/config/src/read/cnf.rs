//! Reads ProxySQL's own configuration file as it is, in libconfig's language, to the same rows as its admin interface has.
//!
//! What a key of a row or a variable means is not asked here: [`crate::read_rows`] does that. A setting of the top level
//! that has no meaning for Weir is a warning.

mod lexer;
mod parser;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use self::parser::{Setting, Value};
use crate::read::file::FILE_SIZE_BYTES_MAX;
use crate::read::tables::TABLE_ROWS_MAX;
use crate::report::error::{ConfigError, ERRORS_MAX};
use crate::report::place::describe;
use crate::table::tables;
use crate::value::rows::{Cell, TableRow, TableRows};
use crate::value::suggest::{quotable, unknown_key};

/// Lists of rows, by the name of their table (but for restapi). ProxySQL reads over those that it does not know, so that
/// Weir's own tables have a place, too.
fn lists() -> Vec<&'static str> {
    let tables = tables().iter().map(|table| table.name).filter(|name| *name != "global_variables");
    let mut lists: Vec<_> =
        tables.map(|name| if name == "restapi_routes" { "restapi" } else { name }).collect();
    lists.sort_unstable();
    lists
}

/// Groups of variables, with the prefix of their names in `global_variables`.
const VARIABLES: &[(&str, &str)] = &[("admin_variables", "admin-"), ("mysql_variables", "mysql-")];

/// What ProxySQL has at the top level and Weir has not, with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("clickhouse_users", NO_CLICKHOUSE),
    ("clickhouse_variables", NO_CLICKHOUSE),
    ("cluster_sync_interfaces", "addresses of listeners are not synchronised"),
    ("coredump_filters", "weir makes no core dumps of its own"),
    ("errorlog", "the log goes to standard error"),
    ("execute_on_exit_failure", "weir has no watchdog: that is the service manager's task"),
    ("ldap_auth_plugin", "weir has no plugins"),
    ("ldap_variables", "weir has no LDAP"),
    ("mysql_collations", "collations are the servers'"),
    ("mysql_ldap_mapping", "weir has no LDAP"),
    ("pgsql_ifaces", NO_POSTGRES),
    ("pgsql_query_rules", NO_POSTGRES),
    ("pgsql_replication_hostgroups", NO_POSTGRES),
    ("pgsql_servers", NO_POSTGRES),
    ("pgsql_users", NO_POSTGRES),
    ("pgsql_variables", NO_POSTGRES),
    ("restart_on_missing_heartbeats", "weir has no watchdog: that is the service manager's task"),
    ("set_thread_name", "threads always have names"),
    ("sqliteserver_variables", "weir has no SQLite server for applications"),
    ("uuid", "weir makes its own name, in datadir/instance"),
    ("web_interface_plugin", "weir has no plugins"),
];
const NO_CLICKHOUSE: &str = "weir does not speak to ClickHouse";
const NO_POSTGRES: &str = "weir does not speak to PostgreSQL";

/// A file of ProxySQL, read but not checked.
#[derive(Debug, Default)]
pub struct CnfFile {
    /// `datadir`, if it is given.
    pub datadir: Option<PathBuf>,
    /// The rows of all tables, and the variables.
    pub rows: TableRows,
    /// Settings of the top level without effect.
    pub warnings: Vec<ConfigError>,
    /// Where the rows stand.
    pub lines: RowLines,
}

/// The lines of a file's rows.
#[derive(Debug, Default)]
pub struct RowLines {
    /// By table, in the order of the rows.
    rows: BTreeMap<String, Vec<usize>>,
    /// By whole name.
    variables: BTreeMap<String, usize>,
    /// By what faults call a row; of two that they call the same the last.
    described: BTreeMap<String, usize>,
}

impl RowLines {
    /// The line of the `index`th row of a table, from 1; 0 if there is none.
    pub fn of_row(&self, table: &str, index: usize) -> usize {
        self.rows.get(table).and_then(|lines| lines.get(index)).copied().unwrap_or(0)
    }

    /// The line that a fault of [`crate::read_rows`] is of, by its key; 0 for what is of no row.
    pub fn of_fault(&self, key: &str) -> usize {
        let by_row = || {
            let row = key.rfind("): ").and_then(|end| key.get(..=end)).unwrap_or(key);
            self.described.get(row).copied()
        };
        self.variables.get(key).copied().or_else(by_row).unwrap_or(0)
    }
}

/// Reads a file in ProxySQL's form. `file_name` is only used in messages.
///
/// # Errors
/// The first place that is no libconfig; else all lists, groups and values that have no place where they stand.
pub fn read_cnf(text: &str, file_name: &str) -> Result<CnfFile, Vec<ConfigError>> {
    let mut reader = Reader { file_name: file_name.to_owned(), file: CnfFile::default(), faults: Vec::new() };
    if text.len() > FILE_SIZE_BYTES_MAX {
        reader.refuse(0, "", format!("longer than {FILE_SIZE_BYTES_MAX} bytes"));
        return Err(reader.faults);
    }
    match parser::parse(text) {
        Ok(settings) => settings.into_iter().for_each(|setting| reader.setting(setting)),
        Err(fault) => reader.refuse(fault.line, "", fault.reason),
    }
    if reader.faults.is_empty() { Ok(reader.file) } else { Err(reader.faults) }
}

struct Reader {
    file_name: String,
    file: CnfFile,
    faults: Vec<ConfigError>,
}

impl Reader {
    fn refuse(&mut self, line: usize, key: impl Into<String>, reason: impl Into<String>) {
        if self.faults.len() < ERRORS_MAX {
            let (file, key, reason) = (self.file_name.clone(), key.into(), reason.into());
            self.faults.push(ConfigError { file, line, key, reason });
        }
    }

    fn warn(&mut self, line: usize, key: String, reason: &str) {
        if self.file.warnings.len() < ERRORS_MAX {
            let (file, reason) = (self.file_name.clone(), format!("has no effect: {reason}"));
            self.file.warnings.push(ConfigError { file, line, key, reason });
        }
    }

    /// A setting of the top level.
    fn setting(&mut self, setting: Setting) {
        let Setting { name, line, value } = setting;
        if let Some((_, prefix)) = VARIABLES.iter().find(|(group, _)| *group == name) {
            match value {
                Value::Group(settings) => self.variables(&name, prefix, settings),
                _ => self.refuse(line, name, "is a group of variables: write { } around them"),
            }
        } else if let Some(table) = lists().iter().find(|table| **table == name) {
            match value {
                Value::List(rows) => self.rows(table, line, rows),
                _ => self.refuse(line, name, "is a list of rows: write ( { }, { } )"),
            }
        } else if name == "datadir" {
            match value {
                Value::Text(path) if !path.is_empty() && !path.contains('\0') => {
                    self.file.datadir = Some(path.into());
                }
                _ => self.refuse(line, name, "is not a path"),
            }
        } else if let Some((_, reason)) = WITHOUT_EFFECT.iter().find(|(without, _)| *without == name) {
            if !is_nothing(&value) {
                self.warn(line, name, reason);
            }
        } else {
            let known = VARIABLES.iter().map(|(group, _)| *group).chain(lists());
            let reason = unknown_key(&name, known.chain(["datadir"]));
            self.warn(line, quotable(&name), &reason);
        }
    }

    fn variables(&mut self, group: &str, prefix: &str, settings: Vec<Setting>) {
        for Setting { name, line, value } in settings {
            let text = match value {
                Value::Text(text) => text,
                Value::Bool(value) => value.to_string(),
                Value::Integer(number) => number.to_string(),
                Value::Real(number) => number.to_string(),
                Value::Group(_) | Value::List(_) => {
                    let key = format!("{group}.{}", quotable(&name));
                    self.refuse(line, key, "is not one value");
                    continue;
                }
            };
            let name = format!("{prefix}{name}");
            self.file.rows.push_variable(&name, &text);
            self.file.lines.variables.insert(name, line);
        }
    }

    fn rows(&mut self, name: &'static str, line: usize, rows: Vec<(usize, Value)>) {
        let table = if name == "restapi" { "restapi_routes" } else { name };
        if rows.len() > TABLE_ROWS_MAX {
            let reason = format!("{} rows, more than {TABLE_ROWS_MAX}", rows.len());
            return self.refuse(line, name, reason);
        }
        let mut lines = Vec::with_capacity(rows.len());
        let mut read = Vec::with_capacity(rows.len());
        for (index, (line, row)) in rows.into_iter().enumerate() {
            let path = format!("{name}[{index}]");
            match row {
                Value::Group(settings) => {
                    let row = self.row(table, &path, settings);
                    self.file.lines.described.insert(describe(table, &row), line);
                    read.push(row);
                    lines.push(line);
                }
                _ => self.refuse(line, path, "is a row: write { } around its columns"),
            }
        }
        self.file.rows.set(table, read);
        self.file.lines.rows.insert(table.to_owned(), lines);
    }

    fn row(&mut self, table: &str, path: &str, settings: Vec<Setting>) -> TableRow {
        let mut row = TableRow::new();
        for Setting { name, line, value } in settings {
            let key = || format!("{path}.{}", quotable(&name));
            let cell = match value {
                Value::Text(text) => Cell::Text(text),
                Value::Bool(value) => Cell::Integer(i64::from(value)),
                Value::Integer(number) => Cell::Integer(number),
                Value::Real(number) => Cell::Real(number),
                Value::Group(_) | Value::List(_) => {
                    self.refuse(line, key(), "is not one value");
                    continue;
                }
            };
            let column = column(table, &name);
            if row.contains_key(column) {
                self.refuse(line, key(), format!("is the same as {column}: give one of them"));
                continue;
            }
            row.insert(Cow::Owned(column.to_owned()), cell);
        }
        // In its file a rule is active unless it says otherwise, in its table the other way round.
        if table == "mysql_query_rules" && !row.contains_key("active") {
            row.insert(Cow::Borrowed("active"), Cell::Integer(1));
        }
        row
    }
}

/// The column that a key means.
fn column<'n>(table: &str, name: &'n str) -> &'n str {
    match (table, name) {
        ("mysql_servers" | "proxysql_servers", "address") => "hostname",
        ("mysql_servers", "hostgroup") => "hostgroup_id",
        ("restapi_routes", "interval_ms") => "timeout_ms",
        _ => name,
    }
}

/// Whether a value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Integer(number) => *number == 0,
        Value::Real(number) => *number == 0.0,
        Value::Text(text) => text.is_empty(),
        Value::Group(settings) => settings.is_empty(),
        Value::List(values) => values.is_empty(),
    }
}

#[cfg(test)]
mod tests;
