//! Writes wait while this Weir does not know for sure which server is the writer: several Weirs in front of a cluster
//! agree on that for a time, the lease, which the monitor extends.

use weir_sql::Kind;

use super::Core;
use super::model::{BackendKey, Nanos, Phase, ServerIndex, SessionKey, Work};

/// How often it is looked whether the lease has been extended.
const LOOK_EVERY_NS: Nanos = 5_000_000;

/// For people.
pub(super) const LAPSED: &str = "it could not be confirmed in time that it still is the writer (weir.topology, or with auto_failover the servers themselves), another Weir may have moved the role";

impl Work {
    /// Whether it may change something on a server.
    pub(super) fn may_have_effects(&self) -> bool {
        let only_undoes = self.statement.kind == Kind::Rollback && !self.statement.multi;
        !self.is_read && !self.kind.is_harmless() && !only_undoes
    }

    /// Whether it begins or ends a transaction. Where none is open, that begins one that is lost with the connection, or
    /// ends none.
    pub(super) fn is_boundary(&self) -> bool {
        let kind = self.statement.kind;
        let begins_or_ends =
            matches!(kind, Kind::Begin | Kind::StartTransactionReadOnly | Kind::Commit | Kind::Rollback);
        begins_or_ends && !self.statement.multi
    }

    /// Whether the client's statement may have had an effect on the server that has not answered it.
    pub(super) fn may_have_run(&self) -> bool {
        self.is_sent && !self.is_read && !self.kind.is_harmless()
    }
}

impl Core {
    /// Whether the session's statement may be sent to a server now.
    pub(super) fn may_send(&self, server: ServerIndex, work: &Work) -> bool {
        self.servers[server].server.shared.may_write_at(self.now) || !work.may_have_effects()
    }

    /// Keeps a statement back that is ready to be sent and may not be; true if it was. What has to stay on its connection
    /// waits there, the rest looks for a server anew.
    pub(super) fn keep_back(&mut self, lease: BackendKey, holder: SessionKey) -> bool {
        let server = self.backends[lease].server;
        if self.may_send(server, &self.sessions[holder].work) {
            return false;
        }
        if self.stays(holder) || self.sessions[holder].upload.is_some() {
            let session = &mut self.sessions[holder];
            let since = *session.work.kept_back_since.get_or_insert(self.now);
            session.phase = Phase::Waiting(since);
            self.parked.push_back((holder, session.socket));
            self.timers.unpark(self.now + LOOK_EVERY_NS);
            return true;
        }
        self.keep(lease, holder);
        let session = &mut self.sessions[holder];
        session.lease = None;
        session.phase = Phase::Waiting(self.now);
        self.backends[lease].holder = None;
        self.offer(lease);
        self.acquire(holder);
        true
    }

    /// Why a statement waits that has its connection, for people.
    pub(super) fn why_kept_back(&self, key: SessionKey) -> Option<String> {
        let server = self.backends.get(self.sessions[key].lease?)?.server;
        Some(format!("{}: {LAPSED}", self.servers[server].server.endpoint))
    }
}
