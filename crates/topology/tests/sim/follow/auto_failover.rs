//! Servers with asynchronous replication where Weirs move the writer role: they replace a lost writer (`auto_failover`), or
//! are ordered to switch over, or both.
//!
//! The decision is the real one, and so is what Weirs then do with the servers ([`procedures`], [`remote`]): the servers
//! ([`servers`], [`replication`]) and their connections are modelled.
//! From the manuals (MySQL "Replication", MariaDB "Replication"): a replica finds out at once that its source has died, and
//! after `replica_net_timeout` that it is silent; it tries to connect every `SOURCE_CONNECT_RETRY`; it applies in order
//! what it has received; CHANGE REPLICATION SOURCE throws away what was received and not applied; a source refuses a
//! replica that has what it lacks; a server that comes back is what its configuration file makes of it.

mod orders;
mod procedures;
mod remote;
mod replication;
mod servers;
mod strikes;

use std::collections::{BTreeMap, BTreeSet};

use weir_topology::procedure::Entry;
use weir_topology::{
    Intent, Lag, Link, Policy, ReadOnlyCheck, ReplicaState, ReplicationPolicy, ServerState, SourceLink,
};

use super::{Host, Model, Taken, Turn};
use crate::breach::{Breach, Trial};
use crate::chaos::Action;
use crate::cluster::{Context, Path, WEIRS_MAX};
use crate::node::{NODES_MAX, Process, endpoint, uuid_of};
use crate::queue::{MS, Time};
use crate::random::Random;
use crate::stage::SWITCHOVERS;
use crate::weir::{READERS, WRITERS, Weir, row};
use procedures::Work;
use remote::Question;
use replication::{Origin, Statement, Thread};

pub(super) use procedures::lives;

/// Writes of the journal's rows have numbers from this one on.
const ROWS: usize = 1 << 40;
/// What a failover may take once nobody has more than five seconds' worth left to apply.
const CATCH_UP: Time = 15_000 * MS;

struct Server {
    host: Host,
    read_only: bool,
    /// What the configuration file says.
    starts_read_only: bool,
    /// The writes that it has received, in order; of these the first have been applied.
    log: Vec<usize>,
    applied: usize,
    applied_at: Time,
    apply_us: u64,
    /// Until when it had more to apply than a failover waits for at once.
    behind_until: Time,
    thread: Option<Thread>,
    /// A Weir has made it writable.
    is_weirs_choice: bool,
    /// The connection that has the lock.
    lock: Option<usize>,
    /// What has come over which connection while it hangs.
    unread: Vec<(usize, Question)>,
    /// A Weir has made it read_only, or has stopped its replication, to move the role.
    is_closed_by_weir: bool,
    is_stopped_by_weir: bool,
    /// The last commit of a client's write that was acknowledged.
    acknowledged_at: Time,
}

/// A connection of a Weir to a server, as the server has it.
#[derive(Clone, Copy, Debug)]
struct Session {
    weir: usize,
    node: usize,
    node_life: u32,
    /// The Weir has had no answer: it is never used again.
    is_broken: bool,
    /// The Weir has closed it; the server may not have heard of that yet.
    is_closing: bool,
    used_at: Time,
}

/// Where and when a write was committed.
#[derive(Clone, Copy, Debug)]
struct Commit {
    node: usize,
    at: Time,
    /// Since when another server was the writer by then.
    replaced: Option<(usize, Time)>,
}

/// The servers, and what Weirs do with them.
pub(crate) struct AutoFailover {
    servers: Vec<Server>,
    cut: [[bool; NODES_MAX]; NODES_MAX],
    /// `replica_net_timeout`, and the pause between two attempts to connect.
    net_timeout: Time,
    retry: Time,
    random: Random,
    now: Time,
    /// The server that the others get their data from, and since when.
    head: usize,
    head_since: Time,
    /// Former writers that do not replicate from it.
    deposed: [bool; NODES_MAX],
    /// Since when each Weir's process has been there, and in which life.
    begun: [(u32, Time); WEIRS_MAX],
    commits: Vec<Option<Commit>>,
    paths: [[Path; NODES_MAX]; WEIRS_MAX],
    works: [Option<Work>; WEIRS_MAX],
    sessions: BTreeMap<usize, Session>,
    sessions_begun: usize,
    /// Those of switchovers, and of what has become of them, also when they are over: their statements may be read late.
    ordered: BTreeSet<usize>,
    /// Whose clients wait.
    holds: [bool; WEIRS_MAX],
    /// Lost writers are replaced; people have the role moved.
    replaces: bool,
    is_ordered: bool,
    orders: [Option<usize>; WEIRS_MAX],
    /// In which life (from 1 on) each Weir has seen which writers, and when it looks for what others have left.
    recoveries: [(u32, Vec<usize>, Option<Time>); WEIRS_MAX],
    /// What the journal's table was made by each of its writes.
    rows: Vec<Option<Entry>>,
    /// Writes that must not be lost any more.
    kept: Vec<usize>,
    /// When each Weir may next begin something.
    rests_until: [Time; WEIRS_MAX],
    /// Since when each Weir has seen servers that are to replicate from the writer.
    returned_since: [Option<Time>; WEIRS_MAX],
    trial: Trial,
    /// How many questions Weirs have put since the writer was to be moved.
    questions: u32,
}

