//! Masks the passwords in statements, for logs.

use std::ops::Range;

use crate::dialect::Dialect;
use crate::lex::{Lexer, Token, TokenKind};
use crate::words::Word;

/// What stands in the place of a password.
const MASK: &[u8] = b"'***'";

/// The text with passwords masked; none if there are none to be seen.
///
/// Masked are the literals behind IDENTIFIED, those behind a name that ends in PASSWORD in statements that give rights
/// or settings (SET PASSWORD, CHANGE MASTER TO, CREATE SERVER), what PASSWORD() is called with, and a statement in a
/// literal that has any of them. What can't be read with certainty is cut off there: rather too much than a password.
pub fn mask_secrets(text: &[u8]) -> Option<Vec<u8>> {
    if !speaks_of_secrets(text) {
        return None;
    }
    let mut finder = Finder::default();
    let mut lexer = Lexer::of_all_comments(text, Dialect::default());
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            break;
        }
        finder.take(text, &token);
    }
    let Some(first) = finder.found.first().map(|range| range.start) else {
        // A quote that the server reads in another way may have hidden them all.
        return lexer.flaws().malformed.then(|| cut_behind_first_word(text));
    };
    // A backslash may end a string, or not: that is up to the session's sql_mode.
    let is_certain = !lexer.flaws().malformed && !text.get(first..)?.contains(&b'\\');
    Some(masked(text, &finder.found, is_certain))
}

/// The text with every string masked but those that `is_harmless` knows, quotes included.
pub fn mask_literals(text: &[u8], is_harmless: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut found = Vec::new();
    let mut lexer = Lexer::of_all_comments(text, Dialect::default());
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Text if text.get(token.range()).is_some_and(&is_harmless) => {}
            TokenKind::Text => found.push(token.range()),
            _ => {}
        }
    }
    let first = found.first().map_or(text.len(), |range: &Range<usize>| range.start);
    let is_certain = !lexer.flaws().malformed && !text.get(first..).unwrap_or_default().contains(&b'\\');
    masked(text, &found, is_certain)
}

/// Whether a word of the text may mean a secret, without looking at what it is part of.
pub fn speaks_of_secrets(text: &[u8]) -> bool {
    contains(text, b"identified") || contains(text, b"password")
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    position(text, word).is_some()
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))
}

/// The text up to the first word that may mean a secret.
fn cut_behind_first_word(text: &[u8]) -> Vec<u8> {
    let words: [&[u8]; 2] = [b"identified", b"password"];
    let ends = words.into_iter().filter_map(|word| Some(position(text, word)? + word.len()));
    let end = ends.min().unwrap_or(0);
    [text.get(..end).unwrap_or_default(), b" ", MASK].concat()
}

fn masked(text: &[u8], found: &[Range<usize>], is_certain: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut end = 0;
    for range in found {
        out.extend_from_slice(text.get(end..range.start).unwrap_or_default());
        out.extend_from_slice(MASK);
        end = range.end;
        if !is_certain {
            return out;
        }
    }
    out.extend_from_slice(text.get(end..).unwrap_or_default());
    out
}

#[derive(Default)]
struct Finder {
    found: Vec<Range<usize>>,
    /// The first word of the statement.
    first: Option<Word>,
    /// Literals are secrets from here to the end of the statement.
    is_armed: bool,
    /// The last token was a name that ends in PASSWORD.
    is_behind_name: bool,
    /// Within the parentheses of PASSWORD().
    is_argument: bool,
}

impl Finder {
    fn take(&mut self, text: &[u8], token: &Token) {
        let bytes = text.get(token.range()).unwrap_or_default();
        let is_behind_name = std::mem::take(&mut self.is_behind_name);
        match token.kind {
            TokenKind::Word | TokenKind::UserVariable => {
                self.first.get_or_insert(token.word);
                self.is_behind_name = ends_in_password(bytes);
                self.is_armed |=
                    bytes.eq_ignore_ascii_case(b"IDENTIFIED") || (self.is_behind_name && self.sets_secrets());
            }
            TokenKind::LeftParen => self.is_argument |= is_behind_name,
            TokenKind::RightParen => self.is_argument = false,
            TokenKind::Semicolon => {
                *self = Self { found: std::mem::take(&mut self.found), ..Self::default() };
            }
            TokenKind::Text if self.is_secret(bytes) => self.found.push(token.range()),
            TokenKind::Number if self.is_armed && is_hex(bytes) => self.found.push(token.range()),
            _ => {}
        }
    }

    fn is_secret(&self, literal: &[u8]) -> bool {
        let holds_statement = matches!(self.first, Some(Word::PREPARE | Word::EXECUTE | Word::SET));
        self.is_armed || self.is_argument || (holds_statement && speaks_of_secrets(literal))
    }

