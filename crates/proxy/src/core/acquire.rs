//! From a planned statement to a lease: which hostgroup, which server, which connection.

use weir_session::pin::Pins;
use weir_sql::{Kind, Uses};

use super::Core;
use super::balance::{GroupMember, Load, choose};
use super::lapsed::LAPSED;
use super::model::{BackendKey, Nanos, Phase, ServerIndex, SessionKey, WorkKind};
use crate::snapshot::Standing;

/// Idle connections looked at, most recent first, for one whose state fits already.
const IDLE_LOOKED_AT: usize = 8;

/// A server that turned a statement away gets no new ones for so long, unless the monitor says otherwise.
const SUSPECT_NS: Nanos = 100_000_000;
/// Sessions that found no server look again after this time, if nothing else makes them look.
const UNPARK_NS: Nanos = 20_000_000;

impl Core {
    /// Starts the planned work of a session: on its lease, or on one that is found now or waited for. Always
    /// false: the session is busy from here on.
    pub(super) fn start(&mut self, key: SessionKey) -> bool {
        if !self.has_been_held(key) {
            return false;
        }
        self.outdate_kept(key);
        let session = &mut self.sessions[key];
        let is_answered = session.work.kind != super::model::WorkKind::LongData;
        if is_answered && let Some(owed) = session.owed_error.take() {
            self.reply_error(key, owed.0, &owed.1);
            self.answered_here(key);
            return false;
        }
        session.work.attempts += 1;
        if session.account.is_none() {
            self.refuse_without_account(key);
            return false;
        }
        session.work.hostgroup = session.work.decision.hostgroup.unwrap_or(session.home_hostgroup());
        self.place(key);
        false
    }

    /// Sends started work on its lease, or finds one.
    fn place(&mut self, key: SessionKey) {
        if let Some(lease) = self.sessions[key].lease
            && !self.step_aside(key, lease)
            && self.should_move(key, lease)
        {
            self.release(key);
        }
        if let Some(lease) = self.sessions[key].lease {
            if self.has_overstayed(lease) {
                return self.close_overstayed(key, lease);
            }
            // What a pin holds stays where it is, whatever the rules say; in a transaction that is ProxySQL's way too.
            if self.must_not_run_on(lease, key) && !self.may_run_on_reader(key, lease) {
                return;
            }
            let session = &mut self.sessions[key];
            session.work.served_by = self.backends[lease].hostgroup;
            session.phase = Phase::Running;
            return self.converge(lease);
        }
        self.sessions[key].phase = Phase::Waiting(self.now);
        self.acquire(key);
    }

    /// Whether a session is pinned to a reader with a statement that may write, and no rule sends it there.
    fn must_not_run_on(&self, lease: BackendKey, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let is_sent_there =
            || session.work.decision.hostgroup.is_some_and(|hostgroup| self.is_member(lease, hostgroup));
        session.is_pinned_to_reader && !session.work.is_read && !is_sent_there()
    }

    /// Whether a connection leads to a server of this hostgroup.
    pub(super) fn is_member(&self, backend: BackendKey, hostgroup: u32) -> bool {
        let server = self.backends[backend].server;
        let group = self.groups.get(&hostgroup);
        group.is_some_and(|group| group.members.iter().any(|member| member.server == server))
    }

