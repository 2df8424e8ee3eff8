//! The modelled cluster: processes, the network, and what becomes of writes. The group is in `group.rs`.

use std::collections::VecDeque;

use weir_topology::{EpochRow, GaleraState, LocalState, ProbeError};

use crate::breach::Breach;
use crate::chaos::Chaos;
use crate::epoch_tables::{Entry, Tables};
use crate::node::{self, NODES_MAX, Node, Process, View};
use crate::queue::{Event, MS, Queue, Reply, Time};
use crate::random::Random;
use crate::stage::Tally;

/// The most Weirs of a world.
pub(crate) const WEIRS_MAX: usize = 3;
/// Lines of the trace that are kept.
const TRACE_LINES: usize = 160;

/// What every part of the world needs.
pub(crate) struct Context {
    pub(crate) now: Time,
    pub(crate) queue: Queue,
    pub(crate) random: Random,
    /// When something last happened that may change a role.
    pub(crate) disturbed_at: Time,
    pub(crate) chaos: Chaos,
    pub(crate) tally: Tally,
    /// The first rule that was seen broken.
    pub(crate) violation: Option<String>,
    /// The last lines, if this run is for reading.
    pub(crate) trace: Option<VecDeque<String>>,
}

impl Context {
    /// Of a world that has just begun.
    pub(crate) fn new(random: Random, traced: bool) -> Self {
        Self {
            now: 0,
            queue: Queue::default(),
            random,
            disturbed_at: 0,
            chaos: Chaos::default(),
            tally: Tally::default(),
            violation: None,
            trace: traced.then(VecDeque::new),
        }
    }

    /// Something happens after a time.
    pub(crate) fn after(&mut self, delay: Time, event: Event) {
        self.queue.add(self.now + delay, event);
    }

    /// Something happens after a random time.
    pub(crate) fn within(&mut self, delays: std::ops::Range<Time>, event: Event) {
        let delay = self.random.within(delays);
        self.after(delay, event);
    }

    /// A line of the trace.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            if lines.len() >= TRACE_LINES {
                lines.pop_front();
            }
            lines.push_back(format!("{:>9}.{:03} ms  {}", self.now / MS, self.now % MS, line()));
        }
    }

    /// The same for something that may change a role.
    pub(crate) fn disturb(&mut self, line: impl FnOnce() -> String) {
        self.disturbed_at = self.now;
        self.tally.disturbances += 1;
        self.note(line);
    }

    /// A rule is broken. The first thing that is wrong is what counts.
    pub(crate) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let what = what();
            self.note(|| format!("WRONG: {what}"));
            self.violation = Some(what);
        }
    }
}

/// What the ways between Weirs and nodes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) there_broken: bool,
    pub(crate) back_broken: bool,
    /// The most that a packet takes longer than usual.
    pub(crate) delay: Time,
}

impl Path {
    /// One that breaks, in one direction or both.
    pub(crate) fn any_broken(random: &mut Random) -> Self {
        let (there_broken, back_broken) = random.pick(&[(true, true), (true, false), (false, true)]);
        Self { there_broken, back_broken, delay: 0 }
    }

    /// One that becomes slow.
    pub(crate) fn any_slow(random: &mut Random) -> Self {
        Self { delay: random.within(50 * MS..1500 * MS), ..Self::default() }
    }

    pub(crate) fn works(self) -> bool {
        !self.there_broken && !self.back_broken
    }
}

/// A write that a Weir has sent.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) weir: usize,
    pub(crate) weir_life: u32,
    pub(crate) node: usize,
    pub(crate) node_life: u32,
    /// Its history and its place there, once it is committed.
    pub(crate) committed: Option<(usize, usize)>,
    pub(crate) sent_at: Time,
    pub(crate) payload: Payload,
}

/// An epoch of the cluster's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    pub(crate) begun: Time,
    /// When the claim was sent.
    pub(crate) proposed_at: Time,
    /// The writer of the epoch before.
    pub(crate) former: Option<usize>,
    /// It was closed when it began, and the cluster still had the former writer for as long as it was.
    pub(crate) is_closed: bool,
}

/// What a write does.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// A client's row.
    Client,
    /// An entry of a Weir's own.
    Enter(Box<Entry>),
}

