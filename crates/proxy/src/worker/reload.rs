//! Applies a new configuration and new roles to a running worker.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex, SessionKey};
use crate::pool::balance::GroupMember;
use crate::pool::freshness::LoadAverage;
use crate::pool::pools::{Group, Pool, Pools};
use crate::server::connection::DiscardReason;
use crate::session::phase::Phase;
use crate::snapshot::{Health, Hostgroup, Member, Server, Snapshot};
use crate::worker::Worker;
use crate::worker::sessions::Sessions;

impl Worker {
    /// Takes a snapshot over, whole. Sessions go on; what is idle and no longer wanted is closed, what is in use
    /// when it is given back.
    pub(crate) fn take_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.ctx.snapshot = snapshot.clone();
        if self.ctx.take_digest_options(&snapshot) {
            self.sessions.forget_digests();
        }
        if self.ctx.take_rules(&snapshot) {
            self.sessions.forget_scopes();
        }
        self.ctx.query_log.go_by(&snapshot.variables.logs);
        for pool in &mut self.pools.servers {
            pool.is_current = false;
        }
        let places = self.pools.places_of(&snapshot.servers);
        let reused = std::mem::take(&mut self.pools.reused);
        reused.iter().for_each(|place| self.sessions.forget_server(*place));
        let mut groups: HashMap<u32, Group> = HashMap::with_capacity(snapshot.hostgroups.len());
        for (id, hostgroup) in &snapshot.hostgroups {
            let members = self.pools.members(&self.ctx, *id, hostgroup, &places);
            let known = self.pools.groups.get(id);
            let is_known = |server: ServerIndex| !reused.contains(&server);
            let group = Group {
                sole_writer_since: hostgroup
                    .reader_hostgroup
                    .and_then(|_| sole_writer_since(&members, known, is_known, self.ctx.now)),
                members,
                reader_hostgroup: hostgroup.reader_hostgroup,
                is_held: hostgroup.is_held,
                is_replicated: hostgroup.is_replicated,
                consistency: hostgroup.consistency,
                reads: hostgroup.reads,
                consistency_timeout: hostgroup.consistency_timeout.as_nanos() as Nanos,
                deadlock_retries: hostgroup.deadlock_retries,
                transaction_replay: hostgroup.transaction_replay,
                replicates_transactions_only: hostgroup.replicates_transactions_only,
                transaction_replay_max_bytes: hostgroup.transaction_replay_max_bytes,
                marks_commits: hostgroup.marks_commits,
                strict: hostgroup.strict,
                reads_by: known.map(|group| group.reads_by.clone()).unwrap_or_default(),
                keeps_connections: hostgroup.keeps_connections,
                absent: hostgroup.absent.clone(),
                balancing: hostgroup.balancing,
                throttle: hostgroup.throttle.clone(),
                holding: hostgroup.holding.clone(),
                retry_buffer_bytes: hostgroup.retry_buffer_bytes,
                reads_as: weir_sql::Server::UNKNOWN,
            };
            groups.insert(*id, group);
        }
        self.pools.begin_replays_anew(&groups);
        self.pools.note_absences(&groups);
        self.pools.groups = groups;
        self.pools.take_wait_limits(&self.ctx);
        self.pools.note_holdings();
        self.pools.buffers_results = self.pools.groups.values().any(|group| group.retry_buffer_bytes > 0);
        self.pools.update_readings(&mut self.ctx);
        for key in self.sessions.renew_accounts(&self.ctx, &mut self.pools) {
            self.work(key).refuse_without_account();
        }
        self.pools.close_unwanted(&mut self.ctx);
        self.hear();
        self.lose_connections(is_to_lost_server);
        self.lose_connections(waits_for_silent_server);
        self.move_sessions();
        // What waits for a writer must not get a connection to one that is a reader now. Before the others look, whose
        // place in line is a new one.
        for server in 0..self.pools.servers.len() {
            self.pools.reroute_waiters(server);
        }
        self.pools.look_again(Nanos::MAX);
        for key in self.sessions.keys_of(|session| self.pools.has_writer_back(session)) {
            self.work(key).replay_behind_others();
        }
        for key in self.sessions.interrupted(&self.pools) {
            self.work(key).replay_first();
        }
        self.unpark();
    }
}

impl Worker {
    /// Gives up the connections of which this is true. Each is looked at again in its turn: what becomes of one may change that
    /// of the others.
    fn lose_connections(&mut self, is_lost: impl Fn(&Self, ConnectionKey) -> bool) {
        let keys = self.pools.connections.iter().map(|(key, _)| key);
        let lost: Vec<ConnectionKey> = keys.filter(|key| is_lost(self, *key)).collect();
        for key in lost {
            if is_lost(self, key) {
                self.server_gone(key);
            }
        }
    }
}

/// Whether it is one to a server that is lost: of no use to anybody who waits for an answer there.
fn is_to_lost_server(worker: &Worker, key: ConnectionKey) -> bool {
    let connection = worker.pools.connections.get(key);
    connection.is_some_and(|connection| worker.pools.servers[connection.server].server.is_gone)
}

/// A server that has fallen silent may be behind a broken path: TCP tries it again ever more rarely, so that an answer comes
/// long after the path is whole again. Reads that can be run elsewhere don't wait for it. Whoever waits for the outcome of a
/// write does.
fn waits_for_silent_server(worker: &Worker, key: ConnectionKey) -> bool {
    let Some(connection) = worker.pools.connections.get(key) else { return false };
    let holder = connection.holder.filter(|_| worker.pools.servers[connection.server].server.is_silent);
    holder.is_some_and(|holder| {
        let session = &worker.sessions[holder];
        session.lease() == Some(key)
            && matches!(session.phase, Phase::Running)
            && session.pins.is_empty()
            && session.may_retry(&worker.ctx, connection.loss_of())
    })
}

