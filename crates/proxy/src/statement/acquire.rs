//! From a planned statement to a lease: which hostgroup, which server, which connection.

use weir_sql::{Kind, Uses};

use crate::context::Context;
use crate::context::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::pool::balance::{GroupMember, Load, choose};
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::snapshot::Standing;
use crate::statement::work::Work;
use crate::statement::write_lease::NO_WRITE_LEASE;

/// Idle connections looked at, most recent first, for one whose state fits already.
const IDLE_LOOKED_AT: usize = 8;

/// Sessions that found no server look again after this time, if nothing else makes them look.
const UNPARK_NS: Nanos = 20_000_000;

impl Work<'_> {
    /// Starts the planned work of a session: on its lease, or on one that is found now or waited for. Always
    /// false: the session is busy from here on.
    pub(crate) fn start(&mut self) -> bool {
        if !self.session.has_been_held(self.ctx) {
            return false;
        }
        self.pools.outdate_warnings(self.ctx, self.session);
        let session = &mut *self.session;
        let is_answered = session.execution.plan.kind() != crate::plan::execution_plan::CommandKind::LongData;
        if is_answered && let Some(owed) = session.farewell.owed_error.take() {
            self.pools.reply_error(self.ctx, self.session, owed.0, &owed.1);
            self.answered_here();
            return false;
        }
        session.execution.tries.attempts += 1;
        if session.account.is_none() {
            self.refuse_without_account();
            return false;
        }
        session.execution.hostgroup =
            session.execution.plan.decision().hostgroup.unwrap_or(session.home_hostgroup());
        session.go_where_it_was();
        self.place();
        false
    }

    /// Sends started work on its lease, or finds one.
    pub(crate) fn place(&mut self) {
        if let Some(lease) = self.session.lease
            && !self.pools.begin_detour(self.session, lease)
            && self.pools.should_move(self.session, lease)
        {
            self.pools.release(self.ctx, self.session);
        }
        if let Some(lease) = self.session.lease {
            if self.pools.has_overstayed(self.ctx, lease) {
                return self.close_overstayed(lease);
            }
            // What a pin holds stays where it is, whatever the rules say; in a transaction that is ProxySQL's way too.
            if self.pools.must_not_run_on(self.session, lease) && !self.may_run_on_reader(lease) {
                return;
            }
            let session = &mut *self.session;
            session.execution.served_by = self.pools.connections[lease].hostgroup;
            session.phase = Phase::Running;
            return self.prepare_connection(lease);
        }
        self.session.phase = Phase::Waiting(self.ctx.now);
        self.acquire();
    }

    /// Finds a server for a waiting session.
    pub(crate) fn acquire(&mut self) {
        self.hear();
        let session = &*self.session;
        let writer = session.execution.hostgroup;
        let uses_connection = session
            .execution
            .plan
            .statement()
            .uses
            .intersects(Uses::LAST_INSERT_ID | Uses::DIAGNOSTICS | Uses::FOUND_ROWS)
            && (!session.diagnostics.retained.is_empty() || session.diagnostics.last_insert_id != 0);
        // Where a rule or a hint sends a statement, it goes.
        let may_leave_writer = session.execution.plan.decision().hostgroup.is_none()
            && session.execution.plan.is_read()
            && (session.transaction.is_autocommit || self.session.may_begin_on_reader(self.ctx))
            && !session.execution.writer_only
            // What was announced is sent in front, and may outlast a read that uses no table.
            && (!session.transaction.is_next_read_only || session.execution.plan.begins_read_only())
            && !uses_connection;
        let reader = self.pools.groups.get(&writer).and_then(|group| group.reader_hostgroup);
        if uses_connection && let Some(retained_on) = session.diagnostics.retained_on {
            // What was announced must not bind the session to a reader.
            let binds = session.transaction.is_next_read_only && !self.pools.is_member(retained_on, writer);
            if binds
                || !self.pools.may_run_on(self.ctx, self.session, retained_on)
                || !self.pools.is_sound(self.ctx, self.session, retained_on)
            {
                self.pools.fetch_retained(self.ctx, self.session, retained_on);
                self.session.diagnostics.retained_on = None;
                return self.session.begin_again(self.ctx);
            }
            if self.pools.take_retaining(retained_on) {
                let in_reader = reader.filter(|_| !self.pools.is_member(retained_on, writer));
                self.session.execution.served_by = in_reader.unwrap_or(writer);
                return self.lend(retained_on);
            }
        }
        if let Some(server) = self.session.execution.only_server {
            return self.obtain(server);
        }
        if self.session.is_bound() {
            return match self.pools.pick_bound(self.ctx, self.session) {
                Some(server) => self.obtain(server),
                None => self.park(writer),
            };
        }
        let reader = reader.filter(|_| may_leave_writer);
        let mut pick = |last_resort| {
            let of_readers =
                reader.and_then(|reader| self.pools.pick(self.ctx, self.session, reader, last_resort));
            of_readers.or_else(|| self.pools.pick(self.ctx, self.session, writer, last_resort))
        };
        match pick(false).or_else(|| pick(true)) {
            Some(server) => self.obtain(server),
            None => self.park(reader.unwrap_or(writer)),
        }
    }

    /// No server can be had: the session looks again when the first may be tried again, or in a moment.
    fn park(&mut self, hostgroup: u32) {
        if self.session.execution.plan.kind() == CommandKind::LoginSchema {
            // Nobody is there to ask.
            self.session.login_done(self.ctx);
            return self.answered_here();
        }
        if self.is_hinted_nowhere() || !self.may_be_held(hostgroup) {
            return;
        }
        let Some(waiter) = self.session.waiter() else { return };
        self.pools.parked.push_back(waiter);
        let members =
            self.pools.groups.get(&hostgroup).map(|group| group.members.as_slice()).unwrap_or_default();
        let retries = members.iter().map(|member| self.pools.servers[member.server].retry_at);
        let soon = self.ctx.now + UNPARK_NS;
        let next = retries.filter(|at| *at > self.ctx.now).min().unwrap_or(soon);
        self.ctx.timers.unpark(next.min(soon));
    }

    /// Gives the session a connection to this server, now or when its turn comes.
    pub(crate) fn obtain(&mut self, server: ServerIndex) {
        let session = &mut *self.session;
        session.stay.held = None;
        self.ctx.statistics.totals.pool_gets += 1;
        let Some(waiter) = session.waiter() else { return };
        if self.pools.servers[server].waiters.is_empty()
            && let Some(connection) = self.pools.take_idle(session, server)
        {
            self.ctx.statistics.totals.pool_gets_immediate += 1;
            if !self.pools.needs_login(self.ctx, Some(waiter.since), connection) {
                return self.lend(connection);
            }
            return self.pools.login_anew_for(self.ctx, connection, waiter);
        }
        self.pools.servers[server].waiters.push_back(waiter);
        self.pools.supply(self.ctx, server);
    }

    /// Lends a connection that is ready and nobody's to a waiting session.
    ///
    /// One on which another session may have left what nobody can name, or what this session asks for and no server
    /// reports, is wiped first.
    pub(crate) fn lend(&mut self, connection: ConnectionKey) {
        if self.pools.connections[connection].must_wipe(self.ctx, self.session) {
            let session = &mut *self.session;
            session.phase = Phase::Waiting(self.ctx.now);
            let Some(waiter) = session.waiter() else { return };
            return self.pools.wipe_for(self.ctx, connection, waiter);
        }
        if !self.suits_defaults(connection) {
            // What the connection has told of the session is news: it may belong elsewhere, or mean something else.
            let pool = &mut self.pools.servers[self.pools.connections[connection].server];
            pool.idle.push(connection);
            pool.supply_again(self.ctx.now);
            self.pools.connections[connection].age.idle_since = self.ctx.now;
            return self.session.begin_again(self.ctx);
        }
        self.pools.take_over_retained(self.ctx, self.session, connection);
        let session = &*self.session;
        // A rule that sends more than reads to a server means it to be written to.
        let is_sent_to_write =
            session.execution.plan.decision().hostgroup.is_some() && !session.execution.plan.is_read();
        let is_writer = is_sent_to_write || self.pools.is_member(connection, session.home_hostgroup());
        let session = &mut *self.session;
        session.is_pinned_to_reader = !is_writer && !session.is_bound() && session.carried().is_none();
        session.forget_obstacle();
        session.lease = Some(connection);
        session.stay.held = None;
        session.execution.tries.is_sent = false;
        session.execution.has_ended_conditions = false;
        session.phase = Phase::Running;
        let hostgroup = session.execution.served_by;
        self.pools.connections[connection].holder = Some(self.session.key);
        self.pools.connections[connection].traces.last_holder = Some(self.session.socket);
        self.pools.connections[connection].hostgroup = hostgroup;
        self.pools.connections[connection].age.has_served = true;
        self.ctx.statistics.totals.pool_lends += 1;
        self.prepare_connection(connection);
    }
}

