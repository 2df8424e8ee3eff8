//! Collects the logs of a case's Weirs, for the message of a case that fails.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

/// How many lines of each are shown.
const LINES: usize = 30;
/// How much of a line is.
const CHARACTERS: usize = 300;

thread_local! {
    /// A thread runs one case at a time.
    static LOGS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// The case that this thread runs starts a Weir with this log.
pub(crate) fn of_this_case(log: PathBuf) {
    LOGS.with_borrow_mut(|logs| logs.push(log));
}

/// The logs of the case, which are no longer known here.
pub(crate) fn take() -> Vec<PathBuf> {
    LOGS.take()
}

/// The ends of these logs; nothing for those that are gone.
pub(crate) fn ends(logs: &[PathBuf]) -> String {
    let mut shown = String::new();
    for log in logs {
        let Ok(bytes) = fs::read(log) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let name = log.file_name().unwrap_or_default().display();
        shown.push_str(&format!("\n---- the end of {name}\n"));
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            shown.extend(line.chars().take(CHARACTERS));
            shown.push('\n');
        }
    }
    shown
}
