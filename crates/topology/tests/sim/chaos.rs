//! What is done to the world: bursts of disturbances with quiet times between.

use weir_topology::{Maintenance, Wish};

use crate::cluster::{Context, Path, WEIRS_MAX};
use crate::node::Process;
use crate::queue::{Event, MS, Time};
use crate::random::Random;
use crate::watch::Watch;
use crate::world::World;

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
    Repair,
    /// With replication: a person makes a server the source of the others.
    Promote(usize),
    /// With replication: a server is not read_only, by mistake.
    Writable(usize),
    /// With replication: how many seconds a replica is behind.
    Lag(usize, u64),
    /// With replication: whether its threads run.
    Replicate(usize, bool),
}

/// The plan.
#[derive(Debug, Default)]
pub(crate) struct Chaos {
    left: u64,
    repairs: bool,
    /// The next burst waits until the world has been quiet for long enough to look at.
    awaits_quiet: bool,
    burst_ended_at: Time,
}

impl Action {
    /// What ends a disturbance, and when, if it does not last.
    pub(crate) fn undo(self, random: &mut Random) -> Option<(Time, Self)> {
        if random.chance(30) {
            return None;
        }
        let soon = random.chance(40);
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

impl Chaos {
    /// What is next: none while the world is left alone, or whether all is repaired. `quiet` is how long it takes to
    /// see that the rules hold, and the chance that they are looked at after a burst.
    pub(crate) fn next(&mut self, context: &mut Context, quiet: (Time, u64)) -> Option<bool> {
        let now = context.now;
        if self.left == 0 {
            let is_quiet = now.saturating_sub(context.disturbed_at) > quiet.0 + 1500 * MS;
            if self.awaits_quiet && !is_quiet && now < self.burst_ended_at + PATIENCE {
                context.after(400 * MS, Event::Chaos);
                return None;
            }
            self.left = context.random.within(1..6);
            self.repairs = context.random.chance(65);
        }
        self.left -= 1;
        Some(self.left == 0 && self.repairs)
    }

    /// Plans the one after that.
    pub(crate) fn go_on(&mut self, context: &mut Context, quiet: (Time, u64)) {
        if self.left == 0 {
            self.burst_ended_at = context.now;
            self.awaits_quiet = context.random.chance(quiet.1);
        }
        let random = &mut context.random;
        let pause = match random.within(0..10) {
            0..3 => random.within(0..5 * MS),
            3..7 => random.within(10 * MS..1000 * MS),
            _ => random.within(1000 * MS..5000 * MS),
        };
        context.after(pause, Event::Chaos);
    }
}

impl World {
    /// The next disturbance, or a look whether the world has been quiet for long enough.
    pub(crate) fn chaos(&mut self) {
        let agrees = self.weirs.iter().any(|weir| weir.settings.policy.epoch.is_some());
        let quiet = (self.bounds.writer, if agrees { 35 } else { 45 });
        let Some(repairs) = self.chaos.next(&mut self.context, quiet) else { return };
        let action = if repairs { Action::Repair } else { self.any_action() };
        self.act(action);
        if let Some((delay, undo)) = action.undo(&mut self.context.random) {
            self.context.after(delay, Event::Act(undo));
        }
        self.chaos.go_on(&mut self.context, quiet);
    }

    fn any_action(&mut self) -> Action {
        let random = &mut self.context.random;
        let node = random.index(self.cluster.nodes.len());
        let other = (node + 1 + random.index(self.cluster.nodes.len() - 1)) % self.cluster.nodes.len();
        let weir = random.index(self.weirs.len());
        // Often the one that matters.
        let node = match self.weirs[weir].writer {
            Some(writer) if random.chance(50) => writer,
            _ => node,
        };
        let other = if other == node { (node + 1) % self.cluster.nodes.len() } else { other };
        if let Some(rule) = self.trial.rule()
            && random.chance(20)
        {
            return rule.provocation(random, weir, node);
        }
        match random.within(0..100) {
            0..16 => Action::Kill(node),
            16..22 => Action::Leave(node),
            22..33 => Action::Hang(node),
            33..38 => Action::Cut(node, other),
            38..45 => Action::Divide(u8::try_from(random.within(1..31)).unwrap_or(1)),
            45..54 => {
                let (there_broken, back_broken) =
                    random.one_of(&[(true, true), (true, false), (false, true)]);
                Action::SetPath(weir, node, Path { there_broken, back_broken, delay: 0 })
            }
            54..58 => {
                let delay = random.within(50 * MS..1500 * MS);
                Action::SetPath(weir, node, Path { delay, ..Path::default() })
            }
            58..62 => Action::ReadOnly(node, true),
            62..65 => Action::Desync(node, true),
            65..67 => Action::Reject(node, true),
            67..70 => Action::Maintain(node, true),
            70..72 => Action::Busy(node, true),
            72..74 => Action::Apply(node, random.within(10 * MS..300 * MS)),
            74..77 => Action::Backlog(node, random.one_of(&[5, 11, 60, 101, 5000])),
            77..79 => Action::Paused(node, random.one_of(&[500, 950, 1000])),
            79..82 => Action::Drain(node, true),
            82..85 => Action::Switch(node),
            85..88 => Action::KillWeir(weir),
            88..92 => Action::StopWeir(weir, random.within(10 * MS..12_000 * MS)),
            92..94 => Action::SetApart(node),
            94..96 => Action::Start(node),
            _ => Action::Repair,
        }
    }

    /// Does it.
    pub(crate) fn act(&mut self, action: Action) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        match action {
            Action::Kill(node) => return cluster.kill(context, node),
            Action::Leave(node) => return cluster.leave(context, node),
            Action::Start(node) => return cluster.start(context, node),
            Action::Hang(node) => return cluster.hang(context, node),
            Action::Resume(node) => return cluster.resume(context, node),
            Action::SetApart(node) => {
                cluster.kill(context, node);
                return context.within(1000 * MS..4000 * MS, Event::Act(Action::StartApart(node)));
            }
            Action::StartApart(node) => return cluster.start_apart(context, node),
            Action::KillWeir(weir) => return self.kill_weir(weir),
            Action::StopWeir(weir, pause) => return self.stop_weir(weir, pause),
            Action::Repair => return self.repair(),
            Action::Switch(node) => return self.switch(node),
            _ => context.disturb(|| format!("{action:?}")),
        }
        match action {
            Action::Cut(one, two) => cluster.set_link(context, one, two, true),
            Action::Mend(one, two) => cluster.set_link(context, one, two, false),
            Action::Divide(set) => {
                let side = |node: usize| set & (1 << node) != 0;
                for one in 0..cluster.nodes.len() {
                    for two in (0..one).filter(|two| side(*two) != side(one)) {
                        cluster.set_link(context, one, two, true);
                    }
                }
            }
            Action::SetPath(weir, node, path) => cluster.paths[weir][node] = path,
            Action::ReadOnly(node, on) => cluster.nodes[node].read_only = on,
            Action::Desync(node, on) => cluster.nodes[node].desync = on,
            Action::Reject(node, on) => cluster.nodes[node].rejects = on,
            Action::Maintain(node, on) => {
                cluster.nodes[node].maintenance = if on { Maintenance::Wanted } else { Maintenance::None };
            }
            Action::Busy(node, on) => cluster.nodes[node].busy = on,
            Action::Apply(node, us) => cluster.nodes[node].apply_us = us,
            Action::Backlog(node, queue) => cluster.nodes[node].backlog = queue,
            Action::Paused(node, permille) => cluster.nodes[node].paused_permille = permille,
            Action::Drain(node, on) => {
                let (wish, now) = (if on { Wish::OfflineSoft } else { Wish::Online }, context.now);
                for weir in &mut self.weirs {
                    weir.wish(node, wish);
                    weir.wished_at = now;
                }
            }
            _ => {}
        }
    }

    /// A planned change of the writer.
    fn switch(&mut self, node: usize) {
        let count = self.weirs.len();
        let chosen = self.context.random.index(count);
        let weir = &mut self.weirs[chosen];
        // By facts alone several Weirs can't agree on it.
        if weir.is_awake() && (count == 1 || weir.settings.policy.epoch.is_some()) {
            let now = self.context.now;
            self.context.disturb(|| format!("weir {chosen} is to make n{node} the writer"));
            weir.switch_to(node, now);
            self.weirs.iter_mut().for_each(|weir| weir.switched_at = now);
            self.decide(chosen);
        }
    }

    /// Somebody mends everything.
    pub(crate) fn repair(&mut self) {
        self.context.disturb(|| "all is repaired".to_owned());
        let count = self.cluster.nodes.len();
        for weir in 0..WEIRS_MAX {
            for node in 0..count {
                self.cluster.paths[weir][node] = Path::default();
            }
        }
        for one in 0..count {
            for two in (0..one).filter(|two| self.cluster.cut[one][*two]).collect::<Vec<_>>() {
                self.cluster.set_link(&mut self.context, one, two, false);
            }
        }
        for node in 0..count {
            let mended = &mut self.cluster.nodes[node];
            (mended.read_only, mended.desync, mended.rejects, mended.busy) = (false, false, false, false);
            (mended.maintenance, mended.apply_us) = (Maintenance::None, 50);
            (mended.backlog, mended.paused_permille) = (0, 0);
            if mended.history != 0 && mended.process != Process::Dead {
                self.cluster.kill(&mut self.context, node);
            }
            self.cluster.resume(&mut self.context, node);
            self.cluster.start(&mut self.context, node);
        }
        for weir in &mut self.weirs {
            for node in 0..count {
                weir.wish(node, Wish::Online);
            }
            weir.wished_at = self.context.now;
        }
        self.context.after(self.cluster.settings.suspect + 3000 * MS, Event::Operator);
    }
}
