//! Runs `weir stats`: asks a running Weir for a report and shows it.

use std::io::{self, Write};

use serde_json::Value;
use weir_statistics::Report;

use crate::control::{ControlClient, ControlClientError, Subject};

/// A longer value is cut in a table; `--json` has it whole.
const CELL_CHARS_MAX: usize = 120;

/// The format of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub json: bool,
    pub top: Option<usize>,
}

/// Asks a Weir and writes what it says.
pub(crate) fn stats(
    client: &ControlClient,
    subject: Subject,
    shown: Shown,
    out: &mut impl Write,
) -> Result<(), ControlClientError> {
    let mut report = client.report(subject)?;
    if let Some(top) = shown.top {
        report.rows.truncate(top);
    }
    let result = if shown.json { put_json(&report, out) } else { put_table(&report, out) };
    result.and_then(|()| out.flush()).or_else(|error| match error.kind() {
        // Whoever read has seen enough, as `head` does.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(ControlClientError::Output(error)),
    })
}

/// One object a line, for `jq` and scripts.
fn put_json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for row in &report.rows {
        let object: serde_json::Map<String, Value> =
            report.columns.iter().cloned().zip(row.iter().cloned()).collect();
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Aligned columns, numbers to the right.
pub(crate) fn put_table(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<Vec<String>> = report.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain(report.columns.get(at).map(String::len)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..report.columns.len()).map(width).collect();
    let is_number = |at: usize| {
        let mut cells = report.rows.iter().filter_map(|row| row.get(at));
        !report.rows.is_empty() && cells.all(Value::is_number)
    };
    let numbers: Vec<bool> = (0..report.columns.len()).map(is_number).collect();
    for row in std::iter::once(&report.columns).chain(&rows) {
        let mut line = String::new();
        for ((cell, width), is_number) in row.iter().zip(&widths).zip(&numbers) {
            line.push_str(&if *is_number {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            });
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    if report.dropped > 0 {
        writeln!(out, "({} more found no room in the workers' tables)", report.dropped)?;
    }
    Ok(())
}

/// A value in a table. What a client has written must not move the terminal's cursor.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let plain = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
    if text.chars().count() <= CELL_CHARS_MAX {
        return text.chars().map(plain).collect();
    }
    text.chars().take(CELL_CHARS_MAX - 3).map(plain).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(report: &Report, put: fn(&Report, &mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        put(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn report() -> Report {
        Report {
            columns: ["server", "queries", "text"].map(str::to_owned).to_vec(),
            rows: vec![
                vec![json!("127.0.0.11:3306"), json!(7), json!("a\u{1b}[2Jb")],
                vec![json!("db:1"), json!(1234), json!("x".repeat(200))],
            ],
            dropped: 3,
        }
    }

    #[test]
    fn a_table_is_aligned_and_harmless() {
        let cut = format!("{}...", "x".repeat(117));
        let wanted = format!(
            "server           queries  text\n\
             127.0.0.11:3306        7  a\u{FFFD}[2Jb\n\
             db:1                1234  {cut}\n\
             (3 more found no room in the workers' tables)\n"
        );
        assert_eq!(shown(&report(), put_table), wanted);
    }

    #[test]
    fn json_has_everything() {
        let text = shown(&report(), put_json);
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!((&rows[0]["queries"], &rows[1]["text"]), (&json!(7), &json!("x".repeat(200))));
    }

    #[test]
    fn a_table_without_rows_has_its_columns() {
        let report = Report { columns: vec!["a".into(), "b".into()], rows: vec![], dropped: 0 };
        assert_eq!(shown(&report, put_table), "a  b\n");
    }
}
