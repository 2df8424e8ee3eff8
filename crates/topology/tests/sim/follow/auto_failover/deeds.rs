//! What Weirs do about a lost writer, in the order and with the conditions of the program (`serve/switchover/failover.rs`
//! of the crate `weir`): a step is a statement or two, and between two steps anything can happen.

use std::ops::Range;

use weir_topology::{Group, Link, Succession};

use super::{AutoFailover, Thread};
use crate::breach::Breach;
use crate::cluster::{Context, WEIRS_MAX};
use crate::node::{Process, node_of};
use crate::queue::{Event, MS, Time};
use crate::weir::Weir;

/// Between two steps.
const STEP: Range<Time> = 200..15 * MS;
/// How long a statement without an answer is waited for.
const UNANSWERED: Range<Time> = 500 * MS..3000 * MS;
/// How long the next writer may take to apply what it has received, and how often it is asked.
const APPLY_WAIT: Time = 45_000 * MS;
const APPLY_PAUSE: Time = 100 * MS;
/// When a failover that could not be made is tried again, and when the other deeds are.
const FAILOVER_PAUSE: Time = 2000 * MS;
const RETURN_DELAY: Time = 2000 * MS;
const CONNECT_PAUSE: Time = 1000 * MS;

/// What a server is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    ReadOnly(bool),
    Stop,
    Start,
    /// CHANGE REPLICATION SOURCE, and START.
    Follow(usize),
    Forget,
    Reconnect,
}

/// A server to which a Weir is connected, in that life of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    node: usize,
    life: u32,
}

/// A replica that is locked.
#[derive(Clone, Debug)]
struct Replica {
    at: Connection,
    source: usize,
    link: Link,
    received: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Whether the lost one is really silent.
    Look,
    Lock(usize),
    Vote,
    Apply,
    /// Of the replicas but the next writer.
    Move(usize),
    Follow(usize),
    Close,
    Open,
    Forget,
    Undo,
}

/// What a Weir is about.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Replace(Box<Replace>),
    TakeBack { life: u32, left: Vec<usize>, locked: Option<Connection>, writer: usize },
    Reconnect { life: u32, left: Vec<usize> },
}

#[derive(Clone, Debug)]
pub(super) struct Replace {
    life: u32,
    lost: usize,
    others: Vec<usize>,
    /// Those that the user keeps from work: they vote, and are not chosen.
    drained: Vec<usize>,
    step: Step,
    replicas: Vec<Replica>,
    to: Option<Replica>,
    /// Those that replicate from the next writer already.
    undo: Vec<usize>,
    until: Time,
}

/// How long until the next step; none: it is done.
type Next = Option<Range<Time>>;

impl Work {
    fn life(&self) -> u32 {
        match self {
            Self::Replace(replace) => replace.life,
            Self::TakeBack { life, .. } | Self::Reconnect { life, .. } => *life,
        }
    }

    /// What there is to do.
    fn of(group: &Group, weir: &Weir, count: usize) -> Option<Self> {
        let Succession { due, returned, unconnected, .. } = group.succession.as_ref()?;
        let nodes = |endpoints: &[_]| endpoints.iter().map(node_of).collect::<Vec<_>>();
        let life = weir.life;
        match (due, &*group.writers) {
            (Some(lost), _) => {
                let lost = node_of(lost);
                Some(Self::Replace(Box::new(Replace {
                    life,
                    lost,
                    others: (0..count).filter(|node| *node != lost).collect(),
                    drained: (0..count).filter(|node| !weir.wants(*node)).collect(),
                    step: Step::Look,
                    replicas: Vec::new(),
                    to: None,
                    undo: Vec::new(),
                    until: Time::MAX,
                })))
            }
            (None, [writer]) if !returned.is_empty() => {
                let left = nodes(returned);
                Some(Self::TakeBack { life, left, locked: None, writer: node_of(writer) })
            }
            _ if !unconnected.is_empty() => Some(Self::Reconnect { life, left: nodes(unconnected) }),
            _ => None,
        }
    }
}

impl AutoFailover {
    /// A Weir has decided: it may have something to do.
    pub(super) fn begin(&mut self, context: &mut Context, weir: &Weir) {
        let index = weir.index;
        if self.works[index].as_ref().is_some_and(|work| work.life() == weir.life)
            || context.now < self.rests_until[index]
        {
            return;
        }
        let group = weir.roles.groups.first();
        let work = group.and_then(|group| Work::of(group, weir, self.servers.len()));
        let has_returned = matches!(work, Some(Work::TakeBack { .. }));
        let since = self.returned_since[index].filter(|_| has_returned).unwrap_or(context.now);
        self.returned_since[index] = has_returned.then_some(since);
        let Some(work) = work.filter(|_| !has_returned || context.now >= since + RETURN_DELAY) else {
            return;
        };
        if let Work::Replace(replace) = &work {
            context.note(|| format!("    weir {index} begins to replace n{}", replace.lost));
        }
        self.works[index] = Some(work);
        context.within(STEP, Event::Deed { weir: index, life: weir.life });
    }

