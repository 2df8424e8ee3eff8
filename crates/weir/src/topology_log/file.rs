//! Writes the file of the topology log, and the one before it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Entry;

/// A full file becomes the old one: about 20 000 lines.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Appends lines. Whatever goes wrong concerns nobody but the log.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// None before the first line, and after a fault.
    file: Option<(File, u64)>,
    bytes_max: u64,
    /// Lines that could not be written since the last one that could.
    lost: u64,
}

impl LogFile {
    pub(super) fn new(datadir: &Path) -> Self {
        Self { path: path(datadir), file: None, bytes_max: FILE_BYTES_MAX, lost: 0 }
    }

    /// Writes lines, and before them how many are missing, with the decisions that were `left_out` before.
    pub(super) fn append(&mut self, entries: &[Entry], left_out: u64) {
        let was_failing = self.lost > 0;
        self.lost = self.lost.saturating_add(left_out);
        if entries.is_empty() {
            return;
        }
        let mut lines = Vec::new();
        if self.lost > 0 {
            let reason = format!("{} changes could not be written here", self.lost);
            let time = entries.first().map(|entry| entry.time.clone()).unwrap_or_default();
            put(&mut lines, &Entry { time, ..Entry::event(None, "gap", reason) });
        }
        entries.iter().for_each(|entry| put(&mut lines, entry));
        match self.write(&lines) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                self.file = None;
                self.lost = self.lost.saturating_add(entries.len() as u64);
                if !was_failing {
                    let path = self.path.display();
                    tracing::warn!(%path, %error, "the topology log can't be written: changes are not recorded");
                }
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let more = lines.len() as u64;
        let (file, size) = match self.file.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        let (mut file, size) = if size > 0 && size + more > self.bytes_max {
            drop(file);
            std::fs::rename(&self.path, old(&self.path))?;
            open(&self.path)?
        } else {
            (file, size)
        };
        file.write_all(lines)?;
        self.file = Some((file, size + more));
        Ok(())
    }
}

fn put(lines: &mut Vec<u8>, entry: &Entry) {
    // Numbers and texts can always be written as JSON.
    if serde_json::to_writer(&mut *lines, entry).is_ok() {
        lines.push(b'\n');
    }
}

/// Opens the file, or makes it. A line that was broken off is ended.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    if size == 0 {
        return Ok((file, 0));
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok((file, size));
    }
    file.write_all(b"\n")?;
    Ok((file, size + 1))
}

fn path(datadir: &Path) -> PathBuf {
    datadir.join("topology.log")
}

fn old(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// The last `count` entries of both files, the oldest first. Lines that are none are passed over.
///
/// # Errors
/// When a file is there and can't be read.
pub(crate) fn last_entries(datadir: &Path, count: usize) -> io::Result<Vec<Entry>> {
    let path = path(datadir);
    let mut entries = Vec::new();
    for path in [old(&path), path] {
        let mut bytes = Vec::new();
        match File::open(&path) {
            // Weir makes none that is larger, but for the last lines.
            Ok(file) => file.take(2 * FILE_BYTES_MAX).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let lines = bytes.split(|byte| *byte == b'\n');
        entries.extend(lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok()));
    }
    Ok(entries.split_off(entries.len().saturating_sub(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(reason: &str) -> Entry {
        Entry::event(Some(10), "switchover", reason.to_owned())
    }

    fn reasons(datadir: &Path, count: usize) -> Vec<String> {
        last_entries(datadir, count).unwrap().into_iter().map(|entry| entry.reason).collect()
    }

    #[test]
    fn lines_outlive_the_run_and_a_torn_one_harms_no_other() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(reasons(dir.path(), 10), [""; 0]);
        LogFile::new(dir.path()).append(&[entry("one"), entry("two")], 0);
        let mut file = OpenOptions::new().append(true).open(path(dir.path())).unwrap();
        file.write_all(br#"{"time":"2026","chan"#).unwrap();
        LogFile::new(dir.path()).append(&[entry("three")], 0);
        assert_eq!(reasons(dir.path(), 10), ["one", "two", "three"]);
        assert_eq!(reasons(dir.path(), 1), ["three"]);
        let mode = std::os::unix::fs::MetadataExt::mode(&path(dir.path()).metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn never_more_than_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogFile { bytes_max: 300, ..LogFile::new(dir.path()) };
        for number in 0..50 {
            log.append(&[entry(&number.to_string())], 0);
        }
        let sizes: Vec<u64> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect();
        assert!(sizes.len() == 2 && sizes.iter().all(|size| *size <= 300), "{sizes:?}");
        assert_eq!(reasons(dir.path(), 3), ["47", "48", "49"]);
    }

    #[test]
    fn what_could_not_be_written_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        // A directory in the file's place: nothing can be written, as with a full disk.
        std::fs::create_dir(path(dir.path())).unwrap();
        let mut log = LogFile::new(dir.path());
        log.append(&[entry("one"), entry("two")], 0);
        log.append(&[], 3);
        std::fs::remove_dir(path(dir.path())).unwrap();
        log.append(&[entry("three")], 0);
        log.append(&[entry("four")], 0);
        assert_eq!(reasons(dir.path(), 10), ["5 changes could not be written here", "three", "four"]);
    }
}
