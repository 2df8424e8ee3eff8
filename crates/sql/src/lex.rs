//! Splits bytes into tokens, one at a time, without copying, by the rules of the servers' lexical scanner.
//!
//! Sources: "Literal Values", "Schema Object Names" and "Comments" of the MySQL manual, the same topics of the
//! MariaDB Knowledge Base, and what a MariaDB 10.11 server answers.

mod comment;
mod dollar;
mod number;
mod quoted;

use std::ops::Range;

use crate::dialect::{Dialect, LeadBytes};
use crate::words::Word;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The end of the text.
    End,
    /// An unquoted identifier or keyword.
    Word,
    /// An identifier in backquotes, in double quotes under ANSI_QUOTES, or in brackets under MSSQL.
    Quoted,
    /// A string, including `x'..'`, `b'..'`, `N'..'` and MySQL's `$$..$$`.
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

/// A token and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    start: u32,
    end: u32,
    /// What it is.
    pub kind: TokenKind,
    /// Which known word, for [`TokenKind::Word`].
    pub word: Word,
}

/// More bytes than any packet of the protocol can bring.
const TEXT_BYTES_MAX: usize = u32::MAX as usize;

impl Token {
    /// The token before the first one.
    pub(crate) const NONE: Self = Self { kind: TokenKind::End, word: Word::NONE, start: 0, end: 0 };

    /// The offset of its first byte.
    #[inline]
    pub fn start(&self) -> usize {
        self.start as usize
    }

    /// The offset after its last byte.
    #[inline]
    pub fn end(&self) -> usize {
        self.end as usize
    }

    /// Its bytes: offsets into the text.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.start()..self.end()
    }

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
    /// There is a comment that the server executes: `/*! */`, `/*M! */`. Its contents are tokens.
    pub executable_comment: bool,
    /// One of them may be executed or not, by the server's patch level. Its contents are tokens all the same.
    pub uncertain_comment: bool,
}

/// A lexer's position between two statements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    at: usize,
    executing: bool,
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the token that is being read began.
    start: usize,
    dialect: Dialect,
    /// Inside an executable comment.
    executing: bool,
    /// Every executable comment is read, whoever executes it.
    executes_all: bool,
    /// The last token, for what depends on it: names after a dot, numbers that begin with one.
    last: TokenKind,
    last_end: usize,
    flaws: Flaws,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Dollar,
    High,
    Digit,
    Quote,
    Backquote,
    Bracket,
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
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Class::Letter,
            b'$' => Class::Dollar,
            0x80..=0xFF => Class::High,
            b'0'..=b'9' => Class::Digit,
            b'\'' | b'"' => Class::Quote,
            b'`' => Class::Backquote,
            b'[' => Class::Bracket,
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
        name[byte] = matches!(CLASSES[byte], Class::Letter | Class::Dollar | Class::Digit);
        byte += 1;
    }
    name
};

/// Whether `byte` is a space to servers in every character set.
pub(crate) fn is_space(byte: u8) -> bool {
    CLASSES[usize::from(byte)] == Class::Space
}

