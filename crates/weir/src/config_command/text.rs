//! Writes a configuration as the text of a file, without what has its default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_config::{Cell, ConfigError, Strictness, TableRow, TableRows};
use weir_sql::literal::sqlite_text;
use weir_store::{GLOBAL_VARIABLES, Layer, Module, Store, StoreError, TableDef};

use crate::difference::{Difference, Sides, differences};

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Weir's own.
    Toml,
    /// ProxySQL's.
    Cnf,
}

/// The text of a file that says what some rows say.
pub(super) struct Written {
    pub text: String,
    /// What stands there as a comment only, and why.
    pub left_out: Vec<String>,
    /// Whether the file does what the rows do: nothing that has an effect is left out, and no row.
    pub is_whole: bool,
}

/// Why rows can't be a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The reader of the form does not take what was written.
    #[error("this configuration can't be written in this form: {}", list(.0))]
    Refused(Vec<ConfigError>),
    /// The reader of the form reads something else than was meant.
    #[error("this configuration can't be written in this form without changing it: {}", .0.join("; "))]
    Lost(Vec<String>),
}

fn list(faults: &[ConfigError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The text of a file that says what `rows` say. It is read again: what would be lost on the way is told.
///
/// # Errors
/// If a row has no place in its table, or the file would not say the same.
pub(super) fn write(rows: &TableRows, datadir: Option<&Path>, form: Form) -> Result<Written, WriteError> {
    let defaults = Defaults::new()?;
    let mut store = Store::in_memory()?;
    store.replace(&Module::ALL, rows)?;
    let rows = store.rows(Layer::Memory)?;
    let sections = defaults.sections(&rows)?;
    match form {
        Form::Toml => toml(&sections, &rows, datadir),
        Form::Cnf => whole_cnf(&sections, &rows, datadir),
    }
}

/// The variables of a module, or a table with its rows.
struct Section {
    name: String,
    is_variables: bool,
    /// One for variables.
    rows: Vec<Given>,
}

/// The values that are given of a row.
struct Given {
    /// As errors name it: `mysql_servers (100, db1, 3306)`.
    label: String,
    columns: Vec<(String, Cell)>,
}

/// The values that need not be given.
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
                let given = Given { label: prefix.trim_end_matches('-').to_owned(), columns: own };
                sections.push(Section { name: name.to_owned(), is_variables: true, rows: vec![given] });
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
    fn given(&self, table: &TableDef, row: &TableRow) -> Given {
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
        let key = table.columns.iter().filter_map(|column| {
            let is_key = self.keys.contains_key(&(table.name.clone(), column.name.to_owned()));
            is_key.then(|| row.get(column.name).map(plain).unwrap_or_default())
        });
        let label = format!("{} ({})", table.name, key.collect::<Vec<_>>().join(", "));
        Given { label, columns: given.collect() }
    }
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => text.escape_debug().to_string(),
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

fn toml(sections: &[Section], rows: &TableRows, datadir: Option<&Path>) -> Result<Written, WriteError> {
    let mut draft =
        Draft { lines: Vec::new(), labels: vec![String::new()], left_out: Vec::new(), is_row_gone: false };
    if let Some(datadir) = datadir {
        let text = format!("datadir = {}", toml_text(&datadir.display().to_string()));
        draft.lines.push(Line { text, other: None, section: 0 });
    }
    for Section { name, is_variables, rows } in sections {
        let header = if *is_variables { format!("[{name}]") } else { format!("[[{name}]]") };
        for Given { label, columns } in rows {
            draft.lines.push(Line { text: String::new(), other: None, section: draft.labels.len() - 1 });
            let section = draft.labels.len();
            draft.labels.push(label.clone());
            draft.lines.push(Line { text: header.clone(), other: None, section });
            draft
                .lines
                .extend(columns.iter().map(|(key, cell)| toml_line(key, cell, *is_variables, section)));
        }
    }
    let mut written = draft.agree().map_err(WriteError::Refused)?;
    written.datadir.clone_from(&weir_config::Config::default().datadir);
    let (meant, _) = weir_config::read_rows(rows, Strictness::Lenient).map_err(WriteError::Refused)?;
    let is_whole = !draft.is_row_gone && written == meant;
    let text = draft.text().trim_start().to_owned();
    Ok(Written { text, left_out: draft.left_out, is_whole })
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

/// Of JSON's strings TOML takes all but one character as it is (its "Control characters").
fn toml_text(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\u{7F}', "\\u007F")
}

/// A text that the reader of TOML is asked about.
struct Draft {
    lines: Vec<Line>,
    /// What errors call the row, by section.
    labels: Vec<String>,
    left_out: Vec<String>,
    /// A whole row is a comment.
    is_row_gone: bool,
}

impl Draft {
    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.text)).collect()
    }

    /// Writes each value as the reader of TOML wants it, and what it does not take at all as a comment with the reason.
    /// Each time it is asked, some faults are gone.
    fn agree(&mut self) -> Result<weir_config::Config, Vec<ConfigError>> {
        loop {
            let faults = match weir_config::parse(&self.text(), "") {
                Ok(config) => return Ok(config),
                Err(faults) => faults,
            };
            let mut has_changed = false;
            for fault in &faults {
                has_changed |= self.yield_to(fault);
            }
            if !has_changed {
                return Err(faults);
            }
        }
    }

    /// Whether something is written otherwise because of a fault.
    fn yield_to(&mut self, fault: &ConfigError) -> bool {
        let Some(at) = fault.line.checked_sub(1).filter(|at| *at < self.lines.len()) else { return false };
        if self.lines[at].text.starts_with('#') {
            return false;
        }
        let types = ["is not a string", "is not an integer", "neither true nor false"];
        if types.iter().any(|wanted| fault.reason.contains(wanted))
            && let Some(other) = self.lines[at].other.take()
        {
            self.lines[at].text = other;
            return true;
        }
        let section = self.lines[at].section;
        let is_of_rows = self.header(section).is_some_and(|header| header.starts_with("[["));
        match self.column(at, fault) {
            Some(at) if !is_of_rows || has_no_effect(fault) => self.leave_out_line(at, fault),
            _ if is_of_rows => self.leave_out_rows(section, fault),
            _ => return false,
        }
        true
    }

    fn header(&self, section: usize) -> Option<&str> {
        let mut lines =
            self.lines.iter().filter(|line| line.section == section && line.text.starts_with('['));
        lines.next().map(|line| line.text.as_str())
    }

    /// The line of the column that a fault is of.
    fn column(&self, at: usize, fault: &ConfigError) -> Option<usize> {
        let line = &self.lines[at];
        if !line.text.starts_with('[') {
            return Some(at);
        }
        let name = fault.key.split_once('.')?.1.split(['.', '[']).next()?;
        let is_wanted = |other: &Line| {
            let key = other.text.split_once(" = ").map(|(key, _)| key);
            other.section == line.section && key == Some(name)
        };
        self.lines.iter().position(is_wanted)
    }

    fn leave_out_line(&mut self, at: usize, fault: &ConfigError) {
        let reason = in_one_line(&fault.reason);
        let line = &mut self.lines[at];
        let (key, label) = (line.text.split(" = ").next().unwrap_or_default(), &self.labels[line.section]);
        self.left_out.push(match label.as_str() {
            "" => format!("{key}: {reason}"),
            module @ ("mysql" | "admin") => format!("{module}-{key}: {reason}"),
            row => format!("{row}: {key}: {reason}"),
        });
        line.text = format!("# {}  # {reason}", line.text);
    }

    /// A row, or all of its table: what it would do without one of its columns is something else. Without its header it
    /// would become part of the row before.
    fn leave_out_rows(&mut self, section: usize, fault: &ConfigError) {
        let reason = in_one_line(&fault.reason);
        let is_of_table = !fault.key.is_empty() && !fault.key.contains(['[', '.']);
        let header = self.header(section).unwrap_or_default().to_owned();
        let headers =
            self.lines.iter().filter(|line| line.text == header && (is_of_table || line.section == section));
        let gone: BTreeSet<usize> = headers.map(|line| line.section).collect();
        self.left_out.extend(gone.iter().map(|section| format!("{}: {reason}", self.labels[*section])));
        self.is_row_gone = true;
        let rows = self.lines.iter_mut().filter(|line| gone.contains(&line.section) && !line.text.is_empty());
        for line in rows.filter(|line| !line.text.starts_with('#')) {
            let is_header = line.text.starts_with('[');
            line.text = format!("# {}", line.text);
            if is_header {
                line.text += &format!("  # {reason}");
            }
        }
    }
}

