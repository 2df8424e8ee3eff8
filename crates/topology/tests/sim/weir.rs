//! One Weir: the real decision, and around it what the topology thread does, in virtual time.

use weir_topology::{
    Choices, ClusterPolicy, DonorReads, Endpoint, EpochPolicy, Failback, Intent, Millis, Observation, Place,
    Policy, ProbeError, ReplicationPolicy, Role, Roles, ServerState, Status, Switch, SwitchStep, Wish,
    WriterReads, roles,
};

use crate::breach::Breach;
use crate::cluster::Context;
use crate::epoch_tables::EpochState;
use crate::node::{NODES_MAX, endpoint, node_of, uuid_of};
use crate::queue::{Event, MS, Time};
use crate::random::Random;

/// The hostgroups of the modelled cluster.
pub(crate) const WRITERS: u32 = 10;
pub(crate) const BACKUPS: u32 = 30;
pub(crate) const READERS: u32 = 20;
pub(crate) const OFFLINE: u32 = 9999;

/// How often roles are decided although nothing was seen.
pub(crate) const TICK: Time = 100 * MS;
/// The pause between probes while the cluster is about to form a new view.
const HURRY_PAUSE: Time = 10 * MS;
/// How long a switchover of its own that did not come about is not tried again.
pub(crate) const FAILBACK_PAUSE: Time = 4000 * MS;
/// How long probes go as fast as they can.
const HURRY_MS: u64 = 60_000;

/// What all Weirs of a world have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) intents: Vec<Intent>,
    pub(crate) interval: Time,
    pub(crate) timeout: Time,
    /// The pause between two reads of the agreement's tables on a node.
    pub(crate) read_pause: Time,
    /// The pause between two writes of its clients.
    pub(crate) client_pause: Time,
}

impl Settings {
    /// A policy and rows as users write them.
    pub(crate) fn any(random: &mut Random, nodes: usize, agrees: bool) -> Self {
        let reads = random.pick(&[WriterReads::No, WriterReads::Yes, WriterReads::OnlyBackups]);
        let galera = ClusterPolicy {
            writer_hostgroup: WRITERS,
            backup_writer_hostgroup: BACKUPS,
            reader_hostgroup: READERS,
            offline_hostgroup: OFFLINE,
            max_writers: 1,
            writer_reads: reads,
            max_transactions_behind: random.pick(&[0, 10, 100]),
            timeouts_max: u32::try_from(random.within(1..4)).unwrap_or(3),
            choices: Choices {
                unconfirmed_failover_ms: random.within(500..4000),
                donor_reads: random.pick(&[DonorReads::WhileQueueIsShort, DonorReads::AsLastResort]),
                ..Choices::default()
            },
        };
        let epoch = agrees.then(|| EpochPolicy {
            lease_ms: random.within(600..5000),
            lone_lease_ms: random.within(2000..6000),
            peer_timeout_ms: random.within(2000..4000),
            ..EpochPolicy::new("")
        });
        let policy = Policy { galera: vec![galera], epoch, ..Policy::default() };
        let mut intents = Vec::new();
        for node in 0..nodes {
            if random.percent(60) {
                intents.push(row(node, WRITERS, random.pick(&[1, 100, 100, 10_000])));
            }
            intents.push(row(node, READERS, random.pick(&[1, 100, 1000])));
        }
        Self::with(policy, intents, random)
    }

    /// The same with any times.
    pub(crate) fn with(mut policy: Policy, intents: Vec<Intent>, random: &mut Random) -> Self {
        let timeout = random.within(200..800) * MS;
        let interval = random.within(100..400) * MS;
        for row in &mut policy.replication {
            let silent_ms = u64::from(row.timeouts_max) * (interval * 11 / 10 + 3 * timeout) / MS;
            row.failover_after_ms =
                row.failover_after_ms.map(|_| silent_ms + 2 * ReplicationPolicy::LEASE_MS);
        }
        let (read_pause, client_pause) = (random.within(50..150) * MS, random.within(60..250) * MS);
        Self { policy, intents, interval, timeout, read_pause, client_pause }
    }

