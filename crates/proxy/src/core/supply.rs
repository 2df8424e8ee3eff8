//! Connections for those who wait: dials, hand-overs between users, and what becomes of a connection that nobody holds.

mod sharing;

use std::sync::Arc;

use weir_protocol::error;
use weir_session::defaults::Defaults;
use weir_session::login::BackendLogin;
use weir_session::pin::Pins;
use weir_session::prepared::BackendStatements;
use weir_session::state::State;

use super::model::{
    Backend, BackendKey, Expected, HiddenCode, Kill, Nanos, Phase, Poison, Purpose, ServerIndex, SessionKey,
    Stage,
};
use super::renewal::is_about_user;
use super::{Core, Pool};
use crate::outbox::{Order, Owner, SocketId};

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

impl Core {
    /// Sees to it that the waiters of a server get connections.
    pub(super) fn supply(&mut self, server: ServerIndex) {
        loop {
            let pool = &mut self.servers[server];
            while let Some((key, socket)) = pool.waiters.front().copied() {
                let waits = self.sessions.get(key).is_some_and(|s| {
                    s.socket == socket && matches!(s.phase, super::model::Phase::Waiting(_))
                });
                if waits {
                    break;
                }
                pool.waiters.pop_front();
            }
            let coming = pool.dialing + pool.handovers;
            if pool.waiters.len() <= coming as usize {
                return;
            }
            if !pool.idle.is_empty() {
                // Idle connections of this identity would have been taken already: these are other users'.
                self.hand_over(server);
                continue;
            }
            if pool.failures > 0 && pool.retry_at > self.now {
                return pool.supply_again(pool.retry_at);
            }
            if pool.open >= OPEN_AT_ONCE
                && let Some((key, _)) = pool.waiters.front()
                && let Phase::Waiting(since) = self.sessions[*key].phase
                && self.now < since + PATIENCE_NS
            {
                return pool.supply_again(since + PATIENCE_NS);
            }
            if pool.dialing >= DIALS_MAX || (pool.failures > 0 && pool.dialing > 0) {
                return;
            }
            let front = pool.waiters.front().map(|(key, _)| self.sessions[*key].work.served_by);
            match self.may_open(server, front) {
                Ok(true) => self.dial(server),
                Ok(false) => return self.ask_other_workers(server),
                Err(at) => return self.servers[server].supply_again(at),
            }
        }
    }

    /// Takes the right to open a connection for a hostgroup. False: max_connections leaves none.
    ///
    /// # Errors
    /// The hostgroup has had all connections that it may have in this second; the time when the next one begins.
    pub(super) fn may_open(&mut self, server: ServerIndex, hostgroup: Option<u32>) -> Result<bool, Nanos> {
        let pool = &mut self.servers[server];
        pool.is_throttled = false;
        if !pool.server.try_open() {
            return Ok(false);
        }
        let group = hostgroup.and_then(|hostgroup| self.groups.get(&hostgroup));
        let allowed = group.map_or(Ok(()), |group| group.throttle.try_open(self.now));
        if allowed.is_err() {
            pool.server.close_one();
            pool.is_throttled = true;
        }
        allowed.map(|()| true)
    }

    /// Gives an idle connection to the first waiter who can use it as it is, else that of another user to the first.
    fn hand_over(&mut self, server: ServerIndex) {
        let pool = &self.servers[server];
        for (at, (key, socket)) in pool.waiters.iter().take(WAITERS_LOOKED_AT).enumerate() {
            let wanted = self.sessions.get(*key).map(|session| session.identity);
            let fits = |backend: &BackendKey| Some(self.backends[*backend].identity) == wanted;
            if let Some(idle) = pool.idle.iter().rposition(fits)
                && self.is_waiting(*key, *socket)
            {
                let (key, pool) = (*key, &mut self.servers[server]);
                let backend = pool.idle.remove(idle);
                pool.waiters.remove(at);
                return self.lend_proven(backend, key);
            }
        }
        let Some((key, _)) = pool.waiters.front().copied() else { return };
        // A connection can still be opened: leave the other users theirs.
        let may_dial = pool.dialing < DIALS_MAX && pool.retry_at <= self.now;
        let hostgroup = Some(self.sessions[key].work.served_by);
        if may_dial && self.may_open(server, hostgroup) == Ok(true) {
            return self.dial(server);
        }
        let wanted = self.sessions[key].identity;
        let backend = self.servers[server].idle.remove(0);
        self.change_identity(backend, wanted);
    }

