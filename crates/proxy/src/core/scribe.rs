//! What a worker tells the logs: statements when they have ended, and how sessions come and go.

use std::io::Write;

use weir_config::LogVariables;
use weir_journal::{AuditEvent, AuditKind, Command as LoggedAs, Feed, Statement};
use weir_protocol::command::Command;
use weir_protocol::frame::HEADER_LEN;
use weir_sql::Kind;

use super::Core;
use super::balance::Dice;
use super::model::{BackendKey, Ending, Nanos, Session, SessionKey, WorkKind};

/// The error of statements whose client has left before they were answered (CR_SERVER_LOST, from the other side).
const CLIENT_LEFT: u16 = 2013;

/// Copies what is wanted. When nothing is, it costs a look at a flag.
pub(super) struct Scribe {
    feed: Feed,
    dice: Dice,
    /// Statements are looked at when they end.
    watches_statements: bool,
    has_events: bool,
    logs_by_default: bool,
    /// Of so many statements one is logged.
    one_of: u64,
    /// What takes longer is slow.
    long_ns: Nanos,
    has_slow: bool,
    query_bytes_max: usize,
    audits: bool,
    /// Room for a client's address.
    address: Vec<u8>,
}

/// What must be kept of a statement for the logs, because it is gone when the statement ends.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The beginning of a text that was passed on as it came.
    text: Box<[u8]>,
    text_bytes: usize,
    /// What the last error says.
    error: Box<[u8]>,
}

impl Scribe {
    pub(super) fn new(feed: Feed, worker: usize) -> Self {
        Self {
            feed,
            dice: Dice::new(worker as u64),
            watches_statements: false,
            has_events: false,
            logs_by_default: false,
            one_of: 1,
            long_ns: Nanos::MAX,
            has_slow: false,
            query_bytes_max: 0,
            audits: false,
            address: Vec::new(),
        }
    }

    /// New variables.
    pub(super) fn go_by(&mut self, logs: &LogVariables) {
        self.has_events = logs.eventslog_filename.is_some();
        self.logs_by_default = logs.eventslog_default_log;
        self.one_of = u64::from(logs.eventslog_rate_limit);
        self.long_ns = Nanos::try_from(logs.long_query_time.as_nanos()).unwrap_or(Nanos::MAX);
        self.has_slow = logs.slowlog_filename.is_some();
        self.watches_statements = self.has_events || self.has_slow;
        self.query_bytes_max = logs.eventslog_buffer_max_query_length as usize;
        self.audits = logs.auditlog_filename.is_some();
    }

    /// Whether a statement that took so long is a slow one.
    pub(super) fn is_long(&self, took_ns: Nanos) -> bool {
        took_ns > self.long_ns
    }

    fn is_drawn(&mut self) -> bool {
        self.one_of <= 1 || self.dice.below(self.one_of) == Some(0)
    }
}

impl Core {
    /// The end of a batch: what was logged in it goes to the writer. Never waits.
    pub fn end_batch(&mut self) {
        self.scribe.feed.hand_over();
    }

    /// The server has answered: how, as far as the connection knows it only now.
    pub(super) fn note_answer(&mut self, key: BackendKey, holder: SessionKey) {
        let rows = self.backends[key].reply_rows;
        let work = &mut self.sessions[holder].work;
        work.answered_at = self.now;
        work.rows_sent = if matches!(work.ending, Ending::Ok { has_rows: true, .. }) { rows } else { 0 };
    }

    /// An error that the client gets, if somebody may want to read it in a log.
    pub(super) fn note_error_text(&mut self, key: SessionKey, message: &[u8]) {
        if self.scribe.watches_statements {
            self.sessions[key].work.noted.get_or_insert_default().error = message.into();
        }
    }

    /// The text of a long command is about to be passed on.
    pub(super) fn note_long_text(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if !self.scribe.watches_statements || session.work.kind != WorkKind::Query {
            return;
        }
        let text = session.inbox.get(HEADER_LEN + 1..session.command_bytes).unwrap_or_default();
        let beginning: Box<[u8]> = text[..text.len().min(self.scribe.query_bytes_max)].into();
        let text_bytes = session.upload.as_ref().map_or(text.len(), |upload| upload.total_bytes);
        let noted = session.work.noted.get_or_insert_default();
        (noted.text, noted.text_bytes) = (beginning, text_bytes);
    }

