//! Reads and writes the packets of the authentication exchange that follows a client's response.

use crate::capability::Capabilities;
use crate::handshake::SCRAMBLE_LEN;
use crate::ok::{ErrPacket, OkPacket};
use crate::wire::{Malformed, Reader, put_nul_terminated};

/// A packet of the server after the client's response, until the login is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthPacket<'a> {
    /// Logged in.
    Ok(OkPacket<'a>),
    /// Refused; the server closes the connection.
    Err(ErrPacket<'a>),
    /// Answer again, with another plugin.
    Switch(AuthSwitchRequest<'a>),
    /// Answer again, with the plugin from before 4.1: a lone 0xFE.
    OldSwitch,
    /// Another step of the same plugin.
    More(AuthMoreData<'a>),
}

impl<'a> AuthPacket<'a> {
    /// Parses the payload on a connection with `capabilities`.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        match payload {
            [] => Err(Malformed::Truncated),
            [0x00, ..] => OkPacket::parse(payload, capabilities).map(Self::Ok),
            [ErrPacket::HEADER, ..] => ErrPacket::parse(payload).map(Self::Err),
            [AuthSwitchRequest::HEADER] => Ok(Self::OldSwitch),
            [AuthSwitchRequest::HEADER, ..] => AuthSwitchRequest::parse(payload).map(Self::Switch),
            [AuthMoreData::HEADER, data @ ..] => Ok(Self::More(AuthMoreData { data })),
            [other, ..] => Err(Malformed::UnexpectedHeader(*other)),
        }
    }
}

/// The server asks for another plugin's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthSwitchRequest<'a> {
    /// The plugin to answer with.
    pub plugin: &'a [u8],
    /// What the plugin starts from: for the password plugins a new scramble of 20 bytes.
    pub data: &'a [u8],
}

impl<'a> AuthSwitchRequest<'a> {
    /// First byte of the payload.
    pub const HEADER: u8 = 0xFE;

    /// Parses a payload of more than the header byte; see [`AuthPacket::OldSwitch`] for a lone one.
    ///
    /// The NUL that the password plugins append to their scramble is not part of `data`.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            Self::HEADER => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        let plugin = reader.nul_terminated()?;
        let data = match reader.rest() {
            [scramble @ .., 0] if scramble.len() == SCRAMBLE_LEN => scramble,
            data => data,
        };
        Ok(AuthSwitchRequest { plugin, data })
    }

    /// Appends the payload; a scramble of 20 bytes gets the NUL behind it that clients expect.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        put_nul_terminated(out, self.plugin);
        out.extend_from_slice(self.data);
        if self.data.len() == SCRAMBLE_LEN {
            out.push(0);
        }
    }
}

/// More data of the plugin in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthMoreData<'a> {
    /// For the plugin.
    pub data: &'a [u8],
}

impl AuthMoreData<'_> {
    /// First byte of the payload.
    pub const HEADER: u8 = 0x01;

    /// Appends the payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        out.extend_from_slice(self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::MYSQL_NATIVE_PASSWORD;

    #[test]
    fn every_packet_is_told_apart() {
        let caps = Capabilities::PROTOCOL_41;
        let switch = AuthSwitchRequest { plugin: MYSQL_NATIVE_PASSWORD, data: &[9; 20] };
        let mut payload = Vec::new();
        switch.write(&mut payload);
        assert_eq!(payload.len(), 1 + 22 + 21);
        assert_eq!(AuthPacket::parse(&payload, caps), Ok(AuthPacket::Switch(switch)));
        assert_eq!(AuthPacket::parse(b"\xfe", caps), Ok(AuthPacket::OldSwitch));
        assert_eq!(AuthPacket::parse(b"\x01\x04", caps), Ok(AuthPacket::More(AuthMoreData { data: &[4] })));
        assert!(matches!(AuthPacket::parse(b"\0\0\0\x02\0\0\0", caps), Ok(AuthPacket::Ok(_))));
        assert!(matches!(AuthPacket::parse(b"\xff\x15\x04#28000no", caps), Ok(AuthPacket::Err(_))));
        assert_eq!(AuthPacket::parse(b"", caps), Err(Malformed::Truncated));
        assert_eq!(AuthPacket::parse(b"\x02", caps), Err(Malformed::UnexpectedHeader(2)));
        assert_eq!(AuthPacket::parse(b"\xfename", caps), Err(Malformed::Unterminated));
    }
}
