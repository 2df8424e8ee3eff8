//! Runs the crate's procedures for Weirs, one at a time for each. A step is one question to one
//! server, and between two steps anything can happen.

use std::ops::Range;

use weir_topology::procedure::{Candidate, Failover, Plan, Recovery, Rejoin, Surroundings as _, Switchover};
use weir_topology::{Endpoint, Succession};

use super::remote::{Answer, Around, Call, Failure, Procedure, Question, Said, endpoints};
use super::{AutoFailover, Session};
use crate::breach::Breach;
use crate::cluster::{Context, WEIRS_MAX};
use crate::node::{Process, endpoint, node_of};
use crate::queue::{Event, MS, Time};
use crate::weir::{WRITERS, Weir};

/// Between two steps.
const STEP: Range<Time> = 200..15 * MS;
/// How long a statement without an answer is waited for.
const UNANSWERED: Range<Time> = 500 * MS..3000 * MS;
/// How often a server that applies looks whether it has.
const APPLY_PAUSE: Time = 100 * MS;
/// When a failover that could not be made is tried again, and when the other procedures are.
const FAILOVER_PAUSE: Time = 2000 * MS;
const RETURN_DELAY: Time = 2000 * MS;
const CONNECT_PAUSE: Time = 1000 * MS;
/// When a switchover that was left half made is looked for.
const FINISH_WAIT: Time = 3000 * MS;
const RECOVERY_PAUSE: Time = 2000 * MS;
/// A server ends a connection that is silent for so long.
const SILENT_MAX: Time = 90_000 * MS;

/// What a Weir is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the place of a lost writer.
    Replace(usize),
    Rejoin,
    Reconnect,
    /// From whom to whom.
    Switch(usize, usize),
    Recover,
}

pub(super) struct Work {
    pub(super) kind: Kind,
    life: u32,
    /// When it last looked whether a writer is lost.
    pub(super) since: Time,
    is_chosen: bool,
    /// What replicas had received when they were compared.
    pub(super) received: Vec<(usize, Vec<usize>)>,
    procedure: Procedure,
    /// The question whose turn is next.
    pub(super) call: Call,
    /// Until when an answer that takes its time is waited for.
    pub(super) until: Option<Time>,
    /// It has told a server to be read_only.
    pub(super) has_closed: bool,
    /// Its connections, and to which server each was.
    pub(super) connections: Vec<(usize, usize)>,
}

impl Work {
    pub(super) fn life(&self) -> u32 {
        self.life
    }
}

impl Kind {
    fn pause(self) -> Time {
        match self {
            Self::Replace(_) => FAILOVER_PAUSE,
            Self::Rejoin => RETURN_DELAY,
            Self::Reconnect => CONNECT_PAUSE,
            Self::Switch(..) | Self::Recover => 0,
        }
    }

    pub(super) fn moves_in_order(self) -> bool {
        matches!(self, Self::Switch(..) | Self::Recover)
    }
}

impl AutoFailover {
    /// A Weir has decided: it may have something to do.
    pub(super) fn begin(&mut self, context: &mut Context, weir: &Weir) {
        let index = weir.index;
        if let Some(work) = &self.works[index] {
            if work.life == weir.life {
                return;
            }
            self.give_up(index);
        }
        self.plan_recovery(context.now, weir);
        let Some((kind, procedure)) = self
            .due(context, weir)
            .or_else(|| self.ordered(weir))
            .or_else(|| self.recovery(context.now, weir))
        else {
            return;
        };
        context.note(|| format!("    weir {index} begins {kind:?}"));
        let (life, since) = (weir.life, context.now);
        let work = Work {
            kind,
            life,
            since,
            is_chosen: false,
            received: Vec::new(),
            procedure,
            call: Call::Now,
            until: None,
            has_closed: false,
            connections: Vec::new(),
        };
        self.works[index] = Some(work);
        self.go_on_with(context, index, None);
    }

