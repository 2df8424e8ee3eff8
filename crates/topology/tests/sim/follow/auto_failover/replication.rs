//! Models how servers get their data from each other, and whose it is.

use weir_topology::procedure::Source;
use weir_topology::{Link, SourceLink};

use super::AutoFailover;
use super::remote::{Answer, Said};
use crate::node::{Process, endpoint, uuid_of};
use crate::queue::{MS, Time};

/// The pause between two fetches of a replica.
const FETCH: std::ops::Range<Time> = MS..40 * MS;

/// How a server gets what another has.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) source: usize,
    /// It was connected, and knows the source by its name.
    pub(super) is_known: bool,
    pub(super) started: bool,
    pub(super) link: Link,
    /// Since when a connected source says nothing.
    pub(super) silent_since: Option<Time>,
    /// In which life of the source it is connected.
    pub(super) source_life: u32,
    /// When it next tries to connect, or to fetch.
    pub(super) next_at: Time,
}

impl Thread {
    pub(super) fn to(source: usize, now: Time) -> Self {
        Self {
            source,
            is_known: false,
            started: true,
            link: Link::Trying,
            silent_since: None,
            source_life: 0,
            next_at: now + 2 * MS,
        }
    }
}

/// Through whom a server gets its data in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// One that is written to.
    Writable(usize),
    /// This one, which is read_only and replicates from nobody.
    Nobody(usize),
    Unknown,
}

/// What a person or a procedure tells a server about replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Stop,
    Start,
    /// CHANGE REPLICATION SOURCE, and START.
    Follow(usize),
    Forget,
    Reconnect,
}

impl AutoFailover {
    pub(super) fn sources(&self, node: usize) -> Vec<Source> {
        let source = |thread: &Thread| {
            let id = if thread.is_known { uuid_of(thread.source) } else { String::new() };
            Source {
                id: id.clone(),
                is_fit: thread.started && thread.link == Link::Up,
                has_positions: true,
                applies: thread.started,
                received: String::new(),
                link: SourceLink { id, endpoint: Some(endpoint(thread.source)), link: thread.link },
                is_tls: false,
                error: format!("{:?}", thread.link),
            }
        };
        self.servers[node].thread.iter().map(source).collect()
    }

    /// What a server does about its replication.
    pub(super) fn tell(&mut self, node: usize, now: Time, statement: &Statement) -> Said {
        let server = &mut self.servers[node];
        if !matches!(statement, Statement::Stop | Statement::Reconnect) {
            server.is_stopped_by_weir = false;
        }
        match (statement, &mut server.thread) {
            // Both families keep the error of the last attempt: one that had met with nobody still says so.
            (Statement::Stop, Some(thread)) if thread.link == Link::Down => thread.started = false,
            (Statement::Stop, Some(thread)) => (thread.started, thread.link) = (false, Link::Idle),
            (Statement::Start, Some(thread)) if !thread.started => {
                *thread = Thread { is_known: thread.is_known, ..Thread::to(thread.source, now) };
            }
            (Statement::Follow(source), thread) => {
                *thread = Some(Thread::to(*source, now));
                server.log.truncate(server.applied);
                server.is_closed_by_weir = false;
            }
            (Statement::Forget, thread) => *thread = None,
            (Statement::Reconnect, Some(thread)) => thread.next_at = now,
            _ => {}
        }
        Ok(Answer::Done)
    }

    pub(super) fn writes(&self, node: usize) -> bool {
        self.servers[node].host.runs() && !self.servers[node].read_only
    }

    pub(super) fn hears(&self, one: usize, two: usize) -> bool {
        let runs = |node: usize| self.servers[node].host.runs();
        runs(one) && runs(two) && !self.cut[one][two]
    }

    pub(super) fn set_link(&mut self, one: usize, two: usize, cut: bool) {
        self.cut[one][two] = cut;
        self.cut[two][one] = cut;
    }

    /// Whether all that a server has is at the beginning of what another has.
    pub(super) fn precedes(&self, node: usize, other: usize) -> bool {
        self.servers[other].log.starts_with(&self.servers[node].log)
    }

    pub(super) fn origin(&self, node: usize) -> Origin {
        self.origin_seen(node, u8::MAX)
    }

