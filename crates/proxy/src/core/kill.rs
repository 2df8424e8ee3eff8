//! KILL: of statements whose client is gone or whose time is up, and of sessions by other clients.
//!
//! A KILL names a server's thread, and by the time it arrives the thread may run something else. So a connection
//! with a KILL under way is fenced: it runs nothing further until the server has confirmed the KILL.

use weir_protocol::error;

use super::Core;
use super::local::KILL_DENIED;
use super::model::{BackendKey, Expected, Kill, Phase, Poison, Purpose, SessionKey};
use crate::shared::Message;

impl Core {
    /// Sends a KILL against what runs on a connection, over a connection of its own.
    pub(super) fn kill_backend(&mut self, key: BackendKey, query_only: bool) {
        let backend = &mut self.backends[key];
        backend.kills_pending += 1;
        let kill = Kill {
            victim: key,
            victim_socket: backend.socket,
            thread_id: backend.greeted.thread_id,
            query_only,
        };
        let (server, identity) = (backend.server, backend.identity);
        self.dial_kill(server, identity, kill);
    }

    /// The connection for a KILL is logged in.
    pub(super) fn send_kill(&mut self, key: BackendKey, kill: Kill) {
        let what = if kill.query_only { "QUERY" } else { "CONNECTION" };
        self.send_query(key, format!("KILL {what} {}", kill.thread_id).as_bytes());
        self.expect(key, Expected::Kill);
    }

    /// The server has answered a KILL: it has struck, or never will.
    pub(super) fn kill_sent(&mut self, key: BackendKey) {
        let Purpose::Kill(kill) = self.backends[key].purpose else { return };
        self.discard(key, None);
        self.kill_over(kill);
    }

    /// A KILL could not be sent, or was not answered: then it may still strike at any time, and its victim must
    /// not come to anybody else.
    pub(super) fn kill_failed(&mut self, kill: Kill, was_sent: bool) {
        if was_sent && self.backend_is(kill.victim, kill.victim_socket) {
            self.backends[kill.victim].poison.get_or_insert(Poison::KillAstray);
        }
        self.kill_over(kill);
    }

    fn kill_over(&mut self, kill: Kill) {
        if !self.backend_is(kill.victim, kill.victim_socket) {
            return;
        }
        let victim = &mut self.backends[kill.victim];
        victim.kills_pending -= 1;
        if victim.kills_pending > 0 {
            return;
        }
        if victim.poison == Some(Poison::ClientGone) {
            return self.discard(kill.victim, Some(Poison::ClientGone));
        }
        if victim.holder.is_some() {
            self.converge(kill.victim);
        } else if victim.expected.is_empty() {
            self.offer(kill.victim);
        }
    }

    /// A statement has run longer than default_query_timeout.
    pub(super) fn statement_timed_out(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let (Phase::Running, Some(lease)) = (&session.phase, session.lease) else { return };
        if std::mem::replace(&mut session.work.deadline_passed, true) {
            return;
        }
        let timeout_ms = self.snapshot.variables.default_query_timeout.as_millis();
        tracing::warn!(session = session.id, timeout_ms, "statement runs too long: killing it");
        self.kill_backend(lease, true);
    }

    /// KILL by a client: `id` is a connection id of Weir's.
    pub(super) fn kill_by_id(&mut self, key: SessionKey, id: u64, query_only: bool) {
        let workers = self.shared.mailboxes.len().max(1) as u64;
        let user = self.sessions[key].account.clone();
        let Ok(session) = u32::try_from(id) else {
            return self.reply_error(key, error::NO_SUCH_THREAD, &format!("Unknown thread id: {id}"));
        };
        let worker = (id % workers) as usize;
        if worker != self.worker {
            // Whether the id exists is known over there only; a KILL of nobody does no harm.
            let user = user.map(|account| account.user.username.clone()).unwrap_or_default();
            self.shared.mailboxes[worker].send(Message::Kill { session, query_only, user });
            return self.reply_ok(key);
        }
        let name = user.map(|account| account.user.username.clone()).unwrap_or_default();
        match self.find_victim(session, &name) {
            Ok(victim) if victim == key => {
                self.reply_error(key, error::QUERY_INTERRUPTED, "Query execution was interrupted");
                self.sessions[key].close_when_done = !query_only;
            }
            Ok(victim) => {
                self.strike(victim, query_only);
                self.reply_ok(key);
            }
            Err((error, message)) => self.reply_error(key, error, &message),
        }
    }

    /// KILL from another worker's client.
    pub(super) fn kill_session(&mut self, session: u32, query_only: bool, user: &str) {
        if let Ok(victim) = self.find_victim(session, user) {
            self.strike(victim, query_only);
        }
    }

    /// The session with this id. A user may kill its own sessions only: Weir knows no privileges.
    fn find_victim(&self, id: u32, user: &str) -> Result<SessionKey, (error::ServerError, String)> {
        let found = self.sessions.iter().find(|(_, session)| session.id == id);
        let Some((key, session)) = found else {
            return Err((error::NO_SUCH_THREAD, format!("Unknown thread id: {id}")));
        };
        match &session.account {
            Some(account) if account.user.username == user => Ok(key),
            _ => Err((KILL_DENIED, format!("You are not owner of thread {id}"))),
        }
    }

    fn strike(&mut self, victim: SessionKey, query_only: bool) {
        let session = &self.sessions[victim];
        if !query_only {
            tracing::info!(session = session.id, "session killed");
            self.abandon(victim);
            return self.forget_session(victim);
        }
        if let (Phase::Running, Some(lease)) = (&session.phase, session.lease) {
            self.kill_backend(lease, true);
        } else if matches!(session.phase, Phase::Waiting(_)) {
            self.leave_queues(victim);
            self.reply_error(victim, error::QUERY_INTERRUPTED, "Query execution was interrupted");
            self.answered_here(victim);
        }
    }
}
