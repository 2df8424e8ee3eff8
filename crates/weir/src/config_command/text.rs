//! A configuration as the text of a file, without what has its default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_config::{Cell, ConfigError, TableRow, TableRows};
use weir_sql::literal::sqlite_text;
use weir_store::{GLOBAL_VARIABLES, Layer, Module, Store, StoreError, TableDef};

/// How often the reader of TOML is asked what it thinks of the text; each time it has fewer faults, and it tells
/// hundreds at a time.
const ATTEMPTS_MAX: usize = 100;

/// What the text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Weir's own.
    Toml,
    /// ProxySQL's.
    Cnf,
}

/// The text of a file that says what `rows` say.
///
/// # Errors
/// If a row has no place in its table.
pub(super) fn write(rows: &TableRows, datadir: Option<&Path>, form: Form) -> Result<String, StoreError> {
    let defaults = Defaults::new()?;
    let mut store = Store::in_memory()?;
    store.replace(&Module::ALL, rows)?;
    let rows = store.rows(Layer::Memory)?;
    let sections = defaults.sections(&rows)?;
    Ok(match form {
        Form::Toml => toml(&sections, datadir),
        Form::Cnf => cnf(&sections, datadir),
    })
}

/// The variables of a module, or a table with its rows.
struct Section {
    name: String,
    is_variables: bool,
    /// One for variables.
    rows: Vec<Vec<(String, Cell)>>,
}

/// What need not be said.
struct Defaults {
    /// By table and column, as SQLite writes it.
    columns: BTreeMap<(String, String), String>,
    /// By table: the columns of its key.
    keys: BTreeMap<(String, String), ()>,
    variables: BTreeMap<String, Cell>,
}

impl Defaults {
    fn new() -> Result<Self, StoreError> {
        let store = Store::in_memory()?;
        let (mut columns, mut keys) = (BTreeMap::new(), BTreeMap::new());
        let sql = "SELECT name, dflt_value, pk FROM pragma_table_info(?1, 'main')";
        let mut statement = store.connection().prepare(sql)?;
        for table in Module::ALL.iter().flat_map(|module| module.tables()) {
            let mut found = statement.query([&table.name])?;
            while let Some(row) = found.next()? {
                let name: String = row.get(0)?;
                if let Some(default) = row.get::<_, Option<String>>(1)? {
                    columns.insert((table.name.clone(), name.clone()), default);
                }
                if row.get::<_, i64>(2)? > 0 {
                    keys.insert((table.name.clone(), name), ());
                }
            }
        }
        drop(statement);
        let rows = store.rows(Layer::Memory)?;
        let variables = rows.variables().into_iter().map(|(name, value)| (name.to_owned(), value.clone()));
        Ok(Self { columns, keys, variables: variables.collect() })
    }

    fn sections(&self, rows: &TableRows) -> Result<Vec<Section>, StoreError> {
        let mut sections = Vec::new();
        for (name, prefix) in [("admin_variables", "admin-"), ("mysql_variables", "mysql-")] {
            let own = rows.variables().into_iter().filter_map(|(name, value)| {
                let bare = name.strip_prefix(prefix)?;
                // As many threads as this machine has processors may be too few on another.
                let is_default = self.variables.get(name) == Some(value) && bare != "threads";
                let is_default = is_default || bare == "version";
                (!is_default).then(|| (bare.to_owned(), guess(value)))
            });
            let own: Vec<(String, Cell)> = own.collect();
            if !own.is_empty() {
                sections.push(Section { name: name.to_owned(), is_variables: true, rows: vec![own] });
            }
        }
        let tables = Module::ALL.iter().flat_map(|module| module.tables());
        for table in tables.filter(|table| table.name != GLOBAL_VARIABLES) {
            let of_table = rows.of(&table.name);
            if !of_table.is_empty() {
                let rows = of_table.iter().map(|row| self.given(table, row)).collect();
                sections.push(Section { name: table.name.clone(), is_variables: false, rows });
            }
        }
        Ok(sections)
    }

