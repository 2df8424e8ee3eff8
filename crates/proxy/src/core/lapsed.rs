//! Writes wait while this Weir does not know for sure which server is the writer: several Weirs in front of a cluster
//! agree on that for a time, the lease, which the monitor extends.
//!
//! What may have effects and is on its way when the lease lapses is not to arrive later, when others may have another
//! writer:
//!
//! | on its way | so |
//! | --- | --- |
//! | a command that is not complete yet | it ends with its connection, and has had no effect |
//! | a file of LOAD DATA LOCAL; a statement that the system has not taken from Weir yet | the same, but nobody knows (08007) |
//! | a statement that the system has | what the server has not acknowledged is not sent again: the connection ends, and nobody knows |
//!
//! What the server has when the lease lapses may run on there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_sql::Kind;

use super::Core;
use super::Pool;
use super::backend::{LEASE_LOST, OUTCOME_UNKNOWN};
use super::model::{BackendKey, Expected, Nanos, Phase, Poison, ServerIndex, SessionKey, Work};
use crate::outbox::Order;

/// How often it is looked whether the lease has been extended.
const LOOK_EVERY_NS: Nanos = 5_000_000;

/// Within so much time a server has to acknowledge what is on its way to it when its lease lapses. Looked at only when the
/// system would send it once more.
const LATE_BYTES: Duration = Duration::from_millis(1);

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

impl Pool {
    /// When what is on its way to the server has to be looked at.
    pub(super) fn lapses_at(&self) -> Nanos {
        if self.has_lapsed { Nanos::MAX } else { self.server.shared.writes_until_ns.load(Ordering::Acquire) }
    }
}

impl Core {
    /// Sees to what is on its way to servers whose lease has lapsed since this was looked at last.
    pub(super) fn look_at_leases(&mut self) {
        for server in 0..self.servers.len() {
            let has_lapsed = !self.servers[server].server.shared.may_write_at(self.now);
            if std::mem::replace(&mut self.servers[server].has_lapsed, has_lapsed) != has_lapsed && has_lapsed
            {
                self.stop_late_writes(server);
            }
        }
    }

    fn stop_late_writes(&mut self, server: ServerIndex) {
        let is_under_way = |lease: BackendKey, holder: SessionKey| {
            let session = &self.sessions[holder];
            let backend = &self.backends[lease];
            let is_owed = backend.expected.iter().any(|expected| matches!(expected, Expected::Relay));
            is_owed && session.lease == Some(lease) && session.work.is_sent && session.work.may_have_effects()
        };
        let of_server = self.backends.iter().filter(|(_, backend)| backend.server == server);
        let held = of_server.filter_map(|(lease, backend)| Some((lease, backend.holder?)));
        let under_way: Vec<_> = held.filter(|(lease, holder)| is_under_way(*lease, *holder)).collect();
        for (lease, holder) in under_way {
            let session = &self.sessions[holder];
            let socket = self.backends[lease].socket;
            let is_flowing = session.upload.as_ref().is_some_and(|upload| upload.is_flowing);
            if is_flowing || session.infile.is_some() || self.out.backlog_bytes(socket) > 0 {
                self.give_up_late(lease, holder);
            } else {
                self.backends[lease].is_hurried = true;
                self.out.order(Order::AcknowledgeWithin(socket, LATE_BYTES));
            }
        }
    }

    /// The session's statement is answered: its connection has all the time again.
    pub(super) fn end_hurry(&mut self, lease: BackendKey) {
        let backend = &mut self.backends[lease];
        if std::mem::take(&mut backend.is_hurried) {
            self.out.order(Order::AcknowledgeWithin(backend.socket, Duration::ZERO));
        }
    }

    /// Whether what flows to a server may go on; if not, the session is over.
    pub(super) fn may_flow(&mut self, lease: BackendKey, holder: SessionKey) -> bool {
        let may = self.may_send(self.backends[lease].server, &self.sessions[holder].work);
        if !may {
            self.give_up_late(lease, holder);
        }
        may
    }

    /// Ends a statement that has not gone out whole in time, with its connection and its session.
    fn give_up_late(&mut self, lease: BackendKey, holder: SessionKey) {
        let endpoint = &self.servers[self.backends[lease].server].server.endpoint;
        let session = &self.sessions[holder];
        let is_incomplete = session.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        let (error, fate) = match is_incomplete {
            true => (LEASE_LOST, "it had no effect"),
            false => (OUTCOME_UNKNOWN, "it may or may not have taken effect"),
        };
        let pins = session.all_pins();
        let state =
            if pins.is_empty() { String::new() } else { format!(", and with it ends: {}", pins.words()) };
        let message = format!("{endpoint}: {LAPSED}; the statement was still on its way{state}: {fate}");
        let file_at = session.infile.as_deref().map(super::infile::Infile::next_sequence);
        self.out.abort(self.backends[lease].socket);
        self.backends[lease].holder = None;
        self.discard(lease, Some(Poison::Lapsed));
        self.lose_lease(holder);
        match file_at {
            Some(sequence) => self.break_off(holder, Some(sequence), error, &message),
            None => self.fail_session(holder, error, &message),
        }
    }

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
        self.detach(holder);
        self.sessions[holder].phase = Phase::Waiting(self.now);
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