    /// Logs an open connection in as somebody else; where that can't be, closes it and dials with its right.
    pub(super) fn change_identity(&mut self, backend: BackendKey, identity: usize) {
        self.fetch_kept(backend, SessionKey::MAX);
        if !self.backends[backend].expected.is_empty() {
            // Once these replies are in.
            self.backends[backend].next_identity = Some(identity);
            return;
        }
        let server = self.backends[backend].server;
        let is_same_capabilities = self.identities.0[self.backends[backend].identity].capabilities
            == self.identities.0[identity].capabilities;
        let credential = self.credential(identity);
        // The server's own init_connect runs on new connections only.
        // A role outlives COM_CHANGE_USER (MariaDB 10.11), and nobody knows whether there is one.
        let may_have_role = self.backends[backend].is_suspect && self.backends[backend].greeted.is_mariadb;
        let is_like_fresh = !self.backends[backend].defaults.runs_init_connect()
            && !may_have_role
            && !self.forgets_its_sql_mode(backend);
        let (true, Ok(credential)) = (is_same_capabilities && is_like_fresh, credential) else {
            self.backends[backend].identity = identity;
            return self.dial_instead(backend);
        };
        let account = self.identities.0[identity].account.clone();
        let extra = self.identities.0[identity].capabilities;
        self.servers[server].handovers += 1;
        self.servers[server].comes_as(identity);
        let timeout = self.snapshot.variables.connect_timeout_server.as_nanos() as Nanos;
        self.timers.dial(self.backends[backend].socket, self.now + timeout);
        let key = backend;
        let backend = &mut self.backends[key];
        backend.identity = identity;
        backend.renewal = self.servers[server].server.shared.renewal();
        backend.logged_in_at = self.now;
        backend.stage = Stage::HandingOver;
        backend.forget_sessions();
        backend.state = self.fresh.clone();
        self.leave_role(key);
        let backend = &mut self.backends[key];
        let Some(buffer) = self.out.buffer(backend.socket) else { return };
        let takes_attributes = backend.greeted.takes_attributes;
        let attributes = if takes_attributes { self.shared.attributes.clone() } else { Arc::default() };
        let login = BackendLogin::change_user(
            account.user.username.as_bytes(),
            credential,
            extra,
            backend.tls.is_some(),
            attributes,
            buffer,
        );
        backend.login = Some(Box::new(login));
        self.statistics.totals.server_change_user += 1;
        self.expect(key, Expected::ChangeUser);
    }

    /// Closes a connection that nobody has, and dials one for the same identity with its right.
    pub(super) fn dial_instead(&mut self, key: BackendKey) {
        let Backend { server, identity, hostgroup, .. } = self.backends[key];
        self.backends[key].has_credit = false;
        self.servers[server].open -= 1;
        self.discard(key, None);
        self.dial_as(server, identity, hostgroup);
    }

    /// What logs this identity in at a server.
    fn credential(&self, identity: usize) -> Result<weir_session::login::Credential, String> {
        let account = &self.identities.0[identity].account;
        let known = account.credential.lock().ok().and_then(|known| known.clone());
        known.ok_or_else(|| format!("the password of user '{}' is not known yet", account.user.username))
    }

    /// Opens a connection for the first waiter for whom none is coming; the right to do so has been taken.
    pub(super) fn dial(&mut self, server: ServerIndex) {
        let pool = &self.servers[server];
        let mut coming = pool.coming.clone();
        let mut wanted = pool.waiters.iter().filter_map(|(key, _)| {
            let session = self.sessions.get(*key)?;
            Some((session.identity, session.work.served_by))
        });
        let first = wanted.clone().next();
        let uncovered =
            wanted.find(|(identity, _)| match coming.iter_mut().find(|(known, _)| known == identity) {
                Some((_, count)) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            });
        let Some((identity, hostgroup)) = uncovered.or(first) else {
            pool.server.close_one();
            return;
        };
        self.dial_as(server, identity, hostgroup);
    }