    /// The next step of what a Weir is about.
    pub(super) fn step(&mut self, context: &mut Context, weir: usize) {
        let Some(mut work) = self.works[weir].take() else { return };
        let (next, pause) = match &mut work {
            Work::Replace(replace) => (self.replace(context, weir, replace), FAILOVER_PAUSE),
            Work::TakeBack { .. } => (self.take_back(context, weir, &mut work), RETURN_DELAY),
            Work::Reconnect { left, .. } => (self.reconnect(context, weir, left), CONNECT_PAUSE),
        };
        match next {
            Some(delay) => {
                let life = work.life();
                self.works[weir] = Some(work);
                context.within(delay, Event::Deed { weir, life });
            }
            None => {
                for server in &mut self.servers {
                    server.lock = server.lock.filter(|(holder, _)| *holder != weir);
                }
                self.rests_until[weir] = context.now + pause;
            }
        }
    }

    /// A step of a failover; what fails undoes those before it.
    fn replace(&mut self, context: &mut Context, weir: usize, replace: &mut Replace) -> Next {
        if let Step::Undo = replace.step {
            self.undo(context, weir, replace);
            return None;
        }
        match self.try_step(context, weir, replace) {
            Ok(next) => next,
            Err(cause) => {
                context.note(|| format!("    weir {weir} does not replace n{}: {cause}", replace.lost));
                let began = replace.to.is_some() && !matches!(replace.step, Step::Apply);
                replace.step = Step::Undo;
                began.then_some(STEP)
            }
        }
    }

    fn try_step(
        &mut self,
        context: &mut Context,
        weir: usize,
        replace: &mut Replace,
    ) -> Result<Next, String> {
        let lost = replace.lost;
        let (next, delay) = match replace.step {
            Step::Look => {
                if self.is_answered(weir, lost) {
                    return Err("it answers".to_owned());
                }
                (Step::Lock(0), UNANSWERED)
            }
            Step::Lock(at) => match replace.others.get(at) {
                None => (Step::Vote, STEP),
                Some(node) => {
                    let delay = self.lock(weir, *node, replace)?;
                    (Step::Lock(at + 1), delay)
                }
            },
            Step::Vote => {
                self.vote(replace)?;
                replace.until = context.now + APPLY_WAIT;
                (Step::Apply, STEP)
            }
            Step::Apply => match self.applies(context.now, weir, replace)? {
                false => (Step::Apply, APPLY_PAUSE..APPLY_PAUSE + MS),
                true => (Step::Move(0), STEP),
            },
            Step::Move(at) => match replace.replicas.get(at).cloned() {
                None => (Step::Close, STEP),
                Some(replica) => {
                    self.is_still_lost_to(weir, &replica, lost)?;
                    self.tell(context, weir, replica.at, Statement::Stop)?;
                    replace.undo.push(at);
                    self.look_again(weir, &replica)?;
                    (Step::Follow(at), STEP)
                }
            },
            Step::Follow(at) => {
                let to = replace.next_writer()?.at.node;
                self.tell(context, weir, replace.replicas[at].at, Statement::Follow(to))?;
                (Step::Move(at + 1), STEP)
            }
            Step::Close => {
                let to = replace.next_writer()?;
                let many = u32::try_from(replace.undo.len() + 1).unwrap_or(0);
                if many < self.majority() {
                    return Err(format!("only {many} can replicate from n{}", to.at.node));
                }
                self.is_still_lost_to(weir, to, lost)?;
                self.tell(context, weir, to.at, Statement::Stop)?;
                (Step::Open, STEP)
            }
            Step::Open => {
                let to = replace.next_writer()?;
                self.look_again(weir, to)?;
                self.check_open(context, replace);
                let to = to.at;
                let opened = self.tell(context, weir, to, Statement::ReadOnly(false));
                if let Err(cause) = opened {
                    let _ = self.tell(context, weir, to, Statement::ReadOnly(true));
                    return Err(cause);
                }
                context
                    .disturb(|| format!("weir {weir} has made n{} the writer in place of n{lost}", to.node));
                (Step::Forget, STEP)
            }
            Step::Forget => {
                let _ = self.tell(context, weir, replace.next_writer()?.at, Statement::Forget);
                return Ok(None);
            }
            Step::Undo => return Ok(None),
        };
        replace.step = next;
        Ok(Some(delay))
    }

