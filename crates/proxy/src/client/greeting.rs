//! What Weir offers to clients at the login.

use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::worker::context::Context;
use std::rc::Rc;
use weir_protocol::capability::Capabilities;

use crate::server::connection::Purpose;
use crate::worker::keys::ConnectionKey;

/// MariaDB 10.6 and later tell the types that have no number (JSON, UUID, INET6, geometries) to clients that ask for it.
const EXTENDED_METADATA_SINCE: u16 = 1006;

/// Capabilities that Weir offers to clients. Not MariaDB's CACHE_METADATA and MySQL's OPTIONAL_RESULTSET_METADATA: definitions
/// that one connection has left out would be those that the client has from another. Not MariaDB's STMT_BULK_OPERATIONS: what
/// of many executions a lost server has done can't be told.
const OFFERED: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::FOUND_ROWS)
    .union(Capabilities::LONG_FLAG)
    .union(Capabilities::CONNECT_WITH_DB)
    .union(Capabilities::ODBC)
    .union(Capabilities::LOCAL_FILES)
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::IGNORE_SIGPIPE)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::RESERVED)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::MULTI_STATEMENTS)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::CONNECT_ATTRS)
    .union(Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA)
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::DEPRECATE_EOF);

impl Pools {
    /// A server that has come since can't do what the sessions that wait for this connection agreed on at their login. They
    /// end, and log in anew with what is offered now; nothing is held against the server.
    pub(crate) fn break_agreement(&mut self, ctx: &mut Context, key: ConnectionKey, missing: Capabilities) {
        let connection = &self.connections[key];
        let (server, identity) = (connection.server, connection.identity);
        let endpoint = &self.servers[server].server.endpoint;
        let message =
            format!("{endpoint} can't do {missing:?}, which was agreed on at the login: connect again");
        if matches!(connection.purpose, Purpose::Kill(_)) {
            return self.dial_failed(ctx, key, None, &message);
        }
        ctx.timers.dial_ended(connection.socket);
        self.discard(ctx, key, None);
        let reason: Rc<str> = message.into();
        let turns = &mut self.turns;
        self.servers[server].waiters.retain(|waiter| {
            let is_meant = waiter.identity == identity;
            if is_meant {
                turns.push_back(Turn::End(*waiter, reason.clone()));
            }
            !is_meant
        });
        self.supply(ctx, server);
    }
}

impl Pools {
    /// What the servers behind can, as far as Weir can pass it on.
    pub(crate) fn offered(&self, ctx: &Context) -> Capabilities {
        let mut offered = OFFERED;
        offered.set(Capabilities::SSL, ctx.snapshot.tls);
        if ctx.snapshot.is_mariadb && ctx.snapshot.dialect.server.release >= EXTENDED_METADATA_SINCE {
            // Who has LONG_PASSWORD says that he is no MariaDB, and speaks of nothing of MariaDB's.
            offered -= Capabilities::LONG_PASSWORD;
            offered |= Capabilities::MARIADB_EXTENDED_METADATA;
        }
        // What was agreed on holds for the session, and each server that it may get has to go along.
        let takes_attributes = |pool: &crate::pool::pools::Pool| pool.server.shared.takes_query_attributes();
        let is_taken = !self.servers.is_empty() && self.servers.iter().all(takes_attributes);
        offered.set(Capabilities::QUERY_ATTRIBUTES, is_taken);
        offered
    }
}
