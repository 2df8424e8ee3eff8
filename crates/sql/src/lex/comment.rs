//! Comments, also those that are executed.

use super::Lexer;
use crate::dialect::LeadBytes;

impl Lexer<'_> {
    /// Skips a comment, or a mark of an executable one. False if `byte` is an operator here.
    pub(super) fn comment(&mut self, byte: u8) -> bool {
        match (byte, self.peek(1)) {
            (b'#', _) => self.line(),
            (b'-', Some(b'-')) => match self.peek(2) {
                None | Some(0..=b' ' | 0x7F) => self.line(),
                // In some one-byte character sets this is a space or a control character.
                Some(0x80..) if self.dialect.lead_bytes == LeadBytes::None => {
                    self.malformed();
                    return false;
                }
                // Minus a negative number.
                _ => return false,
            },
            (b'/', Some(b'*')) => self.block(),
            (b'*', Some(b'/')) if self.executing => {
                self.executing = false;
                self.at += 2;
            }
            _ => return false,
        }
        true
    }

    /// To the end of the line. A server stops at a NUL too.
    fn line(&mut self) {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            match byte {
                b'\n' => break,
                0 => {
                    self.malformed();
                    break;
                }
                _ => {}
            }
        }
        self.check_executable(start);
    }

    fn block(&mut self) {
        // Inside a comment that is skipped, servers count the levels in different ways.
        if self.executing {
            self.malformed();
        }
        let mark = match (self.peek(2), self.peek(3)) {
            (Some(b'!'), _) => 3,
            (Some(b'M'), Some(b'!')) => 4,
            (Some(b'+'), _) => return self.hint(),
            _ => return self.plain(),
        };
        self.flaws.executable_comment = true;
        self.executing = true;
        self.at += mark;
        // `/*!50100 ...` and `/*!100108 ...`: a version has five or six digits.
        let digits =
            (0..6).take_while(|&ahead| self.peek(ahead).is_some_and(|byte| byte.is_ascii_digit())).count();
        if digits >= 5 {
            self.at += digits;
        }
    }

    fn plain(&mut self) {
        self.at += 2;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'*'), Some(b'/')) => {
                    self.at += 2;
                    return;
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return self.malformed(),
            }
        }
    }

    /// `/*+ ... */`: a comment to servers without optimizer hints; others read its quotes, and may find its
    /// end elsewhere.
    fn hint(&mut self) {
        let start = self.at;
        self.plain();
        let mut quote = None;
        for &byte in self.text.get(start..self.at).unwrap_or_default() {
            match quote {
                Some(open) if byte == open => quote = None,
                None if matches!(byte, b'\'' | b'"' | b'`') => quote = Some(byte),
                _ => {}
            }
        }
        if quote.is_some() {
            self.malformed();
        }
    }
}