/// What is the same for the whole life of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSettings {
    /// How long a silent node is waited for before a view is formed without it.
    pub(crate) suspect: Time,
    /// `pc.weight` of each node.
    pub(crate) weights: [u32; NODES_MAX],
    /// Nodes do not tell their addresses.
    pub(crate) auto: bool,
    /// A state transfer takes up to this.
    pub(crate) transfer: Time,
}

/// The servers and the network.
pub(crate) struct Cluster {
    pub(crate) settings: ClusterSettings,
    pub(crate) nodes: Vec<Node>,
    pub(crate) views: Vec<View>,
    /// The Primary view that was agreed on last.
    pub(crate) newest_primary: usize,
    /// When views were last counted from 1 again.
    pub(crate) recounted_at: Time,
    /// Broken links between nodes.
    pub(crate) cut: [[bool; NODES_MAX]; NODES_MAX],
    /// Since when two nodes do not hear each other.
    pub(crate) silent_since: [[Option<Time>; NODES_MAX]; NODES_MAX],
    pub(crate) paths: [[Path; NODES_MAX]; WEIRS_MAX],
    /// The transactions of each history, in their order.
    pub(crate) logs: Vec<Vec<usize>>,
    pub(crate) writes: Vec<Write>,
    /// The Weirs' tables in each history.
    pub(crate) tables: Vec<Tables>,
    /// The epochs of the first history.
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) breach: Option<Breach>,
}

impl Cluster {
    /// `count` nodes in one Primary component.
    pub(crate) fn new(settings: ClusterSettings, segments: &[u8]) -> Self {
        let count = segments.len();
        let first = View {
            primary: true,
            conf_id: u64::try_from(count).unwrap_or(0),
            members: u8::try_from((1_u32 << count) - 1).unwrap_or(u8::MAX),
            lives: [0; NODES_MAX],
            left: 0,
            history: 0,
        };
        Self {
            settings,
            nodes: segments.iter().map(|segment| Node::new(*segment)).collect(),
            views: vec![first],
            newest_primary: 0,
            recounted_at: 0,
            cut: [[false; NODES_MAX]; NODES_MAX],
            silent_since: [[None; NODES_MAX]; NODES_MAX],
            paths: [[Path::default(); NODES_MAX]; WEIRS_MAX],
            logs: vec![Vec::new()],
            writes: Vec::new(),
            tables: vec![Tables::default()],
            epochs: Vec::new(),
            breach: None,
        }
    }

    // ---- processes ----

    /// SIGKILL.
    pub(crate) fn kill(&mut self, context: &mut Context, node: usize) {
        if self.nodes[node].process == Process::Dead {
            return;
        }
        context.disturb(|| format!("n{node} is killed"));
        self.die(context, node);
    }

    /// The process is gone; what it had applied is on its disk.
    pub(crate) fn die(&mut self, context: &mut Context, node: usize) {
        let suspect = self.settings.suspect;
        let dead = &mut self.nodes[node];
        dead.apply(context.now);
        dead.process = Process::Dead;
        dead.life += 1;
        dead.transfer += 1;
        dead.received = dead.applied;
        dead.state = LocalState::Other;
        (dead.view, dead.installing, dead.last_primary) = (None, None, None);
        dead.joins_at = context.now + suspect + 300 * MS;
        dead.is_open = true;
        (dead.desync, dead.rejects, dead.busy, dead.backlog, dead.paused_permille) =
            (false, false, false, 0, 0);
        let lost: Vec<usize> = dead.pending.drain(..).chain(dead.unread.drain(..)).collect();
        for write in lost {
            self.reply(context, write, Reply::Broken);
        }
        self.listen(context);
        context.within(suspect..suspect + 100 * MS, Event::Regroup);
    }

    /// SIGTERM: it tells the others before it goes.
    pub(crate) fn leave(&mut self, context: &mut Context, node: usize) {
        if !self.nodes[node].runs() {
            return;
        }
        context.disturb(|| format!("n{node} is shut down in order"));
        if let Some(view) = self.nodes[node].target() {
            self.views[view].left |= 1 << node;
        }
        self.die(context, node);
        self.nodes[node].joins_at = context.now + 100 * MS;
        context.within(5 * MS..60 * MS, Event::Regroup);
    }

