//! Gets a lease for a planned statement: which hostgroup, which server, which connection.

use weir_protocol::error::LOCK_DEADLOCK;
use weir_routing::Consistency;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::plan::requirements::{Circumstances, Requirements};
use crate::pool::choice::Found;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::bonds::Lease;
use crate::session::execution::Execution;
use crate::session::phase::Phase;
use crate::work::Work;

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
        let is_rollback = session.execution.plan.is_plain_rollback();
        if self.session.is_to_replay() {
            if !self.begins_behind_replay() {
                return false;
            }
            if self.pools.has_lost_writer(self.session) {
                self.pools.take_turn_for_replay(self.session);
            }
        }
        let session = &mut *self.session;
        if is_rollback && session.farewell.owed_error.as_ref().is_some_and(|owed| owed.0 == LOCK_DEADLOCK) {
            // That is done.
            session.farewell.owed_error = None;
            if self.session.gives_transaction_up() {
                self.answer_ok();
                return false;
            }
        }
        let session = &mut *self.session;
        if is_answered && let Some(owed) = session.farewell.owed_error.take() {
            self.answer_error(owed.0, &owed.1);
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
        session.go_where_transaction_was();
        self.decide_consistency();
        self.place();
        false
    }

    /// Sends started work on its lease, or finds one.
    pub(crate) fn place(&mut self) {
        if let Some(lease) = self.session.lease()
            && !self.pools.begin_detour(self.session, lease)
            && self.pools.should_move(self.session, lease)
        {
            self.pools.release(self.ctx, self.session);
        }
        if let Some(lease) = self.session.lease()
            && self.pools.has_overstayed(self.ctx, lease)
            && !self.leave_with_transaction()
        {
            return self.close_overstayed(lease);
        }
        if let Some(lease) = self.session.lease() {
            // What a pin holds stays where it is, whatever the rules say; in a transaction that is ProxySQL's way too.
            if self.pools.must_not_run_on(self.session, lease) && !self.may_run_on_reader(lease) {
                return;
            }
            if self.waits_on_lease(lease) {
                return;
            }
            let session = &mut *self.session;
            session.execution.served_by = self.pools.connections[lease].hostgroup;
            session.phase = Phase::Running;
            return self.prepare_connection(lease);
        }
        self.session.phase = Phase::waiting(self.ctx.now);
        self.acquire();
    }

    /// Finds a server for a waiting session.
    pub(crate) fn acquire(&mut self) {
        self.hear();
        let wanted = self.session.requirements(self.ctx, self.pools);
        let writer = wanted.hostgroup();
        let reader = self.pools.groups.get(&writer).and_then(|group| group.reader_hostgroup);
        if self.waits_for_replays(writer) {
            return;
        }
        if wanted.asks_connection()
            && let Some(retained_on) = self.session.diagnostics.retained_on
        {
            let since = self.session.waiter().map(|waiter| waiter.since);
            let in_reader = reader.filter(|_| !self.pools.is_member(retained_on, writer));
            let hostgroup = in_reader.unwrap_or(writer);
            if !self.pools.may_run_on(self.ctx.now, &wanted, retained_on)
                || !self.pools.is_sound(self.ctx, &wanted, since, retained_on)
                || self.pools.lacks(&wanted, retained_on, hostgroup).is_some()
            {
                self.pools.fetch_retained(self.ctx, self.session, retained_on);
                self.session.diagnostics.retained_on = None;
                return self.session.begin_again(self.ctx);
            }
            if self.pools.take_retaining(retained_on) {
                self.session.execution.served_by = hostgroup;
                return self.lend(retained_on);
            }
        }
        if let Some(server) = self.session.execution.only_server.as_deref().copied() {
            return self.obtain(server);
        }
        let is_bound = self.session.is_bound();
        let first = match is_bound {
            true => Some(self.pools.bound_hostgroup(self.session)),
            false => reader.filter(|_| wanted.may_leave_writer()),
        };
        if first.is_some() && wanted.may_change_reader() {
            self.session.freshness.changed_reader_at = self.ctx.now;
        }
        if self.waits_for_gtid_at_readers(&wanted, first.filter(|_| !is_bound)) {
            return;
        }
        match self.pools.choose_server(self.ctx.now, &wanted, first) {
            Some(Found::Now(choice)) => {
                let session = &mut *self.session;
                session.execution.served_by = choice.hostgroup;
                session.stay.stays_in = choice.keeps_connections.then_some(choice.hostgroup);
                self.obtain(choice.server);
            }
            Some(Found::Later(check)) => self.await_check(check),
            None => {
                self.pools.want_gtid(self.ctx.worker, &wanted, [first, Some(writer)]);
                self.park(first.filter(|_| !is_bound).unwrap_or(writer));
            }
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
        self.ctx.statistics.totals.pool_gets += 1;
        let Phase::Waiting(wait) = &mut session.phase else { return };
        wait.held = None; // it waits for a connection from here on, not for a server
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
        if self.is_unproven(connection) {
            self.put_back(connection);
            return self.acquire();
        }
        if self.pools.connections[connection].must_wipe(self.ctx, self.session) {
            let session = &mut *self.session;
            session.phase = Phase::waiting(self.ctx.now);
            let Some(waiter) = session.waiter() else { return };
            return self.pools.wipe_for(self.ctx, connection, waiter);
        }
        if !self.suits_defaults(connection) {
            // What the connection has told of the session is news: it may belong elsewhere, or mean something else.
            self.put_back(connection);
            if self.session.is_replaying_ahead() {
                return self.answered_here(); // the next statement tries it again
            }
            return self.session.begin_again(self.ctx);
        }
        self.count_read();
        self.pools.take_over_retained(self.ctx, self.session, connection);
        let session = &*self.session;
        // A rule that sends more than reads to a server means it to be written to.
        let is_sent_to_write =
            session.execution.plan.decision().hostgroup.is_some() && !session.execution.plan.is_read();
        let is_writer = is_sent_to_write
            || session.is_to_replay()
            || self.pools.is_member(connection, session.home_hostgroup());
        let session = &mut *self.session;
        let is_on_reader = !is_writer && !session.is_bound() && session.carried().is_none();
        session.forget_obstacle();
        session.lease = Some(Lease { on: connection, is_on_reader });
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

    /// A connection that was to be lent is nobody's again.
    fn put_back(&mut self, connection: ConnectionKey) {
        let pool = &mut self.pools.servers[self.pools.connections[connection].server];
        pool.idle.push(connection);
        pool.supply_again(self.ctx.now);
        self.pools.connections[connection].age.idle_since = self.ctx.now;
    }
}

impl Session {
    /// What its statement asks of the server and the connection where it runs.
    pub(crate) fn requirements(&self, ctx: &Context, pools: &Pools) -> Requirements {
        let Execution { plan, tries, hostgroup, writer_only, consistency, min_gtid, .. } = &self.execution;
        // What nobody has promised to show need not be known to be there.
        let checked = |moment: Nanos| if *consistency == Consistency::Eventual { 0 } else { moment };
        let may_read_on_reader =
            self.transaction.is_autocommit || (plan.is_read() && self.may_begin_on_reader(ctx));
        let circumstances = Circumstances {
            hostgroup: *hostgroup,
            has_diagnostics: !self.diagnostics.retained.is_empty() || self.diagnostics.last_insert_id != 0,
            is_in_transaction: !self.transaction.is_autocommit || self.is_to_replay(),
            replays: self.is_to_replay(),
            may_read_on_reader,
            announces_read_only: self.transaction.is_next_read_only,
            writer_only: *writer_only,
            must_see: checked(self.must_see()),
            written_on: self.freshness.last_server,
            seen_at: checked(self.freshness.seen_at),
            seen_on: self.freshness.seen_on,
            told_at: checked(self.freshness.told_at),
            min_gtid: min_gtid.as_deref().copied(),
            came_at: tries.started_at,
            proven_after: self.proven_after(),
            waits_until: self.waits_until(pools),
            may_change_reader: self.may_change_reader(ctx.now),
            reads_on_writer: pools.reads_on_writer(self),
            lost_on: tries.lost_on.as_deref().copied(),
            lost_until: tries.avoided_until(),
        };
        Requirements::new(plan, circumstances)
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
        session.is_pinned_to_reader() && !session.execution.plan.is_read() && !is_sent_there()
    }
}
