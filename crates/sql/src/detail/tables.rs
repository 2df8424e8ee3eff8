//! Whether a query can do without tables.

use super::Cursor;
use crate::dialect::Dialect;
use crate::words::Word;

/// Whether a text may use a table: it has the words FROM or TABLE, or cannot be read with certainty. For SELECT and
/// DO without routines.
pub fn may_use_tables(text: &[u8], dialect: Dialect) -> bool {
    let cursor = Cursor::new(text, dialect);
    cursor.flaws.malformed || cursor.tokens.iter().any(|token| matches!(token.word, Word::FROM | Word::TABLE))
}
