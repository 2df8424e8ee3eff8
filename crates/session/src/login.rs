//! Logins without I/O, at both ends: [`ClientLogin`] for those who connect to Weir, [`BackendLogin`] for Weir at
//! a server.

use std::net::IpAddr;
use std::sync::Arc;

use weir_protocol::auth::sha2::{FAST_AUTH_OK, PERFORM_FULL_AUTHENTICATION};
use weir_protocol::auth::{Method, StoredPassword};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::ChangeUser;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame;
use weir_protocol::handshake::{
    AuthMoreData, AuthPacket, AuthSwitchRequest, CACHING_SHA2_PASSWORD, ClientReply, Greeting,
    HandshakeResponse, MYSQL_NATIVE_PASSWORD, Scramble,
};
use weir_protocol::ok::ErrPacket;
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Malformed;

pub use weir_protocol::auth::Credential;

/// What a login needs to know of a user.
#[derive(Clone, Debug)]
pub struct LoginUser {
    /// The password in one of its stored forms.
    pub stored: Arc<StoredPassword>,
    /// The user may log in over TLS only.
    pub requires_tls: bool,
    /// What earlier logins have shown of the password.
    pub known: Option<Credential>,
}

/// What comes of a packet.
#[derive(Debug)]
pub enum LoginStep {
    /// The client has to say more.
    Wait,
    /// The client goes on in TLS.
    StartTls,
    /// The client is who it says. The OK packet is up to the caller.
    Verified(Box<Verified>),
    /// The login ends with this error.
    Refused(ServerError, String),
}

/// A login that succeeded.
#[derive(Debug)]
pub struct Verified {
    /// The user.
    pub user: Vec<u8>,
    /// The schema asked for; empty for none.
    pub schema: Vec<u8>,
    /// The collation id asked for.
    pub collation: u16,
    /// What both sides can do.
    pub capabilities: Capabilities,
    /// What logs in at servers.
    pub credential: Option<Credential>,
    /// Sequence id for the OK packet.
    pub sequence: u8,
}

/// The server's side of a login.
///
/// ```text
/// Greeted ── SSLRequest ─► (TLS) ─► Greeted
///    │ response
///    ├── proof fits ──────────────────────────────► Verified
///    ├── other plugin ── auth switch ─► Switched ─┬► Verified
///    │                                            └► FullAuth (TLS only) ─► Verified
///    └── anything else ───────────────────────────► Refused
/// ```
#[derive(Debug)]
pub struct ClientLogin {
    stage: Stage,
    offered: Capabilities,
    plugin: Plugin,
    scramble: Scramble,
    sequence: u8,
    /// Where the client is, for the words of a refusal; none through a Unix socket.
    host: Option<IpAddr>,
    claim: Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeted,
    Switched,
    FullAuth,
}

/// The plugins that Weir speaks with clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// mysql_native_password
    Native,
    /// caching_sha2_password
    CachingSha2,
}

impl Plugin {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Native => MYSQL_NATIVE_PASSWORD,
            Self::CachingSha2 => CACHING_SHA2_PASSWORD,
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        [Self::Native, Self::CachingSha2].into_iter().find(|plugin| plugin.name() == name)
    }

    /// Whether a client can prove the password this way, given how it is stored, what is known of it, and
    /// whether it may be sent in clear.
    fn serves(self, user: &LoginUser, is_tls: bool) -> bool {
        match self {
            Self::Native => user.stored.allows(Method::Native),
            Self::CachingSha2 => {
                let is_known = user.known.as_ref().is_some_and(|known| known.password().is_some());
                user.stored.allows(Method::Sha2Fast)
                    || (user.stored.allows(Method::ClearText) && (is_tls || is_known))
            }
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Native => Self::CachingSha2,
            Self::CachingSha2 => Self::Native,
        }
    }
}

/// Who the client says it is.
#[derive(Debug, Default)]
struct Claim {
    user: Vec<u8>,
    schema: Vec<u8>,
    collation: u16,
    capabilities: Capabilities,
}

