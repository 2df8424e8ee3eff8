//! Compares two configurations, row by row, without showing a secret.

mod equal_rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use weir_config::{Cell, TableRow, TableRows, is_secret_name};
use weir_store::{GLOBAL_VARIABLES, Layer, Module, Store, StoreError, TableDef};

/// The longest value that is shown, in characters.
const VALUE_CHARS_MAX: usize = 80;

/// A row, or a column of one, that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Difference {
    /// As in `runtime_checksums_values`.
    pub module: &'static str,
    pub table: String,
    /// The values of the table's key.
    pub key: Vec<String>,
    /// None: the whole row is on one side only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<&'static str>,
    /// The value on either side; none where there is no such row, `***` for a secret.
    pub left: Option<String>,
    pub right: Option<String>,
}

/// The names of the two sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    pub left: &'static str,
    pub right: &'static str,
}

impl Difference {
    /// As a line: `mysql_servers (100, db1, 3306): weight: 1 in the file, 100 in the database`.
    pub(crate) fn between(&self, sides: Sides) -> impl fmt::Display {
        let Self { table, key, column, left, right, .. } = self;
        let Sides { left: left_name, right: right_name } = sides;
        let what = match (column, left, right) {
            (None, Some(_), _) => format!("only in the {left_name}"),
            (None, None, _) => format!("only in the {right_name}"),
            (Some(_), Some(left), Some(right)) if left == SECRET && right == SECRET => "differs".to_owned(),
            (Some(_), left, right) => {
                let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
                format!("{} in the {left_name}, {} in the {right_name}", word(left), word(right))
            }
        };
        match column {
            Some(_) if table == GLOBAL_VARIABLES => format!("{}: {what}", key.join(", ")),
            Some(column) => format!("{table} ({}): {column}: {what}", key.join(", ")),
            None => format!("{table} ({}): {what}", key.join(", ")),
        }
    }
}

/// Compares, with columns that are not given having their defaults.
///
/// # Errors
/// If a row has no place in its table.
pub(crate) fn differences(left: &TableRows, right: &TableRows) -> Result<Vec<Difference>, StoreError> {
    let (left, right) = equal_rows::without_alike(left, right)?;
    let (left, right) = (Complete::new(&left)?, Complete::new(&right)?);
    let mut all = Vec::new();
    for module in Module::ALL {
        for table in module.tables() {
            let key = left.key_of(table)?;
            let (ours, theirs) = (left.by_key(module, table, &key), right.by_key(module, table, &key));
            let keys: BTreeSet<&Vec<String>> = ours.keys().chain(theirs.keys()).collect();
            for values in keys {
                compare(
                    module,
                    table,
                    values,
                    (ours.get(values).copied(), theirs.get(values).copied()),
                    &mut all,
                );
            }
        }
    }
    Ok(all)
}

/// Whether nobody may see the value of a column.
pub(crate) fn is_secret(table: &str, column: &str, key: &[String]) -> bool {
    match (table, column) {
        (GLOBAL_VARIABLES, "variable_value") => key.first().is_some_and(|name| is_secret_name(name)),
        // It may hold an additional password.
        ("mysql_users", "attributes") => true,
        (_, column) => is_secret_name(column),
    }
}

const SECRET: &str = "***";

fn compare(
    module: Module,
    table: &TableDef,
    key: &[String],
    (left, right): (Option<&TableRow>, Option<&TableRow>),
    all: &mut Vec<Difference>,
) {
    let difference = |column, left, right| Difference {
        module: module.name(),
        table: table.name.clone(),
        key: key.to_vec(),
        column,
        left,
        right,
    };
    let (Some(ours), Some(theirs)) = (left, right) else {
        let there = |side: Option<&TableRow>| side.map(|_| "row".to_owned());
        return all.push(difference(None, there(left), there(right)));
    };
    for column in &table.columns {
        let (a, b) = (ours.get(column.name), theirs.get(column.name));
        if a == b {
            continue;
        }
        let is_secret = is_secret(&table.name, column.name, key);
        let shown = |cell: Option<&Cell>| match cell {
            Some(_) if is_secret => Some(SECRET.to_owned()),
            Some(cell) => Some(shorten(&word(cell))),
            None => None,
        };
        all.push(difference(Some(column.name), shown(a), shown(b)));
    }
}

