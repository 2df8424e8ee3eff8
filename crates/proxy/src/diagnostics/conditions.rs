//! Keeps a session's saved conditions (errors, warnings, notes), and shows them in another `character_set_results` as
//! servers would.
//!
//! Rows of SHOW WARNINGS are kept in the bytes in which they came. Under the same character set they are shown as they
//! are. Under another one they are converted, if nothing can get lost: what a character set lacks a server has replaced
//! before (seen on MySQL 9.7: `?`; on MariaDB 10.11: a backslash, or a point in swe7, and the number in hexadecimal).

use std::borrow::Cow;

use weir_protocol::charset::{self, Encoding, Server};
use weir_protocol::frame;
use weir_protocol::wire::{Reader, put_lenenc_bytes};

use crate::context::Context;
use crate::pool::pools::Pools;
use crate::session::{Session, Tracked};

/// So many digits follow what stands for a character.
const DIGITS: usize = 4;

/// A row of SHOW WARNINGS.
pub(crate) struct Condition<'a> {
    /// The three columns.
    columns: [&'a [u8]; 3],
    /// The number.
    pub code: u16,
}

impl<'a> Condition<'a> {
    /// Reads a row in any encoding.
    pub(crate) fn parse(row: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        let mut columns: [&[u8]; 3] = [b""; 3];
        for column in &mut columns {
            *column = reader.lenenc_bytes().ok()?;
        }
        let code = std::str::from_utf8(&word(columns[1])).ok()?.parse().ok()?;
        Some(Condition { columns, code })
    }

    pub(crate) fn is_error(&self) -> bool {
        *word(self.columns[0]) == *b"Error"
    }

    /// The message, if it is certain to be all there.
    pub(crate) fn text(&self, encoding: Option<Encoding>) -> Option<String> {
        let (encoding, message) = (encoding?, self.columns[2]);
        let text = encoding.decode(message)?;
        (encoding.has_every_character() || !may_lack_some(&text)).then_some(text)
    }

    /// The columns under another character set. None if that can't be told.
    fn shown(
        &self,
        from: Option<Encoding>,
        to: Option<Encoding>,
        is_mariadb: bool,
    ) -> Option<[Cow<'a, [u8]>; 3]> {
        if from.is_some() && from == to {
            return Some(self.columns.map(Cow::Borrowed));
        }
        let to = to?;
        let level = String::from_utf8(word(self.columns[0]).into_owned()).ok()?;
        Some([
            to.encode(&level)?.into(),
            number(&self.code.to_string(), Some(to), is_mariadb).into(),
            to.encode(&self.text(from)?)?.into(),
        ])
    }
}

/// ASCII in any encoding: those that take more bytes for it fill them with zeros.
pub(crate) fn word(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes.contains(&0) {
        true => bytes.iter().copied().filter(|byte| *byte != 0).collect(),
        false => bytes.into(),
    }
}

/// A number in a row of text: MariaDB (10.11) writes it in the character set of results, MySQL (9.7) in ASCII.
pub(crate) fn number(digits: &str, results: Option<Encoding>, is_mariadb: bool) -> Vec<u8> {
    match results.filter(|_| is_mariadb) {
        Some(results) => results.encode_all(digits),
        None => digits.into(),
    }
}

/// Whether something in a message may stand for a character that its character set lacks.
fn may_lack_some(text: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    let mut points = text.as_bytes().windows(1 + DIGITS);
    text.contains(['?', '\\']) || points.any(|part| part[0] == b'.' && part[1..].iter().all(is_digit))
}

/// Appends a row, as a packet, in this encoding.
pub(crate) fn put_row(out: &mut Vec<u8>, columns: [&str; 3], encoding: Encoding, is_mariadb: bool) {
    let [level, code, message] = columns;
    frame::packet(out, &mut 0, |out| {
        put_lenenc_bytes(out, &encoding.encode_all(level));
        put_lenenc_bytes(out, &number(code, Some(encoding), is_mariadb));
        put_lenenc_bytes(out, &encoding.encode_all(message));
    });
}

/// What tells a client how text comes.
pub(crate) struct ResultText {
    pub encoding: Option<Encoding>,
    /// The id of columns of text.
    pub collation: u16,
    /// Bytes that a character takes at most.
    pub width: u32,
}

/// Bytes that a character of this character set takes at most.
fn width(charset: &str) -> u32 {
    match charset {
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        "" | "utf8mb3" | "utf8" | "ujis" | "eucjpms" => 3,
        "ucs2" | "big5" | "sjis" | "cp932" | "gbk" | "gb2312" | "euckr" => 2,
        "filename" => 5,
        _ => 1,
    }
}

