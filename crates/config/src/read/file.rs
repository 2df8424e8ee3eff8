//! Reads what a file in TOML has: tables, their rows, and those as they stand there.

use std::ops::Range;

use toml_edit::{Item, Table, TableLike};

use crate::field::fields::{Row, Source, line_of_key};
use crate::report::error::Report;
use crate::report::place::Place;
use crate::table::column::Column;
use crate::table::variable::{ADMIN, MYSQL};
use crate::value::rows::{Cell, TableRow, TableRows};
use crate::value::scalar::Scalar;

/// The longest configuration file that is read, in bytes.
pub const FILE_SIZE_BYTES_MAX: usize = 64 << 20;

pub(crate) fn rows_of_file<'t>(
    root: &'t Table,
    name: &'static str,
    columns: &'static [Column],
    report: &mut Report,
) -> Vec<Row<'t>> {
    let line = line_of_key(root, name, report).unwrap_or(1);
    let tables: Vec<(Option<Range<usize>>, &dyn TableLike)> = match root.get(name) {
        None => return Vec::new(),
        Some(Item::ArrayOfTables(tables)) => {
            tables.iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
        Some(item) => {
            let list = item.as_array().map(|list| list.iter().map(|value| value.as_inline_table()));
            let Some(tables) = list.and_then(Iterator::collect::<Option<Vec<_>>>) else {
                report.refuse_line(line, name, format!("is a list of rows: write [[{name}]] above each"));
                return Vec::new();
            };
            tables.into_iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
    };
    let row = |(index, (span, table)): (usize, (Option<Range<usize>>, &'t dyn TableLike))| Row {
        columns,
        place: Place::row_in_file(name, index, span.map_or(line, |span| report.line_of(span.start))),
        source: Source::File(table),
    };
    tables.into_iter().enumerate().map(row).collect()
}

pub(crate) fn table<'t>(
    root: &'t Table,
    name: &'t str,
    report: &mut Report,
) -> Option<(&'t dyn TableLike, Place<'t>)> {
    let item = root.get(name)?;
    let line = line_of_key(root, name, report).unwrap_or(1);
    let table = item.as_table_like();
    if table.is_none() {
        report.refuse_line(line, name, format!("is a table: write [{name}] above its variables"));
    }
    table.map(|table| (table, Place::in_file(name, line)))
}

pub(crate) fn has_no_rows(item: &Item) -> bool {
    match item {
        Item::ArrayOfTables(rows) => rows.is_empty(),
        Item::Table(table) => table.is_empty(),
        Item::Value(value) => {
            value.as_array().is_some_and(toml_edit::Array::is_empty)
                || value.as_inline_table().is_some_and(toml_edit::InlineTable::is_empty)
        }
        Item::None => true,
    }
}

/// The rows of a file in TOML. What is no table is left out.
pub(crate) fn of_file(root: &Table, report: &mut Report) -> TableRows {
    let mut all = TableRows::new();
    for (name, item) in root.iter() {
        let line = line_of_key(root, name, report).unwrap_or(1);
        let module = name.strip_suffix("_variables").filter(|module| [MYSQL, ADMIN].contains(module));
        match (item, module) {
            (item, Some(module)) => {
                for (name, item) in item.as_table_like().into_iter().flat_map(TableLike::iter) {
                    if let Some(text) = text_of(item, line, name, report) {
                        all.push_variable(&format!("{module}-{name}"), &text);
                    }
                }
            }
            (Item::ArrayOfTables(tables), _) => {
                all.set(name, tables.iter().map(|table| row_of(table, line, report)).collect());
            }
            (item, _) => {
                let tables =
                    item.as_array().into_iter().flatten().filter_map(|value| value.as_inline_table());
                let rows: Vec<TableRow> = tables.map(|table| row_of(table, line, report)).collect();
                if item.is_array() {
                    all.set(name, rows);
                }
            }
        }
    }
    all
}

fn row_of(table: &dyn TableLike, line: usize, report: &mut Report) -> TableRow {
    let mut row = TableRow::new();
    for (name, item) in table.iter() {
        let cell = match Scalar::of_item(item) {
            Scalar::Integer(number) => Cell::Integer(number),
            Scalar::Real(number) => Cell::Real(number),
            Scalar::Boolean(value) => Cell::Integer(i64::from(value)),
            Scalar::Text(text, _) => Cell::Text(text.to_owned()),
            Scalar::Other(kind) => {
                let line = line_of_key(table, name, report).unwrap_or(line);
                report.refuse_line(line, name, format!("{kind} is not a value of a column"));
                continue;
            }
        };
        row.insert(name.to_owned().into(), cell);
    }
    row
}

fn text_of(item: &Item, line: usize, name: &str, report: &mut Report) -> Option<String> {
    match Scalar::of_item(item) {
        Scalar::Integer(number) => Some(number.to_string()),
        Scalar::Real(number) => Some(number.to_string()),
        Scalar::Boolean(value) => Some(value.to_string()),
        Scalar::Text(text, _) => Some(text.to_owned()),
        Scalar::Other(kind) => {
            report.refuse_line(line, name, format!("{kind} is not a value of a variable"));
            None
        }
    }
}
