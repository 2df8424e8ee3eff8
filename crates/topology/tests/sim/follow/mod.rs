//! Worlds in which Weir follows: a group chooses its primary, or people and their tools set `read_only`.
//!
//! What the servers are is a [`Model`]; everything around them is the same for both.

mod breach;
mod check;
mod group;
mod replicas;

use std::collections::VecDeque;

use weir_topology::{Intent, Policy, ProbeError, ServerState, Wish};

use crate::breach::Trial;
use crate::chaos::{Action, Chaos};
use crate::check::Bounds;
use crate::cluster::{Context, Deed, Path, WEIRS_MAX, Write};
use crate::node::{NODES_MAX, Process};
use crate::queue::{Event, MS, Queue, Reply, Time};
use crate::random::Random;
use crate::watch::Watch;
use crate::weir::{self, Settings, Weir};
use crate::world::{Failure, Tally};

pub(crate) use breach::{provocation, roles};
pub(crate) use group::Group;
pub(crate) use replicas::Replicas;

/// Something that happens to a server by a model's own rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) node: usize,
    /// In which life of the server.
    pub(crate) life: u32,
    pub(crate) what: What,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The members look who reaches whom.
    Regroup,
    /// A member takes over a view.
    Install(usize),
    /// It has caught up.
    Recovered,
    /// It may be written to.
    Opens,
    /// It finds out that its group goes on without it.
    Expelled,
    /// It joins its group.
    Joins,
    /// It hears of another primary.
    Told(usize),
    /// A person or a tool looks whether there is a server to write to.
    Manage,
    /// A server becomes the source of the others.
    Promoted,
    /// A server is not to be written to any more.
    Demoted,
}

/// What every server has.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) process: Process,
    /// Counts its starts.
    pub(crate) life: u32,
    /// Answers "too many connections".
    pub(crate) busy: bool,
    /// Writes that have come while it hangs.
    unread: Vec<usize>,
    /// Writes that wait.
    pending: Vec<usize>,
    truth: check::Truth,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            process: Process::Running,
            life: 0,
            busy: false,
            unread: Vec::new(),
            pending: Vec::new(),
            truth: check::Truth::default(),
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.process == Process::Running
    }
}

/// What became of a write on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Committed,
    Refused,
    Waits,
}

/// The servers of a world, and who writes among them.
pub(crate) trait Model: Sized {
    /// Servers as users set them up.
    fn any(random: &mut Random, count: usize) -> Self;
    /// A policy and rows as users write them.
    fn settings(&self, random: &mut Random) -> (Policy, Vec<Intent>);
    fn hosts(&self) -> Vec<&Host>;
    fn host(&mut self, node: usize) -> &mut Host;
    /// What a server that runs says to a probe.
    fn say(&mut self, context: &Context, node: usize) -> ServerState;
    fn take(&mut self, context: &mut Context, node: usize, write: usize) -> Taken;
    /// Its process is gone, in order or not.
    fn died(&mut self, context: &mut Context, node: usize, in_order: bool);
    fn started(&mut self, context: &mut Context, node: usize);
    /// Who hears whom may have changed.
    fn listen(&mut self, context: &mut Context);
    fn turn(&mut self, context: &mut Context, turn: Turn);
    /// A disturbance of its own kind.
    fn any_action(&self, random: &mut Random, node: usize, other: usize) -> Action;
    fn act(&mut self, context: &mut Context, action: Action);
    fn repair(&mut self, context: &mut Context);
    /// A person helps servers that can't help themselves; whether to look again.
    fn operate(&mut self, context: &mut Context) -> bool;
    /// Looks at everything once, for the questions below.
    fn refresh(&mut self) {}
    /// Whether a server takes writes that last.
    fn may_write(&self, node: usize) -> bool;
    /// Whether nothing keeps it from being the writer; it may have work to catch up on first.
    fn is_ready(&self, node: usize) -> bool;
    fn may_read(&self, node: usize) -> bool;
    /// Whether everything that it is told by clients is lost on its own side.
    fn is_apart(&self, _node: usize) -> bool {
        false
    }
    /// Whether everybody can tell which servers belong together.
    fn is_clear(&self) -> bool {
        true
    }
    /// Whether nothing goes up and down by itself.
    fn is_steady(&self) -> bool {
        true
    }
    /// Whether a server is not behind.
    fn is_quick(&self, _node: usize) -> bool {
        true
    }
    /// How long after something happened the servers themselves show it at the latest.
    fn notice(&self) -> Time;
    /// Whether an acknowledged write is still there.
    fn keeps(&self, write: usize) -> bool;
    /// Whether Weirs choose between several servers that could write.
    fn is_chosen_by_weirs(&self) -> bool {
        false
    }
}

