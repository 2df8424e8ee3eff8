//! Servers that a Weir asks, and the rules of that moment.

use weir_topology::Link;
use weir_topology::procedure::Source;

use super::AutoFailover;
use super::procedures::{Kind, Work};
use super::remote::{Answer, Failure, Question, Said};
use super::replication::Statement;
use crate::breach::Breach;
use crate::cluster::Context;
use crate::node::{Process, endpoint};
use crate::queue::MS;

impl AutoFailover {
    pub(super) fn execute(
        &mut self,
        context: &mut Context,
        work: Option<&Work>,
        node: usize,
        number: usize,
        question: &Question,
    ) -> Said {
        let now = context.now;
        self.go_on(now);
        let weir = self.sessions.get(&number).map(|session| session.weir);
        let of = weir.and_then(|weir| self.works[weir].as_ref()).or(work);
        // One that is read late is a person's order all the same, where nobody else has a server made writable.
        let in_order = of.is_some_and(|work| work.kind.moves_in_order())
            || !self.replaces && self.ordered.contains(&number);
        let said = match question {
            Question::Lock => Ok(Answer::Is(self.take_lock(node, number, in_order))),
            Question::Sources => Ok(Answer::Sources(self.says_sources(work, node))),
            Question::IsReadOnly => Ok(Answer::Is(self.servers[node].read_only)),
            Question::SetReadOnly(true) => {
                if !self.servers[node].read_only {
                    context.disturb(|| format!("n{node} is made read_only"));
                    self.servers[node].is_closed_by_weir = in_order;
                }
                self.servers[node].read_only = true;
                Ok(Answer::Done)
            }
            Question::SetReadOnly(false) => {
                self.open(context, work, node, in_order);
                Ok(Answer::Done)
            }
            Question::Position => Ok(Answer::Text(self.position(node, self.servers[node].applied))),
            Question::Received => Ok(Answer::Text(self.position(node, self.servers[node].log.len()))),
            Question::Stop => {
                self.servers[node].is_stopped_by_weir = in_order;
                self.tell(node, now, &Statement::Stop)
            }
            Question::Start => self.tell(node, now, &Statement::Start),
            Question::Forget => self.tell(node, now, &Statement::Forget),
            Question::Follow(source) => {
                context.disturbed_at = now;
                if !self.servers[node].read_only {
                    context.fail(|| format!("n{node} takes writes and is told to replicate from n{source}"));
                }
                self.tell(node, now, &Statement::Follow(*source))
            }
            Question::Reconnect => self.tell(node, now, &Statement::Reconnect),
            Question::Entry => Ok(Answer::Row(self.row(node))),
            Question::Enter(entry) => self.write_row(node, Some(entry.clone())),
            Question::StrikeOut if self.row(node).is_none() => Ok(Answer::Done),
            Question::StrikeOut => self.write_row(node, None),
            Question::WaitFor(..) => Ok(Answer::Done),
        };
        self.go_on(now);
        said
    }

    fn take_lock(&mut self, node: usize, number: usize, in_order: bool) -> bool {
        let needs_none = match self.breach() {
            Some(Breach::SwitchoverTakesNoLock) => in_order,
            Some(Breach::FailoverTakesNoLock) => !in_order,
            _ => false,
        };
        if needs_none {
            return true;
        }
        let server = &mut self.servers[node];
        let is_free = server.lock.is_none_or(|holder| holder == number);
        if is_free {
            server.lock = Some(number);
        }
        is_free
    }

    fn says_sources(&self, work: Option<&Work>, node: usize) -> Vec<Source> {
        let mut sources = self.sources(node);
        match work.map(|work| work.kind) {
            Some(Kind::Replace(lost)) if self.breach() == Some(Breach::FailoverLooksOnce) => {
                let of_lost = |source: &&mut Source| source.link.endpoint == Some(endpoint(lost));
                sources.iter_mut().filter(of_lost).for_each(|source| source.link.link = Link::Down);
            }
            _ => {}
        }
        sources
    }

