//! Encodes text as servers send it in a character set, as far as that can be told without their tables.

use super::table::COLLATIONS;

/// The encoding of text in a character set of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// utf8mb4; also NULL and binary, with which servers send text of their own as they keep it.
    Utf8,
    /// utf8mb3: the first 65,536 characters only.
    Utf8Mb3,
    /// latin1, which is cp1252.
    Latin1,
    /// swe7: letters in the place of some signs of ASCII.
    Swe7,
    /// MariaDB's own for names of files: `@` and four digits for what is no letter, digit or `_`.
    Filename,
    /// ucs2.
    Ucs2,
    /// utf16.
    Utf16,
    /// utf16le.
    Utf16Le,
    /// utf32.
    Utf32,
    /// The character set of this name, of which only ASCII is known, written as such.
    Other(&'static str),
}

/// latin1 from 0x80 to 0x9F (MariaDB 10.11, MySQL 9.7).
const LATIN1_SIGNS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8D}', 'Ž', '\u{8F}', '\u{90}',
    '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9D}', 'ž', 'Ÿ',
];
/// What swe7 has in the place of ASCII (MariaDB 10.11, MySQL 9.7).
const SWE7_LETTERS: [(u8, char); 10] = [
    (b'@', 'É'),
    (b'[', 'Ä'),
    (b'\\', 'Ö'),
    (b']', 'Å'),
    (b'^', 'Ü'),
    (b'`', 'é'),
    (b'{', 'ä'),
    (b'|', 'ö'),
    (b'}', 'å'),
    (b'~', 'ü'),
];

impl Encoding {
    /// That of a character set, by its name as servers report it: empty for NULL. None if it is not known.
    pub fn of(charset: &str) -> Option<Self> {
        Some(match charset {
            "" | "binary" | "utf8mb4" => Self::Utf8,
            "utf8mb3" | "utf8" => Self::Utf8Mb3,
            "latin1" => Self::Latin1,
            "swe7" => Self::Swe7,
            "filename" => Self::Filename,
            "ucs2" => Self::Ucs2,
            "utf16" => Self::Utf16,
            "utf16le" => Self::Utf16Le,
            "utf32" => Self::Utf32,
            _ => Self::Other(COLLATIONS.iter().find(|known| known.charset == charset)?.charset),
        })
    }

    /// Whether it has every character, so that nothing is ever put in the place of one that it lacks.
    pub fn has_every_character(self) -> bool {
        !matches!(self, Self::Latin1 | Self::Swe7 | Self::Other(_))
    }

    /// Whether ASCII takes more than one byte in it.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Ucs2 | Self::Utf16 | Self::Utf16Le | Self::Utf32)
    }

    /// What these bytes say. None if they are not of this character set, or not known here.
    pub fn decode(self, bytes: &[u8]) -> Option<String> {
        let pair = |read: fn([u8; 2]) -> u16| {
            let units = bytes.chunks(2).map(|unit| unit.try_into().map(read).ok());
            String::from_utf16(&units.collect::<Option<Vec<u16>>>()?).ok()
        };
        match self {
            Self::Utf8 | Self::Utf8Mb3 => String::from_utf8(bytes.to_vec()).ok(),
            Self::Ucs2 | Self::Utf16 => pair(u16::from_be_bytes),
            Self::Utf16Le => pair(u16::from_le_bytes),
            Self::Utf32 => {
                let code = |unit: &[u8]| Some(u32::from_be_bytes(unit.try_into().ok()?));
                bytes.chunks(4).map(|unit| char::from_u32(code(unit)?)).collect()
            }
            Self::Latin1 => Some(bytes.iter().map(|byte| of_latin1(*byte)).collect()),
            Self::Swe7 => bytes.iter().map(|byte| of_swe7(*byte)).collect(),
            Self::Filename => of_filename(bytes),
            Self::Other(_) => bytes.is_ascii().then(|| String::from_utf8(bytes.to_vec()).ok())?,
        }
    }

    /// The text in this character set. None if that lacks a character of it, or may lack it.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(text.len());
        text.chars().all(|character| self.put(character, &mut out)).then_some(out)
    }

    /// The same with a `?` for each character that is lacking.
    pub fn encode_all(self, text: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        for character in text.chars() {
            if !self.put(character, &mut out) {
                self.put('?', &mut out);
            }
        }
        out
    }

    /// Appends a character; false if it is lacking.
    fn put(self, character: char, out: &mut Vec<u8>) -> bool {
        let code = u32::from(character);
        let mut units = [0; 2];
        let is_short = code < 0x1_0000;
        let known = |byte: Option<u8>, out: &mut Vec<u8>| {
            out.extend(byte);
            byte.is_some()
        };
        match self {
            Self::Utf8Mb3 | Self::Ucs2 if !is_short => return false,
            Self::Utf8 | Self::Utf8Mb3 => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Self::Ucs2 | Self::Utf16 => {
                out.extend(character.encode_utf16(&mut units).iter().flat_map(|unit| unit.to_be_bytes()));
            }
            Self::Utf16Le => {
                out.extend(character.encode_utf16(&mut units).iter().flat_map(|unit| unit.to_le_bytes()));
            }
            Self::Utf32 => out.extend_from_slice(&code.to_be_bytes()),
            Self::Latin1 => return known((0..=u8::MAX).find(|byte| of_latin1(*byte) == character), out),
            Self::Swe7 => return known((0..0x80).find(|byte| of_swe7(*byte) == Some(character)), out),
            Self::Filename if !character.is_ascii() => return false,
            Self::Filename if character.is_ascii_alphanumeric() || character == '_' => out.push(code as u8),
            Self::Filename => out.extend_from_slice(format!("@{code:04x}").as_bytes()),
            // Its backslash is a character of two bytes.
            Self::Other("sjis") if character == '\\' => return false,
            Self::Other(_) => return known(u8::try_from(code).ok().filter(u8::is_ascii), out),
        }
        true
    }
}

