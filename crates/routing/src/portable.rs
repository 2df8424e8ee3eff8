//! Tells which patterns mean the same to PCRE and to the regex crate.
//!
//! Configurations are written for PCRE. The regex crate is preferred because its time is linear in the text, whatever
//! the pattern; but where the two might differ, PCRE's meaning counts. So a pattern is read here piece by piece, and
//! only pieces known to mean the same to both are taken over. Sources: pcre2pattern(3) of PCRE2 10.43, and the syntax
//! page of regex 1.12.

/// A feature that the regex crate does not have.
pub(crate) type Obstacle = &'static str;

/// A larger count in `{n,m}` makes large programs.
const REPEAT_MAX: u32 = 1000;

/// A pattern that means the same to both.
#[derive(Debug)]
pub(crate) struct Translated {
    /// As the regex crate (on bytes, without Unicode) has to see it.
    pub pattern: String,
    /// The longest text that is in every match, but for upper and lower case. May be empty.
    pub needle: Vec<u8>,
}

/// The pattern for the regex crate. `wants_captures`: where the groups lie matters, not only whether there is a match.
///
/// # Errors
/// Why it can't be said with certainty; such a pattern is PCRE's.
pub(crate) fn translate(pattern: &str, wants_captures: bool) -> Result<Translated, Obstacle> {
    if !pattern.is_ascii() {
        return Err("characters beyond ASCII");
    }
    let mut translator = Translator {
        pattern: pattern.as_bytes(),
        at: 0,
        out: String::new(),
        groups: Vec::new(),
        wants_captures,
        run: Vec::new(),
        needle: Vec::new(),
        has_branches: false,
    };
    translator.run()?;
    translator.end_run();
    let needle = if translator.has_branches { Vec::new() } else { translator.needle };
    Ok(Translated { pattern: translator.out, needle })
}

struct Translator<'p> {
    pattern: &'p [u8],
    at: usize,
    out: String,
    /// Whether each open group captures.
    groups: Vec<bool>,
    wants_captures: bool,
    /// Characters outside of groups that have come one after the other, and the longest such run so far.
    run: Vec<u8>,
    needle: Vec<u8>,
    /// The whole pattern has several branches.
    has_branches: bool,
}

