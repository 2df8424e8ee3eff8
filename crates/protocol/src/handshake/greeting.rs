//! Reads and writes the server's first packet.

use crate::capability::Capabilities;
use crate::handshake::{SCRAMBLE_LEN, Scramble};
use crate::status::StatusFlags;
use crate::wire::{Malformed, Reader, put_nul_terminated, put_u16, put_u32};

/// Bytes of the scramble that stand in front of the capabilities; the others were added in 4.1.
const SCRAMBLE_HEAD: usize = 8;

/// The server's first packet, protocol version 10 (`HandshakeV10`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// `SELECT VERSION()`; MariaDB before 11.0 puts `5.5.5-` in front.
    pub version: &'a [u8],
    /// The connection's id, as `KILL` takes it (its low 32 bits).
    pub thread_id: u32,
    /// What the client's password is proven against.
    pub scramble: Scramble,
    /// What the server can.
    pub capabilities: Capabilities,
    /// The server's default collation id (its low 8 bits).
    pub collation: u8,
    /// Status flags.
    pub status: StatusFlags,
    /// The plugin that `scramble` is for; empty without PLUGIN_AUTH.
    pub auth_plugin: &'a [u8],
}

impl<'a> Greeting<'a> {
    /// First byte of the payload.
    pub const PROTOCOL_VERSION: u8 = 10;

    /// Parses the payload.
    ///
    /// A server that refuses at once sends ERR in its place: look for
    /// `UnexpectedHeader(0xFF)`, and for `Ancient` from servers before 4.1.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            Self::PROTOCOL_VERSION => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        let version = reader.nul_terminated()?;
        let thread_id = reader.u32()?;
        let head: [u8; SCRAMBLE_HEAD] = reader.array()?;
        reader.skip(1)?;
        let low = reader.u16()?;
        if reader.is_empty() {
            return Err(Malformed::Ancient);
        }
        let collation = reader.u8()?;
        let status = StatusFlags::from_bits_retain(reader.u16()?);
        let mysql = u32::from(low) | u32::from(reader.u16()?) << 16;
        let auth_data_len = usize::from(reader.u8()?);
        reader.skip(6)?;
        let extended = reader.u32()?;
        let capabilities = capabilities_of(mysql, extended);
        if !capabilities.contains(Capabilities::SECURE_CONNECTION | Capabilities::PROTOCOL_41) {
            return Err(Malformed::Ancient);
        }
        // At least 13 bytes whatever the length says: 12 of the scramble and a NUL.
        let tail = reader.fixed(auth_data_len.saturating_sub(SCRAMBLE_HEAD).max(13))?;
        let mut scramble = [0; SCRAMBLE_LEN];
        for (to, from) in scramble.iter_mut().zip(head.iter().chain(tail)) {
            *to = *from;
        }
        let auth_plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            reader.nul_terminated_or_rest()
        } else {
            b""
        };
        Ok(Greeting { version, thread_id, scramble, capabilities, collation, status, auth_plugin })
    }

    /// Appends the payload.
    ///
    /// PROTOCOL_41 and SECURE_CONNECTION must be among the capabilities. The bytes of `scramble`
    /// must not be NUL, which some clients would take for its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (head, tail) = self.scramble.split_at(SCRAMBLE_HEAD);
        let bits = self.capabilities.mysql_bits();
        out.push(Self::PROTOCOL_VERSION);
        put_nul_terminated(out, self.version);
        put_u32(out, self.thread_id);
        out.extend_from_slice(head);
        out.push(0);
        put_u16(out, bits as u16);
        out.push(self.collation);
        put_u16(out, self.status.bits());
        put_u16(out, (bits >> 16) as u16);
        let named = self.capabilities.contains(Capabilities::PLUGIN_AUTH);
        out.push(if named { SCRAMBLE_LEN as u8 + 1 } else { 0 });
        out.extend_from_slice(&[0; 6]);
        put_u32(out, self.capabilities.mariadb_bits_on_wire());
        out.extend_from_slice(tail);
        out.push(0);
        if named {
            put_nul_terminated(out, self.auth_plugin);
        }
    }
}