impl ClientLogin {
    /// A login of a new connection from `host` (none: through a Unix socket), with a fresh `scramble` (no zero bytes).
    pub fn new(
        offered: Capabilities,
        default_plugin: Plugin,
        scramble: Scramble,
        host: Option<IpAddr>,
    ) -> Self {
        Self {
            stage: Stage::Greeted,
            offered,
            plugin: default_plugin,
            scramble,
            sequence: 0,
            host,
            claim: Claim::default(),
        }
    }

    /// The greeting, as a packet.
    pub fn greet(&mut self, thread_id: u32, version: &[u8], out: &mut Vec<u8>) {
        let greeting = Greeting {
            version,
            thread_id,
            scramble: self.scramble,
            capabilities: self.offered,
            collation: 45,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: self.plugin.name(),
        };
        frame::packet(out, &mut self.sequence, |out| greeting.write(out));
    }

    /// Begins a COM_CHANGE_USER: always by a switch to a plugin with a fresh scramble, as MariaDB does.
    ///
    /// # Errors
    /// When the command does not parse.
    pub fn change_user(
        &mut self,
        payload: &[u8],
        capabilities: Capabilities,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let change = ChangeUser::parse(payload, capabilities)?;
        self.claim = Claim {
            user: change.user.to_vec(),
            schema: change.database.to_vec(),
            collation: change.collation.unwrap_or(0),
            capabilities,
        };
        if let Some(plugin) = change.auth_plugin.and_then(Plugin::of) {
            self.plugin = plugin;
        }
        self.sequence = 1;
        self.switch(out);
        Ok(())
    }

    /// The sequence id that the next packet to the client has.
    pub fn next_sequence(&self) -> u8 {
        self.sequence
    }

