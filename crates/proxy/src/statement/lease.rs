//! Takes note of a session's connection that is gone, and closes a session whose server has no time left for it.

use weir_protocol::error::ServerError;

use crate::keys::ConnectionKey;
use crate::work::Work;

impl Work<'_> {
    /// A connection of the session's is gone.
    pub(crate) fn server_gone(&mut self, key: ConnectionKey) {
        let server = self.pools.connections[key].server;
        let breaks_off = self.pools.connections[key].replies.breaks_off();
        let lost = self.pools.lose(self.ctx, key);
        self.hear();
        let endpoint = self.pools.servers[server].server.endpoint.clone();
        if self.session.lease() != Some(key) {
            return self.aside_lost(&endpoint);
        }
        self.lease_lost(lost, &endpoint, breaks_off);
    }
}

/// MySQL's "server shutdown in progress" (08S01): an application connects anew.
pub(crate) const MOVED: ServerError = ServerError { code: 1053, sqlstate: *b"08S01" };

impl Work<'_> {
    /// Closes a session that still has such a connection.
    pub(crate) fn close_overstayed(&mut self, connection: ConnectionKey) {
        let endpoint = &self.pools.servers[self.pools.connections[connection].server].server.endpoint;
        let pins = self.session.all_pins();
        let had = if pins.is_empty() { "its connection".to_owned() } else { pins.words() };
        let message =
            format!("{endpoint} is drained, and drain_grace_ms is over; this session lost there: {had}");
        self.fail_session(MOVED, &message);
    }
}