    /// The same with a writer that takes its role back, or with more writers than one.
    pub(crate) fn choose(&mut self, random: &mut Random) {
        for galera in &mut self.policy.galera {
            galera.max_writers = random.pick(&[1, 1, 2, 3]);
            galera.choices.failback = match galera.max_writers {
                1 => random.pick(&[Failback::Drained, Failback::Immediate]),
                _ => random.pick(&[Failback::Never, Failback::Immediate]),
            };
            galera.choices.uptime_min_ms = random.within(500..5000);
        }
        if self.writers_max() > 1 {
            // The epoch has one writer.
            self.policy.epoch = None;
        }
        for row in &mut self.intents {
            row.weight = random.pick(&[1, 100, 10_000]);
        }
    }

    /// The rules of the cluster; replication has others.
    fn cluster(&self) -> Option<&ClusterPolicy> {
        self.policy.galera.first().or(self.policy.group_replication.first())
    }

    pub(crate) fn writers_max(&self) -> usize {
        self.cluster().and_then(|cluster| usize::try_from(cluster.max_writers).ok()).unwrap_or(usize::MAX)
    }

    /// When a heavier server takes the role, and for how long it must have been able to.
    pub(crate) fn failback(&self) -> (Failback, Time) {
        let choices = self.policy.galera.first().map(|galera| &galera.choices);
        choices.map_or((Failback::Never, 0), |choices| (choices.failback, choices.uptime_min_ms * MS))
    }

    /// A node's weight in the writer hostgroup; none without a row there.
    pub(crate) fn weight(&self, node: usize) -> Option<u32> {
        let server = endpoint(node);
        let row = self.intents.iter().find(|row| row.hostgroup == WRITERS && row.endpoint == server);
        row.map(|row| row.weight)
    }

    /// How long a lost writer is waited for in an old view.
    pub(crate) fn unconfirmed_ms(&self) -> u64 {
        self.policy.galera.first().map_or(0, |galera| galera.choices.unconfirmed_failover_ms)
    }

    /// How long a writer must be lost before it is replaced, where Weirs do that.
    pub(crate) fn failover_after(&self) -> Time {
        let after_ms = self.policy.replication.first().and_then(|row| row.failover_after_ms);
        after_ms.unwrap_or(0) * MS
    }

    pub(crate) fn timeouts_max(&self) -> u64 {
        let replication = self.policy.replication.first().map_or(1, |row| row.timeouts_max);
        u64::from(self.cluster().map_or(replication, |cluster| cluster.timeouts_max))
    }
}

/// A row of `mysql_servers`.
pub(crate) fn row(node: usize, hostgroup: u32, weight: u32) -> Intent {
    Intent {
        endpoint: endpoint(node),
        hostgroup,
        wish: Wish::Online,
        weight,
        max_connections: 100,
        latency_max_us: 0,
        lag_max_s: 0,
    }
}

/// The probe of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Counts the questions; the present or the last one.
    pub(crate) id: u64,
    pub(crate) is_asking: bool,
    /// Look again at once.
    pub(crate) again: bool,
    /// Counts the pauses, so that one that was cut short is known.
    pub(crate) turn: u64,
    pub(crate) suspected_at: Time,
    /// When it last failed or was late.
    pub(crate) failed_at: Time,
    /// When it last asked.
    pub(crate) asked_at: Time,
}

