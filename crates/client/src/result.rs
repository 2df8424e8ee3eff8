//! Holds the result of a statement: columns and rows as text.

use weir_protocol::ok::{EofPacket, OkPacket};
use weir_protocol::status::StatusFlags;

/// The packet that ended a result: OK, or the end of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OkInfo {
    /// Rows changed.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value generated.
    pub last_insert_id: u64,
    /// The session's status.
    pub status: StatusFlags,
    /// Warnings raised.
    pub warnings: u16,
    /// Text for people.
    pub info: String,
    /// Changes of the session's state, encoded as on the wire (with the capability SESSION_TRACK).
    pub session_state: Vec<u8>,
}

/// One result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// What ended it.
    pub ok: OkInfo,
    /// The headings; empty for a statement without rows.
    pub columns: Vec<String>,
    /// The rows in their order: the text of each field, none for NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl QueryResult {
    /// A field as text; none if it is not there, NULL or not UTF-8.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        std::str::from_utf8(self.rows.get(row)?.get(column)?.as_deref()?).ok()
    }

    /// The first field of the first row as text.
    pub fn first(&self) -> Option<&str> {
        self.text(0, 0)
    }

    /// The first two fields of each row as text, as SHOW VARIABLES has them; rows that are not text are left out.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.rows.len()).filter_map(|row| Some((self.text(row, 0)?, self.text(row, 1)?)))
    }
}

impl From<OkPacket<'_>> for OkInfo {
    fn from(ok: OkPacket<'_>) -> Self {
        Self {
            affected_rows: ok.affected_rows,
            last_insert_id: ok.last_insert_id,
            status: ok.status,
            warnings: ok.warnings,
            info: String::from_utf8_lossy(ok.info).into_owned(),
            session_state: ok.session_state.to_vec(),
        }
    }
}

impl From<EofPacket> for OkInfo {
    fn from(eof: EofPacket) -> Self {
        Self { status: eof.status, warnings: eof.warnings, ..Self::default() }
    }
}
