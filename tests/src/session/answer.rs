//! A server's answer, reduced to what an application can see of it.

use weir_protocol::capability::Capabilities;
use weir_protocol::ok::{EofPacket, ErrPacket, OkPacket, SessionTrack};
use weir_protocol::resultset::{ColumnDefinition, ColumnFlags, ColumnType, TextRow};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Reader;

/// All results of one command: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// In the order they came.
    pub results: Vec<Outcome>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// OK without rows.
    Ok(Done),
    /// A result set, complete.
    Rows(Rows),
    /// ERR, in place of a result or in the middle of its rows.
    Err {
        /// MySQL's error number.
        code: u16,
        /// Five characters; empty if there is none.
        sqlstate: String,
        /// For people.
        message: String,
    },
}

/// A result set as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Payloads of the column definitions.
    pub columns: Vec<Vec<u8>>,
    /// Payloads of the rows, text or binary.
    pub rows: Vec<Vec<u8>>,
    /// The OK or EOF behind the rows.
    pub end: Done,
    /// In force on the connection.
    pub capabilities: Capabilities,
}

/// The content of an OK or EOF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows changed, or found with FOUND_ROWS.
    pub affected_rows: u64,
    /// The generated AUTO_INCREMENT value.
    pub insert_id: u64,
    /// The session's status.
    pub status: StatusFlags,
    /// Warnings raised.
    pub warnings: u16,
    /// "Rows matched: ...".
    pub info: String,
    /// Session tracking, sorted.
    pub tracks: Vec<Track>,
}

/// An entry of session tracking.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// A variable and its value.
    Variable(String, String),
    /// The default schema.
    Schema(String),
    /// Anything else, as Debug shows it.
    Other(String),
}

impl Answer {
    /// How the last result ended.
    ///
    /// # Errors
    /// A text that describes the error that was answered instead.
    pub fn done(&self) -> Result<&Done, String> {
        match self.results.last() {
            Some(Outcome::Ok(done)) => Ok(done),
            Some(Outcome::Rows(rows)) => Ok(&rows.end),
            Some(Outcome::Err { code, message, .. }) => Err(format!("error {code}: {message}")),
            None => Err("no answer".to_owned()),
        }
    }