    /// Opens a connection for this identity, and counts it for this hostgroup; the right to do so has been taken.
    pub(super) fn dial_as(&mut self, server: ServerIndex, identity: usize, hostgroup: u32) {
        self.servers[server].dialing += 1;
        self.servers[server].comes_as(identity);
        self.servers[server].open += 1;
        self.count_open(server, hostgroup);
        self.open_backend(server, identity, Purpose::Pool, hostgroup);
    }

    /// Opens a connection that carries one KILL; it does not count against max_connections, else a server
    /// whose connections all hang could not be freed.
    pub(super) fn dial_kill(&mut self, server: ServerIndex, identity: usize, kill: Kill) {
        self.open_backend(server, identity, Purpose::Kill(kill), 0);
    }

    fn open_backend(&mut self, server: ServerIndex, identity: usize, purpose: Purpose, hostgroup: u32) {
        let tls = self.servers[server].server.tls.clone();
        let defaults = self.defaults.intern(Defaults::default());
        let renewal = self.servers[server].server.shared.renewal();
        let entry = self.backends.vacant_entry();
        let key = entry.key();
        let socket = self.out.open(Owner::Backend(key));
        entry.insert(Backend {
            socket,
            server,
            identity,
            purpose,
            tls: tls.clone(),
            login: None,
            greeted: Default::default(),
            stage: Stage::Dialing,
            state: self.fresh.clone(),
            defaults,
            renewal,
            logged_in_at: self.now,
            holder: None,
            kept_for: None,
            is_suspect: false,
            unproven: None,
            last_holder: None,
            hidden_code_of: HiddenCode::default(),
            is_tracked: false,
            expected: Default::default(),
            reply: weir_protocol::response::ReplyReader::new(weir_protocol::response::ReplyKind::Simple, 1),
            inbox: Vec::new(),
            statements: BackendStatements::default(),
            poison: None,
            kills_pending: 0,
            idle_since: self.now,
            asked_at: self.now,
            opened_at: self.now,
            early_permille: self.random.next() % AGE_JITTER_PERMILLE,
            has_credit: purpose == Purpose::Pool,
            hostgroup,
            has_served: false,
            next_identity: None,
            insert_id: Some(0),
            found_rows: Some(0),
            row_count: None,
            has_conditions: false,
            reply_rows: 0,
            settle_bytes: Vec::new(),
            settle_again: false,
            is_turned_away: false,
            settle_refusals: 0,
            releases_by_default: false,
            is_hurried: false,
        });
        let addr = self.servers[server].server.addr;
        let timeout = self.snapshot.variables.connect_timeout_server.as_nanos() as Nanos;
        self.timers.dial(socket, self.now + timeout);
        match self.credential(identity) {
            Ok(credential) => {
                let user = &self.identities.0[identity];
                let name = user.account.user.username.as_bytes();
                let (extra, attributes) = (user.capabilities, self.shared.attributes.clone());
                let login = BackendLogin::new(name, credential, extra, tls.is_some(), attributes);
                self.backends[key].login = Some(Box::new(login));
                self.out.order(Order::Connect(socket, addr));
            }
            Err(message) => self.dial_failed(key, Some(error::ACCESS_DENIED.code), &message),
        }
    }

