//! Counts a statement that a server has answered: how long it took, and how it ended.

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::{Replies, ServerConnection};
use crate::session::Session;
use crate::session::execution::Ending;
use crate::stats::{DigestKey, ErrorKey, Execution};

impl Pools {
    /// A statement has been answered by a server.
    pub(crate) fn count_statement(&mut self, ctx: &mut Context, session: &mut Session, key: ConnectionKey) {
        self.connections[key].replies.note_answer(ctx, session);
        let execution = &mut session.execution;
        if !matches!(execution.plan.kind(), CommandKind::Query | CommandKind::Execute) {
            return;
        }
        execution.record.is_counted = true;
        let took_ns = ctx.now.saturating_sub(execution.record.begun_at);
        ctx.statistics.commands.count(execution.plan.statement().kind, took_ns);
        ctx.statistics.totals.slow_queries += u64::from(ctx.query_log.is_long(took_ns));
        let server = self.connections[key].server;
        let on_server_ns = ctx.now.saturating_sub(execution.tries.started_at);
        ctx.statistics.totals.server_time_ns += on_server_ns;
        let counts = self.servers[server].counts.of(self.connections[key].hostgroup);
        counts.latency.record(on_server_ns / 1000);
        counts.latency_sum_us = counts.latency_sum_us.saturating_add(on_server_ns / 1000);
        if let Some(rule_id) = execution.plan.decision().rule_id {
            ctx.statistics.rules.count(rule_id, took_ns);
        }
        let Some(digest) = execution.digest else { return };
        let hostgroup = self.connections[key].hostgroup;
        let (rows_affected, rows_sent) = match execution.ending {
            Ending::Ok { affected_rows, has_rows: false, .. } => (affected_rows, 0),
            Ending::Ok { has_rows: true, .. } => (0, self.connections[key].replies.rows),
            Ending::Err(_) | Ending::None => (0, 0),
        };
        let caller = session.caller(ctx);
        let row = DigestKey { hostgroup, caller, digest };
        ctx.statistics.count(row, &Execution { took_ns, rows_affected, rows_sent }, ctx.now);
    }
}

impl ServerConnection {
    /// A server has answered a session's command with an error.
    pub(crate) fn count_error(&self, ctx: &mut Context, session: &mut Session, code: u16, message: &[u8]) {
        let caller = session.caller(ctx);
        let ServerConnection { server, hostgroup, .. } = *self;
        session.execution.note_error_text(ctx, message);
        let row = ErrorKey { hostgroup, server, caller, code };
        ctx.statistics.errors.count(row, message, ctx.now);
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
