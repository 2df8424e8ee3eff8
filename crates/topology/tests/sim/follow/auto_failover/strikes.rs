//! Faults at the very moment in which a rule matters: between two questions of a procedure. And the answers that a Weir
//! takes which breaks a rule.

use weir_topology::procedure::Source;
use weir_topology::{Link, SourceLink};

use super::AutoFailover;
use super::procedures::{Kind, Work};
use super::remote::{Answer, Call, Question};
use crate::breach::{Breach, Trial};
use crate::chaos::Action;
use crate::cluster::{Context, Path};
use crate::fault::{self, Blow, Fault};
use crate::node::{endpoint, uuid_of};
use crate::queue::{Event, MS, Time};

/// How long something takes its course.
const COURSE: Time = 25_000 * MS;
/// How long a server or a way is away.
const AWAY: Time = 3000 * MS;
/// For so long a Weir is stopped: longer than any lease, and than others wait for a failover.
const STOPPED: Time = 12_000 * MS;

const BROKEN: Path = Path { there_broken: true, back_broken: true, delay: 0 };
const NO_ANSWER: Path = Path { there_broken: false, back_broken: true, delay: 0 };

impl AutoFailover {
    pub(super) fn breach(&self) -> Option<Breach> {
        self.trial.breach()
    }

    /// What is to happen before a Weir's next question.
    pub(super) fn strike(&mut self, context: &mut Context, weir: usize) {
        match self.trial {
            Trial::Plain => {}
            Trial::Fault(fault) => self.strike_once(context, weir, fault),
            Trial::Provoked(rule) | Trial::Broken(rule) => self.ambush(context, weir, rule),
        }
    }

    /// The server that a question is for.
    fn asked(&self, call: &Call) -> Option<usize> {
        match call {
            Call::Connect(node) | Call::IsThere(node) => Some(*node),
            Call::Ask(session, _) => self.sessions.get(session).map(|session| session.node),
            _ => None,
        }
    }

    fn strike_once(&mut self, context: &mut Context, weir: usize, fault: Fault) {
        let node = self.works[weir].as_ref().and_then(|work| self.asked(&work.call));
        let Some(node) = node.filter(|_| context.now >= fault::MOVED_AT) else { return };
        self.questions += 1;
        if self.questions != fault.before {
            return;
        }
        context.tally.faults += 1;
        let (blow, undo) = match fault.blow {
            Blow::WeirDies => (Action::KillWeir(weir), None),
            Blow::WeirIsStopped => (Action::StopWeir(weir, STOPPED), None),
            Blow::ServerDies => (Action::Kill(node), Some(Action::Start(node))),
            Blow::ServerIsStopped => (Action::Hang(node), Some(Action::Resume(node))),
            Blow::AnswerIsLost => lost(weir, node, NO_ANSWER),
            Blow::QuestionIsLost => lost(weir, node, BROKEN),
            Blow::AreParted => (Action::Part(weir, 1 << node), None),
        };
        context.after(0, Event::Act(blow));
        if let Some(undo) = undo {
            context.after(AWAY, Event::Act(undo));
        }
    }

    /// What makes a rule count, at the moment in which it does.
    fn ambush(&mut self, context: &mut Context, weir: usize, rule: Breach) {
        let Some(Work { kind, call: Call::Ask(session, question), until, .. }) = &self.works[weir] else {
            return;
        };
        let Some(node) = self.sessions.get(session).map(|session| session.node) else { return };
        // Worlds of rules that need two have two.
        let other = (weir + 1) % 2;
        let is_closed = |from: &usize| self.servers[*from].is_closed_by_weir;
        let blows: Vec<(Time, Action)> = match (rule, kind, question) {
            (Breach::SwitchoverKeepsNoJournal, Kind::Switch(from, _), Question::IsReadOnly)
                if node == *from && is_closed(from) =>
            {
                vec![(0, Action::KillWeir(weir))]
            }
            (Breach::SwitchoverConfirmsNothing, Kind::Switch(from, to), Question::IsReadOnly)
                if node == *to && is_closed(from) =>
            {
                vec![(0, Action::Reopen(*from))]
            }
            (Breach::SwitchoverTrustsSilence, Kind::Switch(_, to), Question::SetReadOnly(false))
                if node == *to =>
            {
                let whole = Action::SetPath(weir, node, Path::default());
                vec![(0, Action::SetPath(weir, node, NO_ANSWER)), (300 * MS, whole)]
            }
            // The other one makes its switchover from the beginning to the end.
            (Breach::SwitchoverLooksOnce, Kind::Switch(from, to), Question::Lock)
                if weir == 0 && !self.has_lock(weir) =>
            {
                let third = (0..self.servers.len()).find(|third| third != from && third != to);
                let order = third.map(|third| (0, Action::Order(other, third)));
                [(0, Action::StopWeir(weir, STOPPED))].into_iter().chain(order).collect()
            }
            // The other one does not reach the best one, and chooses another.
            (Breach::FailoverTakesNoLock, Kind::Replace(_), Question::WaitFor(..)) if until.is_none() => {
                vec![(0, Action::SetPath(other, node, BROKEN)), (0, Action::StopWeir(weir, STOPPED))]
            }
            _ => return,
        };
        if context.random.percent(70) {
            context.calm(COURSE);
            blows.into_iter().for_each(|(delay, blow)| context.after(delay, Event::Act(blow)));
        }
    }

    fn has_lock(&self, weir: usize) -> bool {
        let holders = self.servers.iter().filter_map(|server| self.sessions.get(&server.lock?));
        holders.into_iter().any(|session| session.weir == weir)
    }

    /// What a Weir takes for a server's answer, without asking.
    pub(super) fn pretended(&self, work: &Work, session: usize, question: &Question) -> Option<Answer> {
        let (_, node) = *work.connections.iter().find(|(connection, _)| *connection == session)?;
        let Kind::Switch(from, to) = work.kind else { return None };
        match (self.breach()?, question) {
            (Breach::SwitchoverLooksOnce, Question::IsReadOnly) if !work.has_closed => {
                Some(Answer::Is(node != from))
            }
            (Breach::SwitchoverLooksOnce, Question::Sources)
                if !work.has_closed && self.has_lock_of(session) =>
            {
                let source = |id: String| Source {
                    id: id.clone(),
                    is_fit: true,
                    has_positions: true,
                    applies: true,
                    received: String::new(),
                    link: SourceLink { id, endpoint: Some(endpoint(from)), link: Link::Up },
                    is_tls: false,
                    error: String::new(),
                };
                let sources = (node != from).then(|| source(uuid_of(from)));
                Some(Answer::Sources(sources.into_iter().collect()))
            }
            (Breach::SwitchoverLooksOnce | Breach::SwitchoverKeepsNoJournal, Question::Enter(_)) => {
                Some(Answer::Text("it is not written down".to_owned()))
            }
            (Breach::SwitchoverConfirmsNothing, Question::IsReadOnly) if node == from && work.has_closed => {
                Some(Answer::Is(true))
            }
            (Breach::SwitchoverTrustsSilence, Question::IsReadOnly) if node == to => Some(Answer::Is(true)),
            _ => None,
        }
    }

    fn has_lock_of(&self, session: usize) -> bool {
        self.servers.iter().any(|server| server.lock == Some(session))
    }
}

fn lost(weir: usize, node: usize, path: Path) -> (Action, Option<Action>) {
    (Action::SetPath(weir, node, path), Some(Action::SetPath(weir, node, Path::default())))
}
