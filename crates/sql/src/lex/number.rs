//! Reads numbers. A number that is complete ends there: `1e5FROM` and `1.FROM` are a number and a word, but `1FROM`
//! and `1e5x` are not alike: the first is an identifier.

use super::{Lexer, TokenKind, is_name_byte};

impl Lexer<'_> {
    /// A token that begins with a digit.
    pub(super) fn number(&mut self) -> TokenKind {
        if self.radix(b'x', |byte| byte.is_ascii_hexdigit())
            || self.radix(b'b', |byte| matches!(byte, b'0' | b'1'))
        {
            return TokenKind::Number;
        }
        self.digits();
        match self.peek(0) {
            Some(b'.') => self.fraction(),
            Some(b'e' | b'E') if self.exponent() => TokenKind::Number,
            Some(byte) if is_name_byte(byte) => {
                // No keyword begins with a digit.
                self.name();
                TokenKind::Word
            }
            _ => TokenKind::Number,
        }
    }

    /// The rest of a number, from its decimal point.
    pub(super) fn fraction(&mut self) -> TokenKind {
        self.at += 1;
        self.digits();
        self.exponent();
        TokenKind::Number
    }

    fn digits(&mut self) {
        while self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Skips `e5`, `e+5` or `e-5`; nothing if there is no digit.
    fn exponent(&mut self) -> bool {
        if !matches!(self.peek(0), Some(b'e' | b'E')) {
            return false;
        }
        let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        let found = self.peek(1 + sign).is_some_and(|byte| byte.is_ascii_digit());
        if found {
            self.at += 1 + sign;
            self.digits();
        }
        found
    }

    /// Skips `0x1F` or `0b01` if it is complete and nothing of a name follows. The letter is lower case only.
    fn radix(&mut self, letter: u8, is_digit: fn(u8) -> bool) -> bool {
        if self.peek(0) != Some(b'0') || self.peek(1) != Some(letter) {
            return false;
        }
        let mut len = 2;
        while self.peek(len).is_some_and(is_digit) {
            len += 1;
        }
        let complete = len > 2 && !self.peek(len).is_some_and(is_name_byte);
        if complete {
            self.at += len;
        }
        complete
    }
}
