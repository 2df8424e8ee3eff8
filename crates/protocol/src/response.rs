//! Reads server replies as they stream in: finds packet boundaries and the few packets that matter, and lets
//! everything else pass untouched.
//!
//! The reader expects replies of a connection with `CLIENT_DEPRECATE_EOF`
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>), whose shapes are
//!
//! ```text
//!            ┌────────────────────────── MORE_RESULTS_EXISTS ─────────────────────┐
//!            ▼                                                                    │
//! First ── OK / ERR ───────────────────────────────────────────────────────► Done or First
//!   │
//!   ├── column count n ──► Columns(n) ──► Rows ── 0xFE OK / ERR ──────────► Done or First
//!   ├── 0xFB (LOCAL INFILE request) ──► LocalInfile (the caller sends the file, then First)
//!   └── prepare-OK ──► PrepareDefs(params + columns) ─────────────────────► Done
//! ```
//!
//! Control packets (OK, ERR, column count, prepare-OK) and data packets up to [`WHOLE_PACKET_BYTES_MAX`] are handed out
//! whole, so that an error can take the place of what is missing when a server is lost; larger rows pass in pieces of any
//! size. So a result of any length needs no memory.

use crate::frame::{HEADER_LEN, PAYLOAD_MAX};
use crate::status::StatusFlags;
use crate::wire::Reader;

/// A control packet larger than this is a broken or hostile server.
pub const CONTROL_PACKET_BYTES_MAX: usize = 1 << 20;

/// Column definitions and rows up to this size, without their header, pass when they are there whole.
pub const WHOLE_PACKET_BYTES_MAX: usize = 16 << 10;

/// The kind of reply that is expected, by the command that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// COM_QUERY and COM_STMT_EXECUTE: OK, ERR, LOCAL INFILE or result sets.
    Results,
    /// COM_STMT_PREPARE: prepare-OK with definitions, or ERR.
    Prepare,
    /// One OK, EOF or ERR packet: PING, INIT_DB, RESET_CONNECTION, STMT_RESET, SET_OPTION.
    Simple,
    /// Data packets without a count in front, up to OK or ERR: rows of COM_STMT_FETCH, definitions of
    /// COM_FIELD_LIST.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Columns { left: u64 },
    Rows,
    PrepareDefs { left: u16, columns: u16 },
    LocalInfile,
    Done,
}

/// The next thing at the front of the unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first `n` bytes are column definitions or rows (large ones maybe in part): pass them on.
    Pass(usize),
    /// The first `n` bytes are one whole control packet, header included.
    Control(Control, usize),
    /// The column definitions of a result set (or the parameter or column definitions of a prepare-OK) are
    /// complete: here a client without `CLIENT_DEPRECATE_EOF` expects an EOF packet. Consumes nothing.
    ColumnsEnd,
    /// The reply is complete. Consumes nothing.
    Done,
    /// An incomplete header, control packet or small data packet: keep the bytes and come back with more.
    NeedMore,
}

/// The control packets of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// OK with header 0x00.
    Ok,
    /// OK with header 0xFE that ends a result set (or a real EOF packet as the answer to COM_SET_OPTION).
    ResultEnd,
    /// ERR; ends the reply.
    Err,
    /// The column count that begins a result set.
    ColumnCount,
    /// Prepare-OK.
    PrepareOk,
    /// The server asks for a local file.
    LocalInfile,
}

/// A reply that breaks the protocol. The connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenReply {
    /// A packet that can't stand where it stands.
    #[error("unexpected packet 0x{0:02X} in a server's reply")]
    UnexpectedPacket(u8),
    /// An empty packet where a control packet has to be.
    #[error("empty packet in a server's reply")]
    EmptyPacket,
    /// Sequence ids must count up by one.
    #[error("sequence id {found} where {expected} was expected in a server's reply")]
    Sequence {
        /// The id that should have come.
        expected: u8,
        /// The id that came.
        found: u8,
    },
    /// A control packet over [`CONTROL_PACKET_BYTES_MAX`] or one that does not parse.
    #[error("malformed control packet in a server's reply")]
    Malformed,
    /// Bytes after the end of the reply.
    #[error("bytes after the end of a server's reply")]
    Trailing,
}

/// Reads one reply, possibly of several results. Holds no bytes.
#[derive(Clone, Debug)]
pub struct ReplyReader {
    kind: ReplyKind,
    phase: Phase,
    /// Payload bytes of the current packet that are still to pass.
    packet_left: usize,
    /// The current packet had the greatest length, so that the next one continues it.
    continues: bool,
    columns_end_due: bool,
    sequence: u8,
    /// Added to each sequence id on its way to the client, who may see packets that the server did not
    /// send (EOF) or not see some that it did.
    sequence_shift: u8,
    rows: u64,
}

