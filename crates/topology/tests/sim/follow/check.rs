//! The rules of worlds in which Weir follows, looked at after every step.

use weir_topology::Status;

use super::{Follow, Model};
use crate::check::Checked;
use crate::cluster::Path;
use crate::node::node_of;
use crate::queue::{MS, Time};
use crate::watch::Watch;
use crate::weir::{Move, READERS};

/// A server that was silent for long is believed after it has answered for so long.
const BACK: Time = 1100 * MS;
/// What a new primary, or a view that spreads, may take longer than an answer.
const SETTLE: Time = 1500 * MS;

/// Since when a server can do what, or can't any more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    writes: Since,
    ready: Since,
    reads: Since,
}

impl Truth {
    /// Since when it can be known that a server takes no writes. One that becomes the primary when it is cut off already
    /// never did, and looks as if it could.
    fn refuses_writes(&self) -> Option<Time> {
        self.writes.no.map(|since| since.max(self.reads.no.unwrap_or(since)))
    }
}

/// Since when something holds, or since when it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    yes: Option<Time>,
    no: Option<Time>,
}

impl Since {
    fn note(&mut self, now: Time, holds: bool) {
        let since = |known: Option<Time>, is_so: bool| is_so.then(|| known.unwrap_or(now));
        (self.yes, self.no) = (since(self.yes, holds), since(self.no, !holds));
    }
}

impl<M: Model> Checked for Follow<M> {
    fn check(&mut self) {
        self.note_truth();
        for weir in 0..self.weirs.len() {
            if self.weirs[weir].is_awake() {
                self.check_writers(weir);
                self.check_readers(weir);
                self.check_somebody(weir);
                let quiet_since = self.context.disturbed_at.max(self.weirs[weir].awake_since);
                if self.context.now > quiet_since + self.bounds.writer {
                    self.check_quiet(weir, quiet_since);
                }
            }
        }
    }

    /// An acknowledged write must be in the group that lasts.
    fn check_acknowledged(&mut self, write: usize) {
        let weir = self.writes[write].weir;
        self.servers.acknowledged(&mut self.context, weir, write);
        let sent = self.writes[write].clone();
        let weir = &self.weirs[sent.weir];
        let is_awake = sent.sent_at > weir.awake_since.max(weir.wished_at) + self.bounds.detect;
        if self.servers.keeps(write) {
            self.weirs[sent.weir].knew_history = true;
        } else if weir.knew_history
            && is_awake
            && self.servers.is_apart(sent.node)
            && !self.is_excused(sent.weir, sent.node)
        {
            self.fail(|| {
                format!("weir {} writes on n{}, which is not in the others' group", sent.weir, sent.node)
            });
        }
    }
}

impl<M: Model> Follow<M> {
    fn note_truth(&mut self) {
        let now = self.context.now;
        self.servers.look(now);
        self.clear.note(now, self.servers.is_clear());
        for weir in 0..self.weirs.len() {
            // Who had to go by another group goes on with that.
            let went = self.weirs[weir]
                .writers
                .iter()
                .any(|writer| self.servers.is_apart(*writer) && self.is_excused(weir, *writer));
            self.weirs[weir].knew_history &= !went;
        }
        let reached: Vec<u8> = (0..self.weirs.len()).map(|weir| self.reached(weir)).collect();
        for node in 0..self.count() {
            let writes = self.servers.may_write(node);
            let (ready, reads) = (self.servers.is_ready(node), self.servers.may_read(node));
            let truth = &mut self.servers.host(node).truth;
            truth.writes.note(now, writes);
            truth.ready.note(now, ready);
            truth.reads.note(now, reads);
            if self.servers.is_doubtful(node) {
                let truth = &mut self.servers.host(node).truth;
                (truth.writes, truth.ready, truth.reads) = Default::default();
            }
            let paths: Vec<Path> = (0..self.weirs.len()).map(|weir| self.path(weir, node)).collect();
            for (weir, asker) in self.weirs.iter_mut().enumerate() {
                let path = paths[weir];
                let is_known = self.servers.is_known(node, reached[weir]);
                let is_clear = path.works() && path.delay == 0 && is_known;
                let since = &mut asker.reach[node].clear_since;
                *since = is_clear.then(|| since.unwrap_or(now));
            }
        }
    }

