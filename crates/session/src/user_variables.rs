//! Moves user variables from one connection to another: asked for where they are, and set where the session goes on,
//! with the same names, values and types.
//!
//! The type of a value is that of its column in a result, also of NULL; its text is written as the literal of that type:
//!
//! | column | literal |
//! | --- | --- |
//! | LONGLONG | `5`, unsigned: `CAST(5 AS UNSIGNED)` |
//! | NEWDECIMAL | `1.50`, `5.` |
//! | DOUBLE | `0.1e0` |
//! | a string | `_latin1 X'616263' COLLATE latin1_bin` |
//! | NULL | a value of its type, and then NULL, which leaves the type alone |
//!
//! Seen on MariaDB 10.11 and MySQL 9.7. What is none of these stays where it is.

use thiserror::Error;
use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::resultset::{ColumnDefinition, ColumnFlags, ColumnType};
use weir_protocol::wire::Reader;
use weir_sql::literal::{hexadecimal, identifier};
use weir_sql::{Dialect, LeadBytes, Lexer, TokenKind};

/// More variables than this are not carried.
pub const VARIABLES_MAX: usize = 256;
/// Nor values of more bytes than this, all variables together.
pub const BYTES_MAX: usize = 64 << 10;

/// Why a session's variables can't be carried.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// Too many of them.
    #[error("it has more than {VARIABLES_MAX} user variables")]
    TooMany,
    /// Too large.
    #[error("its user variables take more than {BYTES_MAX} bytes")]
    TooLarge,
    /// A name that the session's character set can't write, or that can't be read from a text.
    #[error("the name of a user variable can't be written in its character set")]
    Name,
    /// Some variables are known to be there, and the server shows none.
    #[error("the server does not show its user variables")]
    Hidden,
    /// A type that has no literal.
    #[error("a user variable has a type that can't be written (code {0})")]
    Type(u8),
    /// A value or a collation that is not what its type says.
    #[error("the server's answer about its user variables can't be read")]
    Answer,
}

/// Asks a MariaDB for the names of the connection's variables.
pub const NAMES_ON_MARIADB: &str = "SELECT CAST(CONVERT(HEX(VARIABLE_NAME) USING latin1) AS BINARY) \
     FROM information_schema.USER_VARIABLES LIMIT 257";
/// The same of a MySQL: for those who may read the table.
pub const NAMES_ON_MYSQL: &str = "SELECT CAST(CONVERT(HEX(VARIABLE_NAME) USING latin1) AS BINARY) \
     FROM performance_schema.user_variables_by_thread WHERE THREAD_ID=PS_CURRENT_THREAD_ID() LIMIT 257";

/// Reads the answer to one of them: the data packets of the reply.
///
/// # Errors
/// If there are too many names, or it is no such answer.
pub fn names(reply: &[u8]) -> Result<Vec<Vec<u8>>, Obstacle> {
    let mut names = Vec::new();
    // The first packet is the definition of the column.
    for row in packets(reply)?.skip(1) {
        let hex = Reader::new(row).lenenc_bytes().map_err(|_| Obstacle::Answer)?;
        names.push(from_hex(hex).ok_or(Obstacle::Answer)?);
    }
    if names.len() > VARIABLES_MAX { Err(Obstacle::TooMany) } else { Ok(names) }
}

/// The names of all user variables in a text: those that it may have set are among them. None if they can't be read with
/// certainty.
pub fn names_in(text: &[u8], dialect: Dialect) -> Option<Vec<Vec<u8>>> {
    let mut lexer = Lexer::new(text, dialect);
    let mut names = Vec::new();
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::UserVariable => names.push(name_in(text.get(token.range())?, dialect.lead_bytes)?),
            _ => {}
        }
    }
    (!lexer.flaws().malformed).then_some(names)
}

/// The name in `@name`, `@'name'`, ``@`name` ``.
fn name_in(token: &[u8], lead_bytes: LeadBytes) -> Option<Vec<u8>> {
    let name = token.strip_prefix(b"@")?;
    let quote = *name.first()?;
    let is_quoted = matches!(quote, b'\'' | b'"' | b'`');
    let name = match is_quoted {
        true => name.strip_prefix(&[quote])?.strip_suffix(&[quote])?,
        false => name,
    };
    let is_certain = is_writable(name, lead_bytes) && !(quote != b'`' && name.contains(&b'\\'));
    if !is_certain {
        return None;
    }
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if is_quoted && *byte == quote {
            bytes.next(); // it is doubled
        }
    }
    Some(out)
}

