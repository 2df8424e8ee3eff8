//! The world: the one place where events become what they do.

use std::collections::VecDeque;

use weir_topology::{ProbeError, ServerState};

use crate::breach::Trial;
use crate::chaos::Chaos;
use crate::check::Bounds;
use crate::cluster::{Cluster, ClusterSettings, Context, Deed, Path, Write};
use crate::follow::{self, Group, Replicas};
use crate::node::Process;
use crate::queue::{Event, MS, Queue, Reply};
use crate::random::Random;
use crate::watch::Watch;
use crate::weir::{self, Weir};

/// Galera worlds from this one on have several writers, or one that takes its role back.
pub(crate) const CHOOSING: u64 = 1_000_000;
/// Worlds from this one on have a group, and from that one on replication.
pub(crate) const GROUPS: u64 = 2_000_000;
pub(crate) const REPLICAS: u64 = 3_000_000;

/// What is wrong, with the way there.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) what: String,
    pub(crate) trace: Vec<String>,
}

/// What a run has seen, to know that it was worth something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) disturbances: u64,
    pub(crate) moves: u64,
    pub(crate) acknowledged: u64,
    pub(crate) quiet_checks: u64,
}

impl Tally {
    /// Both together.
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            disturbances: self.disturbances + other.disturbances,
            moves: self.moves + other.moves,
            acknowledged: self.acknowledged + other.acknowledged,
            quiet_checks: self.quiet_checks + other.quiet_checks,
        }
    }
}

/// Everything.
pub(crate) struct World {
    pub(crate) context: Context,
    pub(crate) cluster: Cluster,
    pub(crate) weirs: Vec<Weir>,
    pub(crate) bounds: Bounds,
    pub(crate) chaos: Chaos,
    pub(crate) trial: Trial,
    pub(crate) tally: Tally,
    /// The node that was first written to by each epoch.
    pub(crate) first_writes: Vec<(u64, usize)>,
    /// The first rule that was seen broken.
    pub(crate) violation: Option<String>,
}

/// Runs the world of a seed for so many steps.
pub(crate) fn run(seed: u64, steps: u64, trial: Trial, traced: bool) -> Result<Tally, Failure> {
    match seed {
        REPLICAS.. => follow::run::<Replicas>(seed, steps, trial, traced),
        GROUPS.. => follow::run::<Group>(seed, steps, trial, traced),
        _ => run_galera(seed, steps, trial, traced),
    }
}

fn run_galera(seed: u64, steps: u64, trial: Trial, traced: bool) -> Result<Tally, Failure> {
    let mut world = World::of_seed(seed, trial, traced);
    world.begin();
    while world.tally.steps < steps {
        if !world.step() {
            break;
        }
        if let Some(what) = world.violation.take() {
            let trace = world.context.trace.take().unwrap_or_default().into();
            return Err(Failure { seed, step: world.tally.steps, what, trace });
        }
    }
    world.tally.disturbances = world.context.disturbances;
    world.tally.moves = world.weirs.iter().map(|weir| weir.changes).sum();
    Ok(world.tally)
}

impl Watch for World {
    fn parts(&mut self) -> (&mut Context, &mut Vec<Weir>) {
        (&mut self.context, &mut self.weirs)
    }

    fn path(&self, weir: usize, node: usize) -> Path {
        self.cluster.paths[weir][node]
    }

    fn look(&mut self, node: usize) -> Option<Result<ServerState, ProbeError>> {
        Some(self.cluster.asked(&self.context, node)?.map(ServerState::from))
    }

    fn decide(&mut self, weir: usize) {
        if let Some(moved) = self.weirs[weir].decide(&mut self.context, self.trial.breach()) {
            self.check_move(weir, &moved);
        }
        self.write_down(weir);
        if self.weirs[weir].fail_back(self.context.now) {
            self.decide(weir);
        }
    }
}

impl World {
    fn of_seed(seed: u64, trial: Trial, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let nodes = random.one_of(&[2, 3, 3, 3, 3, 5]);
        let agrees = seed % 2 == 1;
        let weirs = random.one_of(if agrees { &[1, 2, 2, 3] } else { &[1, 1, 1, 2, 3] });
        let has_segments = random.chance(25);
        let segments: Vec<u8> =
            (0..nodes).map(|_| if has_segments { random.one_of(&[0, 1]) } else { 0 }).collect();
        let mut weights = [1; crate::node::NODES_MAX];
        if random.chance(20) {
            weights.iter_mut().for_each(|weight| *weight = random.one_of(&[1, 2, 3]));
        }
        let settings = ClusterSettings {
            suspect: if random.chance(20) {
                random.within(20 * MS..200 * MS)
            } else {
                random.within(500 * MS..3000 * MS)
            },
            weights,
            auto: random.chance(15),
            transfer: random.within(500 * MS..4000 * MS),
        };
        let mut policy = weir::Settings::any(&mut random, nodes, agrees);
        if seed >= CHOOSING {
            policy.choose(&mut Random::new(!seed));
        }
        let weirs = (0..weirs).map(|index| {
            let ppm = i64::try_from(random.within(0..400)).unwrap_or(0) - 200;
            Weir::new(index, policy.clone(), random.within(0..1_000_000), ppm)
        });
        let weirs = weirs.collect();
        let trace = traced.then(VecDeque::new);
        let context =
            Context { now: 0, queue: Queue::default(), random, disturbed_at: 0, disturbances: 0, trace };
        Self {
            bounds: Bounds::of(&policy, settings.suspect),
            cluster: Cluster { breach: trial.breach(), ..Cluster::new(settings, &segments) },
            context,
            weirs,
            chaos: Chaos::default(),
            trial,
            tally: Tally::default(),
            first_writes: Vec::new(),
            violation: None,
        }
    }

