//! Asks a connection for the diagnostics of a session that has left it.

use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::ErrPacket;
use weir_protocol::response::Step;
use weir_protocol::wire::Reader;

use crate::server::connection::Fetch;
use crate::session::retained::Retained;

/// A SHOW WARNINGS result larger than this is not saved (64 rows of max_error_count are some 30 KB).
const WARNINGS_BYTES_MAX: usize = 128 << 10;

impl Fetch {
    /// Whether all the rows are there: too many are not kept, and the server may have refused to show them.
    pub(crate) fn has_rows(&self) -> bool {
        !self.is_too_long && self.bytes.get(HEADER_LEN) != Some(&ErrPacket::HEADER)
    }

    /// Takes a piece of the reply.
    pub(crate) fn take(&mut self, step: Step, bytes: &[u8]) {
        let wanted = self.what.contains(Retained::WARNINGS) || matches!(step, Step::Pass(_));
        if wanted && self.bytes.len() + bytes.len() <= WARNINGS_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
        } else if wanted {
            self.is_too_long = true;
        }
    }
}

/// The two numbers of the last row among these packets.
pub(crate) fn last_numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut reader = Reader::new(last_packet(bytes)?);
    let mut number = || std::str::from_utf8(reader.lenenc_bytes().ok()?).ok()?.parse().ok();
    Some((number()?, number()?))
}

/// The last of a reply's data packets; definitions of columns are among them.
pub(crate) fn last_packet(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    let mut row = None;
    while let Some(header) = Header::parse(rest) {
        let end = HEADER_LEN + header.len;
        row = rest.get(HEADER_LEN..end);
        rest = rest.get(end..)?;
    }
    row
}
