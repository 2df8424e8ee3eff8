//! What is done to servers that Weir follows, and what becomes of writes on them.

use super::{Follow, Model, Taken, provocation};
use crate::chaos::{Action, Disturbed};
use crate::cluster::{Path, Write};
use crate::node::Process;
use crate::queue::{Event, MS, Reply, Time};
use crate::watch::Watch;

impl<M: Model> Disturbed for Follow<M> {
    fn quiet(&self) -> (Time, u64) {
        (self.bounds.writer, 45)
    }

    fn repairs(&self) -> u64 {
        self.servers.repairs()
    }

    fn any_action(&mut self) -> Action {
        let count = self.count();
        let random = &mut self.context.random;
        let node = random.index(count);
        let weir = random.index(self.weirs.len());
        let node = self.context.aim(node, &self.weirs[weir]);
        let random = &mut self.context.random;
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
            Action::SetPath(weir, node, path) => {
                self.paths[weir][node] = path;
                self.servers.set_path(weir, node, path);
            }
            Action::Busy(node, on) => self.servers.host(node).busy = on,
            Action::Drain(node, on) => self.drain(node, on),
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
        self.paths = Default::default();
        for weir in 0..self.weirs.len() {
            (0..self.count()).for_each(|node| self.servers.set_path(weir, node, Path::default()));
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
