//! Clients: greeting, login, bytes in, replies that Weir gives itself, and going away.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashMapExt};
use weir_config::{AuthPlugin, Listener, MysqlVariables};
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::{self, Collation};
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::handshake::Scramble;
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};
use weir_query_log::AuditKind;
use weir_session::login::{ClientLogin, LoginStep, LoginUser, PasswordResult, Plugin, Refusal, Verified};
use weir_session::pin::{PinBoard, Pins};
use weir_session::state::State;

use crate::listener::Peer;
use crate::outbox::{Order, Owner, SocketId};
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::Retained;
use crate::session::execution::Execution;
use crate::session::phase::Phase;
use crate::session::session::{
    Client, ClientStatements, Diagnostics, Farewell, Input, Place, Session, Stay, Times, Tracked,
    Transaction, Writes,
};
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::{Nanos, SessionKey};

/// A login packet larger than this is refused.
const LOGIN_PACKET_BYTES_MAX: usize = 64 << 10;
/// What a client may send ahead while its command runs, before Weir stops reading from it.
pub(crate) const INBOX_BYTES_MAX: usize = 64 << 10;
/// mysql_users.max_connections is reached (ER_USER_LIMIT_REACHED), as ProxySQL says it.
pub(crate) const USER_LIMIT_REACHED: ServerError = ServerError { code: 1226, sqlstate: *b"42000" };
/// An idle session keeps no larger buffer than this.
const INBOX_BYTES_KEPT: usize = 4 << 10;

/// Stands in a session until its login has said better, and in one whose login and configuration name none.
pub(crate) static LOGIN_COLLATION: Collation = Collation {
    id: charset::UTF8MB4_GENERAL_CI,
    charset: "utf8mb4",
    name: "utf8mb4_general_ci",
    is_default: true,
};

/// The plugin of the greeting.
pub(crate) fn default_plugin(variables: &MysqlVariables) -> Plugin {
    match variables.default_authentication_plugin {
        AuthPlugin::MysqlNativePassword => Plugin::Native,
        AuthPlugin::CachingSha2Password => Plugin::CachingSha2,
    }
}

/// A client that has just connected.
struct Arrival<'l> {
    key: SessionKey,
    socket: SocketId,
    id: u32,
    peer: Peer,
    listener: &'l Arc<Listener>,
}

impl Worker {
    /// Greets a new client.
    pub(crate) fn greet(&mut self, peer: Peer, listener: &Arc<Listener>) -> Option<SocketId> {
        if self.ctx.drain.until.is_some() {
            return None;
        }
        let id = self.sessions.new_id(&self.ctx);
        let key = self.sessions.vacant_key();
        let socket = self.ctx.out.open(Owner::Session(key));
        self.ctx.ids.insert(id, key);
        self.ctx.statistics.totals.clients_accepted += 1;
        let offered = self.pools.offered(&self.ctx);
        let variables = &self.ctx.snapshot.variables;
        let scramble = self.ctx.random.scramble();
        let login = ClientLogin::new(offered, default_plugin(variables), scramble, peer.ip());
        let mut login = Box::new(login);
        let mut greeting = Vec::new();
        login.greet(id, self.ctx.snapshot.server_version.as_bytes(), &mut greeting);
        let newcomer = self.ctx.newcomer(Arrival { key, socket, id, peer, listener }, login, scramble);
        self.sessions.insert(newcomer);
        self.ctx.out.send(socket, &greeting);
        let variables = &self.ctx.snapshot.variables;
        self.ctx
            .timers
            .login_started(socket, self.ctx.now + variables.connect_timeout_client.as_nanos() as Nanos);
        let clients = self.ctx.shared.clients.fetch_add(1, Ordering::Relaxed);
        if clients >= variables.max_connections {
            self.work(key).refuse_login(
                error::CON_COUNT_ERROR,
                "Too many connections",
                Refusal::MaxConnections,
            );
        }
        Some(socket)
    }
}

