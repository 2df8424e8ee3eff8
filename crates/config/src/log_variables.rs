//! The `mysql_variables` of the logs that Weir writes into files of their own: events, slow statements, audit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fields::Fields;

/// Room for the directory and the number that rotation adds.
const FILE_NAME_BYTES_MAX: usize = 240;
/// ProxySQL's limits of `eventslog_filesize`.
const FILE_SIZE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
/// Eight digits have room for more.
const FILES: std::ops::RangeInclusive<u32> = 0..=1_000_000;
/// ProxySQL's limit of `long_query_time`: 20 days.
const LONG_QUERY_MS_MAX: u64 = 20 * 86_400_000;
/// The values of ProxySQL's `eventslog_format`.
const FORMAT_BINARY: u32 = 1;
const FORMAT_JSON: u32 = 2;

/// What is logged of statements and logins, and into which files. A field has the variable's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogVariables {
    /// Every statement that a rule's `log` or `eventslog_default_log` wants, as a line of JSON. None (default): off.
    /// Each file's name is this and a number of eight digits; one without a leading `/` is in the `datadir`.
    pub eventslog_filename: Option<PathBuf>,
    /// After so many bytes the next file begins, default 100 MiB.
    pub eventslog_filesize: u64,
    /// Weir's own: so many of its newest files are kept, default 100; 0: all.
    pub eventslog_files_max: u32,
    /// Whether statements are logged of which no rule's `log` says anything, default false.
    pub eventslog_default_log: bool,
    /// Of so many statements one is logged, by chance; default 1: each.
    pub eventslog_rate_limit: u32,
    /// So much of a statement's text is logged, here and as a slow one, in bytes; default 32768.
    pub eventslog_buffer_max_query_length: u32,
    /// Weir's own: statements that took longer than `long_query_time`. None (default): off.
    pub slowlog_filename: Option<PathBuf>,
    /// Weir's own: as `eventslog_filesize`.
    pub slowlog_filesize: u64,
    /// Weir's own: as `eventslog_files_max`.
    pub slowlog_files_max: u32,
    /// A statement that takes longer is a slow one, default 1 s.
    pub long_query_time: Duration,
    /// Logins, failed ones too, their ends, and what is changed at the admin interface. None (default): off.
    pub auditlog_filename: Option<PathBuf>,
    /// As `eventslog_filesize`.
    pub auditlog_filesize: u64,
    /// Weir's own: as `eventslog_files_max`, but default 0: nothing of an audit is removed unless somebody says so.
    pub auditlog_files_max: u32,
}

impl Default for LogVariables {
    fn default() -> Self {
        Self {
            eventslog_filename: None,
            eventslog_filesize: 100 << 20,
            eventslog_files_max: 100,
            eventslog_default_log: false,
            eventslog_rate_limit: 1,
            eventslog_buffer_max_query_length: 32 << 10,
            slowlog_filename: None,
            slowlog_filesize: 100 << 20,
            slowlog_files_max: 100,
            long_query_time: Duration::from_millis(1000),
            auditlog_filename: None,
            auditlog_filesize: 100 << 20,
            auditlog_files_max: 0,
        }
    }
}

/// Reads them.
pub(crate) fn read(f: &mut Fields<'_, '_>) -> LogVariables {
    let mut v = LogVariables::default();
    v.eventslog_filename = file_name(f, "eventslog_filename");
    v.eventslog_filesize = f.integer("eventslog_filesize", v.eventslog_filesize, FILE_SIZE_BYTES);
    v.eventslog_files_max = f.integer("eventslog_files_max", v.eventslog_files_max, FILES);
    v.eventslog_default_log = f.boolean("eventslog_default_log", false);
    v.eventslog_rate_limit = f.integer("eventslog_rate_limit", 1, 1..=1_000_000);
    v.eventslog_buffer_max_query_length =
        f.integer("eventslog_buffer_max_query_length", v.eventslog_buffer_max_query_length, 128..=1 << 20);
    let is_binary = f.integer("eventslog_format", FORMAT_JSON, FORMAT_BINARY..=FORMAT_JSON) == FORMAT_BINARY;
    // ProxySQL's databases all have its default.
    if is_binary && (v.eventslog_filename.is_some() || !f.is_row()) {
        f.tolerate("eventslog_format", "1 (binary) is not built: only 2 (lines of JSON) is");
    }
    v.slowlog_filename = file_name(f, "slowlog_filename");
    v.slowlog_filesize = f.integer("slowlog_filesize", v.slowlog_filesize, FILE_SIZE_BYTES);
    v.slowlog_files_max = f.integer("slowlog_files_max", v.slowlog_files_max, FILES);
    v.long_query_time = f.millis("long_query_time", v.long_query_time, 0..=LONG_QUERY_MS_MAX);
    v.auditlog_filename = file_name(f, "auditlog_filename");
    v.auditlog_filesize = f.integer("auditlog_filesize", v.auditlog_filesize, FILE_SIZE_BYTES);
    v.auditlog_files_max = f.integer("auditlog_files_max", v.auditlog_files_max, FILES);
    let names = [
        ("eventslog_filename", &v.eventslog_filename),
        ("slowlog_filename", &v.slowlog_filename),
        ("auditlog_filename", &v.auditlog_filename),
    ];
    for (at, (name, path)) in names.iter().enumerate() {
        let same = names.iter().take(at).find(|(_, other)| path.is_some() && other == path);
        if let Some((other, _)) = same {
            f.refuse(name, format!("is the file of {other} too: give each log its own"));
        }
    }
    v
}

fn file_name(f: &mut Fields<'_, '_>, name: &'static str) -> Option<PathBuf> {
    let text = f.optional_text(name, 4096).filter(|text| !text.is_empty())?;
    let path = Path::new(&text);
    let is_name = !text.ends_with('/') && path.file_name().is_some();
    if !is_name {
        f.refuse(name, format!("\"{}\" is not the name of a file", crate::fields::quotable(&text)));
        return None;
    }
    if path.file_name().is_some_and(|name| name.len() > FILE_NAME_BYTES_MAX) {
        f.refuse(name, format!("a file's name has at most {FILE_NAME_BYTES_MAX} bytes here"));
        return None;
    }
    Some(path.to_path_buf())
}