    /// The rules at the moment in which a server is made the writer, whoever looks.
    fn check_open(&self, context: &mut Context, replace: &Replace) {
        let Some(to) = &replace.to else { return };
        let has = |replica: &&Replica| self.servers[to.at.node].log.starts_with(&replica.received);
        if let Some(other) = replace.replicas.iter().find(|replica| !has(replica)) {
            let (to, other) = (to.at.node, other.at.node);
            context.fail(|| format!("n{to} is made the writer and lacks what n{other} has received"));
        }
        let lost = &self.servers[replace.lost];
        let connected = (0..self.servers.len()).filter(|node| {
            let thread = self.servers[*node].thread.as_ref();
            thread.is_some_and(|thread| thread.source == replace.lost && thread.link == Link::Up)
        });
        let backing = u32::try_from(connected.count() + 1).unwrap_or(0);
        if lost.host.runs() && !lost.read_only && backing >= self.majority() {
            context.fail(|| {
                format!(
                    "n{} is made the writer although n{} has {backing} servers behind it",
                    to.at.node, replace.lost
                )
            });
        }
        let (ago, began) = (context.now.saturating_sub(lost.acknowledged_at), replace.until - APPLY_WAIT);
        if lost.acknowledged_at > began {
            context.fail(|| {
                format!(
                    "n{} has acknowledged a write {} ms ago, after n{} had been chosen in its place",
                    replace.lost,
                    ago / MS,
                    to.at.node
                )
            });
        }
    }

    fn undo(&mut self, context: &mut Context, weir: usize, replace: &Replace) {
        for at in &replace.undo {
            let Replica { at, source, .. } = replace.replicas[*at];
            let _ = self.tell(context, weir, at, Statement::Follow(source));
        }
        if let Some(to) = &replace.to {
            let _ = self.tell(context, weir, to.at, Statement::Start);
        }
    }

    /// Takes the lock of a server and looks how it stands.
    fn lock(&mut self, weir: usize, node: usize, replace: &mut Replace) -> Result<Range<Time>, String> {
        if !self.is_answered(weir, node) {
            return Ok(UNANSWERED);
        }
        let server = &mut self.servers[node];
        let own = (weir, replace.life);
        if server.lock.is_some_and(|holder| holder != own) {
            return Err(format!("another Weir has the lock at n{node}"));
        }
        server.lock = Some(own);
        if !server.read_only {
            return Err(format!("n{node} is not read_only"));
        }
        if let Some(Thread { source, link, .. }) = server.thread
            && !(link == Link::Idle && replace.drained.contains(&node))
        {
            let at = Connection { node, life: server.host.life };
            replace.replicas.push(Replica { at, source, link, received: server.log.clone() });
        }
        Ok(STEP)
    }

    /// Whether it is lost for more than half, and who is next.
    fn vote(&self, replace: &mut Replace) -> Result<(), String> {
        let lost = replace.lost;
        let trusts = self.breach == Some(Breach::FailoverLooksOnce);
        let receives = |replica: &&Replica| replica.source == lost && replica.link == Link::Up;
        if let Some(replica) = replace.replicas.iter().find(receives).filter(|_| !trusts) {
            return Err(format!("n{} still receives from it", replica.at.node));
        }
        let votes = |replica: &&Replica| replica.source != lost || replica.link == Link::Down;
        let votes = u32::try_from(replace.replicas.iter().filter(votes).count()).unwrap_or(0);
        if votes < self.majority() && !trusts {
            return Err(format!("only {votes} say that they can't connect to it"));
        }
        let any = self.breach == Some(Breach::FailoverTakesAny);
        let has_all =
            |one: &Replica| replace.replicas.iter().all(|other| one.received.starts_with(&other.received));
        let may_write = |one: &Replica| !replace.drained.contains(&one.at.node);
        let best = replace.replicas.iter().position(|one| may_write(one) && (any || has_all(one)));
        let best = best.ok_or("none has all that the others have")?;
        replace.to = Some(replace.replicas.remove(best));
        Ok(())
    }

    fn applies(&self, now: Time, weir: usize, replace: &Replace) -> Result<bool, String> {
        let to = replace.next_writer()?;
        let thread = self.thread(weir, to.at)?;
        let server = &self.servers[to.at.node];
        if server.applied >= to.received.len() {
            return Ok(true);
        }
        if !thread.started || now >= replace.until {
            return Err("it does not apply what it has received".to_owned());
        }
        if thread.link == Link::Up {
            return Err(format!("n{} receives again", to.at.node));
        }
        Ok(false)
    }

    fn is_still_lost_to(&self, weir: usize, replica: &Replica, lost: usize) -> Result<(), String> {
        let thread = self.thread(weir, replica.at)?;
        let receives = thread.source == lost && thread.link == Link::Up;
        match receives && self.breach != Some(Breach::FailoverLooksOnce) {
            true => Err(format!("n{} receives from it again", replica.at.node)),
            false => Ok(()),
        }
    }

