//! Disturbs worlds: bursts of faults with quiet times between.

use crate::cluster::{Context, Path};
use crate::queue::{Event, MS, Time};
use crate::random::Random;
use crate::watch::Watch;
use crate::weir::Weir;

/// A quiet time that does not come is not waited for longer than this.
const PATIENCE: Time = 90_000 * MS;

/// Something that is done to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Kill(usize),
    Leave(usize),
    Start(usize),
    Hang(usize),
    Resume(usize),
    Cut(usize, usize),
    Mend(usize, usize),
    /// Nodes of the set and the others hear each other no more.
    Divide(u8),
    SetPath(usize, usize, Path),
    ReadOnly(usize, bool),
    Desync(usize, bool),
    Reject(usize, bool),
    Maintain(usize, bool),
    Busy(usize, bool),
    /// Microseconds to apply a transaction.
    Apply(usize, u64),
    Backlog(usize, u32),
    Paused(usize, u16),
    /// All Weirs.
    Drain(usize, bool),
    Switch(usize),
    KillWeir(usize),
    StopWeir(usize, Time),
    /// Is killed and started again, by mistake as a cluster of its own.
    SetApart(usize),
    StartApart(usize),
    /// A part of the cluster is cut off; a moment later somebody makes it Primary.
    SplitBrain(usize),
    Branch(u8),
    /// All nodes but those of a branch are lost: killed, or cut off from all Weirs.
    LoseOthers(u8, bool),
    /// A node of a branch crashes, and is back as what it was (`pc.recovery`).
    Recover(usize),
    /// A server's name leads to another machine from now on; a Weir hears of it.
    Move(usize),
    Learn(usize, usize),
    Repair,
    /// With replication: a person makes a server the source of the others.
    Promote(usize),
    /// With replication: a server is not read_only, by mistake.
    Writable(usize),
    /// With replication: how many seconds a replica is behind.
    Lag(usize, u64),
    /// With replication: whether its threads run.
    Replicate(usize, bool),
    /// A partition with a Weir and the servers of the set on one side, all others on the other.
    Part(usize, u8),
    /// A partition with a Weir and its writer on one side, and the Weir is stopped for so long, or what decides in it.
    Forget(usize, Time, bool),
    /// A Weir's writer dies, and nothing else happens for so long that it is replaced.
    Lose(usize),
    /// A server dies and is there again at once, not read_only.
    Reopen(usize),
    /// This Weir alone is ordered to make a server the writer.
    Order(usize, usize),
}

/// The plan.
#[derive(Debug, Default)]
pub(crate) struct Chaos {
    left: u64,
    repairs: bool,
    /// The next burst waits until the world has been quiet for long enough to look at.
    awaits_quiet: bool,
    burst_ended_at: Time,
    /// Until then something takes its course, and nothing else happens.
    calm_until: Time,
}

impl Action {
    /// What ends a disturbance, and when, if it does not last.
    pub(crate) fn undo(self, random: &mut Random) -> Option<(Time, Self)> {
        if random.percent(30) {
            return None;
        }
        let soon = random.percent(40);
        let delay = if soon { random.within(5 * MS..700 * MS) } else { random.within(500 * MS..9000 * MS) };
        let undo = match self {
            Action::Kill(node) | Action::Leave(node) => Action::Start(node),
            Action::Hang(node) => Action::Resume(node),
            Action::Cut(one, two) => Action::Mend(one, two),
            Action::SetPath(weir, node, _) => Action::SetPath(weir, node, Path::default()),
            Action::ReadOnly(node, _) => Action::ReadOnly(node, false),
            Action::Desync(node, _) => Action::Desync(node, false),
            Action::Reject(node, _) => Action::Reject(node, false),
            Action::Maintain(node, _) => Action::Maintain(node, false),
            Action::Busy(node, _) => Action::Busy(node, false),
            Action::Backlog(node, _) => Action::Backlog(node, 0),
            Action::Paused(node, _) => Action::Paused(node, 0),
            Action::Drain(node, _) => Action::Drain(node, false),
            Action::Writable(node) => Action::ReadOnly(node, true),
            Action::Lag(node, _) => Action::Lag(node, 0),
            Action::Replicate(node, _) => Action::Replicate(node, true),
            _ => return None,
        };
        Some((delay, undo))
    }
}