    /// A connection could not be made or logged in; `code` is the server's error, if it gave one.
    pub(super) fn dial_failed(&mut self, key: BackendKey, code: Option<u16>, message: &str) {
        let backend = &self.backends[key];
        let (server, socket, purpose) = (backend.server, backend.socket, backend.purpose);
        let (identity, hostgroup) = (backend.identity, backend.hostgroup);
        self.timers.dial_ended(socket);
        if let Purpose::Kill(kill) = purpose {
            let was_sent = !self.backends[key].expected.is_empty();
            let server = &self.servers[server].server.endpoint;
            tracing::warn!(server, error = message, was_sent, "KILL failed");
            self.discard(key, None);
            return self.kill_failed(kill, was_sent);
        }
        self.servers[server].counts.of(hostgroup).failed += 1;
        self.statistics.totals.server_connections_failed += 1;
        if let Some(code) = code.filter(|code| is_about_user(*code)) {
            // That is between this user and the server: nobody else is to suffer for it.
            let began_at = self.backends[key].logged_in_at;
            self.discard(key, None);
            return self.refuse_waiters(server, identity, began_at, code, message);
        }
        let pool = &mut self.servers[server];
        pool.failures += 1;
        pool.last_error = message.into();
        let variables = &self.snapshot.variables;
        let pause = if pool.failures < variables.failures_to_shun() {
            variables.connect_retries_delay.as_nanos() as Nanos
        } else {
            RETRY_FIRST_NS.saturating_mul(1 << pool.failures.min(10)).min(RETRY_MAX_NS)
        };
        pool.retry_at = self.now + self.random.jitter(pause);
        if !OWN_FAULTS.contains(&code.unwrap_or(0)) {
            self.shared.connect_failed(&pool.server.endpoint, message);
        }
        tracing::warn!(
            server = pool.server.endpoint,
            failures = pool.failures,
            retry_in_ms = (pool.retry_at - self.now) / 1_000_000,
            error = message,
            "connection to the server failed"
        );
        self.discard(key, None);
        self.reroute_waiters(server);
    }

    /// Sends the waiters of a server that fails to look for another one.
    pub(super) fn reroute_waiters(&mut self, server: ServerIndex) {
        let waiters = std::mem::take(&mut self.servers[server].waiters);
        for (key, socket) in waiters {
            if self.is_waiting(key, socket) {
                self.acquire(key);
            }
        }
    }

    /// A connection is logged in, set up and nobody's: it goes to the next in line, or rests.
    pub(super) fn offer(&mut self, key: BackendKey) {
        let backend = &self.backends[key];
        let server = backend.server;
        debug_assert!(backend.holder.is_none());
        if let Some(poison) = backend.poison {
            return self.discard(key, Some(poison));
        }
        if backend.kills_pending > 0 || !backend.expected.is_empty() {
            return; // fenced, or still owed replies: comes back here when it is through
        }
        let pool = &self.servers[server];
        if !pool.takes_work() || self.is_stale(key) {
            return self.retire(key, Poison::Stale);
        }
        if self.is_too_old(key) {
            return self.retire(key, Poison::Aged);
        }
        if let Some(identity) = self.backends[key].next_identity.take() {
            return self.change_identity(key, identity);
        }
        self.backends[key].idle_since = self.now;
        while let Some((waiter, socket)) = self.next_waiter(server, key) {
            if !self.is_waiting(waiter, socket) {
                continue;
            }
            if self.sessions[waiter].identity == self.backends[key].identity {
                if self.gives_way(server, key) {
                    let pool = &mut self.servers[server];
                    pool.waiters.push_front((waiter, socket));
                    pool.has_asked = false;
                    return self.supply(server);
                }
                if !self.needs_login(key, waiter) {
                    return self.lend(key, waiter);
                }
            }
            self.servers[server].waiters.push_front((waiter, socket));
            return self.change_identity(key, self.sessions[waiter].identity);
        }
        self.servers[server].has_asked = false;
        if self.can_spare(server, key) && self.give_to_other_worker(server, key) {
            return;
        }
        self.servers[server].idle.push(key);
    }

    /// Takes the next in line for this connection out of the queue: the first, unless a connection for that one is
    /// coming and another one can use this as it is. Else two identities, each with connections in the making, could
    /// have them made anew for each other for ever.
    fn next_waiter(&mut self, server: ServerIndex, key: BackendKey) -> Option<(SessionKey, SocketId)> {
        let own = self.backends[key].identity;
        let identity = |waiter: &(SessionKey, SocketId)| {
            self.is_waiting(waiter.0, waiter.1).then(|| self.sessions[waiter.0].identity)
        };
        let pool = &self.servers[server];
        let is_coming = |identity| pool.coming.iter().any(|(known, count)| *known == identity && *count > 0);
        let first = pool.waiters.front().and_then(identity);
        let at = match first {
            Some(first) if first != own && is_coming(first) => {
                let mut near = pool.waiters.iter().take(WAITERS_LOOKED_AT);
                near.position(|waiter| identity(waiter) == Some(own)).unwrap_or(0)
            }
            _ => 0,
        };
        self.servers[server].waiters.remove(at)
    }