    /// The error number, if the last result is an error.
    pub fn error(&self) -> Option<u16> {
        match self.results.last() {
            Some(Outcome::Err { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// The rows of the first result as text, NULL as "NULL"; none if it has no rows.
    ///
    /// # Errors
    /// As for [`Answer::done`].
    pub fn rows(&self) -> Result<Vec<Vec<String>>, String> {
        self.done()?;
        match self.results.first() {
            Some(Outcome::Rows(rows)) => rows.text_rows(),
            _ => Ok(Vec::new()),
        }
    }

    /// The only value of the only row.
    ///
    /// # Errors
    /// As for [`Answer::done`], and if there are more or fewer.
    pub fn value(&self) -> Result<String, String> {
        let rows = self.rows()?;
        match rows.as_slice() {
            [row] if row.len() == 1 => Ok(row.concat()),
            _ => Err(format!("expected one value, got {rows:?}")),
        }
    }

    /// The rows of an execution's first result, whose columns are integers and strings.
    ///
    /// # Errors
    /// As for [`Answer::done`], and for other types.
    pub fn binary_rows(&self) -> Result<Vec<Vec<String>>, String> {
        self.done()?;
        match self.results.first() {
            Some(Outcome::Rows(rows)) => rows.rows.iter().map(|row| rows.binary_row(row)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    /// The names of the columns of the first result.
    pub fn column_names(&self) -> Vec<String> {
        match self.results.first() {
            Some(Outcome::Rows(rows)) => rows.names(),
            _ => Vec::new(),
        }
    }
}

impl Outcome {
    /// The OK or EOF at its end, if it did not fail.
    pub fn done(&self) -> Option<&Done> {
        match self {
            Outcome::Ok(done) => Some(done),
            Outcome::Rows(rows) => Some(&rows.end),
            Outcome::Err { .. } => None,
        }
    }

    pub(super) fn of_err(err: &ErrPacket<'_>) -> Outcome {
        let state = err.sqlstate.map(|state| String::from_utf8_lossy(&state).into_owned());
        Outcome::Err {
            code: err.code,
            sqlstate: state.unwrap_or_default(),
            message: String::from_utf8_lossy(err.message).into_owned(),
        }
    }
}

impl Rows {
    /// The columns' names.
    pub fn names(&self) -> Vec<String> {
        let name = |definition: &Vec<u8>| match ColumnDefinition::parse(definition, self.capabilities) {
            Ok(column) => String::from_utf8_lossy(column.name).into_owned(),
            Err(error) => format!("({error})"),
        };
        self.columns.iter().map(name).collect()
    }

    /// Rows of a text result, NULL as "NULL".
    ///
    /// # Errors
    /// A text that says what is malformed.
    pub fn text_rows(&self) -> Result<Vec<Vec<String>>, String> {
        self.rows.iter().map(|row| text_row(row)).collect()
    }

    fn binary_row(&self, payload: &[u8]) -> Result<Vec<String>, String> {
        let odd = |error| format!("malformed row: {error}");
        let mut reader = Reader::new(payload);
        reader.u8().map_err(odd)?;
        let bitmap = reader.fixed((self.columns.len() + 2).div_ceil(8)).map_err(odd)?;
        let mut row = Vec::new();
        for (at, definition) in self.columns.iter().enumerate() {
            let bit = at + 2;
            if bitmap.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0) {
                row.push("NULL".to_owned());
                continue;
            }
            let column = ColumnDefinition::parse(definition, self.capabilities).map_err(odd)?;
            let is_unsigned = column.flags.contains(ColumnFlags::UNSIGNED);
            let value = match column.column_type {
                ColumnType::LONGLONG if is_unsigned => reader.u64().map(|n| n.to_string()),
                ColumnType::LONG | ColumnType::INT24 if is_unsigned => reader.u32().map(|n| n.to_string()),
                ColumnType::LONGLONG => reader.u64().map(|n| n.cast_signed().to_string()),
                ColumnType::LONG | ColumnType::INT24 => reader.u32().map(|n| n.cast_signed().to_string()),
                ColumnType::SHORT => reader.u16().map(|n| n.cast_signed().to_string()),
                ColumnType::TINY => reader.u8().map(|n| n.cast_signed().to_string()),
                _ => reader.lenenc_bytes().map(|text| String::from_utf8_lossy(text).into_owned()),
            };
            row.push(value.map_err(odd)?);
        }
        Ok(row)
    }
}

fn text_row(payload: &[u8]) -> Result<Vec<String>, String> {
    let text = |field: Option<&[u8]>| match field {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => "NULL".to_owned(),
    };
    TextRow::new(payload).map(|field| field.map(text).map_err(|error| error.to_string())).collect()
}

impl From<OkPacket<'_>> for Done {
    fn from(ok: OkPacket<'_>) -> Done {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let track = |entry| match entry {
            Ok(SessionTrack::SystemVariable { name, value }) => Track::Variable(text(name), text(value)),
            Ok(SessionTrack::Schema(schema)) => Track::Schema(text(schema)),
            other => Track::Other(format!("{other:?}")),
        };
        let mut tracks: Vec<Track> = ok.session_tracks().map(track).collect();
        tracks.sort();
        Done {
            affected_rows: ok.affected_rows,
            insert_id: ok.last_insert_id,
            status: ok.status,
            warnings: ok.warnings,
            info: text(ok.info),
            tracks,
        }
    }
}

impl From<EofPacket> for Done {
    fn from(eof: EofPacket) -> Done {
        Done { status: eof.status, warnings: eof.warnings, ..Done::default() }
    }
}