/// Whether a name means the same bytes in the session's character set and in the server's own, utf8mb3.
fn is_writable(name: &[u8], lead_bytes: LeadBytes) -> bool {
    name.is_ascii() || (lead_bytes == LeadBytes::Utf8 && std::str::from_utf8(name).is_ok())
}

/// A variable and what it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// `@` and the name, in backquotes.
    name: Vec<u8>,
    /// The value, or where that is NULL, one of its type.
    literal: String,
    is_null: bool,
}

/// The variables of a session, as they are on its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserVariables {
    variables: Vec<Variable>,
}

/// Asks a connection for variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    names: Vec<Vec<u8>>,
}

impl Question {
    /// About these names, in a session that reads bytes as `lead_bytes` says.
    ///
    /// # Errors
    /// If there are too many, or one of them can't be written.
    pub fn about(names: &[Vec<u8>], lead_bytes: LeadBytes) -> Result<Self, Obstacle> {
        if names.len() > VARIABLES_MAX {
            return Err(Obstacle::TooMany);
        }
        let quoted = |name: &Vec<u8>| {
            let quoted = identifier(name, lead_bytes).filter(|_| is_writable(name, lead_bytes))?;
            Some([b"@", quoted.as_slice()].concat())
        };
        let names: Option<Vec<_>> = names.iter().map(quoted).collect();
        Ok(Self { names: names.ok_or(Obstacle::Name)? })
    }

    /// The statement. Its only row has three columns for each variable: one with its type, its bytes, its collation; there
    /// is no row if they are too large.
    pub fn text(&self) -> Vec<u8> {
        let mut text = b"SELECT ".to_vec();
        for (at, name) in self.names.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"" } else { b", " });
            text.extend_from_slice(name);
            text.extend_from_slice(b", CAST(");
            text.extend_from_slice(name);
            text.extend_from_slice(b" AS BINARY), CAST(CONVERT(COLLATION(");
            text.extend_from_slice(name);
            text.extend_from_slice(b") USING latin1) AS BINARY)");
        }
        text.extend_from_slice(b" FROM DUAL WHERE 0");
        for name in &self.names {
            text.extend_from_slice(b"+COALESCE(LENGTH(");
            text.extend_from_slice(name);
            text.extend_from_slice(b"),0)");
        }
        // Also where the session's own sql_select_limit is 0.
        text.extend_from_slice(format!("<={BYTES_MAX} LIMIT 1").as_bytes());
        text
    }

    /// Reads the data packets of the answer, on a connection with these capabilities.
    ///
    /// # Errors
    /// Why these variables can't be carried.
    pub fn answered(self, reply: &[u8], capabilities: Capabilities) -> Result<UserVariables, Obstacle> {
        let mut packets = packets(reply)?;
        let mut columns = Vec::with_capacity(self.names.len());
        for _ in &self.names {
            let [typed, _, _] = std::array::from_fn(|_| packets.next());
            let typed = ColumnDefinition::parse(typed.ok_or(Obstacle::Answer)?, capabilities);
            columns.push(typed.map_err(|_| Obstacle::Answer)?);
        }
        let row = packets.next().ok_or(Obstacle::TooLarge)?;
        let mut row = Reader::new(row);
        let mut field = || row.lenenc_bytes_or_null().map_err(|_| Obstacle::Answer);
        let mut variables = Vec::with_capacity(self.names.len());
        for (name, column) in self.names.into_iter().zip(columns) {
            let (shown, bytes, collation) = (field()?, field()?, field()?);
            if shown.is_some() != bytes.is_some() {
                return Err(Obstacle::Answer);
            }
            let literal = match column.column_type {
                ColumnType::LONGLONG | ColumnType::NEWDECIMAL | ColumnType::DOUBLE => {
                    number(shown.unwrap_or(b"0"), &column)?
                }
                ColumnType::VAR_STRING
                | ColumnType::STRING
                | ColumnType::VARCHAR
                | ColumnType::TINY_BLOB
                | ColumnType::BLOB
                | ColumnType::MEDIUM_BLOB
                | ColumnType::LONG_BLOB => {
                    string(bytes.unwrap_or_default(), collation.ok_or(Obstacle::Answer)?)?
                }
                ColumnType(other) => return Err(Obstacle::Type(other)),
            };
            variables.push(Variable { name, literal, is_null: shown.is_none() });
        }
        if !row.is_empty() || packets.next().is_some() {
            return Err(Obstacle::Answer);
        }
        Ok(UserVariables { variables })
    }
}

