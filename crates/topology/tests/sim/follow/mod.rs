//! Worlds in which Weir follows: a group chooses its primary, or people and their tools set `read_only`.
//!
//! What the servers are is a [`Model`]; everything around them is the same for both.

mod auto_failover;
mod breach;
mod check;
mod group;
mod names;
mod replicas;
mod strikes;

use weir_topology::{Intent, Policy, ProbeError, ServerState};

use crate::breach::Trial;
use crate::chaos::Action;
use crate::check::Bounds;
use crate::cluster::{Context, Path, WEIRS_MAX, Write};
use crate::fault;
use crate::node::{NODES_MAX, Process};
use crate::queue::{Event, MS, Reply, Time};
use crate::random::Random;
use crate::stage::Stage;
use crate::watch::Watch;
use crate::weir::{Settings, Weir};

pub(crate) use auto_failover::AutoFailover;
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
    fn any(random: &mut Random, count: usize, seed: u64) -> Self;
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
    /// Another machine, which has not been started yet, is in its place.
    fn renew(&mut self, _context: &mut Context, _node: usize) {}
    /// Who hears whom may have changed.
    fn listen(&mut self, context: &mut Context);
    fn turn(&mut self, context: &mut Context, turn: Turn);
    /// A disturbance of its own kind.
    fn any_action(&self, random: &mut Random, node: usize, other: usize) -> Action;
    fn act(&mut self, context: &mut Context, action: Action);
    fn repair(&mut self, context: &mut Context);
    /// The chance that all is repaired after some disturbances, percent.
    fn repairs(&self) -> u64 {
        65
    }
    /// A person helps servers that can't help themselves; whether to look again.
    fn operate(&mut self, context: &mut Context) -> bool;
    /// Looks at everything once, for the questions below.
    fn look(&mut self, _now: Time) {}
    /// Whether a server takes writes that last.
    fn may_write(&self, node: usize) -> bool;
    /// Whether nothing keeps it from being the writer; it may have work to catch up on first.
    fn is_ready(&self, node: usize) -> bool;
    fn may_read(&self, node: usize) -> bool;
    /// Whether everything that it is told by clients is lost on its own side.
    fn is_apart(&self, _node: usize) -> bool {
        false
    }
    /// Whether a server is left of what others are apart from.
    fn is_left(&self, _node: usize) -> bool {
        true
    }
    /// Whether nobody can tell if a server takes part.
    fn is_doubtful(&self, _node: usize) -> bool {
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
    /// Whether a Weir keeps a server that could write from it, for good reasons.
    fn is_passed_over(&self, _weir: &Weir, _reached: u8, _node: usize) -> bool {
        false
    }
    /// Whether an acknowledged write is still there.
    fn keeps(&self, write: usize) -> bool;
    /// Whether Weirs choose between several servers that could write.
    fn is_chosen_by_weirs(&self) -> bool {
        false
    }
    /// Whether what a server can do shows by a look at it alone, and not by what others say of it.
    fn stands_alone(&self) -> bool {
        true
    }
    /// Whether a Weir that reaches these servers, bit n: server n, can know what a server is.
    fn is_known(&self, _node: usize, _reached: u8) -> bool {
        true
    }
    /// For how long after its last decision a Weir sends writes, milliseconds of its own clock.
    fn lease_ms(&self) -> u64 {
        u64::MAX
    }
    /// Whether who waits at a server that is not the writer any more has been told that nobody knows.
    fn ends_waiting(&self) -> bool {
        false
    }
    /// A client has got its answer.
    fn acknowledged(&mut self, _context: &mut Context, _weir: usize, _write: usize) {}
    /// The way between a Weir and a server has changed.
    fn set_path(&mut self, _weir: usize, _node: usize, _path: Path) {}
    /// What is tried in this world.
    fn tries(&mut self, _trial: Trial) {}
    /// A Weir has decided.
    fn decided(&mut self, _context: &mut Context, _weir: &Weir) {}
    /// The next step of a Weir's procedure is due; the lives of all Weirs whose process is there.
    fn next_step(&mut self, _context: &mut Context, _weir: usize, _lives: [Option<u32>; WEIRS_MAX]) {}
    /// Whether a Weir has its clients wait.
    fn holds(&self, _weir: usize) -> bool {
        false
    }
    /// What a Weir that has gone has left half made, and this one should have finished or undone.
    fn unsettled(&self, _weir: usize) -> Option<String> {
        None
    }
    /// The lost writer that a Weir which reaches these servers should have replaced long ago.
    fn overdue(&self, _weir: &Weir, _reached: u8) -> Option<usize> {
        None
    }
}

