//! Copies a program's output to Weir's log, line by line.

use weir_config::Job;

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 1024;
/// So many lines of one run are shown.
const LINES_MAX: usize = 1000;

/// The output of one run.
pub(super) struct Output<'a> {
    row: &'a Job,
    line: Vec<u8>,
    lines: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(row: &'a Job) -> Self {
        Self { row, line: Vec::new(), lines: 0 }
    }

    /// More of it.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.tell();
            }
        }
    }

    /// There is no more.
    pub(super) fn end(&mut self) {
        if !self.line.is_empty() {
            self.tell();
        }
        let (id, filename) = (self.row.id, self.row.filename.display());
        if let Some(lines) = self.lines.checked_sub(LINES_MAX).filter(|lines| *lines > 0) {
            tracing::warn!(id, %filename, lines, "scheduler: further output is not logged");
        }
    }

    fn tell(&mut self) {
        self.lines += 1;
        if self.lines <= LINES_MAX {
            let (id, filename) = (self.row.id, self.row.filename.display());
            tracing::info!(id, %filename, says = shown(&self.line), "scheduler");
        }
        self.line.clear();
    }
}

/// The line without its end. What a program writes must not move a terminal's cursor.
fn shown(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    line.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_told_one_by_one_and_long_ones_cut() {
        let row = Job {
            id: 1,
            active: true,
            interval: Duration::from_secs(1),
            filename: "/bin/true".into(),
            arguments: Vec::new(),
            comment: String::new(),
        };
        let mut output = Output::new(&row);
        output.take(b"one\ntw");
        assert_eq!((output.lines, &*output.line), (1, &b"tw"[..]));
        output.take(&[b'x'; 5000]);
        assert_eq!((output.lines, output.line.len()), (1, LINE_BYTES_MAX));
        output.take(b"\n\nthree");
        output.end();
        assert_eq!((output.lines, output.line.len()), (4, 0));
    }

    #[test]
    fn control_characters_are_not_shown() {
        assert_eq!(shown(b"a\tb\x1b[2J\xFF\r\n"), "a\tb\u{fffd}[2J\u{fffd}");
    }
}