    /// The columns of a row that are not as they would be anyway; its key always.
    fn given(&self, table: &TableDef, row: &TableRow) -> Vec<(String, Cell)> {
        let given = table.columns.iter().filter_map(|column| {
            let cell = row.get(column.name)?;
            let place = (table.name.clone(), column.name.to_owned());
            let written = match cell {
                Cell::Null => return None,
                Cell::Integer(number) => number.to_string(),
                Cell::Real(number) => number.to_string(),
                Cell::Text(text) => sqlite_text(text),
            };
            let is_default = self.columns.get(&place) == Some(&written) && !self.keys.contains_key(&place);
            // A rule without this word is active in a file, and not in a table.
            let is_special = table.name == "mysql_query_rules" && column.name == "active";
            (!is_default || is_special).then(|| (column.name.to_owned(), cell.clone()))
        });
        given.collect()
    }
}

/// Variables are texts in their table; in a file numbers and truth values have forms of their own.
fn guess(value: &Cell) -> Cell {
    match value {
        Cell::Text(text) => match text.parse::<i64>() {
            Ok(number) if number.to_string() == *text => Cell::Integer(number),
            _ => Cell::Text(text.clone()),
        },
        other => other.clone(),
    }
}

/// A line of TOML.
struct Line {
    text: String,
    /// What to write when the reader wants another type.
    other: Option<String>,
    /// Which header it is below, from 1; a header is below itself.
    section: usize,
}

fn toml(sections: &[Section], datadir: Option<&Path>) -> String {
    let mut lines = Vec::new();
    let mut count = 0;
    if let Some(datadir) = datadir {
        let text = format!("datadir = {}", toml_text(&datadir.display().to_string()));
        lines.push(Line { text, other: None, section: 0 });
    }
    for section in sections {
        let name = &section.name;
        let header = if section.is_variables { format!("[{name}]") } else { format!("[[{name}]]") };
        for row in &section.rows {
            lines.push(Line { text: String::new(), other: None, section: count });
            count += 1;
            lines.push(Line { text: header.clone(), other: None, section: count });
            lines.extend(row.iter().map(|(key, cell)| toml_line(key, cell, section.is_variables, count)));
        }
    }
    agree(&mut lines);
    lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>().trim_start().to_owned()
}

fn toml_line(key: &str, cell: &Cell, is_variable: bool, section: usize) -> Line {
    let (value, other) = match cell {
        Cell::Integer(number) => (number.to_string(), Some(toml_text(&number.to_string()))),
        Cell::Real(number) => (format!("{number:?}"), None),
        Cell::Text(text) if is_variable && (text == "true" || text == "false") => {
            (text.clone(), Some(toml_text(text)))
        }
        Cell::Text(text) => (toml_text(text), None),
        Cell::Null => (toml_text(""), None),
    };
    let line = |value: String| format!("{key} = {value}");
    Line { text: line(value), other: other.map(line), section }
}

