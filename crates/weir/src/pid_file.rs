//! Writes the file that tells the process id, so that a signal meets the Weir that serves, and no other command of its
//! program.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name in the datadir, where none is given.
const NAME: &str = "weir.pid";

/// Removed at the end, if it still tells this process.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Another process has taken over, and the file with it.
    is_another_ones: bool,
}

impl PidFile {
    /// Writes it, in place of one that another process has left. That it can't be written is told, and is no reason to serve
    /// nobody.
    pub(crate) fn write(wanted: Option<&Path>, datadir: &Path) -> Self {
        let path = wanted.map_or_else(|| datadir.join(NAME), Path::to_owned);
        if let Err(error) = replace(&path) {
            tracing::error!(path = %path.display(), %error, "the process id can't be written");
        }
        Self { path, is_another_ones: false }
    }

    /// Another process writes it from now on.
    pub(crate) fn let_go(&mut self) {
        self.is_another_ones = true;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_own = || fs::read_to_string(&self.path).is_ok_and(|text| text == line());
        if !self.is_another_ones && is_own() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn line() -> String {
    format!("{}\n", std::process::id())
}

/// Whoever reads it finds one number or the other, never half of one. It may lie where others may write: no link of theirs
/// is followed.
fn replace(path: &Path) -> std::io::Result<()> {
    let mut new = path.to_owned().into_os_string();
    new.push(format!(".{}", std::process::id()));
    // Of a process with the same id that ended right here; in a container they all have the same.
    let _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    let written = file.write_all(line().as_bytes()).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_the_process_whose_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.pid");
        fs::write(&path, "left by another one").unwrap();
        let file = PidFile::write(None, dir.path());
        assert_eq!(fs::read_to_string(&path).unwrap(), line());
        drop(file);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left");

        // One that was taken over, or that somebody else has written, stays.
        let mut file = PidFile::write(None, dir.path());
        file.let_go();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), line());
        let file = PidFile::write(None, dir.path());
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        PidFile::write(Some(Path::new("/nowhere/weir.pid")), dir.path());
    }
}