    /// Finds a server for a waiting session.
    pub(super) fn acquire(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let writer = session.work.hostgroup;
        let uses_connection = session
            .work
            .statement
            .uses
            .intersects(Uses::LAST_INSERT_ID | Uses::DIAGNOSTICS | Uses::FOUND_ROWS)
            && (!session.keeps.is_empty() || session.last_insert_id != 0);
        // Where a rule or a hint sends a statement, it goes.
        let may_leave_writer = session.work.decision.hostgroup.is_none()
            && session.work.is_read
            && (session.is_autocommit || self.may_begin_on_reader(key))
            && !session.work.writer_only
            // What was announced is sent in front, and may outlast a read that uses no table.
            && (!session.is_next_read_only || session.work.begins_read_only)
            && !uses_connection;
        let reader = self.groups.get(&writer).and_then(|group| group.reader_hostgroup);
        if uses_connection && let Some(kept) = session.kept {
            // What was announced must not bind the session to a reader.
            let binds = session.is_next_read_only && !self.is_member(kept, writer);
            if binds || !self.may_run_on(kept, key) || !self.is_sound(kept, key) {
                self.fetch_kept(kept, SessionKey::MAX);
                self.sessions[key].kept = None;
                return self.begin_again(key);
            }
            if self.take_kept(kept) {
                let in_reader = reader.filter(|_| !self.is_member(kept, writer));
                self.sessions[key].work.served_by = in_reader.unwrap_or(writer);
                return self.lend(kept, key);
            }
        }
        if let Some(server) = self.sessions[key].work.only_server {
            return self.obtain(server, key);
        }
        if self.sessions[key].is_bound() {
            return match self.pick_bound(key) {
                Some(server) => self.obtain(server, key),
                None => self.park(key, writer),
            };
        }
        let reader = reader.filter(|_| may_leave_writer);
        let mut pick = |last_resort| {
            let of_readers = reader.and_then(|reader| self.pick(reader, key, last_resort));
            of_readers.or_else(|| self.pick(writer, key, last_resort))
        };
        match pick(false).or_else(|| pick(true)) {
            Some(server) => self.obtain(server, key),
            None => self.park(key, reader.unwrap_or(writer)),
        }
    }

    /// No server can be had: the session looks again when the first may be tried again, or in a moment.
    fn park(&mut self, key: SessionKey, hostgroup: u32) {
        if self.sessions[key].work.kind == WorkKind::LoginSchema {
            // Nobody is there to ask.
            self.login_done(key);
            return self.answered_here(key);
        }
        if self.is_hinted_nowhere(key) || !self.may_be_held(key, hostgroup) {
            return;
        }
        let socket = self.sessions[key].socket;
        self.parked.push_back((key, socket));
        let members = self.groups.get(&hostgroup).map(|group| group.members.as_slice()).unwrap_or_default();
        let retries = members.iter().map(|member| self.servers[member.server].retry_at);
        let soon = self.now + UNPARK_NS;
        let next = retries.filter(|at| *at > self.now).min().unwrap_or(soon);
        self.timers.unpark(next.min(soon));
    }

    /// Whether the session's statement may run where this connection leads: what may write only on a writer.
    fn may_run_on(&self, backend: BackendKey, key: SessionKey) -> bool {
        let work = &self.sessions[key].work;
        let server = self.backends[backend].server;
        let group = |id: u32| self.groups.get(&id);
        let is_in = |group: &super::Group| group.members.iter().any(|member| member.server == server);
        let only_shows = matches!(
            work.statement.kind,
            Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors
        ) && !work.statement.multi;
        let leaves_nothing = work.is_read || only_shows;
        let reader = group(work.hostgroup).and_then(|writers| writers.reader_hostgroup).and_then(group);
        let may_send = self.may_send(server, work);
        may_send && group(work.hostgroup).is_some_and(is_in) || (leaves_nothing && reader.is_some_and(is_in))
    }

    /// Looks at the session's command anew once its diagnostics have been fetched: then it may have to say
    /// something else to the server.
    pub(super) fn begin_again(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.restore_query_attributes();
        session.phase = Phase::Idle;
        session.command_bytes = 0;
        session.upload = None;
        session.decided = Some(Box::new(session.work.decision));
        if session.fetching == 0 {
            self.runnable.push_back((key, session.socket));
        }
    }

    /// Whether a connection may serve a session once more: its login holds, and its server takes statements.
    fn is_sound(&self, backend: BackendKey, key: SessionKey) -> bool {
        let server = self.backends[backend].server;
        !self.needs_login(backend, key)
            && self.servers[server].suspect_until <= self.now
            && self.sessions[key].work.avoided(false, self.now) != Some(server)
    }

