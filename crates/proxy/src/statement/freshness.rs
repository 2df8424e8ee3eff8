//! Decides how fresh a statement's read has to be, waits for that, and notes what the session has seen afterwards.
//!
//! | level | what the server that is read must have |
//! | --- | --- |
//! | eventual | nothing |
//! | session | the session's own writes, and what its reads have shown |
//! | global | also everything that anybody was acknowledged before the read came |
//! | strict | as global; and the server checks that itself |
//!
//! Of a transaction it is decided at its begin.

use std::rc::Rc;

use weir_routing::Consistency;
use weir_session::pin::Pins;
use weir_session::state::State;
use weir_sql::{Effects, Kind};
use weir_topology::Unchecked;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::pool::freshness::AwaitedCheck;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::session::text::has_word;
use crate::snapshot::StrictRead;
use crate::statement::waiting::HOSTGROUP_UNREACHABLE;
use crate::work::Work;

/// A session that reads all the time may be served by another reader after this time.
const SAME_READER_NS: Nanos = 500_000_000;

impl Work<'_> {
    /// A statement is about to begin: how fresh has what it reads to be?
    pub(crate) fn decide_consistency(&mut self) {
        let level = self.pools.consistency_of(self.session);
        // A session that has the servers wait wants what they wait for. They don't always: MariaDB (10.11) ignores wsrep_sync_wait
        // on a connection that has been reset or has changed its user.
        let level =
            if self.session.tracked.has_servers_wait { level.max(Consistency::Global) } else { level };
        self.session.execution.consistency = level;
        if level >= Consistency::Global {
            self.session.freshness.told_at = self.ctx.now;
        }
    }

    /// Whether a statement that has to run on the session's own lease has to wait until that server is fresh enough. In a
    /// transaction that was seen to at its begin.
    pub(crate) fn waits_on_lease(&mut self, lease: ConnectionKey) -> bool {
        let session = &*self.session;
        let plan = &session.execution.plan;
        let may_read = plan.is_read() || matches!(plan.kind(), CommandKind::Query | CommandKind::Execute);
        let is_in_transaction = session.pins.pins().contains(Pins::TRANSACTION);
        let statement = plan.statement();
        // Several statements, and code, may end the transaction and begin the next one.
        let may_begin = || statement.multi || statement.effects.contains(Effects::ROUTINE);
        let begins = || (plan.is_boundary() && session.begins_another()) || may_begin();
        let is_end = matches!(plan.statement().kind, Kind::Commit | Kind::Rollback) && plan.is_boundary();
        if !may_read || ((is_in_transaction || is_end) && !begins()) {
            return false;
        }
        let hostgroup = self.pools.connections[lease].hostgroup;
        let wanted = session.requirements(self.ctx, self.pools);
        if wanted.min_gtid().is_some() && self.waits_for_gtid_on_lease(lease, &wanted) {
            return true;
        }
        let Some(check) = self.pools.lacks(&wanted, lease, hostgroup) else { return false };
        if wanted.waits_until() <= self.ctx.now {
            self.session.phase = Phase::Running;
            let endpoint = &self.pools.servers[check.server].server.endpoint;
            let message = format!(
                "{endpoint} may not have applied yet what this session has to see, and the session is held there \
                 (consistency_timeout_ms)"
            );
            self.answer_error(HOSTGROUP_UNREACHABLE, &message);
            return true;
        }
        if !matches!(self.session.phase, Phase::Waiting(_)) {
            self.session.phase = Phase::waiting(self.ctx.now);
        }
        self.await_check(check);
        true
    }

    /// Whether a connection that the session is to get was opened after the last check of its server began. Then its statement
    /// looks for a server once more, and now that counts.
    pub(crate) fn is_unproven(&mut self, connection: ConnectionKey) -> bool {
        let &ServerConnection { server, ref age, .. } = &self.pools.connections[connection];
        let reached_at = age.reached_at;
        let coverage = &self.pools.servers[server].server.shared.coverage;
        // Where nothing will ever be known of servers, what was seen there has to do.
        let is_checkable = !coverage.unchecked().is_some_and(Unchecked::is_lasting);
        if coverage.covers(reached_at) || !is_checkable || self.session.execution.only_server.is_some() {
            return false;
        }
        let wanted = self.session.requirements(self.ctx, self.pools);
        let hostgroup = self.session.execution.served_by;
        if self.pools.lacks(&wanted, connection, hostgroup).is_none() {
            return false;
        }
        if let Phase::Waiting(wait) = &mut self.session.phase {
            wait.proven_after = reached_at.max(wait.proven_after);
        }
        true
    }

    /// A statement that may leave the writer gets a connection: in which way is its server fresh enough?
    pub(crate) fn count_read(&mut self) {
        let wanted = self.session.requirements(self.ctx, self.pools);
        if !wanted.may_leave_writer() || self.session.execution.only_server.is_some() {
            return;
        }
        let now = self.ctx.now;
        let waited_us = self.session.awaits_check_since().map(|since| now.saturating_sub(since) / 1000);
        if let Some(group) = self.pools.groups.get_mut(&wanted.hostgroup()) {
            group.reads_by.count(self.session.execution.served_by == wanted.hostgroup(), waited_us);
        }
    }

    /// The session waits until a server is fresh enough.
    pub(crate) fn await_check(&mut self, check: AwaitedCheck) {
        let Some(waiter) = self.session.waiter() else { return };
        if let Phase::Waiting(wait) = &mut self.session.phase {
            wait.awaits_check_since.get_or_insert(self.ctx.now);
        }
        let until = self.session.waits_until(self.pools);
        self.pools.await_check(self.ctx, waiter, check, until);
    }

    /// A statement has ended that may have shown something: nothing older must be shown from now on.
    pub(crate) fn note_seen(&mut self, key: ConnectionKey) {
        let session = &mut *self.session;
        let plan = &session.execution.plan;
        let statement = plan.statement();
        // What a query has put into a variable can be read at any time.
        let fills_variable = statement.effects.contains(Effects::USER_VARIABLE)
            && has_word(session.statement_text(), "SELECT");
        let is_silent = matches!(session.execution.ending, Ending::Ok { has_rows: false, .. })
            && !statement.multi
            && !statement.effects.contains(Effects::ROUTINE)
            && !fills_variable;
        if session.execution.consistency == Consistency::Eventual || plan.kind().is_harmless() || is_silent {
            return;
        }
        let server = self.pools.connections[key].server;
        let coverage = &self.pools.servers[server].server.shared.coverage;
        let freshness = &mut session.freshness;
        let has_all = freshness.seen_on == server || coverage.covers(freshness.seen_at);
        // A statement that changes rows was not kept waiting for what was seen elsewhere: its rows (RETURNING) do not show that.
        // Nor was one in a transaction, whose session may have read elsewhere meanwhile.
        let is_in_transaction = session.pins.pins().contains(Pins::TRANSACTION);
        if has_all || !(plan.changes_rows() || is_in_transaction) {
            freshness.see(server, self.ctx.now);
        } else if is_in_transaction {
            freshness.see(ServerIndex::MAX, self.ctx.now);
        }
    }
}

