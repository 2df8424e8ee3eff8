//! The configuration as rows of tables, before anybody has looked whether they are right: what the admin interface,
//! a database, or a file of another form has.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// How much is forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strictness {
    /// What is unknown or not built is a fault, and so is a reference to what is not there: Weir's own file, which is
    /// written whole.
    Strict,
    /// Both are warnings: ProxySQL's tables, which have columns and variables without effect here and are loaded one
    /// after the other. Values that make no sense are faults all the same.
    Lenient,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing: as if the column weren't given.
    Null,
    /// A number; true is 1, false 0.
    Integer(i64),
    /// A decimal number.
    Real(f64),
    /// A text.
    Text(String),
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The columns that a row gives. The others have their defaults.
pub type TableRow = BTreeMap<Cow<'static, str>, Cell>;

/// Rows by table; variables are rows of `global_variables`, with their prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRows(BTreeMap<String, Vec<TableRow>>);

impl TableRows {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row at the end of its table.
    pub fn push(&mut self, table: &str, row: TableRow) {
        match self.0.get_mut(table) {
            Some(rows) => rows.push(row),
            None => {
                self.0.insert(table.to_owned(), vec![row]);
            }
        }
    }

    /// Adds a variable under its whole name, such as `mysql-threads`.
    pub fn push_variable(&mut self, name: &str, value: &str) {
        let row = [("variable_name", name), ("variable_value", value)];
        self.push("global_variables", row.into_iter().map(|(key, text)| (key.into(), text.into())).collect());
    }

    /// The rows of a table; none if it isn't there.
    pub fn of(&self, table: &str) -> &[TableRow] {
        self.0.get(table).map_or(&[], Vec::as_slice)
    }

    /// Puts `rows` in place of those of a table.
    pub fn set(&mut self, table: &str, rows: Vec<TableRow>) {
        self.0.insert(table.to_owned(), rows);
    }

    /// All tables by name, those that were set to no rows too.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &[TableRow])> {
        self.0.iter().map(|(name, rows)| (name.as_str(), rows.as_slice()))
    }

    /// The variables by whole name; of several rows of one name the last.
    pub fn variables(&self) -> BTreeMap<&str, &Cell> {
        let mut variables = BTreeMap::new();
        for row in self.of("global_variables") {
            if let (Some(Cell::Text(name)), Some(value)) =
                (row.get("variable_name"), row.get("variable_value"))
            {
                variables.insert(name.as_str(), value);
            }
        }
        variables
    }
}
