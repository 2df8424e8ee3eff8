//! Leaves out rows that are the same on both sides before SQLite is asked to complete the others: of a large
//! configuration nearly all are.

use std::collections::HashMap;

use weir_config::{Cell, TableRow, TableRows};
use weir_store::{ColumnKind, Module, Store, StoreError, TableDef};

/// The rows of both sides without those of which the other side surely has the same.
pub(super) fn without_alike(
    left: &TableRows,
    right: &TableRows,
) -> Result<(TableRows, TableRows), StoreError> {
    let schema = Store::in_memory()?;
    let (mut left_rest, mut right_rest) = (TableRows::new(), TableRows::new());
    let tables = Module::ALL.into_iter().flat_map(Module::tables);
    for table in tables {
        // One that two modules have comes twice.
        if !left_rest.of(&table.name).is_empty() || !right_rest.of(&table.name).is_empty() {
            continue;
        }
        let shape = Shape::of(&schema, table)?;
        let (ours, theirs) = (left.of(&table.name), right.of(&table.name));
        let (is_ours_alike, is_theirs_alike) = shape.alike(ours, theirs);
        let rest = |rows: &[TableRow], is_alike: Vec<bool>| {
            rows.iter().zip(is_alike).filter(|(_, is_alike)| !is_alike).map(|(row, _)| row.clone()).collect()
        };
        left_rest.set(&table.name, rest(ours, is_ours_alike));
        right_rest.set(&table.name, rest(theirs, is_theirs_alike));
    }
    Ok((left_rest, right_rest))
}

/// What a row means that does not give all columns.
struct Shape {
    /// By name, with the value where none is given.
    columns: Vec<(&'static str, ColumnKind, Option<Cell>)>,
    /// Positions in `columns`.
    key: Vec<usize>,
}

impl Shape {
    fn of(schema: &Store, table: &TableDef) -> Result<Self, StoreError> {
        let connection = schema.connection();
        let sql = "SELECT name, dflt_value, pk FROM pragma_table_info(?1, 'main')";
        let mut statement = connection.prepare_cached(sql)?;
        let told = statement
            .query_map([&table.name], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
            .collect::<Result<HashMap<String, (Option<String>, u32)>, _>>()?;
        let mut columns = Vec::with_capacity(table.columns.len());
        for column in &table.columns {
            let default = match told.get(column.name) {
                Some((Some(expression), _)) => {
                    let value =
                        connection.query_row(&format!("SELECT {expression}"), [], |row| row.get(0))?;
                    cell_of(value)
                }
                _ => None,
            };
            columns.push((column.name, column.kind, default));
        }
        columns.sort_unstable_by_key(|(name, ..)| *name);
        let is_key = |name: &str| told.get(name).is_some_and(|(_, place)| *place > 0);
        let key = (0..columns.len()).filter(|at| is_key(columns[*at].0)).collect();
        Ok(Self { columns, key })
    }

    /// Of the rows of either side, whether the other side has the same. No row is, where keys are not all given or one is
    /// there twice.
    fn alike(&self, ours: &[TableRow], theirs: &[TableRow]) -> (Vec<bool>, Vec<bool>) {
        // Saved rows are in the order in which the file has them, unless somebody has changed something.
        let is_alike = |one: &TableRow, another: &TableRow| {
            self.complete(one).zip(self.complete(another)).is_some_and(|(one, another)| one.eq(another))
        };
        if ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(one, another)| is_alike(one, another))
        {
            return (vec![true; ours.len()], vec![true; theirs.len()]);
        }
        let none = || (vec![false; ours.len()], vec![false; theirs.len()]);
        let (Some(our_keys), Some(their_keys)) = (self.keys(ours), self.keys(theirs)) else { return none() };
        let (mut is_ours_alike, mut is_theirs_alike) = none();
        for (key, at) in &our_keys {
            if let Some(other) = their_keys.get(key)
                && is_alike(&ours[*at], &theirs[*other])
            {
                (is_ours_alike[*at], is_theirs_alike[*other]) = (true, true);
            }
        }
        (is_ours_alike, is_theirs_alike)
    }

