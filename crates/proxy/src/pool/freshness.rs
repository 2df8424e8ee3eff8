//! Decides for a read that no reader is known to be fresh enough for whether it waits for one or goes to the writer, and holds
//! those that wait.
//!
//! What a reader has is found out by causality checks ([`weir_topology::Coverage`]), which serve all who wait at once. How long
//! one takes is known; how busy the writer is, too.

use std::collections::VecDeque;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::requirements::Requirements;
use crate::pool::choice::Choice;
use crate::pool::pools::{Pool, Pools};
use crate::pool::turns::Turn;
use crate::pool::waiting::Waiter;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::snapshot::ReadPreference;
use crate::stats::{CoverageRow, ReadCounts};

/// Those who wait look again after this time at the latest: another server may suit them better meanwhile.
const LOOK_AGAIN_NS: Nanos = 10_000_000;
/// So long a read waits for a reader although the writer is idle: a session that reads at the writer would stay there, for no
/// reader has what it has just seen.
const SHORT_WAIT_NS: Nanos = 10_000_000;
/// A read that may go to the writer waits no longer than this for a reader.
const SPREAD_WAIT_MAX_NS: Nanos = 100_000_000;
/// A writer with fewer statements of this worker under way, on average, is idle: reads do not keep it from anything.
const IDLE_STATEMENTS: u64 = 3 * LoadAverage::ONE / 4;
/// How long a session may wait to be served by another reader than before, so that readers share their sessions evenly.
pub(crate) const MOVE_WAIT_MAX_NS: Nanos = 5_000_000;
/// Readers count as equally fresh if they are expected to be so within this time of each other.
const EQUALLY_FRESH_NS: Nanos = 500_000;

/// A causality check that a statement waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedCheck {
    pub server: ServerIndex,
    /// The server has to have everything that was acknowledged before this moment.
    pub moment: Nanos,
}

/// A session that waits for a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaiting {
    pub waiter: Waiter,
    check: AwaitedCheck,
    look_at: Nanos,
}

/// How many statements were under way at a time, lately: a moving average over some 20 ms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadAverage {
    mean: u64,
    at: Nanos,
}

impl LoadAverage {
    /// One statement.
    const ONE: u64 = 1 << 10;
    const OVER_NS: Nanos = 20_000_000;

    /// So many have been under way since the last call.
    pub(crate) fn note(&mut self, running: u32, now: Nanos) {
        self.mean = self.now(running, now);
        self.at = now;
    }

    fn now(&self, running: u32, now: Nanos) -> u64 {
        let pause = now.saturating_sub(self.at).min(1000 * Self::OVER_NS);
        (self.mean * Self::OVER_NS + u64::from(running) * Self::ONE * pause) / (Self::OVER_NS + pause)
    }
}

impl Pool {
    /// How long it is expected to take until the server has everything up to this moment, if there is one that counts. None:
    /// nobody can tell.
    pub(crate) fn wait_for(&self, moment: Option<Nanos>, now: Nanos) -> Option<Nanos> {
        moment.map_or(Some(0), |moment| self.server.shared.coverage.expected_wait_ns(moment, now))
    }

    /// A session's statement goes out.
    pub(crate) fn statement_begins(&mut self, now: Nanos) {
        self.load.note(self.running, now);
        self.running += 1;
    }

    /// A session's statement is answered.
    pub(crate) fn statement_ends(&mut self, now: Nanos) {
        self.load.note(self.running, now);
        self.running -= 1;
    }

    fn is_idle_writer(&self, now: Nanos) -> bool {
        self.load.now(self.running, now) < IDLE_STATEMENTS
    }
}

