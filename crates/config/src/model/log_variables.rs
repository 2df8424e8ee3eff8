//! Declares the `mysql_variables` of the logs that Weir writes into files of their own: events, slow statements, audit.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::field::fields::Fields;
use crate::field::kind::{BIT, By, OneValue, Only, count_of, integer, millis, variables};
use crate::table::variable::MYSQL;
use crate::value::scalar::Scalar;
use crate::value::suggest::quotable;

/// Room for the directory and the number that rotation adds.
const FILE_NAME_BYTES_MAX: usize = 240;
/// ProxySQL's limits of `eventslog_filesize`.
const FILE_SIZE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;
/// Eight digits have room for more.
const FILES: RangeInclusive<u32> = 0..=1_000_000;
/// ProxySQL's limit of `long_query_time`: 20 days.
const LONG_QUERY_MS_MAX: u64 = 20 * 86_400_000;
/// The values of ProxySQL's `eventslog_format`.
const FORMAT_BINARY: i64 = 1;
const FORMAT_JSON: i64 = 2;

variables! {
/// The settings of the logs of statements and logins. A field has the variable's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogVariables of MYSQL {
    /// [Events log](logs.md): statements selected by a rule's `log` or by `eventslog_default_log`, one JSON object per
    /// line. File names are this name and a number of eight digits; a relative name is relative to `datadir`. Empty: off.
    eventslog_filename: Option<PathBuf> = None, LOG_FILE;
    /// File size at which the next file begins.
    eventslog_filesize: u64 = 100 << 20, count_of("bytes", FILE_SIZE_BYTES);
    /// Weir's own: number of files to keep, the newest ones; 0: all.
    eventslog_files_max: u32 = 100, integer(FILES);
    /// Logs statements for which no rule sets `log`.
    eventslog_default_log: bool = false, BIT;
    /// Logs one of so many statements, at random.
    eventslog_rate_limit: u32 = 1, integer(1..=1_000_000);
    /// Maximum length of a statement's text in the events log and in the slow log.
    eventslog_buffer_max_query_length: u32 = 32 << 10, count_of("bytes", 128..=1 << 20);
    /// Lines of JSON; Weir refuses 1 (ProxySQL's default, binary).
    eventslog_format: OneValue = OneValue::default(), Only("2", |f, name| {
        f.integer(name, FORMAT_JSON, FORMAT_BINARY..=FORMAT_JSON);
    }) => binary_is_not_built;
    /// Weir's own: log of statements that took longer than `long_query_time`. Empty: off.
    slowlog_filename: Option<PathBuf> = None, LOG_FILE;
    /// Weir's own: as `eventslog_filesize`.
    slowlog_filesize: u64 = 100 << 20, count_of("bytes", FILE_SIZE_BYTES);
    /// Weir's own: as `eventslog_files_max`.
    slowlog_files_max: u32 = 100, integer(FILES);
    /// Duration from which a statement counts as slow.
    long_query_time: Duration = Duration::from_millis(1000), millis(0..=LONG_QUERY_MS_MAX);
    /// Audit log: logins, refused ones included, ends of sessions, and changes at the admin port. Empty: off.
    auditlog_filename: Option<PathBuf> = None, LOG_FILE;
    /// As `eventslog_filesize`.
    auditlog_filesize: u64 = 100 << 20, count_of("bytes", FILE_SIZE_BYTES);
    /// Weir's own: as `eventslog_files_max`. By default Weir keeps all audit files.
    auditlog_files_max: u32 = 0, integer(FILES) => a_file_for_each_log;
}
}

const LOG_FILE: By<Option<PathBuf>> = By {
    read: |f, name| file_name(f, name).map(Some),
    text: |path| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    values: "",
};

fn binary_is_not_built(f: &mut Fields<'_, '_>, v: &LogVariables) {
    let name = "eventslog_format";
    // ProxySQL's databases all have its default.
    let counts = v.eventslog_filename.is_some() || !f.is_row();
    if counts && f.item(name).and_then(Scalar::as_integer) == Some(FORMAT_BINARY) {
        f.tolerate(name, "1 (binary) is not built: only 2 (lines of JSON) is");
    }
}

fn a_file_for_each_log(f: &mut Fields<'_, '_>, v: &LogVariables) {
    let names = [
        ("eventslog_filename", &v.eventslog_filename),
        ("slowlog_filename", &v.slowlog_filename),
        ("auditlog_filename", &v.auditlog_filename),
    ];
    for (at, (name, path)) in names.iter().enumerate() {
        let same = names.iter().take(at).find(|(_, other)| path.is_some() && other == path);
        if let Some((other, _)) = same {
            f.refuse(name, format!("is the file of {other}, too: give each log its own"));
        }
    }
}

fn file_name(f: &mut Fields<'_, '_>, name: &'static str) -> Option<PathBuf> {
    let path = f.path(name, 4096)?;
    let text = path.to_string_lossy();
    if text.ends_with('/') || path.file_name().is_none() {
        f.refuse(name, format!("\"{}\" is not the name of a file", quotable(&text)));
        return None;
    }
    if path.file_name().is_some_and(|name| name.len() > FILE_NAME_BYTES_MAX) {
        f.refuse(name, format!("a file's name has at most {FILE_NAME_BYTES_MAX} bytes here"));
        return None;
    }
    Some(path)
}
