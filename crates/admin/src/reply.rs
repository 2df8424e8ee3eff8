//! Writes what a statement is answered with, as packets.
//!
//! All columns are text in utf8mb4, as ProxySQL's are: its users' scripts rely on that.

use std::sync::Arc;

use weir_protocol::capability::Capabilities;
use weir_protocol::frame;
use weir_protocol::ok::{EofPacket, ErrPacket, OK_AS_EOF_HEADER, OK_HEADER, OkPacket};
use weir_protocol::resultset::{BinaryValue, ColumnDefinition, put_binary_row, put_text_row};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::put_lenenc_int;

use crate::error::SqlError;
use crate::limits::Budget;

/// Longest value that a column is announced with, in bytes.
const VALUE_BYTES_MAX: u32 = 16 << 20;
/// A result is sent in pieces of this size: it is not there twice.
const PIECE_BYTES: usize = 256 << 10;
/// NULL in place of a length.
const NULL: u8 = 0xFB;

/// The format in which a result's rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowFormat {
    /// To COM_QUERY.
    Text,
    /// To COM_STMT_EXECUTE.
    Binary,
}

/// A statement's outcome.
#[derive(Debug)]
pub(crate) enum Reply {
    Done(Done),
    Rows(Arc<Rows>),
}

/// It changed something, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub affected_rows: u64,
    /// For people.
    pub info: String,
}

/// A result set: rows are packets already, which number themselves later.
#[derive(Debug)]
pub(crate) struct Rows {
    pub columns: Vec<String>,
    /// Payloads, one behind the other.
    payloads: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    format: RowFormat,
    budget: Budget,
}

impl Rows {
    /// No rows yet. What they take is taken from `budget`.
    pub(crate) fn new(columns: Vec<String>, format: RowFormat, budget: Budget) -> Self {
        Self { columns, payloads: Vec::new(), ends: Vec::new(), format, budget }
    }

    /// Adds a row; a value of None is NULL.
    ///
    /// # Errors
    /// When all results together are too large.
    pub(crate) fn push<'v>(
        &mut self,
        values: impl IntoIterator<Item = Option<&'v [u8]>>,
    ) -> Result<(), SqlError> {
        let start = self.payloads.len();
        match self.format {
            RowFormat::Text => put_text_row(&mut self.payloads, values),
            RowFormat::Binary => {
                let values =
                    values.into_iter().map(|value| value.map_or(BinaryValue::Null, BinaryValue::Bytes));
                put_binary_row(&mut self.payloads, &values.collect::<Vec<_>>());
            }
        }
        self.ends.push(self.payloads.len());
        self.budget.take(self.payloads.len() - start + size_of::<usize>())
    }

    /// All rows as they are sent, without their packets' headers.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.payloads
    }

    /// Adds a row of texts.
    pub(crate) fn push_texts(&mut self, values: &[&str]) -> Result<(), SqlError> {
        self.push(values.iter().map(|value| Some(value.as_bytes())))
    }
}

/// Makes packets for a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub capabilities: Capabilities,
    /// Of the next packet.
    pub sequence: u8,
    pub status: StatusFlags,
    pub warnings: u16,
}

impl Answer {
    /// Appends the packets of a reply. When they are many, `send` takes some of them away.
    pub(crate) fn reply<E>(
        &mut self,
        reply: &Reply,
        out: &mut Vec<u8>,
        send: impl FnMut(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        match reply {
            Reply::Done(done) => self.ok(done.affected_rows, &done.info, out),
            Reply::Rows(rows) => self.rows(rows, out, send)?,
        }
        Ok(())
    }

    pub(crate) fn ok(&mut self, affected_rows: u64, info: &str, out: &mut Vec<u8>) {
        let ok = OkPacket {
            affected_rows,
            warnings: self.warnings,
            info: info.as_bytes(),
            ..OkPacket::new(OK_HEADER, self.status)
        };
        frame::packet(out, &mut self.sequence, |out| ok.write(self.capabilities, out));
    }

    pub(crate) fn error(&mut self, error: &SqlError, out: &mut Vec<u8>) {
        let packet = ErrPacket::new(error.error, error.message.as_bytes());
        frame::packet(out, &mut self.sequence, |out| packet.write(out));
    }

    fn rows<E>(
        &mut self,
        rows: &Rows,
        out: &mut Vec<u8>,
        mut send: impl FnMut(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        frame::packet(out, &mut self.sequence, |out| put_lenenc_int(out, rows.columns.len() as u64));
        self.definitions(rows.columns.iter().map(String::as_str), out);
        let mut start = 0;
        for end in &rows.ends {
            frame::write_packet(out, &mut self.sequence, rows.payloads.get(start..*end).unwrap_or_default());
            start = *end;
            if out.len() >= PIECE_BYTES {
                send(out)?;
            }
        }
        self.end_of_rows(out);
        Ok(())
    }

    /// Definitions of columns or parameters, and what ends them.
    pub(crate) fn definitions<'n>(&mut self, names: impl Iterator<Item = &'n str>, out: &mut Vec<u8>) {
        for name in names {
            let column = ColumnDefinition::text(name.as_bytes(), VALUE_BYTES_MAX);
            frame::packet(out, &mut self.sequence, |out| column.write(self.capabilities, out));
        }
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.eof(out);
        }
    }

    /// One column of COM_FIELD_LIST: a definition with a default value, which is NULL.
    pub(crate) fn field(&mut self, name: &str, out: &mut Vec<u8>) {
        let column = ColumnDefinition::text(name.as_bytes(), VALUE_BYTES_MAX);
        frame::packet(out, &mut self.sequence, |out| {
            column.write(self.capabilities, out);
            out.push(NULL);
        });
    }

    /// What ends rows, or the columns of COM_FIELD_LIST.
    pub(crate) fn end_of_rows(&mut self, out: &mut Vec<u8>) {
        if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            let ok = OkPacket { warnings: self.warnings, ..OkPacket::new(OK_AS_EOF_HEADER, self.status) };
            frame::packet(out, &mut self.sequence, |out| ok.write(self.capabilities, out));
        } else {
            self.eof(out);
        }
    }

    fn eof(&mut self, out: &mut Vec<u8>) {
        let eof = EofPacket { warnings: self.warnings, status: self.status };
        frame::packet(out, &mut self.sequence, |out| eof.write(out));
    }
}