/// Everything.
pub(crate) struct Follow<M> {
    context: Context,
    servers: M,
    paths: [[Path; NODES_MAX]; WEIRS_MAX],
    writes: Vec<Write>,
    weirs: Vec<Weir>,
    bounds: Bounds,
    chaos: Chaos,
    trial: Trial,
    tally: Tally,
    /// Since when it is clear which servers belong together.
    clear: check::Since,
    violation: Option<String>,
}

/// Runs the world of a seed for so many steps.
pub(crate) fn run<M: Model>(seed: u64, steps: u64, trial: Trial, traced: bool) -> Result<Tally, Failure> {
    let mut world = Follow::<M>::of_seed(seed, trial, traced);
    world.begin();
    while world.tally.steps < steps {
        let Some((at, event)) = world.context.queue.next() else { break };
        world.tally.steps += 1;
        world.context.now = at;
        if let Some(event) = world.is_heard(event) {
            world.handle(event);
        }
        world.check();
        if let Some(what) = world.violation.take() {
            let trace = world.context.trace.take().unwrap_or_default().into();
            return Err(Failure { seed, step: world.tally.steps, what, trace });
        }
    }
    world.tally.disturbances = world.context.disturbances;
    world.tally.moves = world.weirs.iter().map(|weir| weir.changes).sum();
    Ok(world.tally)
}

impl<M: Model> Watch for Follow<M> {
    fn parts(&mut self) -> (&mut Context, &mut Vec<Weir>) {
        (&mut self.context, &mut self.weirs)
    }

    fn path(&self, weir: usize, node: usize) -> Path {
        self.paths[weir][node]
    }

    fn look(&mut self, node: usize) -> Option<Result<ServerState, ProbeError>> {
        let host = self.servers.host(node);
        match host.process {
            Process::Dead => Some(Err(ProbeError::Unreachable("connection refused".to_owned()))),
            Process::Hung => None,
            Process::Running if host.busy => Some(Err(ProbeError::Busy("Too many connections".to_owned()))),
            Process::Running => Some(Ok(self.servers.say(&self.context, node))),
        }
    }

    fn decide(&mut self, weir: usize) {
        if let Some(moved) = self.weirs[weir].decide(&mut self.context, self.trial.breach()) {
            self.check_move(weir, &moved);
        }
    }
}

impl<M: Model> Follow<M> {
    fn of_seed(seed: u64, trial: Trial, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let nodes = random.one_of(&[2, 3, 3, 3, 4, 5]);
        let weirs = random.one_of(&[1, 1, 2, 3]);
        let servers = M::any(&mut random, nodes);
        let (policy, intents) = servers.settings(&mut random);
        let settings = Settings::with(policy, intents, &mut random);
        let bounds = Bounds::of(&settings, 0).later(servers.notice());
        let weirs = (0..weirs).map(|index| {
            let ppm = i64::try_from(random.within(0..400)).unwrap_or(0) - 200;
            Weir::new(index, settings.clone(), random.within(0..1_000_000), ppm)
        });
        let weirs = weirs.collect();
        let trace = traced.then(VecDeque::new);
        Self {
            context: Context {
                now: 0,
                queue: Queue::default(),
                random,
                disturbed_at: 0,
                disturbances: 0,
                trace,
            },
            servers,
            paths: Default::default(),
            writes: Vec::new(),
            weirs,
            bounds,
            chaos: Chaos::default(),
            trial,
            tally: Tally::default(),
            clear: check::Since::default(),
            violation: None,
        }
    }

    fn begin(&mut self) {
        let settings = self.weirs.first().map(|weir| &weir.settings);
        self.context.note(|| format!("{settings:?}"));
        let nodes = self.count();
        for weir in &mut self.weirs {
            weir.start(&mut self.context, nodes);
        }
        self.context.after(1000 * MS, Event::Chaos);
        self.context.after(1000 * MS, Event::Turn(Turn { node: 0, life: 0, what: What::Manage }));
    }

