//! Chooses the server for a statement, among those that may serve it.

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::requirements::Requirements;
use crate::pool::balance::{GroupMember, Load, choose};
use crate::pool::freshness::AwaitedCheck;
use crate::pool::pools::{Group, NO_WRITE_LEASE, Pool, Pools};
use crate::session::Session;
use crate::snapshot::Health;

/// A server for a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub server: ServerIndex,
    /// The hostgroup of which it is.
    pub hostgroup: u32,
    /// Sessions keep the connections that they get there.
    pub keeps_connections: bool,
}

/// What was found for a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A server that may have it now.
    Now(Choice),
    /// One that is fresh enough when a check has ended.
    Later(AwaitedCheck),
}

impl Pool {
    /// Whether the server may serve this statement, if it is fresh enough. Servers to which connections fail, and the one on
    /// which the statement's connection was lost, are left out unless this is the `last_resort`.
    pub(crate) fn may_serve(
        &self,
        now: Nanos,
        wanted: &Requirements,
        member: &GroupMember,
        last_resort: bool,
    ) -> bool {
        self.takes_statements(now, wanted, member, last_resort) && !self.lacks_gtid(wanted)
    }

    /// The same, whichever transactions it has executed.
    pub(crate) fn takes_statements(
        &self,
        now: Nanos,
        wanted: &Requirements,
        member: &GroupMember,
        last_resort: bool,
    ) -> bool {
        self.suspect_until <= now
            && !wanted.avoids(member.server, last_resort, now)
            && self.server.max_connections > 0
            && (last_resort || member.health != Health::Shunned)
            && (self.failures == 0 || self.retry_at <= now || self.open > self.dialing)
            && wanted.may_be_sent(|| self.server.shared.may_write_at(now))
    }
}

impl Pools {
    /// A server for a statement: one of the hostgroup that is asked `first`, else of its own.
    pub(crate) fn choose_server(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        first: Option<u32>,
    ) -> Option<Found> {
        let own = wanted.hostgroup();
        [false, true].into_iter().find_map(|last_resort| {
            if let Some(first) = first {
                if wanted.may_change_reader()
                    && let Some(check) = self.change_reader(now, wanted, first, last_resort)
                {
                    return Some(Found::Later(check));
                }
                if let Some(choice) = self.pick(now, wanted, first, last_resort, 0) {
                    return Some(Found::Now(choice));
                }
                if let Some(check) = self.worth_waiting(now, wanted, first, last_resort) {
                    return Some(Found::Later(check));
                }
            }
            if let Some(choice) = self.pick(now, wanted, own, last_resort, 0) {
                return Some(Found::Now(choice));
            }
            self.ready_later(now, wanted, own, last_resort).map(Found::Later)
        })
    }

    /// The next server of a hostgroup, among those that may serve this statement and are expected to be fresh enough for it
    /// `within` a time (0: now): see [`crate::pool::balance`].
    pub(crate) fn pick(
        &mut self,
        now: Nanos,
        wanted: &Requirements,
        hostgroup: u32,
        last_resort: bool,
        within: Nanos,
    ) -> Option<Choice> {
        let group = self.groups.get_mut(&hostgroup)?;
        let (servers, facts) = (&self.servers, group.facts());
        let load = |member: &GroupMember| {
            let pool = &servers[member.server];
            let is_fresh = || {
                let wait = pool.wait_for(pool.must_cover(wanted, member.server, facts), now);
                wait.is_some_and(|wait| wait <= within)
            };
            let may_serve = pool.may_serve(now, wanted, member, last_resort) && is_fresh();
            may_serve.then(|| Load {
                in_flight: pool.running + u32::try_from(pool.waiters.len()).unwrap_or(u32::MAX / 2),
                latency_us: pool.latency.now_us(now),
                is_full: pool.has_asked && pool.idle.is_empty(),
            })
        };
        let chosen = choose(&mut group.members, group.balancing, now, &mut self.dice, load)?;
        let server = group.members.get(chosen)?.server;
        Some(Choice { server, hostgroup, keeps_connections: group.keeps_connections })
    }

    /// Whether a statement may run where this connection leads: what may write only on a writer.
    pub(crate) fn may_run_on(&self, now: Nanos, wanted: &Requirements, connection: ConnectionKey) -> bool {
        let server = self.connections[connection].server;
        let group = |id: u32| self.groups.get(&id);
        let is_in = |group: &Group| group.members.iter().any(|member| member.server == server);
        let writers = group(wanted.hostgroup());
        let is_writer = writers.is_some_and(is_in);
        let is_reader =
            || writers.and_then(|writers| writers.reader_hostgroup).and_then(group).is_some_and(is_in);
        if wanted.binds_to_writer() && !is_writer {
            return false;
        }
        is_writer && wanted.may_be_sent(|| self.servers[server].server.shared.may_write_at(now))
            || wanted.leaves_nothing() && is_reader()
    }

    /// Whether a connection may serve a session once more that waits since then: its login holds, and its server takes
    /// statements.
    pub(crate) fn is_sound(
        &self,
        ctx: &Context,
        wanted: &Requirements,
        since: Option<Nanos>,
        connection: ConnectionKey,
    ) -> bool {
        let server = self.connections[connection].server;
        !self.needs_login(ctx, since, connection)
            && self.servers[server].suspect_until <= ctx.now
            && !wanted.avoids(server, false, ctx.now)
    }

    /// Why a statement could have no server of a hostgroup, for people.
    pub(crate) fn why_unreachable(&self, now: Nanos, wanted: &Requirements, hostgroup: u32) -> String {
        let Some(group) = self.groups.get(&hostgroup) else {
            return format!("no server is configured for hostgroup {hostgroup}");
        };
        let mut reasons: Vec<String> = group
            .members
            .iter()
            .map(|member| {
                let pool = &self.servers[member.server];
                let endpoint = &pool.server.endpoint;
                let shunned = if member.health == Health::Shunned { "shunned, " } else { "" };
                if pool.server.max_connections == 0 {
                    format!("{endpoint}: max_connections is 0")
                } else if pool.failures > 0 {
                    format!("{endpoint}: {shunned}{} ({} failures in a row)", pool.last_error, pool.failures)
                } else if !pool.server.shared.may_write_at(now) {
                    format!("{endpoint}: {NO_WRITE_LEASE}")
                } else if pool.suspect_until > now {
                    format!("{endpoint}: rejects statements")
                } else if !shunned.is_empty() {
                    format!("{endpoint}: shunned, because connections to it failed")
                } else if let Some(why) = pool.why_no_gtid(wanted) {
                    why
                } else if pool.wait_for(pool.must_cover(wanted, member.server, group.facts()), now) != Some(0) {
                    match pool.server.shared.coverage.unchecked() {
                        Some(why) => format!("{endpoint}: {}", why.as_str()),
                        None => format!("{endpoint}: may not have applied yet what this session has to see"),
                    }
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

/// Idle connections looked at, most recent first, for one whose state fits already.
const IDLE_LOOKED_AT: usize = 8;

impl Pools {
    /// An idle connection that may serve the session: its own of before, or one in the same state, or
    /// any.
    pub(crate) fn take_idle(&mut self, session: &Session, server: ServerIndex) -> Option<ConnectionKey> {
        let connections = &self.connections;
        let idle = &self.servers[server].idle;
        let principal = self.servers[server].principal_of(session);
        let fits = |at: usize| connections[idle[at]].principal() == principal;
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
}
