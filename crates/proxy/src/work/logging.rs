//! Passes a statement that has ended to the logs.

use std::io::Write;

use weir_protocol::command::Command;
use weir_query_log::{Command as LoggedAs, Statement};

use crate::session::execution::Ending;
use crate::work::Work;

/// The error of statements whose client has left before they were answered (CR_SERVER_LOST, from the other side).
const CLIENT_LEFT: u16 = 2013;

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
        let lease = session.lease().filter(|_| was_sent && is_servers);
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