impl Session {
    /// Looks at the session's command anew once its diagnostics have been fetched: then it may have to say
    /// something else to the server.
    pub(crate) fn begin_again(&mut self, ctx: &mut Context) {
        self.restore_query_attributes();
        self.phase = Phase::Idle;
        self.input.command_bytes = 0;
        self.input.upload = None;
        self.place.decided = Some(Box::new(*self.execution.plan.decision()));
        if self.diagnostics.fetching == 0 {
            ctx.runnable.push_back((self.key, self.socket));
        }
    }
}

impl ServerConnection {
    fn must_wipe(&self, ctx: &Context, session: &Session) -> bool {
        if session.diagnostics.retained_on == Some(self.key) {
            return false; // it has the session's own diagnostics, and nobody has had it since
        }

        (self.traces.is_suspect && self.traces.last_holder != Some(session.socket))
            || ((session.execution.plan.asks_for_hidden_state()
                || session.carried().is_some()
                || ctx.snapshot.variables.reset_after_hidden_code)
                && self.traces.hidden_code_of.is_of_another(session.socket))
    }
}

impl Pools {
    /// Whether a session is pinned to a reader with a statement that may write, and no rule sends it there.
    fn must_not_run_on(&self, session: &Session, lease: ConnectionKey) -> bool {
        let is_sent_there = || {
            session
                .execution
                .plan
                .decision()
                .hostgroup
                .is_some_and(|hostgroup| self.is_member(lease, hostgroup))
        };
        session.is_pinned_to_reader && !session.execution.plan.is_read() && !is_sent_there()
    }

