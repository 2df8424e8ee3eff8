//! Holds writes while this Weir does not know for sure which server is the writer: several Weirs in front of a cluster
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

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::pool::pools::{NO_WRITE_LEASE, Pool, Pools};
use crate::server::connection::DiscardReason;
use crate::server::errors::LEASE_LOST;
use crate::server::errors::OUTCOME_UNKNOWN;
use crate::session::Session;
use crate::session::execution::Execution;
use crate::session::phase::Phase;
use crate::work::Work;

/// How often it is looked whether the lease has been extended.
const LOOK_EVERY_NS: Nanos = 5_000_000;

impl Pool {
    /// When what is on its way to the server has to be looked at.
    pub(crate) fn lapses_at(&self) -> Nanos {
        if self.has_lost_write_lease {
            Nanos::MAX
        } else {
            self.server.shared.writes_until_ns.load(Ordering::Acquire)
        }
    }
}

impl Work<'_> {
    /// Whether what flows to a server may go on; if not, the session is over.
    pub(crate) fn may_flow(&mut self, lease: ConnectionKey) -> bool {
        let may =
            self.pools.may_send(self.ctx, self.pools.connections[lease].server, &self.session.execution);
        if !may {
            self.give_up_late(lease);
        }
        may
    }

    /// Ends a statement that has not gone out whole in time, with its connection and its session.
    pub(crate) fn give_up_late(&mut self, lease: ConnectionKey) {
        let endpoint = &self.pools.servers[self.pools.connections[lease].server].server.endpoint;
        let session = &*self.session;
        let is_incomplete = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        let (error, fate) = match is_incomplete {
            true => (LEASE_LOST, "it had no effect"),
            false => (OUTCOME_UNKNOWN, "it may or may not have taken effect"),
        };
        let pins = session.all_pins();
        let state = if pins.is_empty() { String::new() } else { format!(", lost with it: {}", pins.words()) };
        let message =
            format!("{endpoint}: {NO_WRITE_LEASE}; the statement was still under way{state}: {fate}");
        let file_at = session.input.infile.as_deref().map(crate::session::infile::Infile::next_sequence);
        self.ctx.out.abort(self.pools.connections[lease].socket);
        self.pools.connections[lease].holder = None;
        self.pools.discard(self.ctx, lease, Some(DiscardReason::Lapsed));
        self.hear();
        self.session.lose_lease();
        match file_at {
            Some(sequence) => self.break_off(Some(sequence), error, &message),
            None => self.fail_session(error, &message),
        }
    }

    /// Keeps a statement back that is ready to be sent and may not be; true if it was. What has to stay on its connection
    /// waits there, the rest looks for a server anew.
    pub(crate) fn keep_back(&mut self, lease: ConnectionKey) -> bool {
        let server = self.pools.connections[lease].server;
        let may_replay = !self.session.is_to_replay()
            || self.pools.servers[server].server.shared.may_write_at(self.ctx.now);
        if may_replay && self.pools.may_send(self.ctx, server, &self.session.execution) {
            return false;
        }
        if self.session.is_to_replay() && self.session.input.upload.is_none() {
            // It may run again wherever it may be written.
            self.discard_lease(lease);
            self.session.begin_replay_anew(self.ctx.now);
            self.look_elsewhere();
            return true;
        }
        if self.session.is_wrapped() && self.session.may_write_begin_anew() {
            // The same for a write that is not committed yet.
            self.discard_lease(lease);
            self.unwrap_write();
            self.look_elsewhere();
            return true;
        }
        if self.pools.stays(self.session) || self.session.input.upload.is_some() {
            let session = &mut *self.session;
            let kept_back_since = &mut session.execution.tries.kept_back_since;
            if *kept_back_since == 0 {
                *kept_back_since = self.ctx.now;
            }
            let since = *kept_back_since;
            session.phase = Phase::waiting(since);
            self.pools.parked.extend(session.waiter());
            self.ctx.timers.unpark(self.ctx.now + LOOK_EVERY_NS);
            return true;
        }
        self.pools.detach(self.ctx, self.session);
        self.session.phase = Phase::waiting(self.ctx.now);
        self.pools.offer(self.ctx, lease);
        self.hear();
        self.acquire();
        true
    }
}

impl Pools {
    /// Whether the session's statement may be sent to a server now.
    pub(crate) fn may_send(&self, ctx: &Context, server: ServerIndex, execution: &Execution) -> bool {
        self.servers[server].server.shared.may_write_at(ctx.now) || !execution.plan.may_have_effects()
    }
}

impl Pools {
    /// Why a statement waits that has its connection, for people.
    pub(crate) fn why_kept_back(&self, session: &Session) -> Option<String> {
        let server = self.connections.get(session.lease()?)?.server;
        Some(format!("{}: {NO_WRITE_LEASE}", self.servers[server].server.endpoint))
    }
}