    /// What roles call for.
    fn due(&mut self, context: &Context, weir: &Weir) -> Option<(Kind, Procedure)> {
        let (index, now) = (weir.index, context.now);
        let group = weir.roles.groups.first()?;
        let Succession { due, returned, unconnected, writer_id, .. } = group.succession.as_ref()?;
        let has_returned = due.is_none() && group.writers.len() == 1 && !returned.is_empty();
        let since = self.returned_since[index].filter(|_| has_returned).unwrap_or(now);
        self.returned_since[index] = has_returned.then_some(since);
        if now < self.rests_until[index] {
            return None;
        }
        if let Some(lost) = due {
            let failover = self.failover(weir, lost, writer_id);
            let work = move |around: &mut Around| format!("{:?}", failover.make(around));
            let compares = self.breach() != Some(Breach::FailoverTakesAny);
            return Some((Kind::Replace(node_of(lost)), Procedure::start(compares, work)));
        }
        if has_returned {
            let (writer, servers) = (group.writers.first()?.clone(), returned.clone());
            let work = move |around: &mut Around| {
                let back = |server: &Endpoint| {
                    let (server, writer) = (server.clone(), writer.clone());
                    Rejoin { writer_hostgroup: WRITERS, server, writer }
                };
                format!("{:?}", servers.iter().try_for_each(|server| back(server).make(around).map(drop)))
            };
            return (now >= since + RETURN_DELAY).then(|| (Kind::Rejoin, Procedure::start(true, work)));
        }
        let servers = Some(unconnected.clone()).filter(|servers| !servers.is_empty())?;
        let work = move |around: &mut Around| {
            let done = servers.iter().try_for_each(|server| around.connect(server)?.reconnect());
            format!("{done:?}")
        };
        Some((Kind::Reconnect, Procedure::start(true, work)))
    }

    fn failover(&self, weir: &Weir, lost: &Endpoint, id: &str) -> Failover {
        let count = self.servers.len();
        let is_enough = self.breach() == Some(Breach::FailoverNeedsNoMajority);
        let majority = if is_enough { 1 } else { count / 2 + 1 };
        let others = (0..count).filter(|node| *node != node_of(lost));
        let others = others
            .map(|node| Candidate { server: endpoint(node), weight: weir.wants(node).then_some(100) })
            .collect();
        Failover { writer_hostgroup: WRITERS, majority, lost: lost.clone(), id: id.to_owned(), others }
    }

    /// What somebody has ordered.
    fn ordered(&mut self, weir: &Weir) -> Option<(Kind, Procedure)> {
        let node = self.orders[weir.index].take()?;
        let group = weir.roles.groups.first()?;
        let [from] = group.writers.as_slice() else { return None };
        if !group.successors.contains(&endpoint(node)) {
            return None;
        }
        let plan = Plan {
            writer_hostgroup: WRITERS,
            from: from.clone(),
            to: endpoint(node),
            members: endpoints(self.servers.len()),
            instance: format!("weir{}", weir.index),
        };
        let kind = Kind::Switch(node_of(from), node);
        let work = move |around: &mut Around| {
            let ready = match Switchover::prepare(around, plan) {
                Ok(ready) => ready,
                Err(cause) => return cause.to_string(),
            };
            around.hold(true);
            let made = ready.make(around);
            around.hold(false);
            match made {
                Ok(moved) => format!("{:?}", moved.finish(around)),
                Err(undone) => format!("{undone:?}"),
            }
        };
        Some((kind, Procedure::start(true, work)))
    }

    /// When it is to be looked whether somebody has died in a switchover.
    fn plan_recovery(&mut self, now: Time, weir: &Weir) {
        let (life, known, due) = &mut self.recoveries[weir.index];
        if *life != weir.life + 1 {
            (*life, *known, *due) = (weir.life + 1, weir.writers.clone(), Some(now));
        } else if *known != weir.writers {
            (*known, *due) = (weir.writers.clone(), Some(now + FINISH_WAIT));
        }
    }

    fn recovery(&mut self, now: Time, weir: &Weir) -> Option<(Kind, Procedure)> {
        let index = weir.index;
        self.recoveries[index].2.filter(|due| *due <= now)?;
        let answering = (0..self.servers.len()).filter(|node| self.is_answered(index, *node));
        let is_written = answering.into_iter().any(|node| self.row(node).is_some());
        // What was found is done as long as it is there.
        let is_again = is_written || weir.writers.is_empty();
        self.recoveries[index].2 = is_again.then_some(now + RECOVERY_PAUSE);
        let members = endpoints(self.servers.len());
        let recovery = Recovery { writer_hostgroup: WRITERS, members, known: None };
        let work = move |around: &mut Around| format!("{:?}", recovery.make(around));
        is_written.then(|| (Kind::Recover, Procedure::start(true, work)))
    }

