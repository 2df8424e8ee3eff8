//! Bytes to tokens, one at a time, without copying: the rules of the servers' lexical scanner.
//!
//! Sources: "Literal Values", "Schema Object Names" and "Comments" of the MySQL manual, the same topics of the
//! MariaDB Knowledge Base, and what a MariaDB 10.11 server answers.

mod comment;
mod number;
mod quoted;

use crate::dialect::{Dialect, LeadBytes};
use crate::words::Word;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The end of the text.
    End,
    /// An unquoted identifier or keyword.
    Word,
    /// An identifier in backquotes, or in double quotes under ANSI_QUOTES.
    Quoted,
    /// A string, including `x'..'`, `b'..'` and `N'..'`.
    Text,
    /// A number, `0x1F`, `0b01`, or `\N`.
    Number,
    /// `@name`, `@'name'`, or `@` alone.
    UserVariable,
    /// The `@@` before the name of a system variable.
    SystemVariable,
    /// `(`
    LeftParen,
    /// `)`
    RightParen,
    /// `,`
    Comma,
    /// `.`
    Dot,
    /// `;`
    Semicolon,
    /// `=`
    Equals,
    /// `:=`
    Assign,
    /// `:`
    Colon,
    /// `?`
    Placeholder,
    /// One byte of anything else.
    Operator,
}

/// A token and where it stands: `text[start..end]`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Which known word, for [`TokenKind::Word`].
    pub word: Word,
    /// The offset of its first byte.
    pub start: usize,
    /// The offset after its last byte.
    pub end: usize,
}

impl Token {
    /// The token before the first one.
    pub(crate) const NONE: Self = Self { kind: TokenKind::End, word: Word::NONE, start: 0, end: 0 };

    /// Whether it is an identifier of either form.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Quoted)
    }
}

/// Why a text cannot be read with certainty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// Something is not terminated, or servers may read it in different ways.
    pub malformed: bool,
    /// There is a comment that some servers execute: `/*! */`, `/*M! */`. Its contents are tokens.
    pub executable_comment: bool,
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    dialect: Dialect,
    /// Inside an executable comment.
    executing: bool,
    /// The last token, for what depends on it: names after a dot, numbers that begin with one.
    last: TokenKind,
    last_end: usize,
    flaws: Flaws,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    High,
    Digit,
    Quote,
    Backquote,
    At,
    Dot,
    Slash,
    Star,
    Dash,
    Hash,
    Colon,
    Backslash,
    Nul,
    /// A token of one byte.
    Single(TokenKind),
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Single(TokenKind::Operator); 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'\t'..=b'\r' | b' ' => Class::Space,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => Class::Letter,
            0x80..=0xFF => Class::High,
            b'0'..=b'9' => Class::Digit,
            b'\'' | b'"' => Class::Quote,
            b'`' => Class::Backquote,
            b'@' => Class::At,
            b'.' => Class::Dot,
            b'/' => Class::Slash,
            b'*' => Class::Star,
            b'-' => Class::Dash,
            b'#' => Class::Hash,
            b':' => Class::Colon,
            b'\\' => Class::Backslash,
            0 => Class::Nul,
            b'(' => Class::Single(TokenKind::LeftParen),
            b')' => Class::Single(TokenKind::RightParen),
            b',' => Class::Single(TokenKind::Comma),
            b';' => Class::Single(TokenKind::Semicolon),
            b'=' => Class::Single(TokenKind::Equals),
            b'?' => Class::Single(TokenKind::Placeholder),
            _ => Class::Single(TokenKind::Operator),
        };
        byte += 1;
    }
    classes
};

/// Bytes of unquoted identifiers below 0x80.
const NAME: [bool; 256] = {
    let mut name = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        name[byte] = matches!(CLASSES[byte], Class::Letter | Class::Digit);
        byte += 1;
    }
    name
};

