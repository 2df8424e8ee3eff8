//! Logs clients in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_config::{AuthPlugin, MysqlVariables};
use weir_protocol::auth::StoredPassword;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::ok::ErrPacket;
use weir_session::accounts::{AccountState, ClientCertificate, LoginTerms};
use weir_session::login::{LoginStep, LoginUser, Plugin, Refusal, Verified};
use weir_session::state::State;

use crate::context::counting::USER_LIMIT_REACHED;
use crate::outbox::Order;
use crate::session::phase::Phase;
use crate::snapshot::Account;
use crate::statement::waiting::HOSTGROUP_UNREACHABLE;
use crate::work::Work;

/// A login packet larger than this is refused.
pub(crate) const LOGIN_PACKET_BYTES_MAX: usize = 64 << 10;

/// The plugin of the greeting.
pub(crate) fn default_plugin(variables: &MysqlVariables) -> Plugin {
    match variables.default_authentication_plugin {
        AuthPlugin::MysqlNativePassword => Plugin::Native,
        AuthPlugin::CachingSha2Password => Plugin::CachingSha2,
    }
}

impl Work<'_> {
    /// Handles one packet of a login, if it is there whole.
    pub(crate) fn login_packet(&mut self) -> bool {
        let session = &mut *self.session;
        if matches!(&session.phase, Phase::Login(login) if login.is_checking()) {
            return false;
        }
        if session.client.awaits_proxy_header && !self.passes_proxy_header() {
            return false;
        }
        let session = &mut *self.session;
        let Some(header) = Header::parse(&session.input.inbox) else { return false };
        if header.len > LOGIN_PACKET_BYTES_MAX {
            self.refuse_first_packet();
            return false;
        }
        let end = HEADER_LEN + header.len;
        if session.input.inbox.len() < end {
            return false;
        }
        let channel = session.channel();
        let Phase::Login(login) = &mut session.phase else { return false };
        let snapshot = &self.ctx.snapshot;
        let (host, certificate) = (session.client.peer.host(), session.client.certificate.clone());
        let find = |name: &[u8]| match snapshot.users.find(name, host) {
            Ok(account) => Some(account.login_user(certificate.clone(), snapshot.rsa_key.clone())),
            Err(Refusal::AccountsUnknown) => None,
            Err(_) => snapshot.decoy.clone().map(|decoy| LoginUser {
                terms: LoginTerms { stored: decoy, ..LoginTerms::with_password(StoredPassword::Unknown) },
                certificate: None,
                known: None,
                rsa_key: snapshot.rsa_key.clone(),
            }),
        };
        let mut reply = Vec::new();
        let step =
            login.packet(header.seq, &session.input.inbox[HEADER_LEN..end], channel, &find, &mut reply);
        session.input.inbox.drain(..end);
        let socket = session.socket;
        if !reply.is_empty() {
            self.ctx.out.send(socket, &reply);
        }
        self.login_step(step)
    }

    /// Whether it may be somebody of whom nothing is known yet.
    fn has_unknown_accounts(&self) -> bool {
        let found = self.ctx.snapshot.users.find(self.session.login_user(), self.session.client.peer.host());
        found.is_err_and(|why| why == Refusal::AccountsUnknown)
    }

    /// The client has shown a certificate, which an authority has signed.
    pub(crate) fn client_certified(&mut self, der: &[u8]) {
        self.session.client.certificate = ClientCertificate::parse(der).map(Arc::new);
    }

    /// What comes of a packet of a login, or of the check of its password; true if it goes on at once.
    pub(crate) fn login_step(&mut self, step: LoginStep) -> bool {
        let socket = self.session.socket;
        match step {
            LoginStep::Wait => true,
            LoginStep::StartTls => {
                let session = &mut *self.session;
                session.client.is_tls = true;
                let leftover = std::mem::take(&mut session.input.inbox);
                self.ctx.out.order(Order::StartTls(socket, leftover));
                false
            }
            LoginStep::Check(check) => {
                self.ctx.out.order(Order::Check(socket, check));
                false
            }
            LoginStep::Refused(error, message, reason) => {
                if reason == Refusal::NoSuchUser && self.has_unknown_accounts() {
                    let message = "The accounts of the servers are not known yet; Weir's log says why";
                    self.refuse_login(HOSTGROUP_UNREACHABLE, message, Refusal::AccountsUnknown);
                } else {
                    self.refuse_login(error, &message, reason);
                }
                false
            }
            LoginStep::Verified(verified) => self.logged_in(*verified),
        }
    }

    /// The client is who it says: the session begins. Also after COM_CHANGE_USER.
    fn logged_in(&mut self, verified: Verified) -> bool {
        let host = self.session.client.peer.host();
        let account = self.ctx.snapshot.users.find(&verified.user, host).ok().cloned();
        // A check takes time: the configuration may be another one by now, and the proof worth nothing.
        let Some(account) = account.filter(|account| account.learn(&verified.shown, verified.credential))
        else {
            let user = String::from_utf8_lossy(&verified.user);
            let message =
                format!("Access denied for user '{user}': its password was changed during the login");
            self.refuse_login(error::ACCESS_DENIED, &message, Refusal::PasswordChanged);
            return false;
        };
        if let Some((error, message, reason)) = self.barred(&account) {
            self.refuse_login(error, &message, reason);
            return false;
        }
        let hostgroup = self.session.listener.hostgroup.unwrap_or(account.user.default_hostgroup);
        let collation = self.pools.collation_for_login(self.ctx, verified.collation, hostgroup);
        if !collation.is_for_clients() {
            let message = format!(
                "Variable 'character_set_client' can't be set to the value of '{}'",
                collation.charset
            );
            self.refuse_login(error::WRONG_VALUE_FOR_VAR, &message, Refusal::CharacterSet);
            return false;
        }
        let clients = account.clients.fetch_add(1, Ordering::Relaxed);
        let clients_max = account.clients_max();
        if clients >= clients_max {
            account.clients.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "User '{}' has exceeded the 'max_user_connections' resource (current value: {})",
                account.user.username, clients_max
            );
            self.refuse_login(USER_LIMIT_REACHED, &message, Refusal::MaxUserConnections);
            return false;
        }
        let session = &mut *self.session;
        if let Some(before) = session.account.take() {
            before.clients.fetch_sub(1, Ordering::Relaxed);
        }
        let is_first = session.identity == usize::MAX;
        if is_first {
            self.ctx.timers.login_ended(session.socket);
            session.capabilities = verified.capabilities;
        }
        let schema = match (&*verified.schema, &account.user.default_schema) {
            ([], Some(schema)) => schema.as_bytes().to_vec(),
            ([], None) => self.ctx.snapshot.variables.default_schema.as_bytes().to_vec(),
            (schema, _) => schema.to_vec(),
        };
        let state = State::at_login(&schema, collation);
        let state = self.ctx.interner.intern(self.pools.with_user_defaults(self.ctx, &account, state));
        let identity = self.pools.identities.of(&account, self.session.capabilities);
        let session = &mut *self.session;
        session.client.program = verified.program;
        session.client.login_collation = collation;
        session.account = Some(account);
        session.identity = identity;
        session.place.scope = None;
        session.place.next_flag_in = 0;
        self.pools.begin_session(self.ctx, self.session, state);
        self.command_done();
        if self.checks_schema(verified.sequence) {
            return false;
        }
        self.session.execution.text.login_sequence = verified.sequence;
        self.session.login_done(self.ctx);
        true
    }

    /// Why an account whose password is right is not let in, in the words of its servers (MariaDB 10.11, MySQL 9.7).
    fn barred(&self, account: &Account) -> Option<(ServerError, String, Refusal)> {
        match account.terms().state {
            AccountState::Open => None,
            AccountState::Locked if self.ctx.snapshot.is_mariadb => {
                let message = "Access denied, this account is locked".to_owned();
                Some((error::ACCOUNT_LOCKED_MARIADB, message, Refusal::AccountLocked))
            }
            AccountState::Locked => {
                let user = &account.user.username;
                let host = self.session.client.peer.ip().map_or("localhost".to_owned(), |ip| ip.to_string());
                let message = format!("Access denied for user '{user}'@'{host}'. Account is locked.");
                Some((error::ACCOUNT_LOCKED_MYSQL, message, Refusal::AccountLocked))
            }
            AccountState::Expired => {
                let message = "Your password has expired. To log in you must change it using a client that supports \
                    expired passwords.";
                Some((error::MUST_CHANGE_PASSWORD_LOGIN, message.to_owned(), Refusal::PasswordExpired))
            }
        }
    }

    /// Ends a login with an error.
    pub(crate) fn refuse_login(&mut self, error: ServerError, message: &str, reason: Refusal) {
        self.ctx.count_refused(error);
        let session = &*self.session;
        let mut sequence = match &session.phase {
            Phase::Login(login) => login.next_sequence(),
            _ => 1,
        };
        if let Some(buffer) = self.ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| ErrPacket::new(error, message.as_bytes()).write(out));
        }
        self.session.note_refusal(self.ctx, error, message, reason);
        if self.stays_after(error) {
            return;
        }
        self.close_session();
    }

    /// MariaDB (10.11) keeps a connection whose COM_CHANGE_USER it has refused: under the old user, in the old schema,
    /// and with nothing else of what it was. MySQL (9.7) closes it.
    fn stays_after(&mut self, error: ServerError) -> bool {
        let session = &*self.session;
        let is_change = matches!(session.phase, Phase::Login(_)) && session.identity != usize::MAX;
        let is_refusal = error.code == error::ACCESS_DENIED.code || error.code == USER_LIMIT_REACHED.code;
        let Some(account) = session.account.clone() else { return false };
        if !is_change || !is_refusal || !self.pools.speaks_mariadb(self.ctx, self.session) {
            return false;
        }
        let schema = session.tracked.state.schema().to_vec();
        let state =
            State::at_login(&schema, self.pools.collation_for_login(self.ctx, 0, session.home_hostgroup()));
        let state = self.ctx.interner.intern(self.pools.with_user_defaults(self.ctx, &account, state));
        self.pools.begin_session(self.ctx, self.session, state);
        self.session.client.refused_changes += 1;
        self.command_done();
        let socket = self.session.socket;
        self.ctx.runnable.push_back((self.session.key, socket));
        true
    }

    /// A login has taken too long.
    pub(crate) fn login_timed_out(&mut self) {
        let session = &*self.session;
        if matches!(session.phase, Phase::Login(_)) && session.identity == usize::MAX {
            let (error, message) = (error::NET_READ_INTERRUPTED, "Got timeout reading communication packets");
            if session.client.is_tls {
                // Should TLS not stand yet, an error could not be sent, and would be waited for.
                self.ctx.count_refused(error);
                self.session.note_refusal(self.ctx, error, message, Refusal::TimedOut);
                return self.client_gone();
            }
            self.refuse_login(error, message, Refusal::TimedOut);
        }
    }
}