fn toml_text(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Writes each value as the reader of TOML wants it, and what it does not take at all as a comment with the reason.
fn agree(lines: &mut [Line]) {
    for _ in 0..ATTEMPTS_MAX {
        let text: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
        let Err(faults) = weir_config::parse(&text, "") else { return };
        let mut has_changed = false;
        for fault in faults {
            has_changed |= yield_to(lines, &fault);
        }
        if !has_changed {
            return;
        }
    }
}

/// Whether a line is written otherwise because of a fault.
fn yield_to(lines: &mut [Line], fault: &ConfigError) -> bool {
    let Some(line) = fault.line.checked_sub(1).and_then(|at| lines.get_mut(at)) else { return false };
    if line.text.starts_with('#') {
        return false;
    }
    let types = ["is not a string", "is not an integer", "neither true nor false"];
    if types.iter().any(|wanted| fault.reason.contains(wanted))
        && let Some(other) = line.other.take()
    {
        line.text = other;
        return true;
    }
    if !line.text.starts_with('[') {
        line.text = format!("# {}  # {}", line.text, fault.reason);
        return true;
    }
    // Without its header a row would become part of the one before: the whole row goes, or all of the table's.
    let (header, section) = (line.text.clone(), line.section);
    let is_of_table = !fault.key.contains(['[', '.']);
    let headers = lines.iter().filter(|line| line.text == header && (is_of_table || line.section == section));
    let gone: BTreeSet<usize> = headers.map(|line| line.section).collect();
    let rows = lines.iter_mut().filter(|line| gone.contains(&line.section) && !line.text.is_empty());
    for line in rows.filter(|line| !line.text.starts_with('#')) {
        let is_header = line.text.starts_with('[');
        line.text = format!("# {}", line.text);
        if is_header {
            line.text += &format!("  # {}", fault.reason);
        }
    }
    true
}

fn cnf(sections: &[Section], datadir: Option<&Path>) -> String {
    let mut out = String::new();
    if let Some(datadir) = datadir {
        out += &format!("datadir={}\n", cnf_text(&datadir.display().to_string()));
    }
    let value = |cell: &Cell| match cell {
        Cell::Integer(number) if i32::try_from(*number).is_err() => format!("{number}L"),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => format!("{number:?}"),
        Cell::Text(text) => cnf_text(text),
        Cell::Null => "\"\"".to_owned(),
    };
    for Section { name, is_variables, rows } in sections {
        let name = if name == "restapi_routes" { "restapi" } else { name };
        if *is_variables {
            let settings = rows.iter().flatten().map(|(key, cell)| format!("    {key}={}\n", value(cell)));
            out += &format!("\n{name}=\n{{\n{}}}\n", settings.collect::<String>());
            continue;
        }
        let rows: Vec<String> = rows
            .iter()
            .map(|row| {
                let columns: Vec<String> =
                    row.iter().map(|(key, cell)| format!("{}={}", cnf_key(name, key), value(cell))).collect();
                format!("    {{ {} }}", columns.join(", "))
            })
            .collect();
        out += &format!("\n{name}=\n(\n{}\n)\n", rows.join(",\n"));
    }
    out.trim_start().to_owned()
}

/// The name that ProxySQL's file has for a column.
fn cnf_key<'k>(table: &str, column: &'k str) -> &'k str {
    match (table, column) {
        ("mysql_servers", "hostname") => "address",
        ("mysql_servers", "hostgroup_id") => "hostgroup",
        _ => column,
    }
}

fn cnf_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::tests::rows;

    #[test]
    fn what_toml_does_not_take_is_a_comment_and_joins_no_other_row() {
        let rows = rows(
            "INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (1, 'db1', 'a \"quoted\" one');
             INSERT INTO mysql_servers (hostgroup_id, hostname, compression) VALUES (1, 'db2', 1);
             INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('7', 'x', 1), ('lost', 'y', 9);
             INSERT INTO mysql_firewall_whitelist_users (active, username, client_address, mode, comment)
               VALUES (1, 'a', '', 'OFF', 'one'), (1, 'b', '', 'OFF', 'two');
             UPDATE global_variables SET variable_value = '12345' WHERE variable_name = 'mysql-monitor_password';
             UPDATE global_variables SET variable_value = '77' WHERE variable_name = 'mysql-shun_on_failures';",
        );
        let text = write(&rows, Some(Path::new("/var/lib/weir")), Form::Toml).unwrap();
        let config =
            weir_config::parse(&text, "weir.toml").unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
        assert_eq!(config.servers.len(), 2, "{text}");
        assert_eq!(config.servers[0].comment, "a \"quoted\" one");
        assert_eq!(config.users.iter().map(|user| user.username.as_str()).collect::<Vec<_>>(), ["7"]);
        assert_eq!(config.variables.shun_on_failures, 77);
        for line in [
            "monitor_password = \"12345\"",
            "# compression = 1  # 1 is not built yet (only 0)",
            "# username = \"lost\"",
            "# [[mysql_firewall_whitelist_users]]  # not built yet",
            "# comment = \"two\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn a_cnf_reads_back() {
        let rows = rows(
            "INSERT INTO mysql_servers (hostgroup_id, hostname, weight) VALUES (1, 'db1', 5);
             INSERT INTO mysql_query_rules (rule_id, active, match_pattern, replace_pattern)
               VALUES (1, 0, '^SELECT \"a\\d\"', 'two\nlines\ttab');",
        );
        let text = write(&rows, None, Form::Cnf).unwrap();
        let read =
            weir_config::read_cnf(&text, "a.cnf").unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
        assert_eq!(crate::difference::differences(&rows, &read.rows).unwrap(), [], "{text}");
    }
}