    fn begin(&mut self) {
        let (settings, policy) = (&self.cluster.settings, self.weirs.first().map(|weir| &weir.settings));
        let nodes = self.cluster.nodes.len();
        self.context.note(|| format!("{nodes} nodes, {settings:?}"));
        self.context.note(|| format!("{policy:?}"));
        for weir in &mut self.weirs {
            weir.start(&mut self.context, nodes);
        }
        self.context.after(1000 * MS, Event::Chaos);
    }

    /// The next event; false if there is none.
    fn step(&mut self) -> bool {
        let Some((at, event)) = self.context.queue.next() else { return false };
        self.tally.steps += 1;
        self.context.now = at;
        if let Some(event) = self.is_heard(event) {
            self.handle(event);
        }
        self.check();
        true
    }

    fn handle(&mut self, event: Event) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        match event {
            Event::Chaos => self.chaos(),
            Event::Act(action) => self.act(action),
            Event::Operator => self.operate(),
            Event::Regroup => cluster.regroup(context),
            Event::Install { node, life, view } => cluster.install(context, node, life, view),
            Event::Join { node, life, transfer } => cluster.join(context, node, life, transfer),
            Event::Transferred { joiner, donor } => cluster.transferred(context, joiner, donor),
            Event::Synced { node, life, transfer } => cluster.synced(context, node, life, transfer),
            Event::Probe { weir, node, turn, .. } => self.ask(weir, node, turn),
            Event::Asked { weir, life, node, probe, deadline } => {
                self.asked(weir, life, node, probe, deadline)
            }
            Event::Answered { weir, node, probe, result, .. } => self.answered(weir, node, probe, *result),
            Event::Tick { weir, life } => {
                context.after(weir::TICK, Event::Tick { weir, life });
                self.decide(weir);
            }
            Event::Client { weir, life } => self.client(weir, life),
            Event::Written { write } => cluster.take_write(context, cluster.writes[write].node, write),
            Event::Replied { write, reply } => self.replied(write, reply),
            Event::ReadDue { weir, life, node } => self.read_due(weir, life, node),
            Event::ReadAsked { weir, life, node, asked_at, deadline } => {
                self.read_asked(weir, life, node, asked_at, deadline);
            }
            Event::Read { weir, life, node, read } => self.read_done(weir, life, node, *read),
            Event::Continue { weir, life } => self.go_on(weir, life),
            Event::Restart { weir } if !self.weirs[weir].runs => {
                self.weirs[weir].start(context, cluster.nodes.len());
            }
            Event::Restart { .. } | Event::Turn(_) => {}
        }
    }

    /// A person bootstraps a cluster that can't help itself.
    fn operate(&mut self) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        let count = cluster.nodes.len();
        let is_whole = |node: usize| cluster.nodes[node].process != Process::Hung;
        if (0..count).any(|node| cluster.has_quorum(node)) {
            return;
        }
        if (0..count).all(is_whole) && !(0..count).any(|one| cluster.cut[one].iter().any(|cut| *cut)) {
            cluster.bootstrap(context);
        }
        context.after(3000 * MS, Event::Operator);
    }

    fn client(&mut self, weir: usize, life: u32) {
        let pause = self.weirs[weir].settings.client_pause;
        self.context.within(pause / 2..pause * 3 / 2, Event::Client { weir, life });
        let sender = &mut self.weirs[weir];
        let Some(node) = sender.writer.filter(|_| sender.may_write(self.context.now, self.trial.breach()))
        else {
            return;
        };
        let write = self.cluster.writes.len();
        sender.accord.in_flight.push((write, self.context.now));
        let epoch = sender.epoch();
        self.cluster.writes.push(Write {
            weir,
            weir_life: life,
            node,
            node_life: self.cluster.nodes[node].life,
            committed: None,
            sent_at: self.context.now,
            deed: Deed::Client,
        });
        self.check_epoch(weir, node, epoch);
        if !self.cluster.paths[weir][node].there_broken {
            self.context.within(100..1500, Event::Written { write });
        }
    }

    fn replied(&mut self, write: usize, reply: Reply) {
        let Write { weir, weir_life, node, .. } = self.cluster.writes[write];
        let is_client = matches!(self.cluster.writes[write].deed, Deed::Client);
        if self.weirs[weir].life != weir_life || self.cluster.paths[weir][node].back_broken {
            return;
        }
        self.weirs[weir].accord.in_flight.retain(|(known, _)| *known != write);
        if !is_client {
            return self.entered(weir, write, reply == Reply::Acknowledged);
        }
        if reply == Reply::Acknowledged {
            self.weirs[weir].acknowledged_at = self.context.now;
            self.tally.acknowledged += 1;
            self.check_acknowledged(write);
        } else if self.weirs[weir].is_awake() {
            self.weirs[weir].suspect(&mut self.context, node);
        }
    }
}
