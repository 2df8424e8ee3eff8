//! Servers with asynchronous replication: a source, its replicas, and a person or a tool that makes another the source.
//!
//! From the manuals (MySQL "Replication Administration", MariaDB "Replication Overview") and what tools such as
//! Orchestrator do: `read_only` keeps clients from writing, nothing else does; a replica whose source is gone goes on
//! serving reads; an old source that comes back is what its configuration file makes of it, often writable.

mod replaced;

use weir_topology::{
    Intent, Lag, Link, Policy, ReadOnlyCheck, ReplicaState, ReplicationPolicy, ServerState, SourceLink,
};

use super::{Host, Model, Taken, Turn, What};
use crate::chaos::Action;
use crate::cluster::{Context, Path, WEIRS_MAX};
use crate::node::{NODES_MAX, Process, endpoint, uuid_of};
use crate::queue::{Event, MS, Time};
use crate::random::Random;
use crate::stage::NAMES;
use crate::weir::{READERS, WRITERS, Weir, row};
use replaced::Line;

/// How far behind a replica counts whose threads do not run.
const STOPPED_S: u32 = 60;

struct Server {
    host: Host,
    read_only: bool,
    /// Whom it replicates from.
    source: Option<usize>,
    /// Its threads run.
    replicates: bool,
    lag_s: u64,
    /// Which machine it is that its name leads to.
    machine: usize,
}

/// The servers.
pub(crate) struct Replicas {
    servers: Vec<Server>,
    check: ReadOnlyCheck,
    /// `max_replication_lag`; 0: no limit.
    lag_max_s: u32,
    /// How long the tool waits before it gives a source up, if there is one.
    patience: Option<Time>,
    /// Since when there is nothing to write to.
    missed_since: Option<Time>,
    /// A source that was killed comes back writable.
    returns_writable: bool,
    writes: u64,
    /// Names lead elsewhere now and then.
    has_moves: bool,
    paths: [[Path; NODES_MAX]; WEIRS_MAX],
    /// What each Weir has seen of former sources.
    lines: [Line; WEIRS_MAX],
}

impl Model for Replicas {
    fn any(random: &mut Random, count: usize, seed: u64) -> Self {
        let server = |node: usize| Server {
            host: Host::new(),
            read_only: node > 0,
            source: (node > 0).then_some(0),
            replicates: true,
            lag_s: 0,
            machine: 0,
        };
        Self {
            servers: (0..count).map(server).collect(),
            check: random.pick(&[
                ReadOnlyCheck::ReadOnly,
                ReadOnlyCheck::ReadOnly,
                ReadOnlyCheck::SuperReadOnly,
                ReadOnlyCheck::Either,
            ]),
            lag_max_s: random.pick(&[0, 10, 30]),
            patience: random.percent(75).then(|| random.within(1000 * MS..6000 * MS)),
            missed_since: None,
            returns_writable: random.percent(40),
            writes: 0,
            has_moves: seed >= NAMES,
            paths: Default::default(),
            lines: Default::default(),
        }
    }

    fn settings(&self, random: &mut Random) -> (Policy, Vec<Intent>) {
        let replication = ReplicationPolicy {
            writer_hostgroup: WRITERS,
            reader_hostgroup: READERS,
            check: self.check,
            writer_reads: random.percent(50),
            lag_when_stopped_s: STOPPED_S,
            timeouts_max: u32::try_from(random.within(1..4)).unwrap_or(3),
            failover_after_ms: None,
        };
        let of_server = |node: usize| {
            // Users name a server in one of the two, or in both.
            let hostgroups: &[u32] = match (node, random.within(0..3)) {
                (_, 0) => &[WRITERS, READERS],
                (0, _) => &[WRITERS],
                _ => &[READERS],
            };
            hostgroups.iter().map(move |hostgroup| row(node, *hostgroup, 100)).collect::<Vec<_>>()
        };
        let mut intents: Vec<Intent> = (0..self.servers.len()).flat_map(of_server).collect();
        intents.iter_mut().for_each(|row| row.lag_max_s = self.lag_max_s);
        (Policy { replication: vec![replication], ..Policy::default() }, intents)
    }

    fn hosts(&self) -> Vec<&Host> {
        self.servers.iter().map(|server| &server.host).collect()
    }

