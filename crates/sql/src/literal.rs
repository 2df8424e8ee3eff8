//! Writes values as parts of a statement: the one place that puts quotes around anything.
//!
//! How a server reads a string depends on its session: a backslash escapes or not (`sql_mode` with
//! NO_BACKSLASH_ESCAPES), the second byte of a character may look like a quote (sjis, gbk, big5), and in swe7 a few signs
//! are letters. So a value stands in quotes only if none of that matters to it; any other is written in hexadecimal,
//! which is read alike everywhere. Grammar that takes no expression gets what can be said safely, or nothing.
//!
//! Sources: "String Literals" and "Hexadecimal Literals" of the MySQL manual, "String Literals" of the MariaDB
//! Knowledge Base, "Keywords" (3) of SQLite's language reference.

use crate::dialect::LeadBytes;

/// A string literal for any server and session, where an expression may stand.
pub fn text(value: &str) -> String {
    plain(value).unwrap_or_else(|| hexadecimal("utf8mb4", value.as_bytes()))
}

/// The same in hexadecimal, of the character set `charset`: for values whose type must be the same whatever they hold.
pub fn hexadecimal(charset: &str, value: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
    let mut literal = format!("_{charset} X'");
    for byte in value {
        literal.extend([digit(byte >> 4), digit(*byte)]);
    }
    literal.push('\'');
    literal
}

/// A string in quotes that every server and session reads alike, or none: where the grammar takes no expression.
pub fn plain(value: &str) -> Option<String> {
    value.bytes().all(is_read_alike).then(|| quoted(value, '\''))
}

/// A string in quotes for a session whose `sql_mode` is known to lack NO_BACKSLASH_ESCAPES, and whose
/// `character_set_client` is utf8mb4: where the grammar takes no expression, and the value may be anything.
pub fn with_escapes(value: &str) -> String {
    quoted(&value.replace('\\', "\\\\").replace('\0', "\\0"), '\'')
}

/// The bytes of a client's statement as an identifier in backquotes, in a session that reads bytes as `lead_bytes` says.
/// None if it can't be sure to end where it should.
pub fn identifier(name: &[u8], lead_bytes: LeadBytes) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len() + 2);
    out.push(b'`');
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let pair = name.get(at + 1).filter(|trail| lead_bytes.pair(byte, **trail));
        match (byte, pair) {
            (0, _) => return None,
            (0x80.., Some(trail)) => {
                out.extend_from_slice(&[byte, *trail]);
                at += 1;
            }
            // Servers disagree about how many bytes belong to it.
            (0x80.., None) if lead_bytes.length_by_lead(byte) > 1 && !is_utf8(name, lead_bytes) => {
                return None;
            }
            (b'`', _) => out.extend_from_slice(b"``"),
            _ => out.push(byte),
        }
        at += 1;
    }
    out.push(b'`');
    Some(out)
}

/// A string literal for SQLite, which knows no escapes and reads UTF-8 only.
pub fn sqlite_text(value: &str) -> String {
    quoted(value, '\'')
}

/// An identifier for SQLite.
pub fn sqlite_identifier(name: &str) -> String {
    quoted(name, '"')
}

fn quoted(value: &str, quote: char) -> String {
    let mut literal = String::with_capacity(value.len() + 2);
    literal.push(quote);
    for character in value.chars() {
        if character == quote {
            literal.push(quote);
        }
        literal.push(character);
    }
    literal.push(quote);
    literal
}

/// Printable ASCII but for what is another sign in swe7, the backslash among them.
fn is_read_alike(byte: u8) -> bool {
    matches!(byte, b' '..=b'?' | b'A'..=b'Z' | b'_' | b'a'..=b'z')
}

fn is_utf8(name: &[u8], lead_bytes: LeadBytes) -> bool {
    lead_bytes == LeadBytes::Utf8 && std::str::from_utf8(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Lexer, TokenKind};

    #[test]
    fn what_is_read_alike_stands_in_quotes() {
        assert_eq!(text("STRICT_ALL_TABLES,ANSI"), "'STRICT_ALL_TABLES,ANSI'");
        assert_eq!(text(""), "''");
        assert_eq!(text("it's -- \"x\"; #"), "'it''s -- \"x\"; #'");
        assert_eq!(plain("+02:00").as_deref(), Some("'+02:00'"));
    }

    #[test]
    fn what_is_not_stands_in_hexadecimal() {
        assert_eq!(text("a\\'"), "_utf8mb4 X'615C27'");
        assert_eq!(text("é"), "_utf8mb4 X'C3A9'");
        assert_eq!(text("a\0"), "_utf8mb4 X'6100'");
        assert_eq!(text("{"), "_utf8mb4 X'7B'");
        assert_eq!(plain("a\\"), None);
        assert_eq!(plain("\u{a5}"), None);
    }

    #[test]
    fn no_value_leaves_its_literal() {
        let sets = [
            LeadBytes::None,
            LeadBytes::Utf8,
            LeadBytes::Euc,
            LeadBytes::Sjis,
            LeadBytes::Gbk,
            LeadBytes::Big5,
        ];
        let nasty = [
            "\\'; DROP TABLE t -- ",
            "'",
            "''",
            "\\",
            "\\\\'",
            "¿'",
            "縗'",
            "\"",
            "`",
            "*/",
            "/*",
            "\0'",
            "é\\'",
        ];
        for value in nasty {
            for lead_bytes in sets {
                for no_backslash_escapes in [false, true] {
                    for ansi_quotes in [false, true] {
                        let dialect =
                            Dialect { lead_bytes, no_backslash_escapes, ansi_quotes, ..Dialect::default() };
                        let literal = text(value);
                        assert_eq!(
                            tokens(literal.as_bytes(), dialect),
                            literal.matches('_').count() + 1,
                            "{literal}"
                        );
                        if let Some(name) = identifier(value.as_bytes(), lead_bytes) {
                            assert_eq!(tokens(&name, dialect), 1, "{value}");
                        }
                    }
                }
            }
            let escaped = with_escapes(value);
            assert_eq!(tokens(escaped.as_bytes(), Dialect::default()), 1, "{escaped}");
        }
    }

    #[test]
    fn a_trail_byte_that_looks_like_a_backquote_is_none() {
        let name = b"f('\x81\x60', `x`)";
        assert_eq!(identifier(name, LeadBytes::Gbk).unwrap(), b"`f('\x81\x60', ``x``)`");
        assert_eq!(identifier(name, LeadBytes::None).unwrap(), b"`f('\x81\x60\x60', ``x``)`");
        assert_eq!(identifier(b"\x81", LeadBytes::Gbk), None);
        assert_eq!(identifier(b"\xC3`", LeadBytes::Utf8), None);
        assert_eq!(identifier("é`".as_bytes(), LeadBytes::Utf8).unwrap(), "`é```".as_bytes());
        assert_eq!(identifier(b"a\0", LeadBytes::Utf8), None);
    }

    #[test]
    fn of_sqlite() {
        assert_eq!(sqlite_text("a'b\\"), "'a''b\\'");
        assert_eq!(sqlite_identifier("a\"b"), "\"a\"\"b\"");
    }

    fn tokens(text: &[u8], dialect: Dialect) -> usize {
        let mut lexer = Lexer::new(text, dialect);
        let count =
            std::iter::from_fn(|| Some(lexer.token()).filter(|token| token.kind != TokenKind::End)).count();
        assert!(!lexer.flaws().malformed, "{}", text.escape_ascii());
        count
    }
}