impl Pools {
    fn consistency_of(&self, session: &Session) -> Consistency {
        let group = self.groups.get(&session.execution.hostgroup);
        session.consistency(group.map(|group| group.consistency).unwrap_or_default())
    }

    /// How a strict read of the session's statement is made.
    pub(crate) fn strict_read_of(&self, session: &Session) -> StrictRead {
        self.groups.get(&session.execution.hostgroup).map(|group| group.strict).unwrap_or_default()
    }

    /// Whether only the writer gives the session's statement what it has to see.
    pub(crate) fn reads_on_writer(&self, session: &Session) -> bool {
        let execution = &session.execution;
        execution.consistency == Consistency::Strict && self.strict_read_of(session) == StrictRead::OnWriter
    }
}

impl Session {
    /// Whether its statement, which begins or ends a transaction, leaves one behind: BEGIN, COMMIT AND CHAIN.
    fn begins_another(&self) -> bool {
        let chains = || {
            self.tracked.state.variable("completion_type") == Some("CHAIN")
                || has_word(self.statement_text(), "CHAIN")
        };
        !matches!(self.execution.plan.statement().kind, Kind::Commit | Kind::Rollback) || chains()
    }

    /// Until when its statement may wait for a reader to be fresh enough.
    pub(crate) fn waits_until(&self, pools: &Pools) -> Nanos {
        let timeout =
            pools.groups.get(&self.execution.hostgroup).map_or(0, |group| group.consistency_timeout);
        self.awaits_check_since().map_or(Nanos::MAX, |since| since.saturating_add(timeout))
    }

    /// Whether it has been served by the same reader for long enough.
    pub(crate) fn may_change_reader(&self, now: Nanos) -> bool {
        self.freshness.seen_at != 0
            && self.execution.consistency != Consistency::Eventual
            && now.saturating_sub(self.freshness.changed_reader_at) > SAME_READER_NS
    }

    /// The state in which a strict read runs: the server waits by itself.
    pub(crate) fn strict_state(&self, ctx: &mut Context, strict: StrictRead) -> Option<Rc<State>> {
        if self.execution.consistency != Consistency::Strict || self.execution.plan.may_have_effects() {
            return None;
        }
        let state = &self.tracked.state;
        let (name, value) = match strict {
            StrictRead::OnWriter => return None,
            StrictRead::WsrepSyncWait => {
                let own =
                    state.variable(WSREP_SYNC_WAIT).and_then(|own| own.parse::<u32>().ok()).unwrap_or(0);
                (WSREP_SYNC_WAIT, (own | 1).to_string())
            }
            StrictRead::GroupConsistency => {
                let own = state.variable(GROUP_CONSISTENCY).unwrap_or_default();
                (GROUP_CONSISTENCY, if own.contains("AFTER") { BEFORE_AND_AFTER } else { BEFORE }.to_owned())
            }
        };
        Some(ctx.interner.intern(state.with_variable(name, &value)))
    }
}

const WSREP_SYNC_WAIT: &str = "wsrep_sync_wait";
const GROUP_CONSISTENCY: &str = "group_replication_consistency";
/// Values of `group_replication_consistency` (MySQL manual, "Transaction Consistency Guarantees").
const BEFORE: &str = "BEFORE";
const BEFORE_AND_AFTER: &str = "BEFORE_AND_AFTER";