    /// Takes a packet of the client. What is to be sent goes to `out`.
    pub fn packet(
        &mut self,
        sequence: u8,
        payload: &[u8],
        is_tls: bool,
        find: &dyn Fn(&[u8]) -> Option<LoginUser>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        if sequence != self.sequence {
            return refused(error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order");
        }
        self.sequence = sequence.wrapping_add(1);
        match self.stage {
            Stage::Greeted => self.response(payload, is_tls, find, out),
            Stage::Switched => {
                let Some(user) = find(&self.claim.user) else { return self.denied(!payload.is_empty()) };
                self.prove(payload, &user, is_tls, out)
            }
            Stage::FullAuth => {
                let Some(user) = find(&self.claim.user) else { return self.denied(true) };
                self.full_auth(payload, &user, is_tls)
            }
        }
    }

    fn response(
        &mut self,
        payload: &[u8],
        is_tls: bool,
        find: &dyn Fn(&[u8]) -> Option<LoginUser>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        let response = match ClientReply::parse(payload) {
            Ok(ClientReply::Ssl(_)) if !is_tls && self.offered.contains(Capabilities::SSL) => {
                return LoginStep::StartTls;
            }
            Ok(ClientReply::Response(response)) => response,
            _ => return refused(error::HANDSHAKE_ERROR, "Bad handshake"),
        };
        if !response.capabilities.contains(Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION) {
            return refused(error::HANDSHAKE_ERROR, "Bad handshake: protocol 4.1 is needed");
        }
        self.claim = Claim {
            user: response.user.to_vec(),
            schema: response.database.unwrap_or_default().to_vec(),
            collation: response.collation.into(),
            capabilities: response.capabilities & self.offered,
        };
        // Nobody is to find out which users there are: one that is not is asked for a proof like others.
        let user = find(response.user);
        let serves = |plugin: &Plugin| user.as_ref().is_none_or(|user| plugin.serves(user, is_tls));
        let spoken = match response.auth_plugin {
            Some(name) => Plugin::of(name),
            None => Some(Plugin::Native),
        };
        // A client that speaks another plugin than the greeting's may have taken the greeting's scramble for none
        // of its business: then it sends nothing, and waits to be asked.
        let is_proof =
            spoken == Some(self.plugin) || response.auth_plugin.is_none() || !response.auth_data.is_empty();
        // Where no plugin can do it, the second one can say why.
        self.plugin = spoken
            .into_iter()
            .chain([self.plugin, self.plugin.other()])
            .find(serves)
            .unwrap_or(Plugin::CachingSha2);
        if spoken == Some(self.plugin) && is_proof {
            return match user {
                Some(user) => self.prove(response.auth_data, &user, is_tls, out),
                None => self.denied(!response.auth_data.is_empty()),
            };
        }
        if !response.capabilities.contains(Capabilities::PLUGIN_AUTH) {
            return refused(
                error::NOT_SUPPORTED_AUTH_MODE,
                "Client does not support authentication protocol requested by server",
            );
        }
        self.switch(out);
        LoginStep::Wait
    }

    fn switch(&mut self, out: &mut Vec<u8>) {
        let request = AuthSwitchRequest { plugin: self.plugin.name(), data: &self.scramble };
        frame::packet(out, &mut self.sequence, |out| request.write(out));
        self.stage = Stage::Switched;
    }

    /// Checks the response to the scramble.
    fn prove(&mut self, sent: &[u8], user: &LoginUser, is_tls: bool, out: &mut Vec<u8>) -> LoginStep {
        if user.requires_tls && !is_tls {
            return self.denied(!sent.is_empty());
        }
        match self.plugin {
            Plugin::Native => match user.stored.verify(Method::Native, sent, &self.scramble) {
                Some(credential) => self.verified(credential),
                None => self.denied(!sent.is_empty()),
            },
            Plugin::CachingSha2 => {
                if let Some(credential) = self.sha2_fast(sent, user) {
                    if !sent.is_empty() {
                        let more = AuthMoreData { data: &[FAST_AUTH_OK] };
                        frame::packet(out, &mut self.sequence, |out| more.write(out));
                    }
                    return self.verified(credential);
                }
                if user.stored.allows(Method::Sha2Fast) || sent.is_empty() {
                    return self.denied(!sent.is_empty());
                }
                if !is_tls {
                    return refused(
                        error::ACCESS_DENIED,
                        "Weir has only a hash of this password: the first login must come over TLS",
                    );
                }
                let more = AuthMoreData { data: &[PERFORM_FULL_AUTHENTICATION] };
                frame::packet(out, &mut self.sequence, |out| more.write(out));
                self.stage = Stage::FullAuth;
                LoginStep::Wait
            }
        }
    }

    /// The fast path: against the stored password, or against what an earlier login has shown of it.
    fn sha2_fast(&self, sent: &[u8], user: &LoginUser) -> Option<Credential> {
        if let Some(credential) = user.stored.verify(Method::Sha2Fast, sent, &self.scramble) {
            return Some(credential);
        }
        let known = user.known.as_ref()?;
        let password = known.password()?;
        if password.is_empty() {
            return None;
        }
        StoredPassword::ClearText(password.into()).verify(Method::Sha2Fast, sent, &self.scramble)
    }

    fn full_auth(&mut self, payload: &[u8], user: &LoginUser, is_tls: bool) -> LoginStep {
        if !is_tls {
            return self.denied(true);
        }
        match user.stored.verify(Method::ClearText, payload, &self.scramble) {
            Some(credential) => self.verified(credential),
            None => self.denied(true),
        }
    }

    fn verified(&mut self, credential: Credential) -> LoginStep {
        let claim = std::mem::take(&mut self.claim);
        LoginStep::Verified(Box::new(Verified {
            user: claim.user,
            schema: claim.schema,
            collation: claim.collation,
            capabilities: claim.capabilities,
            credential: Some(credential),
            sequence: self.sequence,
        }))
    }

    /// MySQL's words; the same for a wrong user and a wrong password.
    fn denied(&self, used_password: bool) -> LoginStep {
        let user = String::from_utf8_lossy(&self.claim.user);
        let used = if used_password { "YES" } else { "NO" };
        let host = self.host.map_or_else(|| "localhost".to_owned(), |host| host.to_string());
        refused(
            error::ACCESS_DENIED,
            &format!("Access denied for user '{user}'@'{host}' (using password: {used})"),
        )
    }
}

fn refused(error: ServerError, message: &str) -> LoginStep {
    LoginStep::Refused(error, message.into())
}

/// Weir's side of a login at a server, or of a COM_CHANGE_USER there.
#[derive(Debug)]
pub struct BackendLogin {
    user: Vec<u8>,
    credential: Credential,
    capabilities: Capabilities,
    plugin: Vec<u8>,
    scramble: Scramble,
    is_greeted: bool,
}

/// What comes of a server's packet.
#[derive(Debug, PartialEq, Eq)]
pub enum BackendStep {
    /// The server has to say more.
    Wait,
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

impl BackendLogin {
    /// A login on a new connection; `extra` are the capabilities of the session's identity.
    pub fn new(user: &[u8], credential: Credential, extra: Capabilities) -> Self {
        Self {
            user: user.to_vec(),
            credential,
            capabilities: BACKEND_CAPABILITIES | extra,
            plugin: Vec::new(),
            scramble: [0; 20],
            is_greeted: false,
        }
    }