    /// The servers that answer a Weir at once and that the user has not taken out, bit n: server n.
    fn reached(&self, weir: usize) -> u8 {
        let hosts = self.servers.hosts();
        let answers = |node: &usize| {
            let (path, host) = (self.path(weir, *node), hosts[*node]);
            path.works() && path.delay == 0 && host.runs() && !host.busy && self.weirs[weir].wants(*node)
        };
        (0..hosts.len()).filter(answers).fold(0, |set, node| set | 1 << node)
    }

    fn truth(&self, node: usize) -> Truth {
        self.servers.hosts()[node].truth
    }

    /// Whether a Weir can't know that a server is no part of the others' group: it has never seen that, or nothing is left
    /// of it that it could see.
    fn is_excused(&self, weir: usize, node: usize) -> bool {
        let asker = &self.weirs[weir];
        let shows = |other: usize| {
            self.servers.is_left(other) && asker.wants(other) && asker.reach[other].clear_since.is_some()
        };
        let is_known = asker.knew_history && (0..self.count()).any(shows);
        self.servers.is_apart(node) && !is_known
    }

    /// Rule 1: no writes to a server that can't take them, for longer than it takes to notice.
    fn check_writers(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let (now, awake, detect) = (self.context.now, asker.awake_since, self.bounds.detect);
        let is_wrong = |node: &&usize| {
            let lost = self.truth(**node).refuses_writes();
            lost.is_some_and(|lost| now > lost.max(awake) + detect) && !self.is_excused(weir, **node)
        };
        let (count, most) = (asker.writers.len(), asker.settings.writers_max());
        if let Some(node) = asker.writers.iter().find(is_wrong).copied() {
            let ago = (now - self.truth(node).refuses_writes().unwrap_or(now)) / MS;
            self.fail(|| {
                format!("weir {weir} sends writes to n{node}, which has not taken any for {ago} ms")
            });
        } else if count > most {
            self.fail(|| format!("weir {weir} has {count} writers, {most} are wanted"));
        }
    }

    fn readers(&self, weir: usize) -> Vec<usize> {
        let places = self.weirs[weir].roles.hostgroup(READERS).iter();
        let online = places.filter(|place| place.status == Status::Online);
        online.map(|place| node_of(&place.endpoint)).collect()
    }

    /// Rules 1 and 3: no reads from a server without quorum, or too far behind.
    fn check_readers(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let (now, awake, detect) = (self.context.now, asker.awake_since, self.bounds.detect);
        let is_wrong = |node: &usize| {
            let lost = self.truth(*node).reads.no;
            lost.is_some_and(|lost| now > lost.max(awake) + detect) && !self.is_excused(weir, *node)
        };
        if let Some(node) = self.readers(weir).into_iter().find(is_wrong) {
            let ago = (now - self.truth(node).reads.no.unwrap_or(now)) / MS;
            self.fail(|| format!("weir {weir} reads from n{node}, which has not been fit to for {ago} ms"));
        }
    }

    /// Somebody reads while a server could, and somebody writes.
    fn check_somebody(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        let Some(clear) = self.clear.yes else { return };
        let since = asker.awake_since.max(asker.wished_at).max(clear);
        let happened = if self.servers.stands_alone() { 0 } else { self.context.disturbed_at };
        let since = since.max(happened);
        let (now, within) = (self.context.now, self.bounds.detect + BACK + SETTLE);
        let is_due = |node: usize, fit: Option<Time>| {
            let both = fit.zip(asker.reach[node].clear_since).map(|(fit, clear)| fit.max(clear).max(since));
            asker.wants(node) && both.is_some_and(|both| now > both + within)
        };
        let reached = self.reached(weir);
        let mut wanted = (0..self.count()).filter(|node| !self.servers.is_passed_over(asker, reached, *node));
        let reads = wanted.clone().find(|node| is_due(*node, self.truth(*node).reads.yes));
        let writes = wanted.find(|node| is_due(*node, self.truth(*node).ready.yes));
        if let Some(node) = reads.filter(|_| !asker.has_reader()) {
            self.fail(|| format!("weir {weir} has no reader although n{node} could read all the time"));
        } else if let Some(node) = writes.filter(|_| asker.writers.is_empty()) {
            self.fail(|| format!("weir {weir} has no writer although n{node} could write all the time"));
        }
    }

