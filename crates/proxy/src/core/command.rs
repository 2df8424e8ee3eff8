//! Commands of clients: what each of them is, and whether Weir answers itself or a server has to.

use weir_journal::AuditKind;
use weir_protocol::command::{Command, StmtExecute};
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::pin::Pins;
use weir_session::state::State;
use weir_sql::{Access, Effects, Kind, Statement, Uses};

use super::Core;
use super::model::{Keeps, Phase, SessionKey, Work, WorkKind};
use super::route::Routed;

/// A command longer than this is not kept in memory: it flows to the server as it comes.
pub(super) const COMMAND_BYTES_KEPT: usize = 1 << 20;

/// Passwords that a client may try on one connection with COM_CHANGE_USER (MariaDB 10.11).
const CHANGES_REFUSED_MAX: u8 = 3;

impl Core {
    /// Takes up the next command of an idle session. False when there is none, or it has to wait.
    pub(super) fn next_command(&mut self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        if session.fetching > 0 {
            return false; // its diagnostics are on their way from the connection that it had
        }
        if !self.skips_rest(key) {
            return false;
        }
        let session = &self.sessions[key];
        let Some(header) = Header::parse(&session.inbox) else {
            if self.draining_until.is_some() && self.drains(session) {
                self.close_session(key);
            }
            return false;
        };
        if header.seq != 0 {
            self.fail_session(key, error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order");
            return false;
        }
        if self.must_read_first(key) || self.must_send_first(key) {
            return false; // a client that only sends must not have Weir keep the replies to all of it
        }
        let session = &self.sessions[key];
        if header.len > COMMAND_BYTES_KEPT {
            return self.begin_upload(key, header);
        }
        let end = HEADER_LEN + header.len;
        if session.inbox.len() < end {
            return false;
        }
        let session = &mut self.sessions[key];
        session.command_bytes = end;
        session.last_active_at = self.now;
        self.dispatch(key)
    }

    /// Answers the command at the front of the inbox, or starts it on a server. True when it is answered.
    pub(super) fn dispatch(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        let payload = &session.inbox[HEADER_LEN..session.command_bytes];
        let command = payload.first().and_then(|code| Command::parse(*code));
        let code = payload.first().copied().unwrap_or(0);
        session.work.reset(self.now);
        session.work.code = code;
        self.count_command(command);
        if self.bids_farewell(key, command) {
            return matches!(self.sessions.get(key), Some(session) if matches!(session.phase, Phase::Idle));
        }
        self.name_last_prepared(key, command);
        let session = &mut self.sessions[key];
        match command {
            Some(Command::Query) => return self.take_query_attributes(key) && self.query(key),
            Some(Command::StmtPrepare) => return self.prepare(key),
            Some(Command::StmtExecute) => return self.execute(key),
            Some(Command::StmtClose) => self.close_statement(key),
            Some(Command::StmtReset) => return self.reset_statement(key),
            Some(Command::StmtSendLongData) => return self.long_data(key),
            Some(Command::StmtFetch) => return self.fetch(key),
            Some(Command::Ping) => {
                session.row_count = 0;
                self.reply_ok(key);
            }
            Some(Command::InitDb) if session.is_schema_locked() => self.refuse_schema(key),
            Some(Command::InitDb) => {
                session.work.kind = WorkKind::InitDb;
                return self.start(key);
            }
            Some(Command::ResetConnection) => return self.reset_connection(key),
            Some(Command::ChangeUser) => return self.change_user(key),
            Some(Command::FieldList) => return self.field_list(key),
            Some(Command::SetOption) => return self.set_option(key),
            Some(Command::ProcessInfo) => return self.process_info(key),
            Some(Command::ProcessKill) => return self.process_kill(key),
            Some(Command::Statistics) => self.statistics(key),
            Some(Command::Quit) => {
                self.audit(key, AuditKind::Quit, "");
                self.close_session(key);
                return false;
            }
            other => self.refuse_command(key, other),
        }
        self.command_done(key);
        true
    }

    /// COM_QUERY.
    pub(super) fn query(&mut self, key: SessionKey) -> bool {
        self.digest_command(key);
        if self.route(key, None) == Routed::Ended {
            return false;
        }
        let mut statement = self.scan_command(key);
        let session = &mut self.sessions[key];
        // Only the beginning of a long text has been looked at. One that does little by itself is not that long for nothing.
        let may_hide_more = matches!(statement.access, Access::Control | Access::Inspect);
        statement.multi |= session.upload.is_some() && may_hide_more;
        session.work.kind = WorkKind::Query;
        session.work.statement = statement;
        session.work.is_read = statement.access == Access::Read;
        let is_surely_read = self.is_surely_read(key);
        let session = &mut self.sessions[key];
        // FOUND_ROWS() may be asked for in a statement that writes.
        session.work.is_read &= is_surely_read && !statement.effects.contains(Effects::FOUND_ROWS_CALC);
        match statement.kind {
            Kind::Use if session.is_schema_locked() && !statement.multi => {
                self.refuse_schema(key);
                self.answered_here(key);
                return false;
            }
            Kind::SetTransaction if self.announces_read_only(key).is_some() => {
                self.answered_here(key);
                return false;
            }
            Kind::Begin | Kind::StartTransactionReadOnly => self.plan_read_only(key),
            _ => {}
        }
        let asks_for_plan = self.asks_for_plan(key);
        let session = &mut self.sessions[key];
        let special = Uses::CONNECTION_ID
            | Uses::ROW_COUNT
            | Uses::FOUND_ROWS
            | Uses::SESSION_TRACK
            | Uses::LAST_GTID
            | Uses::DIAGNOSTICS;
        if statement.effects.contains(Effects::SESSION_TRACK)
            || statement.effects.contains(Effects::KILL)
            || statement.kind == Kind::Kill
            || statement.uses.intersects(special)
            || asks_for_plan
        {
            if session.upload.is_some() {
                let message = "A statement that asks for what Weir itself knows of the session \
                    (CONNECTION_ID(), ROW_COUNT(), FOUND_ROWS(), SHOW WARNINGS, KILL) is too long";
                self.fail_session(key, error::NET_PACKET_TOO_LARGE, message);
                return false;
            }
            match self.answer_or_rewrite(key) {
                super::local::Outcome::Answered => {
                    self.answered_here(key);
                    return false;
                }
                super::local::Outcome::Asked => return false,
                super::local::Outcome::Run => {}
            }
        }
        self.start(key)
    }

    /// Looks at the text of a COM_QUERY or COM_STMT_PREPARE. What it assigns and the server would not report gets
    /// the scope that it means, in the inbox itself.
    pub(super) fn scan_command(&mut self, key: SessionKey) -> Statement {
        let reads_as = self.reading_of(key);
        let session = &mut self.sessions[key];
        session.dialect.server = reads_as;
        let text = &session.inbox[HEADER_LEN + 1..session.command_bytes];
        let statement = weir_sql::scan(text, session.dialect);
        if !statement.effects.contains(Effects::UNTRACKED) || session.upload.is_some() {
            return statement;
        }
        let Some(scoped) = weir_sql::scoped_assignments(text, session.dialect) else { return statement };
        let statement = weir_sql::scan(&scoped, session.dialect);
        self.replace_text(key, &scoped);
        statement
    }

    /// Puts another text in the place of that of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox, which is
    /// there whole.
    pub(super) fn replace_text(&mut self, key: SessionKey, text: &[u8]) {
        let session = &mut self.sessions[key];
        let Some(header) = Header::parse(&session.inbox) else { return };
        let header = Header { len: text.len() + 1, ..header };
        session.inbox.splice(HEADER_LEN + 1..session.command_bytes, text.iter().copied());
        session.inbox[..HEADER_LEN].copy_from_slice(&header.encode());
        session.command_bytes = HEADER_LEN + header.len;
    }

    /// Makes the command at the front of the inbox, which is there whole, a COM_QUERY of this text.
    pub(super) fn put_query_text(&mut self, key: SessionKey, text: &[u8]) {
        let session = &mut self.sessions[key];
        session.work.is_bare = session.has_query_attributes();
        if let Some(code) = session.inbox.get_mut(HEADER_LEN) {
            *code = Command::Query.code();
        }
        self.replace_text(key, text);
    }

    /// Whether a text that looks like a read can be trusted to be one.
    pub(super) fn is_surely_read(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let has_quotes = || self.text(key).iter().any(|byte| matches!(byte, b'"' | b'\\'));
        // Of a long statement only the beginning has been looked at.
        session.upload.is_none()
            && session.is_text_certain
            && (session.knows_sql_mode || self.knows_sql_mode || !has_quotes())
    }

    /// COM_RESET_CONNECTION: on the lease if the session is pinned to one, else nothing needs a server.
    fn reset_connection(&mut self, key: SessionKey) -> bool {
        let session = &mut self.sessions[key];
        if session.lease.is_some() {
            session.work.kind = WorkKind::Reset;
            return self.start(key);
        }
        if let Some(kept) = session.kept
            && self.backends[kept].kept_for.is_some_and(|mark| mark.what.contains(Keeps::FOUND_ROWS))
        {
            // It stays over a reset.
            self.fetch_kept(kept, SessionKey::MAX);
            self.begin_again(key);
            return false;
        }
        self.finish_reset(key);
        self.reply_ok(key);
        self.command_done(key);
        true
    }

    /// The session after COM_RESET_CONNECTION: variables as at the login, the schema stays. The character sets are those
    /// of the handshake (MariaDB 10.11) or the server's (MySQL 9.7).
    pub(super) fn finish_reset(&mut self, key: SessionKey) {
        self.forget_kept(key);
        let session = &self.sessions[key];
        let role = session.pins.pins() & Pins::OUTLIVE_RESET;
        let collation = session.login_collation;
        let schema = session.state.schema();
        let state = match self.charsets_after_reset(key) {
            Some(charsets) => charsets.with_schema(schema),
            None => State::at_login(schema, collation),
        };
        let state = match &session.account {
            Some(account) => self.with_user_defaults(account, state),
            None => state,
        };
        let state = self.interner.intern(state);
        self.begin_session(key, state);
        self.sessions[key].pins.insert(role);
    }

    /// The character sets to which the session's server, or the first of its hostgroup that has told, goes back.
    fn charsets_after_reset(&self, key: SessionKey) -> Option<&State> {
        let session = &self.sessions[key];
        if let Some(lease) = session.lease {
            return self.servers[self.backends[lease].server].charsets_after_reset.as_ref();
        }
        let members = &self.groups.get(&session.home_hostgroup())?.members;
        members.iter().find_map(|member| self.servers[member.server].charsets_after_reset.as_ref())
    }

    /// COM_CHANGE_USER: a new login on an open connection.
    fn change_user(&mut self, key: SessionKey) -> bool {
        if self.sessions[key].refused_changes >= CHANGES_REFUSED_MAX {
            self.reply_error(key, error::UNKNOWN_COM_ERROR, "Unknown command");
            self.command_done(key);
            return true;
        }
        if let Some(lease) = self.sessions[key].lease.take() {
            self.backends[lease].holder = None;
            self.recycle(lease, self.sessions[key].pins.pins());
        }
        self.forget_kept(key);
        let plugin = super::client::default_plugin(&self.snapshot.variables);
        let session = &mut self.sessions[key];
        let mut login = Box::new(weir_session::login::ClientLogin::new(
            session.capabilities,
            plugin,
            session.scramble,
            session.peer.ip(),
        ));
        let payload = session.inbox[HEADER_LEN..session.command_bytes].to_vec();
        session.inbox.drain(..session.command_bytes);
        session.command_bytes = 0;
        let mut reply = Vec::new();
        match login.change_user(&payload, session.capabilities, &mut reply) {
            Ok(()) => {
                session.phase = Phase::Login(login);
                self.out.send(self.sessions[key].socket, &reply);
                true
            }
            Err(_) => {
                self.fail_session(key, error::UNKNOWN_COM_ERROR, "Unknown command");
                false
            }
        }
    }
}

impl Work {
    /// Makes room for a new command.
    pub(super) fn reset(&mut self, now: super::model::Nanos) {
        *self = Self { begun_at: now, started_at: now, ..Self::default() };
    }
}

/// The statement id of an EXECUTE, RESET, CLOSE or SEND_LONG_DATA.
pub(super) fn statement_id(payload: &[u8]) -> Option<u32> {
    let bytes = payload.get(StmtExecute::STMT_ID)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
