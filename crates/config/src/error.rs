//! A fault of the configuration, and the list in which they are gathered.

use std::fmt;

use crate::ERRORS_MAX;

/// One fault of a configuration file. Never contains the value of a password.
///
/// Displays like `weir.toml:14: mysql_servers[2].port: 70000 is not a port (1..65535)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1; 0 if the fault has no line.
    pub line: usize,
    /// Table, row (from 0) and column, such as `mysql_servers[2].port`; empty if the fault is of no key.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.reason)
    }
}

/// Gathers the faults of one file.
pub(crate) struct Report {
    file: String,
    /// Byte offset of the start of each line.
    line_starts: Vec<usize>,
    errors: Vec<ConfigError>,
    left_out: usize,
}

impl Report {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let after_newlines =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self {
            file: file.to_owned(),
            line_starts: std::iter::once(0).chain(after_newlines).collect(),
            errors: Vec::new(),
            left_out: 0,
        }
    }

    /// The line, from 1, that contains the byte at `offset`.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Faults so far.
    pub(crate) fn len(&self) -> usize {
        self.errors.len() + self.left_out
    }

    pub(crate) fn refuse(&mut self, line: usize, key: impl Into<String>, reason: impl Into<String>) {
        if self.errors.len() == ERRORS_MAX {
            self.left_out += 1;
            return;
        }
        self.errors.push(ConfigError {
            file: self.file.clone(),
            line,
            key: key.into(),
            reason: reason.into(),
        });
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
