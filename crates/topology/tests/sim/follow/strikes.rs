//! Faults of servers that Weir follows, and what becomes of writes on them.

use super::{Follow, Model, Taken, provocation};
use crate::breach::Trial;
use crate::chaos::{Action, Disturbed};
use crate::cluster::{Path, Write};
use crate::fault::{self, Moved};
use crate::node::Process;
use crate::queue::{Event, MS, Reply, Time};
use crate::watch::Watch;

/// How long a partition lasts in which it is to be seen what Weirs make of it.
const PARTED: Time = 25_000 * MS;

impl<M: Model> Disturbed for Follow<M> {
    /// The move, and that all is mended in the end; what goes wrong is up to the servers.
    fn is_planned(&mut self) -> bool {
        let Trial::Fault(fault) = self.trial else { return false };
        let at = |moment: Time| moment - self.context.now;
        let (moved, mended) = (at(fault::MOVED_AT), at(fault::MENDED_AT));
        let orders: &[Action] = match fault.moved {
            Moved::InOrder => &[Action::Order(0, 1)],
            Moved::InOrderTwice => &[Action::Order(0, 1), Action::Order(1, 2)],
            Moved::Lost => &[Action::Kill(0)],
        };
        orders.iter().for_each(|order| self.context.after(moved, Event::Act(*order)));
        self.context.after(mended, Event::Act(Action::Repair));
        true
    }

    fn quiet(&self) -> (Time, u64) {
        (self.bounds.writer, 45)
    }

    fn repairs(&self) -> u64 {
        self.servers.repairs()
    }

    fn any_action(&mut self) -> Action {
        let count = self.count();
        let random = &mut self.context.random;
        let node = random.below(count);
        let weir = random.below(self.weirs.len());
        let node = self.context.aim(node, &self.weirs[weir]);
        let random = &mut self.context.random;
        let other = (node + 1 + random.below(count - 1)) % count;
        if let Some(rule) = self.trial.rule()
            && random.percent(rule.weight())
        {
            return provocation(rule, random, weir, (node, other));
        }
        match random.within(0..100) {
            0..16 => Action::Kill(node),
            16..22 => Action::Leave(node),
            22..32 => Action::Hang(node),
            32..42 => Action::SetPath(weir, node, Path::any_broken(random)),
            42..46 => Action::SetPath(weir, node, Path::any_slow(random)),
            46..49 => Action::Busy(node, true),
            49..52 => Action::Drain(node, true),
            52..55 => Action::KillWeir(weir),
            55..59 => Action::StopWeir(weir, random.within(10 * MS..12_000 * MS)),
            59..62 => Action::Start(node),
            62..64 => Action::Repair,
            _ => self.servers.any_action(random, node, other),
        }
    }

    fn strike(&mut self, action: Action) {
        self.context.disturb(|| format!("{action:?}"));
        match action {
            Action::Kill(node) => self.end(node, false),
            Action::Leave(node) => self.end(node, true),
            Action::Start(node) => self.start(node),
            Action::Hang(node) => self.hang(node, true),
            Action::Resume(node) => self.hang(node, false),
            Action::SetPath(weir, node, path) => self.set_path(weir, node, path),
            Action::Part(weir, set) => {
                let time = self.context.random.pick(&[2000 * MS, 10_000 * MS, PARTED]);
                let time = if self.trial == Trial::Plain { time } else { PARTED };
                self.part(weir % self.weirs.len(), set, time);
            }
            Action::Forget(weir, time, is_stalled) => {
                let weir = weir % self.weirs.len();
                let Some(node) = self.weirs[weir].writer else { return };
                self.part(weir, 1 << node, time + 3000 * MS);
                match is_stalled {
                    true => self.stall_weir(weir, time),
                    false => self.stop_weir(weir, time),
                }
            }
            Action::Lose(weir) => {
                let Some(node) = self.weirs[weir].writer else { return };
                self.context.calm(PARTED);
                self.end(node, false);
            }
            Action::Reopen(node) => {
                self.end(node, false);
                self.start(node);
                self.servers.act(&mut self.context, Action::Writable(node));
            }
            Action::Busy(node, on) => self.servers.host(node).busy = on,
            Action::Drain(node, on) => self.drain(node, on),
            Action::Move(node) => self.move_name(node),
            Action::Learn(weir, node) => self.learn_name(weir, node),
            Action::Switch(node) if self.servers.is_chosen_by_weirs() => self.switch(node),
            Action::SetApart(node) => {
                self.end(node, false);
                self.context.within(1000 * MS..4000 * MS, Event::Act(Action::StartApart(node)));
            }
            _ => self.servers.act(&mut self.context, action),
        }
        self.settle();
    }

    fn mend(&mut self) {
        if let Trial::Fault(_) = self.trial {
            // What counts is what has become of everything by the end.
            self.context.tally.quiet_checks = 0;
        }
        for weir in 0..self.weirs.len() {
            (0..self.count()).for_each(|node| self.set_path(weir, node, Path::default()));
        }
        self.servers.repair(&mut self.context);
        for node in 0..self.count() {
            self.servers.host(node).busy = false;
            if self.servers.is_apart(node) {
                self.end(node, false);
            }
            self.hang(node, false);
            self.start(node);
        }
        self.settle();
    }

    fn patience(&self) -> Time {
        3000 * MS
    }
}

impl<M: Model> Follow<M> {
    pub(super) fn set_path(&mut self, weir: usize, node: usize, path: Path) {
        self.paths[weir][node] = path;
        let path = self.path(weir, node);
        self.servers.set_path(weir, node, path);
    }

    /// For a time a Weir and the servers of the set hear nobody else, and nobody else hears them.
    fn part(&mut self, weir: usize, set: u8, time: Time) {
        let broken = Path { there_broken: true, back_broken: true, delay: 0 };
        for other in 0..self.weirs.len() {
            let away = |node: &usize| (set & (1 << node) != 0) != (other == weir);
            (0..self.count()).filter(away).for_each(|node| self.set_path(other, node, broken));
        }
        self.servers.act(&mut self.context, Action::Divide(set));
        if self.trial != Trial::Plain {
            self.context.calm(time + 3000 * MS);
        }
        self.context.after(time, Event::Act(Action::Repair));
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

    pub(super) fn end(&mut self, node: usize, in_order: bool) {
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

    pub(super) fn start(&mut self, node: usize) {
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

    /// A write has come to its server.
    pub(super) fn written(&mut self, write: usize) {
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
    pub(super) fn settle(&mut self) {
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
}
