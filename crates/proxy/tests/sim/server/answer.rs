//! Sends what a model server sends: OK with what it tracks, errors, rows.

use weir_protocol::error::ServerError;
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER, OK_HEADER, OkPacket, SessionTrack};
use weir_protocol::resultset::{BinaryValue, ColumnDefinition, put_binary_row, put_text_row};
use weir_protocol::status::StatusFlags;

use super::Conn;
use crate::support::{self, SERVER_CAPABILITIES};

impl Conn {
    pub(super) fn status(&self) -> StatusFlags {
        let mut status = StatusFlags::empty();
        status.set(StatusFlags::AUTOCOMMIT, self.variable("autocommit") != "OFF");
        status.set(StatusFlags::IN_TRANS, self.session.in_transaction);
        status
    }

    pub(super) fn ok(
        &mut self,
        status: StatusFlags,
        tracks: &[SessionTrack<'_>],
        fill: impl Fn(OkPacket<'_>) -> OkPacket<'_>,
    ) {
        let tracks = if self.session.is_tracking { tracks } else { &[] };
        let ok = support::ok(self.sequence, fill(OkPacket::new(OK_HEADER, status)), tracks);
        self.out.extend_from_slice(&ok);
    }

    pub(super) fn error(&mut self, error: ServerError, message: &str) {
        let mut sequence = self.sequence;
        frame::packet(&mut self.out, &mut sequence, |out| {
            ErrPacket::new(error, message.as_bytes()).write(out)
        });
    }

    pub(super) fn rows(&mut self, names: &[&str], rows: &[&[&str]]) {
        self.result(names, |out, sequence| {
            for row in rows {
                frame::packet(out, sequence, |out| {
                    put_text_row(out, row.iter().map(|value| Some(value.as_bytes())))
                });
            }
        });
    }

    pub(super) fn binary_row(&mut self, value: &str) {
        self.result(&["?"], |out, sequence| {
            frame::packet(out, sequence, |out| put_binary_row(out, &[BinaryValue::Bytes(value.as_bytes())]));
        });
    }

    fn result(&mut self, names: &[&str], rows: impl FnOnce(&mut Vec<u8>, &mut u8)) {
        let mut sequence = self.sequence;
        let status = self.status();
        let out = &mut self.out;
        frame::packet(out, &mut sequence, |out| out.push(names.len() as u8));
        for name in names {
            let column = ColumnDefinition::text(name.as_bytes(), 100);
            frame::packet(out, &mut sequence, |out| column.write(SERVER_CAPABILITIES, out));
        }
        rows(out, &mut sequence);
        let end = OkPacket::new(OK_AS_EOF_HEADER, status);
        frame::packet(out, &mut sequence, |out| end.write(SERVER_CAPABILITIES, out));
    }
}

/// The number that Weir has put in the place of a function, whatever stands around it for the type's sake.
pub(super) fn number(value: &str) -> String {
    let value = value.trim_start_matches("CAST(");
    let end = value.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().map_or_else(|_| value.to_owned(), |number: i64| number.to_string())
}
