//! USE and KILL, which are one thing and nothing else.

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::words::Word;

/// What KILL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillKind {
    /// The connection, with what it runs.
    Connection,
    /// The statement that the connection runs.
    Query,
}

/// A KILL statement with a connection's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// What is ended.
    pub kind: KillKind,
    /// `KILL SOFT` (MariaDB): not in the middle of an operation that would leave a table unusable.
    pub soft: bool,
    /// The connection.
    pub id: u64,
}

/// The target of `KILL [HARD | SOFT] [CONNECTION | QUERY] <decimal number>`.
///
/// `None` for any other text: KILL USER, KILL QUERY ID, expressions, several statements.
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
    let &[id] = rest else { return None };
    if id.kind != TokenKind::Number {
        return None;
    }
    let id = std::str::from_utf8(cursor.text_of(id)).ok()?.parse().ok()?;
    Some(Kill { kind: if query { KillKind::Query } else { KillKind::Connection }, soft, id })
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
