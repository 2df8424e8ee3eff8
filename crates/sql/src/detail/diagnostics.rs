//! Reads GET DIAGNOSTICS, in the forms that applications use.

use std::ops::Range;

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::scan::Tokens as _;
use crate::words::Word;

/// The request of a GET DIAGNOSTICS statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticsRequest {
    /// The number of the condition, from 1 on; `None` for what is said of the statement as a whole.
    pub condition: Option<u64>,
    /// In the order they are written, at least one.
    pub items: Vec<DiagnosticsItem>,
}

/// One `target = name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticsItem {
    /// The bytes of the user variable, with its `@`.
    pub target: Range<usize>,
    /// What it is to get.
    pub field: DiagnosticsField,
}

/// A piece of information about a statement, or about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticsField {
    /// How many conditions there are.
    Number,
    /// ROW_COUNT() of the statement.
    RowCount,
    /// Five characters.
    ReturnedSqlstate,
    /// The error number.
    MysqlErrno,
    /// For people.
    MessageText,
}

/// The names of what is said of a statement.
const OF_STATEMENT: [(&str, DiagnosticsField); 2] =
    [("number", DiagnosticsField::Number), ("row_count", DiagnosticsField::RowCount)];
/// The names of what is said of a condition, without those that only SIGNAL fills.
const OF_CONDITION: [(&str, DiagnosticsField); 3] = [
    ("returned_sqlstate", DiagnosticsField::ReturnedSqlstate),
    ("mysql_errno", DiagnosticsField::MysqlErrno),
    ("message_text", DiagnosticsField::MessageText),
];

/// Reads `GET [CURRENT] DIAGNOSTICS @target = name, ...` or `GET [CURRENT] DIAGNOSTICS CONDITION <number> @target =
/// name, ...`.
///
/// `None` for any other text: other targets than user variables, other names, a number that is no literal, several
/// statements, executable comments.
pub fn diagnostics_request(text: &[u8], dialect: Dialect) -> Option<DiagnosticsRequest> {
    let mut cursor = Cursor::new(text, dialect);
    cursor.only_statement()?;
    if cursor.flaws.executable_comment || cursor.now().word != Word::GET {
        return None;
    }
    cursor.advance();
    if cursor.is(cursor.now(), "current") {
        cursor.advance();
    }
    if cursor.now().word != Word::DIAGNOSTICS {
        return None;
    }
    cursor.advance();
    let condition = match cursor.is(cursor.now(), "condition") {
        true => Some(number(&mut cursor)?),
        false => None,
    };
    let fields: &[(&str, DiagnosticsField)] = match condition {
        Some(_) => &OF_CONDITION,
        None => &OF_STATEMENT,
    };
    let mut items = Vec::new();
    loop {
        items.push(item(&mut cursor, fields)?);
        if cursor.at_end() {
            return Some(DiagnosticsRequest { condition, items });
        }
        if cursor.now().kind != TokenKind::Comma {
            return None;
        }
        cursor.advance();
    }
}

/// The literal behind CONDITION.
fn number(cursor: &mut Cursor<'_>) -> Option<u64> {
    cursor.advance();
    let number = cursor.now();
    let digits = std::str::from_utf8(cursor.text_of(number)).ok()?;
    cursor.advance();
    if number.kind != TokenKind::Number { None } else { digits.parse().ok() }
}

fn item(cursor: &mut Cursor<'_>, fields: &[(&str, DiagnosticsField)]) -> Option<DiagnosticsItem> {
    let &[target, equals, name, ..] = cursor.ahead() else { return None };
    let is_target = target.kind == TokenKind::UserVariable && target.range().len() > 1;
    if !is_target || equals.kind != TokenKind::Equals {
        return None;
    }
    let is_name = |known: &str, name: Token| cursor.is(name, known);
    let (_, field) = fields.iter().find(|(known, _)| is_name(known, name))?;
    for _ in 0..3 {
        cursor.advance();
    }
    Some(DiagnosticsItem { target: target.range(), field: *field })
}