    fn count(&self) -> usize {
        self.servers.hosts().len()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Chaos => self.chaos(),
            Event::Act(action) => self.act(action),
            Event::Operator => {
                if self.servers.operate(&mut self.context) {
                    self.context.after(3000 * MS, Event::Operator);
                }
                self.settle();
            }
            Event::Turn(turn) => {
                self.servers.turn(&mut self.context, turn);
                self.settle();
            }
            Event::Probe { weir, node, turn, .. } => self.ask(weir, node, turn),
            Event::Asked { weir, life, node, probe, deadline } => {
                self.asked(weir, life, node, probe, deadline);
            }
            Event::Answered { weir, node, probe, result, .. } => self.answered(weir, node, probe, *result),
            Event::Tick { weir, life } => {
                self.context.after(weir::TICK, Event::Tick { weir, life });
                self.decide(weir);
            }
            Event::Client { weir, life } => self.client(weir, life),
            Event::Written { write } => self.written(write),
            Event::Replied { write, reply } => self.replied(write, reply),
            Event::Continue { weir, life } => self.go_on(weir, life),
            Event::Restart { weir } if !self.weirs[weir].runs => {
                let nodes = self.count();
                self.weirs[weir].start(&mut self.context, nodes);
            }
            _ => {}
        }
    }

    // ---- disturbances ----

    fn chaos(&mut self) {
        let quiet = (self.bounds.writer, 45);
        let Some(repairs) = self.chaos.next(&mut self.context, quiet) else { return };
        let action = if repairs { Action::Repair } else { self.any_action() };
        self.act(action);
        if let Some((delay, undo)) = action.undo(&mut self.context.random) {
            self.context.after(delay, Event::Act(undo));
        }
        self.chaos.go_on(&mut self.context, quiet);
    }

    fn any_action(&mut self) -> Action {
        let count = self.count();
        let random = &mut self.context.random;
        let node = random.index(count);
        let weir = random.index(self.weirs.len());
        // Often the one that matters.
        let node = match self.weirs[weir].writer {
            Some(writer) if random.chance(50) => writer,
            _ => node,
        };
        let other = (node + 1 + random.index(count - 1)) % count;
        if let Some(rule) = self.trial.rule()
            && random.chance(20)
        {
            return provocation(rule, random, weir, (node, other));
        }
        match random.within(0..100) {
            0..16 => Action::Kill(node),
            16..22 => Action::Leave(node),
            22..32 => Action::Hang(node),
            32..42 => {
                let broken = [(true, true), (true, false), (false, true)];
                let (there_broken, back_broken) = random.one_of(&broken);
                Action::SetPath(weir, node, Path { there_broken, back_broken, delay: 0 })
            }
            42..46 => {
                let delay = random.within(50 * MS..1500 * MS);
                Action::SetPath(weir, node, Path { delay, ..Path::default() })
            }
            46..49 => Action::Busy(node, true),
            49..52 => Action::Drain(node, true),
            52..55 => Action::KillWeir(weir),
            55..59 => Action::StopWeir(weir, random.within(10 * MS..12_000 * MS)),
            59..62 => Action::Start(node),
            62..64 => Action::Repair,
            _ => self.servers.any_action(random, node, other),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::KillWeir(weir) => return self.kill_weir(weir),
            Action::StopWeir(weir, pause) => return self.stop_weir(weir, pause),
            Action::Repair => return self.repair(),
            _ => self.context.disturb(|| format!("{action:?}")),
        }
        let now = self.context.now;
        match action {
            Action::Kill(node) => self.end(node, false),
            Action::Leave(node) => self.end(node, true),
            Action::Start(node) => self.start(node),
            Action::Hang(node) => self.hang(node, true),
            Action::Resume(node) => self.hang(node, false),
            Action::SetPath(weir, node, path) => self.paths[weir][node] = path,
            Action::Busy(node, on) => self.servers.host(node).busy = on,
            Action::Drain(node, on) => {
                for weir in &mut self.weirs {
                    weir.wish(node, if on { Wish::OfflineSoft } else { Wish::Online });
                    weir.wished_at = now;
                }
            }
            Action::Switch(node) if self.servers.is_chosen_by_weirs() => self.switch(node),
            Action::SetApart(node) => {
                self.end(node, false);
                self.context.within(1000 * MS..4000 * MS, Event::Act(Action::StartApart(node)));
            }
            _ => self.servers.act(&mut self.context, action),
        }
        self.settle();
    }

    /// A planned change of the writer; several Weirs can't agree on it.
    fn switch(&mut self, node: usize) {
        if let [weir] = &mut self.weirs[..]
            && weir.is_awake()
        {
            weir.switch_to(node, self.context.now);
            weir.switched_at = self.context.now;
            self.decide(0);
        }
    }

    fn end(&mut self, node: usize, in_order: bool) {
        let host = self.servers.host(node);
        if host.process == Process::Dead || in_order && !host.runs() {
            return;
        }
        (host.process, host.busy) = (Process::Dead, false);
        host.life += 1;
        let lost: Vec<usize> = host.pending.drain(..).chain(host.unread.drain(..)).collect();
        for write in lost {
            self.reply(write, Reply::Broken);
        }
        self.servers.died(&mut self.context, node, in_order);
        self.servers.listen(&mut self.context);
    }

    fn start(&mut self, node: usize) {
        let host = self.servers.host(node);
        if host.process == Process::Dead {
            host.process = Process::Running;
            self.servers.started(&mut self.context, node);
            self.servers.listen(&mut self.context);
        }
    }

    /// SIGSTOP, or SIGCONT.
    fn hang(&mut self, node: usize, stops: bool) {
        let host = self.servers.host(node);
        let (from, to) = match stops {
            true => (Process::Running, Process::Hung),
            false => (Process::Hung, Process::Running),
        };
        if host.process != from {
            return;
        }
        host.process = to;
        let unread = std::mem::take(&mut host.unread);
        self.servers.listen(&mut self.context);
        unread.into_iter().for_each(|write| self.written(write));
    }

    /// Somebody mends everything.
    fn repair(&mut self) {
        self.context.disturb(|| "all is repaired".to_owned());
        self.paths = Default::default();
        self.servers.repair(&mut self.context);
        for node in 0..self.count() {
            self.servers.host(node).busy = false;
            if self.servers.is_apart(node) {
                self.end(node, false);
            }
            self.hang(node, false);
            self.start(node);
            self.weirs.iter_mut().for_each(|weir| weir.wish(node, Wish::Online));
        }
        let now = self.context.now;
        self.weirs.iter_mut().for_each(|weir| weir.wished_at = now);
        self.context.after(3000 * MS, Event::Operator);
        self.settle();
    }

    // ---- clients ----

    fn client(&mut self, weir: usize, life: u32) {
        let pause = self.weirs[weir].settings.client_pause;
        self.context.within(pause / 2..pause * 3 / 2, Event::Client { weir, life });
        let Some(node) = self.weirs[weir].writer else { return };
        let write = self.writes.len();
        self.writes.push(Write {
            weir,
            weir_life: life,
            node,
            node_life: self.servers.host(node).life,
            committed: None,
            sent_at: self.context.now,
            deed: Deed::Client,
        });
        if !self.paths[weir][node].there_broken {
            self.context.within(100..1500, Event::Written { write });
        }
    }

    /// A write has come to its server.
    fn written(&mut self, write: usize) {
        let Write { node, node_life, .. } = self.writes[write];
        let host = self.servers.host(node);
        match host.process {
            Process::Hung => return host.unread.push(write),
            Process::Running if host.life == node_life => {}
            _ => return self.reply(write, Reply::Broken),
        }
        self.take(node, write);
    }

    fn take(&mut self, node: usize, write: usize) {
        match self.servers.take(&mut self.context, node, write) {
            Taken::Committed => self.reply(write, Reply::Acknowledged),
            Taken::Refused => self.reply(write, Reply::Refused),
            Taken::Waits => self.servers.host(node).pending.push(write),
        }
    }

    /// What waits may go on now, or never.
    fn settle(&mut self) {
        for node in 0..self.count() {
            let host = self.servers.host(node);
            if host.runs() && !host.pending.is_empty() {
                let pending = std::mem::take(&mut host.pending);
                pending.into_iter().for_each(|write| self.take(node, write));
            }
        }
    }

    fn reply(&mut self, write: usize, reply: Reply) {
        self.context.within(200..2 * MS, Event::Replied { write, reply });
    }

    fn replied(&mut self, write: usize, reply: Reply) {
        let Write { weir, weir_life, node, .. } = self.writes[write];
        if self.weirs[weir].life != weir_life || self.paths[weir][node].back_broken {
            return;
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