impl Model for AutoFailover {
    fn any(random: &mut Random, count: usize, seed: u64) -> Self {
        let count = count.max(3);
        let is_ordered = seed >= SWITCHOVERS;
        let careless = random.percent(40) && !is_ordered;
        let server = |node: usize| Server {
            host: Host::new(),
            read_only: node > 0,
            starts_read_only: node > 0 || !careless,
            log: Vec::new(),
            applied: 0,
            applied_at: 0,
            apply_us: 50,
            behind_until: 0,
            thread: (node > 0).then(|| Thread::to(0, 0)),
            is_weirs_choice: false,
            lock: None,
            unread: Vec::new(),
            is_closed_by_weir: false,
            is_stopped_by_weir: false,
            acknowledged_at: 0,
        };
        Self {
            servers: (0..count).map(server).collect(),
            cut: Default::default(),
            net_timeout: random.within(1000 * MS..5000 * MS),
            retry: random.within(200 * MS..2000 * MS),
            random: random.clone(),
            head: 0,
            now: 0,
            head_since: 0,
            deposed: [false; NODES_MAX],
            begun: [(0, 0); WEIRS_MAX],
            commits: Vec::new(),
            paths: Default::default(),
            works: Default::default(),
            sessions: BTreeMap::new(),
            sessions_begun: 0,
            ordered: BTreeSet::new(),
            holds: [false; WEIRS_MAX],
            replaces: !is_ordered || seed % 4 >= 2,
            is_ordered,
            orders: [None; WEIRS_MAX],
            recoveries: Default::default(),
            rows: Vec::new(),
            kept: Vec::new(),
            rests_until: [0; WEIRS_MAX],
            returned_since: [None; WEIRS_MAX],
            trial: Trial::Plain,
            questions: 0,
        }
    }

    fn settings(&self, random: &mut Random) -> (Policy, Vec<Intent>) {
        let replication = ReplicationPolicy {
            writer_hostgroup: WRITERS,
            reader_hostgroup: READERS,
            check: ReadOnlyCheck::ReadOnly,
            writer_reads: random.percent(50),
            lag_when_stopped_s: 60,
            timeouts_max: u32::try_from(random.within(1..4)).unwrap_or(3),
            // It follows from the probes' times, which are not known yet.
            failover_after_ms: self.replaces.then_some(u64::MAX),
        };
        let both = |node| [row(node, WRITERS, 100), row(node, READERS, 100)];
        let intents = (0..self.servers.len()).flat_map(both).collect();
        (Policy { replication: vec![replication], ..Policy::default() }, intents)
    }

    fn hosts(&self) -> Vec<&Host> {
        self.servers.iter().map(|server| &server.host).collect()
    }

    fn host(&mut self, node: usize) -> &mut Host {
        &mut self.servers[node].host
    }

    fn say(&mut self, context: &Context, node: usize) -> ServerState {
        self.go_on(context.now);
        let server = &self.servers[node];
        let thread = server.thread.as_ref();
        let lag = match thread {
            None => Lag::NoReplica,
            Some(Thread { link: Link::Up, .. }) => Lag::Seconds(0),
            Some(_) => Lag::Stopped,
        };
        let source = |thread: &Thread| SourceLink {
            id: if thread.is_known { uuid_of(thread.source) } else { String::new() },
            endpoint: Some(endpoint(thread.source)),
            link: thread.link,
        };
        let state = ReplicaState {
            read_only: Some(server.read_only),
            innodb_read_only: Some(false),
            super_read_only: Some(server.read_only),
            lag,
            id: uuid_of(node),
            source: thread.map(source),
            ..ReplicaState::default()
        };
        state.into()
    }

