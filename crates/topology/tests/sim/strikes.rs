//! Faults of Galera nodes and of the network.

use weir_topology::Maintenance;

use crate::breach::Breach;
use crate::chaos::{Action, Disturbed};
use crate::cluster::{Path, WEIRS_MAX};
use crate::node::Process;
use crate::queue::{Event, MS, Time};
use crate::watch::Watch;
use crate::world::World;

impl Disturbed for World {
    fn quiet(&self) -> (Time, u64) {
        let agrees = self.weirs.iter().any(|weir| weir.settings.policy.epoch.is_some());
        (self.bounds.writer, if agrees { 35 } else { 45 })
    }

    fn any_action(&mut self) -> Action {
        let random = &mut self.context.random;
        let node = random.below(self.cluster.nodes.len());
        let other = (node + 1 + random.below(self.cluster.nodes.len() - 1)) % self.cluster.nodes.len();
        let weir = random.below(self.weirs.len());
        let node = self.context.aim(node, &self.weirs[weir]);
        let random = &mut self.context.random;
        let other = if other == node { (node + 1) % self.cluster.nodes.len() } else { other };
        if let Some(rule) = self.trial.rule()
            && random.percent(20)
        {
            return rule.provocation(random, weir, node);
        }
        if self.has_split_brains && random.percent(12) {
            return Action::SplitBrain(node);
        }
        match random.within(0..100) {
            0..16 => Action::Kill(node),
            16..22 => Action::Leave(node),
            22..33 => Action::Hang(node),
            33..38 => Action::Cut(node, other),
            38..45 => Action::Divide(u8::try_from(random.within(1..31)).unwrap_or(1)),
            45..54 => Action::SetPath(weir, node, Path::any_broken(random)),
            54..58 => Action::SetPath(weir, node, Path::any_slow(random)),
            58..62 => Action::ReadOnly(node, true),
            62..65 => Action::Desync(node, true),
            65..67 => Action::Reject(node, true),
            67..70 => Action::Maintain(node, true),
            70..72 => Action::Busy(node, true),
            72..74 => Action::Apply(node, random.within(10 * MS..300 * MS)),
            74..77 => Action::Backlog(node, random.pick(&[5, 11, 60, 101, 5000])),
            77..79 => Action::Paused(node, random.pick(&[500, 950, 1000])),
            79..82 => Action::Drain(node, true),
            82..85 => Action::Switch(node),
            85..88 => Action::KillWeir(weir),
            88..92 => Action::StopWeir(weir, random.within(10 * MS..12_000 * MS)),
            92..94 => Action::SetApart(node),
            94..96 => Action::Start(node),
            _ => Action::Repair,
        }
    }

    fn strike(&mut self, action: Action) {
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
            Action::Switch(node) => return self.switch(node),
            Action::SplitBrain(node) => return self.split(node),
            Action::Branch(set) => return self.branch(set),
            Action::LoseOthers(set, killed) => return self.lose_others(set, killed),
            Action::Recover(node) => return cluster.recover(context, node),
            _ => context.disturb(|| format!("{action:?}")),
        }
        match action {
            Action::Cut(one, two) => cluster.set_link(context, one, two, true),
            Action::Mend(one, two) => cluster.set_link(context, one, two, false),
            Action::Divide(set) => cluster.divide(context, set),
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
            Action::Drain(node, on) => self.drain(node, on),
            _ => {}
        }
    }

    fn mend(&mut self) {
        if self.trial.rule() == Some(Breach::ReadsFewPeers) {
            // For as long as it takes to miss answers to writes.
            self.context.calm(self.bounds.writer + 10_000 * MS);
        }
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
    }

    fn patience(&self) -> Time {
        self.cluster.settings.suspect + 3000 * MS
    }
}

impl World {
    /// A planned change of the writer.
    fn switch(&mut self, node: usize) {
        let count = self.weirs.len();
        let chosen = self.context.random.below(count);
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
}