    /// Positions of rows by key.
    fn keys(&self, rows: &[TableRow]) -> Option<HashMap<String, usize>> {
        let mut keys = HashMap::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let mut text = String::new();
            for column in &self.key {
                let (name, _, default) = &self.columns[*column];
                match row.get(name).or(default.as_ref()) {
                    Some(Cell::Text(part)) => text.push_str(part),
                    Some(Cell::Integer(part)) => text.push_str(&part.to_string()),
                    _ => return None,
                }
                text.push('\0');
            }
            if keys.insert(text, at).is_some() {
                return None;
            }
        }
        Some(keys)
    }

    /// A row's columns with their defaults, by name; none where only SQLite knows what it makes of a value.
    fn complete<'r>(&'r self, row: &'r TableRow) -> Option<impl Iterator<Item = Option<&'r Cell>>> {
        let mut given = row.iter().peekable();
        for (name, kind, _) in &self.columns {
            if let Some((_, cell)) = given.next_if(|(given, _)| given == name) {
                let is_plain = matches!(
                    (kind, cell),
                    (ColumnKind::Integer, Cell::Integer(_)) | (ColumnKind::Text, Cell::Text(_))
                );
                if !is_plain {
                    return None;
                }
            }
        }
        // A column that the table has not got, or under another name.
        if given.next().is_some() {
            return None;
        }
        let mut given = row.iter().peekable();
        Some(self.columns.iter().map(move |(name, _, default)| {
            given.next_if(|(given, _)| given == name).map(|(_, cell)| cell).or(default.as_ref())
        }))
    }
}

fn cell_of(value: weir_store::Value) -> Option<Cell> {
    match value {
        weir_store::Value::Integer(number) => Some(Cell::Integer(number)),
        weir_store::Value::Real(number) => Some(Cell::Real(number)),
        weir_store::Value::Text(text) => Some(Cell::Text(text)),
        weir_store::Value::Null | weir_store::Value::Blob(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::tests::rows;

    fn row<const N: usize>(cells: [(&'static str, Cell); N]) -> TableRow {
        cells.into_iter().map(|(name, cell)| (name.into(), cell)).collect()
    }

    #[test]
    fn rows_with_defaults_left_out_are_alike_and_what_only_sqlite_knows_is_kept() {
        let saved = rows(
            "INSERT INTO mysql_users (username, password) VALUES ('a', 'x'), ('b', 'y'), ('c', 'z');
             INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'db1'), (1, 'db2');",
        );
        let mut file = TableRows::new();
        file.push("mysql_users", row([("username", "a".into()), ("password", "x".into())]));
        file.push("mysql_users", row([("username", "b".into()), ("password", "another".into())]));
        file.push("mysql_servers", row([("hostgroup_id", 1.into()), ("hostname", "db1".into())]));
        // By ProxySQL's other name.
        file.push("mysql_servers", row([("hostgroup", 1.into()), ("hostname", "db2".into())]));
        let (left, right) = without_alike(&file, &saved).unwrap();
        let names = |rows: &TableRows| -> Vec<Cell> {
            rows.of("mysql_users").iter().map(|row| row["username"].clone()).collect()
        };
        assert_eq!(names(&left), ["b".into()]);
        assert_eq!(names(&right), ["b".into(), "c".into()]);
        assert_eq!((left.of("mysql_servers").len(), right.of("mysql_servers").len()), (1, 1));
        // A number as a text.
        file.set("mysql_servers", vec![row([("hostgroup_id", "1".into()), ("hostname", "db1".into())])]);
        let (left, right) = without_alike(&file, &saved).unwrap();
        assert_eq!((left.of("mysql_servers").len(), right.of("mysql_servers").len()), (1, 2));
        file.set("mysql_servers", vec![row([("hostgroup_id", 1.into()), ("hostname", "db1".into())])]);
        let (left, right) = without_alike(&file, &saved).unwrap();
        assert_eq!((left.of("mysql_servers").len(), right.of("mysql_servers").len()), (0, 1));
    }
}
