//! Supplies connections to those who wait: dials, hands over between users, and decides what becomes of a connection
//! that nobody holds.

use std::sync::Arc;

use weir_session::login::BackendLogin;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::outbox::SocketId;
use crate::pool::pools::{Pool, Pools};
use crate::pool::turns::Turn;
use crate::pool::waiting::Waiter;
use crate::server::connection::{Age, DiscardReason, Expected, Principal, Purpose, ServerConnection, Stage};

mod dialing;
mod sharing;

/// Connections that one worker dials to one server at a time.
const DIALS_MAX: u32 = 16;
/// Up to so many connections to a server are opened by a worker as soon as somebody waits. With more, waiting a
/// moment for one of them is better than opening another: many statements over few connections wake servers,
/// proxy and clients less often, for all three.
const OPEN_AT_ONCE: u32 = 8;
/// That moment: who has waited longer gets a connection opened.
const PATIENCE_NS: Nanos = 10_000_000;
/// So many of those who wait are looked at for one who can use a connection as it is.
const WAITERS_LOOKED_AT: usize = 64;
/// Pauses after failed dials, once there have been enough to shun the server: doubled with each.
const RETRY_FIRST_NS: Nanos = 20_000_000;
/// Longest pause.
const RETRY_MAX_NS: Nanos = 2_000_000_000;
/// Connections end by up to so much before connection_max_age_ms.
const AGE_JITTER_PERMILLE: u64 = 250;
/// Errors at a login that say nothing about the server: no such schema (1049), and the user's own limits (1203, 1226).
const OWN_FAULTS: [u16; 3] = [1049, 1203, 1226];

impl Pools {
    /// Sees to it that the waiters of a server get connections.
    pub(crate) fn supply(&mut self, ctx: &mut Context, server: ServerIndex) {
        loop {
            let pool = &mut self.servers[server];
            let coming = pool.dialing + pool.handovers;
            if pool.waiters.len() <= coming as usize {
                return;
            }
            if !pool.idle.is_empty() {
                // Idle connections of this identity would have been taken already: these are other users'.
                self.hand_over(ctx, server);
                continue;
            }
            if pool.failures > 0 && pool.retry_at > ctx.now {
                return pool.supply_again(pool.retry_at);
            }
            if pool.open >= OPEN_AT_ONCE
                && let Some(Waiter { since, .. }) = pool.waiters.front().copied()
                && ctx.now < since + PATIENCE_NS
            {
                return pool.supply_again(since + PATIENCE_NS);
            }
            if pool.dialing >= DIALS_MAX || (pool.failures > 0 && pool.dialing > 0) {
                return;
            }
            let front = pool.waiters.front().map(|waiter| waiter.served_by);
            match self.may_open(ctx, server, front) {
                Ok(true) => self.dial(ctx, server),
                Ok(false) => return self.ask_other_workers(ctx, server),
                Err(at) => return self.servers[server].supply_again(at),
            }
        }
    }

    /// Gives an idle connection to the first waiter who can use it as it is, else that of another user to the first.
    fn hand_over(&mut self, ctx: &mut Context, server: ServerIndex) {
        let pool = &self.servers[server];
        for (at, waiter) in pool.waiters.iter().copied().take(WAITERS_LOOKED_AT).enumerate() {
            let principal = pool.principal_awaited(&waiter);
            let fits = |connection: &ConnectionKey| self.connections[*connection].principal() == principal;
            if let Some(idle) = pool.idle.iter().rposition(fits) {
                let pool = &mut self.servers[server];
                let connection = pool.idle.remove(idle);
                pool.waiters.remove(at);
                return self.lend_proven(ctx, connection, waiter);
            }
        }
        let Some(first) = pool.waiters.front().copied() else { return };
        // A connection can still be opened: leave the other users theirs.
        let may_dial = pool.dialing < DIALS_MAX && pool.retry_at <= ctx.now;
        if may_dial && self.may_open(ctx, server, Some(first.served_by)) == Ok(true) {
            return self.dial(ctx, server);
        }
        let pool = &mut self.servers[server];
        let principal = pool.principal_awaited(&first);
        let connection = pool.idle.remove(0);
        self.change_principal(ctx, connection, principal);
    }

    /// Lends an idle connection to somebody who has just left the line, or has it logged in anew for them.
    fn lend_proven(&mut self, ctx: &mut Context, connection: ConnectionKey, waiter: Waiter) {
        if !self.needs_login(ctx, Some(waiter.since), connection) {
            return self.lend_to(connection, waiter);
        }
        self.login_anew_for(ctx, connection, waiter);
    }