    fn take(&mut self, context: &mut Context, node: usize, write: usize) -> Taken {
        self.go_on(context.now);
        // Who chooses a writer beside Weir answers for what is lost.
        let is_passed_over = node != self.head && self.servers[self.head].is_weirs_choice;
        let replaced = is_passed_over.then_some((self.head, self.head_since));
        let server = &mut self.servers[node];
        if server.read_only || server.host.busy {
            return Taken::Refused;
        }
        server.log.push(write);
        server.applied = server.log.len();
        if node == self.head {
            self.kept.push(write);
        }
        if self.commits.len() <= write {
            self.commits.resize(write + 1, None);
        }
        self.commits[write] = Some(Commit { node, at: context.now, replaced });
        Taken::Committed
    }

    fn died(&mut self, context: &mut Context, node: usize, _: bool) {
        self.go_on(context.now);
        let server = &mut self.servers[node];
        server.lock = None;
        server.unread.clear();
        server.read_only = server.starts_read_only;
        if let Some(thread) = &mut server.thread {
            (thread.started, thread.link) = (true, Link::Trying);
        }
    }

    fn started(&mut self, context: &mut Context, node: usize) {
        let now = context.now;
        let server = &mut self.servers[node];
        server.applied_at = now;
        if let Some(thread) = &mut server.thread {
            *thread = Thread { is_known: thread.is_known, ..Thread::to(thread.source, now) };
        }
    }

    fn listen(&mut self, context: &mut Context) {
        for node in 0..self.servers.len() {
            if self.servers[node].host.runs() {
                for (session, question) in std::mem::take(&mut self.servers[node].unread) {
                    context.note(|| format!("    n{node} reads late: {question:?}"));
                    let _ = self.execute(context, None, node, session, &question);
                }
            }
        }
        self.go_on(context.now);
    }

    fn turn(&mut self, _: &mut Context, _: Turn) {}

    fn any_action(&self, random: &mut Random, node: usize, other: usize) -> Action {
        match random.within(0..100) {
            _ if self.is_ordered && random.percent(45) => Action::Switch(node),
            0..18 => Action::Cut(node, other),
            18..25 => Action::Part(random.below(WEIRS_MAX), u8::try_from(random.within(1..31)).unwrap_or(1)),
            25..45 => Action::Divide(u8::try_from(random.within(1..31)).unwrap_or(1)),
            45..48 if self.replaces => Action::Forget(
                random.below(WEIRS_MAX),
                random.within(500 * MS..30_000 * MS),
                random.percent(50),
            ),
            45..60 => Action::ReadOnly(node, true),
            60..82 => Action::Apply(node, random.within(10 * MS..300 * MS)),
            _ => Action::Replicate(node, false),
        }
    }

    fn act(&mut self, context: &mut Context, action: Action) {
        let now = context.now;
        self.go_on(now);
        match action {
            Action::Cut(one, two) => self.set_link(one, two, true),
            Action::Mend(one, two) => self.set_link(one, two, false),
            Action::Divide(set) => {
                let side = |node: usize| set & (1 << node) != 0;
                for one in 0..self.servers.len() {
                    (0..one)
                        .filter(|two| side(*two) != side(one))
                        .for_each(|two| self.set_link(one, two, true));
                }
            }
            // Whoever makes another one writable beside Weir chooses the writer, and answers for what is lost.
            Action::ReadOnly(node, false) if node != self.head || self.is_being_moved() => {}
            Action::ReadOnly(node, on) => {
                let server = &mut self.servers[node];
                (server.read_only, server.is_weirs_choice) = (on, false);
                server.is_closed_by_weir = false;
            }
            Action::Apply(node, us) => self.servers[node].apply_us = us,
            Action::Replicate(node, true) => drop(self.tell(node, now, &Statement::Start)),
            Action::Replicate(node, false) => drop(self.tell(node, now, &Statement::Stop)),
            Action::Switch(node) => self.order(node),
            Action::Order(weir, node) => self.orders[weir] = Some(node),
            Action::Writable(node) => self.servers[node].read_only = false,
            _ => {}
        }
        self.go_on(now);
    }

    /// Else hardly a source would be lost for long enough.
    fn repairs(&self) -> u64 {
        25
    }

