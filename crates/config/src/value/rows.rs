//! Holds the configuration as rows of tables, before anybody has looked whether they are right: what the admin interface,
//! a database, or a file of another form has.

use std::borrow::Cow;
use std::collections::BTreeMap;

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

/// The columns that a row gives, by name. The others have their defaults.
///
/// Rows have few columns and there may be very many rows: so it is one piece of memory, and no tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRow {
    cells: Vec<(Cow<'static, str>, Cell)>,
    kept_at: Option<usize>,
}

impl TableRow {
    /// No columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// No columns yet, with room for so many.
    pub fn with_capacity(columns: usize) -> Self {
        Self { cells: Vec::with_capacity(columns), kept_at: None }
    }

    /// A row of `mysql_users` or `mysql_query_rules` that gives no columns: it is the one of which what stands there in
    /// [`crate::PartialRead`] was made.
    pub fn kept(at: usize) -> Self {
        Self { cells: Vec::new(), kept_at: Some(at) }
    }

    /// The position, if it is such a row.
    pub fn kept_at(&self) -> Option<usize> {
        self.kept_at
    }

    /// The value of a column.
    pub fn get(&self, column: &str) -> Option<&Cell> {
        self.find(column).ok().and_then(|at| self.cells.get(at)).map(|(_, cell)| cell)
    }

    /// Whether the row gives this column.
    pub fn contains_key(&self, column: &str) -> bool {
        self.find(column).is_ok()
    }

    /// Gives a column this value, in place of the one that it had.
    pub fn insert(&mut self, column: Cow<'static, str>, cell: Cell) {
        match self.find(&column) {
            Ok(at) => self.cells[at].1 = cell,
            Err(at) => self.cells.insert(at, (column, cell)),
        }
    }

    /// Leaves out the columns that are not wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.cells.retain(|(column, _)| is_wanted(column));
    }

    /// Columns and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Cell)> + Clone {
        self.cells.iter().map(|(column, cell)| (column.as_ref(), cell))
    }

    fn find(&self, column: &str) -> Result<usize, usize> {
        self.cells.binary_search_by(|(name, _)| name.as_ref().cmp(column))
    }
}

impl FromIterator<(Cow<'static, str>, Cell)> for TableRow {
    fn from_iter<I: IntoIterator<Item = (Cow<'static, str>, Cell)>>(cells: I) -> Self {
        let mut row = Self::new();
        cells.into_iter().for_each(|(column, cell)| row.insert(column, cell));
        row
    }
}

impl<const N: usize> From<[(Cow<'static, str>, Cell); N]> for TableRow {
    fn from(cells: [(Cow<'static, str>, Cell); N]) -> Self {
        cells.into_iter().collect()
    }
}

impl std::ops::Index<&str> for TableRow {
    type Output = Cell;

    /// NULL for a column that the row does not give.
    fn index(&self, column: &str) -> &Cell {
        self.get(column).unwrap_or(&Cell::Null)
    }
}

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

    /// Adds rows at the end of a table.
    pub fn extend(&mut self, table: &str, rows: Vec<TableRow>) {
        match self.0.get_mut(table) {
            Some(known) => known.extend(rows),
            None => self.set(table, rows),
        }
    }

    /// Adds all rows of `other` at the ends of their tables.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|(table, rows)| self.extend(&table, rows));
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
