//! Passes records to the logs: statements when they have ended, and the begin and end of sessions.

use std::io::Write;

use weir_config::LogVariables;
use weir_protocol::command::Command;
use weir_protocol::frame::HEADER_LEN;
use weir_query_log::{AuditEvent, AuditKind, Command as LoggedAs, Feed, Statement};
use weir_sql::Kind;

use crate::context::Context;
use crate::context::keys::Nanos;
use crate::context::random::Dice;
use crate::plan::execution_plan::CommandKind;
use crate::server::connection::Replies;
use crate::session::Session;
use crate::session::execution::{Ending, Execution};
use crate::statement::work::Work;
use crate::worker::Worker;

/// The error of statements whose client has left before they were answered (CR_SERVER_LOST, from the other side).
const CLIENT_LEFT: u16 = 2013;

/// Copies what is wanted. When nothing is, it costs a look at a flag.
pub(crate) struct QueryLog {
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
pub(crate) struct LoggedStatement {
    /// The beginning of a text that was passed on as it came.
    text: Box<[u8]>,
    text_bytes: usize,
    /// What the last error says.
    error: Box<[u8]>,
}

impl QueryLog {
    pub(crate) fn new(feed: Feed, worker: usize) -> Self {
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
    pub(crate) fn go_by(&mut self, logs: &LogVariables) {
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
    pub(crate) fn is_long(&self, took_ns: Nanos) -> bool {
        took_ns > self.long_ns
    }

    fn is_drawn(&mut self) -> bool {
        self.one_of <= 1 || self.dice.below(self.one_of) == Some(0)
    }
}

impl Worker {
    /// The end of a batch: what was logged in it goes to the writer. Never waits.
    pub fn end_batch(&mut self) {
        self.ctx.query_log.feed.flush();
    }
}

impl Work<'_> {
    /// A session's command is over: a statement may have to be logged. To be called while what it was is still known.
    pub(crate) fn log_statement(&mut self) {
        let session = &mut *self.session;
        let code = std::mem::take(&mut session.execution.text.code);
        if !self.ctx.query_log.watches_statements {
            return;
        }
        let command = match Command::parse(code) {
            Some(Command::Query) => LoggedAs::Query,
            Some(Command::StmtPrepare) => LoggedAs::Prepare,
            Some(Command::StmtExecute) => LoggedAs::Execute,
            _ => return,
        };
        let session = &*self.session;
        let execution = &session.execution;
        let ended_ns =
            if execution.reply.answered_at > 0 { execution.reply.answered_at } else { self.ctx.now };
        let is_slow = self.ctx.query_log.has_slow
            && self.ctx.query_log.is_long(ended_ns.saturating_sub(execution.record.begun_at));
        let is_wanted = execution.plan.decision().log.unwrap_or(self.ctx.query_log.logs_by_default);
        let is_event = self.ctx.query_log.has_events && is_wanted && self.ctx.query_log.is_drawn();
        if !is_event && !is_slow {
            return;
        }
        let was_sent = execution.tries.times_sent > 0;
        let is_servers = execution.record.own_errno == 0 || execution.record.own_errno == CLIENT_LEFT;
        let lease = session.lease.filter(|_| was_sent && is_servers);
        let server =
            lease.map(|lease| &self.pools.servers[self.pools.connections[lease].server].server.endpoint);
        let (rows_affected, last_insert_id) = match execution.ending {
            Ending::Ok { affected_rows, insert_id, has_rows: false, .. } => (affected_rows, insert_id),
            _ => (0, 0),
        };
        self.ctx.query_log.address.clear();
        // Memory takes whatever is written.
        let _ = write!(self.ctx.query_log.address, "{}", session.client.peer);
        let (query, query_bytes) = session.logged_text(command);
        let statement = Statement {
            is_event,
            is_slow,
            command,
            thread_id: session.id,
            hostgroup: was_sent.then_some(execution.served_by),
            begun_ns: execution.record.begun_at,
            ended_ns,
            digest: execution.digest,
            errno: session.execution.logged_errno(),
            rows_affected,
            rows_sent: execution.reply.rows_sent,
            last_insert_id,
            statement_id: execution.text.statement_id,
            query_bytes: query_bytes as u64,
            client: &self.ctx.query_log.address,
            server: server.map_or(b"", |endpoint| endpoint.as_bytes()),
            username: session.username(),
            schemaname: session.tracked.state.schema(),
            query: &query[..query.len().min(self.ctx.query_log.query_bytes_max)],
            error: execution
                .record
                .logged
                .as_ref()
                .filter(|_| session.execution.logged_errno() > 0)
                .map_or(b"", |logged| &logged.error),
        };
        self.ctx.query_log.feed.statement(&statement);
    }

    /// The client has left: its statement, if there is one, will not be answered.
    pub(crate) fn log_unanswered(&mut self) {
        let session = &mut *self.session;
        if session.execution.record.own_errno == 0 && session.execution.ending == Ending::None {
            session.execution.record.own_errno = CLIENT_LEFT;
        }
        self.log_statement();
    }
}

impl Session {
    /// The text of its statement, which may be the beginning, and how long all of it is.
    fn logged_text(&self, command: LoggedAs) -> (&[u8], usize) {
        let execution = &self.execution;
        if let (LoggedAs::Execute, Some(prepared)) = (command, &execution.text.prepared) {
            return (prepared.text(), prepared.text().len());
        }
        if let Some(logged) = execution.record.logged.as_ref().filter(|logged| logged.text_bytes > 0) {
            return (&logged.text, logged.text_bytes);
        }
        if command == LoggedAs::Execute {
            return (b"", 0); // of a statement that nobody knows
        }
        let end = self.input.command_bytes.min(self.input.inbox.len());
        let text = self.input.inbox.get(HEADER_LEN + 1..end).unwrap_or_default();
        (text, text.len())
    }
}

impl Session {
    /// The text of a long command is about to be passed on.
    pub(crate) fn note_long_text(&mut self, ctx: &mut Context) {
        if !ctx.query_log.watches_statements || self.execution.plan.kind() != CommandKind::Query {
            return;
        }
        let text = self.input.inbox.get(HEADER_LEN + 1..self.input.command_bytes).unwrap_or_default();
        let beginning: Box<[u8]> = text[..text.len().min(ctx.query_log.query_bytes_max)].into();
        let text_bytes = self.input.upload.as_ref().map_or(text.len(), |upload| upload.total_bytes);
        let logged = self.execution.record.logged.get_or_insert_default();
        (logged.text, logged.text_bytes) = (beginning, text_bytes);
    }

