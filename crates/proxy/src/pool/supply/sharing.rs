//! Shares the right to open connections between workers: a server's max_connections is one number for all of them, and
//! who has none left asks the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_topology::ServerShared;

use super::{Nanos, RETRY_FIRST_NS};
use crate::context::Context;
use crate::keys::{ConnectionKey, ServerIndex};
use crate::pool::pools::{Pool, Pools};
use crate::shared::Message;

/// An idle connection that has not been needed for so long may go to another worker.
const SPARE_AFTER_NS: Nanos = 50_000_000;

impl Pools {
    /// This worker has its waiters too, but holds more than its share while another worker asks.
    pub(crate) fn gives_way(&mut self, ctx: &mut Context, server: ServerIndex, key: ConnectionKey) -> bool {
        // Else two workers could hand the right to a connection to and fro, and nobody would ever be served.
        let has_served = self.connections[key].age.has_served;
        has_served && self.exceeds_share(ctx, server) && self.give_to_other_worker(ctx, server, key)
    }

    /// Closes a connection and passes the right to open one on to a worker that asked for it. Where a session's
    /// diagnostics are to be fetched first, the connection is offered again afterwards. False if nobody asks.
    pub(crate) fn give_to_other_worker(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        key: ConnectionKey,
    ) -> bool {
        let Some(by) = self.servers[server].wanted_by.iter().next().copied() else { return false };
        self.tell_of_retained(ctx, key);
        if !self.connections[key].replies.expected.is_empty() {
            return true;
        }
        let pool = &mut self.servers[server];
        pool.wanted_by.remove(&by);
        pool.open -= 1;
        let server = pool.server.shared.clone();
        self.connections[key].has_credit = false;
        self.discard(ctx, key, None);
        ctx.shared.mailboxes[by].send(Message::Credit { server });
        true
    }

    /// Another worker asks.
    pub(crate) fn connection_wanted(&mut self, ctx: &mut Context, endpoint: &str, by: usize) {
        let Some(server) = self.server_index(endpoint) else { return };
        self.servers[server].wanted_by.insert(by);
        // The one that has been idle for longest; asked again and again, this worker can spare it some time.
        if let Some(&key) = self.servers[server].idle.first()
            && self.can_spare(ctx, server, key)
        {
            self.servers[server].idle.remove(0);
            self.give_to_other_worker(ctx, server, key);
        }
    }

    /// Another worker has given way.
    pub(crate) fn credit_given(&mut self, ctx: &mut Context, shared: &Arc<ServerShared>) {
        let is_it = |pool: &Pool| pool.is_current && Arc::ptr_eq(&pool.server.shared, shared);
        let Some(server) = self.servers.iter().position(is_it) else {
            // Of a server that is gone, or is at another address by now.
            shared.connections_open.fetch_sub(1, Ordering::AcqRel);
            return;
        };
        let pool = &mut self.servers[server];
        pool.has_asked = false;
        if pool.waiters.len() > (pool.dialing + pool.handovers) as usize && pool.is_current {
            self.dial(ctx, server);
        } else {
            pool.server.close_one();
        }
        self.supply(ctx, server);
    }

    /// The right to one more connection may have become free: try again, and ask again.
    pub(crate) fn retry_supply(&mut self, ctx: &mut Context, server: ServerIndex) {
        self.servers[server].has_asked = false;
        self.supply(ctx, server);
    }
}

impl Pools {
    /// Whether this worker has more connections than each would with all workers busy. One that has not leaves the
    /// others as many at least.
    fn exceeds_share(&self, ctx: &Context, server: ServerIndex) -> bool {
        let workers = ctx.shared.mailboxes.len().max(1) as u32;
        let pool = &self.servers[server];
        let max = pool.server.max_connections;
        // With fewer connections than workers they go round.
        max < workers || pool.open > max / workers
    }

    /// Whether an idle connection may go to another worker that asks: it is beyond this worker's share, or has not been
    /// needed for a while. A busy worker needs it again in a moment, and each hand-over costs a login.
    pub(crate) fn can_spare(&self, ctx: &Context, server: ServerIndex, key: ConnectionKey) -> bool {
        let idle_for = ctx.now.saturating_sub(self.connections[key].age.idle_since);
        self.exceeds_share(ctx, server) || idle_for >= SPARE_AFTER_NS
    }

    /// Another worker may open no connection: ask all for one, once until one comes.
    pub(crate) fn ask_other_workers(&mut self, ctx: &Context, server: ServerIndex) {
        let pool = &mut self.servers[server];
        if std::mem::replace(&mut pool.has_asked, true) {
            return;
        }
        let endpoint: Arc<str> = pool.server.endpoint.as_str().into();
        for (worker, mailbox) in ctx.shared.mailboxes.iter().enumerate() {
            if worker != ctx.worker {
                mailbox.send(Message::Wanted { endpoint: endpoint.clone(), by: ctx.worker });
            }
        }
        pool.supply_again(ctx.now + RETRY_FIRST_NS);
    }
}
