//! Reads and writes the client's first packet: a request for TLS, or the login.

use crate::capability::Capabilities;
use crate::handshake::ConnectAttributes;
use crate::handshake::greeting::capabilities_of;
use crate::wire::{Malformed, Reader, put_lenenc_bytes, put_nul_terminated, put_u32};

/// The client's first packet: it asks for TLS or logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientReply<'a> {
    /// TLS starts with the next byte; the client's response follows within it.
    Ssl(SslRequest),
    /// The client logs in.
    Response(HandshakeResponse<'a>),
}

impl<'a> ClientReply<'a> {
    /// Parses the payload: what ends behind its fixed part and has SSL set asks for TLS.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        if payload.len() == SslRequest::LEN {
            return SslRequest::parse(payload).map(ClientReply::Ssl);
        }
        HandshakeResponse::parse(payload).map(ClientReply::Response)
    }
}

/// The client's request to go on with TLS: the fixed part of its response, with SSL set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// What the client can.
    pub capabilities: Capabilities,
    /// Largest packet the client takes, in bytes.
    pub max_packet_size: u32,
    /// Collation id (its low 8 bits).
    pub collation: u8,
}

impl SslRequest {
    /// Bytes of the payload.
    pub const LEN: usize = 32;

    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let request = Self::read(&mut reader)?;
        if !request.capabilities.contains(Capabilities::SSL) {
            return Err(Malformed::Truncated);
        }
        Ok(request)
    }

    /// Appends the payload; SSL is set in it in any case.
    pub fn write(&self, out: &mut Vec<u8>) {
        let with_ssl = SslRequest { capabilities: self.capabilities | Capabilities::SSL, ..*self };
        with_ssl.write_fixed(out);
    }

    /// Reads the 32 bytes that both packets start with.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [low, high] = [reader.u16()?, reader.u16()?];
        let mysql = u32::from(low) | u32::from(high) << 16;
        if !Capabilities::from_parts(mysql, 0).contains(Capabilities::PROTOCOL_41) {
            return Err(Malformed::Ancient);
        }
        let max_packet_size = reader.u32()?;
        let collation = reader.u8()?;
        reader.skip(19)?;
        let capabilities = capabilities_of(mysql, reader.u32()?);
        Ok(SslRequest { capabilities, max_packet_size, collation })
    }

    fn write_fixed(&self, out: &mut Vec<u8>) {
        put_u32(out, self.capabilities.mysql_bits());
        put_u32(out, self.max_packet_size);
        out.push(self.collation);
        out.extend_from_slice(&[0; 19]);
        put_u32(out, self.capabilities.mariadb_bits_on_wire());
    }
}

/// The client's login (`HandshakeResponse41`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// What the client can, out of what the server offered.
    pub capabilities: Capabilities,
    /// Largest packet the client takes, in bytes.
    pub max_packet_size: u32,
    /// Collation id (its low 8 bits).
    pub collation: u8,
    /// The user's name.
    pub user: &'a [u8],
    /// The plugin's first answer to the greeting's scramble.
    pub auth_data: &'a [u8],
    /// The database to start in (with CONNECT_WITH_DB).
    pub database: Option<&'a [u8]>,
    /// The plugin that `auth_data` is from (with PLUGIN_AUTH).
    pub auth_plugin: Option<&'a [u8]>,
    /// Connection attributes (with CONNECT_ATTRS).
    pub attributes: ConnectAttributes<'a>,
    /// zstd level (with ZSTD_COMPRESSION_ALGORITHM).
    pub zstd_level: Option<u8>,
}