    /// The process that did it is gone.
    pub(super) fn give_up(&mut self, weir: usize) {
        self.works[weir] = None;
        self.holds[weir] = false;
        for session in self.sessions.values_mut().filter(|session| session.weir == weir) {
            session.is_closing = true;
        }
    }

    /// The turn of a Weir's question has come.
    pub(super) fn step(&mut self, context: &mut Context, weir: usize) {
        let Some(mut work) = self.works[weir].take() else { return };
        let call = work.call.clone();
        work.has_closed |= matches!(call, Call::Ask(_, Question::SetReadOnly(true)));
        match &call {
            Call::Ask(_, Question::WaitFor(..)) => work.is_chosen = true,
            Call::Ask(session, Question::Received) if !work.is_chosen => {
                work.since = context.now;
                if let Some(Session { node, .. }) = self.sessions.get(session) {
                    work.received.push((*node, self.servers[*node].log.clone()));
                }
            }
            _ if !work.is_chosen => work.since = context.now,
            _ => {}
        }
        let (said, delay) = match &call {
            Call::Connect(node) => self.connect(context, weir, *node, work.kind.moves_in_order()),
            Call::IsThere(node) => {
                let looks = self.breach() != Some(Breach::FailoverLooksOnce);
                let is_there = looks && self.is_answered(weir, *node);
                let delay = if is_there { STEP } else { UNANSWERED };
                (Ok(Answer::Is(is_there)), delay)
            }
            Call::Ask(session, Question::WaitFor(position, timeout)) => {
                let until = *work.until.get_or_insert(context.now + timeout);
                match self.has_applied(context, *session, position) {
                    Ok(false) if context.now < until => {
                        let life = work.life;
                        self.works[weir] = Some(work);
                        return context.after(APPLY_PAUSE, Event::NextStep { weir, life });
                    }
                    Ok(false) => (Err(Failure::NotApplied), STEP),
                    Ok(true) => (Ok(Answer::Done), STEP),
                    Err(cause) => (Err(cause), UNANSWERED),
                }
            }
            Call::Ask(session, question) => self.ask(context, &work, *session, question),
            _ => (Ok(Answer::Done), STEP),
        };
        if let (Call::Connect(node), Ok(Answer::Connection(session))) = (&call, &said) {
            work.connections.push((*session, *node));
        }
        work.until = None;
        self.works[weir] = Some(work);
        context.note(|| {
            let said = format!("{said:?}");
            format!("    weir {weir}: {call:?}: {}", said.chars().take(100).collect::<String>())
        });
        self.go_on_with(context, weir, Some((said, delay)));
    }

    /// Gives an answer, and takes the next question.
    fn go_on_with(&mut self, context: &mut Context, weir: usize, said: Option<(Said, Range<Time>)>) {
        let Some(mut work) = self.works[weir].take() else { return };
        let (life, mut delay) = (work.life, STEP);
        if let Some((said, after)) = said {
            work.procedure.answer(said);
            delay = after;
        }
        let delay = context.random.within(delay);
        loop {
            match work.procedure.next() {
                Some(Call::Now) => work.procedure.answer(Ok(Answer::Now(context.now + delay))),
                Some(Call::Hold(on)) => {
                    self.holds[weir] = on;
                    work.procedure.answer(Ok(Answer::Done));
                }
                Some(Call::Drop(session)) => self.close(session),
                Some(Call::End(said)) => {
                    context.note(|| format!("    weir {weir} ends {:?}: {said}", work.kind));
                    self.rests_until[weir] = context.now + work.kind.pause();
                    // Counted from the end: with slow servers the locks would hardly ever be free.
                    let due = &mut self.recoveries[weir].2;
                    match (work.kind, due.as_mut()) {
                        (Kind::Recover, Some(due)) => *due = (*due).max(context.now + RECOVERY_PAUSE),
                        // It may have left something, and the writer may be who it was.
                        (Kind::Switch(..), _) => *due = Some(context.now + FINISH_WAIT),
                        _ => {}
                    }
                    self.holds[weir] = false;
                    return;
                }
                Some(Call::Sleep(time)) => {
                    work.call = Call::Sleep(time);
                    self.works[weir] = Some(work);
                    return context.after(delay + time, Event::NextStep { weir, life });
                }
                Some(call) => {
                    work.call = call;
                    self.works[weir] = Some(work);
                    self.strike(context, weir);
                    return context.after(delay, Event::NextStep { weir, life });
                }
                None => {
                    let kind = work.kind;
                    return context.fail(|| format!("weir {weir} panics in {kind:?}"));
                }
            }
        }
    }

