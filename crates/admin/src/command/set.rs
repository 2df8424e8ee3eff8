//! Reads `SET`.

use crate::error::SqlError;
use crate::tokens::{Cursor, Kind};

/// The target of a SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A row of global_variables: the name begins with `mysql-` or `admin-`.
    Configuration,
    /// What a driver sets for its session, which has no meaning here.
    Session,
}

/// `name = value`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub scope: Scope,
    pub name: String,
    pub value: String,
}

/// What follows SET.
pub(super) fn set(cursor: &mut Cursor<'_, '_>) -> Result<Vec<Assignment>, SqlError> {
    let mut assignments = Vec::new();
    loop {
        if let Some(assignment) = special(cursor) {
            assignments.push(assignment);
        } else {
            let next = assignment(cursor);
            assignments.push(next.ok_or_else(|| SqlError::syntax("SET takes: name = value"))?);
        }
        if cursor.is_empty() {
            return Ok(assignments);
        }
        if !cursor.takes_symbol(',') {
            return Err(SqlError::syntax("SET takes: name = value, with text in quotes"));
        }
    }
}

/// `NAMES x`, `CHARACTER SET x`, up to a comma, and `[scope] TRANSACTION ...` to the end: nothing of it means anything
/// here.
fn special(cursor: &mut Cursor<'_, '_>) -> Option<Assignment> {
    let mut ahead = cursor.clone();
    ahead.takes_any(&["SESSION", "GLOBAL", "LOCAL"]);
    let name = if ahead.takes("NAMES") {
        "names"
    } else if (ahead.takes("CHARACTER") && ahead.takes("SET")) || ahead.takes("CHARSET") {
        "character_set_client"
    } else if ahead.takes("TRANSACTION") {
        "transaction_isolation"
    } else {
        return None;
    };
    if ahead.peek().is_none_or(|token| token.is_symbol('=')) {
        return None;
    }
    let is_end = |cursor: &Cursor<'_, '_>| {
        cursor.peek().is_none_or(|token| token.is_symbol(',') && name != "transaction_isolation")
    };
    while !is_end(&ahead) {
        ahead.next();
    }
    *cursor = ahead;
    Some(Assignment { scope: Scope::Session, name: name.to_owned(), value: String::new() })
}

fn assignment(cursor: &mut Cursor<'_, '_>) -> Option<Assignment> {
    let name = name(cursor)?;
    if !cursor.takes_symbol('=') {
        cursor.takes_symbol(':').then_some(())?;
        cursor.takes_symbol('=').then_some(())?;
    }
    let value = value(cursor)?;
    let is_ours = name.starts_with("mysql-") || name.starts_with("admin-") || name.contains('-');
    let scope = if is_ours { Scope::Configuration } else { Scope::Session };
    Some(Assignment { scope, name, value })
}

/// `mysql-x`, `'mysql-x'`, `@@mysql-x`, `@@session.x`, `SESSION x`.
fn name(cursor: &mut Cursor<'_, '_>) -> Option<String> {
    let is_system = cursor.takes_symbol('@');
    cursor.takes_symbol('@');
    let first = cursor.next().filter(|token| token.kind != Kind::Symbol)?;
    let is_scope = ["SESSION", "GLOBAL", "LOCAL", "PERSIST"].iter().any(|scope| first.is(scope));
    let first = match cursor.peek() {
        Some(dot) if is_scope && is_system && dot.is_symbol('.') => {
            cursor.next();
            cursor.next()?
        }
        Some(next) if is_scope && !is_system && (next.kind != Kind::Symbol || next.is_symbol('@')) => {
            return name(cursor);
        }
        _ => first,
    };
    let mut name = first.value().into_owned();
    while cursor.takes_symbol('-') {
        name.push('-');
        name.push_str(&cursor.next().filter(|token| token.kind == Kind::Word)?.value());
    }
    Some(name.to_ascii_lowercase())
}

/// Text in quotes, or what stands there up to a comma, as ProxySQL takes `SET mysql-interfaces=0.0.0.0:6033`.
fn value(cursor: &mut Cursor<'_, '_>) -> Option<String> {
    if cursor.peek()?.kind == Kind::Text {
        let text = cursor.next()?.value().into_owned();
        return cursor.peek().is_none_or(|token| token.is_symbol(',')).then_some(text);
    }
    let mut value = String::new();
    let mut end = None;
    let mut depth = 0_usize;
    while let Some(token) = cursor.peek() {
        if token.is_symbol(',') && depth == 0 {
            break;
        }
        if end.is_some_and(|end| end != token.span.start) && token.kind != Kind::Symbol {
            value.push(' ');
        }
        depth = match token {
            token if token.is_symbol('(') => depth + 1,
            token if token.is_symbol(')') => depth.saturating_sub(1),
            _ => depth,
        };
        value.push_str(&token.value());
        end = Some(token.span.end);
        cursor.next();
    }
    (!value.is_empty()).then_some(value)
}
