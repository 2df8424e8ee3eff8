//! Writes the files of a report.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Error;

/// Makes the file, empty, before anything is measured: a wrong path shall not cost a whole run.
///
/// # Errors
/// If it can't be written.
pub fn claim(path: &Path) -> Result<(), Error> {
    fs::write(path, "").map_err(Error::io(format!("write {}", path.display())))
}

/// Writes a text that ends with one line feed.
///
/// # Errors
/// If it can't be written.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, format!("{}\n", text.trim_end())).map_err(Error::io(format!("write {}", path.display())))
}

/// Writes figures as JSON for people to read, too.
///
/// # Errors
/// If they are no JSON, or can't be written.
pub fn write_json(path: &Path, figures: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(figures).map_err(Error::io("write the figures"))?;
    write(path, &text)
}
