//! Reading one TOML table key by key, so that what was not asked for is known to be unknown.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml_edit::{Item, TableLike, Value};

use crate::error::Report;
use crate::suggest;

/// The longest text that a fault quotes, in characters.
const QUOTE_CHARS_MAX: usize = 60;

/// A table being read. Each reader takes a key; [`Fields::finish`] refuses the keys that nobody took.
///
/// A reader that meets a fault reports it and gives the default, so that the rest of the file is checked too.
pub(crate) struct Fields<'t, 'r> {
    path: String,
    table: &'t dyn TableLike,
    /// Line of the table's header, for keys that are missing.
    line: usize,
    taken: BTreeSet<&'static str>,
    pub(crate) report: &'r mut Report,
}

impl<'t, 'r> Fields<'t, 'r> {
    pub(crate) fn new(
        path: impl Into<String>,
        table: &'t dyn TableLike,
        line: usize,
        report: &'r mut Report,
    ) -> Self {
        Self { path: path.into(), table, line, taken: BTreeSet::new(), report }
    }

    /// The line of `name`, or of the table if it isn't there.
    pub(crate) fn line(&self, name: &str) -> usize {
        line_of_key(self.table, name, self.report).unwrap_or(self.line)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// Reports a fault of `name`.
    pub(crate) fn refuse(&mut self, name: &str, reason: impl Display) {
        let line = self.line(name);
        let key = self.key(name);
        self.report.refuse(line, key, reason.to_string());
    }

    /// The item of `name`, which then counts as known.
    pub(crate) fn item(&mut self, name: &'static str) -> Option<&'t Item> {
        self.taken.insert(name);
        self.table.get(name)
    }

    /// An integer within `range`.
    pub(crate) fn integer<T>(&mut self, name: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Copy + Display + PartialOrd + TryFrom<i64>,
    {
        let Some(number) = self.any_integer(name) else { return default };
        match T::try_from(number) {
            Ok(number) if range.contains(&number) => number,
            _ => {
                let out = format!("{number} is out of range ({}..{})", range.start(), range.end());
                self.refuse(name, out);
                default
            }
        }
    }

    /// An integer of any size, or none if it is missing or something else.
    pub(crate) fn any_integer(&mut self, name: &'static str) -> Option<i64> {
        let item = self.item(name)?;
        if item.as_integer().is_none() {
            self.refuse(name, format!("{} is not an integer", describe(item)));
        }
        item.as_integer()
    }

    /// A time in milliseconds within `range_ms`.
    pub(crate) fn millis(
        &mut self,
        name: &'static str,
        default: Duration,
        range_ms: RangeInclusive<u64>,
    ) -> Duration {
        let default_ms = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.integer(name, default_ms, range_ms))
    }

    /// true, false, 1 or 0.
    pub(crate) fn boolean(&mut self, name: &'static str, default: bool) -> bool {
        let Some(item) = self.item(name) else { return default };
        match as_bool(item) {
            Some(value) => value,
            None => {
                self.refuse(name, format!("{} is neither true nor false", describe(item)));
                default
            }
        }
    }

    /// A string without control characters of at most `chars_max` characters.
    pub(crate) fn text(&mut self, name: &'static str, default: &str, chars_max: usize) -> String {
        self.optional_text(name, chars_max).unwrap_or_else(|| default.to_owned())
    }

    /// As [`Fields::text`], none if it is missing or refused.
    pub(crate) fn optional_text(&mut self, name: &'static str, chars_max: usize) -> Option<String> {
        let item = self.item(name)?;
        let Some(text) = item.as_str() else {
            self.refuse(name, format!("{} is not a string", describe(item)));
            return None;
        };
        if text.chars().count() > chars_max {
            self.refuse(name, format!("longer than {chars_max} characters"));
            return None;
        }
        if text.chars().any(char::is_control) {
            self.refuse(name, "contains a control character");
            return None;
        }
        Some(text.to_owned())
    }

    /// A string that no fault may quote.
    pub(crate) fn secret_text(&mut self, name: &'static str, bytes_max: usize) -> Option<String> {
        let item = self.item(name)?;
        match item.as_str() {
            Some(text) if text.len() > bytes_max => {
                self.refuse(name, format!("longer than {bytes_max} bytes"));
                None
            }
            Some(text) if text.contains('\0') => {
                self.refuse(name, "contains a zero byte");
                None
            }
            Some(text) => Some(text.to_owned()),
            None => {
                self.refuse(name, format!("{} is not a string", kind(item)));
                None
            }
        }
    }

    /// A column of ProxySQL of which only `built` (an integer or its boolean) is built.
    pub(crate) fn only(&mut self, name: &'static str, built: i64) {
        let Some(item) = self.item(name) else { return };
        let given = item.as_integer().or_else(|| item.as_bool().map(i64::from));
        match given {
            Some(value) if value == built => {}
            Some(_) => self.refuse(name, format!("{} is not built yet (only {built})", describe(item))),
            None => self.refuse(name, format!("{} is not an integer", describe(item))),
        }
    }

    /// Refuses every key that was not taken; `known` names those that ProxySQL has.
    pub(crate) fn finish(self, is_not_built: impl Fn(&str, &Item) -> Option<String>, known: &[&'static str]) {
        for (name, item) in self.table.iter() {
            if self.taken.contains(name) {
                continue;
            }
            let line = line_of_key(self.table, name, self.report).unwrap_or(self.line);
            let candidates = self.taken.iter().chain(known).copied();
            let reason = is_not_built(name, item).unwrap_or_else(|| suggest::unknown_key(name, candidates));
            if !reason.is_empty() {
                self.report.refuse(line, join(&self.path, &quotable(name)), reason);
            }
        }
    }

    fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The line of the key `name` in `table`.
pub(crate) fn line_of_key(table: &dyn TableLike, name: &str, report: &Report) -> Option<usize> {
    let (key, item) = table.get_key_value(name)?;
    let span = key.span().or_else(|| item.span())?;
    Some(report.line_of(span.start))
}

/// The value as a fault quotes it.
pub(crate) fn describe(item: &Item) -> String {
    match item.as_value() {
        Some(Value::String(text)) => format!("\"{}\"", quotable(text.value())),
        Some(Value::Integer(number)) => number.value().to_string(),
        Some(Value::Float(number)) => number.value().to_string(),
        Some(Value::Boolean(value)) => value.value().to_string(),
        _ => kind(item).to_owned(),
    }
}

/// true, false, 1 or 0.
pub(crate) fn as_bool(item: &Item) -> Option<bool> {
    match (item.as_bool(), item.as_integer()) {
        (Some(value), _) => Some(value),
        (None, Some(1)) => Some(true),
        (None, Some(0)) => Some(false),
        _ => None,
    }
}

/// `text` fit for one line of a terminal.
pub(crate) fn quotable(text: &str) -> String {
    let mut out: String =
        text.chars().take(QUOTE_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(QUOTE_CHARS_MAX).is_some() {
        out.push_str("...");
    }
    out
}

fn kind(item: &Item) -> &'static str {
    match item {
        Item::Value(Value::String(_)) => "a string",
        Item::Value(Value::Integer(_)) => "an integer",
        Item::Value(Value::Float(_)) => "a decimal number",
        Item::Value(Value::Boolean(_)) => "a boolean",
        Item::Value(Value::Datetime(_)) => "a date",
        Item::Value(Value::Array(_)) => "a list",
        Item::ArrayOfTables(_) => "a list of tables",
        Item::Value(Value::InlineTable(_)) | Item::Table(_) => "a table",
        Item::None => "nothing",
    }
}
