//! Writes the files of one log: `events.00000001`, `events.00000002` and so on, as ProxySQL names them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::FileSettings;
use crate::line::put_gap;

/// After a file could not be made it is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// So many names are tried for a new file: somebody else may make files beside Weir.
const NAMES_TRIED: u32 = 100;
/// Lines are collected up to this size before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// Appends lines. What goes wrong concerns nobody but the log.
#[derive(Debug)]
pub(crate) struct LogFile {
    settings: FileSettings,
    open: Option<Open>,
    /// Lines that are not written yet.
    out: Vec<u8>,
    lines: u64,
    /// Lines that could not be written since the last ones that could.
    lost: u64,
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    size: u64,
}

/// What has become of lines since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    pub(crate) lost: u64,
}

impl LogFile {
    pub(crate) fn new(settings: FileSettings) -> Self {
        Self { settings, open: None, out: Vec::new(), lines: 0, lost: 0, retry_at: None }
    }

    pub(crate) fn settings(&self) -> &FileSettings {
        &self.settings
    }

    /// Adds a line that `put` writes. The file's limit holds for whole lines: one that does not fit begins the next file.
    pub(crate) fn append(&mut self, outcome: &mut Outcome, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        put(&mut self.out);
        let size = self.open.as_ref().map_or(0, |open| open.size);
        if size + self.out.len() as u64 > self.settings.bytes_max && size + before as u64 > 0 {
            let line = self.out.split_off(before);
            self.write(outcome);
            self.open = None;
            self.out = line;
        }
        self.lines += 1;
        if self.out.len() > WRITE_BYTES {
            self.write(outcome);
        }
    }

    /// Writes what was added.
    pub(crate) fn write(&mut self, outcome: &mut Outcome) {
        if self.out.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        if self.lost > 0 {
            let mut gap = Vec::new();
            put_gap(&mut gap, self.lost);
            self.out.splice(0..0, gap);
        }
        match self.try_write() {
            Ok(()) => {
                outcome.written += lines;
                self.lost = 0;
            }
            Err(error) => {
                if self.lost == 0 {
                    let base = self.settings.base.display();
                    tracing::warn!(file = %base, %error, "a log can't be written: lines are dropped");
                }
                self.lost = self.lost.saturating_add(lines);
                outcome.lost += lines;
            }
        }
        self.out.clear();
    }

    /// Lines that were left out before they came here.
    pub(crate) fn note_lost(&mut self, lines: u64) {
        self.lost = self.lost.saturating_add(lines);
    }

