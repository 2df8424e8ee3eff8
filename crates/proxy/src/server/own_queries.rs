//! Sends Weir's own statements to a server, and notes the replies that are to come.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, NO_QUERY_ATTRIBUTES, put_query, put_query_with_attributes};
use weir_sql::Server;

use crate::context::Context;
use crate::keys::Nanos;
use crate::server::connection::{Expected, Kill, ServerConnection};

impl ServerConnection {
    /// Sends a statement of Weir's own.
    pub(crate) fn send_query(&mut self, ctx: &mut Context, text: &[u8]) {
        self.put_own_query(ctx, text);
        if text.starts_with(b"SELECT") || text.starts_with(b"DO") {
            // All of Weir's own have one row.
            self.known.found_rows = Some(1);
        }
    }

    /// Takes note of a reply that is to come, behind those that are owed already.
    pub(crate) fn expect(&mut self, ctx: &Context, expected: Expected) {
        self.replies.expected.push_back(expected);
        if self.replies.expected.len() == 1 {
            self.replies.restart_reply(ctx.now);
        }
    }
}

impl ServerConnection {
    /// Appends a COM_QUERY of Weir's own, as this connection takes it.
    pub(crate) fn put_own_query(&mut self, ctx: &mut Context, text: &[u8]) {
        self.known.row_count = match text {
            _ if text.starts_with(b"SELECT") => Some(-1),
            _ if text.starts_with(b"SET") || text.starts_with(b"DO") => Some(0),
            _ => None,
        };
        let capabilities = self.capabilities;
        let Some(buffer) = ctx.out.buffer(self.socket) else { return };
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            put_query_with_attributes(buffer, NO_QUERY_ATTRIBUTES, text);
        } else {
            put_query(buffer, text);
        }
    }
}

impl ServerConnection {
    /// The connection for a KILL is logged in.
    pub(crate) fn send_kill(&mut self, ctx: &mut Context, kill: Kill) {
        let what = if kill.query_only { "QUERY" } else { "CONNECTION" };
        self.send_query(ctx, format!("KILL {what} {}", kill.thread_id).as_bytes());
        self.expect(ctx, Expected::Kill);
    }
}

impl ServerConnection {
    pub(crate) fn ping(&mut self, ctx: &mut Context) {
        self.age.idle_since = ctx.now;
        let socket = self.socket;
        if let Some(buffer) = ctx.out.buffer(socket) {
            command::put_ping(buffer);
        }
        self.expect(ctx, Expected::Ping);
        let timeout = ctx.snapshot.variables.ping_timeout_server.as_nanos() as Nanos;
        ctx.timers.ping(socket, ctx.now + timeout);
    }
}

/// The first MySQL that is known to end the roles of one user when another logs in.
const ENDS_ROLES: Server = Server::mysql(9, 7);
/// Any user may, and any connection without a role takes it, too.
const LEAVE_ROLE: &[u8] = b"SET ROLE NONE";

impl ServerConnection {
    /// In front of a COM_CHANGE_USER: the role that the login of before gave outlives it (MariaDB 10.11, MySQL 8.0.33),
    /// for a user who was never granted it, or does not have it any more. Should the server refuse, the connection is
    /// not used.
    pub(crate) fn leave_role(&mut self, ctx: &mut Context) {
        let greeted = &self.access.greeted;
        if greeted.is_mariadb || greeted.reads_as.release < ENDS_ROLES.release {
            self.send_query(ctx, LEAVE_ROLE);
            self.expect(ctx, Expected::LeaveRole);
        }
    }
}
