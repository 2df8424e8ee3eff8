//! Says in messages where something of the configuration stands.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::table::tables;
use crate::value::rows::{Cell, TableRow};
use crate::value::suggest::quotable;

/// A table, a row, or the variables, as a fault names them. Words are made when there is a fault: there may be very many
/// rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'t> {
    path: Path<'t>,
    /// Between the path and a column.
    joint: &'static str,
    /// From 1; 0 for what is not in a file.
    line: usize,
}

#[derive(Clone, Copy, Debug)]
enum Path<'t> {
    Name(&'t str),
    /// A row of a table of a file, from 0.
    InFile(&'static str, usize),
    /// A row of a table of the database.
    Row(&'static str, &'t TableRow),
    /// A row of a table that is in force.
    InForce(&'t dyn Keyed),
}

/// A row that was read and tells its key.
pub(crate) trait Keyed: Debug + Sync {
    /// Its table.
    fn table(&self) -> &'static str;

    /// The values of its key, as columns of this row.
    fn key(&self) -> TableRow;
}

pub(crate) static NOWHERE: Place<'static> = Place { path: Path::Name(""), joint: "", line: 0 };

impl<'t> Place<'t> {
    /// A table or the whole of a file.
    pub(crate) fn in_file(path: &'t str, line: usize) -> Self {
        Self { path: Path::Name(path), joint: ".", line }
    }

    /// Of a file: `mysql_servers[2]`.
    pub(crate) fn row_in_file(table: &'static str, index: usize, line: usize) -> Self {
        Self { path: Path::InFile(table, index), joint: ".", line }
    }

    /// A row of a table of the database: `mysql_servers (100, db1, 3306)`.
    pub(crate) fn row(table: &'static str, row: &'t TableRow) -> Self {
        Self { path: Path::Row(table, row), joint: ": ", line: 0 }
    }

    /// The same of a row that is in force.
    pub(crate) fn in_force(row: &'t dyn Keyed) -> Self {
        Self { path: Path::InForce(row), joint: ": ", line: 0 }
    }

    /// Whether it is of a row that is in force.
    pub(crate) fn is_in_force(&self) -> bool {
        matches!(self.path, Path::InForce(_))
    }

    /// A table of the database.
    pub(crate) fn table(name: &'t str) -> Self {
        Self { path: Path::Name(name), joint: ": ", line: 0 }
    }

    /// Variables of the database: `mysql-threads`.
    pub(crate) fn variables(module: &'t str) -> Self {
        Self { path: Path::Name(module), joint: "-", line: 0 }
    }

    pub(crate) fn path(&self) -> Cow<'t, str> {
        match self.path {
            Path::Name(name) => name.into(),
            Path::InFile(table, index) => format!("{table}[{index}]").into(),
            Path::Row(table, row) => describe(table, row).into(),
            Path::InForce(row) => describe(row.table(), &row.key()).into(),
        }
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// What a fault of a column says it is of; of the whole where `column` is empty.
    pub(crate) fn key(&self, column: &str) -> String {
        let path = self.path();
        match (path.is_empty(), column.is_empty()) {
            (true, _) => column.to_owned(),
            (false, true) => path.into_owned(),
            (false, false) => format!("{path}{}{column}", self.joint),
        }
    }

    /// How another fault points at it: `line 7`, or the row.
    pub(crate) fn pointer(&self) -> String {
        if self.line > 0 { format!("line {}", self.line) } else { self.path().into_owned() }
    }
}

/// A row of the database by its key: `mysql_servers (100, db1, 3306)`.
pub(crate) fn describe(table: &str, row: &TableRow) -> String {
    let known = tables().iter().find(|known| known.name == table);
    let key = known.map_or(&["writer_hostgroup"][..], |table| table.key);
    let value = |name: &&str| match row.get(name) {
        Some(Cell::Text(text)) => Some(quotable(text)),
        Some(Cell::Integer(number)) => Some(number.to_string()),
        Some(Cell::Real(number)) => Some(number.to_string()),
        Some(Cell::Null) | None => None,
    };
    let values: Vec<String> = key.iter().filter_map(value).collect();
    format!("{table} ({})", values.join(", "))
}

/// The lines of a table's rows, for checks that look at several rows.
pub(crate) enum Lines<'t> {
    Read(Vec<Place<'t>>),
    /// The table is as it was.
    Kept,
}

impl<'t> Lines<'t> {
    /// Where a row is. Rows that were refused shift the index, so this is only used when none was.
    pub(crate) fn at(&self, index: usize) -> &Place<'t> {
        match self {
            Self::Read(places) => places.get(index).unwrap_or(&NOWHERE),
            Self::Kept => &NOWHERE,
        }
    }

    /// The same for a row of a table that may be kept.
    pub(crate) fn of<'p>(&self, index: usize, row: &'p dyn Keyed) -> Place<'p>
    where
        't: 'p,
    {
        match self {
            Self::Read(_) => *self.at(index),
            Self::Kept => Place::in_force(row),
        }
    }

    /// Whether all `rows` are there: none was refused.
    pub(crate) fn are_complete<T>(&self, rows: &[T]) -> bool {
        match self {
            Self::Read(places) => places.len() == rows.len(),
            Self::Kept => true,
        }
    }

    /// Whether the table was not read.
    pub(crate) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept)
    }
}