fn is_name_byte(byte: u8) -> bool {
    NAME[usize::from(byte)] || byte >= 0x80
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of `text`.
    pub fn new(text: &'a [u8], dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            dialect,
            executing: false,
            last: TokenKind::End,
            last_end: 0,
            flaws: Flaws::default(),
        }
    }

    /// What was found so far that makes the text uncertain. Complete after [`TokenKind::End`].
    pub fn flaws(&self) -> Flaws {
        self.flaws
    }

    /// The text that is read.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The next token; [`TokenKind::End`] again and again after the last one.
    #[inline]
    pub fn token(&mut self) -> Token {
        let token = self.read();
        self.last = token.kind;
        self.last_end = token.end;
        token
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn malformed(&mut self) {
        self.flaws.malformed = true;
    }

    #[inline]
    fn read(&mut self) -> Token {
        loop {
            let start = self.at;
            let Some(&byte) = self.text.get(start) else {
                // An executable comment that is not closed is a syntax error everywhere.
                self.flaws.malformed |= self.executing;
                return self.finish(TokenKind::End, start);
            };
            match CLASSES[usize::from(byte)] {
                Class::Space => self.at += 1,
                Class::Letter | Class::High => return self.word(start),
                Class::Single(kind) => {
                    self.at += 1;
                    return self.finish(kind, start);
                }
                Class::Digit => {
                    if self.follows_dot(start) {
                        return self.word(start);
                    }
                    return self.number(start);
                }
                Class::Dot => {
                    // `t.1a` is a column; `.1` after anything but an unquoted name is a number.
                    let after_name = self.last == TokenKind::Word && self.last_end == start;
                    if !after_name && self.peek(1).is_some_and(|next| next.is_ascii_digit()) {
                        return self.fraction(start);
                    }
                    self.at += 1;
                    return self.finish(TokenKind::Dot, start);
                }
                Class::Quote => return self.quote(start, byte),
                Class::Backquote => {
                    self.quoted_name(byte);
                    return self.finish(TokenKind::Quoted, start);
                }
                Class::At => return self.variable(start),
                Class::Slash | Class::Star | Class::Dash | Class::Hash => {
                    if !self.comment(byte) {
                        self.at += 1;
                        return self.finish(TokenKind::Operator, start);
                    }
                }
                Class::Colon => {
                    let assign = self.peek(1) == Some(b'=');
                    self.at += 1 + usize::from(assign);
                    let kind = if assign { TokenKind::Assign } else { TokenKind::Colon };
                    return self.finish(kind, start);
                }
                Class::Backslash => {
                    let null = self.peek(1) == Some(b'N');
                    self.at += 1 + usize::from(null);
                    let kind = if null { TokenKind::Number } else { TokenKind::Operator };
                    return self.finish(kind, start);
                }
                Class::Nul => {
                    self.malformed();
                    self.at += 1;
                }
            }
        }
    }

    #[inline]
    fn finish(&self, kind: TokenKind, start: usize) -> Token {
        Token { kind, word: Word::NONE, start, end: self.at }
    }

    fn follows_dot(&self, start: usize) -> bool {
        self.last == TokenKind::Dot && self.last_end == start
    }

    #[inline]
    fn word(&mut self, start: usize) -> Token {
        self.name();
        let end = self.at;
        if end - start == 1 && self.peek(0) == Some(b'\'') && !self.follows_dot(start) {
            let prefix = self.text.get(start).copied().unwrap_or(0);
            if matches!(prefix, b'x' | b'X' | b'b' | b'B' | b'n' | b'N') {
                self.string(b'\'');
                return self.finish(TokenKind::Text, start);
            }
        }
        // What touches a dot before it is a name, even if it is spelled like a keyword.
        let word = if self.follows_dot(start) {
            Word::NONE
        } else {
            Word::of(self.text.get(start..end).unwrap_or_default())
        };
        Token { kind: TokenKind::Word, word, start, end }
    }

    /// Skips the rest of an unquoted identifier.
    #[inline]
    fn name(&mut self) {
        loop {
            while let Some(&byte) = self.text.get(self.at) {
                if !NAME[usize::from(byte)] {
                    break;
                }
                self.at += 1;
            }
            match self.peek(0) {
                Some(byte) if byte >= 0x80 => self.high(byte),
                _ => return,
            }
        }
    }

    /// Skips one character that begins with `byte`, which is not ASCII.
    fn high(&mut self, byte: u8) {
        let lead_bytes = self.dialect.lead_bytes;
        let pair = self.peek(1).is_some_and(|trail| lead_bytes.pair(byte, trail));
        // In many one-byte character sets these are spaces, and would part two words.
        if lead_bytes == LeadBytes::None && matches!(byte, 0xA0 | 0xFF) {
            self.malformed();
        }
        self.at += 1 + usize::from(pair);
    }

    fn variable(&mut self, start: usize) -> Token {
        self.at += 1;
        match self.peek(0) {
            Some(b'@') => {
                self.at += 1;
                return self.finish(TokenKind::SystemVariable, start);
            }
            Some(b'`') => self.quoted_name(b'`'),
            Some(b'"') if self.dialect.ansi_quotes => self.quoted_name(b'"'),
            Some(quote @ (b'"' | b'\'')) => self.string(quote),
            _ => {
                // Byte by byte, as for host names: a trail byte that is not a letter ends the name.
                while let Some(byte) = self.peek(0).filter(|&byte| is_name_byte(byte) || byte == b'.') {
                    if self.dialect.lead_bytes == LeadBytes::None && matches!(byte, 0xA0 | 0xFF) {
                        self.malformed();
                    }
                    self.at += 1;
                }
            }
        }
        self.finish(TokenKind::UserVariable, start)
    }
}
