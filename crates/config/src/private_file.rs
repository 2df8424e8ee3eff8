//! Writes files that only their owner may read: configuration and keys hold secrets.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner may read, from its first moment on.
///
/// # Errors
/// When the system can't write it.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Replaces a file, or makes it: a crash leaves the old text or the new one. What is no file, such as `/dev/stdout`, is
/// written to.
///
/// # Errors
/// When the system can't write it; then the old text is there.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays, and so does what it leads to.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return write(&path, text);
    }
    let mut new = path.clone().into_os_string();
    new.push(".new");
    write(Path::new(&new), text)?;
    std::fs::File::open(&new)?.sync_all()?;
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
}