    /// The same for who sees these servers alone.
    pub(super) fn origin_seen(&self, mut node: usize, seen: u8) -> Origin {
        for _ in 0..self.servers.len() {
            let server = &self.servers[node];
            if !server.host.runs() || seen & (1 << node) == 0 {
                return Origin::Unknown;
            }
            match &server.thread {
                _ if !server.read_only => return Origin::Writable(node),
                None => return Origin::Nobody(node),
                Some(thread) if matches!(thread.link, Link::Up | Link::Idle) => node = thread.source,
                Some(_) => return Origin::Unknown,
            }
        }
        Origin::Unknown
    }

    /// The servers that get their data from one, and where it has no rival and was not replaced those that get it from whom
    /// it inherits from; bit n: server n.
    pub(super) fn backing(&self, node: usize) -> u8 {
        self.backing_seen(node, u8::MAX)
    }

    pub(super) fn backing_seen(&self, node: usize, seen: u8) -> u8 {
        let count = self.servers.len();
        let has_rival = self.deposed[node] || (0..count).any(|other| other != node && self.writes(other));
        let backs = |other: &usize| match self.origin_seen(*other, seen) {
            Origin::Writable(origin) => origin == node,
            Origin::Nobody(root) => !has_rival && self.is_heir(node, root),
            Origin::Unknown => false,
        };
        (0..count).filter(backs).fold(0, |set, other| set | 1 << other)
    }

    /// Whether a server may take the place of one without a source, or has.
    fn is_heir(&self, node: usize, root: usize) -> bool {
        let thread = self.servers[node].thread.as_ref().filter(|thread| thread.link == Link::Up);
        let replicates = thread.is_some_and(|thread| thread.source == root);
        replicates || root == self.head || node == self.head && self.deposed[root]
    }

    /// Replication as far as it has come by now.
    pub(super) fn go_on(&mut self, now: Time) {
        self.now = now;
        self.end_sessions(now);
        for node in 0..self.servers.len() {
            if self.servers[node].host.runs() {
                self.receive(now, node);
                self.apply(now, node);
            }
        }
        let heads = (0..self.servers.len()).find(|node| {
            *node != self.head
                && self.replaces
                && self.writes(*node)
                && self.backing(*node).count_ones() >= self.majority()
        });
        if let Some(head) = heads {
            self.deposed[self.head] = true;
            self.deposed[head] = false;
            (self.head, self.head_since) = (head, now);
        }
        for node in 0..self.servers.len() {
            self.deposed[node] &= self.origin(node) != Origin::Writable(self.head);
        }
    }

    pub(super) fn receive(&mut self, now: Time, node: usize) {
        let Some(mut thread) = self.servers[node].thread.clone() else { return };
        let source = thread.source;
        let hears = self.hears(node, source);
        let (life, is_dead) =
            (self.servers[source].host.life, self.servers[source].host.process == Process::Dead);
        if !thread.started {
            return;
        }
        if thread.link == Link::Up
            && (is_dead && !self.cut[node][source] || hears && life != thread.source_life)
        {
            (thread.link, thread.next_at) = (Link::Down, now + self.retry);
        } else if thread.link == Link::Up && hears {
            thread.silent_since = None;
            if now >= thread.next_at {
                thread.next_at = now + self.random.within(FETCH);
                let (own, applied) = (self.servers[node].log.len(), self.servers[source].applied);
                let news = self.servers[source].log.get(own..applied).unwrap_or_default().to_vec();
                self.servers[node].log.extend(news);
            }
        } else if thread.link == Link::Up {
            let since = *thread.silent_since.get_or_insert(now);
            if now >= since + self.net_timeout {
                (thread.link, thread.next_at) = (Link::Down, now + self.retry);
            }
        } else if now >= thread.next_at {
            thread.next_at = now + self.retry;
            thread.link = match hears {
                true if self.precedes(node, source) => Link::Up,
                true => Link::Idle,
                false => Link::Down,
            };
            (thread.is_known, thread.source_life) = (thread.is_known || hears, life);
            thread.silent_since = None;
        }
        self.servers[node].thread = Some(thread);
    }

    pub(super) fn apply(&mut self, now: Time, node: usize) {
        let server = &mut self.servers[node];
        let applies = server.thread.as_ref().is_some_and(|thread| thread.started);
        let done = (now - server.applied_at) / server.apply_us.max(1);
        if done > 0 {
            server.applied_at = now;
            if applies {
                let done = usize::try_from(done).unwrap_or(usize::MAX);
                server.applied = server.log.len().min(server.applied.saturating_add(done));
            }
        }
        let to_apply = u64::try_from(server.log.len() - server.applied).unwrap_or(u64::MAX);
        if to_apply.saturating_mul(server.apply_us) > 5000 * MS {
            server.behind_until = now;
        }
    }
}