    /// The connection is logged in anew for somebody who is the first in line meanwhile.
    pub(crate) fn login_anew_for(&mut self, ctx: &mut Context, connection: ConnectionKey, waiter: Waiter) {
        let server = self.connections[connection].server;
        self.servers[server].waiters.push_front(waiter);
        let principal = self.servers[server].principal_awaited(&waiter);
        self.change_principal(ctx, connection, principal);
    }

    /// The connection is to go to somebody who has left the line for it.
    fn lend_to(&mut self, connection: ConnectionKey, waiter: Waiter) {
        let socket = self.connections[connection].socket;
        self.turns.push_back(Turn::Lend { waiter, connection, socket });
    }

    /// Logs an open connection in as somebody else; where that can't be, closes it and dials with its right.
    pub(crate) fn change_principal(
        &mut self,
        ctx: &mut Context,
        connection: ConnectionKey,
        principal: Principal,
    ) {
        self.tell_of_retained(ctx, connection);
        if !self.connections[connection].replies.expected.is_empty() {
            // Once these replies are in.
            self.connections[connection].access.next_principal = Some(principal);
            return;
        }
        let server = self.connections[connection].server;
        let Principal { identity, client } = principal;
        let capabilities = self.identities.0[identity].capabilities;
        let is_same_capabilities = self.connections[connection].capabilities == capabilities;
        let credential = self.credential(identity);
        // The server's own init_connect runs on new connections only.
        // A role outlives COM_CHANGE_USER (MariaDB 10.11), and nobody knows whether there is one.
        let may_have_role = self.connections[connection].traces.is_suspect
            && self.connections[connection].access.greeted.is_mariadb;
        // A server is told for whom a connection is when it is opened, and never again.
        let is_same_client = self.connections[connection].client == client;
        let is_like_fresh = !self.connections[connection].defaults.runs_init_connect()
            && !may_have_role
            && !self.connections[connection].forgets_its_sql_mode();
        let may_change = is_same_capabilities && is_same_client && is_like_fresh;
        let (true, Ok(credential)) = (may_change, credential) else {
            self.connections[connection].identity = identity;
            self.connections[connection].client = client;
            self.connections[connection].capabilities = capabilities;
            return self.dial_instead(ctx, connection);
        };
        let account = self.identities.0[identity].account.clone();
        let extra = capabilities;
        self.servers[server].handovers += 1;
        self.servers[server].comes_for(principal);
        let timeout = ctx.snapshot.variables.connect_timeout_server.as_nanos() as Nanos;
        ctx.timers.dial(self.connections[connection].socket, ctx.now + timeout);
        let key = connection;
        let connection = &mut self.connections[key];
        connection.identity = identity;
        connection.access.renewal = self.servers[server].server.shared.renewal();
        connection.access.logged_in_at = ctx.now;
        connection.stage = Stage::HandingOver;
        connection.forget_sessions();
        connection.state = ctx.fresh.clone();
        self.connections[key].leave_role(ctx);
        let connection = &mut self.connections[key];
        let Some(buffer) = ctx.out.buffer(connection.socket) else { return };
        let takes_attributes = connection.access.greeted.takes_attributes;
        let attributes = if takes_attributes { ctx.shared.attributes.clone() } else { Arc::default() };
        let login = BackendLogin::change_user(
            account.user.username.as_bytes(),
            credential,
            extra,
            connection.tls.is_some(),
            attributes,
            buffer,
        );
        connection.access.login = Some(Box::new(login));
        ctx.statistics.totals.server_change_user += 1;
        self.connections[key].expect(ctx, Expected::ChangeUser);
    }

    /// Closes a connection that nobody has, and dials one for the same principal with its right.
    pub(crate) fn dial_instead(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let ServerConnection { server, hostgroup, .. } = self.connections[key];
        let principal = self.connections[key].principal();
        self.connections[key].has_credit = false;
        self.servers[server].open -= 1;
        self.discard(ctx, key, None);
        self.dial_for(ctx, server, principal, hostgroup);
    }

    /// Opens a connection for the first waiter for whom none is coming; the right to do so has been taken.
    pub(crate) fn dial(&mut self, ctx: &mut Context, server: ServerIndex) {
        let pool = &self.servers[server];
        let mut coming = pool.coming.clone();
        let mut wanted = pool.waiters.iter().map(|waiter| (pool.principal_awaited(waiter), waiter.served_by));
        let first = wanted.clone().next();
        let uncovered =
            wanted.find(|(principal, _)| match coming.iter_mut().find(|(known, _)| known == principal) {
                Some((_, count)) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            });
        let Some((principal, hostgroup)) = uncovered.or(first) else {
            pool.server.close_one();
            return;
        };
        self.dial_for(ctx, server, principal, hostgroup);
    }