    fn sets_secrets(&self) -> bool {
        matches!(
            self.first,
            Some(Word::CREATE | Word::ALTER | Word::GRANT | Word::SET | Word::CHANGE | Word::START)
        )
    }
}

fn ends_in_password(name: &[u8]) -> bool {
    name.len()
        .checked_sub(8)
        .and_then(|at| name.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(b"PASSWORD"))
}

fn is_hex(number: &[u8]) -> bool {
    number.starts_with(b"0x") || number.starts_with(b"0X")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let masked = mask_secrets(text.as_bytes()).unwrap_or_else(|| text.as_bytes().to_vec());
        String::from_utf8(masked).unwrap()
    }

    #[test]
    fn passwords_are_masked() {
        for (text, expected) in [
            ("CREATE USER a@'%' IDENTIFIED BY 'sesame'", "CREATE USER a@'%' IDENTIFIED BY '***'"),
            (
                "create user a identified by \"sesame\" require ssl",
                "create user a identified by '***' require ssl",
            ),
            (
                "CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('sesame'), b IDENTIFIED BY 'open'",
                "CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('***'), b IDENTIFIED BY '***'",
            ),
            ("ALTER USER a IDENTIFIED WITH x AS 0x5345", "ALTER USER a IDENTIFIED WITH x AS '***'"),
            ("SET PASSWORD FOR 'a'@'b' = PASSWORD('sesame')", "SET PASSWORD FOR '***'@'b' = PASSWORD('***')"),
            ("SET PASSWORD = 'sesame'", "SET PASSWORD = '***'"),
            ("SET @new_password = 'sesame'", "SET @new_password = '***'"),
            (
                "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='sesame'",
                "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='***'",
            ),
            (
                "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'sesame')",
                "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD '***')",
            ),
            ("SELECT PASSWORD('sesame'), 'x'", "SELECT PASSWORD('***'), 'x'"),
            ("SELECT 1; CREATE USER a IDENTIFIED BY 'sesame'", "SELECT 1; CREATE USER a IDENTIFIED BY '***'"),
            (
                "/*!50000 CREATE USER a IDENTIFIED BY 'sesame' */",
                "/*!50000 CREATE USER a IDENTIFIED BY '***' */",
            ),
            (
                "CREATE USER a /*!80000 IDENTIFIED BY 'sesame' */ /*M!110800 REQUIRE SSL */",
                "CREATE USER a /*!80000 IDENTIFIED BY '***' */ /*M!110800 REQUIRE SSL */",
            ),
            (
                "SET time_zone = '+00:00', PASSWORD FOR a = PASSWORD('sesame')",
                "SET time_zone = '+00:00', PASSWORD FOR a = PASSWORD('***')",
            ),
            ("PREPARE s FROM 'CREATE USER a IDENTIFIED BY ''b'''", "PREPARE s FROM '***'"),
            ("SET @s = 'ALTER USER a IDENTIFIED BY ''b'''", "SET @s = '***'"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_with_certainty_is_cut() {
        for (text, expected) in [
            ("CREATE USER a IDENTIFIED BY 'sesame", "CREATE USER a IDENTIFIED BY '***'"),
            // Under NO_BACKSLASH_ESCAPES the first string ends at its backslash.
            // Under sql_mode=MSSQL the brackets hold a name; in MySQL 9 dollar signs hold a string.
            ("SELECT 1 AS [']; SET PASSWORD = 'sesame'", "SELECT 1 AS [']; SET PASSWORD '***'"),
            (
                "SELECT $$ ' $$; ALTER USER a IDENTIFIED BY 'sesame'",
                "SELECT $$ ' $$; ALTER USER a IDENTIFIED '***'",
            ),
            (
                r"CREATE USER a IDENTIFIED BY 'x\', b IDENTIFIED BY 'sesame'",
                "CREATE USER a IDENTIFIED BY '***'",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn other_statements_stay_as_they_are() {
        for text in [
            "SELECT 'x' FROM password_resets WHERE name = 'identified'",
            "INSERT INTO accounts (password) VALUES ('0123')",
            "SELECT password FROM accounts WHERE id = 'x'",
            "SET NAMES 'utf8mb4'",
        ] {
            assert_eq!(mask_secrets(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_string() {
        let text = b"INSERT INTO mysql_users VALUES ('app', \"sesame\", 1)";
        assert_eq!(mask_literals(text, |_| false), b"INSERT INTO mysql_users VALUES ('***', '***', 1)");
        assert_eq!(
            mask_literals(text, |s| s == b"'app'"),
            b"INSERT INTO mysql_users VALUES ('app', '***', 1)"
        );
        assert_eq!(mask_literals(b"VALUES ('a\\', 'b", |_| false), b"VALUES ('***'");
    }
}
