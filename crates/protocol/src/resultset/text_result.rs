//! Writes whole text results.

use crate::capability::Capabilities;
use crate::frame;
use crate::ok::{EofPacket, OK_AS_EOF_HEADER, OkPacket};
use crate::resultset::{ColumnDefinition, put_text_row};
use crate::status::StatusFlags;
use crate::wire::put_lenenc_int;

/// Writes a text result set, whole packets with headers, for a client with or without
/// DEPRECATE_EOF: [`TextResult::begin`], any number of rows, [`TextResult::finish`].
#[derive(Debug)]
#[must_use = "a result set ends with finish()"]
pub struct TextResult<'o> {
    out: &'o mut Vec<u8>,
    seq: &'o mut u8,
    capabilities: Capabilities,
}

impl<'o> TextResult<'o> {
    /// Appends the columns' definitions; there must be one at least.
    ///
    /// `seq` is the number of the next packet, 1 if the client's command was a single packet, and
    /// is moved on. `status` is the session's.
    pub fn begin(
        out: &'o mut Vec<u8>,
        seq: &'o mut u8,
        capabilities: Capabilities,
        status: StatusFlags,
        columns: &[ColumnDefinition<'_>],
    ) -> Self {
        debug_assert!(!columns.is_empty(), "a result set without columns is an OK packet");
        frame::packet(out, seq, |out| {
            // With either of these a byte says that the definitions follow.
            if capabilities.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) {
                out.push(1);
            }
            put_lenenc_int(out, columns.len() as u64);
            if capabilities.contains(Capabilities::MARIADB_CACHE_METADATA) {
                out.push(1);
            }
        });
        for column in columns {
            frame::packet(out, seq, |out| column.write(capabilities, out));
        }
        if !capabilities.contains(Capabilities::DEPRECATE_EOF) {
            frame::packet(out, seq, |out| EofPacket { warnings: 0, status }.write(out));
        }
        TextResult { out, seq, capabilities }
    }

    /// Appends a row, with a value for each column; `None` is NULL.
    pub fn row<'v>(&mut self, values: impl IntoIterator<Item = Option<&'v [u8]>>) {
        frame::packet(self.out, self.seq, |out| put_text_row(out, values));
    }

    /// Appends the end; `status` has MORE_RESULTS_EXISTS if another result follows.
    pub fn finish(self, status: StatusFlags, warnings: u16) {
        let TextResult { out, seq, capabilities } = self;
        frame::packet(out, seq, |out| {
            if capabilities.contains(Capabilities::DEPRECATE_EOF) {
                OkPacket { warnings, ..OkPacket::new(OK_AS_EOF_HEADER, status) }.write(capabilities, out);
            } else {
                EofPacket { warnings, status }.write(out);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_result(capabilities: Capabilities) -> (Vec<u8>, u8) {
        let (mut out, mut seq) = (Vec::new(), 1);
        let columns = [ColumnDefinition::text(b"v", 9), ColumnDefinition::integer(b"n")];
        let mut result =
            TextResult::begin(&mut out, &mut seq, capabilities, StatusFlags::AUTOCOMMIT, &columns);
        result.row([Some(&b"weir"[..]), None]);
        result.finish(StatusFlags::AUTOCOMMIT, 2);
        (out, seq)
    }

    fn payloads(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut payloads = Vec::new();
        while let Some(header) = frame::Header::parse(bytes) {
            assert_eq!(usize::from(header.seq), payloads.len() + 1);
            payloads.push(&bytes[frame::HEADER_LEN..header.packet_len()]);
            bytes = &bytes[header.packet_len()..];
        }
        payloads
    }

    #[test]
    fn old_clients_get_two_eof_packets() {
        let (bytes, next_seq) = version_result(Capabilities::PROTOCOL_41);
        let packets = payloads(&bytes);
        assert_eq!((packets.len(), next_seq), (6, 7));
        assert_eq!(packets[0], [2]);
        assert_eq!(packets[3], [0xFE, 0, 0, 2, 0]);
        assert_eq!(packets[4], b"\x04weir\xfb");
        assert_eq!(packets[5], [0xFE, 2, 0, 2, 0]);
    }

    #[test]
    fn new_clients_get_an_ok_packet_at_the_end() {
        let (bytes, _) = version_result(Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF);
        let packets = payloads(&bytes);
        assert_eq!(packets.len(), 5);
        assert_eq!(packets[4], [0xFE, 0, 0, 2, 0, 2, 0]);
    }

    #[test]
    fn clients_that_may_skip_definitions_are_told_that_they_follow() {
        let mysql = Capabilities::PROTOCOL_41 | Capabilities::OPTIONAL_RESULTSET_METADATA;
        let mariadb = Capabilities::PROTOCOL_41 | Capabilities::MARIADB_CACHE_METADATA;
        assert_eq!(payloads(&version_result(mysql).0)[0], [1, 2]);
        assert_eq!(payloads(&version_result(mariadb).0)[0], [2, 1]);
    }
}