    /// Whether the session's statement may run where this connection leads: what may write only on a writer.
    fn may_run_on(&self, ctx: &Context, session: &Session, connection: ConnectionKey) -> bool {
        let execution = &session.execution;
        let server = self.connections[connection].server;
        let group = |id: u32| self.groups.get(&id);
        let is_in =
            |group: &crate::pool::pools::Group| group.members.iter().any(|member| member.server == server);
        let only_shows = matches!(
            execution.plan.statement().kind,
            Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors
        ) && !execution.plan.statement().multi;
        let leaves_nothing = execution.plan.is_read() || only_shows;
        let reader = group(execution.hostgroup).and_then(|writers| writers.reader_hostgroup).and_then(group);
        let may_send = self.may_send(ctx, server, execution);
        may_send && group(execution.hostgroup).is_some_and(is_in)
            || (leaves_nothing && reader.is_some_and(is_in))
    }

    /// Whether a connection may serve a session once more: its login holds, and its server takes statements.
    fn is_sound(&self, ctx: &Context, session: &Session, connection: ConnectionKey) -> bool {
        let server = self.connections[connection].server;
        !self.needs_login(ctx, session.waiter().map(|waiter| waiter.since), connection)
            && self.servers[server].suspect_until <= ctx.now
            && session.execution.tries.avoided(false, ctx.now) != Some(server)
    }

