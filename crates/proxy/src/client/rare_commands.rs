//! Handles commands that clients rarely send: what Weir answers itself, what one server is asked, and what is refused
//! in a server's own way.

use std::sync::atomic::Ordering;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_protocol::error;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{EofPacket, OK_AS_EOF_HEADER, OkPacket};
use weir_sql::KillTarget;

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::work::Work;

impl Work<'_> {
    /// COM_FIELD_LIST: the columns of a table with their defaults. MySQL 9 does not know it any more, and says so.
    pub(crate) fn field_list(&mut self) -> bool {
        let session = &mut *self.session;
        session.execution.plan =
            ExecutionPlan::of_command(CommandKind::FieldList).reading(session.lease().is_some());
        self.start()
    }

    /// COM_SET_OPTION changes a capability, and with it the connections that the session may use. Where it can't
    /// leave the one that it has, the server has to agree.
    pub(crate) fn set_option(&mut self) -> bool {
        if self.session.wanted_capabilities().is_none() {
            self.pools.reply_error(self.ctx, self.session, error::UNKNOWN_COM_ERROR, "Unknown command");
            self.command_done();
            return true;
        }
        if self.session.lease().is_some() {
            let execution = &mut self.session.execution;
            execution.plan = ExecutionPlan::of_command(CommandKind::SetOption).reading(true);
            return self.start();
        }
        if let Some(retained_on) = self.session.diagnostics.retained_on.take() {
            // It would be lent to the session again, with the option as it was.
            self.pools.fetch_retained(self.ctx, self.session, retained_on);
        }
        self.pools.assume_option(self.session);
        let session = &*self.session;
        let (capabilities, status) = (session.capabilities, session.status());
        let mut sequence = 1;
        if let Some(buffer) = self.ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| {
                if capabilities.contains(Capabilities::DEPRECATE_EOF) {
                    OkPacket::new(OK_AS_EOF_HEADER, status).write(capabilities, out);
                } else {
                    EofPacket { warnings: 0, status }.write(out);
                }
            });
        }
        self.command_done();
        true
    }

    /// COM_PROCESS_INFO is SHOW PROCESSLIST, and goes its way.
    pub(crate) fn process_info(&mut self) -> bool {
        let session = &mut *self.session;
        let mut packet = Vec::new();
        weir_protocol::command::put_query(&mut packet, b"SHOW PROCESSLIST");
        let len = packet.len();
        session.input.inbox.splice(..session.input.command_bytes, packet);
        session.input.command_bytes = len;
        session.execution.text.is_bare = session.has_query_attributes();
        self.query()
    }

    /// COM_PROCESS_KILL is KILL with a connection id.
    pub(crate) fn process_kill(&mut self) -> bool {
        let session = &*self.session;
        let id = session.input.inbox.get(HEADER_LEN + 1..session.input.command_bytes).unwrap_or_default();
        let Ok(id) = <[u8; 4]>::try_from(id) else {
            self.pools.reply_error(
                self.ctx,
                self.session,
                error::MALFORMED_PACKET,
                "Malformed communication packet",
            );
            self.command_done();
            return true;
        };
        match self.kill(&KillTarget::Connection(u32::from_le_bytes(id).into()), false) {
            Outcome::Asked => {}
            Outcome::Answered | Outcome::Run => self.answered_here(),
        }
        false
    }

    /// COM_STATISTICS: a line of text, in the words of servers as far as they fit.
    pub(crate) fn statistics(&mut self) {
        self.ctx.publish_questions();
        let questions: u64 =
            self.ctx.shared.mailboxes.iter().map(|mailbox| mailbox.questions.load(Ordering::Relaxed)).sum();
        let uptime_s = (self.ctx.now - self.ctx.started_at) / 1_000_000_000;
        let threads = self.ctx.shared.clients.load(Ordering::Relaxed);
        let average = questions as f64 / uptime_s.max(1) as f64;
        let text = format!(
            "Uptime: {uptime_s}  Threads: {threads}  Questions: {questions}  Queries per second avg: {average:.3}"
        );
        let mut sequence = 1;
        if let Some(buffer) = self.ctx.out.buffer(self.session.socket) {
            frame::write_packet(buffer, &mut sequence, text.as_bytes());
        }
    }
}

impl Context {
    /// Lets the other workers know how many commands have come; once a second is often enough.
    pub(crate) fn publish_questions(&self) {
        self.shared.mailboxes[self.worker]
            .questions
            .store(self.statistics.totals.questions, Ordering::Relaxed);
    }
}

impl Pools {
    /// Commands that are about a server itself are none of a client's business here: which one would it be? They get
    /// what a server tells those who may not. The rest no server knows, or not any more.
    pub(crate) fn refuse_command(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        command: Option<Command>,
    ) {
        let privilege = match command {
            Some(Command::Shutdown) => "SHUTDOWN",
            Some(Command::Refresh) => "RELOAD",
            Some(Command::Debug) => "SUPER",
            Some(Command::BinlogDump | Command::BinlogDumpGtid | Command::RegisterSlave) => {
                "REPLICATION SLAVE"
            }
            _ => return self.reply_error(ctx, session, error::UNKNOWN_COM_ERROR, "Unknown command"),
        };
        let name = command.map_or("", Command::name);
        let message = format!(
            "Access denied; you need (at least one of) the {privilege} privilege(s) for this operation \
             ({name} does not pass Weir)"
        );
        self.reply_error(ctx, session, error::SPECIFIC_ACCESS_DENIED, &message);
    }

    /// A session with schema_locked stays in the schema of its login: the error is that of a user without the right to
    /// any other.
    pub(crate) fn refuse_schema(&mut self, ctx: &mut Context, session: &mut Session) {
        let message = format!(
            "The schema of user '{}' is locked (schema_locked): the session stays in '{}'",
            session.account.as_ref().map_or("", |account| &account.user.username),
            String::from_utf8_lossy(session.tracked.state.schema())
        );
        self.reply_error(ctx, session, error::DB_ACCESS_DENIED, &message);
    }
}
