//! Finds the assignments of a SET statement.

use std::ops::Range;

use super::{Cursor, unquote};
use crate::dialect::Dialect;
use crate::scan::{Item, ItemKind, Tokens as _, items};
use crate::words::Word;

/// The value of a variable that is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `SESSION`, `LOCAL`, `@@session.`, `@@local.`
    Session,
    /// `GLOBAL`, `@@global.`
    Global,
    /// `PERSIST` or `PERSIST_ONLY`, with or without `@@` (MySQL).
    Persist,
    /// None was written: the session's value. After `SET GLOBAL a = 1, b = 2` the scope of `b` is Global.
    Unscoped,
}

/// One assignment of a SET statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The bytes from the scope, name or `@` to the end of the value.
    pub range: Range<usize>,
    /// Which value; for user variables of no meaning.
    pub scope: Scope,
    /// The variable without `@`, scope and quotes, ASCII letters in lower case. `names` and `character set`
    /// for SET NAMES and SET CHARACTER SET or CHARSET. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The bytes of the value: for NAMES with its COLLATE.
    pub value_range: Range<usize>,
    /// Whether it is `@name`.
    pub user_variable: bool,
}

/// The assignments of a SET statement, in order.
///
/// `None` if the text is not a single SET statement of variables (SET TRANSACTION, SET ROLE, SET PASSWORD, SET
/// STATEMENT and the like are not), or cannot be read with certainty. What an executable comment contains
/// counts as if it stood outside.
pub fn assignments(text: &[u8], dialect: Dialect) -> Option<Vec<Assignment>> {
    let mut cursor = Cursor::new(text, dialect);
    let (first, second) = match cursor.only_statement()? {
        [first, second, ..] => (first.word, second.word),
        _ => return None,
    };
    let other = matches!(
        second,
        Word::STATEMENT | Word::ROLE | Word::DEFAULT | Word::PASSWORD | Word::RESOURCE | Word::TRANSACTION
    );
    if first != Word::SET || other {
        return None;
    }
    cursor.advance();
    let mut found = Vec::new();
    items(&mut cursor, false, &mut |item| found.push(item));
    found.into_iter().map(|item| assignment(text, &item)).collect()
}

/// The text with `@@session.name` in place of each `@@name` that is assigned and means the same: servers report an
/// assignment with a scope ([`Effects::UNTRACKED`]). `None` as for [`assignments`].
///
/// [`Effects::UNTRACKED`]: crate::Effects::UNTRACKED
pub fn scoped_assignments(text: &[u8], dialect: Dialect) -> Option<Vec<u8>> {
    let mut scoped = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    for assignment in assignments(text, dialect)? {
        let written = text.get(assignment.range.clone())?;
        let means_next_transaction = matches!(
            assignment.name.as_str(),
            "tx_isolation" | "transaction_isolation" | "tx_read_only" | "transaction_read_only"
        );
        if assignment.scope != Scope::Unscoped || means_next_transaction || !written.starts_with(b"@@") {
            continue;
        }
        let name = assignment.range.start + 2;
        scoped.extend_from_slice(text.get(at..name)?);
        scoped.extend_from_slice(b"session.");
        at = name;
    }
    scoped.extend_from_slice(text.get(at..)?);
    Some(scoped)
}

fn assignment(text: &[u8], item: &Item) -> Option<Assignment> {
    if item.value.0 >= item.value.1 || item.name.0 >= item.name.1 {
        return None;
    }
    let name = text.get(item.name.0..item.name.1)?;
    let name = match item.kind {
        ItemKind::Names => "names".to_owned(),
        ItemKind::CharacterSet => "character set".to_owned(),
        ItemKind::User => lower(&unquoted(name.get(1..)?)),
        ItemKind::System => lower(&unquoted(name)),
        ItemKind::Role | ItemKind::DefaultRole | ItemKind::Password => return None,
    };
    if name == "transaction" && item.kind == ItemKind::System {
        return None;
    }
    Some(Assignment {
        range: item.range.0..item.range.1,
        scope: item.scope,
        name,
        value_range: item.value.0..item.value.1,
        user_variable: item.kind == ItemKind::User,
    })
}

fn unquoted(name: &[u8]) -> Vec<u8> {
    match name.first() {
        Some(b'`' | b'"' | b'\'') => unquote(name),
        _ => name.to_vec(),
    }
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}
