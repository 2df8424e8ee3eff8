//! Takes the server's side of a login: a client proves that it knows a user's password.

use std::net::IpAddr;
use std::sync::Arc;

use weir_protocol::auth::rsa::RsaKey;
use weir_protocol::auth::sha2::{FAST_AUTH_OK, PERFORM_FULL_AUTHENTICATION, REQUEST_PUBLIC_KEY};
use weir_protocol::auth::{Credential, Method, StoredPassword};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::ChangeUser;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame;
use weir_protocol::handshake::{
    AuthMoreData, AuthSwitchRequest, CACHING_SHA2_PASSWORD, ClientReply, ConnectAttributes, Greeting,
    MYSQL_NATIVE_PASSWORD, Scramble,
};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Malformed;

use super::Channel;
use super::check::{Check, PasswordResult, Proof};
use super::refusal::Refusal;
use crate::accounts::{ClientCertificate, LoginTerms, TlsRequirement};

/// Longest name of a client's program that is kept, in characters.
const PROGRAM_CHARS_MAX: usize = 64;

/// What a login needs to know of a user.
#[derive(Clone, Debug)]
pub struct LoginUser {
    /// Under which it may log in.
    pub terms: LoginTerms,
    /// What the client has shown.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// What earlier logins have shown of the password.
    pub known: Option<Credential>,
    /// With which clients may seal a password.
    pub rsa_key: Option<Arc<RsaKey>>,
}

/// The passwords of a user at the time of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passwords {
    /// [`LoginTerms::stored`]
    pub stored: Arc<StoredPassword>,
    /// [`LoginTerms::additional`]
    pub additional: Option<Arc<StoredPassword>>,
}

impl LoginUser {
    fn passwords(&self) -> Passwords {
        Passwords { stored: self.terms.stored.clone(), additional: self.terms.additional.clone() }
    }

    /// Checks what a client sent against both passwords. What logs in at servers is the first if it is known, whichever was
    /// shown.
    fn verify(&self, method: Method, sent: &[u8], scramble: &Scramble) -> Option<Credential> {
        let stored = &self.terms.stored;
        if let Some(credential) = stored.verify(method, sent, scramble) {
            return Some(credential);
        }
        let shown = self.terms.additional.as_ref()?.verify(method, sent, scramble)?;
        match &**stored {
            StoredPassword::ClearText(password) => Some(Credential::clear_text(password)),
            // A server that has both hashes takes either password.
            _ => Some(shown),
        }
    }
}

/// What comes of a packet.
#[derive(Debug)]
pub enum LoginStep {
    /// The client has to say more.
    Wait,
    /// The client goes on in TLS.
    StartTls,
    /// The password is to be checked elsewhere, for that takes time; [`ClientLogin::checked`] goes on.
    Check(Box<Check>),
    /// The client is who it says. The OK packet is up to the caller.
    Verified(Box<Verified>),
    /// The login ends with this error, which the client is told; why, it is not always.
    Refused(ServerError, String, Refusal),
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
    /// The client's own name, from its connection attributes: at most 64 characters, none of them a control
    /// character.
    pub program: Option<Box<str>>,
    /// What logs in at servers.
    pub credential: Credential,
    /// The passwords of which one was shown. Those of the configuration may be others by now.
    pub shown: Passwords,
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
///    │                                            └► FullAuth ─► Checking ─► Verified
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
    /// What a check goes by.
    checked_against: Option<Passwords>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeted,
    Switched,
    /// The password itself is to come, sealed with the RSA key where others can listen.
    FullAuth {
        has_asked_for_key: bool,
    },
    /// Somebody checks the password.
    Checking,
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
    /// whether it may be sent in clear. RSA is for those who have no other way: not every client can do it.
    fn serves(self, user: &LoginUser, channel: Channel) -> bool {
        match self {
            Self::Native => user.terms.stored.allows(Method::Native),
            Self::CachingSha2 => {
                let is_known = user.known.as_ref().is_some_and(|known| known.password().is_some());
                let has_other_way = user.terms.stored.allows(Method::Native);
                user.terms.stored.allows(Method::Sha2Fast)
                    || is_known
                    || channel.is_secure()
                    || (user.rsa_key.is_some() && !has_other_way)
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
    program: Option<Box<str>>,
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
            checked_against: None,
        }
    }

    /// A proxy has told where the client is.
    pub fn come_from(&mut self, host: IpAddr) {
        self.host = Some(host);
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

    /// Begins a COM_CHANGE_USER: always by a switch to a plugin with the scramble, as MariaDB does.
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
            program: program_name(change.attributes),
        };
        if let Some(plugin) = change.auth_plugin.and_then(Plugin::of) {
            self.plugin = plugin;
        }
        self.sequence = 1;
        self.switch(out);
        Ok(())
    }

