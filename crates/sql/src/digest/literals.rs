//! Takes the first step of a digest: literals become `?`, comments go, and blanks become one.

use super::{DigestOptions, is_word};

/// Makes `out` what `statement` is without its literals and comments. It is never longer than the statement.
pub(super) fn replace(statement: &[u8], options: &DigestOptions, out: &mut Vec<u8>) {
    out.clear();
    out.resize(statement.len(), 0);
    let case = if options.lowercase { &LOWERCASE } else { &AS_IT_IS };
    let mut pass = Pass { statement, options, case, out, len: 0, at: 0 };
    while pass.at < statement.len() {
        pass.step();
    }
    let len = pass.len;
    out.truncate(len);
}

struct Pass<'a> {
    statement: &'a [u8],
    options: &'a DigestOptions,
    /// What becomes of the bytes of names.
    case: &'static [u8; 256],
    /// As long as the statement: what a kept comment would make longer is cut.
    out: &'a mut [u8],
    len: usize,
    at: usize,
}

static AS_IT_IS: [u8; 256] = cases(false);
static LOWERCASE: [u8; 256] = cases(true);

const fn cases(lowercase: bool) -> [u8; 256] {
    let mut bytes = [0; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = if lowercase { (at as u8).to_ascii_lowercase() } else { at as u8 };
        at += 1;
    }
    bytes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Digit,
    Space,
    Quote,
    Hash,
    Dash,
    Slash,
    Other,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => Class::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => Class::Word,
            b' ' | b'\t' | b'\n' | b'\r' => Class::Space,
            b'\'' | b'"' => Class::Quote,
            b'#' => Class::Hash,
            b'-' => Class::Dash,
            b'/' => Class::Slash,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

impl Pass<'_> {
    /// Reads what begins at `at`, which is the beginning of a word or no part of one.
    fn step(&mut self) {
        let byte = self.statement[self.at];
        match CLASSES[usize::from(byte)] {
            Class::Word => self.word(),
            Class::Digit => self.number(),
            Class::Space => {
                self.space();
                self.at += 1;
            }
            Class::Quote => self.string(byte),
            Class::Hash => self.hash_comment(),
            Class::Dash if self.begins_dash_comment(self.at) => self.dash_comment(),
            Class::Slash if self.byte(self.at + 1) == Some(b'*') => self.block_comment(),
            Class::Dash | Class::Slash | Class::Other => {
                self.push(byte);
                self.at += 1;
            }
        }
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.out.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.statement.get(at).copied()
    }

    /// One blank, unless there is one, or nothing in front of it.
    fn space(&mut self) {
        if self.len > 0 && self.out[self.len - 1] != b' ' {
            self.push(b' ');
        }
    }

    fn copy_to(&mut self, end: usize) {
        for at in self.at..end {
            self.push(self.case[usize::from(self.statement[at])]);
        }
        self.at = end;
    }

    fn word(&mut self) {
        let start = self.len;
        while let Some(byte) = self.byte(self.at)
            && matches!(CLASSES[usize::from(byte)], Class::Word | Class::Digit)
        {
            self.push(self.case[usize::from(byte)]);
            self.at += 1;
        }
        if self.options.replace_null && self.out[start..self.len].eq_ignore_ascii_case(b"null") {
            self.len = start;
            self.push(b'?');
        }
    }

    /// A number, or a name that begins with a digit. The last byte of the statement is not looked at when the
    /// two are told apart: `1a` at the end is a number.
    fn number(&mut self) {
        let last = self.statement.len() - 1;
        let mut end = self.at + 1;
        while end < last && self.continues_number(end) {
            end += 1;
        }
        if !is_number(&self.statement[self.at..end]) {
            self.copy_to(end);
            // The last byte may be part of the same word.
            if end == last && is_word(self.statement[end - 1]) && is_word(self.statement[end]) {
                self.copy_to(end + 1);
            }
            return;
        }
        self.push(b'?');
        self.at = end;
        if end == last && is_word(self.statement[end]) {
            self.at += 1;
        }
    }

    fn continues_number(&self, at: usize) -> bool {
        match self.statement[at] {
            b'.' => true,
            b'+' | b'-' => matches!(self.statement[at - 1], b'e' | b'E'),
            byte => is_word(byte),
        }
    }

    /// A string becomes `?`; one without its end takes the rest of the statement with it.
    fn string(&mut self, quote: u8) {
        let mut at = self.at + 1;
        loop {
            match self.byte(at) {
                None => {
                    self.at = self.statement.len();
                    return;
                }
                Some(b'\\') => at += 2,
                Some(byte) if byte == quote => {
                    if self.byte(at + 1) != Some(quote) {
                        break;
                    }
                    at += 2;
                }
                Some(_) => at += 1,
            }
        }
        self.push(b'?');
        self.at = at + 1;
    }

    /// To the end of the line. A `#` with exactly two bytes behind it ends the comment: the two are read.
    fn hash_comment(&mut self) {
        while let Some(byte) = self.byte(self.at) {
            self.at += 1;
            if byte == b'\n' || byte == b'#' && self.statement.len() - self.at == 2 {
                return;
            }
        }
    }

    fn begins_dash_comment(&self, at: usize) -> bool {
        let after_dash = at > 0 && self.statement[at - 1] == b'-';
        let blank = self.byte(at + 2).is_some_and(|byte| CLASSES[usize::from(byte)] == Class::Space);
        self.byte(at) == Some(b'-') && self.byte(at + 1) == Some(b'-') && blank && !after_dash
    }

    /// To the end of the line. A `-- ` with exactly four bytes behind it ends the comment: the four are read.
    fn dash_comment(&mut self) {
        while let Some(byte) = self.byte(self.at) {
            if self.begins_dash_comment(self.at) {
                self.at += 3;
                if self.statement.len() - self.at == 4 {
                    return;
                }
            } else {
                self.at += 1;
                if byte == b'\n' {
                    return;
                }
            }
        }
    }

    /// A comment becomes a blank, one that servers execute (`/*! */`) its text as it stands.
    fn block_comment(&mut self) {
        let mut start = self.at + 2;
        let mut is_command = false;
        let len = loop {
            let Some(len) = self.comment_bytes(start) else {
                self.unended_comment(start);
                return;
            };
            let content = &self.statement[start..start + len];
            is_command |= content.starts_with(b"!") || content.windows(3).any(|bytes| bytes == b"/*!");
            // The slash that ends a comment may be the one that begins the next, which is then the only one.
            if self.byte(start + len + 2) != Some(b'*') {
                break len;
            }
            start += len + 3;
        };
        let content = &self.statement[start..start + len];
        self.at = start + len + 2;
        if self.options.keep_comment {
            self.keep_comment(content);
        } else if is_command {
            let content = command(content);
            self.append(&content[version_bytes(content)..]);
        }
        self.space();
    }

    /// How many bytes the comment has whose inside begins at `start`. The byte in front of the comment counts
    /// as the one before its first: `*/*/` is a whole comment.
    fn comment_bytes(&self, start: usize) -> Option<usize> {
        let mut before = start.checked_sub(3).map(|at| self.statement[at]);
        for (len, &byte) in self.statement[start..].iter().enumerate() {
            if byte == b'/' && before == Some(b'*') {
                return Some(len.saturating_sub(1));
            }
            before = Some(byte);
        }
        None
    }

    /// It takes the rest of the statement with it; but with one byte left there is no comment.
    fn unended_comment(&mut self, start: usize) {
        self.at = self.statement.len();
        if let [last] = self.statement[start..]
            && last != b'!'
        {
            self.at = start;
        }
    }

    fn keep_comment(&mut self, content: &[u8]) {
        let content = content.strip_prefix(b"!").unwrap_or(content);
        if version_bytes(content) < content.len() {
            self.append(b"/*");
            self.append(content);
            self.append(b"*/");
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.push(byte);
        }
    }
}

/// What a server would execute of `/*!content*/`. Of a comment inside that, only the inner one counts.
fn command(content: &[u8]) -> &[u8] {
    let inner = content.windows(2).rposition(|pair| pair == b"/*").map_or(0, |at| at + 2);
    content.get(inner + 1..).unwrap_or_default()
}

/// How many bytes belong to the version in front of a command.
fn version_bytes(content: &[u8]) -> usize {
    content.iter().take_while(|&&byte| matches!(byte, b'0'..=b'9' | b' ' | b'/' | b'*')).count()
}

fn is_number(word: &[u8]) -> bool {
    match word {
        [b'0', b'x' | b'X', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
        _ => word.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')),
    }
}