    /// Once the world is quiet everything is as it should be, and stays so.
    fn check_quiet(&mut self, weir: usize, quiet_since: Time) {
        let (now, bound) = (self.context.now, self.bounds.writer);
        let asker = &self.weirs[weir];
        if now < asker.checked_at + 50 * MS && asker.checked_at > asker.changed_at || self.clear.yes.is_none()
        {
            return;
        }
        self.weirs[weir].checked_at = now;
        self.context.tally.quiet_checks += 1;
        let asker = &self.weirs[weir];
        if self.servers.is_steady() && asker.changed_at > quiet_since + bound {
            return self.fail(|| format!("weir {weir} changes roles although nothing has happened for long"));
        }
        if let Some(what) = self.servers.unsettled(weir) {
            return self.fail(|| what);
        }
        let reached = self.reached(weir);
        if let Some(lost) = self.servers.overdue(asker, reached) {
            return self.fail(|| format!("weir {weir} does not replace n{lost}"));
        }
        let is_seen = |node: &usize| asker.wants(*node) && asker.reach[*node].clear_since.is_some();
        let could = |node: &usize| {
            self.truth(*node).ready.yes.is_some() && !self.servers.is_passed_over(asker, reached, *node)
        };
        let able: Vec<usize> = (0..self.count()).filter(|node| is_seen(node) && could(node)).collect();
        let most = asker.settings.writers_max().min(able.len());
        let writers = asker.writers.clone();
        let misses = able.iter().any(|node| !writers.contains(node));
        if writers.len() < most || misses && !self.servers.is_chosen_by_weirs() {
            return self.fail(|| format!("weir {weir} writes on {writers:?}, {able:?} could"));
        }
        if let Some(writer) = asker.writer.filter(|writer| able.contains(writer)) {
            let silence = now - asker.acknowledged_at.max(quiet_since + bound);
            if silence > 3 * asker.settings.client_pause + 3000 * MS {
                return self.fail(|| format!("weir {weir} gets no write through on n{writer}"));
            }
        }
        let readers = self.readers(weir);
        let asker = &self.weirs[weir];
        let is_idle = |node: &usize| {
            let reads = self.truth(*node).reads.yes.is_some() && self.servers.is_quick(*node);
            let is_wanted = asker.wants(*node)
                && asker.reach[*node].clear_since.is_some()
                && !self.servers.is_passed_over(asker, reached, *node);
            reads && is_wanted && !writers.contains(node) && !readers.contains(node)
        };
        if let Some(idle) = (0..self.count()).find(is_idle) {
            self.fail(|| format!("weir {weir} does not read from n{idle}, which is healthy"));
        }
    }

    /// What a change of the writer needs.
    pub(super) fn check_move(&mut self, weir: usize, moved: &Move) {
        let (now, from, to) = (self.context.now, moved.from, moved.to);
        let asker = &self.weirs[weir];
        let before = |moment: Time, bound: Time| moment + bound < now;
        let detect = self.bounds.detect;
        let was_awake = before(asker.awake_since, detect);
        let planned_at = asker.switched_at.max(asker.wished_at);
        let is_planned = planned_at > 0 && !before(planned_at, detect);
        let in_sight = asker.reach[from].clear_since.is_some_and(|since| before(since, detect + BACK))
            && before(asker.probes[from].failed_at, detect + BACK);
        let able = self.truth(from).writes.yes.is_some_and(|since| before(since, detect + BACK));
        let fresh = self.bounds.fresh + self.servers.notice();
        let (writes, ready) = (self.truth(to).refuses_writes(), self.truth(to).ready.no);
        let is_excused = self.is_excused(weir, to) || !was_awake || !moved.is_new;
        if let Some(lost) = writes.filter(|lost| before(*lost, fresh) && !is_excused) {
            let ago = (now - lost) / MS;
            self.fail(|| {
                format!("weir {weir} makes n{to} the writer, which has taken no writes for {ago} ms")
            });
        } else if let Some(lost) = ready
            && writes.is_none()
            && before(lost, fresh)
            && !is_excused
            && !self.servers.is_chosen_by_weirs()
            && self.servers.stands_alone()
        {
            let ago = (now - lost) / MS;
            self.fail(|| format!("weir {weir} makes n{to} the writer, which has been behind for {ago} ms"));
        } else if able && was_awake && !is_planned && in_sight && asker.wants(from) {
            self.fail(|| format!("weir {weir} moves the writer from n{from} to n{to} without need"));
        } else if self.weirs[weir].changes > self.context.tally.disturbances + 1 {
            self.fail(|| format!("weir {weir} has moved the writer more often than anything happened"));
        }
    }
}