    // ---- connections ----

    fn connect(
        &mut self,
        context: &Context,
        weir: usize,
        node: usize,
        in_order: bool,
    ) -> (Said, Range<Time>) {
        if !self.is_answered(weir, node) {
            return (Err(Failure::Silent), UNANSWERED);
        }
        let (number, node_life) = (self.sessions_begun, self.servers[node].host.life);
        self.sessions_begun += 1;
        let session =
            Session { weir, node, node_life, is_broken: false, is_closing: false, used_at: context.now };
        self.sessions.insert(number, session);
        if in_order {
            self.ordered.insert(number);
        }
        (Ok(Answer::Connection(number)), STEP)
    }

    fn close(&mut self, session: usize) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.is_closing = true;
        }
    }

    /// Connections whose end the server has heard of are over, and their locks.
    pub(super) fn end_sessions(&mut self, now: Time) {
        let (servers, paths) = (&self.servers, &self.paths);
        self.sessions.retain(|number, session| {
            let server = &servers[session.node];
            let is_heard = session.is_closing && !paths[session.weir][session.node].there_broken;
            let is_silent = now > session.used_at + SILENT_MAX;
            let is_read = server.unread.iter().all(|(of, _)| of != number);
            let ends = server.host.runs() && is_read && (is_heard || is_silent);
            server.host.life == session.node_life && server.host.process != Process::Dead && !ends
        });
        let sessions = &self.sessions;
        for server in &mut self.servers {
            server.lock = server.lock.filter(|session| sessions.contains_key(session));
        }
    }

    /// Whether a server answers a Weir.
    pub(super) fn is_answered(&self, weir: usize, node: usize) -> bool {
        let host = &self.servers[node].host;
        self.paths[weir][node].works() && host.runs() && !host.busy
    }

    /// The server of a connection, if a question comes there; else it is over for the Weir.
    fn reach(&mut self, now: Time, number: usize) -> Result<usize, Failure> {
        let Some(session) = self.sessions.get_mut(&number) else { return Err(Failure::Broken) };
        if session.is_broken || self.paths[session.weir][session.node].there_broken {
            session.is_broken = true;
            return Err(Failure::Broken);
        }
        session.used_at = now;
        Ok(session.node)
    }

    fn has_applied(&mut self, context: &Context, number: usize, position: &str) -> Result<bool, Failure> {
        let node = self.reach(context.now, number)?;
        let weir = self.sessions[&number].weir;
        if !self.servers[node].host.runs() || self.paths[weir][node].back_broken {
            if let Some(session) = self.sessions.get_mut(&number) {
                session.is_broken = true;
            }
            return Err(Failure::Silent);
        }
        Ok(self.position(node, self.servers[node].applied).starts_with(position))
    }

    /// Puts a question; an error if there is no answer. It may have been done all the same, or be done later.
    fn ask(
        &mut self,
        context: &mut Context,
        work: &Work,
        number: usize,
        question: &Question,
    ) -> (Said, Range<Time>) {
        if let Some(answer) = self.pretended(work, number, question) {
            return (Ok(answer), STEP);
        }
        let node = match self.reach(context.now, number) {
            Ok(node) => node,
            Err(cause) => return (Err(cause), UNANSWERED),
        };
        let weir = self.sessions[&number].weir;
        let is_answered = match self.servers[node].host.process {
            Process::Running => !self.paths[weir][node].back_broken,
            _ => false,
        };
        let said = if self.servers[node].host.runs() {
            self.execute(context, Some(work), node, number, question)
        } else {
            self.servers[node].unread.push((number, question.clone()));
            Ok(Answer::Done)
        };
        if is_answered {
            return (said, STEP);
        }
        if let Some(session) = self.sessions.get_mut(&number) {
            session.is_broken = true;
        }
        (Err(Failure::Silent), UNANSWERED)
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
