//! Finds the files that LOAD DATA LOCAL names.

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::words::Word;

/// Whether a text contains a `LOAD {DATA | XML} [LOW_PRIORITY | CONCURRENT] LOCAL INFILE '<name>'` of this file. A
/// name written with escapes stands for any.
///
/// False if the text cannot be read with certainty.
pub fn names_local_file(text: &[u8], dialect: Dialect, name: &[u8]) -> bool {
    let cursor = Cursor::new(text, dialect);
    let is_word = |token: &Token, word: &[u8]| {
        token.kind == TokenKind::Word && cursor.text_of(*token).eq_ignore_ascii_case(word)
    };
    let names = |tokens: &[Token]| {
        let [load, what, rest @ ..] = tokens else { return false };
        let rest = match rest {
            [word, rest @ ..] if word.word == Word::LOW_PRIORITY || is_word(word, b"CONCURRENT") => rest,
            rest => rest,
        };
        let [local, infile, file, ..] = rest else { return false };
        load.word == Word::LOAD
            && (what.word == Word::DATA || is_word(what, b"XML"))
            && local.word == Word::LOCAL
            && is_word(infile, b"INFILE")
            && file.kind == TokenKind::Text
            && stands_for(cursor.text_of(*file), name)
    };
    !cursor.flaws.malformed && (0..cursor.tokens.len()).any(|at| names(&cursor.tokens[at..]))
}

/// Whether a string literal is this string, or has escapes and may be.
fn stands_for(literal: &[u8], name: &[u8]) -> bool {
    let (Some(quote), Some(inner)) = (literal.first(), literal.get(1..literal.len().saturating_sub(1)))
    else {
        return false;
    };
    let is_plain = matches!(quote, b'\'' | b'"') && !inner.iter().any(|byte| *byte == b'\\' || byte == quote);
    !is_plain || inner == name
}
