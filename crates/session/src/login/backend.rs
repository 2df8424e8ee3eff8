//! Takes the client's side of a login: Weir at a server.

use std::sync::Arc;

use weir_protocol::auth::Credential;
use weir_protocol::auth::rsa;
use weir_protocol::auth::sha2::{FAST_AUTH_OK, PERFORM_FULL_AUTHENTICATION, REQUEST_PUBLIC_KEY};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::ChangeUser;
use weir_protocol::error;
use weir_protocol::frame;
use weir_protocol::handshake::{
    AuthPacket, AuthSwitchRequest, ConnectAttributes, Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD,
    Scramble, SslRequest,
};
use weir_protocol::ok::ErrPacket;
use weir_sql::Server;

/// Weir's side of a login at a server, or of a COM_CHANGE_USER there.
///
/// ```text
/// Connected ── greeting ─┬─────────────────────────────► Answered ─┬─ OK ─► Ready
///                        └─► EncryptionDue ── encrypted ──► Answered ├─ auth switch, fast path ─► Answered
///                                                                    └─ full authentication ─► KeyDue or Answered
/// ```
#[derive(Debug)]
pub struct BackendLogin {
    user: Vec<u8>,
    credential: Credential,
    capabilities: Capabilities,
    plugin: Vec<u8>,
    scramble: Scramble,
    stage: Stage,
    /// The connection is to be encrypted, or is.
    uses_tls: bool,
    /// What Weir says of itself, encoded.
    attributes: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connected,
    EncryptionDue,
    Answered,
    /// The server has been asked for its RSA key.
    KeyDue,
}

/// The next step after a server's packet.
#[derive(Debug, PartialEq, Eq)]
pub enum BackendStep {
    /// The server has to say more.
    Wait,
    /// What was written goes out as it is, then TLS begins, then [`BackendLogin::encrypted`] goes on.
    StartTls,
    /// Logged in; the thread id is 0 after COM_CHANGE_USER.
    Ready {
        /// The server's id of the connection.
        thread_id: u32,
    },
    /// The server (or its way of authentication) refuses.
    Refused {
        /// The server's error number, if it gave one.
        code: Option<u16>,
        /// Its words.
        message: String,
    },
    /// The server can't do what these sessions agreed on with Weir, but can do all that Weir needs.
    Lacks {
        /// What it can't do.
        missing: Capabilities,
    },
}

/// What every backend connection asks for, whatever its session can do.
pub const BACKEND_CAPABILITIES: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::LONG_FLAG)
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA)
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::DEPRECATE_EOF);

/// utf8mb4_general_ci: every server knows it. Sessions set their own afterwards.
const LOGIN_COLLATION: u8 = 45;
/// As large as packets get: servers have limits of their own.
const MAX_PACKET_SIZE: u32 = 1 << 30;

impl BackendLogin {
    /// A login on a new connection, which is to be encrypted if it `uses_tls`; `extra` are the capabilities of the
    /// session's identity, `attributes` encoded [`ConnectAttributes`], for a server that takes them.
    pub fn new(
        user: &[u8],
        credential: Credential,
        extra: Capabilities,
        uses_tls: bool,
        attributes: Arc<[u8]>,
    ) -> Self {
        let mut capabilities = BACKEND_CAPABILITIES | extra;
        capabilities.set(Capabilities::SSL, uses_tls);
        // Where it stands, the bits that are MariaDB's own count for nothing.
        capabilities.set(Capabilities::LONG_PASSWORD, extra.mariadb_bits() == 0);
        Self {
            user: user.to_vec(),
            credential,
            capabilities,
            plugin: Vec::new(),
            scramble: [0; 20],
            stage: Stage::Connected,
            uses_tls,
            attributes,
        }
    }

    /// A COM_CHANGE_USER on an open connection, which is encrypted if it `uses_tls`: appends the command to `out`.
    /// The server forgets the `attributes` of before; there are none for one that took none ([`Greeted`]).
    pub fn change_user(
        user: &[u8],
        credential: Credential,
        extra: Capabilities,
        uses_tls: bool,
        attributes: Arc<[u8]>,
        out: &mut Vec<u8>,
    ) -> Self {
        let mut login = Self::new(user, credential, extra, uses_tls, attributes);
        login.stage = Stage::Answered;
        login.capabilities.set(Capabilities::CONNECT_ATTRS, !login.attributes.is_empty());
        // Without a scramble there is no proof yet: the server asks for it with an auth switch.
        let change = ChangeUser {
            user,
            auth_data: b"",
            database: b"",
            collation: Some(LOGIN_COLLATION.into()),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: ConnectAttributes::parse(&login.attributes).unwrap_or_default(),
        };
        weir_protocol::command::put_change_user(out, &change, login.capabilities);
        login
    }

