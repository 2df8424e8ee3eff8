//! Holds a value, whether it is written in TOML or stands in a row.

use toml_edit::{Item, Value};

use crate::value::rows::Cell;
use crate::value::suggest::quotable;

/// A value as the readers of tables see it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar<'t> {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    /// The text, and whether it may stand for a number or a boolean, as in `global_variables`.
    Text(&'t str, bool),
    /// What no column takes, in words.
    Other(&'static str),
}

impl<'t> Scalar<'t> {
    pub(crate) fn of_item(item: &'t Item) -> Self {
        match item {
            Item::Value(Value::String(text)) => Self::Text(text.value(), false),
            Item::Value(Value::Integer(number)) => Self::Integer(*number.value()),
            Item::Value(Value::Float(number)) => Self::Real(*number.value()),
            Item::Value(Value::Boolean(value)) => Self::Boolean(*value.value()),
            Item::Value(Value::Datetime(_)) => Self::Other("a date"),
            Item::Value(Value::Array(_)) => Self::Other("a list"),
            Item::ArrayOfTables(_) => Self::Other("a list of tables"),
            Item::Value(Value::InlineTable(_)) | Item::Table(_) => Self::Other("a table"),
            Item::None => Self::Other("nothing"),
        }
    }

    /// None if the column isn't given.
    pub(crate) fn of_cell(cell: &'t Cell) -> Option<Self> {
        match cell {
            Cell::Null => None,
            Cell::Integer(number) => Some(Self::Integer(*number)),
            Cell::Real(number) => Some(Self::Real(*number)),
            Cell::Text(text) => Some(Self::Text(text, true)),
        }
    }

    pub(crate) fn as_integer(self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(number),
            Self::Text(text, true) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// true, false, 1 or 0.
    pub(crate) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(value),
            Self::Text(text, true) if text.eq_ignore_ascii_case("true") => Some(true),
            Self::Text(text, true) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => match self.as_integer() {
                Some(1) => Some(true),
                Some(0) => Some(false),
                _ => None,
            },
        }
    }

    pub(crate) fn as_str(self) -> Option<&'t str> {
        match self {
            Self::Text(text, _) => Some(text),
            _ => None,
        }
    }

    /// Whether it says "off".
    pub(crate) fn is_off(self) -> bool {
        self.as_bool() == Some(false) || self.as_str() == Some("")
    }

    /// As a fault quotes it.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Text(text, _) => format!("\"{}\"", quotable(text)),
            Self::Integer(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Boolean(value) => value.to_string(),
            Self::Other(kind) => kind.to_owned(),
        }
    }

    /// What it is, without the value.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Text(..) => "a string",
            Self::Integer(_) => "an integer",
            Self::Real(_) => "a decimal number",
            Self::Boolean(_) => "a boolean",
            Self::Other(kind) => kind,
        }
    }
}