fn of_latin1(byte: u8) -> char {
    let sign = byte.checked_sub(0x80).and_then(|at| LATIN1_SIGNS.get(usize::from(at)));
    sign.copied().unwrap_or(char::from(byte))
}

fn of_swe7(byte: u8) -> Option<char> {
    let letter = SWE7_LETTERS.iter().find(|(known, _)| *known == byte).map(|(_, letter)| *letter);
    letter.or(byte.is_ascii().then_some(char::from(byte)))
}

/// Letters beyond ASCII have short forms, which are not read.
fn of_filename(bytes: &[u8]) -> Option<String> {
    let (mut text, mut rest) = (String::new(), std::str::from_utf8(bytes).ok()?);
    while let Some(character) = rest.chars().next() {
        rest = rest.get(character.len_utf8()..)?;
        if character != '@' {
            text.push(character);
            continue;
        }
        let (code, behind) = rest.split_at_checked(4)?;
        let code = u32::from_str_radix(code, 16).ok()?;
        text.push(char::from_u32(code)?);
        rest = behind;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Encoding; 10] = [
        Encoding::Utf8,
        Encoding::Utf8Mb3,
        Encoding::Latin1,
        Encoding::Swe7,
        Encoding::Filename,
        Encoding::Ucs2,
        Encoding::Utf16,
        Encoding::Utf16Le,
        Encoding::Utf32,
        Encoding::Other("gbk"),
    ];

    #[test]
    fn names_are_those_that_servers_report() {
        assert_eq!(Encoding::of(""), Some(Encoding::Utf8));
        assert_eq!(Encoding::of("utf8"), Some(Encoding::Utf8Mb3));
        assert_eq!(Encoding::of("gbk"), Some(Encoding::Other("gbk")));
        assert_eq!(Encoding::of("latin9"), None);
    }

    #[test]
    fn what_was_written_is_read_again() {
        for encoding in ALL {
            for text in ["Table 'a.t' doesn't exist", "a@b[c]\\{d}?", "ä", "Ä€™ÿ", "日本", "😀"] {
                let Some(bytes) = encoding.encode(text) else { continue };
                assert_eq!(encoding.decode(&bytes).as_deref(), Some(text), "{encoding:?}");
                assert_eq!(encoding.encode_all(text), bytes, "{encoding:?}");
            }
        }
    }

    /// As MariaDB 10.11 and MySQL 9.7 write it.
    #[test]
    fn text_is_written_as_servers_write_it() {
        let is = |encoding: Encoding, text, bytes: &[u8]| {
            assert_eq!(encoding.encode(text).as_deref(), Some(bytes), "{encoding:?}");
        };
        is(Encoding::Utf8, "ä1", b"\xC3\xA41");
        is(Encoding::Latin1, "ä€1", b"\xE4\x801");
        is(Encoding::Swe7, "äÅ1", b"{]1");
        is(Encoding::Ucs2, "ä1", b"\0\xE4\x001");
        is(Encoding::Utf16, "😀1", b"\xD8\x3D\xDE\0\x001");
        is(Encoding::Utf16Le, "ä1", b"\xE4\x001\0");
        is(Encoding::Utf32, "ä1", b"\0\0\0\xE4\0\0\x001");
        is(Encoding::Filename, "a,b_1", b"a@002cb_1");
        is(Encoding::Other("gbk"), "a[1", b"a[1");
    }

    #[test]
    fn what_is_lacking_is_not_guessed() {
        for (encoding, text) in [
            (Encoding::Latin1, "日"),
            (Encoding::Swe7, "@"),
            (Encoding::Swe7, "["),
            (Encoding::Ucs2, "😀"),
            (Encoding::Utf8Mb3, "😀"),
            (Encoding::Filename, "ä"),
            (Encoding::Other("gbk"), "ä"),
            (Encoding::Other("sjis"), "\\"),
        ] {
            assert_eq!(encoding.encode(text), None, "{encoding:?}");
        }
        assert_eq!(Encoding::Swe7.encode_all("@@a"), b"??a");
        assert_eq!(Encoding::Other("gbk").decode(b"\xC3\xA4"), None);
        assert_eq!(Encoding::Swe7.decode(b"\xE4"), None);
        assert_eq!(Encoding::Utf16.decode(b"\0a\0"), None);
        assert_eq!(Encoding::Utf32.decode(b"\0\0\0a\0"), None);
        assert_eq!(Encoding::Utf16.decode(b"\xD8\0\0a"), None);
        assert_eq!(Encoding::Filename.decode(b"a@0k"), None);
    }
}
