//! Logs in: from the greeting to the OK that ends the login.

use weir_protocol::auth::{Credential, rsa, sha2};
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::UTF8MB4_GENERAL_CI;
use weir_protocol::handshake::{
    AuthPacket, CACHING_SHA2_PASSWORD, ConnectAttributes, Greeting, HandshakeResponse, LOGIN_PAYLOAD_MAX,
    MYSQL_CLEAR_PASSWORD, MYSQL_NATIVE_PASSWORD, Scramble, SslRequest,
};
use weir_protocol::ok::ErrPacket;

use crate::stream::{Deadline, PacketStream};
use crate::{Error, Options, Tls};

/// More steps than any plugin of this client takes.
const STEPS_MAX: usize = 8;
/// What the client announces as the largest packet it takes, in bytes.
const MAX_PACKET_SIZE: u32 = 1 << 30;

/// The contents of the greeting.
pub(crate) struct Welcome {
    pub(crate) version: String,
    pub(crate) thread_id: u32,
    pub(crate) capabilities: Capabilities,
    /// What the server can, agreed on or not.
    pub(crate) offers: Capabilities,
}

/// Logs in.
pub(crate) fn log_in(
    mut stream: PacketStream,
    options: &Options,
    deadline: Deadline,
) -> Result<(PacketStream, Welcome), Error> {
    let payload = stream.receive(LOGIN_PAYLOAD_MAX, deadline)?;
    if payload.first() == Some(&ErrPacket::HEADER) {
        return Err(Error::of_packet(&ErrPacket::parse(&payload)?));
    }
    let greeting = Greeting::parse(&payload)?;
    let capabilities = capabilities(options, greeting.capabilities);
    if let Some(tls) = &options.tls {
        stream = encrypted(stream, tls, greeting.capabilities, capabilities, deadline)?;
    }
    let credential = Credential::clear_text(options.password.as_bytes());
    let plugin = match greeting.auth_plugin {
        CACHING_SHA2_PASSWORD => CACHING_SHA2_PASSWORD,
        // Anything else is sorted out by the switch request that follows.
        _ => MYSQL_NATIVE_PASSWORD,
    };
    let auth_data = credential.response(plugin, &greeting.scramble).unwrap_or_default();
    let mut attributes = Vec::new();
    if capabilities.contains(Capabilities::CONNECT_ATTRS) {
        ConnectAttributes::put(&mut attributes, b"program_name", b"weir");
    }
    let response = HandshakeResponse {
        capabilities,
        max_packet_size: MAX_PACKET_SIZE,
        collation: collation(),
        user: options.user.as_bytes(),
        auth_data: &auth_data,
        database: options.schema.as_deref().map(str::as_bytes),
        auth_plugin: capabilities.contains(Capabilities::PLUGIN_AUTH).then_some(plugin),
        attributes: ConnectAttributes::parse(&attributes)?,
        zstd_level: None,
    };
    let mut out = Vec::new();
    response.write(&mut out);
    stream.send(&out, deadline)?;
    let proof = Proof { credential, is_all: options.proofs_only };
    authenticate(&mut stream, &proof, greeting.scramble, capabilities, deadline)?;
    let version = String::from_utf8_lossy(greeting.version).into_owned();
    let (thread_id, offers) = (greeting.thread_id, greeting.capabilities);
    let welcome = Welcome { version, thread_id, capabilities, offers };
    Ok((stream, welcome))
}

/// Asks for TLS and begins it.
fn encrypted(
    mut stream: PacketStream,
    tls: &Tls,
    server: Capabilities,
    capabilities: Capabilities,
    deadline: Deadline,
) -> Result<PacketStream, Error> {
    if !server.contains(Capabilities::SSL) {
        return Err(Error::NoTls);
    }
    let request = SslRequest { capabilities, max_packet_size: MAX_PACKET_SIZE, collation: collation() };
    let mut out = Vec::new();
    request.write(&mut out);
    stream.send(&out, deadline)?;
    stream.encrypt(tls)
}

/// The password, and whether the server may only have proofs of it.
struct Proof {
    credential: Credential,
    is_all: bool,
}