impl Pools {
    /// A reader that is fresh enough in a moment, if it is better to wait for that than to go to the writer now.
    pub(crate) fn worth_waiting(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        readers: u32,
        last_resort: bool,
    ) -> Option<AwaitedCheck> {
        if wanted.waits_until() <= now {
            return None;
        }
        let best = self.shortest_wait(now, wanted, readers, last_resort)?;
        if let Some(writer) = self.ready_server(now, wanted, wanted.hostgroup(), last_resort) {
            let writer = &self.servers[writer];
            let is_worth_it = match self.groups.get(&wanted.hostgroup())?.reads {
                ReadPreference::Spread => {
                    best.1 <= SHORT_WAIT_NS || (best.1 <= SPREAD_WAIT_MAX_NS && !writer.is_idle_writer(now))
                }
                ReadPreference::Fastest => {
                    let latency = |pool: &Pool| pool.latency.now_us(now) * 1000;
                    best.1 + latency(&self.servers[best.0]) < latency(writer)
                }
            };
            if !is_worth_it {
                return None;
            }
        }
        self.check_within(now, wanted, readers, last_resort, 2 * best.1 + EQUALLY_FRESH_NS)
    }

    /// Another reader than the one of before whose turn it is, if the session need not wait long for it: readers would keep
    /// their sessions for ever, for none of the others has what was seen a moment ago.
    pub(crate) fn change_reader(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        readers: u32,
        last_resort: bool,
    ) -> Option<AwaitedCheck> {
        self.check_within(now, wanted, readers, last_resort, MOVE_WAIT_MAX_NS)
    }

    /// A server of the hostgroup that will have everything in a moment, where none has it now.
    pub(crate) fn ready_later(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        hostgroup: u32,
        last_resort: bool,
    ) -> Option<AwaitedCheck> {
        let best = self.shortest_wait(now, wanted, hostgroup, last_resort)?;
        self.check_within(now, wanted, hostgroup, last_resort, 2 * best.1 + EQUALLY_FRESH_NS)
    }

    fn check_within(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        hostgroup: u32,
        last_resort: bool,
        within: Nanos,
    ) -> Option<AwaitedCheck> {
        let Choice { server, .. } = self.pick(now, wanted, hostgroup, last_resort, within)?;
        let group = self.groups.get(&hostgroup)?;
        let moment = self.servers[server].must_cover(wanted, server, group.facts());
        moment.map(|moment| AwaitedCheck { server, moment })
    }

    /// The check that a statement has to wait for on this connection, which is used for this hostgroup; none if its server has all
    /// that the statement has to see.
    pub(crate) fn lacks(
        &self,
        wanted: &Requirements,
        connection: ConnectionKey,
        hostgroup: u32,
    ) -> Option<AwaitedCheck> {
        let ServerConnection { server, age, .. } = &self.connections[connection];
        let group = self.groups.get(&hostgroup)?;
        let mut facts = group.facts();
        if !group.members.iter().any(|member| member.server == *server) {
            // Another one is the writer by now.
            facts.sole_writer_since = None;
        }
        let pool = &self.servers[*server];
        let moment = pool.must_cover_over(wanted, *server, age.reached_at, facts)?;
        let is_covered = pool.server.shared.covers(moment);
        (!is_covered).then_some(AwaitedCheck { server: *server, moment })
    }

    /// The server of a hostgroup that is expected to be fresh enough first, and in which time.
    fn shortest_wait(
        &self,
        now: Nanos,
        wanted: &Requirements,
        hostgroup: u32,
        last_resort: bool,
    ) -> Option<(ServerIndex, Nanos)> {
        let group = self.groups.get(&hostgroup)?;
        let waits = group.members.iter().filter_map(|member| {
            let pool = &self.servers[member.server];
            let is_fit = pool.may_serve(now, wanted, member, last_resort);
            let wait = pool.wait_for(pool.must_cover(wanted, member.server, group.facts()), now);
            wait.filter(|_| is_fit).map(|wait| (member.server, wait))
        });
        waits.min_by_key(|(_, wait)| *wait)
    }

    /// A server of a hostgroup that may serve the statement at once. Nobody's turn is used up.
    fn ready_server(
        &self,
        now: Nanos,
        wanted: &Requirements,
        hostgroup: u32,
        last_resort: bool,
    ) -> Option<ServerIndex> {
        self.shortest_wait(now, wanted, hostgroup, last_resort)
            .filter(|(_, wait)| *wait == 0)
            .map(|(server, _)| server)
    }

