//! Writes files that only their owner may read: configuration and keys hold secrets.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Of the mode of a file that is there so much stays: its group may go on to read it.
const MODE_KEPT: u32 = 0o640;

/// Writes a file that only its owner may read, from its first moment on. One that is there, whoever has made it, is gone.
///
/// # Errors
/// When the system can't write it.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    make(path)?.write_all(text.as_bytes())
}

/// A new file: not one that somebody has put there, with a mode or an owner of its own, nor what a link leads to.
fn make(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path),
    }
}

/// Replaces a file, or makes it: a crash leaves the old text or the new one. The owner, the group, and whether the group may
/// read it stay as they were, if this process may say so. What is no file, such as `/dev/stdout`, is written to.
///
/// # Errors
/// When the system can't write it; then the old text is there.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays, and so does what it leads to.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let there = std::fs::metadata(&path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file() && !there.is_dir()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(text.as_bytes());
    }
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let mut file = make(Path::new(&new))?;
    if let Some(there) = there.filter(std::fs::Metadata::is_file)
        && fchown(&file, Some(there.uid()), Some(there.gid())).is_ok()
    {
        // Where everybody could read it nobody has thought of who should.
        let kept = if there.mode() & 0o007 == 0 { there.mode() & MODE_KEPT } else { 0 };
        file.set_permissions(Permissions::from_mode(kept | 0o600))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_directory_in_its_name_is_replaced_and_its_neighbour_is_not() {
        // The name is relative to where the tests run: a crate's own directory.
        let name = format!("files-test-{}", std::process::id());
        let (path, neighbour) = (format!("{name}.toml"), format!("{name}.new"));
        std::fs::write(&neighbour, "mine").unwrap();
        let done = replace(Path::new(&path), "one").and_then(|()| replace(Path::new(&path), "two"));
        let found = (std::fs::read_to_string(&path), std::fs::read_to_string(&neighbour));
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&neighbour));
        done.unwrap();
        assert_eq!((found.0.unwrap().as_str(), found.1.unwrap().as_str()), ("two", "mine"));
        replace(Path::new("/dev/null"), "gone").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn secrets_are_written_to_no_file_that_somebody_else_has_put_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o777;
        std::fs::write(at("weir.toml.new"), "an editor's").unwrap();
        replace(&at("weir.toml"), "secret").unwrap();
        assert_eq!(mode("weir.toml"), 0o600, "not the mode of what was there");
        std::fs::write(at("other"), "whose").unwrap();
        std::os::unix::fs::symlink(at("other"), at("weir.toml.new")).unwrap();
        replace(&at("weir.toml"), "more").unwrap();
        assert_eq!(std::fs::read_to_string(at("other")).unwrap(), "whose", "a link is not followed");
        // As packages install it.
        for (before, after) in [(0o640, 0o640), (0o660, 0o640), (0o644, 0o600), (0o400, 0o600)] {
            std::fs::set_permissions(at("weir.toml"), Permissions::from_mode(before)).unwrap();
            replace(&at("weir.toml"), "again").unwrap();
            assert_eq!(mode("weir.toml"), after, "{before:o}");
        }
        assert_eq!(std::fs::read_to_string(at("weir.toml")).unwrap(), "again");
    }
}