fn word(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => format!("'{text}'"),
    }
}

/// `text` fit for one line of a terminal.
fn shorten(text: &str) -> String {
    let mut out: String = text.chars().take(VALUE_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(VALUE_CHARS_MAX).is_some() {
        out.push_str("...");
    }
    out.replace("\\'", "'")
}

/// Rows with all their columns.
struct Complete {
    store: Store,
    rows: TableRows,
}

impl Complete {
    fn new(rows: &TableRows) -> Result<Self, StoreError> {
        let mut store = Store::in_memory()?;
        store.replace(&Module::ALL, rows)?;
        let rows = store.rows(Layer::Memory)?;
        Ok(Self { store, rows })
    }

    /// The columns of a table's key.
    fn key_of(&self, table: &TableDef) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM pragma_table_info(?1, 'main') WHERE pk > 0 ORDER BY pk";
        let mut statement = self.store.connection().prepare(sql)?;
        let names = statement.query_map([&table.name], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    fn by_key(&self, module: Module, table: &TableDef, key: &[String]) -> BTreeMap<Vec<String>, &TableRow> {
        let prefix = match module {
            Module::AdminVariables => "admin-",
            _ => "mysql-",
        };
        let plain = |cell: Option<&Cell>| match cell {
            Some(Cell::Text(text)) => text.clone(),
            Some(cell) => word(cell),
            None => String::new(),
        };
        let key = |row: &TableRow| key.iter().map(|column| plain(row.get(column.as_str()))).collect();
        let rows = self.rows.of(&table.name).iter().map(|row| (key(row), row));
        let is_of = |values: &Vec<String>| {
            table.name != GLOBAL_VARIABLES || values.first().is_some_and(|name| name.starts_with(prefix))
        };
        rows.filter(|(values, _): &(Vec<String>, _)| is_of(values)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The rows of memory after these statements.
    pub(crate) fn rows(sql: &str) -> TableRows {
        let store = Store::in_memory().unwrap();
        store.connection().execute_batch(sql).unwrap();
        store.rows(Layer::Memory).unwrap()
    }

    #[test]
    fn rows_and_columns_are_named_and_secrets_are_not() {
        let left = rows(
            "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'db1'), (10, 'db2');
             INSERT INTO mysql_users (username, password) VALUES ('app', 'secret one');
             UPDATE global_variables SET variable_value = '7' WHERE variable_name = 'mysql-shun_on_failures';
             UPDATE global_variables SET variable_value = 'secret' WHERE variable_name = 'mysql-monitor_password';
             UPDATE global_variables SET variable_value = 'secret' WHERE variable_name = 'admin-web_token';",
        );
        let right = rows(
            "INSERT INTO mysql_servers (hostgroup_id, hostname, weight) VALUES (10, 'db2', 7), (10, 'db3', 1);
             INSERT INTO mysql_users (username, password) VALUES ('app', 'secret two');",
        );
        assert_eq!(differences(&left, &left).unwrap(), []);
        let found = differences(&left, &right).unwrap();
        let sides = Sides { left: "file", right: "database" };
        let lines: Vec<String> = found.iter().map(|found| found.between(sides).to_string()).collect();
        assert_eq!(
            lines,
            [
                "admin-web_token: differs",
                "mysql-monitor_password: differs",
                "mysql-shun_on_failures: '7' in the file, '5' in the database",
                "mysql_servers (10, db1, 3306): only in the file",
                "mysql_servers (10, db2, 3306): weight: 1 in the file, 7 in the database",
                "mysql_servers (10, db3, 3306): only in the database",
                "mysql_users (app, 1): password: differs",
            ]
        );
        let json = serde_json::to_string(&found).unwrap();
        assert!(!json.contains("secret"), "{json}");
    }
}