    fn host(&mut self, node: usize) -> &mut Host {
        &mut self.servers[node].host
    }

    fn say(&mut self, _: &Context, node: usize) -> ServerState {
        let server = &self.servers[node];
        let lag = match server.source {
            None => Lag::NoReplica,
            Some(_) if !self.threads_run(node) => Lag::Stopped,
            Some(_) => Lag::Seconds(server.lag_s),
        };
        let state = ReplicaState {
            read_only: Some(server.read_only),
            innodb_read_only: Some(false),
            super_read_only: Some(server.read_only),
            lag,
            id: self.id(node),
            source: server.source.map(|source| self.link(node, source)),
            ..ReplicaState::default()
        };
        state.into()
    }

    fn take(&mut self, _: &mut Context, node: usize, _: usize) -> Taken {
        if self.servers[node].read_only || self.servers[node].host.busy {
            return Taken::Refused;
        }
        self.writes += 1;
        Taken::Committed
    }

    fn died(&mut self, _: &mut Context, node: usize, _: bool) {
        // The configuration file has the last word at the next start.
        if !self.returns_writable {
            self.servers[node].read_only = true;
        }
    }

    fn started(&mut self, context: &mut Context, node: usize) {
        if self.servers[node].read_only || !(0..self.servers.len()).any(|other| self.rivals(node, other)) {
            return;
        }
        // Whoever watches over them sees two after a while.
        self.later(context, node, What::Demoted, 500 * MS..8000 * MS);
    }

    /// Set up as people do: a replica of the writer, or not read_only, and it may have much to catch up on.
    fn renew(&mut self, context: &mut Context, node: usize) {
        let writer = (0..self.servers.len()).find(|other| self.writes(*other));
        let server = &mut self.servers[node];
        (server.machine, server.source, server.replicates) = (server.machine + 1, writer, true);
        server.read_only = context.random.percent(75);
        server.lag_s = context.random.pick(&[0, 0, 3600]);
        self.forget_line(node);
    }

    fn listen(&mut self, _: &mut Context) {}

    fn turn(&mut self, context: &mut Context, turn: Turn) {
        let Turn { node, life, what } = turn;
        if let What::Manage = what {
            return self.manage(context);
        }
        if self.servers[node].host.life != life {
            return;
        }
        match what {
            What::Promoted => self.promote(context, node),
            What::Demoted => {
                if let Some(source) = (0..self.servers.len()).find(|other| self.rivals(node, *other)) {
                    context.disturb(|| format!("n{node} is made a replica of n{source}"));
                    let demoted = &mut self.servers[node];
                    (demoted.read_only, demoted.source, demoted.replicates) = (true, Some(source), true);
                }
            }
            _ => {}
        }
    }

    fn any_action(&self, random: &mut Random, node: usize, _: usize) -> Action {
        if self.has_moves && random.percent(30) {
            return Action::Move(node);
        }
        match random.within(0..100) {
            0..30 => Action::Promote(node),
            30..50 => Action::Writable(node),
            50..65 => Action::ReadOnly(node, true),
            65..85 => Action::Lag(node, random.pick(&[1, 9, 11, 25, 31, 3600])),
            _ => Action::Replicate(node, false),
        }
    }

    fn act(&mut self, context: &mut Context, action: Action) {
        match action {
            Action::ReadOnly(node, on) => self.servers[node].read_only = on,
            Action::Writable(node) => self.servers[node].read_only = false,
            Action::Lag(node, lag_s) => self.servers[node].lag_s = lag_s,
            Action::Replicate(node, on) => self.servers[node].replicates = on,
            Action::Promote(node) if self.servers[node].host.runs() => {
                // In order: first nobody writes, then the others follow.
                for server in &mut self.servers {
                    server.read_only = true;
                }
                self.later(context, node, What::Promoted, 5 * MS..800 * MS);
            }
            _ => {}
        }
    }

    fn repair(&mut self, _: &mut Context) {
        for server in &mut self.servers {
            (server.replicates, server.lag_s) = (true, 0);
        }
    }

    fn operate(&mut self, context: &mut Context) -> bool {
        let writers: Vec<usize> = (0..self.servers.len()).filter(|node| self.writes(*node)).collect();
        match writers.as_slice() {
            [] => {
                if let Some(node) = (0..self.servers.len()).find(|node| self.servers[*node].host.runs()) {
                    self.promote(context, node);
                }
            }
            [_, others @ ..] => {
                for node in others {
                    context.disturb(|| format!("n{node} is made read_only"));
                    (self.servers[*node].read_only, self.servers[*node].source) =
                        (true, writers.first().copied());
                }
            }
        }
        false
    }