    fn look_again(&self, weir: usize, replica: &Replica) -> Result<(), String> {
        self.thread(weir, replica.at)?;
        match self.servers[replica.at.node].log.len() > replica.received.len() {
            true => Err(format!("n{} has received more meanwhile", replica.at.node)),
            false => Ok(()),
        }
    }

    /// Servers that have no part in the writer's line replicate from it, where it has all that they have.
    fn take_back(&mut self, context: &mut Context, weir: usize, work: &mut Work) -> Next {
        let Work::TakeBack { life, left, locked, writer } = work else { return None };
        let (node, source) = (*left.first()?, &self.servers[*writer]);
        if source.read_only || !self.is_answered(weir, *writer) {
            return None;
        }
        if let Some(at) = locked.take() {
            left.remove(0);
            let server = &self.servers[node];
            if self.servers[*writer].log.starts_with(&server.log) && server.thread.is_none() {
                let _ = self.tell(context, weir, at, Statement::Follow(*writer));
            }
            return Some(STEP);
        }
        if !self.is_answered(weir, node) {
            return None;
        }
        let server = &mut self.servers[node];
        let own = (weir, *life);
        if server.lock.is_some_and(|holder| holder != own) {
            return None;
        }
        server.lock = Some(own);
        let at = Connection { node, life: server.host.life };
        if !server.read_only {
            self.tell(context, weir, at, Statement::ReadOnly(true)).ok()?;
            context.disturb(|| format!("weir {weir} has made n{node} read_only beside n{writer}"));
        }
        *locked = Some(at);
        Some(STEP)
    }

    fn reconnect(&mut self, context: &mut Context, weir: usize, left: &mut Vec<usize>) -> Next {
        let node = left.pop()?;
        let at = Connection { node, life: self.servers[node].host.life };
        self.tell(context, weir, at, Statement::Reconnect).ok()?;
        Some(STEP)
    }

    /// Whether a server answers a Weir.
    fn is_answered(&self, weir: usize, node: usize) -> bool {
        let host = &self.servers[node].host;
        self.paths[weir][node].works() && host.runs() && !host.busy
    }

    fn thread(&self, weir: usize, at: Connection) -> Result<&Thread, String> {
        let server = &self.servers[at.node];
        let is_there = self.is_answered(weir, at.node) && server.host.life == at.life;
        server.thread.as_ref().filter(|_| is_there).ok_or_else(|| format!("n{} does not answer", at.node))
    }

    /// Tells a server something; an error if there is no answer. It may have been done all the same, or be done later.
    fn tell(
        &mut self,
        context: &mut Context,
        weir: usize,
        at: Connection,
        statement: Statement,
    ) -> Result<(), String> {
        let path = self.paths[weir][at.node];
        let server = &mut self.servers[at.node];
        let lost = || Err(format!("n{} does not answer", at.node));
        if path.there_broken || server.host.life != at.life {
            return lost();
        }
        match server.host.process {
            Process::Dead => return lost(),
            Process::Hung => {
                server.unread.push(statement);
                return lost();
            }
            Process::Running => self.execute(context, at.node, statement),
        }
        if path.back_broken { lost() } else { Ok(()) }
    }

    pub(super) fn execute(&mut self, context: &mut Context, node: usize, statement: Statement) {
        let now = context.now;
        let server = &mut self.servers[node];
        match (statement, &mut server.thread) {
            (Statement::ReadOnly(on), _) => (server.read_only, server.is_weirs_choice) = (on, !on),
            // Both families keep the error of the last attempt: one that had met with nobody still says so.
            (Statement::Stop, Some(thread)) if thread.link == Link::Down => thread.started = false,
            (Statement::Stop, Some(thread)) => (thread.started, thread.link) = (false, Link::Idle),
            (Statement::Start, Some(thread)) if !thread.started => {
                *thread = Thread { is_known: thread.is_known, ..Thread::to(thread.source, now) };
            }
            (Statement::Follow(source), thread) => {
                *thread = Some(Thread::to(source, now));
                server.log.truncate(server.applied);
            }
            (Statement::Forget, thread) => *thread = None,
            (Statement::Reconnect, Some(thread)) => thread.next_at = now,
            _ => {}
        }
        self.go_on(now);
    }
}

impl Replace {
    fn next_writer(&self) -> Result<&Replica, String> {
        self.to.as_ref().ok_or_else(|| "nobody was chosen".to_owned())
    }
}

/// Whose process runs, in which life.
pub(in super::super) fn lives(weirs: &[Weir]) -> [Option<u32>; WEIRS_MAX] {
    let mut lives = [None; WEIRS_MAX];
    for (life, weir) in lives.iter_mut().zip(weirs) {
        *life = weir.runs.then_some(weir.life);
    }
    lives
}
