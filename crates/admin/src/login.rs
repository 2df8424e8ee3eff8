//! Decides who may come in, and how: the accounts of `admin-admin_credentials` and `admin-stats_credentials`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use weir_protocol::auth::StoredPassword;
use weir_protocol::capability::Capabilities;
use weir_protocol::error::ServerError;
use weir_protocol::frame;
use weir_protocol::handshake::Scramble;
use weir_protocol::ok::ErrPacket;
use weir_session::accounts::LoginTerms;
use weir_session::login::{Channel, ClientLogin, LoginStep, LoginUser, Plugin, Verified};

use crate::wire::{Wire, WireError};

/// A login must be over after this time.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// No packet of a login is larger, attributes of the connection included.
const LOGIN_BYTES_MAX: usize = 64 << 10;

/// The rights of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rights {
    /// Everything.
    Admin,
    /// Look at statistics.
    Stats,
}

/// The accounts, with their passwords.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts(Vec<Account>);

#[derive(Clone, Debug)]
struct Account {
    user: String,
    password: Arc<StoredPassword>,
    rights: Rights,
    /// Not over TCP in clear.
    is_encrypted_only: bool,
}

/// MySQL's ER_SECURE_TRANSPORT_REQUIRED.
const SECURE_TRANSPORT_REQUIRED: ServerError = ServerError { code: 3159, sqlstate: *b"HY000" };
const IN_CLEAR: &str = "Connections using insecure transport are prohibited for admin-cluster_username, as passwords are \
                        read with it: use TLS, or set admin-cluster_ssl_mode = 'DISABLED'";

impl Accounts {
    /// From pairs of user and password; those of an admin go first. One may not come in clear.
    pub(crate) fn new(
        admins: &[(String, String)],
        stats: &[(String, String)],
        encrypted_only: Option<&str>,
    ) -> Self {
        let account = |rights| {
            move |(user, password): &(String, String)| Account {
                user: user.clone(),
                password: Arc::new(StoredPassword::parse(password.as_bytes())),
                rights,
                is_encrypted_only: encrypted_only == Some(user.as_str()),
            }
        };
        let admins = admins.iter().map(account(Rights::Admin));
        Self(admins.chain(stats.iter().map(account(Rights::Stats))).collect())
    }

    fn find(&self, user: &[u8]) -> Option<&Account> {
        self.0.iter().find(|account| account.user.as_bytes() == user)
    }
}

/// Somebody who has come in.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub user: String,
    pub schema: String,
    pub rights: Rights,
    pub capabilities: Capabilities,
    /// Of the next packet.
    pub sequence: u8,
}

/// What Weir's admin interface can.
fn offered(has_tls: bool) -> Capabilities {
    let mut offered = Capabilities::LONG_PASSWORD
        | Capabilities::FOUND_ROWS
        | Capabilities::LONG_FLAG
        | Capabilities::CONNECT_WITH_DB
        | Capabilities::IGNORE_SPACE
        | Capabilities::INTERACTIVE
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::RESERVED
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_RESULTS
        | Capabilities::PS_MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
        | Capabilities::CONNECT_ATTRS
        | Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA
        | Capabilities::DEPRECATE_EOF;
    offered.set(Capabilities::SSL, has_tls);
    offered
}

/// The login of a new connection, or a later COM_CHANGE_USER. None: it failed, and the client has been told.
pub(crate) struct LoginExchange<'a> {
    pub wire: &'a mut Wire,
    pub accounts: &'a Accounts,
    pub tls: Option<&'a Arc<ServerConfig>>,
    pub host: Option<std::net::IpAddr>,
    /// Hears who was turned away, and why.
    pub turned_away: &'a dyn Fn(&[u8], Channel, &str),
}

