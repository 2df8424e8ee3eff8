//! Opens connections to servers: dials, tells the server for whom, and deals with those that come to nothing.

use weir_protocol::error;
use weir_session::defaults::Defaults;
use weir_session::login::BackendLogin;
use weir_session::prepared::BackendStatements;

use super::{AGE_JITTER_PERMILLE, OWN_FAULTS, RETRY_FIRST_NS, RETRY_MAX_NS};
use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::outbox::{Order, Owner};
use crate::pool::pools::Pools;
use crate::pool::relogin::{is_about_client, is_about_user};
use crate::server::connection::{
    Access, Age, Kill, Known, Principal, Purpose, Replies, ServerConnection, Settling, Stage, Traces,
};

impl Pools {
    /// Opens a connection that carries one KILL; it does not count against max_connections, else a server
    /// whose connections all hang could not be freed.
    pub(crate) fn dial_kill(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        principal: Principal,
        kill: Kill,
    ) {
        self.open_backend(ctx, server, principal, Purpose::Kill(kill), 0);
    }

    pub(super) fn open_backend(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        principal: Principal,
        purpose: Purpose,
        hostgroup: u32,
    ) {
        let key = self.insert_dialing(ctx, server, principal, purpose, hostgroup);
        let identity = principal.identity;
        let connection = &self.connections[key];
        let (socket, is_tls) = (connection.socket, connection.tls.is_some());
        let addr = self.servers[server].server.addr;
        let timeout = ctx.snapshot.variables.connect_timeout_server.as_nanos() as Nanos;
        ctx.timers.dial(socket, ctx.now + timeout);
        match self.credential(identity) {
            Ok(credential) => {
                let user = &self.identities.0[identity];
                let name = user.account.user.username.as_bytes();
                let (extra, attributes) = (user.capabilities, ctx.shared.attributes.clone());
                let login = BackendLogin::new(name, credential, extra, is_tls, attributes);
                self.connections[key].access.login = Some(Box::new(login));
                ctx.out.order(Order::Connect(socket, addr));
            }
            Err(message) => self.dial_failed(ctx, key, Some(error::ACCESS_DENIED.code), &message),
        }
    }

    /// Makes room for a connection of which nothing has been heard yet.
    fn insert_dialing(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        principal: Principal,
        purpose: Purpose,
        hostgroup: u32,
    ) -> ConnectionKey {
        let Principal { identity, client } = principal;
        let proxy_header = self.servers[server].server.proxy_header;
        let tls = self.servers[server].server.tls.clone();
        let defaults = ctx.defaults.intern(Defaults::default());
        let renewal = self.servers[server].server.shared.renewal();
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let socket = ctx.out.open(Owner::Server(key));
        entry.insert(ServerConnection {
            key,
            socket,
            server,
            identity,
            client,
            proxy_header,
            capabilities: self.identities.0[identity].capabilities,
            purpose,
            tls,
            access: Access {
                login: None,
                greeted: Default::default(),
                renewal,
                logged_in_at: ctx.now,
                next_principal: None,
            },
            stage: Stage::Dialing,
            state: ctx.fresh.clone(),
            defaults,
            holder: None,
            traces: Traces::default(),
            replies: Replies {
                expected: Default::default(),
                reply: weir_protocol::response::ReplyReader::new(
                    weir_protocol::response::ReplyKind::Simple,
                    1,
                ),
                inbox: Vec::new(),
                asked_at: ctx.now,
                rows: 0,
            },
            statements: BackendStatements::default(),
            discard_reason: None,
            kills_pending: 0,
            age: Age {
                idle_since: ctx.now,
                opened_at: ctx.now,
                reached_at: ctx.now,
                early_permille: ctx.random.next() % AGE_JITTER_PERMILLE,
                has_served: false,
            },
            has_credit: purpose == Purpose::Pool,
            hostgroup,
            known: Known { insert_id: Some(0), found_rows: Some(0), row_count: None, has_conditions: false },
            settling: Settling { bytes: Vec::new(), again: false, is_rejected: false, refusals: 0 },
            releases_by_default: false,
            is_hurried: false,
        });
        key
    }

    /// A server has accepted a connection.
    pub(crate) fn reached(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &mut self.connections[key];
        connection.age.reached_at = ctx.now;
        connection.introduce_client(ctx, self.servers[connection.server].server.addr);
    }

    /// A connection could not be made or logged in; `code` is the server's error, if it gave one.
    pub(crate) fn dial_failed(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        code: Option<u16>,
        message: &str,
    ) {
        let connection = &self.connections[key];
        let (server, socket, purpose) = (connection.server, connection.socket, connection.purpose);
        let (principal, hostgroup) = (connection.principal(), connection.hostgroup);
        ctx.timers.dial_ended(socket);
        if let Purpose::Kill(kill) = purpose {
            let was_sent = !self.connections[key].replies.expected.is_empty();
            let server = &self.servers[server].server.endpoint;
            tracing::warn!(server, error = message, was_sent, "KILL failed");
            self.discard(ctx, key, None);
            return self.kill_failed(ctx, kill, was_sent);
        }
        self.servers[server].counts.of(hostgroup).failed += 1;
        ctx.statistics.totals.server_connections_failed += 1;
        let is_about = |code: &u16| {
            is_about_user(*code) || (principal.client.is_some() && is_about_client(*code, message))
        };
        if let Some(code) = code.filter(is_about) {
            // That is between these and the server: nobody else is to suffer for it.
            let began_at = self.connections[key].access.logged_in_at;
            self.discard(ctx, key, None);
            return self.refuse_waiters(ctx, server, principal, began_at, code, message);
        }
        let pool = &mut self.servers[server];
        pool.failures += 1;
        pool.last_error = message.into();
        let variables = &ctx.snapshot.variables;
        let pause = if pool.failures < variables.failures_to_shun() {
            variables.connect_retries_delay.as_nanos() as Nanos
        } else {
            RETRY_FIRST_NS.saturating_mul(1 << pool.failures.min(10)).min(RETRY_MAX_NS)
        };
        pool.retry_at = ctx.now + ctx.random.jitter(pause);
        if !OWN_FAULTS.contains(&code.unwrap_or(0)) {
            ctx.shared.connect_failed(&pool.server.endpoint, message);
        }
        tracing::warn!(
            server = pool.server.endpoint,
            failures = pool.failures,
            retry_in_ms = (pool.retry_at - ctx.now) / 1_000_000,
            error = message,
            "connection to the server failed"
        );
        self.discard(ctx, key, None);
        self.reroute_waiters(server);
    }
}
