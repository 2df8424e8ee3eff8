//! Takes the words of libconfig's language (its manual, "Configuration Files").

/// A word, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A setting's name.
    Name(String),
    Bool(bool),
    Integer(i64),
    Real(f64),
    /// A string, adjacent ones joined.
    Text(String),
    /// One of `= : ; , { } [ ] ( )`.
    Mark(char),
    /// The end of the file.
    End,
}

/// A place that is no libconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// From 1.
    pub(super) line: usize,
    pub(super) reason: String,
}

/// The longest name or number, in bytes.
const WORD_BYTES_MAX: usize = 128;

/// Takes a text apart.
pub(super) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    /// Of the byte at `at`, from 1.
    line: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        // Editors of another system may put a mark of the byte order in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text: text.as_bytes(), at: 0, line: 1 }
    }

    /// The next word and its line.
    pub(super) fn next(&mut self) -> Result<(Token, usize), Fault> {
        self.skip_blanks()?;
        let line = self.line;
        let token = match self.peek() {
            None => Token::End,
            Some(b'"') => Token::Text(self.text()?),
            Some(mark @ (b'=' | b':' | b';' | b',' | b'{' | b'}' | b'[' | b']' | b'(' | b')')) => {
                self.at += 1;
                Token::Mark(char::from(mark))
            }
            Some(b'@') => {
                return Err(
                    self.fault("@include and other @ directives are not read: put it all into one file")
                );
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'*' => self.name()?,
            Some(byte) if byte.is_ascii_digit() || b"+-.".contains(&byte) => self.number()?,
            Some(_) => return Err(self.fault(format!("{} is out of place", self.quote_char()))),
        };
        Ok((token, line))
    }

    fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault { line: self.line, reason: reason.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The character at the place, fit for a terminal.
    fn quote_char(&self) -> String {
        let rest = self.rest();
        let text = String::from_utf8_lossy(rest.get(..4).unwrap_or(rest));
        match text.chars().next() {
            Some(c) if !c.is_control() => format!("\"{c}\""),
            Some(c) => format!("the character {:#04x}", u32::from(c)),
            None => "the end".to_owned(),
        }
    }

    /// Blanks and comments.
    fn skip_blanks(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            match rest.first() {
                Some(b'\n') => {
                    self.line += 1;
                    self.at += 1;
                }
                Some(b' ' | b'\t' | b'\r' | b'\x0c') => self.at += 1,
                Some(b'#') => self.skip_line(),
                Some(b'/') if rest.starts_with(b"//") => self.skip_line(),
                Some(b'/') if rest.starts_with(b"/*") => {
                    let Some(length) = rest.windows(2).skip(2).position(|pair| pair == b"*/") else {
                        return Err(self.fault("unterminated comment: */ is missing"));
                    };
                    let comment = rest.get(..length + 4).unwrap_or(rest);
                    self.line += comment.iter().filter(|byte| **byte == b'\n').count();
                    self.at += comment.len();
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }

    /// The bytes from here on that fit, at most `WORD_BYTES_MAX`.
    fn word(&mut self, fits: impl Fn(u8) -> bool) -> Result<&'t str, Fault> {
        let rest = self.rest();
        let length = rest.iter().position(|byte| !fits(*byte)).unwrap_or(rest.len());
        if length > WORD_BYTES_MAX {
            return Err(self.fault(format!("a word of more than {WORD_BYTES_MAX} bytes")));
        }
        self.at += length;
        // What fits is ASCII.
        Ok(rest.get(..length).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default())
    }

    fn name(&mut self) -> Result<Token, Fault> {
        let word = self.word(|byte| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte))?;
        Ok(if word.eq_ignore_ascii_case("true") {
            Token::Bool(true)
        } else if word.eq_ignore_ascii_case("false") {
            Token::Bool(false)
        } else {
            Token::Name(word.to_owned())
        })
    }

    /// Integers (also hexadecimal, also with the suffix L of long ones) and decimal numbers.
    fn number(&mut self) -> Result<Token, Fault> {
        let word = self.word(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte))?;
        let none = || self.fault(format!("{word} is not a number (a text needs quotes)"));
        let bare = word.strip_suffix(['L', 'l']).unwrap_or(word);
        let bare = bare.strip_suffix(['L', 'l']).unwrap_or(bare);
        let hexadecimal = bare.strip_prefix("0x").or_else(|| bare.strip_prefix("0X"));
        if let Some(digits) = hexadecimal {
            // As in libconfig its 64 bits are those of a signed number.
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_plain).ok_or_else(none)?;
            return Ok(Token::Integer(number.cast_signed()));
        }
        let digits = bare.strip_prefix(['+', '-']).unwrap_or(bare);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let too_large = || self.fault(format!("{word} is too large for a number of 64 bits"));
            return bare.parse().map(Token::Integer).map_err(|_| too_large());
        }
        let is_decimal = word.contains(['.', 'e', 'E'])
            && word.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        word.parse().ok().filter(|_| is_decimal).map(Token::Real).ok_or_else(none)
    }

    /// A string and those that follow it with nothing but blanks between.
    fn text(&mut self) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        let begin = self.line;
        while self.peek() == Some(b'"') {
            self.at += 1;
            self.quoted(&mut bytes)?;
            self.skip_blanks()?;
        }
        let no_utf8 = |_| Fault { line: begin, reason: "the string is not UTF-8".to_owned() };
        String::from_utf8(bytes).map_err(no_utf8)
    }

    /// The rest of a string behind its first quote. A backslash that begins no escape is one, as in libconfig.
    fn quoted(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let begin = self.line;
        loop {
            let rest = self.rest();
            let plain = rest.iter().position(|byte| b"\"\\".contains(byte)).unwrap_or(rest.len());
            let (text, rest) = rest.split_at(plain);
            out.extend_from_slice(text);
            self.line += text.iter().filter(|byte| **byte == b'\n').count();
            self.at += text.len();
            match rest {
                [] => {
                    let reason = "unterminated string: \" is missing".to_owned();
                    return Err(Fault { line: begin, reason });
                }
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(());
                }
                _ => {
                    let (byte, length) = escape(rest);
                    out.push(byte);
                    self.at += length;
                }
            }
        }
    }
}