impl UserVariables {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// Has the server read all literals and set nothing: what it refuses here (bytes that are no text of their character
    /// set) it would refuse elsewhere, too.
    pub fn rehearsal(&self) -> Vec<u8> {
        let literals: Vec<&str> = self.variables.iter().map(|variable| variable.literal.as_str()).collect();
        format!("DO {}", literals.join(", ")).into_bytes()
    }

    /// Sets them all. A list of SET is taken whole or not at all.
    pub fn set(&self) -> Vec<u8> {
        let mut text = b"SET ".to_vec();
        for (at, variable) in self.variables.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"" } else { b", " });
            text.extend_from_slice(&variable.name);
            text.push(b'=');
            text.extend_from_slice(variable.literal.as_bytes());
            if variable.is_null {
                // A NULL without a type leaves the variable's own.
                text.extend_from_slice(b", ");
                text.extend_from_slice(&variable.name);
                text.extend_from_slice(b"=NULL");
            }
        }
        text
    }
}

/// The literal of a number, by the type of its column.
fn number(shown: &[u8], column: &ColumnDefinition<'_>) -> Result<String, Obstacle> {
    let shown = std::str::from_utf8(shown).map_err(|_| Obstacle::Answer)?;
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((shown, "0"));
    let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let signs: &[char] = &['-', '+'];
    let is_number = is_digits(whole) && is_digits(fraction) && is_digits(exponent.trim_start_matches(signs));
    let (is_whole, has_exponent) = (!mantissa.contains('.'), shown.contains('e'));
    match column.column_type {
        _ if !is_number => Err(Obstacle::Answer),
        ColumnType::LONGLONG if !is_whole || has_exponent => Err(Obstacle::Answer),
        ColumnType::LONGLONG if column.flags.contains(ColumnFlags::UNSIGNED) => {
            Ok(format!("CAST({shown} AS UNSIGNED)"))
        }
        ColumnType::LONGLONG => Ok(shown.to_owned()),
        ColumnType::NEWDECIMAL if has_exponent => Err(Obstacle::Answer),
        ColumnType::NEWDECIMAL if is_whole => Ok(format!("{shown}.")),
        ColumnType::NEWDECIMAL => Ok(shown.to_owned()),
        // MariaDB (10.11) reads -0e0 as 0e0.
        _ if shown == "-0" => Ok("0e0*-1".to_owned()),
        _ if has_exponent => Ok(shown.to_owned()),
        _ => Ok(format!("{shown}e0")),
    }
}

/// The literal of a string. The name of a collation begins with that of its character set.
fn string(bytes: &[u8], collation: &[u8]) -> Result<String, Obstacle> {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let collation = std::str::from_utf8(collation).map_err(|_| Obstacle::Answer)?;
    if collation.is_empty() || !collation.as_bytes().iter().all(is_letter) {
        return Err(Obstacle::Answer);
    }
    if collation == "binary" {
        return Ok(hexadecimal(collation, bytes));
    }
    let (charset, _) = collation.split_once('_').ok_or(Obstacle::Answer)?;
    Ok(format!("{} COLLATE {collation}", hexadecimal(charset, bytes)))
}

/// The payloads of whole packets.
pub(crate) fn packets(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Obstacle> {
    let mut payloads = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = Header::parse(rest).ok_or(Obstacle::Answer)?;
        let end = HEADER_LEN + header.len;
        payloads.push(rest.get(HEADER_LEN..end).ok_or(Obstacle::Answer)?);
        rest = &rest[end..];
    }
    Ok(payloads.into_iter())
}