impl Context {
    /// What is next: none while the world is left alone, or whether all is repaired. `quiet` is how long it takes to
    /// see that the rules hold, and the chance that they are looked at after a burst; `repairs` the one that all is
    /// repaired at its end.
    pub(crate) fn next_disturbance(&mut self, quiet: (Time, u64), repairs: u64) -> Option<bool> {
        let Chaos { left, awaits_quiet, burst_ended_at, calm_until, .. } = self.chaos;
        if self.now < calm_until {
            self.after(400 * MS, Event::Chaos);
            return None;
        }
        if left == 0 {
            let is_quiet = self.now.saturating_sub(self.disturbed_at) > quiet.0 + 1500 * MS;
            if awaits_quiet && !is_quiet && self.now < burst_ended_at + PATIENCE {
                self.after(400 * MS, Event::Chaos);
                return None;
            }
            self.chaos.left = self.random.within(1..6);
            self.chaos.repairs = self.random.percent(repairs);
        }
        self.chaos.left -= 1;
        Some(self.chaos.left == 0 && self.chaos.repairs)
    }

    /// Plans the one after that.
    pub(crate) fn plan_disturbance(&mut self, quiet: (Time, u64)) {
        if self.chaos.left == 0 {
            self.chaos.burst_ended_at = self.now;
            self.chaos.awaits_quiet = self.random.percent(quiet.1);
        }
        let random = &mut self.random;
        let pause = match random.within(0..10) {
            0..3 => random.within(0..5 * MS),
            3..7 => random.within(10 * MS..1000 * MS),
            _ => random.within(1000 * MS..5000 * MS),
        };
        self.after(pause, Event::Chaos);
    }

    /// Nothing else happens for a time, in which something takes its course.
    pub(crate) fn calm(&mut self, time: Time) {
        self.chaos.calm_until = self.now + time;
    }

    /// Of a server and the writer of a Weir, often the one that matters.
    pub(crate) fn aim(&mut self, node: usize, weir: &Weir) -> usize {
        match weir.writer {
            Some(writer) if self.random.percent(50) => writer,
            _ => node,
        }
    }
}

/// A world to which something is done.
pub(crate) trait Disturbed: Watch {
    /// How long it takes to see that the rules hold once nothing happens any more, and the chance that they are looked
    /// at after a burst of disturbances.
    fn quiet(&self) -> (Time, u64);

    /// The chance that all is repaired at the end of a burst, percent.
    fn repairs(&self) -> u64 {
        65
    }

    /// A disturbance.
    fn any_action(&mut self) -> Action;

    /// Does something to servers or to ways between them.
    fn strike(&mut self, action: Action);

    /// All servers and ways are as they should be.
    fn mend(&mut self);

    /// How long servers that are mended get before a person helps them.
    fn patience(&self) -> Time;

    /// Whether this world has a plan of its own for what happens to it.
    fn is_planned(&mut self) -> bool {
        false
    }

    /// The next disturbance, or a look whether the world has been quiet for long enough.
    fn chaos(&mut self) {
        if self.is_planned() {
            return;
        }
        let quiet = self.quiet();
        let repairs = self.repairs();
        let Some(repairs) = self.context().next_disturbance(quiet, repairs) else { return };
        let action = if repairs { Action::Repair } else { self.any_action() };
        self.act(action);
        let context = self.context();
        if let Some((delay, undo)) = action.undo(&mut context.random) {
            context.after(delay, Event::Act(undo));
        }
        context.plan_disturbance(quiet);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::KillWeir(weir) => self.kill_weir(weir),
            Action::StopWeir(weir, pause) => self.stop_weir(weir, pause),
            Action::Repair => self.repair(),
            action => self.strike(action),
        }
    }

    /// Somebody mends everything.
    fn repair(&mut self) {
        self.context().disturb(|| "all is repaired".to_owned());
        self.mend();
        let (count, patience) = (self.count(), self.patience());
        (0..count).for_each(|node| self.drain(node, false));
        self.context().after(patience, Event::Operator);
    }
}
