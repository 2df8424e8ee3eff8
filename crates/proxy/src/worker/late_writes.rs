//! Stops writes that are on their way to a server whose lease has lapsed: see [`crate::statement::write_lease`].

use std::time::Duration;

use crate::keys::{ConnectionKey, ServerIndex, SessionKey};
use crate::outbox::Order;
use crate::server::connection::Expected;
use crate::worker::Worker;

/// Within so much time a server has to acknowledge what is on its way to it when its lease lapses. Looked at only when the
/// system would send it once more.
const LATE_BYTES: Duration = Duration::from_millis(1);

impl Worker {
    /// Sees to what is on its way to servers whose lease has lapsed since this was looked at last.
    pub(crate) fn look_at_leases(&mut self) {
        for server in 0..self.pools.servers.len() {
            let has_lost_write_lease = !self.pools.servers[server].server.shared.may_write_at(self.ctx.now);
            if std::mem::replace(&mut self.pools.servers[server].has_lost_write_lease, has_lost_write_lease)
                != has_lost_write_lease
                && has_lost_write_lease
            {
                self.stop_late_writes(server);
            }
        }
    }

    fn stop_late_writes(&mut self, server: ServerIndex) {
        let is_under_way = |lease: ConnectionKey, holder: SessionKey| {
            let session = &self.sessions[holder];
            let connection = &self.pools.connections[lease];
            let mut expected = connection.replies.expected.iter();
            let is_owed =
                expected.any(|expected| matches!(expected, Expected::Relay(_) | Expected::CommitWrapped));
            is_owed
                && session.lease() == Some(lease)
                && session.execution.tries.is_sent
                && session.execution.plan.may_have_effects()
        };
        let of_server = self.pools.connections.iter().filter(|(_, connection)| connection.server == server);
        let held = of_server.filter_map(|(lease, connection)| Some((lease, connection.holder?)));
        let under_way: Vec<_> = held.filter(|(lease, holder)| is_under_way(*lease, *holder)).collect();
        for (lease, holder) in under_way {
            let session = &self.sessions[holder];
            let socket = self.pools.connections[lease].socket;
            let is_flowing = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
            if is_flowing || session.input.infile.is_some() || self.ctx.out.backlog_bytes(socket) > 0 {
                self.work(holder).give_up_late(lease);
            } else {
                self.pools.connections[lease].is_hurried = true;
                self.ctx.out.order(Order::AcknowledgeWithin(socket, LATE_BYTES));
            }
        }
    }
}
