//! Answers EXPLAIN FOR CONNECTION, SHOW EXPLAIN FOR and SHOW ANALYZE FOR, the plan of what another session runs. A
//! client names that session by Weir's connection id, its server by the server's.

use weir_protocol::error::{self, ServerError};
use weir_sql::Kind;

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::server::connection::Expected;
use crate::session::Session;
use crate::session_id;
use crate::work::Work;

/// ER_TARGET_NOT_EXPLAINABLE of MariaDB, ER_EXPLAIN_NOT_SUPPORTED of MySQL.
const NOTHING_TO_EXPLAIN: [ServerError; 2] =
    [ServerError { code: 1933, sqlstate: *b"HY000" }, ServerError { code: 3012, sqlstate: *b"HY000" }];

impl Work<'_> {
    /// Sends such a statement to the server that runs the other session's.
    pub(crate) fn explain_for(&mut self) -> Option<Outcome> {
        if !self.session.asks_for_plan(self.ctx) {
            return None;
        }
        let (id, digits) = self.session.named_session(self.ctx)?;
        let workers = self.ctx.shared.mailboxes.len();
        let Some(target) = self.ctx.ids.get(&id).copied() else {
            if session_id::worker_of(id, workers) == Some(self.ctx.worker) {
                self.pools.reply_error(
                    self.ctx,
                    self.session,
                    error::NO_SUCH_THREAD,
                    &format!("Unknown thread id: {id}"),
                );
            } else {
                let message = format!(
                    "Connection {id} belongs to another worker of Weir's, which knows its server; ask the server itself, by \
                     the id in its information_schema.processlist"
                );
                self.pools.refuse(self.ctx, self.session, &message);
            }
            return Some(Outcome::Answered);
        };
        let running = self.pools.connections.iter().find(|(_, connection)| {
            connection.holder == Some(target) && connection.replies.expected.iter().any(Expected::is_work)
        });
        let Some((lease, _)) = running else {
            let [mariadb, mysql] = NOTHING_TO_EXPLAIN;
            let error = if self.pools.speaks_mariadb(self.ctx, self.session) { mariadb } else { mysql };
            self.pools.reply_error(
                self.ctx,
                self.session,
                error,
                &format!("Connection {id} runs no statement on a server"),
            );
            return Some(Outcome::Answered);
        };
        let (connection, session) = (&self.pools.connections[lease], &*self.session);
        let server = connection.server;
        if session.lease().is_some_and(|own| self.pools.connections[own].server != server) {
            let endpoint = &self.pools.servers[server].server.endpoint;
            let message = format!(
                "Connection {id} runs its statement on {endpoint}, but this session is pinned to another server"
            );
            self.pools.refuse(self.ctx, self.session, &message);
            return Some(Outcome::Answered);
        }
        let (text, hostgroup) = (self.session.command_text(), connection.hostgroup);
        let id_there = connection.access.greeted.thread_id.to_string();
        let rewritten = [&text[..digits.start], id_there.as_bytes(), &text[digits.end..]].concat();
        let execution = &mut self.session.execution;
        execution.text.rewritten = Some(rewritten);
        execution.only_server = Some(Box::new(server));
        execution.served_by = hostgroup;
        Some(Outcome::Run)
    }
}

impl Session {
    /// Whether the session's statement asks for the plan of a session of Weir's.
    pub(crate) fn asks_for_plan(&self, ctx: &Context) -> bool {
        let kind = self.execution.plan.statement().kind;
        matches!(kind, Kind::Explain | Kind::Show | Kind::Analyze) && self.named_session(ctx).is_some()
    }

    /// The id of Weir's that the session's statement, which must be nothing else, names behind FOR or FOR CONNECTION, and
    /// where.
    fn named_session(&self, ctx: &Context) -> Option<(u32, std::ops::Range<usize>)> {
        if self.execution.plan.statement().multi || self.input.upload.is_some() {
            return None;
        }
        let (id, digits) = weir_sql::explained_connection(self.command_text(), self.tracked.dialect)?;
        session_id::worker_of(id, ctx.shared.mailboxes.len())?;
        Some((id, digits))
    }
}