    fn repair(&mut self, context: &mut Context) {
        self.cut = Default::default();
        for server in &mut self.servers {
            server.apply_us = 50;
        }
        self.go_on(context.now);
    }

    /// A person sees to it that all replicate from the writer, unless a Weir is about it.
    fn operate(&mut self, context: &mut Context) -> bool {
        let now = context.now;
        self.go_on(now);
        if self.is_being_moved() || !self.servers[self.head].host.runs() {
            return true;
        }
        let (head, log) = (self.head, self.servers[self.head].log.clone());
        let mut helps = false;
        for node in 0..self.servers.len() {
            let server = &mut self.servers[node];
            let follows =
                |thread: &Thread| thread.source == head && thread.started && thread.link != Link::Idle;
            let is_fine = match node == head {
                true => !server.read_only && server.thread.is_none(),
                false => server.read_only && server.thread.as_ref().is_some_and(follows),
            };
            if is_fine || !server.host.runs() {
                continue;
            }
            helps = true;
            self.kept.clear();
            let server = &mut self.servers[node];
            (server.is_closed_by_weir, server.is_stopped_by_weir) = (false, false);
            context.disturb(|| format!("a person sees to n{node}, the writer is n{head}"));
            (server.read_only, server.thread) = (node != head, None);
            if node != head {
                (server.log, server.applied) = (log.clone(), log.len());
                server.thread = Some(Thread::to(head, now));
            } else {
                server.applied = server.log.len();
            }
        }
        self.go_on(now);
        helps
    }

    fn may_write(&self, node: usize) -> bool {
        // Whether it may by its rivals is seen by what becomes of writes.
        self.writes(node) && !self.servers[node].host.busy
    }

    fn is_ready(&self, node: usize) -> bool {
        self.may_write(node) && (!self.replaces || self.backing(node).count_ones() >= self.majority())
    }

    fn may_read(&self, node: usize) -> bool {
        let host = &self.servers[node].host;
        host.runs() && !host.busy
    }

    fn is_known(&self, node: usize, reached: u8) -> bool {
        !self.replaces
            || self.servers[node].read_only
            || self.backing_seen(node, reached).count_ones() >= self.majority()
    }

    fn notice(&self) -> Time {
        self.net_timeout + self.retry + 1000 * MS
    }

    fn is_quick(&self, node: usize) -> bool {
        self.origin(node) == Origin::Writable(self.head)
    }

    fn stands_alone(&self) -> bool {
        !self.replaces
    }

    fn ends_waiting(&self) -> bool {
        self.replaces
    }

    fn keeps(&self, _: usize) -> bool {
        // What no replica had received is lost.
        true
    }

    fn set_path(&mut self, weir: usize, node: usize, path: Path) {
        self.paths[weir][node] = path;
    }

    fn tries(&mut self, trial: Trial) {
        self.trial = trial;
    }

    fn lease_ms(&self) -> u64 {
        if !self.replaces || self.breach() == Some(Breach::FailoverIgnoresLease) {
            u64::MAX
        } else {
            ReplicationPolicy::LEASE_MS
        }
    }

    /// A write that was acknowledged must not be one that a failover has passed over.
    fn acknowledged(&mut self, context: &mut Context, weir: usize, write: usize) {
        let Some(Commit { node, at, replaced }) = self.commits.get(write).copied().flatten() else { return };
        // One that began later can't know who was replaced.
        let knows = self.begun[weir].1 < self.head_since;
        if let Some((head, since)) = replaced.filter(|_| knows) {
            let ago = (at - since) / MS;
            context
                .fail(|| format!("n{node} acknowledges a write {ago} ms after n{head} had taken its place"));
        }
        self.servers[node].acknowledged_at = self.servers[node].acknowledged_at.max(at);
    }

    fn decided(&mut self, context: &mut Context, weir: &Weir) {
        if self.begun[weir.index].0 != weir.life {
            self.begun[weir.index] = (weir.life, context.now);
        }
        self.begin(context, weir);
    }

    fn next_step(&mut self, context: &mut Context, weir: usize, lives: [Option<u32>; WEIRS_MAX]) {
        for (other, life) in lives.into_iter().enumerate() {
            if self.works[other].as_ref().is_some_and(|work| Some(work.life()) != life) {
                self.give_up(other);
            }
        }
        self.go_on(context.now);
        self.step(context, weir);
        self.go_on(context.now);
    }

    fn holds(&self, weir: usize) -> bool {
        self.holds[weir]
    }