/// What the backslash at the beginning of `text` stands for, and how many bytes that takes.
fn escape(text: &[u8]) -> (u8, usize) {
    let byte = match text.get(1) {
        Some(b'\\') => b'\\',
        Some(b'"') => b'"',
        Some(b'a') => 0x07,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 0x0b,
        Some(b'x') => {
            let digits = text.get(2..4).and_then(|digits| std::str::from_utf8(digits).ok());
            let is_plain = digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let byte = digits.filter(|_| is_plain).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            return byte.map_or((b'\\', 1), |byte| (byte, 4));
        }
        _ => return (b'\\', 1),
    };
    (byte, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    fn one(text: &str) -> Token {
        let mut tokens = tokens(text).unwrap();
        assert_eq!(tokens.len(), 1, "{tokens:?}");
        tokens.remove(0)
    }

    #[test]
    fn scalars() {
        for (text, wanted) in [
            ("0", Token::Integer(0)),
            ("-17", Token::Integer(-17)),
            ("+017", Token::Integer(17)),
            ("9223372036854775807L", Token::Integer(i64::MAX)),
            ("12LL", Token::Integer(12)),
            ("0xfF", Token::Integer(255)),
            ("0XffffffffffffffffL", Token::Integer(-1)),
            ("1.5", Token::Real(1.5)),
            (".5e1", Token::Real(5.0)),
            ("-1e2", Token::Real(-100.0)),
            ("TRUE", Token::Bool(true)),
            ("False", Token::Bool(false)),
            ("mysql-threads_*", Token::Name("mysql-threads_*".to_owned())),
        ] {
            assert_eq!(one(text), wanted, "{text}");
        }
    }

    #[test]
    fn strings_have_escapes_and_are_joined() {
        for (text, wanted) in [
            (r#""""#, ""),
            (
                r#""a" "b"  # c
                "c""#,
                "abc",
            ),
            (r#""\\ \" \n\t\r\x41\f\v\a\b""#, "\\ \" \n\t\rA\x0c\x0b\x07\x08"),
            (r#""^SELECT \d+ \s\xZZ $""#, r"^SELECT \d+ \s\xZZ $"),
            ("\"two\nlines\"", "two\nlines"),
            (r#""\xc3\xa9""#, "é"),
            (r##""# // /* no comment""##, "# // /* no comment"),
        ] {
            assert_eq!(one(text), Token::Text(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn faults_have_their_line() {
        for (text, line, reason) in [
            ("a\n\"b\nc", 2, "unterminated string"),
            ("/* a */\n/* b\n", 2, "unterminated comment"),
            ("/*\n*/ $", 2, "\"$\" is out of place"),
            ("é", 1, "\"é\" is out of place"),
            ("\u{1}", 1, "the character 0x01 is out of place"),
            ("/", 1, "\"/\" is out of place"),
            ("\n@include \"x\"", 2, "@include and other @ directives are not read"),
            ("9223372036854775808", 1, "9223372036854775808 is too large"),
            ("0x", 1, "0x is not a number"),
            ("0x+1", 1, "0x+1 is not a number"),
            ("12ab", 1, "12ab is not a number (a text needs quotes)"),
            ("10.0.0.1", 1, "10.0.0.1 is not a number (a text needs quotes)"),
            ("+", 1, "+ is not a number"),
            ("\n\"\\xff\"", 2, "the string is not UTF-8"),
        ] {
            let fault = tokens(text).unwrap_err();
            assert!(fault.line == line && fault.reason.starts_with(reason), "{text:?}: {fault:?}");
        }
        let long = "a".repeat(WORD_BYTES_MAX + 1);
        assert_eq!(tokens(&long).unwrap_err().reason, "a word of more than 128 bytes");
    }
}
