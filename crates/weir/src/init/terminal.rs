//! Asks the user at the terminal: for passwords, which are not shown, and whether to go on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::InitError;

/// A longer answer is none, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Whether somebody can be asked.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks whether to go on; `may_ask`: what would be done was shown.
///
/// # Errors
/// When nobody is there.
pub(super) fn agrees(may_ask: bool) -> Result<bool, InitError> {
    if !may_ask || !is_there() {
        return Err(InitError::NobodyToAsk);
    }
    eprint!("\nGo on? [y/N] ");
    io::stderr().flush()?;
    let answer = line(&mut io::stdin().lock())?;
    Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a password at the terminal itself, whatever standard input is; none if there is no terminal.
pub(super) fn password(of: &str) -> io::Result<Option<String>> {
    let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else { return Ok(None) };
    let hidden = Hidden::new(terminal)?;
    write!(&hidden.terminal, "Password of {of}: ")?;
    let answer = line(&mut BufReader::new(&hidden.terminal))?;
    writeln!(&hidden.terminal)?;
    Ok(Some(answer))
}

/// The first line of a file, or of what is typed.
pub(super) fn line(from: &mut dyn BufRead) -> io::Result<String> {
    let mut line = String::new();
    io::Read::take(from, ANSWER_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that does not show what is typed, until it is dropped.
struct Hidden {
    terminal: File,
    before: Termios,
}

impl Hidden {
    fn new(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(terminal.as_fd())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The terminal is gone, or stays as it is.
        let _ = tcsetattr(self.terminal.as_fd(), OptionalActions::Flush, &self.before);
    }
}
