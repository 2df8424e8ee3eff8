//! Tells whether a statement can do without tables.

use super::{Cursor, unquote};
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::words::Word;

/// Whether a text may use a table: it has the words FROM or TABLE, or cannot be read with certainty. For SELECT and
/// DO without routines.
pub fn may_use_tables(text: &[u8], dialect: Dialect) -> bool {
    let cursor = Cursor::new(text, dialect);
    cursor.flaws.malformed || cursor.tokens.iter().any(|token| matches!(token.word, Word::FROM | Word::TABLE))
}

/// What CREATE, ALTER and DROP make, change and drop without opening a table of a user's.
const NO_TABLES: [&str; 8] =
    ["DATABASE", "SCHEMA", "USER", "ROLE", "SERVER", "FUNCTION", "PROCEDURE", "EVENT"];
/// What SHOW shows without one.
const SHOWN: [&str; 5] = ["GRANTS", "PRIVILEGES", "PROCESSLIST", "PROFILES", "CONTRIBUTORS"];

/// Whether a CREATE, ALTER, DROP, GRANT, REVOKE, SHOW or PREPARE surely opens no table, so that MariaDB (10.11) leaves the
/// warnings of the statement before it.
pub fn opens_no_table(text: &[u8], dialect: Dialect) -> bool {
    let cursor = Cursor::new(text, dialect);
    let Some(tokens) = cursor.only_statement() else { return false };
    let is = |token: &Token, name: &str| cursor.is(*token, name);
    let is_one_of = |at: usize, names: &[&str]| {
        tokens.get(at).is_some_and(|token| names.iter().any(|name| is(token, name)))
    };
    let Some(verb) = tokens.first() else { return false };
    if is(verb, "CREATE") || is(verb, "ALTER") || is(verb, "DROP") {
        let object = if is_one_of(1, &["OR"]) { 3 } else { 1 };
        return is_one_of(object, &NO_TABLES);
    }
    if is(verb, "SHOW") {
        return is_one_of(if is_one_of(1, &["FULL"]) { 2 } else { 1 }, &SHOWN);
    }
    if is(verb, "PREPARE") {
        return match tokens.last() {
            Some(last) if last.kind == TokenKind::Text => {
                !may_use_tables(&unquote(cursor.text_of(*last)), dialect)
            }
            _ => false,
        };
    }
    // A role, or all of a schema: `shop.*`, but not one table of it.
    let object = tokens.iter().position(|token| is(token, "ON"));
    let to = tokens.iter().position(|token| is(token, "TO") || is(token, "FROM"));
    match (object, to) {
        (None, _) => is(verb, "GRANT") || is(verb, "REVOKE"),
        (Some(on), Some(to)) if on < to => {
            tokens.get(to - 1).is_some_and(|last| cursor.text_of(*last) == b"*")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_no_table_is_known_by_its_object() {
        let opens = |text: &str| !opens_no_table(text.as_bytes(), Dialect::default());
        for text in [
            "CREATE DATABASE IF NOT EXISTS shop",
            "drop schema shop",
            "CREATE OR REPLACE FUNCTION f() RETURNS INT RETURN 1",
            "DROP USER u",
            "GRANT reader TO app",
            "GRANT SELECT ON shop.* TO app",
            "REVOKE ALL PRIVILEGES, GRANT OPTION FROM app",
            "SHOW FULL PROCESSLIST",
            "PREPARE s FROM 'SELECT 1'",
        ] {
            assert!(!opens(text), "{text}");
        }
        for text in [
            "CREATE TABLE t (id INT)",
            "CREATE INDEX i ON t (w)",
            "DROP VIEW v",
            "GRANT SELECT ON shop.t TO app",
            "SHOW TABLES",
            "PREPARE s FROM 'SELECT 1 FROM t'",
            "PREPARE s FROM @text",
            "CREATE DATABASE a; SELECT 1 FROM t",
        ] {
            assert!(opens(text), "{text}");
        }
    }
}
