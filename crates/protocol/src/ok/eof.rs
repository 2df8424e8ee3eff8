//! Reads and writes EOF packets.

use crate::status::StatusFlags;
use crate::wire::{Malformed, Reader, put_u16};

/// EOF: ends column definitions and rows for clients without DEPRECATE_EOF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EofPacket {
    /// Warnings raised.
    pub warnings: u16,
    /// The session's status.
    pub status: StatusFlags,
}

impl EofPacket {
    /// First byte of the payload.
    pub const HEADER: u8 = 0xFE;
    /// Bytes of the payload.
    pub const LEN: usize = 5;

    /// Whether a payload of `len` bytes starting with `first` is EOF and not a row: a row that
    /// starts with 0xFE has a field of 16 MB or more in front of it, 9 bytes at least.
    #[inline]
    pub fn is_eof(first: u8, len: usize) -> bool {
        first == Self::HEADER && len < 9
    }

    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            Self::HEADER => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        Ok(EofPacket { warnings: reader.u16()?, status: StatusFlags::from_bits_retain(reader.u16()?) })
    }

    /// Appends the payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        put_u16(out, self.warnings);
        put_u16(out, self.status.bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let eof = EofPacket { warnings: 3, status: StatusFlags::AUTOCOMMIT };
        let mut payload = Vec::new();
        eof.write(&mut payload);
        assert_eq!(payload, [0xFE, 3, 0, 2, 0]);
        assert!(EofPacket::is_eof(payload[0], payload.len()));
        assert_eq!(EofPacket::parse(&payload), Ok(eof));
        assert_eq!(EofPacket::parse(&[0xFE]), Err(Malformed::Truncated));
    }
}