impl Sessions {
    /// Those whose transaction is to run again, as its server is lost.
    fn interrupted(&self, pools: &Pools) -> Vec<SessionKey> {
        self.keys_of(|session| session.is_to_replay() && pools.has_lost_writer(session))
    }
}

impl Pools {
    fn close_unwanted(&mut self, ctx: &mut Context) {
        for server in 0..self.servers.len() {
            let idle = self.servers[server].idle.clone();
            let is_wanted = self.servers[server].takes_work();
            for key in idle {
                if !is_wanted || self.is_stale(ctx, key) {
                    self.retire(ctx, key, DiscardReason::Stale);
                }
            }
        }
    }

    /// The members of a hostgroup as they are now. One that comes back begins slowly.
    fn members(
        &self,
        ctx: &Context,
        id: u32,
        hostgroup: &Hostgroup,
        places: &[ServerIndex],
    ) -> Vec<GroupMember> {
        let before = self.groups.get(&id);
        let member = |member: &Member| {
            let server = places[member.server];
            let known = before.and_then(|group| group.members.iter().find(|known| known.server == server));
            let mut next = GroupMember::new(server, member.weight, member.health);
            next.slow_start = Nanos::try_from(hostgroup.slow_start.as_nanos()).unwrap_or(Nanos::MAX);
            if let Some(known) = known {
                next.go_on_from(known);
            }
            let has_returned = known.is_none_or(|known| known.health == Health::Shunned);
            if has_returned && member.health != Health::Shunned && self.servers[server].was_away {
                next.returned_at = ctx.now;
            }
            next
        };
        hostgroup.members.iter().map(member).collect()
    }

    /// Notes who is out of a hostgroup that it was in, or has been shunned there.
    fn note_absences(&mut self, groups: &HashMap<u32, Group>) {
        let works = |member: &GroupMember| member.health != Health::Shunned;
        for (id, before) in &self.groups {
            let now = groups.get(id).map(|group| group.members.as_slice()).unwrap_or_default();
            for member in &before.members {
                let is_there = now.iter().any(|now| now.server == member.server && works(now));
                self.servers[member.server].was_away |= !is_there;
            }
        }
    }
}

impl Pools {
    /// The pools of servers: those that they have, or new ones. A server that is at another address than before is
    /// another server, and what is left of the former one ends as with any that is gone.
    fn places_of(&mut self, servers: &[Arc<Server>]) -> Vec<ServerIndex> {
        let mut known: HashMap<String, Vec<ServerIndex>> = HashMap::with_capacity(self.servers.len());
        for (index, pool) in self.servers.iter().enumerate() {
            known.entry(pool.server.endpoint.clone()).or_default().push(index);
        }
        let mut places = Vec::with_capacity(servers.len());
        for server in servers {
            let of_name = known.get(&server.endpoint).map(Vec::as_slice).unwrap_or_default();
            let is_there = |index: &&ServerIndex| {
                let known = &self.servers[**index].server;
                known.addr == server.addr && Arc::ptr_eq(&known.shared, &server.shared)
            };
            let place = of_name.iter().find(is_there).copied();
            let place = place.unwrap_or_else(|| self.place_at_another_address(of_name, server));
            let pool = &mut self.servers[place];
            pool.server = server.clone();
            pool.is_current = true;
            places.push(place);
        }
        places
    }

    /// The pool of a server that none has at its address: one of its former addresses at which nothing is left, or a
    /// new one.
    fn place_at_another_address(&mut self, of_name: &[ServerIndex], server: &Arc<Server>) -> ServerIndex {
        let is_left = |pool: &Pool| pool.open + pool.dialing + pool.handovers + pool.running == 0;
        let spare = of_name.iter().copied().find(|index| {
            let pool = &self.servers[*index];
            let has_backends = || self.connections.iter().any(|(_, connection)| connection.server == *index);
            is_left(pool) && pool.waiters.is_empty() && !has_backends()
        });
        let Some(place) = spare else { return self.new_place(server) };
        self.reused.push(place);
        let counts = std::mem::take(&mut self.servers[place].counts);
        self.servers[place] = Pool { counts, ..Pool::new(server) };
        place
    }

    fn new_place(&mut self, server: &Arc<Server>) -> ServerIndex {
        self.servers.push(Pool::new(server));
        self.servers.len() - 1
    }
}

impl Pool {
    fn new(server: &Arc<Server>) -> Self {
        Self {
            server: server.clone(),
            is_current: true,
            idle: Vec::new(),
            open: 0,
            dialing: 0,
            handovers: 0,
            coming: Vec::new(),
            waiters: Default::default(),
            supply_at: Nanos::MAX,
            retry_at: 0,
            failures: 0,
            suspect_until: 0,
            last_error: String::new(),
            wanted_by: Default::default(),
            has_asked: false,
            is_throttled: false,
            running: 0,
            load: LoadAverage::default(),
            latency: Default::default(),
            was_away: false,
            reads_as: 0,
            has_lost_write_lease: false,
            charsets_after_reset: None,
            counts: Default::default(),
            defaults: Vec::new(),
        }
    }
}

/// Since when the only member of a hostgroup of writers has been that.
fn sole_writer_since(
    members: &[GroupMember],
    known: Option<&Group>,
    is_known: impl Fn(ServerIndex) -> bool,
    now: Nanos,
) -> Option<Nanos> {
    let [GroupMember { server: writer, .. }] = members else { return None };
    let before = known
        .filter(|known| is_known(*writer) && known.members.iter().any(|member| member.server == *writer));
    Some(before.and_then(|known| known.sole_writer_since).unwrap_or(now))
}