fn from_hex(hex: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    hex.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::wire::put_lenenc_bytes;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let [a, b, c, _] = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&[a, b, c, 1], payload].concat()
    }

    fn column(column_type: ColumnType, flags: ColumnFlags) -> Vec<u8> {
        let mut payload = Vec::new();
        let column = ColumnDefinition { column_type, flags, ..ColumnDefinition::text(b"v", 20) };
        column.write(Capabilities::empty(), &mut payload);
        packet(&payload)
    }

    fn row(fields: &[Option<&str>]) -> Vec<u8> {
        let mut payload = Vec::new();
        for field in fields {
            match field {
                Some(text) => put_lenenc_bytes(&mut payload, text.as_bytes()),
                None => payload.push(0xFB),
            }
        }
        packet(&payload)
    }

    fn question(names: &[&[u8]]) -> Question {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        Question::about(&names, LeadBytes::Utf8).unwrap()
    }

    /// What one variable is set to, by the type of its column and what the server shows.
    fn one(
        column_type: ColumnType,
        flags: ColumnFlags,
        fields: [Option<&str>; 3],
    ) -> Result<String, Obstacle> {
        let other = column(ColumnType::VAR_STRING, ColumnFlags::empty());
        let reply = [column(column_type, flags), other.clone(), other, row(&fields)].concat();
        let variables = question(&[b"a"]).answered(&reply, Capabilities::empty())?;
        Ok(String::from_utf8(variables.set()).unwrap())
    }

    fn number(column_type: ColumnType, shown: &str) -> Result<String, Obstacle> {
        one(column_type, ColumnFlags::empty(), [Some(shown), Some(shown), Some("binary")])
    }

    fn string(bytes: &str, collation: &str) -> Result<String, Obstacle> {
        one(ColumnType::LONG_BLOB, ColumnFlags::empty(), [Some("?"), Some(bytes), Some(collation)])
    }

    #[test]
    fn each_type_has_its_literal() {
        let (int, decimal, double) = (ColumnType::LONGLONG, ColumnType::NEWDECIMAL, ColumnType::DOUBLE);
        for (column_type, shown, literal) in [
            (int, "5", "5"),
            (int, "-9223372036854775808", "-9223372036854775808"),
            (decimal, "1.50", "1.50"),
            (decimal, "-5", "-5."),
            (double, "0.3333333333333333", "0.3333333333333333e0"),
            (double, "-1.2e-308", "-1.2e-308"),
            (double, "1.7e+308", "1.7e+308"),
            (double, "-0", "0e0*-1"),
        ] {
            assert_eq!(number(column_type, shown), Ok(format!("SET @`a`={literal}")), "{shown}");
        }
        let unsigned = one(int, ColumnFlags::UNSIGNED, [Some("7"), Some("7"), Some("binary")]);
        assert_eq!(unsigned, Ok("SET @`a`=CAST(7 AS UNSIGNED)".into()));
        assert_eq!(string("a'\\", "latin1_bin"), Ok("SET @`a`=_latin1 X'61275C' COLLATE latin1_bin".into()));
        assert_eq!(string("", "binary"), Ok("SET @`a`=_binary X''".into()));
    }

    #[test]
    fn null_has_the_type_of_its_variable() {
        let null = |column_type, flags, collation| one(column_type, flags, [None, None, Some(collation)]);
        let none = ColumnFlags::empty();
        assert_eq!(
            null(ColumnType::LONGLONG, ColumnFlags::UNSIGNED, "binary"),
            Ok("SET @`a`=CAST(0 AS UNSIGNED), @`a`=NULL".into())
        );
        assert_eq!(null(ColumnType::NEWDECIMAL, none, "binary"), Ok("SET @`a`=0., @`a`=NULL".into()));
        assert_eq!(null(ColumnType::DOUBLE, none, "binary"), Ok("SET @`a`=0e0, @`a`=NULL".into()));
        assert_eq!(
            null(ColumnType::MEDIUM_BLOB, none, "utf8mb4_bin"),
            Ok("SET @`a`=_utf8mb4 X'' COLLATE utf8mb4_bin, @`a`=NULL".into())
        );
    }

    #[test]
    fn what_is_not_what_its_type_says_is_not_written() {
        for shown in ["", "-", "1;", "1 OR 1", "0x1", "1e", "e5", "1.", ".5", "NaN", "1e5e5", "1--1"] {
            for column_type in [ColumnType::LONGLONG, ColumnType::NEWDECIMAL, ColumnType::DOUBLE] {
                assert_eq!(number(column_type, shown), Err(Obstacle::Answer), "{shown}");
            }
        }
        assert_eq!(number(ColumnType::LONGLONG, "1.5"), Err(Obstacle::Answer));
        for collation in ["", "latin1", "latin1_bin; DROP", "LATIN1_BIN", "a b_c"] {
            assert_eq!(string("a", collation), Err(Obstacle::Answer), "{collation}");
        }
        assert_eq!(number(ColumnType::GEOMETRY, "1"), Err(Obstacle::Type(0xFF)));
        let one_is_null = one(ColumnType::LONGLONG, ColumnFlags::empty(), [None, Some("1"), Some("binary")]);
        assert_eq!(one_is_null, Err(Obstacle::Answer));
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let number = column(ColumnType::LONGLONG, ColumnFlags::empty());
        let columns = number.repeat(6);
        let fields = [Some("1"), Some("1"), Some("binary"), Some("2"), Some("2"), Some("binary")];
        let whole = [columns.clone(), row(&fields)].concat();
        let ask = |reply: &[u8]| question(&[b"a", b"b`"]).answered(reply, Capabilities::empty());
        let variables = ask(&whole).unwrap();
        assert_eq!(variables.set(), b"SET @`a`=1, @`b```=2");
        assert_eq!(variables.rehearsal(), b"DO 1, 2");
        assert_eq!(ask(&columns), Err(Obstacle::TooLarge));
        for end in 0..whole.len() {
            assert!(ask(&whole[..end]).is_err(), "{end}");
        }
        assert_eq!(ask(&[columns.clone(), row(&fields[..5])].concat()), Err(Obstacle::Answer));
        let more = [fields.as_slice(), &[Some("3")]].concat();
        assert_eq!(ask(&[columns, row(&more)].concat()), Err(Obstacle::Answer));
        assert_eq!(ask(&[whole, row(&fields)].concat()), Err(Obstacle::Answer));
    }

    #[test]
    fn names_are_read_from_an_answer() {
        let column = column(ColumnType::VAR_STRING, ColumnFlags::empty());
        let reply = [column.clone(), row(&[Some("61")]), row(&[Some("C3A4")]), row(&[Some("")])].concat();
        assert_eq!(names(&reply), Ok(vec![b"a".to_vec(), "ä".into(), Vec::new()]));
        assert_eq!(names(&column), Ok(Vec::new()));
        assert_eq!(names(&[column.clone(), row(&[Some("6")])].concat()), Err(Obstacle::Answer));
        assert_eq!(names(&[column.clone(), row(&[None])].concat()), Err(Obstacle::Answer));
        let many = [column, row(&[Some("61")]).repeat(VARIABLES_MAX + 1)].concat();
        assert_eq!(names(&many), Err(Obstacle::TooMany));
    }

    #[test]
    fn names_are_read_from_a_text() {
        let read = |text: &str| names_in(text.as_bytes(), Dialect::default());
        let text = "SELECT @a:=1, @`b ``c`, @'d''e', @\"f\", '@no' /* @no */ INTO @g.h, @ä -- @no";
        let found = read(text).unwrap();
        assert_eq!(found, ["a", "b `c", "d'e", "f", "g.h", "ä"].map(|name| name.as_bytes().to_vec()));
        assert_eq!(read("SET @'a\\'b' = 1"), None);
        assert_eq!(read("SET @a = 'b"), None);
        let latin = Dialect { lead_bytes: LeadBytes::None, ..Dialect::default() };
        assert_eq!(names_in(b"SET @`\xE4` = 1", latin), None);
    }

    #[test]
    fn only_names_that_are_the_same_everywhere_are_written() {
        let about = |name: &[u8], lead_bytes| Question::about(&[name.to_vec()], lead_bytes);
        assert!(about("ä".as_bytes(), LeadBytes::Utf8).is_ok());
        assert_eq!(about("ä".as_bytes(), LeadBytes::None), Err(Obstacle::Name));
        assert_eq!(about(b"\xE4", LeadBytes::Utf8), Err(Obstacle::Name));
        assert!(about(b"a'b", LeadBytes::Sjis).is_ok());
        let many = vec![b"a".to_vec(); VARIABLES_MAX + 1];
        assert_eq!(Question::about(&many, LeadBytes::Utf8), Err(Obstacle::TooMany));
    }
}
