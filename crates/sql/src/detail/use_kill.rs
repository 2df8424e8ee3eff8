//! Reads USE and KILL, where they are a statement's only effect.

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::words::Word;

/// The thing that KILL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillKind {
    /// The connection, with what it runs.
    Connection,
    /// The statement that the connection runs.
    Query,
}

/// The connection or user that KILL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillTarget {
    /// The connection with this id.
    Connection(u64),
    /// Every connection of this user (MariaDB), without a host.
    User(Vec<u8>),
}

/// A KILL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// What is ended.
    pub kind: KillKind,
    /// `KILL SOFT` (MariaDB): not in the middle of an operation that would leave a table unusable.
    pub soft: bool,
    /// Whose.
    pub target: KillTarget,
}

/// The target of `KILL [HARD | SOFT] [CONNECTION | QUERY] {<decimal number> | USER <name>}`.
///
/// A negative number is what drivers make of a connection id above 2,147,483,647 that they keep as a signed one (MariaDB
/// Connector/J 2.7).
///
/// `None` for any other text: KILL QUERY ID, users with a host, expressions, several statements.
pub fn kill_target(text: &[u8], dialect: Dialect) -> Option<Kill> {
    let cursor = Cursor::new(text, dialect);
    let (kill, mut rest) = cursor.only_statement()?.split_first()?;
    if kill.word != Word::KILL || cursor.flaws.executable_comment {
        return None;
    }
    let mut next_is = |words: &[Word]| {
        let word = rest.first().map(|token| token.word).filter(|word| words.contains(word));
        rest = rest.get(usize::from(word.is_some())..).unwrap_or_default();
        word
    };
    let soft = next_is(&[Word::HARD, Word::SOFT]) == Some(Word::SOFT);
    let query = next_is(&[Word::CONNECTION, Word::QUERY]) == Some(Word::QUERY);
    let target = match *rest {
        [id] if id.kind == TokenKind::Number => {
            KillTarget::Connection(std::str::from_utf8(cursor.text_of(id)).ok()?.parse().ok()?)
        }
        [sign, id] if cursor.text_of(sign) == b"-" && id.kind == TokenKind::Number => {
            let number: u32 = std::str::from_utf8(cursor.text_of(id)).ok()?.parse().ok()?;
            KillTarget::Connection(number.wrapping_neg().into())
        }
        [Token { word: Word::USER, .. }, user] => KillTarget::User(user_name(&cursor, user)?),
        _ => return None,
    };
    Some(Kill { kind: if query { KillKind::Query } else { KillKind::Connection }, soft, target })
}

/// A user's name as an identifier or as a string without escapes.
fn user_name(cursor: &Cursor<'_>, token: Token) -> Option<Vec<u8>> {
    if token.is_name() {
        return Some(cursor.name(token));
    }
    let text = cursor.text_of(token);
    let is_plain = token.kind == TokenKind::Text && matches!(text.first(), Some(b'\'' | b'"'));
    let inner = text.get(1..text.len().saturating_sub(1)).filter(|_| is_plain)?;
    (!inner.iter().any(|byte| matches!(byte, b'\'' | b'"' | b'\\'))).then(|| inner.to_vec())
}

/// The schema of a USE statement, without its quotes, in the letter case it is written in.
///
/// `None` if the text is not a single USE statement, or cannot be read with certainty.
pub fn use_schema(text: &[u8], dialect: Dialect) -> Option<Vec<u8>> {
    let cursor = Cursor::new(text, dialect);
    let &[Token { word: Word::USE, .. }, schema] = cursor.only_statement()? else {
        return None;
    };
    (schema.is_name() && !cursor.flaws.executable_comment).then(|| cursor.name(schema))
}
