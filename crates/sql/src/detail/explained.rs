//! Finds the connection whose plan a statement asks for.

use std::ops::Range;

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};

/// The connection that `EXPLAIN FOR CONNECTION`, `ANALYZE FOR CONNECTION`, `SHOW EXPLAIN FOR` or `SHOW ANALYZE FOR` names,
/// and where in the text its number stands.
///
/// `None` for every other text, also if such a statement is one of several, names it by an expression, or if the text can't
/// be read with certainty.
pub fn explained_connection(text: &[u8], dialect: Dialect) -> Option<(u32, Range<usize>)> {
    let cursor = Cursor::new(text, dialect);
    let is = |token: &Token, words: &[&str]| {
        let text = cursor.text_of(*token);
        token.kind == TokenKind::Word && words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
    };
    let rest = match cursor.only_statement()? {
        [show, what, rest @ ..] if is(show, &["SHOW"]) && is(what, &["EXPLAIN", "ANALYZE"]) => rest,
        [first, rest @ ..] if is(first, &["EXPLAIN", "DESCRIBE", "DESC", "ANALYZE"]) => rest,
        _ => return None,
    };
    let rest = match rest {
        [format, equals, _, rest @ ..] if is(format, &["FORMAT"]) && equals.kind == TokenKind::Equals => rest,
        rest => rest,
    };
    let number = match rest {
        [reason, connection, number] if is(reason, &["FOR"]) && is(connection, &["CONNECTION"]) => number,
        [reason, number] if is(reason, &["FOR"]) => number,
        _ => return None,
    };
    let id = std::str::from_utf8(cursor.text_of(*number)).ok()?.parse().ok()?;
    (number.kind == TokenKind::Number).then(|| (id, number.range()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_statement_asks_for_the_plan() {
        for (text, found) in [
            ("EXPLAIN FOR CONNECTION 3000000017", Some((3_000_000_017, 23..33))),
            ("explain format=json for connection  3000000017 ;\n", Some((3_000_000_017, 36..46))),
            ("SHOW EXPLAIN FOR 5", Some((5, 17..18))),
            ("ANALYZE FORMAT=JSON FOR CONNECTION 5", Some((5, 35..36))),
            ("SHOW ANALYZE FORMAT=JSON FOR 5", Some((5, 29..30))),
            ("desc/**/for/**/connection/**/5 -- its plan", Some((5, 29..30))),
            ("SHOW EXPLAIN/**/FOR 5 /* */", Some((5, 20..21))),
            ("EXPLAIN SELECT 5", None),
            ("EXPLAIN SELECT 1 FROM t WHERE a=5", None),
            ("EXPLAIN SELECT 1 -- FOR 5", None),
            ("ANALYZE UPDATE t SET v=1 -- FOR 5", None),
            ("EXPLAIN SELECT 1; UPDATE t SET v=1; EXPLAIN FOR CONNECTION 5", None),
            ("EXPLAIN FOR CONNECTION 5; DO 1", None),
            ("SHOW TABLES; DELETE FROM t # FOR 5", None),
            ("EXPLAIN SELECT 1 FOR CONNECTION 5", None),
            ("EXPLAIN FOR CONNECTION 5 + 1", None),
            ("SHOW EXPLAIN FOR", None),
            ("SHOW EXPLAIN FOR 99999999999", None),
            ("EXPLAIN FOR CONNECTION '5'", None),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(explained_connection(text.as_bytes(), Dialect::default()), found, "{text}");
        }
    }
}