    /// Takes the connection that still knows a session's diagnostics, if it is idle and well.
    fn take_kept(&mut self, kept: BackendKey) -> bool {
        let server = self.backends[kept].server;
        let idle = &mut self.servers[server].idle;
        let Some(at) = idle.iter().position(|backend| *backend == kept) else { return false };
        idle.remove(at);
        true
    }

    /// The next server of a hostgroup, among those that may serve this session: see [`super::balance`]. Servers to
    /// which connections fail, and the one on which the statement's connection was lost, are left out unless this is
    /// the `last_resort`.
    pub(super) fn pick(&mut self, hostgroup: u32, key: SessionKey, last_resort: bool) -> Option<ServerIndex> {
        let (session, now) = (&self.sessions[key], self.now);
        let group = self.groups.get_mut(&hostgroup)?;
        let servers = &self.servers;
        let has_effects = session.work.may_have_effects();
        // Also for writes: a writer that has just taken over may not have applied this session's last one yet.
        let written_at = session.must_see();
        let must_cover = group.is_replicated && written_at != 0;
        let avoided = session.work.avoided(last_resort, now);
        let load = |member: &GroupMember| {
            let pool = &servers[member.server];
            let is_reachable = pool.suspect_until <= now
                && avoided != Some(member.server)
                && pool.server.max_connections > 0
                && (last_resort || member.standing != Standing::Shunned)
                && (pool.failures == 0 || pool.retry_at <= now || pool.open > pool.dialing);
            let covers = !must_cover
                || session.last_write_server == member.server
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
        let session = &mut self.sessions[key];
        session.work.served_by = hostgroup;
        session.stays_in = group.keeps_connections.then_some(hostgroup);
        server
    }

    /// Gives the session a connection to this server, now or when its turn comes.
    pub(super) fn obtain(&mut self, server: ServerIndex, key: SessionKey) {
        let socket = self.sessions[key].socket;
        self.sessions[key].held = None;
        self.statistics.totals.pool_gets += 1;
        if self.servers[server].waiters.is_empty()
            && let Some(backend) = self.take_idle(server, key)
        {
            self.statistics.totals.pool_gets_immediate += 1;
            return self.lend_proven(backend, key);
        }
        self.servers[server].waiters.push_back((key, socket));
        self.supply(server);
    }

    /// An idle connection that fits the session's identity: its own of before, or one in the same state, or
    /// any.
    fn take_idle(&mut self, server: ServerIndex, key: SessionKey) -> Option<BackendKey> {
        let session = &self.sessions[key];
        let backends = &self.backends;
        let idle = &self.servers[server].idle;
        let fits = |at: usize| backends[idle[at]].identity == session.identity;
        let own = session.kept.and_then(|kept| idle.iter().position(|backend| *backend == kept));
        let equal = || {
            let state = &session.state;
            let recent = idle.len().saturating_sub(IDLE_LOOKED_AT)..idle.len();
            recent.rev().find(|at| {
                let backend = &backends[idle[*at]];
                fits(*at)
                    && backend.kept_for.is_none()
                    && !backend.is_suspect
                    && std::rc::Rc::ptr_eq(&backend.state, state)
            })
        };
        let at = own.or_else(equal).or_else(|| (0..idle.len()).rev().find(|at| fits(*at)))?;
        Some(self.servers[server].idle.remove(at))
    }

    /// Lends a connection that is ready and nobody's to a waiting session.
    ///
    /// One on which another session may have left what nobody can name, or what this session asks for and no server
    /// reports, is wiped first.
    pub(super) fn lend(&mut self, backend: BackendKey, key: SessionKey) {
        if self.must_wipe(backend, key) {
            let session = &mut self.sessions[key];
            session.phase = Phase::Waiting(self.now);
            let socket = session.socket;
            self.servers[self.backends[backend].server].waiters.push_front((key, socket));
            self.fetch_kept(backend, SessionKey::MAX);
            return self.recycle(backend, Pins::empty());
        }
        if !self.suits_defaults(backend, key) {
            // What the connection has told of the session is news: it may belong elsewhere, or mean something else.
            let pool = &mut self.servers[self.backends[backend].server];
            pool.idle.push(backend);
            pool.supply_again(self.now);
            self.backends[backend].idle_since = self.now;
            return self.begin_again(key);
        }
        self.fetch_kept(backend, key);
        let session = &self.sessions[key];
        // A rule that sends more than reads to a server means it to be written to.
        let is_sent_to_write = session.work.decision.hostgroup.is_some() && !session.work.is_read;
        let is_writer = is_sent_to_write || self.is_member(backend, session.home_hostgroup());
        let session = &mut self.sessions[key];
        session.is_pinned_to_reader = !is_writer && !session.is_bound();
        session.lease = Some(backend);
        session.held = None;
        session.work.is_sent = false;
        session.work.has_ended_conditions = false;
        session.phase = Phase::Running;
        let hostgroup = session.work.served_by;
        self.backends[backend].holder = Some(key);
        self.backends[backend].last_holder = Some(self.sessions[key].socket);
        self.backends[backend].hostgroup = hostgroup;
        self.backends[backend].has_served = true;
        self.statistics.totals.pool_lends += 1;
        self.converge(backend);
    }

    fn must_wipe(&self, backend: BackendKey, key: SessionKey) -> bool {
        if self.sessions[key].kept == Some(backend) {
            return false; // it has the session's own diagnostics, and nobody has had it since
        }
        let (backend, session) = (&self.backends[backend], &self.sessions[key]);
        (backend.is_suspect && backend.last_holder != Some(session.socket))
            || ((session.work.asks_for_hidden_state() || self.snapshot.variables.reset_after_hidden_code)
                && backend.hidden_code_of.is_of_another(session.socket))
    }

    /// The work of a session ended with a reply of Weir's own; the session goes on with the next command.
    pub(super) fn answered_here(&mut self, key: SessionKey) {
        self.command_done(key);
        if self.sessions[key].close_when_done || self.sessions[key].is_cut_short {
            return self.close_session(key);
        }
        let socket = self.sessions[key].socket;
        self.runnable.push_back((key, socket));
    }

    /// Why the session could have no server of a hostgroup, for people.
    pub(super) fn why_unreachable(&self, key: SessionKey, hostgroup: u32) -> String {
        let Some(group) = self.groups.get(&hostgroup) else {
            return format!("no server is configured for hostgroup {hostgroup}");
        };
        let (session, written_at) = (&self.sessions[key], self.sessions[key].must_see());
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
                } else if !pool.server.shared.may_write_at(self.now) {
                    format!("{endpoint}: {LAPSED}")
                } else if pool.suspect_until > self.now {
                    format!("{endpoint}: turns statements away")
                } else if !shunned.is_empty() {
                    format!("{endpoint}: shunned, because connections to it failed")
                } else if must_cover
                    && session.last_write_server != member.server
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

    /// Looks again for servers for those who found none.
    pub(super) fn unpark(&mut self) {
        for _ in 0..self.parked.len() {
            let Some((key, socket)) = self.parked.pop_front() else { break };
            if !self.is_waiting(key, socket) {
                continue;
            }
            if self.sessions[key].lease.is_some() {
                self.place(key);
            } else {
                self.acquire(key);
            }
        }
    }

    pub(super) fn is_waiting(&self, key: SessionKey, socket: crate::outbox::SocketId) -> bool {
        self.session_is(key, socket) && matches!(self.sessions[key].phase, Phase::Waiting(_))
    }

    /// Takes a session out of all queues.
    pub(super) fn leave_queues(&mut self, key: SessionKey) {
        self.parked.retain(|(waiting, _)| *waiting != key);
        for pool in &mut self.servers {
            pool.waiters.retain(|(waiting, _)| *waiting != key);
        }
    }

    /// Something is wrong with a server: no new work for a moment, and a word to the monitor.
    pub(super) fn suspect(&mut self, server: ServerIndex) {
        let pool = &mut self.servers[server];
        pool.suspect_until = self.now + SUSPECT_NS;
        self.shared.suspect(&pool.server.endpoint);
    }
}
