//! Describes a fault of the configuration, and gathers all of them.

use std::fmt;

use crate::report::place::Place;

/// The faults that are forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strictness {
    /// What is unknown or not built is a fault, and so is a reference to what is not there: Weir's own file, which is
    /// written whole.
    Strict,
    /// Both are warnings: ProxySQL's tables, which have columns and variables without effect here and are loaded one
    /// after the other. Values that make no sense are faults all the same.
    Lenient,
}

/// The most faults that are reported of one file; the last one then says that there are more.
pub const ERRORS_MAX: usize = 500;

/// One fault or warning of a configuration. Never contains the value of a password.
///
/// Displays like `weir.toml:14: mysql_servers[2].port: 70000 is not a port (1..65535)`, and of a row of the database like
/// `mysql_servers (100, db1, 3306): port: 70000 is not a port (1..65535)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file as the user named it; empty for rows of the database.
    pub file: String,
    /// The line, from 1; 0 if the fault has no line.
    pub line: usize,
    /// Table, row (from 0) and column, such as `mysql_servers[2].port`; of the database the row's key, such as
    /// `mysql_servers (100, db1, 3306): port`, or the variable, such as `mysql-threads`. Empty if it is of none.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, 0) => parts.push(file.to_owned()),
            (file, line) => parts.push(format!("{file}:{line}")),
        }
        parts.extend((!self.key.is_empty()).then(|| self.key.clone()));
        parts.push(self.reason.clone());
        f.write_str(&parts.join(": "))
    }
}

/// Whether a warning is kept, by its key and by what it refers to.
pub(crate) type IsWanted = Box<dyn Fn(&str, &str) -> bool>;

/// Gathers the faults and warnings of one configuration.
pub(crate) struct Report {
    file: String,
    strictness: Strictness,
    /// Byte offset of the start of each line.
    line_starts: Vec<usize>,
    errors: Vec<ConfigError>,
    left_out: usize,
    warnings: Vec<ConfigError>,
    /// Faults and warnings, those that nobody wants too.
    told: usize,
    is_wanted: IsWanted,
}

impl Report {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let after_newlines =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self {
            file: file.to_owned(),
            strictness: Strictness::Strict,
            line_starts: std::iter::once(0).chain(after_newlines).collect(),
            errors: Vec::new(),
            left_out: 0,
            warnings: Vec::new(),
            told: 0,
            is_wanted: Box::new(|_, _| true),
        }
    }

    /// For rows of the database; of the warnings those that `is_wanted`.
    pub(crate) fn of_rows(strictness: Strictness, is_wanted: IsWanted) -> Self {
        Self { strictness, is_wanted, ..Self::new("", "") }
    }

    /// Whether what is unknown, not built or not there is a fault.
    pub(crate) fn is_strict(&self) -> bool {
        self.strictness == Strictness::Strict
    }

    /// The line, from 1, that contains the byte at `offset`.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Faults so far.
    pub(crate) fn len(&self) -> usize {
        self.errors.len() + self.left_out
    }

    /// Faults and warnings so far, those that nobody wants too.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    /// A fault of a column of a row, or of the row where `column` is empty.
    pub(crate) fn refuse(&mut self, place: &Place<'_>, column: &str, reason: impl Into<String>) {
        self.refuse_line(place.line(), place.key(column), reason);
    }

    /// A fault where this is strict, otherwise a warning.
    pub(crate) fn tolerate(&mut self, place: &Place<'_>, column: &str, reason: impl Into<String>) {
        self.tolerate_line(place.line(), place.key(column), reason);
    }

    /// [`Report::tolerate`] of a reference to what another module's table, or a variable, has not got.
    pub(crate) fn tolerate_reference(
        &mut self,
        place: &Place<'_>,
        column: &str,
        refers_to: &'static str,
        reason: impl Into<String>,
    ) {
        let entry = self.entry(place.line(), place.key(column), reason.into());
        if self.is_strict() { self.push_error(entry) } else { self.push_warning(entry, refers_to) }
    }

    pub(crate) fn refuse_line(&mut self, line: usize, key: impl Into<String>, reason: impl Into<String>) {
        let error = self.entry(line, key.into(), reason.into());
        self.push_error(error);
    }

    pub(crate) fn tolerate_line(&mut self, line: usize, key: impl Into<String>, reason: impl Into<String>) {
        if self.is_strict() {
            self.refuse_line(line, key, reason);
        } else {
            self.warn_line(line, key, reason);
        }
    }

    /// Something to know that is no fault.
    pub(crate) fn warn_line(&mut self, line: usize, key: impl Into<String>, reason: impl Into<String>) {
        let warning = self.entry(line, key.into(), reason.into());
        self.push_warning(warning, "");
    }

    fn push_error(&mut self, error: ConfigError) {
        self.told += 1;
        if self.errors.len() == ERRORS_MAX {
            self.left_out += 1;
        } else {
            self.errors.push(error);
        }
    }

    fn push_warning(&mut self, warning: ConfigError, refers_to: &str) {
        self.told += 1;
        if self.warnings.len() < ERRORS_MAX && (self.is_wanted)(&warning.key, refers_to) {
            self.warnings.push(warning);
        }
    }

    fn entry(&self, line: usize, key: String, reason: String) -> ConfigError {
        ConfigError { file: self.file.clone(), line, key, reason }
    }

    /// `config` and the warnings, or the faults.
    pub(crate) fn finish<T>(mut self, config: T) -> Result<(T, Vec<ConfigError>), Vec<ConfigError>> {
        let warnings = std::mem::take(&mut self.warnings);
        let errors = self.into_errors();
        if errors.is_empty() { Ok((config, warnings)) } else { Err(errors) }
    }

    /// The faults by line; those of one line in the order in which they were found.
    pub(crate) fn into_errors(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|error| error.line);
        if self.left_out > 0 {
            self.errors.push(ConfigError {
                file: self.file,
                line: 0,
                key: String::new(),
                reason: format!("{} more faults", self.left_out),
            });
        }
        self.errors
    }
}