    /// The next server of a hostgroup, among those that may serve this session: see [`crate::pool::balance`]. Servers to
    /// which connections fail, and the one on which the statement's connection was lost, are left out unless this is
    /// the `last_resort`.
    pub(crate) fn pick(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        hostgroup: u32,
        last_resort: bool,
    ) -> Option<ServerIndex> {
        let now = ctx.now;
        let group = self.groups.get_mut(&hostgroup)?;
        let servers = &self.servers;
        let has_effects = session.execution.plan.may_have_effects();
        // Also for writes: a writer that has just taken over may not have applied this session's last one yet.
        let written_at = session.must_see();
        let must_cover = group.is_replicated && written_at != 0;
        let avoided = session.execution.tries.avoided(last_resort, now);
        let load = |member: &GroupMember| {
            let pool = &servers[member.server];
            let is_reachable = pool.suspect_until <= now
                && avoided != Some(member.server)
                && pool.server.max_connections > 0
                && (last_resort || member.standing != Standing::Shunned)
                && (pool.failures == 0 || pool.retry_at <= now || pool.open > pool.dialing);
            let covers = !must_cover
                || session.writes.last_server == member.server
                || pool.server.shared.covers(written_at);
            let may_send = !has_effects || pool.server.shared.may_write_at(now);
            (is_reachable && covers && may_send).then(|| Load {
                in_flight: pool.running + u32::try_from(pool.waiters.len()).unwrap_or(u32::MAX / 2),
                latency_us: pool.latency.now_us(now),
                is_full: pool.has_asked && pool.idle.is_empty(),
            })
        };
        let chosen = choose(&mut group.members, group.balancing, now, &mut self.dice, load)?;
        let server = group.members.get(chosen).map(|member| member.server);
        session.execution.served_by = hostgroup;
        session.stay.stays_in = group.keeps_connections.then_some(hostgroup);
        server
    }

    /// An idle connection that fits the session's identity: its own of before, or one in the same state, or
    /// any.
    fn take_idle(&mut self, session: &Session, server: ServerIndex) -> Option<ConnectionKey> {
        let connections = &self.connections;
        let idle = &self.servers[server].idle;
        let fits = |at: usize| connections[idle[at]].identity == session.identity;
        let own = session
            .diagnostics
            .retained_on
            .and_then(|retained_on| idle.iter().position(|connection| *connection == retained_on));
        let equal = || {
            let state = &session.tracked.state;
            let recent = idle.len().saturating_sub(IDLE_LOOKED_AT)..idle.len();
            recent.rev().find(|at| {
                let connection = &connections[idle[*at]];
                fits(*at)
                    && connection.traces.retained_for.is_none()
                    && !connection.traces.is_suspect
                    && std::rc::Rc::ptr_eq(&connection.state, state)
            })
        };
        let at = own.or_else(equal).or_else(|| (0..idle.len()).rev().find(|at| fits(*at)))?;
        Some(self.servers[server].idle.remove(at))
    }

    /// Why the session could have no server of a hostgroup, for people.
    pub(crate) fn why_unreachable(&self, ctx: &Context, session: &Session, hostgroup: u32) -> String {
        let Some(group) = self.groups.get(&hostgroup) else {
            return format!("no server is configured for hostgroup {hostgroup}");
        };
        let written_at = session.must_see();
        let must_cover = group.is_replicated && written_at != 0;
        let mut reasons: Vec<String> = group
            .members
            .iter()
            .map(|member| {
                let pool = &self.servers[member.server];
                let endpoint = &pool.server.endpoint;
                let shunned = if member.standing == Standing::Shunned { "shunned, " } else { "" };
                if pool.server.max_connections == 0 {
                    format!("{endpoint}: max_connections is 0")
                } else if pool.failures > 0 {
                    format!("{endpoint}: {shunned}{} ({} failures in a row)", pool.last_error, pool.failures)
                } else if !pool.server.shared.may_write_at(ctx.now) {
                    format!("{endpoint}: {NO_WRITE_LEASE}")
                } else if pool.suspect_until > ctx.now {
                    format!("{endpoint}: rejects statements")
                } else if !shunned.is_empty() {
                    format!("{endpoint}: shunned, because connections to it failed")
                } else if must_cover
                    && session.writes.last_server != member.server
                    && !pool.server.shared.covers(written_at)
                {
                    format!("{endpoint}: is not known to have this session's last write")
                } else if pool.is_throttled {
                    format!("{endpoint}: all connections are in use, and throttle_connections_per_sec allows no more now")
                } else {
                    let max = pool.server.max_connections;
                    format!("{endpoint}: all {max} connections (max_connections) are in use")
                }
            })
            .collect();
        if !group.absent.is_empty() {
            reasons.push(group.absent.clone());
        }
        if reasons.is_empty() { "no server is in it".into() } else { reasons.join("; ") }
    }
}
