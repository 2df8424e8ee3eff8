//! Reads strings and quoted identifiers.

use super::{Lexer, TokenKind};
use crate::dialect::LeadBytes;

impl Lexer<'_> {
    /// A token that begins with `'` or `"`.
    pub(super) fn quote(&mut self, quote: u8) -> TokenKind {
        if quote == b'"' && self.dialect.ansi_quotes { self.quoted_name(quote) } else { self.string(quote) }
    }

    /// Skips a string, from its opening quote.
    pub(super) fn string(&mut self, quote: u8) -> TokenKind {
        let start = self.at;
        self.at += 1;
        let escapes = !self.dialect.no_backslash_escapes;
        let lead_bytes = self.dialect.lead_bytes;
        let pairs = !matches!(lead_bytes, LeadBytes::None | LeadBytes::Utf8);
        loop {
            let Some(byte) = self.peek(0) else {
                // An escape may have skipped the end.
                self.at = self.text.len();
                self.malformed();
                break;
            };
            self.at += 1;
            if byte == quote {
                if self.peek(0) != Some(quote) {
                    break;
                }
                self.at += 1;
            } else if (byte == b'\\' && escapes)
                || (pairs && byte >= 0x80 && self.peek(0).is_some_and(|trail| lead_bytes.pair(byte, trail)))
            {
                self.at += 1;
            }
        }
        self.check_executable(start);
        TokenKind::Text
    }

    /// A token that begins with `[`, which quotes an identifier of MariaDB with `MSSQL` in `sql_mode`. In any other mode no
    /// statement has one outside of quotes; but the mode may be another one by then, and what follows be quoted.
    pub(super) fn bracket(&mut self) -> TokenKind {
        if self.dialect.brackets {
            return self.quoted_name(b']');
        }
        self.malformed();
        self.at += 1;
        TokenKind::Operator
    }

    /// Skips an identifier, from its opening quote to `quote`. There are no escapes in it; a closing quote is doubled.
    pub(super) fn quoted_name(&mut self, quote: u8) -> TokenKind {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                // Servers do not take a NUL in an identifier.
                None | Some(0) => {
                    self.malformed();
                    break;
                }
                Some(byte) if byte == quote => {
                    self.at += 1;
                    if self.peek(0) != Some(quote) {
                        break;
                    }
                    self.at += 1;
                }
                Some(byte) if byte < 0x80 => self.at += 1,
                Some(byte) => self.high_in_quotes(byte, quote),
            }
        }
        self.check_executable(start);
        TokenKind::Quoted
    }

    /// MySQL skips as many bytes as the first one of a character announces, MariaDB only a valid character:
    /// with a quote among these bytes, they disagree about the end of the identifier.
    fn high_in_quotes(&mut self, byte: u8, quote: u8) {
        let lead_bytes = self.dialect.lead_bytes;
        if self.peek(1).is_some_and(|trail| lead_bytes.pair(byte, trail)) {
            self.at += 2;
            return;
        }
        let announced = lead_bytes.length_by_lead(byte);
        if (1..announced).any(|ahead| self.peek(ahead) == Some(quote)) {
            self.malformed();
        }
        self.at += 1;
    }

    /// A server that does not execute the comment around `text[start..]` would not see quotes here, only the
    /// marks of comments.
    pub(super) fn check_executable(&mut self, start: usize) {
        if self.executing {
            let token = self.text.get(start..self.at).unwrap_or_default();
            if token.windows(2).any(|pair| pair == b"*/" || pair == b"/*") {
                self.malformed();
            }
        }
    }
}
