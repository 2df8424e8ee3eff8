//! Tracks KILLs on their way to servers.

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::{DiscardReason, Kill, Purpose};

impl Pools {
    /// Sends a KILL against what runs on a connection, over a connection of its own.
    pub(crate) fn kill_backend(&mut self, ctx: &mut Context, key: ConnectionKey, query_only: bool) {
        let connection = &mut self.connections[key];
        connection.kills_pending += 1;
        let kill = Kill {
            victim: key,
            victim_socket: connection.socket,
            thread_id: connection.access.greeted.thread_id,
            query_only,
        };
        let (server, principal) = (connection.server, connection.principal());
        let totals = &mut ctx.statistics.totals;
        let count = if query_only { &mut totals.killed_queries } else { &mut totals.killed_connections };
        *count += 1;
        self.dial_kill(ctx, server, principal, kill);
    }

    /// The server has answered a KILL: it has struck, or never will.
    pub(crate) fn kill_sent(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let Purpose::Kill(kill) = self.connections[key].purpose else { return };
        self.discard(ctx, key, None);
        self.kill_over(ctx, kill);
    }

    /// A KILL could not be sent, or was not answered: then it may still strike at any time, and its victim must
    /// not come to anybody else.
    pub(crate) fn kill_failed(&mut self, ctx: &mut Context, kill: Kill, was_sent: bool) {
        if was_sent && self.connections.is(kill.victim, kill.victim_socket) {
            self.connections[kill.victim].discard_reason.get_or_insert(DiscardReason::KillAstray);
        }
        self.kill_over(ctx, kill);
    }

    fn kill_over(&mut self, ctx: &mut Context, kill: Kill) {
        if !self.connections.is(kill.victim, kill.victim_socket) {
            return;
        }
        let victim = &mut self.connections[kill.victim];
        victim.kills_pending -= 1;
        if victim.kills_pending > 0 {
            return;
        }
        if victim.discard_reason == Some(DiscardReason::ClientGone) {
            return self.discard(ctx, kill.victim, Some(DiscardReason::ClientGone));
        }
        if victim.holder.is_some() {
            let (connection, socket) = (kill.victim, kill.victim_socket);
            self.turns.push_back(Turn::GoOn { connection, socket });
        } else if victim.replies.expected.is_empty() {
            self.offer(ctx, kill.victim);
        }
    }
}
