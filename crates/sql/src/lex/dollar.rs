//! Reads strings between dollar signs, MySQL's quotes for the bodies of routines in other languages.
//!
//! Seen on MySQL 9.7: `$$`, or `$tag$` with a tag of the bytes of names, at the beginning of a word anywhere in a text.
//! The string ends at the next bytes that are the same, whatever is around them, and is not empty. Nothing escapes in it,
//! and characters of several bytes don't count. Within a name, behind a dot or behind `@@`, a `$` is a letter, and so it is
//! at the beginning of a name without another one.

use super::{Lexer, TokenKind, is_name_byte};
use crate::dialect::{Family, Server};
use crate::words::Word;

/// Since this release MySQL surely has such strings (its manual: JavaScript stored programs).
const SURELY_SINCE: u16 = 900;
/// Before this one it surely has none.
const NEVER_BEFORE: u16 = 800;

/// Whether a server reads strings between dollar signs. `None` if that is not known.
fn quotes_with_dollars(server: Server) -> Option<bool> {
    match (server.family, server.release) {
        (Family::MariaDb, _) => Some(false),
        (Family::MySql, SURELY_SINCE..) => Some(true),
        (Family::MySql, ..NEVER_BEFORE) => Some(false),
        _ => None,
    }
}

impl Lexer<'_> {
    /// A token that begins with `$`.
    pub(super) fn dollar(&mut self) -> (TokenKind, Word) {
        let quotes = quotes_with_dollars(self.dialect.server);
        let continues =
            self.last_end == self.start && matches!(self.last, TokenKind::Dot | TokenKind::SystemVariable);
        if quotes == Some(false) || continues {
            return self.word();
        }
        let Some(quote_bytes) = self.dollar_quote_bytes() else {
            return self.word();
        };
        self.flaws.malformed |= quotes.is_none();
        self.dollar_string(quote_bytes);
        (TokenKind::Text, Word::NONE)
    }

    /// How many bytes the opening quote has; none if it is a name.
    fn dollar_quote_bytes(&self) -> Option<usize> {
        let is_tag = |&ahead: &usize| self.peek(ahead).is_some_and(|byte| byte != b'$' && is_name_byte(byte));
        let end = 1 + (1..).take_while(is_tag).count();
        (self.peek(end) == Some(b'$')).then_some(end + 1)
    }

    fn dollar_string(&mut self, quote_bytes: usize) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (quote, body) = rest.split_at_checked(quote_bytes).unwrap_or((rest, &[]));
        // Which bytes from 0x80 on belong to names depends on the character set.
        self.flaws.malformed |= !quote.is_ascii();
        match body.windows(quote_bytes).position(|end| end == quote) {
            Some(body_bytes) => {
                // An empty one is a syntax error.
                self.flaws.malformed |= body_bytes == 0;
                self.at += body_bytes + 2 * quote_bytes;
            }
            None => {
                self.flaws.malformed = true;
                self.at = self.text.len();
            }
        }
        self.check_executable(self.start);
    }
}
