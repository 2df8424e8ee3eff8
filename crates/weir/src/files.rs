//! Files that Weir makes.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner may read, from its first moment on.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Replaces a file, or makes it: a crash leaves the old text or the new one.
pub(crate) fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    write_private(&new, text)?;
    std::fs::File::open(&new)?.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
}