    /// In which way the reads of each writer hostgroup were fresh enough, and what the servers of clusters have applied.
    pub(crate) fn freshness_rows(&self, now: Nanos) -> (Vec<(u32, ReadCounts)>, Vec<CoverageRow>) {
        let splits = self.groups.iter().filter(|(_, group)| group.reader_hostgroup.is_some());
        let reads = splits.map(|(id, group)| (*id, group.reads_by.clone())).collect();
        let replicated = self.groups.values().filter(|group| group.is_replicated);
        let mut servers: Vec<ServerIndex> =
            replicated.flat_map(|group| &group.members).map(|member| member.server).collect();
        servers.sort_unstable();
        servers.dedup();
        let coverage = servers.into_iter().map(|server| {
            let server = &self.servers[server].server;
            let coverage = &server.shared.coverage;
            let until = coverage.covered_until_ns();
            CoverageRow {
                endpoint: server.endpoint.clone(),
                age_ns: (until != 0).then(|| now.saturating_sub(until)),
                latency_ns: coverage.latency_ns(),
                checks: coverage.checks(),
                unchecked: coverage.unchecked(),
            }
        });
        (reads, coverage.collect())
    }

    /// A session waits for a check, which is ordered.
    pub(crate) fn await_check(&mut self, ctx: &Context, waiter: Waiter, check: AwaitedCheck, until: Nanos) {
        let coverage = &self.servers[check.server].server.shared.coverage;
        coverage.want(check.moment, ctx.worker);
        if coverage.covers(check.moment) {
            // It ended just now.
            return self.turns.push_back(Turn::Reroute(waiter));
        }
        let later = ctx.now + LOOK_AGAIN_NS;
        let look_at = if until > ctx.now { later.min(until) } else { later };
        self.awaiting.push_back(Awaiting { waiter, check, look_at });
    }

    /// Checks have ended: those who have waited for them go on.
    pub(crate) fn coverage_grown(&mut self, ctx: &Context) {
        for _ in 0..self.awaiting.len() {
            let Some(awaiting) = self.awaiting.pop_front() else { break };
            let AwaitedCheck { server, moment } = awaiting.check;
            let coverage = &self.servers[server].server.shared.coverage;
            let is_over = |coverage: &weir_topology::Coverage| {
                coverage.covers(moment) || coverage.unchecked().is_some()
            };
            if !is_over(coverage) {
                coverage.want(moment, ctx.worker);
            }
            match is_over(coverage) {
                true => self.turns.push_back(Turn::Reroute(awaiting.waiter)),
                false => self.awaiting.push_back(awaiting),
            }
        }
    }

    /// When the first of those who wait for a check looks again.
    pub(crate) fn next_look(&self) -> Nanos {
        self.awaiting.iter().map(|awaiting| awaiting.look_at).min().unwrap_or(Nanos::MAX)
    }

    /// Those whose time to look again has come do so.
    pub(crate) fn look_again(&mut self, now: Nanos) {
        for _ in 0..self.awaiting.len() {
            let Some(awaiting) = self.awaiting.pop_front() else { break };
            match awaiting.look_at <= now {
                true => self.turns.push_back(Turn::Reroute(awaiting.waiter)),
                false => self.awaiting.push_back(awaiting),
            }
        }
    }

    /// A session does not wait for a check any more.
    pub(crate) fn leave_awaiting(&mut self, session: &Session) {
        self.awaiting.retain(|awaiting| awaiting.waiter.session != session.key);
    }
}

/// Sessions that wait for checks.
pub(crate) type AwaitingChecks = VecDeque<Awaiting>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_follows_what_is_under_way() {
        let mut load = LoadAverage::default();
        load.note(0, 1_000_000_000);
        // Half of the time one statement.
        for step in 0..200 {
            load.note(step % 2, 1_000_000_000 + Nanos::from(step + 1) * 1_000_000);
        }
        let mean = load.now(0, 1_200_000_000);
        assert!((450..600).contains(&mean), "{mean}");
        assert!(load.now(4, 1_400_000_000) > 3 * LoadAverage::ONE);
        assert!(load.now(0, 3_000_000_000) < LoadAverage::ONE / 50);
    }
}
