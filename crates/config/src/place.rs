//! Where something of the configuration stands, for messages.

/// A table, a row, or the variables, as a fault names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    path: String,
    /// Between the path and a column.
    joint: &'static str,
    /// From 1; 0 for what is not in a file.
    line: usize,
}

pub(crate) static NOWHERE: Place = Place { path: String::new(), joint: "", line: 0 };

impl Place {
    /// Of a file: `mysql_servers[2]`.
    pub(crate) fn in_file(path: impl Into<String>, line: usize) -> Self {
        Self { path: path.into(), joint: ".", line }
    }

    /// A row of a table of the database: `mysql_servers (100, db1, 3306)`.
    pub(crate) fn row(path: String) -> Self {
        Self { path, joint: ": ", line: 0 }
    }

    /// Variables of the database: `mysql-threads`.
    pub(crate) fn variables(module: &str) -> Self {
        Self { path: module.to_owned(), joint: "-", line: 0 }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// What a fault of a column says it is of; of the whole where `column` is empty.
    pub(crate) fn key(&self, column: &str) -> String {
        match (self.path.is_empty(), column.is_empty()) {
            (true, _) => column.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}{}{column}", self.path, self.joint),
        }
    }

    /// How another fault points at it: `line 7`, or the row.
    pub(crate) fn pointer(&self) -> String {
        if self.line > 0 { format!("line {}", self.line) } else { self.path.clone() }
    }
}
