//! The parts that all worlds share, whatever their servers are: the run, and what happens around the servers.

use crate::breach::Trial;
use crate::chaos::Disturbed;
use crate::check::Checked;
use crate::cluster::{Payload, Write};
use crate::follow::{AutoFailover, Follow, Group, Replicas};
use crate::queue::{Event, MS, Reply};
use crate::weir;
use crate::world::World;

/// Galera worlds from this one on have several writers, or one that takes its role back.
pub(crate) const CHOOSING: u64 = 1_000_000;
/// Worlds from this one on have a group, from that one on replication, and then replication with `auto_failover`.
pub(crate) const GROUPS: u64 = 2_000_000;
pub(crate) const REPLICAS: u64 = 3_000_000;
pub(crate) const FAILOVERS: u64 = 4_000_000;
/// The same with switchovers that people order, in half of them without `auto_failover`.
pub(crate) const SWITCHOVERS: u64 = 5_000_000;

/// Galera worlds from this one on have components that all call themselves Primary.
pub(crate) const COMPONENTS: u64 = 6_000_000;

/// And from this one on the others are lost when both have gone on for a while.
pub(crate) const LOST_PARTS: u64 = 6_500_000;

/// Worlds from this one on have replication with names of servers that move.
pub(crate) const NAMES: u64 = 7_000_000;

/// Whether a world has rows of a hundred Weirs that are gone.
pub(crate) fn has_ghosts(seed: u64) -> bool {
    seed < CHOOSING && seed % 8 == 7
}

/// Whether somebody makes parts of a Galera cluster Primary while the others go on.
pub(crate) fn has_split_brains(seed: u64) -> bool {
    (COMPONENTS..NAMES).contains(&seed)
}

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
    /// Planned ones that have struck.
    pub(crate) faults: u64,
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
            faults: self.faults + other.faults,
        }
    }
}

/// Runs the world of a seed for so many steps.
pub(crate) fn run(seed: u64, steps: u64, trial: Trial, traced: bool) -> Result<Tally, Failure> {
    match seed {
        NAMES.. => Follow::<Replicas>::run(seed, steps, trial, traced),
        COMPONENTS.. => World::run(seed, steps, trial, traced),
        FAILOVERS.. => Follow::<AutoFailover>::run(seed, steps, trial, traced),
        REPLICAS.. => Follow::<Replicas>::run(seed, steps, trial, traced),
        GROUPS.. => Follow::<Group>::run(seed, steps, trial, traced),
        _ => World::run(seed, steps, trial, traced),
    }
}

/// A world of one kind.
pub(crate) trait Stage: Disturbed + Checked + Sized {
    fn of_seed(seed: u64, trial: Trial, traced: bool) -> Self;

    /// Whether all that was planned has happened, and been looked at.
    fn is_over(&self) -> bool {
        false
    }

    /// What servers do by themselves from the beginning.
    fn begin_servers(&mut self) {}

    /// An event of the servers' own.
    fn happen(&mut self, event: Event);

    /// Where a Weir sends a client's write now.
    fn target(&self, weir: usize) -> Option<usize>;

    /// Which life of a server it is.
    fn life(&self, node: usize) -> u32;

    /// Takes a write down that is sent; its number.
    fn note_write(&mut self, write: Write) -> usize;

    fn write(&self, write: usize) -> &Write;

    /// The answer to a write has come to its Weir. False if no client waits for it.
    fn is_clients(&mut self, _write: usize, _reply: Reply) -> bool {
        true
    }

    /// Runs the world of a seed for so many steps.
    fn run(seed: u64, steps: u64, trial: Trial, traced: bool) -> Result<Tally, Failure> {
        let mut world = Self::of_seed(seed, trial, traced);
        world.begin();
        while world.context().tally.steps < steps && !world.is_over() && world.step() {
            let context = world.context();
            if let Some(what) = context.violation.take() {
                let trace = context.trace.take().unwrap_or_default().into();
                return Err(Failure { seed, step: context.tally.steps, what, trace });
            }
        }
        let (context, weirs) = world.parts();
        context.tally.moves = weirs.iter().map(|weir| weir.changes).sum();
        Ok(context.tally)
    }

    fn begin(&mut self) {
        let count = self.count();
        let (context, weirs) = self.parts();
        let settings = weirs.first().map(|weir| &weir.settings);
        context.note(|| format!("{count} servers, {settings:?}"));
        for weir in weirs {
            weir.start(context, count);
        }
        context.after(1000 * MS, Event::Chaos);
        self.begin_servers();
    }

    /// The next event; false if there is none.
    fn step(&mut self) -> bool {
        let context = self.context();
        let Some((at, event)) = context.queue.next() else { return false };
        context.tally.steps += 1;
        context.now = at;
        if let Some(event) = self.is_heard(event) {
            self.handle(event);
        }
        self.check();
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Chaos => self.chaos(),
            Event::Act(action) => self.act(action),
            Event::Probe { weir, node, turn, .. } => self.ask(weir, node, turn),
            Event::Asked { weir, life, node, probe, deadline } => {
                self.asked(weir, life, node, probe, deadline);
            }
            Event::Answered { weir, node, probe, result, .. } => self.answered(weir, node, probe, *result),
            Event::Tick { weir, life } => {
                self.context().after(weir::TICK, Event::Tick { weir, life });
                self.decide(weir);
            }
            Event::Client { weir, life } => self.client(weir, life),
            Event::Replied { write, reply } => self.replied(write, reply),
            Event::Continue { weir, life } => self.go_on(weir, life),
            Event::Restart { weir } => {
                let count = self.count();
                let (context, weirs) = self.parts();
                if !weirs[weir].runs {
                    weirs[weir].start(context, count);
                }
            }
            event => self.happen(event),
        }
    }

    fn client(&mut self, weir: usize, life: u32) {
        let (context, weirs) = self.parts();
        let (now, pause) = (context.now, weirs[weir].settings.client_pause);
        context.within(pause / 2..pause * 3 / 2, Event::Client { weir, life });
        let Some(node) = self.target(weir) else { return };
        let node_life = self.life(node);
        let write = Write {
            weir,
            weir_life: life,
            node,
            node_life,
            committed: None,
            sent_at: now,
            payload: Payload::Client,
        };
        let write = self.note_write(write);
        if !self.path(weir, node).there_broken {
            self.context().within(100..1500, Event::Written { write });
        }
    }

    fn replied(&mut self, write: usize, reply: Reply) {
        let Write { weir, weir_life, node, .. } = *self.write(write);
        let path = self.path(weir, node);
        let (_, weirs) = self.parts();
        if weirs[weir].life != weir_life || path.back_broken || !self.is_clients(write, reply) {
            return;
        }
        let (context, weirs) = self.parts();
        if reply == Reply::Acknowledged {
            weirs[weir].acknowledged_at = context.now;
            context.tally.acknowledged += 1;
            self.check_acknowledged(write);
        } else if weirs[weir].is_awake() {
            weirs[weir].suspect(context, node);
        }
    }
}