    /// Something has become of a session.
    pub(crate) fn audit(&self, ctx: &mut Context, kind: AuditKind, extra: &str) {
        if !ctx.query_log.audits {
            return;
        }
        let (client, proxy) = (self.client.peer.to_string(), self.listener.address.to_string());
        let event = AuditEvent {
            kind,
            thread_id: self.id,
            at_ns: ctx.now,
            connected_ns: self.client.connected_at,
            is_tls: self.client.is_tls,
            client: client.as_bytes(),
            proxy: proxy.as_bytes(),
            username: self.login_user(),
            schemaname: self.tracked.state.schema(),
            statement: b"",
            extra: extra.as_bytes(),
        };
        ctx.query_log.feed.audit(&event);
    }

    /// A statement or command has succeeded; it may have given the session another schema.
    pub(crate) fn audit_schema(&self, ctx: &mut Context) {
        let execution = &self.execution;
        let is_use = execution.plan.statement().kind == Kind::Use && !execution.plan.statement().multi;
        if is_use || execution.plan.kind() == CommandKind::InitDb {
            self.audit(ctx, AuditKind::InitDb, "");
        }
    }

    /// A login has succeeded, the first or that of a COM_CHANGE_USER.
    pub(crate) fn audit_login(&mut self, ctx: &mut Context) {
        let is_first = !std::mem::replace(&mut self.client.has_logged_in, true);
        self.audit(ctx, if is_first { AuditKind::ConnectOk } else { AuditKind::ChangeUserOk }, "");
    }

    /// It was refused, for these reasons.
    pub(crate) fn audit_refusal(&self, ctx: &mut Context, message: &str) {
        let is_first = !self.client.has_logged_in;
        self.audit(ctx, if is_first { AuditKind::ConnectErr } else { AuditKind::ChangeUserErr }, message);
    }
}

impl Replies {
    /// The server has answered: how, as far as the connection knows it only now.
    pub(crate) fn note_answer(&self, ctx: &Context, session: &mut Session) {
        let rows = self.rows;
        let execution = &mut session.execution;
        execution.reply.answered_at = ctx.now;
        execution.reply.rows_sent =
            if matches!(execution.ending, Ending::Ok { has_rows: true, .. }) { rows } else { 0 };
    }
}

impl Execution {
    pub(crate) fn logged_errno(&self) -> u16 {
        match (self.record.own_errno, self.ending) {
            (0, Ending::Err(code)) => code,
            (code, _) => code,
        }
    }

    /// An error that the client gets, if somebody may want to read it in a log.
    pub(crate) fn note_error_text(&mut self, ctx: &mut Context, message: &[u8]) {
        if ctx.query_log.watches_statements {
            self.record.logged.get_or_insert_default().error = message.into();
        }
    }
}
