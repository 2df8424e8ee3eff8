//! Reads one table or row key by key, so that what was not asked for is known to be unknown.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml_edit::TableLike;

use crate::report::error::Report;
use crate::report::place::Place;
use crate::table::column::Column;
use crate::value::rows::{Cell, TableRow};
use crate::value::scalar::Scalar;
use crate::value::suggest::{quotable, unknown_key};

/// The source of a row's values.
#[derive(Clone, Copy)]
pub(crate) enum Source<'t> {
    /// A table of a file in TOML.
    File(&'t dyn TableLike),
    /// A row of the database, or variables.
    Row(&'t TableRow),
}

impl<'t> Source<'t> {
    fn value(self, name: &str) -> Option<Scalar<'t>> {
        match self {
            Self::File(table) => table.get(name).map(Scalar::of_item),
            Self::Row(row) => row.get(name).and_then(Scalar::of_cell),
        }
    }

    fn line_of(self, name: &str, report: &Report) -> Option<usize> {
        match self {
            Self::File(table) => line_of_key(table, name, report),
            Self::Row(_) => None,
        }
    }

    /// [`TableRow::kept_at`]
    pub(crate) fn kept_at(self) -> Option<usize> {
        match self {
            Self::File(_) => None,
            Self::Row(row) => row.kept_at(),
        }
    }

    fn is_file(self) -> bool {
        matches!(self, Self::File(_))
    }

    fn values(self) -> Vec<(&'t str, Scalar<'t>)> {
        match self {
            Self::File(table) => table.iter().map(|(name, item)| (name, Scalar::of_item(item))).collect(),
            Self::Row(row) => {
                let given =
                    |(name, cell): (&'t str, &'t Cell)| Scalar::of_cell(cell).map(|value| (name, value));
                row.iter().filter_map(given).collect()
            }
        }
    }
}

/// The meaning of a key that nobody took.
pub(crate) enum Leftover {
    /// It is accepted: it says what is so anyway.
    Nothing,
    /// It can't be followed, and why.
    NotBuilt(String),
    /// Nobody knows it.
    Unknown,
}

/// A table being read. Each reader takes a key; [`Fields::finish`] refuses the keys that nobody took.
///
/// A reader that meets a fault reports it and gives the default, so that the rest of the file is checked too.
pub(crate) struct Fields<'t, 'r> {
    place: &'r Place<'r>,
    source: Source<'t>,
    columns: &'static [Column],
    taken: Vec<&'static str>,
    pub(crate) report: &'r mut Report,
}

impl<'t, 'r> Fields<'t, 'r> {
    pub(crate) fn new(place: &'r Place<'r>, source: Source<'t>, report: &'r mut Report) -> Self {
        Self { place, source, columns: &[], taken: Vec::with_capacity(40), report }
    }

    pub(crate) fn of(row: &'r Row<'t>, report: &'r mut Report) -> Self {
        Self { columns: row.columns, ..Self::new(&row.place, row.source, report) }
    }

    /// The line of `name`, or of the table if it isn't there.
    fn line(&self, name: &str) -> usize {
        self.source.line_of(name, self.report).unwrap_or(self.place.line())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.source.value(name).is_some()
    }

    /// Whether the values are those of a database.
    pub(crate) fn is_row(&self) -> bool {
        !self.source.is_file()
    }

    /// Reports a fault of `name`.
    pub(crate) fn refuse(&mut self, name: &str, reason: impl Display) {
        let line = self.line(name);
        self.report.refuse_line(line, self.place.key(name), reason.to_string());
    }

    /// Reports that `name` has a value without effect: a fault of a file, a warning otherwise.
    pub(crate) fn tolerate(&mut self, name: &str, reason: impl Display) {
        let line = self.line(name);
        self.report.tolerate_line(line, self.place.key(name), reason.to_string());
    }

    /// The value of `name`, which then counts as known.
    pub(crate) fn item(&mut self, name: &'static str) -> Option<Scalar<'t>> {
        self.taken.push(name);
        self.source.value(name)
    }

    fn column(&self, name: &str) -> Option<&'static Column> {
        let found = self.columns.iter().find(|column| column.name == name);
        debug_assert!(found.is_some(), "{name} is not a column of this table");
        found
    }

    /// A number that the table's column takes, or its default.
    pub(crate) fn number<T: TryFrom<i64> + Default>(&mut self, name: &'static str) -> T {
        let default = self.default(name);
        self.number_or(name, default)
    }

    /// The same with another default.
    pub(crate) fn number_or<T: TryFrom<i64>>(&mut self, name: &'static str, default: T) -> T {
        let Some(Column { range: (least, most), .. }) = self.column(name) else { return default };
        let number = self.optional_integer(name, *least..=*most);
        number.and_then(|number| T::try_from(number).ok()).unwrap_or(default)
    }

    /// The number of a row that gives none.
    pub(crate) fn default<T: TryFrom<i64> + Default>(&self, name: &str) -> T {
        self.column(name).and_then(|column| T::try_from(column.default).ok()).unwrap_or_default()
    }

    /// A number that the table's column takes, none if it is missing.
    pub(crate) fn optional_number<T: TryFrom<i64> + Default>(&mut self, name: &'static str) -> Option<T> {
        self.has(name).then(|| self.number(name))
    }