/// Answers the server until it is content.
fn authenticate(
    stream: &mut PacketStream,
    Proof { credential, is_all }: &Proof,
    mut scramble: Scramble,
    capabilities: Capabilities,
    deadline: Deadline,
) -> Result<(), Error> {
    let mut has_asked_for_key = false;
    for _ in 0..STEPS_MAX {
        let payload = stream.receive(LOGIN_PAYLOAD_MAX, deadline)?;
        match AuthPacket::parse(&payload, capabilities)? {
            AuthPacket::Ok(_) => return Ok(()),
            AuthPacket::Err(error) => return Err(Error::of_packet(&error)),
            AuthPacket::OldSwitch => {
                return Err(unsupported("the account has a password from before MySQL 4.1"));
            }
            AuthPacket::Switch(request) => {
                let plugin = String::from_utf8_lossy(request.plugin);
                scramble = Scramble::try_from(request.data).unwrap_or(scramble);
                let Some(answer) = credential.answer_switch(request.plugin, request.data) else {
                    let why = if request.plugin == MYSQL_CLEAR_PASSWORD {
                        ", which sends the password in clear"
                    } else {
                        ""
                    };
                    return Err(unsupported(&format!("the account uses {plugin}{why}")));
                };
                stream.send(&answer, deadline)?;
            }
            AuthPacket::More(more) => match more.data {
                [sha2::FAST_AUTH_OK] => {}
                [sha2::PERFORM_FULL_AUTHENTICATION] if *is_all => return Err(Error::PasswordWithheld),
                [sha2::PERFORM_FULL_AUTHENTICATION] => {
                    let password = credential.password().unwrap_or_default();
                    let answer = if capabilities.contains(Capabilities::SSL) {
                        [password, b"\0"].concat()
                    } else {
                        has_asked_for_key = true;
                        vec![sha2::REQUEST_PUBLIC_KEY]
                    };
                    stream.send(&answer, deadline)?;
                }
                pem if has_asked_for_key => {
                    has_asked_for_key = false;
                    let sealed = rsa::seal(pem, credential.password().unwrap_or_default(), &scramble)
                        .ok_or_else(|| Error::Protocol("an RSA key that can't be used".to_owned()))?;
                    stream.send(&sealed, deadline)?;
                }
                _ => return Err(Error::Protocol("an unexpected authentication step".to_owned())),
            },
        }
    }
    Err(Error::Protocol(format!("more than {STEPS_MAX} authentication steps")))
}

fn unsupported(why: &str) -> Error {
    Error::Unsupported(why.to_owned())
}

/// The low byte of utf8mb4_general_ci, which every server has.
fn collation() -> u8 {
    u8::try_from(UTF8MB4_GENERAL_CI).unwrap_or(45)
}

/// What both sides can and the options allow.
fn capabilities(options: &Options, server: Capabilities) -> Capabilities {
    let own = Capabilities::PROTOCOL_41
        | Capabilities::SECURE_CONNECTION
        | Capabilities::PLUGIN_AUTH
        | Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA
        | Capabilities::CONNECT_ATTRS
        | Capabilities::LONG_FLAG
        | Capabilities::TRANSACTIONS
        | Capabilities::MULTI_RESULTS
        | Capabilities::DEPRECATE_EOF;
    let impossible = Capabilities::SSL
        | Capabilities::COMPRESS
        | Capabilities::ZSTD_COMPRESSION_ALGORITHM
        | Capabilities::MARIADB_PROGRESS
        | Capabilities::MARIADB_CACHE_METADATA
        | Capabilities::OPTIONAL_RESULTSET_METADATA
        | Capabilities::QUERY_ATTRIBUTES;
    let mut chosen = ((own | options.capabilities) - options.without - impossible) & server;
    chosen |= Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
    chosen.set(Capabilities::SSL, options.tls.is_some());
    // The bit of MySQL's own clients; MariaDB's extended capabilities are only sent without it.
    chosen.set(Capabilities::LONG_PASSWORD, chosen.bits() >> 32 == 0);
    chosen
}