    /// Makes the file, if there is none.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        if self.open.is_none() {
            let (open, number) = create(&self.settings.base)?;
            self.open = Some(open);
            self.remove_old(number);
        }
        Ok(())
    }

    /// Goes on in the next file, unless this one is empty and still there.
    ///
    /// # Errors
    /// As [`LogFile::open`].
    pub(crate) fn begin_next(&mut self) -> io::Result<()> {
        self.retry_at = None;
        if !self.open.as_ref().is_some_and(|open| open.size == 0 && open.is_in_place()) {
            self.open = None;
        }
        self.open()
    }

    /// Keeps the newest files only. What can't be removed is told, and stays.
    fn remove_old(&self, newest: u32) {
        let FileSettings { base, files_max, .. } = &self.settings;
        if *files_max == 0 {
            return;
        }
        let Ok(mut numbers) = numbers(base) else { return };
        numbers.retain(|number| *number <= newest);
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        for number in numbers.into_iter().skip(*files_max as usize) {
            let path = numbered(base, number);
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %path.display(), %error, "an old file of a log can't be removed");
                return;
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.open.is_none() {
            if self.retry_at.is_some_and(|at| Instant::now() < at) {
                return Err(io::ErrorKind::NotFound.into());
            }
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
            self.open()?;
            self.retry_at = None;
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        match open.file.write_all(&self.out) {
            Ok(()) => open.size += self.out.len() as u64,
            Err(error) => {
                // A part of a line may have found room.
                if open.file.set_len(open.size).is_err() {
                    self.open = None;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Open {
    /// Nobody has moved or removed it.
    fn is_in_place(&self) -> bool {
        let own = self.file.metadata().map(|file| (file.dev(), file.ino()));
        let there = std::fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }
}

/// A file that was not there before, so that no link of somebody else's is followed; for nobody else's eyes.
fn create(base: &Path) -> io::Result<(Open, u32)> {
    let mut number = numbers(base)?.into_iter().max().unwrap_or(0);
    for _ in 0..NAMES_TRIED {
        number = number.saturating_add(1);
        let path = numbered(base, number);
        match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((Open { file, path, size: 0 }, number)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("another program makes files of the same names"))
}

fn numbered(base: &Path, number: u32) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".{number:08}"));
    PathBuf::from(name)
}

/// The numbers of the files that are there.
fn numbers(base: &Path) -> io::Result<Vec<u32>> {
    let dir = base.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = base.file_name().and_then(|name| name.to_str()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?.file_name();
        let digits = entry.to_str().and_then(|entry| entry.strip_prefix(name)?.strip_prefix('.'));
        let is_number = |digits: &&str| digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
        numbers.extend(digits.filter(is_number).and_then(|digits| digits.parse::<u32>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &Path, bytes_max: u64) -> LogFile {
        LogFile::new(FileSettings { base: dir.join("events"), bytes_max, files_max: 0 })
    }

    fn add(log: &mut LogFile, outcome: &mut Outcome, text: &str) {
        log.append(outcome, |out| out.extend_from_slice(format!("{text}\n").as_bytes()));
    }

    fn texts(dir: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap_or_default())
        };
        let mut texts: Vec<_> = entries.map(read).collect();
        texts.sort();
        texts
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_line_that_does_not_fit_begins_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, mut outcome) = (log(dir.path(), 10), Outcome::default());
        for text in ["one", "two", "three", "longer than a file", "x"] {
            add(&mut log, &mut outcome, text);
        }
        log.write(&mut outcome);
        let expected = [
            pair("events.00000001", "one\ntwo\n"),
            pair("events.00000002", "three\n"),
            pair("events.00000003", "longer than a file\n"),
            pair("events.00000004", "x\n"),
        ];
        assert_eq!(texts(dir.path()), expected);
        assert_eq!(outcome, Outcome { written: 5, lost: 0 });
        let mode = dir.path().join("events.00000001").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn each_run_goes_on_with_the_next_number() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["events.00000007", "events.9", "events.000000081", "events.0000000x", "other.00000099"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let (mut log, mut outcome) = (log(dir.path(), 100), Outcome::default());
        add(&mut log, &mut outcome, "one");
        log.write(&mut outcome);
        assert_eq!(std::fs::read_to_string(dir.path().join("events.00000008")).unwrap(), "one\n");
    }

    #[test]
    fn old_files_go_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let others = ["events", "events.5", "events.000000001", "events.00000001.gz", "other.00000001"];
        for name in others.iter().chain(&["events.00000001", "events.00000002", "events.00000007"]) {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let settings = FileSettings { base: dir.path().join("events"), bytes_max: 5, files_max: 3 };
        let (mut log, mut outcome) = (LogFile::new(settings), Outcome::default());
        let names = || -> Vec<String> {
            let names = texts(dir.path()).into_iter().map(|(name, _)| name);
            names.filter(|name| !others.contains(&name.as_str())).collect()
        };
        add(&mut log, &mut outcome, "one");
        log.write(&mut outcome);
        assert_eq!(names(), ["events.00000002", "events.00000007", "events.00000008"]);
        for text in ["two", "three"] {
            add(&mut log, &mut outcome, text);
        }
        log.write(&mut outcome);
        assert_eq!(names(), ["events.00000008", "events.00000009", "events.00000010"]);
        assert_eq!(texts(dir.path()).len(), 3 + others.len());
        assert_eq!(outcome, Outcome { written: 3, lost: 0 });
    }

    #[test]
    fn the_next_file_unless_this_one_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, mut outcome) = (log(dir.path(), 100), Outcome::default());
        log.begin_next().unwrap();
        log.begin_next().unwrap();
        add(&mut log, &mut outcome, "one");
        log.write(&mut outcome);
        log.begin_next().unwrap();
        // What somebody has moved away is not written to any more.
        std::fs::rename(dir.path().join("events.00000002"), dir.path().join("moved")).unwrap();
        log.begin_next().unwrap();
        add(&mut log, &mut outcome, "two");
        log.write(&mut outcome);
        let expected =
            [pair("events.00000001", "one\n"), pair("events.00000002", "two\n"), pair("moved", "")];
        assert_eq!(texts(dir.path()), expected);
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&target, numbered(&dir.path().join("events"), 1)).unwrap();
        let (mut log, mut outcome) = (log(dir.path(), 100), Outcome::default());
        add(&mut log, &mut outcome, "one");
        log.write(&mut outcome);
        assert!(!target.exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("events.00000002")).unwrap(), "one\n");
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("missing/events");
        let mut log = LogFile::new(FileSettings { base: base.clone(), bytes_max: 1000, files_max: 0 });
        let mut outcome = Outcome::default();
        add(&mut log, &mut outcome, "one");
        add(&mut log, &mut outcome, "two");
        log.write(&mut outcome);
        assert_eq!(outcome, Outcome { written: 0, lost: 2 });
        std::fs::create_dir(dir.path().join("missing")).unwrap();
        log.note_lost(3);
        log.begin_next().unwrap();
        add(&mut log, &mut outcome, "three");
        log.write(&mut outcome);
        assert_eq!(outcome, Outcome { written: 1, lost: 2 });
        let text = std::fs::read_to_string(numbered(&base, 1)).unwrap();
        assert!(
            text.starts_with(r#"{"event":"weir_gap","lines":5,"#) && text.ends_with("\nthree\n"),
            "{text}"
        );
    }

    #[test]
    fn a_full_disk_leaves_no_half_lines() {
        let mut log = LogFile::new(FileSettings { base: "/dev/full".into(), bytes_max: 1000, files_max: 0 });
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        log.open = Some(Open { file, path: "/dev/full".into(), size: 0 });
        let mut outcome = Outcome::default();
        add(&mut log, &mut outcome, "one");
        log.write(&mut outcome);
        assert_eq!(outcome, Outcome { written: 0, lost: 1 });
    }
}