/// Joins the two halves, the extended one only from a sender that is MariaDB.
pub(super) fn capabilities_of(mysql: u32, extended: u32) -> Capabilities {
    let capabilities = Capabilities::from_parts(mysql, 0);
    if capabilities.contains(Capabilities::LONG_PASSWORD) {
        capabilities
    } else {
        Capabilities::from_parts(mysql, extended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Greeting<'static> {
        Greeting {
            version: b"10.11.19-MariaDB",
            thread_id: 77,
            scramble: *b"abcdefghijklmnopqrst",
            capabilities: Capabilities::PROTOCOL_41
                | Capabilities::SECURE_CONNECTION
                | Capabilities::PLUGIN_AUTH
                | Capabilities::SESSION_TRACK
                | Capabilities::MARIADB_STMT_BULK_OPERATIONS,
            collation: 45,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: crate::handshake::MYSQL_NATIVE_PASSWORD,
        }
    }

    #[test]
    fn survives_the_wire_for_both_kinds_of_server() {
        let mariadb = example();
        let mysql = Greeting {
            capabilities: Capabilities::from_parts(mariadb.capabilities.mysql_bits(), 0)
                | Capabilities::LONG_PASSWORD,
            ..mariadb
        };
        for sent in [mariadb, mysql] {
            let mut payload = Vec::new();
            sent.write(&mut payload);
            assert_eq!(Greeting::parse(&payload), Ok(sent));
        }
    }

    #[test]
    fn captured_greetings_are_understood() {
        let mariadb = Greeting::parse(
            b"\x0A5.5.5-10.11.19-MariaDB-0+deb12u1-log\x00\x4A\x02\x00\x00.Q1?(Hr)\x00\xFE\xF7\x08\x02\x00\xFF\x81\x15\
              \x00\x00\x00\x00\x00\x00\x1D\x00\x00\x00nstoO|D}k~[+\x00mysql_native_password\x00",
        )
        .unwrap();
        assert_eq!(&mariadb.scramble, b".Q1?(Hr)nstoO|D}k~[+");
        assert_eq!(mariadb.thread_id, 0x24A);
        let extended = Capabilities::MARIADB_PROGRESS
            | Capabilities::MARIADB_STMT_BULK_OPERATIONS
            | Capabilities::MARIADB_EXTENDED_METADATA
            | Capabilities::MARIADB_CACHE_METADATA;
        assert_eq!(mariadb.capabilities.mariadb_bits(), extended.mariadb_bits());

        let mysql = Greeting::parse(
            b"\x0A9.7.4-2\x00\x0A\x00\x00\x00\x18>sJ:\x0C2(\x00\xFF\xFF\xFF\x02\x00\xFF\xDF\x15\
              \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x18.\x0Er3,bMXR\x0Dk\x00caching_sha2_password\x00",
        )
        .unwrap();
        assert_eq!((mysql.version, mysql.collation), (&b"9.7.4-2"[..], 255));
        assert_eq!(mysql.auth_plugin, crate::handshake::CACHING_SHA2_PASSWORD);
        assert_eq!(mysql.capabilities.mariadb_bits(), 0);
    }

    #[test]
    fn every_shorter_packet_is_an_error_or_loses_only_the_plugin() {
        let mut payload = Vec::new();
        example().write(&mut payload);
        let fixed_len = payload.len() - example().auth_plugin.len() - 1;
        for len in 0..fixed_len {
            assert!(Greeting::parse(&payload[..len]).is_err(), "{len} bytes");
        }
        assert_eq!(Greeting::parse(&payload[..fixed_len]).unwrap().auth_plugin, b"");
    }

    #[test]
    fn a_refusal_and_an_old_server_are_told_apart() {
        assert_eq!(Greeting::parse(b"\xff\x10\x04Too many"), Err(Malformed::UnexpectedHeader(0xFF)));
        assert_eq!(Greeting::parse(b"\x0a3.23\0\x01\0\0\0abcdefgh\0\0\0"), Err(Malformed::Ancient));
    }
}