    /// Takes a packet of the server; what is to be sent goes to `out`. `thread_id` and `version` are filled from
    /// the greeting.
    pub fn packet(
        &mut self,
        sequence: u8,
        payload: &[u8],
        known: &mut Greeted,
        out: &mut Vec<u8>,
    ) -> BackendStep {
        let sequence = sequence.wrapping_add(1);
        match self.stage {
            Stage::Connected => return self.greeting(sequence, payload, known, out),
            Stage::EncryptionDue => return broken("the server goes on without TLS"),
            Stage::Answered | Stage::KeyDue => {}
        }
        match AuthPacket::parse(payload, self.capabilities) {
            Ok(AuthPacket::Ok(_)) => BackendStep::Ready { thread_id: known.thread_id },
            Ok(AuthPacket::Err(err)) => refusal(&err),
            Ok(AuthPacket::Switch(switch)) => self.switch(sequence, &switch, out),
            Ok(AuthPacket::More(more)) => self.more(sequence, more.data, out),
            Ok(_) => broken("the server asks for an old authentication method"),
            Err(_) => broken("malformed packet during login"),
        }
    }

    fn greeting(
        &mut self,
        mut sequence: u8,
        payload: &[u8],
        known: &mut Greeted,
        out: &mut Vec<u8>,
    ) -> BackendStep {
        if payload.first() == Some(&ErrPacket::HEADER) {
            return match ErrPacket::parse(payload) {
                Ok(err) => refusal(&err),
                Err(_) => broken("malformed error instead of a greeting"),
            };
        }
        let Ok(greeting) = Greeting::parse(payload) else {
            return broken("malformed greeting");
        };
        let promised =
            self.capabilities & (Capabilities::MARIADB_EXTENDED_METADATA | Capabilities::QUERY_ATTRIBUTES);
        let missing = BACKEND_CAPABILITIES - greeting.capabilities - Capabilities::LONG_PASSWORD; // MariaDB leaves it out to say that it is MariaDB
        if !missing.is_empty() {
            return broken(&format!("the server does not support {missing:?}, which Weir needs"));
        }
        let missing = promised - greeting.capabilities;
        if !missing.is_empty() {
            return BackendStep::Lacks { missing };
        }
        self.scramble = greeting.scramble;
        self.plugin = greeting.auth_plugin.to_vec();
        known.thread_id = greeting.thread_id;
        known.is_mariadb = greeting.version.windows(7).any(|word| word == b"MariaDB");
        known.reads_as = Server::of_version(greeting.version);
        known.takes_query_attributes = greeting.capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        known.takes_attributes = greeting.capabilities.contains(Capabilities::CONNECT_ATTRS);
        // Also in the request for TLS, which is to announce what the response then has.
        let has_attributes = known.takes_attributes && !self.attributes.is_empty();
        self.capabilities.set(Capabilities::CONNECT_ATTRS, has_attributes);
        if !self.uses_tls {
            self.respond(sequence, out);
            return BackendStep::Wait;
        }
        if !greeting.capabilities.contains(Capabilities::SSL) {
            return broken("the server offers no TLS, which mysql_servers.use_ssl requires");
        }
        let request = SslRequest {
            capabilities: self.capabilities,
            max_packet_size: MAX_PACKET_SIZE,
            collation: LOGIN_COLLATION,
        };
        frame::packet(out, &mut sequence, |out| request.write(out));
        self.stage = Stage::EncryptionDue;
        BackendStep::StartTls
    }

    /// TLS stands from here on: appends what comes first in it to `out`.
    pub fn encrypted(&mut self, out: &mut Vec<u8>) {
        // Behind the greeting and the request.
        self.respond(2, out);
    }

