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

    /// The id of Weir's that stands behind FOR or FOR CONNECTION at the end of the session's statement, and where.
    fn named_session(&self, key: SessionKey) -> Option<(u32, std::ops::Range<usize>)> {
        let (id, digits) = named_connection(self.text(key))?;
        session_id::worker_of(id, self.shared.mailboxes.len())?;
        Some((id, digits))
    }
}

fn named_connection(text: &[u8]) -> Option<(u32, std::ops::Range<usize>)> {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';';
    let end = text.iter().rposition(|byte| !is_end(byte))? + 1;
    let start = text[..end].iter().rposition(|byte| !byte.is_ascii_digit())? + 1;
    let id = std::str::from_utf8(&text[start..end]).ok()?.parse().ok()?;
    let mut words = text[..start].split(u8::is_ascii_whitespace).rev().filter(|word| !word.is_empty());
    let mut last = words.next().filter(|_| text[start - 1].is_ascii_whitespace())?;
    if last.eq_ignore_ascii_case(b"CONNECTION") {
        last = words.next()?;
    }
    last.eq_ignore_ascii_case(b"FOR").then_some((id, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_is_meant_is_the_last_word() {
        for (text, found) in [
            ("EXPLAIN FOR CONNECTION 3000000017", Some((3_000_000_017, 23..33))),
            ("explain format=json for connection  3000000017 ;\n", Some((3_000_000_017, 36..46))),
            ("SHOW EXPLAIN FOR 5", Some((5, 17..18))),
            ("ANALYZE FORMAT=JSON FOR CONNECTION 5", Some((5, 35..36))),
            ("SHOW ANALYZE FORMAT=JSON FOR 5", Some((5, 29..30))),
            ("EXPLAIN SELECT 5", None),
            ("EXPLAIN SELECT 1 FROM t WHERE a=5", None),
            ("SHOW EXPLAIN FOR", None),
            ("SHOW EXPLAIN FOR 99999999999", None),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(named_connection(text.as_bytes()), found, "{text}");
        }
    }
}