/// A process with its own clock.
pub(crate) struct Weir {
    pub(crate) index: usize,
    pub(crate) life: u32,
    pub(crate) runs: bool,
    pub(crate) stopped: bool,
    /// What decides in it gets no time.
    pub(crate) is_stalled: bool,
    /// When it was started or went on last.
    pub(crate) awake_since: Time,
    /// Events that wait for it to go on.
    pub(crate) waiting: Vec<Event>,
    clock_start: u64,
    clock_ppm: i64,
    pub(crate) settings: Settings,
    pub(crate) seen: Vec<Observation>,
    pub(crate) roles: Roles,
    /// When it last decided, by its own clock.
    pub(crate) decided_at: Millis,
    pub(crate) probes: Vec<Probe>,
    hurry: bool,
    /// All that take writes.
    pub(crate) writers: Vec<usize>,
    /// The writer that clients are sent to, and the one before the hold.
    pub(crate) writer: Option<usize>,
    pub(crate) last_writer: Option<usize>,
    pub(crate) changes: u64,
    pub(crate) changed_at: Time,
    /// When the user last changed what he wants.
    pub(crate) wished_at: Time,
    pub(crate) switched_at: Time,
    /// When it may next move the role back by itself.
    pub(crate) fails_back_at: Time,
    pub(crate) acknowledged_at: Time,
    pub(crate) checked_at: Time,
    /// It has written into the cluster's history in this life.
    pub(crate) knew_history: bool,
    /// It has taken a branch for the cluster, and has written nothing in the real one since.
    pub(crate) follows_branch: bool,
    /// The nodes of branches that it has seen beside the cluster for long enough to know.
    pub(crate) saw_apart: [bool; NODES_MAX],
    pub(crate) reach: [Reach; NODES_MAX],
    /// The servers of which nothing has been heard since their names have moved.
    pub(crate) is_unheard: [bool; NODES_MAX],
    pub(crate) epoch_state: EpochState,
}

/// Since when a Weir could do what with a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The way there and back works without delay.
    pub(crate) clear_since: Option<Time>,
    /// And the node could read.
    pub(crate) reads_since: Option<Time>,
    /// And it belongs to the cluster that lasts.
    pub(crate) quorum_since: Option<Time>,
    /// Or to a branch of it.
    pub(crate) branch_since: Option<Time>,
}

/// A change of the writer.
pub(crate) struct Move {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// It was not one of several writers before.
    pub(crate) is_new: bool,
    pub(crate) held_ms: Option<u64>,
}

impl Weir {
    /// Some with clocks that drift apart.
    pub(crate) fn several(count: usize, settings: &Settings, random: &mut Random) -> Vec<Self> {
        let of_index = |index| {
            let ppm = i64::try_from(random.within(0..400)).unwrap_or(0) - 200;
            Self::new(index, settings.clone(), random.within(0..1_000_000), ppm)
        };
        (0..count).map(of_index).collect()
    }

    fn new(index: usize, mut settings: Settings, clock_start: u64, clock_ppm: i64) -> Self {
        if let Some(epoch) = &mut settings.policy.epoch {
            epoch.instance = format!("weir{index}").into();
        }
        Self {
            index,
            life: 0,
            runs: false,
            stopped: false,
            is_stalled: false,
            awake_since: 0,
            waiting: Vec::new(),
            clock_start,
            clock_ppm,
            settings,
            seen: Vec::new(),
            roles: Roles::default(),
            decided_at: Millis(0),
            probes: Vec::new(),
            hurry: false,
            writers: Vec::new(),
            writer: None,
            last_writer: None,
            changes: 0,
            changed_at: 0,
            wished_at: 0,
            switched_at: 0,
            fails_back_at: 0,
            acknowledged_at: 0,
            checked_at: 0,
            knew_history: false,
            follows_branch: false,
            saw_apart: [false; NODES_MAX],
            epoch_state: EpochState::default(),
            is_unheard: [false; NODES_MAX],
            reach: [Reach {
                clear_since: Some(0),
                reads_since: Some(0),
                quorum_since: Some(0),
                branch_since: None,
            }; NODES_MAX],
        }
    }

    /// Its own clock, which drifts.
    pub(crate) fn clock(&self, now: Time) -> Millis {
        let local = i128::from(now) + i128::from(now) * i128::from(self.clock_ppm) / 1_000_000;
        Millis(self.clock_start + u64::try_from(local).unwrap_or(0) / MS)
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.runs && !self.stopped && !self.is_stalled
    }