impl LoginExchange<'_> {
    /// Greets a client and lets it in.
    pub(crate) fn open(mut self, thread_id: u32, version: &[u8]) -> Result<Option<LoggedIn>, WireError> {
        let mut login = self.login()?;
        let mut out = Vec::new();
        login.greet(thread_id, version, &mut out);
        self.converse(login, out)
    }

    /// Another user on the same connection.
    pub(crate) fn change(
        mut self,
        payload: &[u8],
        capabilities: Capabilities,
    ) -> Result<Option<LoggedIn>, WireError> {
        let mut login = self.login()?;
        let mut out = Vec::new();
        if login.change_user(payload, capabilities, &mut out).is_err() {
            return Ok(None);
        }
        self.converse(login, out)
    }

    fn login(&mut self) -> Result<ClientLogin, WireError> {
        let offered = offered(self.tls.is_some());
        Ok(ClientLogin::new(offered, Plugin::Native, scramble()?, self.host))
    }

    fn converse(&mut self, mut login: ClientLogin, mut out: Vec<u8>) -> Result<Option<LoggedIn>, WireError> {
        let until = Instant::now() + LOGIN_TIMEOUT;
        let find = |user: &[u8]| {
            self.accounts.find(user).map(|account| LoginUser {
                terms: LoginTerms::with_password(StoredPassword::clone(&account.password)),
                certificate: None,
                known: None,
                rsa_key: None,
            })
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.wire.write(&std::mem::take(&mut out), left)?;
            let packet = match self.wire.read(left, left, LOGIN_BYTES_MAX) {
                Err(WireError::TooLarge { sequence }) => {
                    let error = weir_protocol::error::NET_PACKET_TOO_LARGE;
                    return self.refuse(sequence.wrapping_add(1), error, "Got a packet bigger than allowed");
                }
                packet => packet?,
            };
            let channel = self.wire.channel();
            let mut step = login.packet(packet.sequence, &packet.payload, channel, &find, &mut out);
            if let LoginStep::Check(check) = &step {
                step = login.checked(check.run());
            }
            match step {
                LoginStep::Wait => {}
                LoginStep::StartTls => match self.tls {
                    Some(config) => self.wire.start_tls(config.clone())?,
                    None => return Ok(None),
                },
                LoginStep::Verified(verified) if self.is_too_open(&verified, channel) => {
                    (self.turned_away)(&verified.user, channel, IN_CLEAR);
                    return self.refuse(verified.sequence, SECURE_TRANSPORT_REQUIRED, IN_CLEAR);
                }
                LoginStep::Verified(verified) => {
                    self.wire.write(&out, LOGIN_TIMEOUT)?;
                    return Ok(self.logged_in(*verified));
                }
                LoginStep::Refused(error, message, reason) => {
                    let told = format!("{message}: {}", reason.words());
                    (self.turned_away)(login.user(), channel, &told);
                    self.wire.write(&out, LOGIN_TIMEOUT)?;
                    return self.refuse(login.next_sequence(), error, &message);
                }
                // A check is run above and does not ask for another one.
                LoginStep::Check(_) => return Ok(None),
            }
        }
    }

    /// Whether others could read what this account is told.
    fn is_too_open(&self, verified: &Verified, channel: Channel) -> bool {
        let account = self.accounts.find(&verified.user);
        channel == Channel::Plain && account.is_some_and(|account| account.is_encrypted_only)
    }

    fn logged_in(&self, verified: Verified) -> Option<LoggedIn> {
        let rights = self.accounts.find(&verified.user)?.rights;
        Some(LoggedIn {
            user: String::from_utf8_lossy(&verified.user).into_owned(),
            schema: String::from_utf8_lossy(&verified.schema).into_owned(),
            rights,
            capabilities: verified.capabilities,
            sequence: verified.sequence,
        })
    }

    fn refuse(
        &mut self,
        mut sequence: u8,
        error: ServerError,
        message: &str,
    ) -> Result<Option<LoggedIn>, WireError> {
        let mut out = Vec::new();
        frame::packet(&mut out, &mut sequence, |out| ErrPacket::new(error, message.as_bytes()).write(out));
        self.wire.write(&out, LOGIN_TIMEOUT)?;
        Ok(None)
    }
}

/// Random, without NUL or anything else that a client could take for an end.
fn scramble() -> std::io::Result<Scramble> {
    let mut scramble: Scramble = [0; 20];
    getrandom::fill(&mut scramble).map_err(|error| std::io::Error::other(error.to_string()))?;
    for byte in &mut scramble {
        *byte = b'!' + *byte % 94;
    }
    Ok(scramble)
}