    /// Opens a connection for this principal, and counts it for this hostgroup; the right to do so has been taken.
    pub(crate) fn dial_for(
        &mut self,
        ctx: &mut Context,
        server: ServerIndex,
        principal: Principal,
        hostgroup: u32,
    ) {
        self.servers[server].dialing += 1;
        self.servers[server].comes_for(principal);
        self.servers[server].open += 1;
        self.count_open(server, hostgroup);
        self.open_backend(ctx, server, principal, Purpose::Pool, hostgroup);
    }

    /// Sends the waiters of a server that fails to look for another one.
    pub(crate) fn reroute_waiters(&mut self, server: ServerIndex) {
        self.turns.extend(self.servers[server].waiters.drain(..).map(Turn::Reroute));
    }

    /// A connection is logged in, set up and nobody's: it goes to the next in line, or rests.
    pub(crate) fn offer(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        let server = connection.server;
        debug_assert!(connection.holder.is_none());
        if let Some(discard_reason) = connection.discard_reason {
            return self.discard(ctx, key, Some(discard_reason));
        }
        if connection.kills_pending > 0 || !connection.replies.expected.is_empty() {
            return; // fenced, or still owed replies: comes back here when it is through
        }
        let pool = &self.servers[server];
        if !pool.takes_work() || self.is_stale(ctx, key) {
            return self.retire(ctx, key, DiscardReason::Stale);
        }
        if self.connections[key].age.is_too_old(ctx) {
            return self.retire(ctx, key, DiscardReason::Aged);
        }
        if let Some(principal) = self.connections[key].access.next_principal.take() {
            return self.change_principal(ctx, key, principal);
        }
        self.connections[key].age.idle_since = ctx.now;
        if let Some(waiter) = self.next_waiter(server, key) {
            if self.servers[server].principal_awaited(&waiter) == self.connections[key].principal() {
                if self.gives_way(ctx, server, key) {
                    let pool = &mut self.servers[server];
                    pool.waiters.push_front(waiter);
                    pool.has_asked = false;
                    return self.supply(ctx, server);
                }
                if !self.needs_login(ctx, Some(waiter.since), key) {
                    return self.lend_to(key, waiter);
                }
            }
            return self.login_anew_for(ctx, key, waiter);
        }
        self.servers[server].has_asked = false;
        if self.can_spare(ctx, server, key) && self.give_to_other_worker(ctx, server, key) {
            return;
        }
        self.servers[server].idle.push(key);
    }

    /// Takes the next in line for this connection out of the queue: the first, unless a connection for that one is
    /// coming and another one can use this as it is. Else two identities, each with connections in the making, could
    /// have them made anew for each other for ever.
    fn next_waiter(&mut self, server: ServerIndex, key: ConnectionKey) -> Option<Waiter> {
        let own = self.connections[key].principal();
        let pool = &mut self.servers[server];
        let is_coming = |wanted| pool.coming.iter().any(|(known, count)| *known == wanted && *count > 0);
        let first = pool.waiters.front().map(|first| pool.principal_awaited(first));
        let at = match first {
            Some(first) if first != own && is_coming(first) => {
                let mut near = pool.waiters.iter().take(WAITERS_LOOKED_AT);
                near.position(|waiter| pool.principal_awaited(waiter) == own).unwrap_or(0)
            }
            _ => 0,
        };
        pool.waiters.remove(at)
    }

    /// Closes a connection for good.
    pub(crate) fn discard(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        discard_reason: Option<DiscardReason>,
    ) {
        self.drop_retained(key);
        let connection = self.connections.remove(key);
        if let Some(discard_reason) = discard_reason {
            ctx.statistics.totals.pool_discards += 1;
            let server = &self.servers[connection.server].server.endpoint;
            tracing::debug!(
                server,
                thread_id = connection.access.greeted.thread_id,
                ?discard_reason,
                "backend connection closed"
            );
        }
        ctx.timers.dial_ended(connection.socket);
        ctx.out.close(connection.socket);
        let pool = &mut self.servers[connection.server];
        pool.count_off(&connection);
        pool.idle.retain(|idle| *idle != key);
        if connection.has_credit {
            pool.open -= 1;
            pool.server.close_one();
        }
        let server = connection.server;
        if !self.servers[server].waiters.is_empty() {
            self.servers[server].supply_again(ctx.now);
        }
    }

    /// A waiter that this connection was made for may be gone; what matters is who is first now.
    pub(crate) fn now_ready(&mut self, ctx: &mut Context, key: ConnectionKey, socket: SocketId) {
        ctx.timers.dial_ended(socket);
        let server = self.connections[key].server;
        let pool = &mut self.servers[server];
        pool.count_off(&self.connections[key]);
        if self.connections[key].stage == Stage::Dialing {
            pool.counts.of(self.connections[key].hostgroup).opened += 1;
            ctx.statistics.totals.server_connections_opened += 1;
        }
        self.connections[key].stage = Stage::Ready;
        if pool.failures > 0 {
            tracing::info!(server = pool.server.endpoint, "server accepts connections again");
            pool.failures = 0;
        }
        self.offer(ctx, key);
        // There is room for the next dial now.
        self.supply(ctx, server);
    }
}

