//! Tells who still uses a server that is to be left, and moves them off: a planned change of the writer waits until
//! nobody may write to the old one any more, and a server that leaves is left when its grace is over: by idle sessions,
//! and by reads, with which nothing is lost. What may have an effect comes to its end.

use std::collections::BTreeMap;

use crate::keys::{ConnectionKey, Nanos, ServerIndex, SessionKey};
use crate::pool::balance::GroupMember;
use crate::pool::pools::Pools;
use crate::server::errors::OUTCOME_UNKNOWN;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::snapshot::Health;
use crate::statement::lease::MOVED;
use crate::stats::WritingRow;
use crate::work::Work;
use crate::worker::Worker;
use crate::worker::sessions::Sessions;

/// How long the end of a large row is waited for, behind which an error can stand.
const LARGE_ROW_NS: Nanos = 5_000_000_000;

impl Sessions {
    /// Sessions that a server has as a writer, and that stay there for their next statement. Others may keep a
    /// connection too (listeners with mode primary), and move on when there is another writer.
    pub(crate) fn writing(&self, pools: &Pools) -> Vec<WritingRow> {
        let mut counts: BTreeMap<(usize, String), u64> = BTreeMap::new();
        for (key, connection) in pools.connections.iter() {
            if let Some(because) = self.writes_because(pools, key) {
                *counts.entry((connection.server, because)).or_default() += 1;
            }
        }
        let row = |((server, because), sessions): ((usize, String), u64)| WritingRow {
            endpoint: pools.servers[server].server.endpoint.clone(),
            because,
            sessions,
        };
        counts.into_iter().map(row).collect()
    }

    /// The sessions that may write to a server, and why.
    fn writers_of(&self, pools: &Pools, endpoint: &str) -> Vec<(SessionKey, String)> {
        // Also where it was before it moved to another address.
        let is_of_it = |connection: &crate::server::connection::ServerConnection| {
            pools.servers[connection.server].server.endpoint == endpoint
        };
        let is_there = |(key, connection): (ConnectionKey, &crate::server::connection::ServerConnection)| {
            let because = self.writes_because(pools, key).filter(|_| is_of_it(connection))?;
            let session = self.get(connection.holder?)?;
            // It may be a reader now.
            let only_reads = session.execution.plan.is_read() && session.all_pins().is_empty();
            (!only_reads).then_some((connection.holder?, because))
        };
        pools.connections.iter().filter_map(is_there).collect()
    }

    /// Why the holder of this connection may write there; none if it may not.
    fn writes_because(&self, pools: &Pools, key: ConnectionKey) -> Option<String> {
        let session = self.get(pools.connections.get(key)?.holder?)?;
        let is_lease = session.lease() == Some(key);
        if is_lease && session.is_pinned_to_reader() {
            return None;
        }
        let pins = session.all_pins();
        match session.phase {
            _ if !pins.is_empty() => Some(match session.obstacle() {
                Some(obstacle) => format!("{}: {obstacle}", pins.words()),
                None => pins.words(),
            }),
            Phase::Running | Phase::Settling | Phase::Held => Some("statement".to_owned()),
            _ => None,
        }
    }
}

impl Worker {
    /// Ends what still has a server whose grace is over: idle sessions and reads.
    pub(crate) fn end_grace(&mut self) {
        let holders =
            self.pools.connections.iter().filter_map(|(key, connection)| Some((key, connection.holder?)));
        let overdue: Vec<(ConnectionKey, SessionKey)> =
            holders.filter(|(connection, _)| self.pools.has_overstayed(&self.ctx, *connection)).collect();
        for (connection, key) in overdue {
            match self.sessions.get(key).map(|session| &session.phase) {
                Some(Phase::Idle) => {
                    let mut work = self.work(key);
                    if !work.take_transaction_along() {
                        work.close_overstayed(connection);
                    }
                }
                Some(Phase::Running) => self.work(key).end_read(connection),
                _ => {}
            }
        }
    }
}