/// The part of a pattern that a quantifier would apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A character, a class.
    Atom,
    /// A group that captures, or one around such a group.
    Group,
    /// Nothing that may be repeated.
    Nothing,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), Obstacle> {
        if self.pattern.starts_with(b"(?i)") {
            self.out.push_str("(?i)");
            self.at = 4;
        }
        let mut piece = Piece::Nothing;
        while let Some(byte) = self.next() {
            piece = match byte {
                b'*' | b'+' | b'?' => self.quantifier(char::from(byte).to_string(), piece)?,
                b'{' => self.braces(piece)?,
                b'(' => self.open()?,
                b')' => self.close()?,
                b'|' => {
                    self.end_run();
                    self.has_branches |= self.groups.is_empty();
                    self.out.push('|');
                    Piece::Nothing
                }
                b'[' => self.class()?,
                b'.' => {
                    self.end_run();
                    self.out.push('.');
                    Piece::Atom
                }
                b'^' => {
                    self.end_run();
                    self.out.push('^');
                    Piece::Nothing
                }
                b'$' => self.dollar()?,
                b'\\' => self.escape()?,
                _ => {
                    self.literal(byte);
                    Piece::Atom
                }
            };
        }
        if self.groups.is_empty() { Ok(()) } else { Err("a group without its end") }
    }

    fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// What comes next does not follow at once.
    fn end_run(&mut self) {
        if self.run.len() > self.needle.len() {
            std::mem::swap(&mut self.run, &mut self.needle);
        }
        self.run.clear();
    }

    fn literal(&mut self, byte: u8) {
        if self.groups.is_empty() {
            self.run.push(byte);
        }
        if byte.is_ascii_alphanumeric() || byte == b' ' || byte == b'_' {
            self.out.push(char::from(byte));
        } else {
            self.out.push_str(&format!("\\x{byte:02X}"));
        }
    }

    fn quantifier(&mut self, text: String, piece: Piece) -> Result<Piece, Obstacle> {
        // The character before it may be missing.
        self.run.pop();
        self.end_run();
        match piece {
            Piece::Nothing => return Err("a quantifier without an atom"),
            // What a repeated group holds after an empty turn is not the same everywhere.
            Piece::Group if self.wants_captures => return Err("a repeated group"),
            Piece::Group | Piece::Atom => self.out.push_str(&text),
        }
        match self.peek() {
            Some(b'?') => {
                self.at += 1;
                self.out.push('?');
            }
            Some(b'+') => return Err("a possessive quantifier"),
            _ => {}
        }
        Ok(Piece::Nothing)
    }

    /// `{n}`, `{n,}` and `{n,m}`; anything else in braces is literal to PCRE, or was until 10.43.
    fn braces(&mut self, piece: Piece) -> Result<Piece, Obstacle> {
        let rest = &self.pattern[self.at..];
        let len = rest.iter().position(|byte| *byte == b'}').ok_or("an open brace")?;
        let inside = std::str::from_utf8(&rest[..len]).map_err(|_| "braces")?;
        let number = |digits: &str| {
            let is_number =
                (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|count: &u32| is_number && *count <= REPEAT_MAX)
        };
        let is_repeat = match inside.split_once(',') {
            None => number(inside).is_some(),
            Some((least, "")) => number(least).is_some(),
            Some((least, most)) => number(least).zip(number(most)).is_some_and(|(least, most)| least <= most),
        };
        if !is_repeat {
            return Err("braces that are no plain count");
        }
        let text = format!("{{{inside}}}");
        self.at += len + 1;
        self.quantifier(text, piece)
    }

    fn open(&mut self) -> Result<Piece, Obstacle> {
        self.end_run();
        match (self.peek(), self.pattern.get(self.at + 1)) {
            (Some(b'?'), Some(b':')) => {
                self.at += 2;
                self.out.push_str("(?:");
                self.groups.push(false);
            }
            (Some(b'?'), Some(b'=' | b'!')) => return Err("look-ahead"),
            (Some(b'?'), Some(b'<')) => return Err("look-behind or a named group"),
            (Some(b'?'), _) => return Err("a group of a special kind"),
            (Some(b'*'), _) => return Err("a verb"),
            _ => {
                self.out.push('(');
                self.groups.push(true);
            }
        }
        Ok(Piece::Nothing)
    }

    fn close(&mut self) -> Result<Piece, Obstacle> {
        let captures = self.groups.pop().ok_or("a closing parenthesis too many")?;
        self.out.push(')');
        if captures && let Some(around) = self.groups.last_mut() {
            *around = true;
        }
        Ok(if captures { Piece::Group } else { Piece::Atom })
    }

    /// To PCRE, `$` also stands before a newline that ends the text. At the very end of the pattern that can be said.
    fn dollar(&mut self) -> Result<Piece, Obstacle> {
        self.end_run();
        let rest = &self.pattern[self.at..];
        let closes = rest.iter().take_while(|byte| **byte == b')').count();
        let is_last = closes == rest.len() || (closes == self.groups.len() && rest[closes] == b'|');
        if !is_last || self.wants_captures {
            return Err("$ that may stand before a final newline");
        }
        self.out.push_str("(?:\\n?\\z)");
        Ok(Piece::Nothing)
    }

    fn escape(&mut self) -> Result<Piece, Obstacle> {
        match self.next() {
            Some(byte @ (b'd' | b'D' | b'w' | b'W' | b's' | b'S')) => {
                self.end_run();
                self.out.push('\\');
                self.out.push(char::from(byte));
                Ok(Piece::Atom)
            }
            Some(byte @ (b'b' | b'B')) => {
                self.end_run();
                self.out.push('\\');
                self.out.push(char::from(byte));
                Ok(Piece::Nothing)
            }
            Some(byte) => {
                let literal = escaped_literal(byte)?;
                self.literal(literal);
                Ok(Piece::Atom)
            }
            None => Err("a backslash at the end"),
        }
    }

    /// `[...]` with single characters, ranges of them, and \d, \w, \s and their opposites.
    fn class(&mut self) -> Result<Piece, Obstacle> {
        self.end_run();
        self.out.push('[');
        if self.peek() == Some(b'^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let byte = self.next().ok_or("a class without its end")?;
            if byte == b']' && !is_first {
                break;
            }
            is_first = false;
            let Some(from) = self.class_item(byte)? else { continue };
            self.put_in_class(from);
            if self.peek() == Some(b'-') && self.pattern.get(self.at + 1) != Some(&b']') {
                self.at += 1;
                let byte = self.next().ok_or("a class without its end")?;
                let to = self.class_item(byte)?.ok_or("a range that ends in a class")?;
                if to < from {
                    return Err("a range that ends before it begins");
                }
                self.out.push('-');
                self.put_in_class(to);
            }
        }
        self.out.push(']');
        Ok(Piece::Atom)
    }

    /// A character of a class, or `None` if it was a class in itself.
    fn class_item(&mut self, byte: u8) -> Result<Option<u8>, Obstacle> {
        match byte {
            b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) => Err("a class by name"),
            b'\\' => match self.next() {
                Some(byte @ (b'd' | b'D' | b'w' | b'W' | b's' | b'S')) => {
                    if self.peek() == Some(b'-') && self.pattern.get(self.at + 1) != Some(&b']') {
                        return Err("a range that begins with a class");
                    }
                    self.out.push('\\');
                    self.out.push(char::from(byte));
                    Ok(None)
                }
                Some(byte) => escaped_literal(byte).map(Some),
                None => Err("a backslash at the end"),
            },
            byte => Ok(Some(byte)),
        }
    }

    fn put_in_class(&mut self, byte: u8) {
        self.out.push_str(&format!("\\x{byte:02X}"));
    }
}