impl Pool {
    /// Whether connections to it are worth keeping.
    pub(crate) fn takes_work(&self) -> bool {
        self.is_current && !self.server.is_leaving
    }

    /// Have the waiters looked after at this time, or sooner.
    pub(crate) fn supply_again(&mut self, at: Nanos) {
        self.supply_at = self.supply_at.min(at);
    }

    /// A connection is in the making for this principal.
    fn comes_for(&mut self, principal: Principal) {
        let known = self.coming.iter().position(|(known, _)| *known == principal);
        match known.or_else(|| self.coming.iter().position(|(_, count)| *count == 0)) {
            Some(at) => {
                let count = if known.is_some() { self.coming[at].1 } else { 0 };
                self.coming[at] = (principal, count + 1);
            }
            None => self.coming.push((principal, 1)),
        }
    }

    /// A connection is no longer in the making.
    fn count_off(&mut self, connection: &ServerConnection) {
        match (connection.purpose, connection.stage) {
            (Purpose::Pool, Stage::Dialing) => self.dialing -= 1,
            (Purpose::Pool, Stage::HandingOver) => self.handovers -= 1,
            _ => return,
        }
        let known = self.coming.iter_mut().find(|(known, _)| *known == connection.principal());
        if let Some((_, count)) = known {
            *count = count.saturating_sub(1);
        }
    }
}

impl Pools {
    /// Takes the right to open a connection for a hostgroup. False: max_connections leaves none.
    ///
    /// # Errors
    /// The hostgroup has had all connections that it may have in this second; the time when the next one begins.
    pub(crate) fn may_open(
        &mut self,
        ctx: &Context,
        server: ServerIndex,
        hostgroup: Option<u32>,
    ) -> Result<bool, Nanos> {
        let pool = &mut self.servers[server];
        pool.is_throttled = false;
        if !pool.server.try_open() {
            return Ok(false);
        }
        let group = hostgroup.and_then(|hostgroup| self.groups.get(&hostgroup));
        let allowed = group.map_or(Ok(()), |group| group.throttle.try_open(ctx.now));
        if allowed.is_err() {
            pool.server.close_one();
            pool.is_throttled = true;
        }
        allowed.map(|()| true)
    }

    /// What logs this identity in at a server.
    fn credential(&self, identity: usize) -> Result<weir_session::login::Credential, String> {
        let account = &self.identities.0[identity].account;
        if account.is_outdated() {
            // A login in vain might lock the account for those who know the new one.
            let user = &account.user.username;
            return Err(format!(
                "the password of user '{user}' was changed, and no client has shown the new one yet"
            ));
        }
        account
            .credential()
            .ok_or_else(|| format!("the password of user '{}' is not known yet", account.user.username))
    }

    pub(crate) fn is_stale(&self, ctx: &Context, key: ConnectionKey) -> bool {
        let account = &self.identities.0[self.connections[key].identity].account;
        let current = ctx.snapshot.users.current(account);
        !current.is_some_and(|current| Arc::ptr_eq(current, account))
            || self.is_encrypted_otherwise(key)
            || self.is_introduced_otherwise(key)
    }

    /// The configuration wants its server to be told of clients' addresses in another way, or not any more, or now.
    fn is_introduced_otherwise(&self, key: ConnectionKey) -> bool {
        let connection = &self.connections[key];
        connection.proxy_header != self.servers[connection.server].server.proxy_header
    }

    /// The configuration wants another encryption of connections to this server, or none, or some.
    fn is_encrypted_otherwise(&self, key: ConnectionKey) -> bool {
        let connection = &self.connections[key];
        match (&connection.tls, &self.servers[connection.server].server.tls) {
            (Some(here), Some(wanted)) => !Arc::ptr_eq(here, wanted),
            (None, None) => false,
            _ => true,
        }
    }

    pub(crate) fn server_index(&self, endpoint: &str) -> Option<ServerIndex> {
        let mut of_name =
            self.servers.iter().enumerate().filter(|(_, pool)| pool.server.endpoint == endpoint);
        let first = of_name.clone().next();
        of_name.find(|(_, pool)| pool.is_current).or(first).map(|(index, _)| index)
    }
}

impl Age {
    /// Whether connection_max_age_ms is over. One that has served nobody yet is to do so once.
    pub(crate) fn is_too_old(&self, ctx: &Context) -> bool {
        let limit = ctx.snapshot.variables.connection_max_age_ms.as_nanos() as Nanos;
        let age_max = limit - limit / 1000 * self.early_permille;
        limit > 0 && self.has_served && ctx.now.saturating_sub(self.opened_at) > age_max
    }
}
