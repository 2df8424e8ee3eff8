//! Reads and writes COM_CHANGE_USER.

use crate::capability::Capabilities;
use crate::command::Command;
use crate::handshake::ConnectAttributes;
use crate::wire::{Malformed, Reader, put_lenenc_bytes, put_nul_terminated, put_u16};

/// COM_CHANGE_USER.
///
/// Everything behind the database may be missing, from the character set on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// The new user's name.
    pub user: &'a [u8],
    /// The plugin's first answer to the scramble of the greeting or the last authentication
    /// switch; at most 255 bytes.
    pub auth_data: &'a [u8],
    /// The new current database; empty for none.
    pub database: &'a [u8],
    /// Collation id of the new session.
    pub collation: Option<u16>,
    /// The plugin that `auth_data` belongs to (with PLUGIN_AUTH).
    pub auth_plugin: Option<&'a [u8]>,
    /// Connection attributes (with CONNECT_ATTRS).
    pub attributes: ConnectAttributes<'a>,
}

impl<'a> ChangeUser<'a> {
    /// Parses a payload that starts with the command byte, as sent by a client with
    /// `capabilities`.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            0x11 => {}
            other => return Err(Malformed::UnexpectedHeader(other)),
        }
        let user = reader.nul_terminated()?;
        let auth_data = if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let len = reader.u8()?;
            reader.fixed(usize::from(len))?
        } else {
            reader.nul_terminated()?
        };
        let mut change = ChangeUser {
            user,
            auth_data,
            database: reader.nul_terminated_or_rest(),
            collation: None,
            auth_plugin: None,
            attributes: ConnectAttributes::default(),
        };
        // A single byte behind the database is a NUL that some clients append.
        if reader.remaining() < 2 {
            return Ok(change);
        }
        change.collation = Some(reader.u16()?);
        if capabilities.contains(Capabilities::PLUGIN_AUTH) && !reader.is_empty() {
            change.auth_plugin = Some(reader.nul_terminated_or_rest());
        }
        if capabilities.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            change.attributes = ConnectAttributes::parse(reader.lenenc_bytes()?)?;
        }
        Ok(change)
    }

    /// Appends the payload, command byte included, for a server with which `capabilities` are
    /// agreed; SECURE_CONNECTION is taken for granted.
    ///
    /// Of `auth_data` at most 255 bytes are sent. Fields behind the first that is `None` are left
    /// out.
    pub fn write(&self, capabilities: Capabilities, out: &mut Vec<u8>) {
        out.push(Command::ChangeUser.code());
        put_nul_terminated(out, self.user);
        let auth_data = self.auth_data.get(..255).unwrap_or(self.auth_data);
        out.push(auth_data.len() as u8);
        out.extend_from_slice(auth_data);
        put_nul_terminated(out, self.database);
        let Some(collation) = self.collation else { return };
        put_u16(out, collation);
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            let Some(plugin) = self.auth_plugin else { return };
            put_nul_terminated(out, plugin);
        }
        if capabilities.contains(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, self.attributes.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Capabilities = Capabilities::PROTOCOL_41
        .union(Capabilities::SECURE_CONNECTION)
        .union(Capabilities::PLUGIN_AUTH)
        .union(Capabilities::CONNECT_ATTRS);

    #[test]
    fn survives_the_wire() {
        let mut attributes = Vec::new();
        ConnectAttributes::put(&mut attributes, b"_os", b"Linux");
        let sent = ChangeUser {
            user: b"app",
            auth_data: &[7; 20],
            database: b"shop",
            collation: Some(45),
            auth_plugin: Some(b"mysql_native_password"),
            attributes: ConnectAttributes::parse(&attributes).unwrap(),
        };
        let mut payload = Vec::new();
        sent.write(CAPS, &mut payload);
        assert_eq!(ChangeUser::parse(&payload, CAPS), Ok(sent));
    }

    #[test]
    fn optional_parts_may_be_missing() {
        let short = ChangeUser::parse(b"\x11app\0\0shop\0", CAPS).unwrap();
        assert_eq!((short.database, short.collation, short.auth_plugin), (&b"shop"[..], None, None));
        let padded = ChangeUser::parse(b"\x11app\0\0\0\0", CAPS).unwrap();
        assert_eq!((padded.database, padded.collation), (&b""[..], None));
    }

    #[test]
    fn broken_packets_are_errors() {
        assert_eq!(ChangeUser::parse(b"", CAPS), Err(Malformed::Truncated));
        assert_eq!(ChangeUser::parse(b"\x03SELECT", CAPS), Err(Malformed::UnexpectedHeader(3)));
        assert_eq!(ChangeUser::parse(b"\x11app", CAPS), Err(Malformed::Unterminated));
        assert_eq!(ChangeUser::parse(b"\x11app\0\x14short", CAPS), Err(Malformed::Truncated));
    }
}