    /// A new process, which knows nothing.
    pub(crate) fn start(&mut self, context: &mut Context, nodes: usize) {
        let (index, life) = (self.index, self.life);
        context.disturb(|| format!("weir {index} starts"));
        (self.runs, self.stopped, self.is_stalled, self.awake_since) = (true, false, false, context.now);
        (self.seen, self.roles, self.hurry) = (Vec::new(), Roles::default(), false);
        (self.writer, self.last_writer) = (None, None);
        (self.knew_history, self.follows_branch) = (false, false);
        (self.is_unheard, self.saw_apart) = ([false; NODES_MAX], [false; NODES_MAX]);
        self.writers.clear();
        self.waiting.clear();
        self.epoch_state = EpochState::default();
        (self.settings.policy.switches, self.settings.policy.cleared) = (Vec::new(), Vec::new());
        self.probes = vec![Probe::default(); nodes];
        for node in 0..nodes {
            context.within(0..5 * MS, Event::Probe { weir: index, life, node, turn: 0 });
            if self.settings.policy.epoch.is_some() {
                context.within(5 * MS..20 * MS, Event::ReadDue { weir: index, life, node });
            }
        }
        context.after(TICK, Event::Tick { weir: index, life });
        let client = Event::Client { weir: index, life };
        context.within(0..self.settings.client_pause, client);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, context: &mut Context) {
        let index = self.index;
        context.disturb(|| format!("weir {index} is killed"));
        (self.runs, self.stopped, self.is_stalled) = (false, false, false);
        self.life += 1;
        self.waiting.clear();
        self.writer = None;
        self.writers.clear();
    }

    /// Folds what a probe has seen into what was seen before; whether the probe had failed.
    pub(crate) fn observe(&mut self, now: Time, node: usize, result: Result<ServerState, ProbeError>) {
        let at = self.clock(now);
        let server = endpoint(node);
        if result.is_err() {
            self.probes[node].failed_at = now;
        }
        self.is_unheard[node] &= result.is_err();
        let before = self.seen.iter().position(|seen| seen.endpoint == server);
        let after = Observation::after(before.map(|before| &self.seen[before]), &server, at, result);
        let after = after.with_question(self.clock(self.probes[node].asked_at));
        match before {
            Some(before) => self.seen[before] = after,
            None => self.seen.push(after),
        }
    }

    /// The pause after a probe.
    pub(crate) fn pause(&self, random: &mut Random, answered: bool) -> Time {
        if answered && self.hurry {
            return HURRY_PAUSE.min(self.settings.interval);
        }
        self.settings.interval * random.within(90..111) / 100
    }

    /// Has a node looked at now, unless it has been just now.
    pub(crate) fn suspect(&mut self, context: &mut Context, node: usize) {
        let probe = &mut self.probes[node];
        if context.now < probe.suspected_at + 20 * MS {
            return;
        }
        probe.suspected_at = context.now;
        self.look_now(context, node);
    }

    fn look_now(&mut self, context: &mut Context, node: usize) {
        let (weir, life) = (self.index, self.life);
        let probe = &mut self.probes[node];
        if probe.is_asking {
            probe.again = true;
        } else {
            probe.turn += 1;
            let turn = probe.turn;
            context.after(0, Event::Probe { weir, life, node, turn });
        }
    }

    /// A name leads elsewhere. What was seen of the server that was there says nothing of the one that is there now, and
    /// what it still answers is not heard.
    pub(crate) fn follow_name(&mut self, context: &mut Context, node: usize, forgets: bool) {
        let server = endpoint(node);
        self.seen.retain(|seen| !forgets || seen.endpoint != server);
        self.is_unheard[node] = true;
        let probe = &mut self.probes[node];
        (probe.is_asking, probe.again) = (false, false);
        probe.id += 1;
        self.look_now(context, node);
    }

    /// Decides; returns the change of the writer, if there was one.
    pub(crate) fn decide(&mut self, context: &mut Context, breach: Option<Breach>) -> Option<Move> {
        let now = self.clock(context.now);
        self.decided_at = now;
        self.prepare(context);
        let mut decided = match breach {
            None => roles(&self.settings.policy, &self.settings.intents, &self.seen, &self.roles, now),
            Some(breach) => breach.roles(self, now),
        };
        self.settings.policy.switches = Vec::new();
        std::mem::swap(&mut self.roles, &mut decided);
        let previous = decided;
        if !self.roles.same_as(&previous) {
            if !self.roles.changes(&previous).is_empty() {
                self.changed_at = context.now;
            }
            self.note_changes(context, &previous);
        }
        let is_fresh = |since: Millis| now.since(since) < HURRY_MS;
        let hurry = self
            .roles
            .groups
            .iter()
            .any(|group| group.hold.as_ref().is_some_and(|hold| is_fresh(hold.since)));
        let begins = hurry && !self.hurry;
        self.hurry = hurry;
        if begins {
            (0..self.probes.len()).for_each(|node| self.look_now(context, node));
        }
        self.follow(&previous, now)
    }

