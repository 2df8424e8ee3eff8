//! Gives SQLite its `instr` (also as MySQL's `locate`), `replace` and `trim`, in a time in proportion to their arguments: SQLite's own compare every place of
//! one with all of another, and can't be stopped meanwhile.

use std::borrow::Cow;
use std::collections::HashSet;

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};

/// Puts them in the place of SQLite's.
pub(super) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("instr", 2, flags, |context: &Context<'_>| {
        let (Some(text), Some(part)) = (piece(context.get_raw(0)), piece(context.get_raw(1))) else {
            return Ok(Value::Null);
        };
        Ok(Value::Integer(position(&text, &part)))
    })?;
    // MySQL's name for it, with which drivers look for types.
    connection.create_scalar_function("locate", 2, flags, |context: &Context<'_>| {
        let (Some(part), Some(text)) = (piece(context.get_raw(0)), piece(context.get_raw(1))) else {
            return Ok(Value::Null);
        };
        Ok(Value::Integer(position(&text, &part)))
    })?;
    connection.create_scalar_function("replace", 3, flags, |context: &Context<'_>| {
        let [text, part, other] = [0, 1, 2].map(|at| piece(context.get_raw(at)));
        let (Some(text), Some(part)) = (text, part) else { return Ok(Value::Null) };
        if part.is_empty() {
            return Ok(Value::Text(text.into_owned()));
        }
        let Some(other) = other else { return Ok(Value::Null) };
        replaced(&text, &part, &other).map(Value::Text).ok_or_else(too_large)
    })?;
    for (name, at_start, at_end) in [("trim", true, true), ("ltrim", true, false), ("rtrim", false, true)] {
        connection.create_scalar_function(name, 2, flags, move |context: &Context<'_>| {
            let (Some(text), Some(part)) = (piece(context.get_raw(0)), piece(context.get_raw(1))) else {
                return Ok(Value::Null);
            };
            let unwanted: HashSet<char> = part.chars().collect();
            let text: &str =
                if at_start { text.trim_start_matches(|c| unwanted.contains(&c)) } else { &text };
            let text = if at_end { text.trim_end_matches(|c| unwanted.contains(&c)) } else { text };
            Ok(Value::Text(text.to_owned()))
        })?;
    }
    Ok(())
}

/// A value as text; NULL is none.
fn piece(value: ValueRef<'_>) -> Option<Cow<'_, str>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into()),
        ValueRef::Real(number) => Some(format!("{number:?}").into()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes)),
    }
}

/// Of the first character, from 1; 0 if `part` is not in it.
fn position(text: &str, part: &str) -> i64 {
    let found = text.find(part).and_then(|at| text.get(..at));
    found.map_or(0, |before| i64::try_from(before.chars().count() + 1).unwrap_or(i64::MAX))
}

/// `part` is not empty. None: it would be larger than a value may be.
fn replaced(text: &str, part: &str, other: &str) -> Option<String> {
    let count = text.matches(part).count();
    let len = text.len() - count * part.len() + count.checked_mul(other.len())?;
    (len <= crate::limits::VALUE_BYTES_MAX as usize).then(|| text.replace(part, other))
}

fn too_large() -> rusqlite::Error {
    rusqlite::Error::UserFunctionError("string or blob too big".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_give_what_sqlite_s_own_give() {
        let (ours, own) = (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
        register(&ours).unwrap();
        let texts = [
            "NULL", "''", "'a'", "'aXbXc'", "'äöü'", "'ö'", "'XX'", "12", "1.5", "2.0", "'  a '", "x'41'",
            "'a%'",
        ];
        for first in texts {
            for second in texts {
                let calls = [
                    format!("instr({first}, {second})"),
                    format!(
                        "trim({first}, {second}) || ltrim({first}, {second}) || rtrim({first}, {second})"
                    ),
                    format!("replace({first}, {second}, 'öX')"),
                    format!("replace({first}, {second}, NULL)"),
                    format!("trim({first})"),
                ];
                for call in calls {
                    let of = |connection: &Connection| -> Value {
                        connection.query_row(&format!("SELECT {call}"), [], |row| row.get(0)).unwrap()
                    };
                    assert_eq!(of(&ours), of(&own), "{call}");
                }
            }
        }
    }

    #[test]
    fn nothing_becomes_too_large() {
        let text = "a".repeat(1 << 20);
        assert_eq!(replaced(&text, "a", "bb"), None);
        assert_eq!(replaced(&text, "aa", "b").map(|text| text.len()), Some(1 << 19));
    }
}
