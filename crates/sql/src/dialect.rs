//! Describes the dialect of a statement: session settings and the server's family, which change the meaning of its
//! bytes.

/// The rules by which a session's server reads the bytes of a statement.
///
/// The defaults are those of a fresh MariaDB 10.6 session over a UTF-8 connection. A wrong dialect can make
/// a statement look harmless that is not, so it must follow the session's `sql_mode` and
/// `character_set_client`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// `sql_mode` contains `ANSI_QUOTES`: `"x"` is an identifier.
    pub ansi_quotes: bool,
    /// `sql_mode` contains `MSSQL`: `[x]` is an identifier too (MariaDB).
    pub brackets: bool,
    /// `sql_mode` contains `NO_BACKSLASH_ESCAPES`: `\` is an ordinary byte in strings.
    pub no_backslash_escapes: bool,
    /// `sql_mode` contains `IGNORE_SPACE`, or the client connected with `CLIENT_IGNORE_SPACE`:
    /// `COUNT (*)` is the builtin function. Without it, it is a stored function named `COUNT`.
    pub ignore_space: bool,
    /// The multi-byte characters of `character_set_client`.
    pub lead_bytes: LeadBytes,
    /// The server that will read the statement: which function names are its own.
    pub server: Server,
}

/// The way in which bytes from 0x80 up form characters in `character_set_client`.
///
/// Servers read statements character by character, so the second byte of a character that happens to be
/// `\` or a quote neither escapes nor ends a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeadBytes {
    /// One byte, one character: latin1, cp1251, binary, ... In some of them 0xA0 or 0xFF is a space.
    None,
    /// UTF-8 (utf8mb3, utf8mb4): no byte of a longer character is ASCII.
    #[default]
    Utf8,
    /// euckr, gb2312, ujis, eucjpms: a trail byte is a letter or not ASCII.
    Euc,
    /// sjis, cp932.
    Sjis,
    /// gbk, and gb18030, whose longer characters have only digits as ASCII bytes.
    Gbk,
    /// big5.
    Big5,
}

impl LeadBytes {
    /// The kind of the character set `name` (any letter case), or `None` for sets that cannot be told
    /// apart from ASCII text safely: swe7, where letters replace `@`, `` ` `` and `\`, sets that servers
    /// refuse as `character_set_client` (ucs2, utf16, utf32), and unknown ones.
    pub fn of_charset(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "utf8" | "utf8mb3" | "utf8mb4" => Self::Utf8,
            "euckr" | "gb2312" | "ujis" | "eucjpms" => Self::Euc,
            "sjis" | "cp932" => Self::Sjis,
            "gbk" | "gb18030" => Self::Gbk,
            "big5" => Self::Big5,
            "armscii8" | "ascii" | "binary" | "cp1250" | "cp1251" | "cp1256" | "cp1257" | "cp850"
            | "cp852" | "cp866" | "dec8" | "geostd8" | "greek" | "hebrew" | "hp8" | "keybcs2" | "koi8r"
            | "koi8u" | "latin1" | "latin2" | "latin5" | "latin7" | "macce" | "macroman" | "tis620" => {
                Self::None
            }
            _ => return None,
        })
    }

    /// Whether `lead` and `trail` are one character, so that `trail` must not be read as ASCII.
    #[inline]
    pub(crate) fn pair(self, lead: u8, trail: u8) -> bool {
        match self {
            Self::None | Self::Utf8 => false,
            Self::Euc => {
                matches!(lead, 0x81..=0xFE) && matches!(trail, b'A'..=b'Z' | b'a'..=b'z' | 0x81..=0xFE)
            }
            Self::Sjis => {
                matches!(lead, 0x81..=0x9F | 0xE0..=0xFC) && matches!(trail, 0x40..=0x7E | 0x80..=0xFC)
            }
            Self::Gbk => matches!(lead, 0x81..=0xFE) && matches!(trail, 0x40..=0x7E | 0x80..=0xFE),
            Self::Big5 => matches!(lead, 0xA1..=0xF9) && matches!(trail, 0x40..=0x7E | 0xA1..=0xFE),
        }
    }

    /// How many bytes a character has that begins with `lead`, as far as `lead` alone can tell.
    ///
    /// MySQL reads quoted identifiers by this length, without looking at the bytes that follow.
    pub(crate) fn length_by_lead(self, lead: u8) -> usize {
        match (self, lead) {
            (Self::None, _) | (_, 0..=0x80) => 1,
            (Self::Utf8, 0xC2..=0xDF) => 2,
            (Self::Utf8, 0xE0..=0xEF) => 3,
            (Self::Utf8, 0xF0..=0xF4) => 4,
            (Self::Utf8, _) => 1,
            _ => 2,
        }
    }
}

/// The family and release of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// MariaDB or MySQL.
    pub family: Family,
    /// Major times 100 plus minor: 1011 is 10.11.
    pub release: u16,
}

/// The two lines of servers that speak this SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// MariaDB.
    MariaDb,
    /// MySQL and Percona's builds of it.
    MySql,
    /// One of them: only what both read alike is certain.
    Either,
}

impl Server {
    /// A server of which nothing is known.
    pub const UNKNOWN: Self = Self { family: Family::Either, release: 0 };

    /// What a version such as `5.5.5-10.11.19-MariaDB` or `8.4.3` says.
    pub fn of_version(version: &[u8]) -> Self {
        let is_mariadb = version.windows(7).any(|word| word == b"MariaDB");
        let number = version.strip_prefix(b"5.5.5-").filter(|_| is_mariadb).unwrap_or(version);
        let digits = |part: &[u8]| std::str::from_utf8(part).ok().and_then(|text| text.parse().ok());
        let mut parts = number.split(|byte| !byte.is_ascii_digit()).map(|part| digits(part).unwrap_or(0));
        let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if is_mariadb { Self::mariadb(major, minor) } else { Self::mysql(major, minor) }
    }

    /// How a statement is to be read that either of two servers may get.
    pub fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::UNKNOWN }
    }

    /// MariaDB `major`.`minor`.
    pub const fn mariadb(major: u8, minor: u8) -> Self {
        Self { family: Family::MariaDb, release: major as u16 * 100 + minor as u16 }
    }

    /// MySQL `major`.`minor`.
    pub const fn mysql(major: u8, minor: u8) -> Self {
        Self { family: Family::MySql, release: major as u16 * 100 + minor as u16 }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::mariadb(10, 6)
    }
}
