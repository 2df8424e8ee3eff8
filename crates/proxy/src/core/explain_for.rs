//! EXPLAIN FOR CONNECTION, SHOW EXPLAIN FOR, SHOW ANALYZE FOR: the plan of what another session runs. A client names it by
//! Weir's connection id, its server by the server's.

use weir_protocol::error::{self, ServerError};
use weir_sql::Kind;

use super::Core;
use super::local::Outcome;
use super::model::{Phase, SessionKey};
use crate::session_id;

/// ER_TARGET_NOT_EXPLAINABLE of MariaDB, ER_EXPLAIN_NOT_SUPPORTED of MySQL.
const NOTHING_TO_EXPLAIN: [ServerError; 2] =
    [ServerError { code: 1933, sqlstate: *b"HY000" }, ServerError { code: 3012, sqlstate: *b"HY000" }];

impl Core {
    /// Whether the session's statement asks for the plan of a session of Weir's.
    pub(super) fn asks_for_plan(&self, key: SessionKey) -> bool {
        let kind = self.sessions[key].work.statement.kind;
        matches!(kind, Kind::Explain | Kind::Show | Kind::Analyze) && self.named_session(key).is_some()
    }

    /// Sends such a statement to the server that runs the other session's.
    pub(super) fn explain_for(&mut self, key: SessionKey) -> Option<Outcome> {
        if !self.asks_for_plan(key) {
            return None;
        }
        let (id, digits) = self.named_session(key)?;
        let workers = self.shared.mailboxes.len();
        let target = self.ids.get(&id).and_then(|target| self.sessions.get(*target));
        let Some(target) = target else {
            if session_id::worker_of(id, workers) == Some(self.worker) {
                self.reply_error(key, error::NO_SUCH_THREAD, &format!("Unknown thread id: {id}"));
            } else {
                let message = format!(
                    "Connection {id} belongs to another worker of Weir's, which knows its server; ask the server itself, by \
                     the id in its information_schema.processlist"
                );
                self.refuse(key, &message);
            }
            return Some(Outcome::Answered);
        };
        let running = target.lease.filter(|_| matches!(target.phase, Phase::Running));
        let Some(lease) = running else {
            let [mariadb, mysql] = NOTHING_TO_EXPLAIN;
            let error = if self.speaks_mariadb(key) { mariadb } else { mysql };
            self.reply_error(key, error, &format!("Connection {id} runs no statement on a server"));
            return Some(Outcome::Answered);
        };
        let (backend, session) = (&self.backends[lease], &self.sessions[key]);
        let server = backend.server;
        if session.lease.is_some_and(|own| self.backends[own].server != server) {
            let endpoint = &self.servers[server].server.endpoint;
            let message = format!(
                "Connection {id} runs its statement on {endpoint}, and this session is held elsewhere"
            );
            self.refuse(key, &message);
            return Some(Outcome::Answered);
        }
        let (text, hostgroup) = (self.text(key), backend.hostgroup);
        let id_there = backend.greeted.thread_id.to_string();
        let rewritten = [&text[..digits.start], id_there.as_bytes(), &text[digits.end..]].concat();
        let work = &mut self.sessions[key].work;
        work.rewritten = Some(rewritten);
        work.only_server = Some(server);
        work.served_by = hostgroup;
        Some(Outcome::Run)
    }

    /// The id of Weir's that the session's statement, which must be nothing else, names behind FOR or FOR CONNECTION, and
    /// where.
    fn named_session(&self, key: SessionKey) -> Option<(u32, std::ops::Range<usize>)> {
        let session = &self.sessions[key];
        if session.work.statement.multi || session.upload.is_some() {
            return None;
        }
        let (id, digits) = weir_sql::explained_connection(self.text(key), session.dialect)?;
        session_id::worker_of(id, self.shared.mailboxes.len())?;
        Some((id, digits))
    }
}