impl ReplyReader {
    /// A reader for the reply to a command whose packet had sequence id `sequence - 1`.
    pub fn new(kind: ReplyKind, sequence: u8) -> Self {
        Self {
            kind,
            phase: if kind == ReplyKind::Data { Phase::Rows } else { Phase::First },
            packet_left: 0,
            continues: false,
            columns_end_due: false,
            sequence,
            sequence_shift: 0,
            rows: 0,
        }
    }

    /// Rows seen in the last (or current) result set.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Shifts the sequence ids of everything that passes from here on by one more (an inserted packet).
    pub fn shift_sequence(&mut self) {
        self.sequence_shift = self.sequence_shift.wrapping_add(1);
    }

    /// Takes back one [`ReplyReader::shift_sequence`]: the packet was not inserted after all.
    pub fn unshift_sequence(&mut self) {
        self.sequence_shift = self.sequence_shift.wrapping_sub(1);
    }

    /// The sequence id, as the server counts, of the next packet.
    pub fn server_sequence(&self) -> u8 {
        self.sequence
    }

    /// The sequence id, as the client sees it, of the next packet.
    pub fn next_sequence(&self) -> u8 {
        self.sequence.wrapping_add(self.sequence_shift)
    }

    /// The sequence id, as the client sees it, of an error in place of what is still to come: between two rows or two
    /// results. None in the middle of a packet, of definitions, or of a file.
    pub fn break_off(&self) -> Option<u8> {
        let is_between = self.packet_left == 0 && !self.continues && !self.columns_end_due;
        (is_between && matches!(self.phase, Phase::First | Phase::Rows)).then(|| self.next_sequence())
    }

    /// The command took several packets, of which the last was `sent` to the server with one sequence id and came
    /// from the client with another: the reply's begin behind them. Without effect on a reply that has begun.
    pub fn command_continued(&mut self, sent: u8, received: u8) {
        if self.phase == Phase::First && self.rows == 0 {
            self.sequence = sent.wrapping_add(1);
            self.sequence_shift = received.wrapping_sub(sent);
        }
    }

    /// After the local file of a [`Control::LocalInfile`] has been sent, whose last packet had `sequence`.
    pub fn local_infile_sent(&mut self, sequence: u8) {
        self.sequence = sequence.wrapping_add(1);
        self.phase = Phase::First;
    }

    /// Looks at the front of `bytes` and says what it is. Sequence ids of what it hands out are already
    /// shifted in place. The caller takes as many bytes as the step says and calls again.
    ///
    /// # Errors
    /// [`BrokenReply`] when the server breaks the protocol.
    pub fn next(&mut self, bytes: &mut [u8]) -> Result<Step, BrokenReply> {
        if self.packet_left > 0 {
            return self.pass(bytes);
        }
        if self.columns_end_due {
            self.columns_end_due = false;
            return Ok(Step::ColumnsEnd);
        }
        match self.phase {
            // A server that speaks before it has the file: nobody knows where the file would end.
            Phase::LocalInfile if bytes.is_empty() => Ok(Step::NeedMore),
            Phase::Done | Phase::LocalInfile => {
                if bytes.is_empty() {
                    Ok(Step::Done)
                } else {
                    Err(BrokenReply::Trailing)
                }
            }
            Phase::First => self.control(bytes),
            Phase::Columns { .. } | Phase::Rows | Phase::PrepareDefs { .. } => self.pass(bytes),
        }
    }