    fn note_changes(&self, context: &mut Context, previous: &Roles) {
        if context.trace.is_none() {
            return;
        }
        let index = self.index;
        for change in self.roles.changes(previous) {
            context.note(|| format!("    weir {index}: {change}"));
        }
        let hold = |roles: &Roles| roles.groups.first().and_then(|group| group.hold.clone());
        if hold(&self.roles).is_some() != hold(previous).is_some() {
            let word = if hold(&self.roles).is_some() { "begins" } else { "ends" };
            context.note(|| format!("    weir {index}: a hold {word}"));
        }
    }

    /// Sends clients to the writer that was decided.
    fn follow(&mut self, previous: &Roles, now: Millis) -> Option<Move> {
        let writers = self.published_writers();
        let before = std::mem::replace(&mut self.writers, writers);
        // One that is still there is stayed with.
        let stays = self.last_writer.filter(|writer| self.writers.contains(writer));
        self.writer = stays.or(self.writers.first().copied());
        let to = self.writer?;
        let from = self.last_writer.replace(to)?;
        if from == to {
            return None;
        }
        self.changes += 1;
        let hold = previous.groups.first().and_then(|group| group.hold.as_ref());
        Some(Move {
            from,
            to,
            is_new: !before.contains(&to),
            held_ms: hold.map(|hold| now.since(hold.since)),
        })
    }

    /// Where the roles send writes.
    fn published_writers(&self) -> Vec<usize> {
        let writes = |place: &&Place| place.role == Role::Writer && place.status == Status::Online;
        let writers = self.roles.hostgroup(WRITERS).iter().filter(writes);
        writers.map(|place| node_of(&place.endpoint)).collect()
    }

    /// Whether somebody reads.
    pub(crate) fn has_reader(&self) -> bool {
        self.roles.hostgroup(READERS).iter().any(|place| place.status == Status::Online)
    }

    /// Whether it takes the cluster's history for the right one: a Weir that has seen nothing but a node that was set
    /// up apart can't know better.
    pub(crate) fn believes_in_cluster(&self) -> bool {
        let view = self.roles.groups.first().and_then(|group| group.view.as_ref());
        view.is_none_or(|view| view.history == uuid_of(0))
    }

    /// What the user wants of a node.
    pub(crate) fn wish(&mut self, node: usize, wish: Wish) {
        let server = endpoint(node);
        for row in self.settings.intents.iter_mut().filter(|row| row.endpoint == server) {
            row.wish = wish;
        }
    }

    /// Whether the user wants a node to work.
    pub(crate) fn wants(&self, node: usize) -> bool {
        let server: Endpoint = endpoint(node);
        self.settings.intents.iter().all(|row| row.endpoint != server || row.wish == Wish::Online)
    }

    /// A planned change of the writer.
    pub(crate) fn switch_to(&mut self, node: usize, now: Time) {
        let Some(from) = self.roles.groups.first().and_then(|group| group.last_wrote.first()) else { return };
        let has_epoch = self.settings.policy.epoch.is_some();
        let row = self.leadership().and_then(|leadership| leadership.row.as_ref());
        let switch = Switch {
            writer_hostgroup: WRITERS,
            from: from.clone(),
            to: endpoint(node),
            step: if has_epoch { SwitchStep::Ask } else { SwitchStep::Move },
            ordered_at: row.map_or(0, |row| row.version),
        };
        if has_epoch {
            self.epoch_state.switch = Some((switch, now));
        } else {
            self.settings.policy.switches = vec![switch];
        }
    }

    /// Begins the switchover that a Weir makes by itself, where the role goes back in order; whether it has.
    pub(crate) fn fail_back(&mut self, now: Time) -> bool {
        let wanted = self.roles.groups.first().and_then(|group| group.failback.as_ref()).map(node_of);
        let Some(node) = wanted.filter(|_| now >= self.fails_back_at) else { return false };
        self.fails_back_at = now + FAILBACK_PAUSE;
        self.switch_to(node, now);
        true
    }
}