    /// Who the client says it is; empty before it has.
    pub fn user(&self) -> &[u8] {
        &self.claim.user
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
        channel: Channel,
        find: &dyn Fn(&[u8]) -> Option<LoginUser>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        if sequence != self.sequence {
            return out_of_order();
        }
        self.sequence = sequence.wrapping_add(1);
        match self.stage {
            Stage::Greeted => self.response(payload, channel, find, out),
            Stage::Switched => {
                let Some(user) = find(&self.claim.user) else {
                    return self.denied(!payload.is_empty(), Refusal::NoSuchUser);
                };
                self.prove(payload, &user, channel, out)
            }
            Stage::FullAuth { has_asked_for_key } => {
                let Some(user) = find(&self.claim.user) else {
                    return self.denied(true, Refusal::NoSuchUser);
                };
                self.full_auth(payload, &user, channel, has_asked_for_key, out)
            }
            Stage::Checking => out_of_order(),
        }
    }

    fn response(
        &mut self,
        payload: &[u8],
        channel: Channel,
        find: &dyn Fn(&[u8]) -> Option<LoginUser>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        let response = match ClientReply::parse(payload) {
            Ok(ClientReply::Ssl(_))
                if channel != Channel::Tls && self.offered.contains(Capabilities::SSL) =>
            {
                return LoginStep::StartTls;
            }
            Ok(ClientReply::Response(response)) => response,
            _ => return refused(error::HANDSHAKE_ERROR, "Bad handshake", Refusal::BadHandshake),
        };
        if !response.capabilities.contains(Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION) {
            let message = "Bad handshake: protocol 4.1 is needed";
            return refused(error::HANDSHAKE_ERROR, message, Refusal::BadHandshake);
        }
        let compressions = Capabilities::COMPRESS | Capabilities::ZSTD_COMPRESSION_ALGORITHM;
        if (response.capabilities - self.offered).intersects(compressions) {
            // It would go on in compressed packets, and neither side would understand a word.
            return refused(
                error::HANDSHAKE_ERROR,
                "Bad handshake: the client compresses the connection, which is not offered here",
                Refusal::Compressed,
            );
        }
        self.claim = Claim {
            user: response.user.to_vec(),
            schema: response.database.unwrap_or_default().to_vec(),
            collation: response.collation.into(),
            capabilities: response.capabilities & self.offered,
            program: program_name(response.attributes),
        };
        // Nobody is to find out which users there are: one that is not is asked for a proof like others.
        let user = find(response.user);
        let serves = |plugin: &Plugin| user.as_ref().is_none_or(|user| plugin.serves(user, channel));
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
                Some(user) => self.prove(response.auth_data, &user, channel, out),
                None => self.denied(!response.auth_data.is_empty(), Refusal::NoSuchUser),
            };
        }
        if !response.capabilities.contains(Capabilities::PLUGIN_AUTH) {
            return refused(
                error::NOT_SUPPORTED_AUTH_MODE,
                "Client does not support authentication protocol requested by server",
                Refusal::PluginNotSpoken,
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
    fn prove(&mut self, sent: &[u8], user: &LoginUser, channel: Channel, out: &mut Vec<u8>) -> LoginStep {
        // How clients of caching_sha2_password say that they have no password; then they wait for the end.
        let sent = if self.plugin == Plugin::CachingSha2 && sent == [0] { &[] } else { sent };
        let has_password = !sent.is_empty();
        match (&user.terms.tls, &user.certificate) {
            (TlsRequirement::Tls, _) if channel != Channel::Tls => {
                return self.denied(has_password, Refusal::TlsRequired);
            }
            (TlsRequirement::Certificate(_), None) => {
                return self.denied(has_password, Refusal::CertificateRequired);
            }
            (TlsRequirement::Certificate(names), Some(shown)) if !names.are_in(shown) => {
                return self.denied(has_password, Refusal::OtherCertificate);
            }
            (TlsRequirement::Cipher, _) => return self.denied(has_password, Refusal::CipherRequired),
            _ => {}
        }
        if matches!(*user.terms.stored, StoredPassword::Unknown) {
            return self.denied(has_password, Refusal::AuthenticationUnknown);
        }
        match self.plugin {
            Plugin::Native => match user.verify(Method::Native, sent, &self.scramble) {
                Some(credential) => self.verified(credential, user.passwords()),
                None => self.wrong_password(!sent.is_empty()),
            },
            Plugin::CachingSha2 => {
                if let Some(credential) = self.sha2_fast(sent, user) {
                    if !sent.is_empty() {
                        self.more(&[FAST_AUTH_OK], out);
                    }
                    return self.verified(credential, user.passwords());
                }
                if user.terms.stored.allows(Method::Sha2Fast) || sent.is_empty() {
                    return self.wrong_password(!sent.is_empty());
                }
                if !channel.is_secure() && user.rsa_key.is_none() {
                    return refused(
                        error::ACCESS_DENIED,
                        "Weir has only a hash of this password and no RSA key: the first login must come over TLS",
                        Refusal::TlsForFirstLogin,
                    );
                }
                self.more(&[PERFORM_FULL_AUTHENTICATION], out);
                self.stage = Stage::FullAuth { has_asked_for_key: false };
                LoginStep::Wait
            }
        }
    }

    fn more(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let more = AuthMoreData { data };
        frame::packet(out, &mut self.sequence, |out| more.write(out));
    }

    /// The fast path: against the stored password, or against what an earlier login has shown of it.
    fn sha2_fast(&self, sent: &[u8], user: &LoginUser) -> Option<Credential> {
        if let Some(credential) = user.verify(Method::Sha2Fast, sent, &self.scramble) {
            return Some(credential);
        }
        let known = user.known.as_ref()?;
        let password = known.password()?;
        if password.is_empty() {
            return None;
        }
        StoredPassword::ClearText(password.into()).verify(Method::Sha2Fast, sent, &self.scramble)
    }

    /// The password itself, or the question for the key to seal it with.
    fn full_auth(
        &mut self,
        payload: &[u8],
        user: &LoginUser,
        channel: Channel,
        has_asked_for_key: bool,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        let proof = if channel.is_secure() {
            Proof::Clear(payload.into())
        } else {
            let Some(key) = &user.rsa_key else { return self.denied(true, Refusal::TlsForFirstLogin) };
            if payload == [REQUEST_PUBLIC_KEY] && !has_asked_for_key {
                self.more(key.public_pem().as_bytes(), out);
                self.stage = Stage::FullAuth { has_asked_for_key: true };
                return LoginStep::Wait;
            }
            if payload.len() != key.sealed_len() {
                return self.denied(true, Refusal::BadHandshake);
            }
            Proof::Sealed(payload.into(), key.clone())
        };
        let check = Check::new(proof, user.passwords(), user.known.clone(), self.scramble);
        self.checked_against = Some(user.passwords());
        if check.is_cheap() {
            return self.checked(check.run());
        }
        self.stage = Stage::Checking;
        LoginStep::Check(Box::new(check))
    }

    /// Whether an answer to [`LoginStep::Check`] is awaited: no packet must be given in before.
    pub fn is_checking(&self) -> bool {
        self.stage == Stage::Checking
    }

    /// Goes on after [`LoginStep::Check`].
    pub fn checked(&mut self, result: PasswordResult) -> LoginStep {
        match (result, self.checked_against.take()) {
            (PasswordResult::Right(credential), Some(shown)) => self.verified(credential, shown),
            (PasswordResult::Wrong | PasswordResult::Right(_), _) => self.wrong_password(true),
            (PasswordResult::Busy, _) => {
                let message = "Too many connections: too many logins at a time";
                refused(error::CON_COUNT_ERROR, message, Refusal::TooManyChecks)
            }
        }
    }

    fn verified(&mut self, credential: Credential, shown: Passwords) -> LoginStep {
        let claim = std::mem::take(&mut self.claim);
        // There are reasons to refuse a login whose password was right.
        self.claim.user.clone_from(&claim.user);
        LoginStep::Verified(Box::new(Verified {
            user: claim.user,
            schema: claim.schema,
            collation: claim.collation,
            capabilities: claim.capabilities,
            program: claim.program,
            credential,
            shown,
            sequence: self.sequence,
        }))
    }

    fn wrong_password(&self, used_password: bool) -> LoginStep {
        let reason = if used_password { Refusal::WrongPassword } else { Refusal::NoPassword };
        self.denied(used_password, reason)
    }

    /// MySQL's words; the same for a wrong user and a wrong password.
    fn denied(&self, used_password: bool, reason: Refusal) -> LoginStep {
        let user = String::from_utf8_lossy(&self.claim.user);
        let used = if used_password { "YES" } else { "NO" };
        let host = self.host.map_or_else(|| "localhost".to_owned(), |host| host.to_string());
        let message = format!("Access denied for user '{user}'@'{host}' (using password: {used})");
        refused(error::ACCESS_DENIED, &message, reason)
    }
}

/// What a client calls itself, fit for a log.
fn program_name(attributes: ConnectAttributes<'_>) -> Option<Box<str>> {
    let name = attributes.value(b"program_name").filter(|name| !name.is_empty())?;
    let head = name.get(..4 * PROGRAM_CHARS_MAX).unwrap_or(name);
    let text = String::from_utf8_lossy(head);
    let is_fit = |c: &char| !c.is_control();
    Some(text.chars().filter(is_fit).take(PROGRAM_CHARS_MAX).collect::<String>().into())
}

fn out_of_order() -> LoginStep {
    refused(error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order", Refusal::OutOfOrder)
}

fn refused(error: ServerError, message: &str, reason: Refusal) -> LoginStep {
    LoginStep::Refused(error, message.into(), reason)
}