    /// A session's command is over: a statement may have to be logged. To be called while what it was is still known.
    pub(super) fn log_statement(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let code = std::mem::take(&mut session.work.code);
        if !self.scribe.watches_statements {
            return;
        }
        let command = match Command::parse(code) {
            Some(Command::Query) => LoggedAs::Query,
            Some(Command::StmtPrepare) => LoggedAs::Prepare,
            Some(Command::StmtExecute) => LoggedAs::Execute,
            _ => return,
        };
        let session = &self.sessions[key];
        let work = &session.work;
        let ended_ns = if work.answered_at > 0 { work.answered_at } else { self.now };
        let is_slow = self.scribe.has_slow && self.scribe.is_long(ended_ns.saturating_sub(work.begun_at));
        let is_wanted = work.decision.log.unwrap_or(self.scribe.logs_by_default);
        let is_event = self.scribe.has_events && is_wanted && self.scribe.is_drawn();
        if !is_event && !is_slow {
            return;
        }
        let was_sent = work.times_sent > 0;
        let is_servers = work.own_errno == 0 || work.own_errno == CLIENT_LEFT;
        let lease = session.lease.filter(|_| was_sent && is_servers);
        let server = lease.map(|lease| &self.servers[self.backends[lease].server].server.endpoint);
        let (rows_affected, last_insert_id) = match work.ending {
            Ending::Ok { affected_rows, insert_id, has_rows: false, .. } => (affected_rows, insert_id),
            _ => (0, 0),
        };
        self.scribe.address.clear();
        // Memory takes whatever is written.
        let _ = write!(self.scribe.address, "{}", session.peer);
        let (query, query_bytes) = session.logged_text(command);
        let statement = Statement {
            is_event,
            is_slow,
            command,
            thread_id: session.id,
            hostgroup: was_sent.then_some(work.served_by),
            begun_ns: work.begun_at,
            ended_ns,
            digest: work.digest,
            errno: session.logged_errno(),
            rows_affected,
            rows_sent: work.rows_sent,
            last_insert_id,
            statement_id: work.statement_id,
            query_bytes: query_bytes as u64,
            client: &self.scribe.address,
            server: server.map_or(b"", |endpoint| endpoint.as_bytes()),
            username: session.username(),
            schemaname: session.state.schema(),
            query: &query[..query.len().min(self.scribe.query_bytes_max)],
            error: work
                .noted
                .as_ref()
                .filter(|_| session.logged_errno() > 0)
                .map_or(b"", |noted| &noted.error),
        };
        self.scribe.feed.statement(&statement);
    }

    /// The client has left: its statement, if there is one, will not be answered.
    pub(super) fn log_unanswered(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.work.own_errno == 0 && session.work.ending == Ending::None {
            session.work.own_errno = CLIENT_LEFT;
        }
        self.log_statement(key);
    }

    /// Something has become of a session.
    pub(super) fn audit(&mut self, key: SessionKey, kind: AuditKind, extra: &str) {
        if !self.scribe.audits {
            return;
        }
        let session = &self.sessions[key];
        let (client, proxy) = (session.peer.to_string(), session.listener.address.to_string());
        let event = AuditEvent {
            kind,
            thread_id: session.id,
            at_ns: self.now,
            connected_ns: session.connected_at,
            is_tls: session.is_tls,
            client: client.as_bytes(),
            proxy: proxy.as_bytes(),
            username: session.login_user(),
            schemaname: session.state.schema(),
            statement: b"",
            extra: extra.as_bytes(),
        };
        self.scribe.feed.audit(&event);
    }

    /// A statement or command has succeeded; it may have given the session another schema.
    pub(super) fn audit_schema(&mut self, key: SessionKey) {
        let work = &self.sessions[key].work;
        let is_use = work.statement.kind == Kind::Use && !work.statement.multi;
        if is_use || work.kind == WorkKind::InitDb {
            self.audit(key, AuditKind::InitDb, "");
        }
    }

    /// A login has succeeded, the first or that of a COM_CHANGE_USER.
    pub(super) fn audit_login(&mut self, key: SessionKey) {
        let is_first = !std::mem::replace(&mut self.sessions[key].has_logged_in, true);
        self.audit(key, if is_first { AuditKind::ConnectOk } else { AuditKind::ChangeUserOk }, "");
    }

    /// It was refused, for these reasons.
    pub(super) fn audit_refusal(&mut self, key: SessionKey, message: &str) {
        let is_first = !self.sessions[key].has_logged_in;
        self.audit(key, if is_first { AuditKind::ConnectErr } else { AuditKind::ChangeUserErr }, message);
    }
}

impl Session {
    pub(super) fn username(&self) -> &[u8] {
        self.account.as_ref().map_or(b"", |account| account.user.username.as_bytes())
    }

    /// The text of its statement, which may be the beginning, and how long all of it is.
    fn logged_text(&self, command: LoggedAs) -> (&[u8], usize) {
        let work = &self.work;
        if let (LoggedAs::Execute, Some(prepared)) = (command, &work.prepared) {
            return (prepared.text(), prepared.text().len());
        }
        if let Some(noted) = work.noted.as_ref().filter(|noted| noted.text_bytes > 0) {
            return (&noted.text, noted.text_bytes);
        }
        if command == LoggedAs::Execute {
            return (b"", 0); // of a statement that nobody knows
        }
        let end = self.command_bytes.min(self.inbox.len());
        let text = self.inbox.get(HEADER_LEN + 1..end).unwrap_or_default();
        (text, text.len())
    }

    fn logged_errno(&self) -> u16 {
        match (self.work.own_errno, self.work.ending) {
            (0, Ending::Err(code)) => code,
            (code, _) => code,
        }
    }
}
