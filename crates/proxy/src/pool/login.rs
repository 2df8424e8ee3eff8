//! Logs in at servers, and keeps what all of them agree on.

use std::rc::Rc;

use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::login::BackendStep;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::outbox::{Order, SocketId};
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::{Expected, Purpose, Stage};
use crate::session::execution::Lost;

/// A login packet of a server larger than this is refused.
pub(crate) const LOGIN_PACKET_BYTES_MAX: usize = 64 << 10;

impl Pools {
    /// One packet of a login; `None` when it is not there whole.
    pub(crate) fn login_bytes(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        bytes: &[u8],
    ) -> Option<usize> {
        let header = Header::parse(bytes)?;
        if header.len > LOGIN_PACKET_BYTES_MAX {
            self.dial_failed(ctx, key, None, "oversized packet during login");
            return Some(bytes.len());
        }
        let end = HEADER_LEN + header.len;
        let payload = bytes.get(HEADER_LEN..end)?;
        let connection = &mut self.connections[key];
        let mut out = Vec::new();
        let step = connection.access.login.as_mut()?.packet(
            header.seq,
            payload,
            &mut connection.access.greeted,
            &mut out,
        );
        let socket = connection.socket;
        ctx.out.send(socket, &out);
        match step {
            BackendStep::Wait => {}
            BackendStep::StartTls => {
                if let Some(tls) = self.connections[key].tls.clone() {
                    ctx.out.order(Order::StartServerTls(socket, tls));
                }
            }
            BackendStep::Ready { thread_id } => {
                let connection = &mut self.connections[key];
                connection.access.greeted.thread_id = thread_id;
                connection.access.login = None;
                let purpose = connection.purpose;
                if matches!(connection.replies.expected.front(), Some(Expected::ChangeUser)) {
                    connection.replies.expected.pop_front();
                }
                self.learn_reading(ctx, key);
                match purpose {
                    Purpose::Pool => self.set_up(ctx, key),
                    Purpose::Kill(kill) => self.connections[key].send_kill(ctx, kill),
                }
            }
            BackendStep::Refused { code, message } => self.dial_failed(ctx, key, code, &message),
            BackendStep::Lacks { missing } => self.break_agreement(ctx, key, missing),
        }
        Some(end)
    }

    pub(crate) fn dial_timed_out(&mut self, ctx: &mut Context, socket: SocketId) {
        if let Some(crate::outbox::Owner::Server(key)) = ctx.out.owner(socket) {
            if self.connections[key].stage == Stage::HandingOver {
                // MariaDB takes a second to refuse a COM_CHANGE_USER, and says no to a new connection at once.
                return self.dial_instead(ctx, key);
            }
            let timeout = ctx.snapshot.variables.connect_timeout_server.as_millis();
            self.dial_failed(
                ctx,
                key,
                None,
                &format!("no connection within {timeout} ms (connect_timeout_server)"),
            );
        }
    }

    /// A connection is gone: the monitor is to look at its server at once.
    pub(crate) fn lose(&mut self, ctx: &mut Context, key: ConnectionKey) -> Lost {
        let connection = &self.connections[key];
        if connection.discard_reason.is_none() && connection.kills_pending == 0 {
            ctx.shared.suspect(&self.servers[connection.server].server.endpoint);
        }
        let lost = connection.loss_of();
        self.discard(ctx, key, None);
        lost
    }
}

impl Pools {
    /// A server that has come since can't do what the sessions that wait for this connection agreed on at their login. They
    /// end, and log in anew with what is offered now; nothing is held against the server.
    pub(crate) fn break_agreement(&mut self, ctx: &mut Context, key: ConnectionKey, missing: Capabilities) {
        let connection = &self.connections[key];
        let (server, identity) = (connection.server, connection.identity);
        let endpoint = &self.servers[server].server.endpoint;
        let message = format!(
            "{endpoint} does not support {missing:?}, which was negotiated at the login: connect again"
        );
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
