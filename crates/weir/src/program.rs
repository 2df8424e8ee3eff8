//! Finds this program, to be started again.

use std::ffi::OsString;
use std::path::PathBuf;

/// Makes a process take over from the one that runs.
const TAKEOVER: &str = "--takeover";

/// The path of this program, and the arguments that it was started with.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// As it was when this process started: a file that is put in its place is the new version.
    pub(crate) path: PathBuf,
    /// So that it takes over.
    pub(crate) arguments: Vec<OsString>,
}

impl Program {
    /// What runs now.
    ///
    /// # Errors
    /// When the system does not tell where it is.
    pub(crate) fn this() -> std::io::Result<Self> {
        // What was to be done once with the database is done.
        let is_once = |argument: &OsString| argument == "--initial" || argument == "--reload";
        let mut arguments: Vec<OsString> =
            std::env::args_os().skip(1).filter(|argument| !is_once(argument)).collect();
        if !arguments.iter().any(|argument| argument == TAKEOVER) {
            arguments.push(TAKEOVER.into());
        }
        Ok(Self { path: std::env::current_exe()?, arguments })
    }
}