/// Everything.
pub(crate) struct Follow<M> {
    context: Context,
    servers: M,
    paths: [[Path; NODES_MAX]; WEIRS_MAX],
    /// A server's name has moved, and the Weir still looks where it was.
    is_unaware: [[bool; NODES_MAX]; WEIRS_MAX],
    writes: Vec<Write>,
    weirs: Vec<Weir>,
    bounds: Bounds,
    trial: Trial,
    /// Since when it is clear which servers belong together.
    clear: check::Since,
}

impl<M: Model> Watch for Follow<M> {
    fn parts(&mut self) -> (&mut Context, &mut Vec<Weir>) {
        (&mut self.context, &mut self.weirs)
    }

    fn count(&self) -> usize {
        self.servers.hosts().len()
    }

    fn path(&self, weir: usize, node: usize) -> Path {
        if self.is_unaware[weir][node] { names::NOBODY } else { self.paths[weir][node] }
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
        self.check_names(weir);
        self.servers.decided(&mut self.context, &self.weirs[weir]);
    }
}

impl<M: Model> Stage for Follow<M> {
    fn of_seed(seed: u64, trial: Trial, traced: bool) -> Self {
        let mut random = crate::random::random(seed);
        let nodes = random.pick(&[2, 3, 3, 3, 4, 5]);
        let weirs = random.pick(&[1, 1, 2, 3]);
        let (nodes, weirs) = trial.size().unwrap_or((nodes, weirs));
        let mut servers = M::any(&mut random, nodes, seed);
        servers.tries(trial);
        let (policy, intents) = servers.settings(&mut random);
        let settings = Settings::with(policy, intents, &mut random);
        let bounds = Bounds::of(&settings, 0).later(servers.notice() + settings.failover_after());
        let weirs = Weir::several(weirs, &settings, &mut random);
        Self {
            context: Context::new(random, traced),
            servers,
            paths: Default::default(),
            is_unaware: Default::default(),
            writes: Vec::new(),
            weirs,
            bounds,
            trial,
            clear: check::Since::default(),
        }
    }

    fn is_over(&self) -> bool {
        let Context { now, tally, .. } = &self.context;
        let is_seen = *now > fault::MENDED_AT && tally.quiet_checks >= fault::LOOKS;
        matches!(self.trial, Trial::Fault(_)) && (is_seen || *now > fault::ENDED_AT)
    }

    fn begin_servers(&mut self) {
        self.context.after(1000 * MS, Event::Turn(Turn { node: 0, life: 0, what: What::Manage }));
    }

    fn happen(&mut self, event: Event) {
        match event {
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
            Event::Written { write } => self.written(write),
            Event::NextStep { weir, .. } => {
                self.servers.next_step(&mut self.context, weir, auto_failover::lives(&self.weirs));
                self.settle();
            }
            _ => {}
        }
    }

    fn target(&self, weir: usize) -> Option<usize> {
        let asker = &self.weirs[weir];
        let age_ms = asker.clock(self.context.now).since(asker.decided_at);
        asker.writer.filter(|_| age_ms <= self.servers.lease_ms() && !self.servers.holds(weir))
    }

    fn is_clients(&mut self, write: usize, _: Reply) -> bool {
        let Write { weir, node, .. } = self.writes[write];
        let asker = &self.weirs[weir];
        !self.servers.ends_waiting() || asker.writer == Some(node)
    }

    fn life(&self, node: usize) -> u32 {
        self.servers.hosts()[node].life
    }

    fn note_write(&mut self, write: Write) -> usize {
        self.writes.push(write);
        self.writes.len() - 1
    }

    fn write(&self, write: usize) -> &Write {
        &self.writes[write]
    }
}