    /// Whether connection_max_age_ms is over. One that has served nobody yet is to do so once.
    pub(super) fn is_too_old(&self, key: BackendKey) -> bool {
        let limit = self.snapshot.variables.connection_max_age_ms.as_nanos() as Nanos;
        let backend = &self.backends[key];
        let age_max = limit - limit / 1000 * backend.early_permille;
        limit > 0 && backend.has_served && self.now.saturating_sub(backend.opened_at) > age_max
    }

    pub(super) fn is_stale(&self, key: BackendKey) -> bool {
        let account = &self.identities.0[self.backends[key].identity].account;
        let current = self.snapshot.users.get(account.user.username.as_bytes());
        !current.is_some_and(|current| Arc::ptr_eq(current, account)) || self.is_encrypted_otherwise(key)
    }

    /// The configuration wants another encryption of connections to this server, or none, or some.
    fn is_encrypted_otherwise(&self, key: BackendKey) -> bool {
        let backend = &self.backends[key];
        match (&backend.tls, &self.servers[backend.server].server.tls) {
            (Some(here), Some(wanted)) => !Arc::ptr_eq(here, wanted),
            (None, None) => false,
            _ => true,
        }
    }

    pub(super) fn server_index(&self, endpoint: &str) -> Option<ServerIndex> {
        let mut of_name =
            self.servers.iter().enumerate().filter(|(_, pool)| pool.server.endpoint == endpoint);
        let first = of_name.clone().next();
        of_name.find(|(_, pool)| pool.is_current).or(first).map(|(index, _)| index)
    }

    /// Closes a connection that is nobody's any more. Where a session's diagnostics are to be fetched first, it is
    /// offered again afterwards, and closed then.
    pub(super) fn retire(&mut self, key: BackendKey, poison: Poison) {
        self.fetch_kept(key, SessionKey::MAX);
        let backend = &self.backends[key];
        if backend.expected.iter().any(|expected| matches!(expected, Expected::Fetch(_))) {
            let server = backend.server;
            self.servers[server].idle.retain(|idle| *idle != key);
            return;
        }
        self.discard(key, Some(poison));
    }

    /// Closes a connection for good.
    pub(super) fn discard(&mut self, key: BackendKey, poison: Option<Poison>) {
        self.drop_kept(key);
        let backend = self.backends.remove(key);
        if let Some(poison) = poison {
            self.statistics.totals.pool_discards += 1;
            let server = &self.servers[backend.server].server.endpoint;
            tracing::debug!(
                server,
                thread_id = backend.greeted.thread_id,
                ?poison,
                "backend connection closed"
            );
        }
        self.timers.dial_ended(backend.socket);
        self.out.close(backend.socket);
        let pool = &mut self.servers[backend.server];
        pool.count_off(&backend);
        pool.idle.retain(|idle| *idle != key);
        if backend.has_credit {
            pool.open -= 1;
            pool.server.close_one();
        }
        let server = backend.server;
        if !self.servers[server].waiters.is_empty() {
            self.servers[server].supply_again(self.now);
        }
    }

