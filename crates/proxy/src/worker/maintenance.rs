//! Looks after connections and transactions once a second: idle connections that need a ping, are too many or too old,
//! connections opened in advance, transactions that take too long.

use weir_config::SendProxyProtocol;
use weir_session::pin::Pins;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex, SessionKey};
use crate::outbox::{Owner, SocketId};
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::{DiscardReason, Expected, Purpose, Stage};
use crate::session::phase::Phase;
use crate::worker::Worker;

/// A server that has not answered a statement of Weir's own after this time hangs. These statements take no time and
/// wait for no lock.
const OWN_REPLY_NS: Nanos = 10_000_000_000;
/// Connections that a worker opens in advance to one server in a second.
const WARMED_AT_ONCE: usize = 16;

impl Worker {
    /// Ends sessions whose transaction takes longer than max_transaction_time, or that are silent in one for
    /// max_transaction_idle_time: what they have locked is in everybody's way. Only sessions with a lease are looked at.
    pub(crate) fn look_over_transactions(&mut self) {
        let variables = &self.ctx.snapshot.variables;
        let time_max = variables.max_transaction_time.as_nanos() as Nanos;
        let idle_max = variables.max_transaction_idle_time.as_nanos() as Nanos;
        let holders = self.pools.connections.iter().filter_map(|(_, connection)| connection.holder);
        let overdue = |key: SessionKey| {
            let session = &self.sessions[key];
            let is_idle = matches!(session.phase, Phase::Idle);
            if !session.pins.pins().contains(Pins::TRANSACTION) {
                None
            } else if is_idle && self.ctx.now.saturating_sub(session.times.last_active_at) > idle_max {
                Some((key, "max_transaction_idle_time"))
            } else if self.ctx.now.saturating_sub(session.transaction.since) > time_max {
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
                self.work(key).close_session();
            } else {
                self.work(key).abandon();
                self.work(key).forget();
            }
        }
    }
}

impl Pools {
    /// A ping may have been answered long ago. One that was not means that nothing else will be, either.
    pub(crate) fn ping_timed_out(&mut self, ctx: &Context, socket: SocketId) {
        let Some(Owner::Server(key)) = ctx.out.owner(socket) else { return };
        let connection = &mut self.connections[key];
        if !connection.replies.expected.iter().any(|expected| matches!(expected, Expected::Ping)) {
            return;
        }
        let server = self.servers[connection.server].server.endpoint.clone();
        tracing::warn!(server, "an idle connection does not answer within ping_timeout_server: closing it");
        ctx.shared.suspect(&server);
        self.connections[key].discard_reason = Some(DiscardReason::Silent);
        self.turns.push_back(Turn::Lost { connection: key, socket });
    }

    /// Gives up connections on which a statement of Weir's own is not answered.
    pub(crate) fn give_up_hung(&mut self, ctx: &Context) {
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
                    | Expected::UndoWrapped
                    | Expected::Number
                    | Expected::IsOpen
                    | Expected::Leave
                    | Expected::Settle(_)
                    | Expected::Carried
                    | Expected::Fetch(_)
            )
        };
        let is_hung = |connection: &crate::server::connection::ServerConnection| {
            connection.stage == Stage::Ready
                && connection.replies.expected.front().is_some_and(is_own)
                && ctx.now.saturating_sub(connection.replies.asked_at) > OWN_REPLY_NS
        };
        let hung: Vec<ConnectionKey> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_hung(connection))
            .map(|(key, _)| key)
            .collect();
        for key in hung {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let socket = connection.socket;
            connection.discard_reason = Some(DiscardReason::Silent);
            let server = self.servers[connection.server].server.endpoint.clone();
            tracing::warn!(server, "a connection does not answer Weir's own query: closing it");
            ctx.shared.suspect(&server);
            self.turns.push_back(Turn::Lost { connection: key, socket });
        }
    }

    /// Closes, pings and opens connections.
    pub(crate) fn look_over_connections(&mut self, ctx: &mut Context) {
        for server in 0..self.servers.len() {
            let keep = self.idle_to_keep(ctx, server);
            self.look_over_idle(ctx, server, keep);
            if self.servers[server].server.care.is_warmed {
                self.warm(ctx, server, keep);
            }
        }
    }

    fn look_over_idle(&mut self, ctx: &mut Context, server: ServerIndex, keep: usize) {
        let ping_after = ctx.snapshot.variables.ping_interval_server_msec.as_nanos() as Nanos;
        let surplus = self.servers[server].idle.len().saturating_sub(keep);
        let takes_work = self.servers[server].takes_work();
        // From the end, so that what is discarded moves nobody who is still to be looked at.
        for at in (0..self.servers[server].idle.len()).rev() {
            let Some(&key) = self.servers[server].idle.get(at) else { continue };
            let connection = &self.connections[key];
            let idle_for = ctx.now.saturating_sub(connection.age.idle_since);
            let is_surplus = at < surplus && idle_for > ping_after;
            let is_too_old = self.connections[key].age.is_too_old(ctx);
            if !takes_work || is_surplus || is_too_old {
                self.retire(ctx, key, if is_too_old { DiscardReason::Aged } else { DiscardReason::Stale });
            } else if ping_after > 0 && idle_for > ping_after && connection.replies.expected.is_empty() {
                self.connections[key].ping(ctx);
            }
        }
    }

    /// Opens connections in advance, as the user who has one already: whoever else comes can take them over.
    fn warm(&mut self, ctx: &mut Context, server: ServerIndex, keep: usize) {
        let pool = &self.servers[server];
        if !pool.takes_work() || pool.failures > 0 {
            return;
        }
        if pool.server.proxy_header != SendProxyProtocol::Off {
            return; // they would be of use to one client only
        }
        let missing = keep.saturating_sub(pool.open as usize).min(WARMED_AT_ONCE);
        let is_model = |purpose: Purpose, stage| purpose == Purpose::Pool && stage == Stage::Ready;
        let model = self
            .connections
            .iter()
            .find(|(_, connection)| {
                connection.server == server && is_model(connection.purpose, connection.stage)
            })
            .map(|(_, connection)| connection.principal());
        let Some(principal) = model else { return };
        let is_in =
            |group: &crate::pool::pools::Group| group.members.iter().any(|member| member.server == server);
        let Some(hostgroup) = self.groups.iter().find(|(_, group)| is_in(group)).map(|(id, _)| *id) else {
            return;
        };
        for _ in 0..missing {
            if self.may_open(ctx, server, Some(hostgroup)) != Ok(true) {
                return;
            }
            self.dial_for(ctx, server, principal, hostgroup);
        }
    }

    /// This worker's part of free_connections_pct of a server's max_connections.
    fn idle_to_keep(&self, ctx: &Context, server: ServerIndex) -> usize {
        let server = &self.servers[server].server;
        let keep = u64::from(server.max_connections) * u64::from(server.care.free_connections_pct) / 100;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        keep.div_ceil(ctx.shared.mailboxes.len().max(1))
    }
}
