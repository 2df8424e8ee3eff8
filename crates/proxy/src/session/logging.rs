//! Keeps for the logs what is gone when a statement has ended, and records what becomes of a session.

use weir_protocol::frame::HEADER_LEN;
use weir_query_log::{AuditEvent, AuditKind, Command as LoggedAs};
use weir_sql::Kind;

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::session::Session;
use crate::session::execution::{Ending, Execution};

impl Session {
    /// The text of its statement, which may be the beginning, and how long all of it is.
    pub(crate) fn logged_text(&self, command: LoggedAs) -> (&[u8], usize) {
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