    fn write_row(&mut self, node: usize, row: Option<weir_topology::procedure::Entry>) -> Said {
        if self.servers[node].read_only {
            return Err(Failure::ReadOnly);
        }
        self.rows.push(row);
        let write = super::ROWS + self.rows.len() - 1;
        let server = &mut self.servers[node];
        server.log.push(write);
        server.applied = server.log.len();
        Ok(Answer::Done)
    }

    /// The rules at the moment in which a server is made writable, whoever looks.
    fn open(&mut self, context: &mut Context, work: Option<&Work>, node: usize, in_order: bool) {
        if !self.servers[node].read_only {
            return;
        }
        match work.map(|work| (work.kind, work)) {
            Some((Kind::Replace(lost), work)) => self.check_replace(context, work, lost, node),
            _ if in_order => self.check_order(context, node),
            _ => {}
        }
        context.disturb(|| format!("n{node} is made the writer"));
        let head = self.head;
        self.servers.iter_mut().for_each(|server| server.is_closed_by_weir = false);
        let server = &mut self.servers[node];
        (server.read_only, server.is_weirs_choice) = (false, true);
        if in_order && head != node {
            self.deposed[head] = true;
            self.deposed[node] = false;
            (self.head, self.head_since) = (node, context.now);
        }
        if !in_order {
            // What no replica had received is lost.
            self.kept.clear();
        }
    }

    fn check_order(&self, context: &mut Context, node: usize) {
        let is_writable = |other: &usize| {
            let server = &self.servers[*other];
            *other != node
                && server.host.process != Process::Dead
                && !server.read_only
                && !self.deposed[*other]
        };
        if let Some(other) = (0..self.servers.len()).find(is_writable) {
            return context.fail(|| format!("n{node} is made writable although n{other} is"));
        }
        let server = &self.servers[node];
        let has: std::collections::HashSet<&usize> = server.log[..server.applied].iter().collect();
        if let Some(lost) = self.kept.iter().find(|write| !has.contains(write)) {
            let at = self.commits.get(*lost).copied().flatten().map_or(0, |commit| commit.node);
            context.fail(|| format!("n{node} is made writable and lacks what n{at} has acknowledged"));
        }
    }

    fn check_replace(&self, context: &mut Context, work: &Work, lost: usize, node: usize) {
        let server = &self.servers[lost];
        let count = self.servers.len();
        let lacks = |(_, received): &&(usize, Vec<usize>)| !self.servers[node].log.starts_with(received);
        if let Some((other, _)) = work.received.iter().find(lacks) {
            context.fail(|| format!("n{node} is made the writer and lacks what n{other} has received"));
        }
        let connected = (0..count).filter(|other| {
            let thread = self.servers[*other].thread.as_ref();
            thread.is_some_and(|thread| thread.source == lost && thread.link == Link::Up)
        });
        let backing = u32::try_from(connected.count() + 1).unwrap_or(0);
        if server.host.runs() && !server.read_only && backing >= self.majority() {
            context.fail(|| {
                format!("n{node} is made the writer although n{lost} has {backing} servers behind it")
            });
        }
        let is_next = |other: &usize| {
            let server = &self.servers[*other];
            let writes = server.host.process != Process::Dead && !server.read_only && server.is_weirs_choice;
            *other != lost && *other != node && writes && !self.deposed[*other]
        };
        if let Some(other) = (0..count).find(is_next) {
            context.fail(|| {
                format!("n{node} is made the writer in the place of n{lost} although n{other} has been")
            });
        }
        if server.acknowledged_at > work.since {
            let ago = context.now.saturating_sub(server.acknowledged_at) / MS;
            context.fail(|| {
                format!("n{lost} has acknowledged a write {ago} ms ago, after its place was to be taken")
            });
        }
    }
}