impl Work<'_> {
    /// A read on a server whose grace is over. If its client has nothing of its result, it runs elsewhere; else an
    /// error takes the place of the rest.
    fn end_read(&mut self, connection: ConnectionKey) {
        let session = &*self.session;
        let execution = &session.execution;
        if session.lease() != Some(connection)
            || !execution.plan.is_read()
            || execution.plan.statement().multi
        {
            return;
        }
        let server = self.pools.connections[connection].server;
        let lost = self.pools.connections[connection].loss_of();
        if session.pins.is_empty() && self.session.may_retry(self.ctx, lost) {
            if self.pools.is_served_elsewhere(self.session, server) {
                self.session.take_withheld_back(self.ctx);
                self.abandon_lease();
                self.session.lose_lease();
                self.run_again(lost);
            }
            return;
        }
        let overdue =
            self.ctx.now.saturating_sub(self.pools.servers[server].server.leave_by.unwrap_or(self.ctx.now));
        let at = self.pools.connections[connection].replies.breaks_off();
        if !execution.reply.is_answering
            || execution.reply.buffered_bytes_max > 0
            || (at.is_none() && overdue < LARGE_ROW_NS)
        {
            return;
        }
        let endpoint = &self.pools.servers[server].server.endpoint;
        let pins = session.all_pins();
        let state = if pins.is_empty() { String::new() } else { format!(", and with it: {}", pins.words()) };
        let message = format!(
            "{endpoint} is drained, and drain_grace_ms is over; the rest of this result is missing{state}"
        );
        self.break_off(at, MOVED, &message);
    }
}

impl Worker {
    /// Has sessions leave a server that will be the writer no more, with their open transactions if those can run again.
    pub(crate) fn move_writers(&mut self, endpoint: &str) {
        for (key, _) in self.sessions.writers_of(&self.pools, endpoint) {
            self.work(key).take_transaction_along();
        }
    }

    /// Closes the sessions that may still write to a server which is the writer no more.
    pub(crate) fn cut_writers(&mut self, endpoint: &str) {
        for (key, because) in self.sessions.writers_of(&self.pools, endpoint) {
            self.work(key).cut_writer(endpoint, &because);
        }
    }
}

impl Work<'_> {
    fn cut_writer(&mut self, endpoint: &str, because: &str) {
        if self.take_transaction_along() || self.leave_with_commit() {
            return;
        }
        let session = &*self.session;
        let is_running = matches!(session.phase, Phase::Running);
        if is_running && session.execution.reply.is_answering {
            let at = session.lease().and_then(|lease| self.pools.connections[lease].replies.breaks_off());
            let message = format!(
                "The writer is moved away from {endpoint}, where this session had: {because}; the rest of the result is \
                 missing"
            );
            let error = if session.execution.may_have_run() { OUTCOME_UNKNOWN } else { MOVED };
            return self.break_off(at, error, &message);
        }
        if matches!(session.phase, Phase::Settling) && session.execution.reply.deadlock.is_some() {
            self.abandon();
            self.session.lose_lease();
            return self.tell_of_lost_deadlock();
        }
        if matches!(session.phase, Phase::Settling) {
            // It has its answer.
            self.abandon();
            self.session.lose_lease();
            let message = format!("The writer is moved away from {endpoint} after the last statement");
            return self.lost_after_reply(MOVED, message);
        }
        let message = format!("The writer is moved away from {endpoint}, where this session had: {because}");
        if is_running && session.execution.may_have_run() {
            let message = format!("{message}: it may or may not have taken effect");
            return self.fail_session(OUTCOME_UNKNOWN, &message);
        }
        self.fail_session(MOVED, &message);
    }
}

impl Work<'_> {
    /// A session leaves its server while its COMMIT, or its write, is under way there, and what becomes of that can be known. False
    /// if it can't.
    fn leave_with_commit(&mut self) -> bool {
        let Some(lease) = self.session.lease().filter(|_| matches!(self.session.phase, Phase::Running))
        else {
            return false;
        };
        if self.session.can_ask_for_outcome() {
            self.discard_lease(lease);
            self.begin_inquiry();
        } else if self.session.is_wrapped() && self.session.is_wrapped_write_undone() {
            let server = self.pools.connections[lease].server;
            if !self.session.note_write_in_flight(server) {
                return false;
            }
            self.discard_lease(lease);
            self.unwrap_write();
        } else {
            return false;
        }
        self.look_elsewhere();
        true
    }
}

impl Pools {
    /// Whether another server could take a session's read.
    fn is_served_elsewhere(&self, session: &Session, server: ServerIndex) -> bool {
        let home = self.groups.get(&session.execution.hostgroup);
        let readers =
            home.and_then(|group| group.reader_hostgroup).and_then(|readers| self.groups.get(&readers));
        let serves = |member: &GroupMember| {
            let is_leaving = self.servers[member.server].server.is_leaving;
            member.server != server && member.health != Health::Shunned && !is_leaving
        };
        [home, readers].into_iter().flatten().any(|group| group.members.iter().any(serves))
    }
}

impl Worker {
    /// Has idle sessions leave servers that have no part in their hostgroups any more.
    pub(crate) fn move_sessions(&mut self) {
        let holders = self.pools.connections.iter().filter_map(|(_, connection)| connection.holder);
        let idle: Vec<SessionKey> =
            holders.filter(|key| matches!(self.sessions[*key].phase, Phase::Idle)).collect();
        for key in idle {
            self.work(key).moves_away();
        }
    }
}