fn is_name_byte(byte: u8) -> bool {
    NAME[usize::from(byte)] || byte >= 0x80
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of `text`, which is malformed and not read at all if it has 4 GiB or more.
    pub fn new(text: &'a [u8], dialect: Dialect) -> Self {
        let malformed = text.len() > TEXT_BYTES_MAX;
        Self {
            text: if malformed { &[] } else { text },
            at: 0,
            start: 0,
            dialect,
            executing: false,
            executes_all: false,
            last: TokenKind::End,
            last_end: 0,
            flaws: Flaws { malformed, ..Flaws::default() },
        }
    }

    /// The same, reading executable comments of all servers: for what must be found wherever it stands.
    pub fn of_all_comments(text: &'a [u8], dialect: Dialect) -> Self {
        Self { executes_all: true, ..Self::new(text, dialect) }
    }

    /// Behind the last token, which ends a statement.
    pub(crate) fn place(&self) -> Place {
        Place { at: self.at, executing: self.executing }
    }

    /// Goes on from there, in the same text.
    pub(crate) fn go_to(&mut self, place: Place) {
        self.at = place.at;
        self.executing = place.executing;
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
        // Kind and word come back in registers. Put together in memory and copied from there, they would take
        // a third of the time of a scan.
        let (kind, word) = self.read();
        self.last = kind;
        self.last_end = self.at;
        // The text is not longer than fits.
        Token { start: self.start as u32, end: self.at as u32, kind, word }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn malformed(&mut self) {
        self.flaws.malformed = true;
    }

    fn read(&mut self) -> (TokenKind, Word) {
        loop {
            // Most tokens have one space before them, which is faster left behind here.
            while self.text.get(self.at) == Some(&b' ') {
                self.at += 1;
            }
            self.start = self.at;
            let Some(&byte) = self.text.get(self.at) else {
                // An executable comment that is not closed is a syntax error everywhere.
                self.flaws.malformed |= self.executing;
                return (TokenKind::End, Word::NONE);
            };
            let kind = match CLASSES[usize::from(byte)] {
                Class::Space => {
                    self.at += 1;
                    continue;
                }
                Class::Letter | Class::High => return self.word(),
                Class::Dollar => return self.dollar(),
                Class::Single(kind) => {
                    self.at += 1;
                    kind
                }
                Class::Digit if self.follows_dot() => return self.word(),
                Class::Digit => self.number(),
                Class::Dot => self.dot(),
                Class::Quote => self.quote(byte),
                Class::Backquote => self.quoted_name(byte),
                Class::Bracket => self.bracket(),
                Class::At => self.variable(),
                Class::Slash | Class::Star | Class::Dash | Class::Hash => {
                    if self.comment(byte) {
                        continue;
                    }
                    self.at += 1;
                    TokenKind::Operator
                }
                Class::Colon => self.pair(b'=', TokenKind::Assign, TokenKind::Colon),
                // `\N` is NULL.
                Class::Backslash => self.pair(b'N', TokenKind::Number, TokenKind::Operator),
                Class::Nul => {
                    self.malformed();
                    self.at += 1;
                    continue;
                }
            };
            return (kind, Word::NONE);
        }
    }

    /// Skips two bytes if the second one is `second`, else one.
    fn pair(&mut self, second: u8, two: TokenKind, one: TokenKind) -> TokenKind {
        let is_pair = self.peek(1) == Some(second);
        self.at += 1 + usize::from(is_pair);
        if is_pair { two } else { one }
    }

    /// `t.1a` is a column; `.1` after anything but an unquoted name is a number.
    fn dot(&mut self) -> TokenKind {
        let after_name = self.last == TokenKind::Word && self.last_end == self.start;
        if !after_name && self.peek(1).is_some_and(|next| next.is_ascii_digit()) {
            return self.fraction();
        }
        self.at += 1;
        TokenKind::Dot
    }

    fn follows_dot(&self) -> bool {
        self.last == TokenKind::Dot && self.last_end == self.start
    }

    #[inline]
    fn word(&mut self) -> (TokenKind, Word) {
        self.name();
        let name = self.text.get(self.start..self.at).unwrap_or_default();
        // What touches a dot before it is a name, even if it is spelled like a keyword.
        if self.follows_dot() {
            return (TokenKind::Word, Word::NONE);
        }
        if let [b'x' | b'X' | b'b' | b'B' | b'n' | b'N'] = name
            && self.peek(0) == Some(b'\'')
        {
            return (self.string(b'\''), Word::NONE);
        }
        (TokenKind::Word, Word::of(name))
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

    fn variable(&mut self) -> TokenKind {
        self.at += 1;
        match self.peek(0) {
            Some(b'@') => {
                self.at += 1;
                return TokenKind::SystemVariable;
            }
            Some(b'`') => {
                self.quoted_name(b'`');
            }
            Some(quote @ (b'"' | b'\'')) => {
                self.quote(quote);
            }
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
        TokenKind::UserVariable
    }
}