/// Whether the column does nothing in a database, either. The one that makes a user one for servers only leaves its row
/// out.
fn has_no_effect(fault: &ConfigError) -> bool {
    let is_unused = fault.reason.contains("not built") || fault.reason.starts_with("unknown key");
    is_unused && !fault.key.ends_with(".frontend")
}

/// A comment of TOML ends with its line and has no control characters.
fn in_one_line(reason: &str) -> String {
    reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Everything has a place in ProxySQL's file, so that whatever is missing when it is read again is a fault.
fn whole_cnf(sections: &[Section], rows: &TableRows, datadir: Option<&Path>) -> Result<Written, WriteError> {
    let text = cnf(sections, datadir);
    let read = weir_config::read_cnf(&text, "").map_err(WriteError::Refused)?;
    let lost = differences(rows, &read.rows)?;
    let is_same = |difference: &Difference| {
        // Whatever version writes it, and NULL is as if the column weren't given.
        difference.key.first().is_some_and(|name| name == "admin-version")
            || difference.column.is_some() && difference.left.as_deref() == Some("")
    };
    let lost: Vec<String> = lost
        .iter()
        .filter(|difference| !is_same(difference))
        .map(|difference| difference.between(Sides { left: "source", right: "file" }).to_string())
        .collect();
    if lost.is_empty() {
        Ok(Written { text, left_out: Vec::new(), is_whole: true })
    } else {
        Err(WriteError::Lost(lost))
    }
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
        let rows = rows.iter().map(|row| &row.columns);
        let name = if name == "restapi_routes" { "restapi" } else { name };
        if *is_variables {
            let settings = rows.flatten().map(|(key, cell)| format!("    {key}={}\n", value(cell)));
            out += &format!("\n{name}=\n{{\n{}}}\n", settings.collect::<String>());
            continue;
        }
        let rows: Vec<String> = rows
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
mod tests;