/// The character that `\` and this one stand for.
fn escaped_literal(byte: u8) -> Result<u8, Obstacle> {
    match byte {
        b't' => Ok(b'\t'),
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b'f' => Ok(0x0C),
        b'0'..=b'9' => Err("a back-reference or an octal number"),
        byte if byte.is_ascii_alphanumeric() => Err("an escape of a special kind"),
        byte => Ok(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_patterns_are_taken_over() {
        for pattern in [
            "^SELECT",
            "^SELECT.*FOR UPDATE$",
            "^SELECT .* FROM (a|b)( WHERE .*)?$",
            "^(INSERT|UPDATE) ",
            "a{2,3}b{4}c{5,}",
            "[^;]+",
            "[]a-z.]",
            "[a-]",
            "\\bfoo\\b",
            "(?i)x",
            "(?:a|b)+?c",
            "a|b$",
            "(^a|b$)",
            "\\`t\\`\\.\\[x\\]",
            "",
        ] {
            let translated = translate(pattern, false).unwrap_or_else(|reason| panic!("{pattern}: {reason}"));
            regex::bytes::RegexBuilder::new(&translated.pattern)
                .unicode(false)
                .build()
                .unwrap_or_else(|error| panic!("{pattern} as {}: {error}", translated.pattern));
        }
    }

    #[test]
    fn a_needle_is_in_every_match() {
        for (pattern, needle) in [
            ("^SELECT .* FROM orders WHERE", " FROM orders WHERE"),
            ("^SELECT c FROM sbtest\\d+", "SELECT c FROM sbtest"),
            ("abcd?e", "abc"),
            ("abcd{0,2}", "abc"),
            ("(abc|de)fg", "fg"),
            ("x(abcdef)?y", "x"),
            ("abc|de", ""),
            ("(?i)abc$", "abc"),
            ("a\\.b[x]cde", "a.b"),
            ("[abc]+", ""),
            ("(a(b)c)+defg", "defg"),
            ("\\bword\\b", "word"),
        ] {
            let translated = translate(pattern, false).unwrap_or_else(|reason| panic!("{pattern}: {reason}"));
            assert_eq!(String::from_utf8_lossy(&translated.needle), needle, "{pattern}");
        }
    }

    #[test]
    fn the_rest_is_for_pcre() {
        for pattern in [
            "^(?!SELECT)",
            "(?<=a)b",
            "(a)\\1",
            "a++",
            "a**",
            "^*",
            "*",
            "a$b",
            "(a$|b)",
            "(a$)\n",
            "\\h",
            "\\Qx\\E",
            "[[:alpha:]]",
            "x{,3}",
            "x{",
            "x{a}",
            "(*UTF)x",
            "(?s).",
            "é",
            "\\x41",
            "(",
            ")",
            "[a",
            "[z-a]",
            "\\",
            "[a-\\d]",
            "[\\d-z]",
            "(?>a)",
            "a{1,9999}",
            "a{2}{3}",
            "\\v",
            "\\R",
        ] {
            assert!(translate(pattern, false).is_err(), "{pattern}");
        }
        for pattern in ["(a)*", "(?:(a))*", "a$"] {
            assert!(translate(pattern, true).is_err(), "{pattern}");
        }
        assert!(translate("(a)(b|c)", true).is_ok());
    }
}