impl<'a> HandshakeResponse<'a> {
    /// Parses the payload.
    ///
    /// Fields that the capabilities announce may be missing at the end of the packet: drivers
    /// set bits for fields they do not send.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let SslRequest { capabilities, max_packet_size, collation } = SslRequest::read(&mut reader)?;
        let user = reader.nul_terminated()?;
        let auth_data = if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA) {
            reader.lenenc_bytes()?
        } else if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let len = reader.u8()?;
            reader.fixed(usize::from(len))?
        } else {
            reader.nul_terminated_or_rest()
        };
        let sent = |flag, reader: &Reader<'_>| capabilities.contains(flag) && !reader.is_empty();
        let mut database = None;
        if sent(Capabilities::CONNECT_WITH_DB, &reader) {
            database = Some(reader.nul_terminated_or_rest());
        }
        let mut auth_plugin = None;
        if sent(Capabilities::PLUGIN_AUTH, &reader) {
            auth_plugin = Some(reader.nul_terminated_or_rest());
        }
        let mut attributes = ConnectAttributes::default();
        if sent(Capabilities::CONNECT_ATTRS, &reader) {
            attributes = ConnectAttributes::parse(reader.lenenc_bytes()?)?;
        }
        let mut zstd_level = None;
        if sent(Capabilities::ZSTD_COMPRESSION_ALGORITHM, &reader) {
            zstd_level = Some(reader.u8()?);
        }
        Ok(HandshakeResponse {
            capabilities,
            max_packet_size,
            collation,
            user,
            auth_data,
            database,
            auth_plugin,
            attributes,
            zstd_level,
        })
    }

    /// Appends the payload.
    ///
    /// The capability bits of the optional fields are set to fit which of them are `Some` (or not
    /// empty), and those of the authentication data likewise.
    pub fn write(&self, out: &mut Vec<u8>) {
        let capabilities = self.capabilities_on_wire();
        let fixed =
            SslRequest { capabilities, max_packet_size: self.max_packet_size, collation: self.collation };
        fixed.write_fixed(out);
        put_nul_terminated(out, self.user);
        if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA) {
            put_lenenc_bytes(out, self.auth_data);
        } else {
            // Short enough for one byte, see capabilities_on_wire.
            out.push(self.auth_data.len() as u8);
            out.extend_from_slice(self.auth_data);
        }
        if let Some(database) = self.database {
            put_nul_terminated(out, database);
        }
        if let Some(plugin) = self.auth_plugin {
            put_nul_terminated(out, plugin);
        }
        if !self.attributes.is_empty() {
            put_lenenc_bytes(out, self.attributes.as_bytes());
        }
        out.extend(self.zstd_level);
    }

    fn capabilities_on_wire(&self) -> Capabilities {
        let mut capabilities =
            self.capabilities | Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
        capabilities.set(Capabilities::CONNECT_WITH_DB, self.database.is_some());
        capabilities.set(Capabilities::PLUGIN_AUTH, self.auth_plugin.is_some());
        capabilities.set(Capabilities::CONNECT_ATTRS, !self.attributes.is_empty());
        capabilities.set(Capabilities::ZSTD_COMPRESSION_ALGORITHM, self.zstd_level.is_some());
        if self.auth_data.len() > usize::from(u8::MAX) {
            capabilities |= Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA;
        }
        capabilities
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ssl_request_survives_the_wire() {
        let sent = SslRequest {
            capabilities: Capabilities::PROTOCOL_41 | Capabilities::SSL | Capabilities::MARIADB_PROGRESS,
            max_packet_size: 1 << 24,
            collation: 45,
        };
        let mut payload = Vec::new();
        sent.write(&mut payload);
        assert_eq!(payload.len(), SslRequest::LEN);
        assert_eq!(ClientReply::parse(&payload), Ok(ClientReply::Ssl(sent)));
    }

    #[test]
    fn fields_announced_but_not_sent_are_taken_as_missing() {
        let caps = Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::CONNECT_WITH_DB
            | Capabilities::PLUGIN_AUTH
            | Capabilities::CONNECT_ATTRS;
        let mut payload = Vec::new();
        put_u32(&mut payload, caps.mysql_bits());
        payload.extend_from_slice(&[0; 28]);
        payload.extend_from_slice(b"app\0\0");
        let response = HandshakeResponse::parse(&payload).unwrap();
        assert_eq!((response.user, response.database, response.auth_plugin), (&b"app"[..], None, None));
        payload.extend_from_slice(b"shop");
        assert_eq!(HandshakeResponse::parse(&payload).unwrap().database, Some(&b"shop"[..]));
    }

    #[test]
    fn broken_packets_are_errors() {
        assert_eq!(ClientReply::parse(b""), Err(Malformed::Truncated));
        assert_eq!(ClientReply::parse(&[0; 40]), Err(Malformed::Ancient));
        let mut payload = vec![0, 0x82, 0, 0];
        payload.resize(32, 0);
        assert_eq!(ClientReply::parse(&payload), Err(Malformed::Truncated), "32 bytes without SSL");
        payload.extend_from_slice(b"app\0\xffshort");
        assert_eq!(ClientReply::parse(&payload), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn response_survives_the_wire(bits: u64, max_packet_size: u32, collation: u8,
                                      user in "[a-z]{0,80}",
                                      auth_data in proptest::collection::vec(any::<u8>(), 0..300),
                                      database in proptest::option::of("[a-z]{1,64}"),
                                      plugin in proptest::option::of("[a-z_]{1,32}"),
                                      attributes in proptest::collection::vec(("[a-z_]{1,20}", "[ -~]{0,300}"), 0..4),
                                      zstd_level in proptest::option::of(any::<u8>())) {
            let mut encoded = Vec::new();
            for (key, value) in &attributes {
                ConnectAttributes::put(&mut encoded, key.as_bytes(), value.as_bytes());
            }
            let mut sent = HandshakeResponse {
                capabilities: Capabilities::from_bits_retain(bits),
                max_packet_size, collation,
                user: user.as_bytes(), auth_data: &auth_data,
                database: database.as_deref().map(str::as_bytes),
                auth_plugin: plugin.as_deref().map(str::as_bytes),
                attributes: ConnectAttributes::parse(&encoded).unwrap(),
                zstd_level,
            };
            let mut payload = Vec::new();
            sent.write(&mut payload);
            sent.capabilities = sent.capabilities_on_wire();
            if sent.capabilities.contains(Capabilities::LONG_PASSWORD) {
                sent.capabilities = Capabilities::from_parts(sent.capabilities.mysql_bits(), 0);
            }
            prop_assert_eq!(HandshakeResponse::parse(&payload), Ok(sent));
            prop_assert_eq!(ClientReply::parse(&payload), Ok(ClientReply::Response(sent)));
        }
    }
}