    fn unsettled(&self, weir: usize) -> Option<String> {
        let is_well = (0..self.servers.len()).all(|node| self.is_answered(weir, node));
        let is_whole = self.cut.iter().flatten().all(|cut| !cut);
        let is_locked = self.servers.iter().any(|server| server.lock.is_some());
        self.half_made().filter(|_| is_well && is_whole && !is_locked)
    }

    /// One that inherits from a server without a source, by what is known of former writers: to a Weir that has begun since
    /// it looks as one that was replaced.
    fn is_passed_over(&self, weir: &Weir, reached: u8, node: usize) -> bool {
        let known = weir.roles.groups.first().and_then(|group| group.succession.as_ref());
        if !self.replaces {
            return false;
        } else if self.servers[node].read_only {
            let is_of_another_line = |root: usize| {
                known.is_some_and(|known| {
                    !["", &uuid_of(root)].contains(&known.writer_id.as_str())
                        && !known.followers.contains(&endpoint(root))
                })
            };
            return match self.origin_seen(node, reached) {
                Origin::Writable(root) | Origin::Nobody(root) => is_of_another_line(root),
                Origin::Unknown => false,
            };
        }
        let thread = self.servers[node].thread.as_ref().filter(|thread| thread.link == Link::Up);
        // As far as the Weir can know it.
        let is_heir = |root: usize| {
            thread.is_some_and(|thread| thread.source == root)
                || known.is_some_and(|known| {
                    known.writer_id == uuid_of(root) && known.followers.contains(&endpoint(node))
                        || known.writer_id == uuid_of(node) && known.deposed.contains(&endpoint(root))
                })
        };
        let stands = |other: &usize| match self.origin_seen(*other, reached) {
            Origin::Writable(origin) => origin == node,
            Origin::Nobody(root) => is_heir(root),
            Origin::Unknown => false,
        };
        let votes = (0..self.servers.len()).filter(stands).count();
        votes < self.majority() as usize
    }

    fn overdue(&self, weir: &Weir, reached: u8) -> Option<usize> {
        if !self.replaces {
            return None;
        }
        let (head, count) = (self.head, self.servers.len());
        let is_gone = !self.servers[head].host.runs() || !self.paths[weir.index][head].works();
        let others: Vec<usize> =
            (0..count).filter(|node| *node != head && reached & (1 << node) != 0).collect();
        let votes = |node: &&usize| {
            let thread = self.servers[**node].thread.as_ref();
            thread.is_some_and(|thread| thread.started && thread.source == head)
        };
        let many = u32::try_from(others.iter().filter(votes).count()).unwrap_or(0) >= self.majority();
        // What keeps a Weir from it for good reasons.
        let is_hindered = |node: &usize| {
            let server = &self.servers[*node];
            self.hears(*node, head)
                || others.iter().any(|other| other != node && !self.hears(*node, *other))
                || !self.precedes(*node, head)
                || self.now < server.behind_until + CATCH_UP
        };
        let is_free = |node: usize| {
            let server = &self.servers[node];
            let is_writable = server.host.process != Process::Dead && !server.read_only && node != head;
            let holder = server.lock.and_then(|session| self.sessions.get(&session));
            let is_locked = holder.is_some_and(|session| session.weir != weir.index);
            weir.wants(node) && !is_writable && !is_locked
        };
        // One that began, or had it taken out, while it was away does not know it for the writer.
        let hold = weir.roles.groups.first().and_then(|group| group.hold.as_ref());
        let is_missed = hold.is_some_and(|hold| hold.lost.contains(&endpoint(head)));
        let is_due = is_gone && many && is_missed && (0..count).all(is_free);
        (is_due && !others.iter().any(is_hindered)).then_some(head)
    }
}

impl AutoFailover {
    /// The first transactions of a server.
    fn position(&self, node: usize, count: usize) -> String {
        self.servers[node].log[..count].iter().map(|write| format!("{write},")).collect()
    }

    /// What the journal's table holds on a server.
    fn row(&self, node: usize) -> Option<Entry> {
        let server = &self.servers[node];
        let last = server.log[..server.applied].iter().rev().find(|write| **write >= ROWS)?;
        self.rows.get(last - ROWS).cloned().flatten()
    }

    fn majority(&self) -> u32 {
        u32::try_from(self.servers.len() / 2 + 1).unwrap_or(u32::MAX)
    }
}
