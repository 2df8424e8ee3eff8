//! Reads and writes ERR packets.

use crate::error::ServerError;
use crate::wire::{Malformed, Reader, put_u16};

/// ERR: the command failed. It says nothing about the session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// The server's error number.
    pub code: u16,
    /// Five characters; `None` in the form sent before the capabilities are known.
    pub sqlstate: Option<[u8; 5]>,
    /// Text for people.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    /// First byte of the payload.
    pub const HEADER: u8 = 0xFF;
    /// The code of MariaDB's progress reports, which are not errors and end nothing.
    pub const PROGRESS_CODE: u16 = 0xFFFF;

    /// An ERR packet of Weir's own.
    pub fn new(error: ServerError, message: &'a [u8]) -> Self {
        ErrPacket { code: error.code, sqlstate: Some(error.sqlstate), message }
    }

    /// Parses the payload, with or without SQLSTATE.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            Self::HEADER => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        let code = reader.u16()?;
        let sqlstate = if reader.peek() == Some(b'#') && code != Self::PROGRESS_CODE {
            reader.skip(1)?;
            Some(reader.array()?)
        } else {
            None
        };
        Ok(ErrPacket { code, sqlstate, message: reader.rest() })
    }

    /// Appends the payload; a `sqlstate` of `None` gives the form that a server sends in place of
    /// its greeting.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        put_u16(out, self.code);
        if let Some(sqlstate) = self.sqlstate {
            out.push(b'#');
            out.extend_from_slice(&sqlstate);
        }
        out.extend_from_slice(self.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error;

    #[test]
    fn survives_the_wire_in_both_forms() {
        let with = ErrPacket::new(error::ACCESS_DENIED, b"no");
        let without = ErrPacket { sqlstate: None, ..with };
        for (sent, bytes) in [(with, &b"\xff\x15\x04#28000no"[..]), (without, b"\xff\x15\x04no")] {
            let mut payload = Vec::new();
            sent.write(&mut payload);
            assert_eq!(payload, bytes);
            assert_eq!(ErrPacket::parse(&payload), Ok(sent));
        }
    }

    #[test]
    fn broken_packets_are_errors() {
        assert_eq!(ErrPacket::parse(b"\xff\x15"), Err(Malformed::Truncated));
        assert_eq!(ErrPacket::parse(b"\xff\x15\x04#28"), Err(Malformed::Truncated));
        assert_eq!(
            ErrPacket::parse(b"\xff\xff\xff\x01\x01\x02\0\0\0\x04Copy").unwrap().code,
            ErrPacket::PROGRESS_CODE
        );
    }
}