    pub(crate) fn start(&mut self, context: &mut Context, node: usize) {
        let now = context.now;
        let started = &mut self.nodes[node];
        if started.process != Process::Dead {
            return;
        }
        if started.history != 0 {
            // Whoever starts it has seen the mistake.
            (started.history, started.received, started.applied) = (0, 0, 0);
            started.is_branch = false;
        }
        started.process = Process::Running;
        started.applied_at = now;
        started.complete = false;
        let joins_at = started.joins_at.max(now) + 200 * MS;
        started.joins_at = joins_at;
        context.disturb(|| format!("n{node} is started"));
        context.after(joins_at - now, Event::Regroup);
        context.within(joins_at - now + 10 * MS..joins_at - now + 300 * MS, Event::Regroup);
    }

    /// SIGSTOP.
    pub(crate) fn hang(&mut self, context: &mut Context, node: usize) {
        if !self.nodes[node].runs() {
            return;
        }
        context.disturb(|| format!("n{node} hangs"));
        self.nodes[node].apply(context.now);
        self.nodes[node].process = Process::Hung;
        self.listen(context);
        let suspect = self.settings.suspect;
        context.within(suspect..suspect + 100 * MS, Event::Regroup);
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self, context: &mut Context, node: usize) {
        if self.nodes[node].process != Process::Hung {
            return;
        }
        context.disturb(|| format!("n{node} goes on"));
        self.nodes[node].process = Process::Running;
        self.nodes[node].applied_at = context.now;
        self.listen(context);
        for write in std::mem::take(&mut self.nodes[node].unread) {
            self.take_write(context, node, write);
        }
        context.within(MS..600 * MS, Event::Regroup);
    }

    // ---- the network ----

    /// Whether two nodes hear each other now.
    pub(crate) fn hears(&self, now: Time, one: usize, two: usize) -> bool {
        let takes_part = |node: usize| self.nodes[node].runs() && self.nodes[node].joins_at <= now;
        takes_part(one) && takes_part(two) && (one == two || !self.cut[one][two])
    }

    /// Notes since when nodes do not hear each other.
    pub(crate) fn listen(&mut self, context: &Context) {
        for one in 0..self.nodes.len() {
            for two in 0..self.nodes.len() {
                let since = self.silent_since[one][two].unwrap_or(context.now);
                self.silent_since[one][two] = (!self.hears(context.now, one, two)).then_some(since);
            }
        }
    }

    /// Cuts or mends the link of two nodes.
    pub(crate) fn set_link(&mut self, context: &mut Context, one: usize, two: usize, cut: bool) {
        self.cut[one][two] = cut;
        self.cut[two][one] = cut;
        self.listen(context);
        let suspect = self.settings.suspect;
        match cut {
            true => context.within(suspect..suspect + 200 * MS, Event::Regroup),
            false => context.within(50 * MS..900 * MS, Event::Regroup),
        }
    }

    /// Cuts all links between nodes of a set and others.
    pub(crate) fn divide(&mut self, context: &mut Context, set: u8) {
        let side = |node: usize| set & (1 << node) != 0;
        for one in 0..self.nodes.len() {
            for two in (0..one).filter(|two| side(*two) != side(one)) {
                self.set_link(context, one, two, true);
            }
        }
    }

    // ---- what clients and probes see ----

    /// What a probe that has come this far gets: nothing while the node hangs.
    pub(crate) fn asked(
        &mut self,
        context: &Context,
        node: usize,
    ) -> Option<Result<GaleraState, ProbeError>> {
        let asked = &mut self.nodes[node];
        asked.apply(context.now);
        match asked.process {
            Process::Dead => Some(Err(ProbeError::Unreachable("connection refused".to_owned()))),
            Process::Hung => None,
            Process::Running => Some(node::answer(node, asked, &self.views, &self.settings)),
        }
    }

    /// A write has come to its node.
    pub(crate) fn take_write(&mut self, context: &mut Context, node: usize, write: usize) {
        let life = self.writes[write].node_life;
        let taker = &mut self.nodes[node];
        taker.apply(context.now);
        match taker.process {
            Process::Dead => return self.reply(context, write, Reply::Broken),
            Process::Hung => return taker.unread.push(write),
            Process::Running if taker.life != life || !taker.is_open => {
                return self.reply(context, write, Reply::Broken);
            }
            Process::Running => {}
        }
        let is_primary = taker.view.is_some_and(|view| self.views[view].primary);
        let works = matches!(taker.state, LocalState::Synced | LocalState::Donor);
        if !is_primary || !works || taker.read_only || taker.rejects {
            return self.reply(context, write, Reply::Refused);
        }
        taker.pending.push(write);
        self.commit_pending(context, node);
    }