impl Pools {
    /// The saved rows of SHOW WARNINGS in the session's character set, or None if one can't be converted.
    pub(crate) fn shown_rows(
        &self,
        ctx: &Context,
        session: &Session,
        errors_only: bool,
        offset: usize,
        count: usize,
    ) -> Option<Vec<[Vec<u8>; 3]>> {
        let is_mariadb = self.speaks_mariadb(ctx, session);
        let to = session.tracked.result_text(is_mariadb).encoding;
        let shown = |row| {
            let columns =
                Condition::parse(row)?.shown(session.diagnostics.saved_encoding(), to, is_mariadb)?;
            Some(columns.map(Cow::into_owned))
        };
        session.diagnostics.saved_rows(errors_only).skip(offset).take(count).map(shown).collect()
    }
}

impl Tracked {
    /// How a server would send it text.
    pub(crate) fn result_text(&self, is_mariadb: bool) -> ResultText {
        let name = self.state.variable("character_set_results").unwrap_or("utf8mb4");
        let server = if is_mariadb { Server::MariaDb } else { Server::MySql };
        let of_connection = self.state.variable("collation_connection").unwrap_or_default();
        let collation = match name {
            "" => charset::UTF8MB3_GENERAL_CI,
            // A collation that was named in SET NAMES is that of results, too.
            name => charset::by_name(of_connection.as_bytes())
                .filter(|known| known.charset == name)
                .or_else(|| charset::default_of(name.as_bytes(), server))
                .map_or(charset::UTF8MB4_GENERAL_CI, |known| known.id),
        };
        ResultText { encoding: Encoding::of(name), collation, width: width(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Option<Encoding> = Some(Encoding::Utf8);
    const LATIN1: Option<Encoding> = Some(Encoding::Latin1);
    const UTF16: Option<Encoding> = Some(Encoding::Utf16);
    const GBK: Option<Encoding> = Some(Encoding::Other("gbk"));

    fn row(message: &str, encoding: Option<Encoding>) -> Vec<u8> {
        let mut packet = Vec::new();
        put_row(&mut packet, ["Error", "1146", message], encoding.unwrap(), true);
        packet.split_off(frame::HEADER_LEN)
    }

    #[test]
    fn levels_and_numbers_are_read_in_every_encoding() {
        for encoding in ["utf8mb4", "ucs2", "utf16le", "utf32", "swe7", "filename", "gbk"].map(Encoding::of) {
            let row = row("a table", encoding);
            let condition = Condition::parse(&row).unwrap();
            assert!(condition.is_error(), "{encoding:?}");
            assert_eq!((condition.code, condition.text(encoding).as_deref()), (1146, Some("a table")));
        }
        assert!(Condition::parse(b"\x05Error\x041146").is_none());
    }

    #[test]
    fn messages_are_shown_in_another_character_set() {
        let shown = |message, from, to, is_mariadb| {
            let row = row(message, from);
            let columns = Condition::parse(&row).unwrap().shown(from, to, is_mariadb)?;
            Some(columns.map(|column| column.escape_ascii().to_string()).join(" "))
        };
        assert_eq!(shown("ä", UTF8, LATIN1, true).as_deref(), Some(r"Error 1146 \xe4"));
        assert_eq!(shown("ä", LATIN1, UTF8, true).as_deref(), Some(r"Error 1146 \xc3\xa4"));
        let utf16 = r"\x00E\x00r\x00r\x00o\x00r";
        let digits = r"\x001\x001\x004\x006";
        assert_eq!(shown("ä", UTF8, UTF16, true), Some(format!(r"{utf16} {digits} \x00\xe4")));
        assert_eq!(shown("ä", UTF8, UTF16, false), Some(format!(r"{utf16} 1146 \x00\xe4")));
        // The same bytes, even where nobody here can read them.
        assert_eq!(shown("what?", GBK, GBK, true).as_deref(), Some("Error 1146 what?"));
        for (message, from, to) in [
            ("what?", GBK, UTF8),
            (r"\00E4", LATIN1, UTF8),
            ("x.005B", Some(Encoding::Swe7), UTF8),
            ("ä", UTF8, GBK),
            ("日", UTF16, LATIN1),
            ("a", UTF8, None),
            ("a", None, UTF8),
        ] {
            let bytes = row(message, from.or(UTF8));
            assert!(Condition::parse(&bytes).unwrap().shown(from, to, true).is_none(), "{message}");
        }
    }

    #[test]
    fn what_may_stand_for_another_character_is_seen() {
        assert!(may_lack_some("a?") && may_lack_some(r"\00E4") && may_lack_some("a.005B'"));
        assert!(!may_lack_some("Table 'a.nosuch' doesn't exist") && !may_lack_some("a.12"));
    }
}
