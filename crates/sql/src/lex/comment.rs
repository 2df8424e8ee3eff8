//! Skips comments, and enters those that are executed.
//!
//! Which ones are, seen on MariaDB 10.11 and MySQL 9.7: those without a version; those whose version the server has;
//! `/*M!` on MariaDB only. MariaDB skips `/*!50700` to `/*!99999`, which are MySQL's versions.

use super::{Lexer, is_space};
use crate::dialect::{Family, LeadBytes, Server};

/// The first release of MySQL that surely reads versions of six digits.
const MYSQL_SIX_DIGITS: u16 = 804;

/// Versions that MariaDB takes for MySQL's.
const NOT_MARIADB: std::ops::RangeInclusive<u32> = 50_700..=99_999;

/// Versions below this are those of servers older than all.
const OF_ALL: u32 = 50_700;

/// The version of an executable comment.
struct Version {
    /// How many digits it has; without a version none.
    digits: usize,
    number: u32,
    /// What an older server of the same release reads.
    older: Option<u32>,
}

impl Version {
    /// Whether the server executes the comment. `None` if that depends on what is not known of it, its patch level.
    fn is_executed(&self, server: Server, mariadb_only: bool) -> Option<bool> {
        if server.family == Family::MariaDb && !mariadb_only && NOT_MARIADB.contains(&self.number) {
            return Some(false);
        }
        if server.family == Family::Either {
            return (!mariadb_only && self.number < OF_ALL).then_some(true);
        }
        let first = u32::from(server.release) * 100;
        let is_skipped = |version: u32| version > first + 99;
        match self.older {
            _ if self.digits == 0 => Some(true),
            None if self.number <= first => Some(true),
            older if is_skipped(self.number) && older.is_none_or(is_skipped) => Some(false),
            _ => None,
        }
    }
}

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
        let mariadb_only = match (self.peek(2), self.peek(3)) {
            (Some(b'!'), _) => false,
            (Some(b'M'), Some(b'!')) if self.executes_all || self.dialect.server.family != Family::MySql => {
                true
            }
            (Some(b'+'), _) => return self.hint(),
            _ => return self.plain(),
        };
        self.at += if mariadb_only { 4 } else { 3 };
        let version = self.version();
        match version.is_executed(self.dialect.server, mariadb_only) {
            _ if self.executes_all => {}
            Some(false) => return self.skip(),
            Some(true) => {}
            None => self.flaws.uncertain_comment = true,
        }
        self.flaws.executable_comment = true;
        self.executing = true;
        self.at += version.digits;
    }

    /// The version behind the mark of an executable comment.
    fn version(&mut self) -> Version {
        let digit = |ahead: usize| self.peek(ahead).filter(u8::is_ascii_digit);
        let count = (0..6).take_while(|&ahead| digit(ahead).is_some()).count();
        let number = |digits: usize| {
            (0..digits).filter_map(digit).fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
        };
        let Server { family, release } = self.dialect.server;
        // MySQL takes a sixth digit only in front of a space, and older releases never.
        let is_spaced = self.peek(6).is_some_and(is_space);
        let (digits, older) = match (count, family) {
            (0..5, _) => return Version { digits: 0, number: 0, older: None },
            (5, _) => (5, None),
            (_, Family::MariaDb | Family::Either) => (6, None),
            (_, Family::MySql) if !is_spaced => (5, None),
            (_, Family::MySql) if release < MYSQL_SIX_DIGITS => (6, Some(number(5))),
            (_, Family::MySql) => (6, None),
        };
        Version { digits, number: number(digits), older }
    }

    /// To the end of a comment that the server does not execute: comments in it end on their own, one level deep.
    fn skip(&mut self) {
        let mut nested = false;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'*'), Some(b'/')) => {
                    self.at += 2;
                    if !nested {
                        return;
                    }
                    nested = false;
                }
                (Some(b'/'), Some(b'*')) if !nested => {
                    self.at += 2;
                    nested = true;
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return self.malformed(),
            }
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