    /// Makes a connection fit for the next session after one that had these pins: everything is reset, and where
    /// nobody knows what there was, that is proven; or the connection goes.
    pub(super) fn recycle(&mut self, key: BackendKey, left: Pins) {
        let backend = &self.backends[key];
        if left.intersects(Pins::OUTLIVE_RESET) || backend.poison.is_some() {
            let poison = backend.poison.or(Some(Poison::RoleLeft));
            return self.discard(key, poison);
        }
        if self.forgets_its_sql_mode(key) {
            return self.discard(key, Some(Poison::Stale));
        }
        let backend = &self.backends[key];
        let is_opaque = left.intersects(Pins::OPAQUE) || backend.is_suspect;
        if is_opaque && !backend.greeted.is_mariadb {
            // A login gives the roles that it should have (MySQL), whatever was made of them.
            let identity = backend.identity;
            return self.change_identity(key, identity);
        }
        if let Some(buffer) = self.out.buffer(backend.socket) {
            weir_protocol::command::put_reset_connection(buffer);
        }
        self.expect(key, Expected::Reset);
        self.set_up_again(key, is_opaque);
    }

    /// Sets up a connection that has been reset.
    pub(super) fn set_up_again(&mut self, key: BackendKey, is_opaque: bool) {
        let backend = &mut self.backends[key];
        backend.forget_sessions();
        let schema = backend.state.schema().to_vec();
        self.backends[key].state = self.interner.intern(State::fresh().with_schema(&schema));
        self.set_up(key);
        if is_opaque && self.backends[key].greeted.is_mariadb {
            self.verify(key);
        }
    }

    /// A waiter that this connection was made for may be gone; what matters is who is first now.
    pub(super) fn now_ready(&mut self, key: BackendKey, socket: SocketId) {
        self.timers.dial_ended(socket);
        let server = self.backends[key].server;
        let pool = &mut self.servers[server];
        pool.count_off(&self.backends[key]);
        if self.backends[key].stage == Stage::Dialing {
            pool.counts.of(self.backends[key].hostgroup).opened += 1;
            self.statistics.totals.server_connections_opened += 1;
        }
        self.backends[key].stage = Stage::Ready;
        if pool.failures > 0 {
            tracing::info!(server = pool.server.endpoint, "server accepts connections again");
            pool.failures = 0;
        }
        self.offer(key);
        // There is room for the next dial now.
        self.supply(server);
    }

    /// The same, unless a pin holds it.
    pub(super) fn release_if_free(&mut self, key: SessionKey) {
        if self.sessions[key].pins.is_empty() {
            self.release(key);
        }
    }

    /// A session leaves its lease behind, in order.
    pub(super) fn release(&mut self, key: SessionKey) {
        let Some(lease) = self.detach(key) else { return };
        self.statistics.totals.pool_returns += 1;
        self.offer(lease);
    }

    /// A session leaves a lease that goes on as it is: what only that knows of the session is marked on it. Every lease
    /// ends either here, or with [`Core::lose_lease`], or with its session.
    pub(super) fn detach(&mut self, key: SessionKey) -> Option<BackendKey> {
        let lease = self.sessions[key].lease?;
        self.keep(lease, key);
        self.sessions[key].lease = None;
        self.backends[lease].holder = None;
        Some(lease)
    }
}

impl Pool {
    /// Whether connections to it are worth keeping.
    pub(super) fn takes_work(&self) -> bool {
        self.is_current && !self.server.is_leaving
    }

    /// Have the waiters looked after at this time, or sooner.
    pub(super) fn supply_again(&mut self, at: Nanos) {
        self.supply_at = self.supply_at.min(at);
    }

    /// A connection is in the making for this identity.
    fn comes_as(&mut self, identity: usize) {
        let known = self.coming.iter().position(|(known, _)| *known == identity);
        match known.or_else(|| self.coming.iter().position(|(_, count)| *count == 0)) {
            Some(at) => {
                let count = if known.is_some() { self.coming[at].1 } else { 0 };
                self.coming[at] = (identity, count + 1);
            }
            None => self.coming.push((identity, 1)),
        }
    }

    /// A connection is no longer in the making.
    fn count_off(&mut self, backend: &Backend) {
        match (backend.purpose, backend.stage) {
            (Purpose::Pool, Stage::Dialing) => self.dialing -= 1,
            (Purpose::Pool, Stage::HandingOver) => self.handovers -= 1,
            _ => return,
        }
        let known = self.coming.iter_mut().find(|(known, _)| *known == backend.identity);
        if let Some((_, count)) = known {
            *count = count.saturating_sub(1);
        }
    }
}