    /// A column of 0 and 1, or its default.
    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        let default = self.column(name).is_some_and(|column| column.default != 0);
        self.boolean(name, default)
    }

    /// A column of ProxySQL of which only the default (an integer or its boolean) is built.
    pub(crate) fn only_default(&mut self, name: &'static str) {
        let built = self.column(name).map_or(0, |column| column.default);
        let Some(item) = self.item(name) else { return };
        let given = item.as_integer().or_else(|| item.as_bool().map(i64::from));
        match given {
            Some(value) if value == built => {}
            Some(_) => self.tolerate(name, format!("{} is not built yet (only {built})", item.describe())),
            None => self.refuse(name, format!("{} is not an integer", item.describe())),
        }
    }

    /// An integer within `range`.
    pub(crate) fn integer<T>(&mut self, name: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Copy + Display + PartialOrd + TryFrom<i64>,
    {
        self.optional_integer(name, range).unwrap_or(default)
    }

    /// The same, none if it is missing or refused.
    pub(crate) fn optional_integer<T>(&mut self, name: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + Display + PartialOrd + TryFrom<i64>,
    {
        let number = self.any_integer(name)?;
        let value = T::try_from(number).ok().filter(|number| range.contains(number));
        if value.is_none() {
            let out = format!("{number} is out of range ({}..{})", range.start(), range.end());
            self.refuse(name, out);
        }
        value
    }

    /// An integer of any size, or none if it is missing or something else.
    pub(crate) fn any_integer(&mut self, name: &'static str) -> Option<i64> {
        let item = self.item(name)?;
        if item.as_integer().is_none() {
            self.refuse(name, format!("{} is not an integer", item.describe()));
        }
        item.as_integer()
    }

    /// true, false, 1 or 0.
    pub(crate) fn boolean(&mut self, name: &'static str, default: bool) -> bool {
        self.optional_boolean(name).unwrap_or(default)
    }

    /// The same, none if it is missing or refused.
    pub(crate) fn optional_boolean(&mut self, name: &'static str) -> Option<bool> {
        let item = self.item(name)?;
        if item.as_bool().is_none() {
            self.refuse(name, format!("{} is neither true nor false", item.describe()));
        }
        item.as_bool()
    }

    /// A path, none if it is missing, empty or refused.
    pub(crate) fn path(&mut self, name: &'static str, chars_max: usize) -> Option<PathBuf> {
        self.optional_text(name, chars_max).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// A string without zero bytes of at most `chars_max` characters.
    pub(crate) fn text(&mut self, name: &'static str, default: &str, chars_max: usize) -> String {
        self.optional_text(name, chars_max).unwrap_or_else(|| default.to_owned())
    }

    /// As [`Fields::text`], none if it is missing or refused.
    pub(crate) fn optional_text(&mut self, name: &'static str, chars_max: usize) -> Option<String> {
        let item = self.item(name)?;
        let Some(text) = self.text_of(item) else {
            self.refuse(name, format!("{} is not a string", item.describe()));
            return None;
        };
        if text.len() > chars_max && text.chars().count() > chars_max {
            self.refuse(name, format!("longer than {chars_max} characters"));
            return None;
        }
        // ProxySQL's users have lines in comments and patterns, and a file can say all that a table can.
        if text.contains('\0') {
            self.refuse(name, "contains a zero byte");
            return None;
        }
        Some(text.into_owned())
    }

    /// In a database a number may stand where a text is meant.
    fn text_of(&self, item: Scalar<'t>) -> Option<Cow<'t, str>> {
        match item {
            Scalar::Integer(number) if self.is_row() => Some(number.to_string().into()),
            _ => item.as_str().map(Cow::Borrowed),
        }
    }

    /// A string that no fault may quote.
    pub(crate) fn secret_text(&mut self, name: &'static str, bytes_max: usize) -> Option<String> {
        let item = self.item(name)?;
        match self.text_of(item) {
            Some(text) if text.len() > bytes_max => {
                self.refuse(name, format!("longer than {bytes_max} bytes"));
                None
            }
            Some(text) if text.contains('\0') => {
                self.refuse(name, "contains a zero byte");
                None
            }
            Some(text) => Some(text.into_owned()),
            None => {
                self.refuse(name, format!("{} is not a string", item.kind()));
                None
            }
        }
    }

    /// Refuses every key that was not taken; `known` names those that ProxySQL has.
    pub(crate) fn finish(self, what_of: impl Fn(&str, Scalar<'_>) -> Leftover, known: &[&'static str]) {
        for (name, value) in self.source.values() {
            if self.taken.contains(&name) {
                continue;
            }
            let line = self.source.line_of(name, self.report).unwrap_or(self.place.line());
            let reason = match what_of(name, value) {
                Leftover::Nothing => continue,
                Leftover::NotBuilt(reason) => reason,
                Leftover::Unknown => unknown_key(name, self.taken.iter().chain(known).copied()),
            };
            self.report.tolerate_line(line, self.place.key(&quotable(name)), reason);
        }
    }

    /// [`Fields::finish`] of a table all of whose columns are known.
    pub(crate) fn finish_row(self) {
        self.finish(|_, _| Leftover::Unknown, &[]);
    }
}

/// The line of the key `name` in `table`.
pub(crate) fn line_of_key(table: &dyn TableLike, name: &str, report: &Report) -> Option<usize> {
    let (key, item) = table.get_key_value(name)?;
    let span = key.span().or_else(|| item.span())?;
    Some(report.line_of(span.start))
}

/// A row of a table before it is read.
pub(crate) struct Row<'t> {
    pub(crate) columns: &'static [Column],
    pub(crate) place: Place<'t>,
    pub(crate) source: Source<'t>,
}