    /// Whether the reply is complete.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done && self.packet_left == 0 && !self.columns_end_due
    }

    /// Passes as many whole or partial data packets as there are, up to the next control packet.
    fn pass(&mut self, bytes: &mut [u8]) -> Result<Step, BrokenReply> {
        let mut at = 0;
        loop {
            let part = self.packet_left.min(bytes.len() - at);
            at += part;
            self.packet_left -= part;
            if self.packet_left > 0 {
                break;
            }
            if self.columns_end_due || self.phase == Phase::Done {
                break;
            }
            let rest = &mut bytes[at..];
            if rest.len() < HEADER_LEN {
                break;
            }
            let len = usize::from(rest[0]) | usize::from(rest[1]) << 8 | usize::from(rest[2]) << 16;
            if !self.continues {
                if len == 0 {
                    return Err(BrokenReply::EmptyPacket);
                }
                let Some(&first) = rest.get(HEADER_LEN) else { break };
                if self.ends_rows(first, len) {
                    if at > 0 {
                        break;
                    }
                    return self.control(bytes);
                }
                if len <= WHOLE_PACKET_BYTES_MAX && rest.len() < HEADER_LEN + len {
                    break;
                }
            }
            self.count_packet(rest, len)?;
            at += HEADER_LEN;
        }
        Ok(if at == 0 { Step::NeedMore } else { Step::Pass(at) })
    }

    fn ends_rows(&self, first: u8, len: usize) -> bool {
        match first {
            0xFF => true,
            // 0xFE also starts a length-encoded string of 16 MB or more, in a packet of the greatest length.
            0xFE => self.phase == Phase::Rows && len < PAYLOAD_MAX,
            _ => false,
        }
    }

    /// Takes note of the header of a data packet.
    fn count_packet(&mut self, header: &mut [u8], len: usize) -> Result<(), BrokenReply> {
        self.take_sequence(header)?;
        let continued = self.continues;
        self.continues = len == PAYLOAD_MAX;
        self.packet_left = len;
        if continued {
            return Ok(());
        }
        if self.continues && self.phase != Phase::Rows {
            return Err(BrokenReply::Malformed); // no definition is 16 MB long
        }
        match &mut self.phase {
            Phase::Columns { left } => {
                *left -= 1;
                if *left == 0 {
                    self.phase = Phase::Rows;
                    self.columns_end_due = true;
                }
            }
            Phase::PrepareDefs { left, columns } => {
                *left -= 1;
                if *left == 0 {
                    self.columns_end_due = true;
                    self.phase = Self::after_definitions(*columns);
                }
            }
            _ => self.rows += 1,
        }
        Ok(())
    }

    fn take_sequence(&mut self, header: &mut [u8]) -> Result<(), BrokenReply> {
        if header[3] != self.sequence {
            return Err(BrokenReply::Sequence { expected: self.sequence, found: header[3] });
        }
        header[3] = header[3].wrapping_add(self.sequence_shift);
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// Hands out the control packet at the front, if it is there whole.
    fn control(&mut self, bytes: &mut [u8]) -> Result<Step, BrokenReply> {
        if bytes.len() < HEADER_LEN {
            return Ok(Step::NeedMore);
        }
        let len = usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16;
        if len > CONTROL_PACKET_BYTES_MAX {
            return Err(BrokenReply::Malformed);
        }
        if len == 0 {
            return Err(BrokenReply::EmptyPacket);
        }
        let total = HEADER_LEN + len;
        if bytes.len() < total {
            return Ok(Step::NeedMore);
        }
        self.take_sequence(bytes)?;
        let control = self.enter(&bytes[HEADER_LEN..total])?;
        Ok(Step::Control(control, total))
    }

    /// Moves to the phase that follows the control packet with this payload.
    fn enter(&mut self, payload: &[u8]) -> Result<Control, BrokenReply> {
        let first = payload[0];
        if first == 0xFF {
            self.phase = Phase::Done;
            return Ok(Control::Err);
        }
        match (self.phase, self.kind, first) {
            (Phase::Rows, _, 0xFE) => {
                self.after_result(payload)?;
                Ok(Control::ResultEnd)
            }
            (Phase::First, ReplyKind::Prepare, 0x00) => {
                let mut reader = Reader::new(payload);
                let fields = (|| {
                    reader.u8()?;
                    reader.u32()?;
                    Ok::<_, crate::wire::Malformed>((reader.u16()?, reader.u16()?))
                })();
                let (columns, params) = fields.map_err(|_| BrokenReply::Malformed)?;
                self.phase = match params {
                    0 => Self::after_definitions(columns),
                    left => Phase::PrepareDefs { left, columns },
                };
                Ok(Control::PrepareOk)
            }
            (Phase::First, ReplyKind::Simple, 0x00 | 0xFE) => {
                self.phase = Phase::Done;
                Ok(if first == 0 { Control::Ok } else { Control::ResultEnd })
            }
            (Phase::First, ReplyKind::Results, 0x00) => {
                self.after_result(payload)?;
                Ok(Control::Ok)
            }
            (Phase::First, ReplyKind::Results, 0xFB) => {
                self.phase = Phase::LocalInfile;
                Ok(Control::LocalInfile)
            }
            (Phase::First, ReplyKind::Results, _) => {
                let left = Reader::new(payload).lenenc_int().map_err(|_| BrokenReply::Malformed)?;
                if left == 0 {
                    return Err(BrokenReply::Malformed);
                }
                self.rows = 0;
                self.phase = Phase::Columns { left };
                Ok(Control::ColumnCount)
            }
            _ => Err(BrokenReply::UnexpectedPacket(first)),
        }
    }

    /// After the parameters of a prepare-OK: the columns, or the end.
    fn after_definitions(columns: u16) -> Phase {
        if columns == 0 { Phase::Done } else { Phase::PrepareDefs { left: columns, columns: 0 } }
    }

    /// After an OK: more results, or the end.
    fn after_result(&mut self, payload: &[u8]) -> Result<(), BrokenReply> {
        let status = status_of_ok(payload).ok_or(BrokenReply::Malformed)?;
        self.phase =
            if status.contains(StatusFlags::MORE_RESULTS_EXISTS) { Phase::First } else { Phase::Done };
        Ok(())
    }
}

/// The status flags of an OK packet's payload (header 0x00 or 0xFE).
fn status_of_ok(payload: &[u8]) -> Option<StatusFlags> {
    let mut reader = Reader::new(payload);
    reader.u8().ok()?;
    reader.lenenc_int().ok()?;
    reader.lenenc_int().ok()?;
    Some(StatusFlags::from_bits_retain(reader.u16().ok()?))
}

#[cfg(test)]
mod tests;