impl Work<'_> {
    pub(crate) fn client_data(&mut self, bytes: &mut [u8]) {
        self.ctx.statistics.totals.client_bytes_received += bytes.len() as u64;
        let session = &*self.session;
        match &session.phase {
            Phase::Closing => return,
            Phase::Running if session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing) => {
                return self.flow(bytes);
            }
            Phase::Running if session.input.infile.is_some() => return self.send_file(bytes),
            // A batch of events may hold the request for TLS and what follows it.
            Phase::Login(_) if session.client.is_tls && self.ctx.out.add_to_tls(session.socket, bytes) => {
                return;
            }
            _ => {}
        }
        let session = &mut *self.session;
        session.input.inbox.extend_from_slice(bytes);
        // Resumed with the end of the command, if not when what is fetched has come, or when replies are taken.
        let is_busy = match &session.phase {
            Phase::Idle => session.diagnostics.fetching > 0,
            Phase::Login(login) => login.is_checking(),
            _ => true,
        };
        let waits = is_busy || self.session.must_read_first(self.ctx);
        let session = &*self.session;
        if waits && session.input.inbox.len() - session.input.command_bytes > INBOX_BYTES_MAX {
            let socket = session.socket;
            self.ctx.out.pause(socket, true);
        }
        if !waits {
            self.advance();
        }
    }

    /// Takes up whatever a session can do now.
    pub(crate) fn advance(&mut self) {
        loop {
            let session = &*self.session;
            let goes_on = match session.phase {
                Phase::Login(_) => self.login_packet(),
                Phase::Idle => self.next_command(),
                Phase::Running => {
                    // It may have waited for diagnostics from another connection.
                    if let Some(lease) = session.lease {
                        self.prepare_connection(lease);
                    }
                    false
                }
                _ => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Handles one packet of a login, if it is there whole.
    fn login_packet(&mut self) -> bool {
        let session = &mut *self.session;
        if matches!(&session.phase, Phase::Login(login) if login.is_checking()) {
            return false;
        }
        let Some(header) = Header::parse(&session.input.inbox) else { return false };
        if header.len > LOGIN_PACKET_BYTES_MAX {
            self.refuse_login(error::HANDSHAKE_ERROR, "Bad handshake", Refusal::BadHandshake);
            return false;
        }
        let end = HEADER_LEN + header.len;
        if session.input.inbox.len() < end {
            return false;
        }
        let channel = session.channel();
        let Phase::Login(login) = &mut session.phase else { return false };
        let snapshot = &self.ctx.snapshot;
        let find = |name: &[u8]| {
            let account = snapshot.users.get(name)?;
            Some(LoginUser {
                stored: account.stored.clone(),
                additional: account.additional.clone(),
                requires_tls: account.user.use_ssl,
                known: account.credential.lock().ok().and_then(|known| known.clone()),
                rsa_key: snapshot.rsa_key.clone(),
            })
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

    /// What comes of a packet of a login, or of the check of its password; true if it goes on at once.
    fn login_step(&mut self, step: LoginStep) -> bool {
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
                self.refuse_login(error, &message, reason);
                false
            }
            LoginStep::Verified(verified) => self.logged_in(*verified),
        }
    }
}

impl Worker {
    /// The check that a login waits for is done.
    pub(crate) fn password_checked(&mut self, socket: SocketId, verdict: PasswordResult) {
        let Some(Owner::Session(key)) = self.ctx.out.owner(socket) else { return };
        let Phase::Login(login) = &mut self.sessions[key].phase else { return };
        if !login.is_checking() {
            return;
        }
        let step = login.checked(verdict);
        if self.work(key).login_step(step) {
            self.work(key).advance();
        }
    }
}

impl Work<'_> {
    /// The client is who it says: the session begins. Also after COM_CHANGE_USER.
    fn logged_in(&mut self, verified: Verified) -> bool {
        let account = self.ctx.snapshot.users.get(&verified.user).cloned();
        // A check takes time: the configuration may be another one by now, and the proof worth nothing.
        let Some(account) = account.filter(|account| account.has_passwords(&verified.shown)) else {
            let user = String::from_utf8_lossy(&verified.user);
            let message =
                format!("Access denied for user '{user}': its password was changed during the login");
            self.refuse_login(error::ACCESS_DENIED, &message, Refusal::PasswordChanged);
            return false;
        };
        account.learn(verified.credential);
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
        if clients >= account.user.max_connections {
            account.clients.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "User '{}' has exceeded the 'max_user_connections' resource (current value: {})",
                account.user.username, account.user.max_connections
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

    /// Ends a login with an error.
    fn refuse_login(&mut self, error: ServerError, message: &str, reason: Refusal) {
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

    /// An error after which the connection ends.
    pub(crate) fn fail_session(&mut self, error: ServerError, message: &str) {
        self.session.take_withheld_back(self.ctx);
        self.pools.reply_error(self.ctx, self.session, error, message);
        let session = &*self.session;
        let (program, code) = (session.program(), error.code);
        tracing::info!(session = session.id, peer = %session.client.peer, program, code, told = message, "session closed");
        self.session.count_own_answer(self.ctx);
        self.close_session();
    }

    /// Closes a session once what is queued for it has been sent. Its lease is freed at once.
    pub(crate) fn close_session(&mut self) {
        self.session.take_withheld_back(self.ctx);
        self.log_statement();
        self.abandon();
        let session = &mut *self.session;
        session.phase = Phase::Closing;
        session.stay.held = None;
        session.input.inbox = Vec::new();
        session.input.command_bytes = 0;
        let socket = session.socket;
        if self.ctx.out.backlog_bytes(socket) == 0 {
            self.forget();
        } else {
            self.ctx.out.notify_drained(socket);
            self.ctx.timers.closing(socket, self.ctx.now);
        }
    }

    /// The session has ended, and is removed once the current event is dealt with.
    pub(crate) fn forget(&mut self) {
        self.log_unanswered();
        let session = &mut *self.session;
        if std::mem::take(&mut session.client.has_logged_in) {
            session.audit(self.ctx, AuditKind::Close, "");
        }
        session.phase = Phase::Closing;
        self.ctx.ended.push((session.key, session.socket));
    }

    /// The client's socket is gone.
    pub(crate) fn client_gone(&mut self) {
        self.log_unanswered();
        self.abandon();
        self.forget();
    }
}

impl Worker {
    /// A session that has ended is removed.
    pub(crate) fn remove(&mut self, key: SessionKey) {
        let session = self.sessions.remove(key);
        self.ctx.ids.remove(&session.id);
        self.ctx.timers.login_ended(session.socket);
        if let Some(account) = &session.account {
            account.clients.fetch_sub(1, Ordering::Relaxed);
        }
        self.ctx.out.close(session.socket);
        self.ctx.shared.clients.fetch_sub(1, Ordering::Relaxed);
        self.ctx.shared.mailboxes[self.ctx.worker].sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Work<'_> {
    /// The running command is answered: its bytes go.
    pub(crate) fn command_done(&mut self) {
        self.session.count_own_answer(self.ctx);
        self.log_statement();
        if self.session.stay.detour.is_some() {
            self.end_detour();
        }
        let session = &mut *self.session;
        let has_long_data =
            session.prepared.long_data_bytes > 0 || session.pins.pins().contains(Pins::LONG_DATA);
        if has_long_data && session.execution.plan.kind() == CommandKind::Execute {
            let id = session.execution.text.statement_id;
            self.pools.drop_long_data(self.ctx, self.session, id);
        }
        let session = &mut *self.session;
        let done = std::mem::take(&mut session.input.command_bytes);
        if done >= session.input.inbox.len() {
            session.input.inbox.clear();
            if session.input.inbox.capacity() > INBOX_BYTES_KEPT {
                session.input.inbox = Vec::new();
            }
        } else {
            session.input.inbox.drain(..done);
        }
        self.session.leave_upload();
        let session = &mut *self.session;
        // Errors from here on are not a login's or of what is not answered.
        if matches!(session.execution.plan.kind(), CommandKind::LoginSchema | CommandKind::LongData) {
            session.execution.plan = session.execution.plan.as_query();
        }
        session.stay.held = None;
        session.phase = Phase::Idle;
        session.times.last_active_at = self.ctx.now;
        let socket = session.socket;
        self.ctx.out.pause(socket, false);
    }
}

impl Session {
    /// The OK at the end of a login.
    pub(crate) fn login_done(&mut self, ctx: &mut Context) {
        self.audit_login(ctx);
        let schema = self.tracked.state.schema();
        let mut tracked = Vec::new();
        if !schema.is_empty() {
            weir_protocol::ok::SessionTrack::Schema(schema).write(&mut tracked);
        }
        let mut ok = OkPacket::new(OK_HEADER, self.status());
        if self.capabilities.contains(Capabilities::SESSION_TRACK) {
            ok.session_state = &tracked;
        }
        let mut sequence = self.execution.text.login_sequence;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(self.capabilities, out));
        }
    }

    /// The error at the end of a login whose password was right.
    pub(crate) fn put_login_error(&self, ctx: &mut Context, error: ServerError, message: &str) {
        let mut sequence = self.execution.text.login_sequence;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ErrPacket::new(error, message.as_bytes()).write(out));
        }
        self.note_refusal(ctx, error, message, Refusal::Server);
    }

    /// A packet that Weir answers with an OK of its own.
    pub(crate) fn reply_ok(&self, ctx: &mut Context) {
        self.reply_ok_with(ctx, b"");
    }

    /// The same with a number of affected rows.
    pub(crate) fn reply_affected(&mut self, ctx: &mut Context, affected_rows: u64) {
        self.diagnostics.row_count = i64::try_from(affected_rows).unwrap_or(i64::MAX);
        let capabilities = self.capabilities;
        let ok = OkPacket { affected_rows, ..OkPacket::new(OK_HEADER, self.status()) };
        let mut sequence = 1;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
    }

    /// The same with changes of the session's state, encoded.
    pub(crate) fn reply_ok_with(&self, ctx: &mut Context, session_state: &[u8]) {
        let capabilities = self.capabilities;
        let ok = OkPacket { session_state, ..OkPacket::new(OK_HEADER, self.status()) };
        let mut sequence = 1;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
    }
}

impl Context {
    /// The session of a client of whom nothing is known yet.
    fn newcomer(&self, arrival: Arrival<'_>, login: Box<ClientLogin>, scramble: Scramble) -> Session {
        let Arrival { key, socket, id, peer, listener } = arrival;
        Session {
            key,
            socket,
            id,
            listener: listener.clone(),
            client: Client {
                peer,
                is_tls: false,
                program: None,
                login_collation: &LOGIN_COLLATION,
                scramble,
                refused_changes: 0,
                connected_at: self.now,
                has_logged_in: false,
            },
            capabilities: Capabilities::PROTOCOL_41,
            phase: Phase::Login(login),
            input: Input {
                inbox: Vec::new(),
                command_bytes: 0,
                upload: None,
                is_cut_short: false,
                close_when_done: false,
                infile: None,
            },
            account: None,
            identity: usize::MAX,
            tracked: Tracked {
                state: self.fresh.clone(),
                defaults: None,
                suits: None,
                dialect: self.learnt.default_dialect,
                is_text_certain: true,
                knows_sql_mode: false,
            },
            place: Place { caller: None, scope: None, next_flag_in: 0, decided: None },
            times: Times { watched_at: 0, last_active_at: self.now, own_wait_s: 0 },
            lease: None,
            is_pinned_to_reader: false,
            stay: Stay { detour: None, stays_in: None, held: None },
            diagnostics: Diagnostics {
                retained_on: None,
                retained: Retained::empty(),
                has_own_insert_id: false,
                is_insert_id_lost: false,
                fetching: 0,
                last_insert_id: 0,
                last_gtid: String::new(),
                row_count: 0,
                found_rows: Some(0),
                saved_warnings: None,
                last_error: None,
            },
            farewell: Farewell { owed_error: None, pending_error: None },
            pins: PinBoard::default(),
            execution: Execution::default(),
            prepared: ClientStatements {
                all: HashMap::new(),
                bytes: 0,
                next_id: 0,
                last_prepared: 0,
                long_data_bytes: 0,
            },
            track: None,
            moving: None,
            transaction: Transaction {
                is_autocommit: true,
                is_read_only: false,
                is_next_read_only: false,
                since: self.now,
            },
            writes: Writes { last_at: 0, last_commit_at: 0, last_server: usize::MAX },
        }
    }
}

impl Pools {
    /// Everything that a session has gathered goes back to what a login gives. But FOUND_ROWS() stays over
    /// COM_RESET_CONNECTION and COM_CHANGE_USER (seen on MariaDB 10.11 and MySQL 9.7).
    pub(crate) fn begin_session(&self, ctx: &mut Context, session: &mut Session, state: Rc<State>) {
        self.begin_with_defaults(session);
        session.set_state(ctx, state);
        session.pins.clear();
        session.moving = None;
        session.place.caller = None;
        session.prepared.all = HashMap::new();
        session.prepared.bytes = 0;
        session.prepared.long_data_bytes = 0;
        session.track = None;
        session.diagnostics.last_insert_id = 0;
        session.diagnostics.last_gtid = String::new();
        session.diagnostics.is_insert_id_lost = false;
        session.diagnostics.row_count = 0;
        session.diagnostics.saved_warnings = None;
        session.farewell.owed_error = None;
        session.transaction.is_read_only = false;
        session.transaction.is_next_read_only = false;
        session.times.last_active_at = ctx.now;
    }

    /// An error of Weir's own as the answer to a command.
    pub(crate) fn reply_error(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        error: ServerError,
        message: &str,
    ) {
        match session.execution.plan.kind() {
            CommandKind::LongData => return session.long_data_refused(error, message),
            CommandKind::LoginSchema => {
                return session.schema_unchecked(ctx, error, message);
            }
            _ => {}
        }
        ctx.statistics.totals.errors_generated += 1;
        session.execution.note_error_text(ctx, message.as_bytes());
        self.keep_own_error(session, error, message);
        let message = session.tracked.message_to(message);
        session.diagnostics.row_count = -1;
        session.execution.record.own_errno = error.code;
        // A long command may have taken several packets.
        let mut sequence = session.input.upload.as_ref().map_or(0, |upload| upload.sequence).wrapping_add(1);
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| ErrPacket::new(error, &message).write(out));
        }
    }
}
