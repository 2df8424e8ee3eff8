//! Looking after connections and transactions, once a second: idle connections that need a ping, are too many or too
//! old, connections opened in advance, transactions that take too long.

use weir_protocol::command;
use weir_session::pin::Pins;

use super::Core;
use super::model::{BackendKey, Expected, Nanos, Phase, Poison, Purpose, ServerIndex, SessionKey, Stage};
use crate::outbox::{Owner, SocketId};

/// A server that has not answered a statement of Weir's own after this time hangs. These statements take no time and
/// wait for no lock.
const OWN_REPLY_NS: Nanos = 10_000_000_000;
/// Connections that a worker opens in advance to one server in a second.
const WARMED_AT_ONCE: usize = 16;

impl Core {
    /// Closes, pings and opens connections.
    pub(super) fn look_over_connections(&mut self) {
        for server in 0..self.servers.len() {
            let keep = self.idle_to_keep(server);
            self.look_over_idle(server, keep);
            if self.servers[server].server.care.is_warmed {
                self.warm(server, keep);
            }
        }
    }

    /// This worker's part of free_connections_pct of a server's max_connections.
    fn idle_to_keep(&self, server: ServerIndex) -> usize {
        let server = &self.servers[server].server;
        let keep = u64::from(server.max_connections) * u64::from(server.care.free_connections_pct) / 100;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        keep.div_ceil(self.shared.mailboxes.len().max(1))
    }

    fn look_over_idle(&mut self, server: ServerIndex, keep: usize) {
        let ping_after = self.snapshot.variables.ping_interval_server_msec.as_nanos() as Nanos;
        let surplus = self.servers[server].idle.len().saturating_sub(keep);
        let takes_work = self.servers[server].takes_work();
        // From the end, so that what is discarded moves nobody who is still to be looked at.
        for at in (0..self.servers[server].idle.len()).rev() {
            let Some(&key) = self.servers[server].idle.get(at) else { continue };
            let backend = &self.backends[key];
            let idle_for = self.now.saturating_sub(backend.idle_since);
            let is_surplus = at < surplus && idle_for > ping_after;
            let is_too_old = self.is_too_old(key);
            if !takes_work || is_surplus || is_too_old {
                self.retire(key, if is_too_old { Poison::Aged } else { Poison::Stale });
            } else if ping_after > 0 && idle_for > ping_after && backend.expected.is_empty() {
                self.ping(key);
            }
        }
    }

    fn ping(&mut self, key: BackendKey) {
        self.backends[key].idle_since = self.now;
        let socket = self.backends[key].socket;
        if let Some(buffer) = self.out.buffer(socket) {
            command::put_ping(buffer);
        }
        self.expect(key, Expected::Ping);
        let timeout = self.snapshot.variables.ping_timeout_server.as_nanos() as Nanos;
        self.timers.ping(socket, self.now + timeout);
    }

    /// A ping may have been answered long ago. One that was not means that nothing else will be, either.
    pub(super) fn ping_timed_out(&mut self, socket: SocketId) {
        let Some(Owner::Backend(key)) = self.out.owner(socket) else { return };
        let backend = &mut self.backends[key];
        if !backend.expected.iter().any(|expected| matches!(expected, Expected::Ping)) {
            return;
        }
        let server = self.servers[backend.server].server.endpoint.clone();
        tracing::warn!(server, "an idle connection does not answer within ping_timeout_server: closing it");
        self.shared.suspect(&server);
        self.backends[key].poison = Some(Poison::Silent);
        self.backend_gone(key);
    }

    /// Gives up connections on which a statement of Weir's own is not answered.
    pub(super) fn give_up_hung(&mut self) {
        let is_own = |expected: &Expected| {
            matches!(
                expected,
                Expected::Setup
                    | Expected::Defaults(_)
                    | Expected::Sync(_)
                    | Expected::Reset
                    | Expected::Verify
                    | Expected::InsertId
                    | Expected::FoundRows
                    | Expected::Leave
                    | Expected::Settle(_)
                    | Expected::Fetch(_)
            )
        };
        let is_hung = |backend: &super::model::Backend| {
            backend.stage == Stage::Ready
                && backend.expected.front().is_some_and(is_own)
                && self.now.saturating_sub(backend.asked_at) > OWN_REPLY_NS
        };
        let hung: Vec<BackendKey> =
            self.backends.iter().filter(|(_, backend)| is_hung(backend)).map(|(key, _)| key).collect();
        for key in hung {
            let Some(backend) = self.backends.get_mut(key) else { continue };
            backend.poison = Some(Poison::Silent);
            let server = self.servers[backend.server].server.endpoint.clone();
            tracing::warn!(server, "a connection does not answer what Weir asks: closing it");
            self.shared.suspect(&server);
            self.backend_gone(key);
        }
    }

    /// Opens connections in advance, as the user who has one already: whoever else comes can take them over.
    fn warm(&mut self, server: ServerIndex, keep: usize) {
        let pool = &self.servers[server];
        if !pool.takes_work() || pool.failures > 0 {
            return;
        }
        let missing = keep.saturating_sub(pool.open as usize).min(WARMED_AT_ONCE);
        let is_model = |purpose: Purpose, stage| purpose == Purpose::Pool && stage == Stage::Ready;
        let model = self
            .backends
            .iter()
            .find(|(_, backend)| backend.server == server && is_model(backend.purpose, backend.stage))
            .map(|(_, backend)| backend.identity);
        let Some(identity) = model else { return };
        let is_in = |group: &super::Group| group.members.iter().any(|member| member.server == server);
        let Some(hostgroup) = self.groups.iter().find(|(_, group)| is_in(group)).map(|(id, _)| *id) else {
            return;
        };
        for _ in 0..missing {
            if self.may_open(server, Some(hostgroup)) != Ok(true) {
                return;
            }
            self.dial_as(server, identity, hostgroup);
        }
    }

    /// Ends sessions whose transaction takes longer than max_transaction_time, or that are silent in one for
    /// max_transaction_idle_time: what they have locked is in everybody's way. Only sessions with a lease are looked at.
    pub(super) fn look_over_transactions(&mut self) {
        let variables = &self.snapshot.variables;
        let time_max = variables.max_transaction_time.as_nanos() as Nanos;
        let idle_max = variables.max_transaction_idle_time.as_nanos() as Nanos;
        let holders = self.backends.iter().filter_map(|(_, backend)| backend.holder);
        let overdue = |key: SessionKey| {
            let session = &self.sessions[key];
            let is_idle = matches!(session.phase, Phase::Idle);
            if !session.pins.pins().contains(Pins::TRANSACTION) {
                None
            } else if is_idle && self.now.saturating_sub(session.last_active_at) > idle_max {
                Some((key, "max_transaction_idle_time"))
            } else if self.now.saturating_sub(session.transaction_since) > time_max {
                Some((key, "max_transaction_time"))
            } else {
                None
            }
        };
        let overdue: Vec<(SessionKey, &str)> = holders.filter_map(overdue).collect();
        for (key, limit) in overdue {
            tracing::warn!(
                session = self.sessions[key].id,
                program = self.sessions[key].program(),
                limit,
                "session closed: its transaction takes too long"
            );
            if matches!(self.sessions[key].phase, Phase::Idle) {
                self.close_session(key);
            } else {
                self.abandon(key);
                self.forget_session(key);
            }
        }
    }
}