    /// Commits what waits on a node, if all members of its view take part.
    pub(crate) fn commit_pending(&mut self, context: &mut Context, node: usize) {
        let Some(view) = self.nodes[node].view else { return };
        let members = self.views[view].members;
        if !self.is_in_settled_primary(context.now, node) {
            return;
        }
        for write in std::mem::take(&mut self.nodes[node].pending) {
            self.commit(context, node, members, write);
        }
    }

    /// Whether a node and all members of its view hear each other, and that is Primary.
    pub(crate) fn is_in_settled_primary(&self, now: Time, node: usize) -> bool {
        let Some(view) = self.nodes[node].view else { return false };
        let is_settled = |member: usize| {
            self.hears(now, node, member)
                && self.nodes[member].view == Some(view)
                && self.nodes[member].installing.is_none()
        };
        let members = self.views[view].members;
        let mut all = (0..self.nodes.len()).filter(|member| members & (1 << member) != 0);
        self.views[view].primary && all.all(is_settled)
    }

    /// Whether its process is stopped.
    pub(crate) fn hangs(&self, node: usize) -> bool {
        self.nodes[node].process == Process::Hung
    }

    /// What an entry in the Weirs' tables changes.
    pub(crate) fn enter(&mut self, context: &mut Context, history: usize, write: usize) {
        let Payload::Enter(entry) = &self.writes[write].payload else { return };
        let tables = &mut self.tables[history];
        let before = tables.row.clone();
        if tables.apply(entry, self.breach) {
            let (weir, row) = (self.writes[write].weir, tables.row.clone());
            if let (0, Some(row)) = (history, &row) {
                self.note_epoch(before.as_ref(), row, (self.writes[write].sent_at, context.now));
            }
            context.disturb(|| format!("    weir {weir} changes the row to {row:?}"));
        }
    }

    /// Notes an epoch that begins, and one that is opened since the cluster goes on without its former writer: that is as
    /// good as one that was claimed open.
    fn note_epoch(&mut self, before: Option<&EpochRow>, row: &EpochRow, (proposed_at, begun): (Time, Time)) {
        if before.map(|row| row.epoch) != Some(row.epoch) {
            let former = before.map(|row| node::node_of(&row.writer));
            let is_closed = !row.is_open;
            self.epochs.push(Epoch { number: row.epoch, begun, proposed_at, former, is_closed });
        } else if row.is_open
            && let Some(at) = self.epochs.iter().position(|known| known.number == row.epoch)
            && self.epochs[at].former.is_some_and(|former| !self.has_quorum(former))
        {
            self.epochs[at].is_closed = false;
        }
    }

    fn commit(&mut self, context: &mut Context, node: usize, members: u8, write: usize) {
        let history = self.nodes[node].history;
        self.logs[history].push(write);
        let position = self.logs[history].len();
        self.writes[write].committed = Some((history, position));
        self.enter(context, history, write);
        for (index, member) in self.nodes.iter_mut().enumerate() {
            if members & (1 << index) != 0 && member.complete {
                member.apply(context.now);
                member.received = position;
            }
        }
        // A node acknowledges what it has applied itself.
        let origin = &mut self.nodes[node];
        let behind = Time::try_from(origin.received - origin.applied).unwrap_or(0);
        let wait = behind * origin.apply_us;
        origin.applied = origin.received;
        let delay = context.random.within(300..2 * MS) + wait.min(500 * MS);
        context.after(delay, Event::Replied { write, reply: Reply::Acknowledged });
    }

    /// Writes that wait on a node which is not Primary any more have failed.
    pub(crate) fn refuse_pending(&mut self, context: &mut Context, node: usize) {
        for write in std::mem::take(&mut self.nodes[node].pending) {
            self.reply(context, write, Reply::Refused);
        }
    }

    fn reply(&mut self, context: &mut Context, write: usize, reply: Reply) {
        context.within(200..2 * MS, Event::Replied { write, reply });
    }
}