    fn respond(&mut self, mut sequence: u8, out: &mut Vec<u8>) {
        self.stage = Stage::Answered;
        let proof = match self.credential.response(&self.plugin, &self.scramble) {
            Some(proof) => proof,
            None => {
                self.plugin = MYSQL_NATIVE_PASSWORD.to_vec();
                self.credential.response(&self.plugin, &self.scramble).unwrap_or_default()
            }
        };
        let has_attributes = self.capabilities.contains(Capabilities::CONNECT_ATTRS);
        let attributes = if has_attributes { &*self.attributes } else { &[] };
        let response = HandshakeResponse {
            capabilities: self.capabilities,
            max_packet_size: MAX_PACKET_SIZE,
            collation: LOGIN_COLLATION,
            user: &self.user,
            auth_data: &proof,
            database: None,
            auth_plugin: Some(&self.plugin),
            attributes: ConnectAttributes::parse(attributes).unwrap_or_default(),
            zstd_level: None,
        };
        frame::packet(out, &mut sequence, |out| response.write(out));
    }

    /// caching_sha2_password goes on.
    fn more(&mut self, mut sequence: u8, data: &[u8], out: &mut Vec<u8>) -> BackendStep {
        let password = self.credential.password();
        match (data, password) {
            ([FAST_AUTH_OK], _) => BackendStep::Wait,
            ([PERFORM_FULL_AUTHENTICATION], None) => unanswerable(
                "the server does not have the password in its cache, and only a hash of it is known here: \
                 a client must log in at the server, or in Weir over TLS or with a password in clear",
            ),
            ([PERFORM_FULL_AUTHENTICATION], Some(password)) if self.uses_tls => {
                let clear = [password, b"\0"].concat();
                frame::packet(out, &mut sequence, |out| out.extend_from_slice(&clear));
                BackendStep::Wait
            }
            ([PERFORM_FULL_AUTHENTICATION], Some(_)) => {
                frame::packet(out, &mut sequence, |out| out.push(REQUEST_PUBLIC_KEY));
                self.stage = Stage::KeyDue;
                BackendStep::Wait
            }
            (pem, Some(password)) if self.stage == Stage::KeyDue => {
                let Some(sealed) = rsa::seal(pem, password, &self.scramble) else {
                    return broken("the server's RSA key can't be used");
                };
                self.stage = Stage::Answered;
                frame::packet(out, &mut sequence, |out| out.extend_from_slice(&sealed));
                BackendStep::Wait
            }
            _ => broken("unexpected authentication data"),
        }
    }

    fn switch(&mut self, mut sequence: u8, switch: &AuthSwitchRequest<'_>, out: &mut Vec<u8>) -> BackendStep {
        // caching_sha2_password may come back to it; others need not have one of this length.
        let data = switch.data.strip_suffix(&[0]).unwrap_or(switch.data);
        if let Ok(scramble) = Scramble::try_from(data) {
            self.scramble = scramble;
        }
        self.plugin = switch.plugin.to_vec();
        let Some(proof) = self.credential.answer_switch(switch.plugin, switch.data) else {
            let plugin = String::from_utf8_lossy(switch.plugin);
            return unanswerable(&format!("the stored password can't answer {plugin}"));
        };
        frame::packet(out, &mut sequence, |out| out.extend_from_slice(&proof));
        BackendStep::Wait
    }
}

/// The contents of a greeting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greeted {
    /// The server's id of the connection.
    pub thread_id: u32,
    /// The server is a MariaDB.
    pub is_mariadb: bool,
    /// How it reads statements.
    pub reads_as: Server,
    /// It takes connection attributes.
    pub takes_attributes: bool,
    /// It takes query attributes.
    pub takes_query_attributes: bool,
}

/// The server says no.
fn refusal(err: &ErrPacket<'_>) -> BackendStep {
    let message = format!("error {}: {}", err.code, String::from_utf8_lossy(err.message));
    BackendStep::Refused { code: Some(err.code), message }
}

/// The server's way of authentication is one that Weir can't go with this user's password.
fn unanswerable(message: &str) -> BackendStep {
    BackendStep::Refused { code: Some(error::ACCESS_DENIED.code), message: message.into() }
}

/// The server does not speak as it should.
fn broken(message: &str) -> BackendStep {
    BackendStep::Refused { code: None, message: message.into() }
}