    fn may_write(&self, node: usize) -> bool {
        self.writes(node) && !self.servers[node].host.busy
    }

    fn is_ready(&self, node: usize) -> bool {
        self.may_write(node)
    }

    fn may_read(&self, node: usize) -> bool {
        let server = &self.servers[node];
        let limit_s = u64::from(self.lag_max_s);
        let lag_s = match server.source {
            None => 0,
            Some(_) if !self.threads_run(node) => u64::from(STOPPED_S),
            Some(_) => server.lag_s,
        };
        // What clients write is read where they write it.
        let is_fresh = !server.read_only || limit_s == 0 || lag_s <= limit_s;
        server.host.runs() && !server.host.busy && is_fresh
    }

    fn notice(&self) -> Time {
        0
    }

    /// One that was out of sight while another took its place gets nothing before somebody has decided.
    fn is_passed_over(&self, weir: &Weir, _: u8, node: usize) -> bool {
        let replaced = weir.roles.groups.first().map(|group| &group.replaced);
        replaced.is_some_and(|replaced| replaced.contains(&endpoint(node))) && weir.probes[node].failed_at > 0
    }

    fn set_path(&mut self, weir: usize, node: usize, path: Path) {
        self.paths[weir][node] = path;
    }

    fn look(&mut self, now: Time) {
        self.look_at_lines(now);
    }

    fn decided(&mut self, context: &mut Context, weir: &Weir) {
        self.note_replaced(context, weir);
    }

    fn keeps(&self, _: usize) -> bool {
        // What a replica lacked when it was promoted is lost, whatever a proxy does.
        true
    }
}

impl Replicas {
    fn later(&self, context: &mut Context, node: usize, what: What, delays: std::ops::Range<Time>) {
        let life = self.servers[node].host.life;
        context.within(delays, Event::Turn(Turn { node, life, what }));
    }

    fn id(&self, node: usize) -> String {
        uuid_of(node + self.servers[node].machine * NODES_MAX)
    }

    fn link(&self, node: usize, source: usize) -> SourceLink {
        let link = match self.servers[source].host.process {
            _ if !self.servers[node].replicates => Link::Idle,
            Process::Dead => Link::Down,
            _ => Link::Up,
        };
        SourceLink { id: self.id(source), endpoint: Some(endpoint(source)), link }
    }

    /// Both threads: the one that fetches ends when the source does.
    fn threads_run(&self, node: usize) -> bool {
        let server = &self.servers[node];
        let source = server.source.map(|source| self.servers[source].host.process);
        server.replicates && source != Some(Process::Dead)
    }

    fn writes(&self, node: usize) -> bool {
        self.servers[node].host.runs() && !self.servers[node].read_only
    }

    /// Whether another server is written to, from which this one could replicate.
    fn rivals(&self, node: usize, other: usize) -> bool {
        node != other && self.writes(node) && self.writes(other)
    }

    /// The tool's look.
    fn manage(&mut self, context: &mut Context) {
        context.within(300 * MS..1500 * MS, Event::Turn(Turn { node: 0, life: 0, what: What::Manage }));
        let Some(patience) = self.patience else { return };
        if (0..self.servers.len()).any(|node| self.writes(node)) {
            self.missed_since = None;
            return;
        }
        let since = *self.missed_since.get_or_insert(context.now);
        let able = (0..self.servers.len()).filter(|node| self.servers[*node].host.runs());
        if let Some(best) = able.min_by_key(|node| (self.servers[*node].lag_s, *node))
            && context.now >= since + patience
        {
            self.promote(context, best);
        }
    }

    fn promote(&mut self, context: &mut Context, node: usize) {
        context.disturb(|| format!("n{node} is the source from now on"));
        let promoted = &mut self.servers[node];
        (promoted.read_only, promoted.source, promoted.lag_s) = (false, None, 0);
        for (other, server) in self.servers.iter_mut().enumerate() {
            if other != node && server.host.runs() && server.read_only {
                (server.source, server.replicates) = (Some(node), true);
            }
        }
    }
}