    /// A COM_CHANGE_USER on an open connection: appends the command to `out`.
    pub fn change_user(user: &[u8], credential: Credential, extra: Capabilities, out: &mut Vec<u8>) -> Self {
        let login = Self { is_greeted: true, ..Self::new(user, credential, extra) };
        // Without a scramble there is no proof yet: the server asks for it with an auth switch.
        let change = ChangeUser {
            user,
            auth_data: b"",
            database: b"",
            collation: Some(LOGIN_COLLATION.into()),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: Default::default(),
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
        if !self.is_greeted {
            return self.greeting(sequence, payload, known, out);
        }
        match AuthPacket::parse(payload, self.capabilities) {
            Ok(AuthPacket::Ok(_)) => BackendStep::Ready { thread_id: known.thread_id },
            Ok(AuthPacket::Err(err)) => refusal(&err),
            Ok(AuthPacket::Switch(switch)) => self.switch(sequence, &switch, out),
            Ok(AuthPacket::More(more)) => match more.data {
                [FAST_AUTH_OK] => BackendStep::Wait,
                [PERFORM_FULL_AUTHENTICATION] => unanswerable(
                    "the server asks for caching_sha2_password's full authentication, which needs TLS \
                     (use_ssl is not built yet): log in once with another client, or use mysql_native_password",
                ),
                _ => broken("unexpected authentication data"),
            },
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
        let missing = BACKEND_CAPABILITIES - greeting.capabilities - Capabilities::LONG_PASSWORD; // MariaDB leaves it out to say that it is MariaDB
        if !missing.is_empty() {
            return broken(&format!("the server can't do {missing:?}, which Weir needs"));
        }
        self.is_greeted = true;
        self.scramble = greeting.scramble;
        self.plugin = greeting.auth_plugin.to_vec();
        known.thread_id = greeting.thread_id;
        known.is_mariadb = greeting.version.windows(7).any(|word| word == b"MariaDB");
        let proof = match self.credential.response(&self.plugin, &self.scramble) {
            Some(proof) => proof,
            None => {
                self.plugin = MYSQL_NATIVE_PASSWORD.to_vec();
                self.credential.response(&self.plugin, &self.scramble).unwrap_or_default()
            }
        };
        let response = HandshakeResponse {
            capabilities: self.capabilities,
            max_packet_size: 1 << 30,
            collation: LOGIN_COLLATION,
            user: &self.user,
            auth_data: &proof,
            database: None,
            auth_plugin: Some(&self.plugin),
            attributes: Default::default(),
            zstd_level: None,
        };
        frame::packet(out, &mut sequence, |out| response.write(out));
        BackendStep::Wait
    }

    fn switch(&mut self, mut sequence: u8, switch: &AuthSwitchRequest<'_>, out: &mut Vec<u8>) -> BackendStep {
        let data = switch.data.strip_suffix(&[0]).unwrap_or(switch.data);
        let Ok(scramble) = Scramble::try_from(data) else {
            return broken("auth switch without a 20-byte scramble");
        };
        self.scramble = scramble;
        self.plugin = switch.plugin.to_vec();
        let Some(proof) = self.credential.response(&self.plugin, &self.scramble) else {
            let plugin = String::from_utf8_lossy(switch.plugin);
            return unanswerable(&format!("the stored password can't answer {plugin}"));
        };
        frame::packet(out, &mut sequence, |out| out.extend_from_slice(&proof));
        BackendStep::Wait
    }
}

/// What a greeting tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greeted {
    /// The server's id of the connection.
    pub thread_id: u32,
    /// The server is a MariaDB.
    pub is_mariadb: bool,
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
