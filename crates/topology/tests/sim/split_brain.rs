//! Models components of one cluster that all call themselves Primary: somebody makes a part that has lost its quorum
//! Primary (`pc.bootstrap`) while the others go on, or two nodes go on apart (`pc.ignore_sb`). Such a branch has the
//! cluster's UUID, its number of the next view, and what the cluster had when it was cut off.

use weir_topology::{LocalState, Role, Status};

use crate::chaos::Action;
use crate::cluster::{Cluster, Context, Path};
use crate::group::members;
use crate::node::{NODES_MAX, View, endpoint, node_of};
use crate::queue::{Event, MS, Time};
use crate::watch::Watch as _;
use crate::world::World;

/// How long it takes until somebody helps the part that has been cut off, beyond what the others need to go on.
const HELP: std::ops::Range<Time> = 1000 * MS..6000 * MS;
/// How long both go on.
const LASTS: std::ops::Range<Time> = 5000 * MS..30_000 * MS;
/// How much longer where the others are lost meanwhile.
const LOST: Time = 20_000 * MS;
/// How long a Weir goes by what it knew before it takes a component out, and a node that was silent to come back.
const NOTICED: Time = 2000 * MS;

impl Cluster {
    /// The nodes of a branch that say that they are Primary.
    fn branch_members(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_branch && self.claims_quorum(*node))
    }

    fn with_quorum(&self) -> usize {
        (0..self.nodes.len()).filter(|node| self.has_quorum(*node)).count()
    }

    /// The nodes of a set that are together in a view without quorum, and have all that they ever received.
    fn without_quorum(&self, set: u8) -> Option<u8> {
        let first = members(set).find(|node| *node < self.nodes.len() && self.nodes[*node].runs())?;
        let view = self.nodes[first].view?;
        let is_fit = |node: usize| {
            let node = &self.nodes[node];
            let is_there = node.runs() && node.history == 0 && node.last_primary.is_some() && node.complete;
            is_there && node.view == Some(view) && node.installing.is_none()
        };
        let here = self.views[view].members;
        (!self.views[view].primary && here & !set == 0 && members(here).all(is_fit)).then_some(here)
    }

    fn next_conf_id(&self, set: u8) -> u64 {
        let last = members(set).filter_map(|node| self.nodes[node].last_primary).max();
        last.map_or(1, |last| self.views[last].conf_id + 1)
    }

    fn lives(&self, set: u8) -> [u32; NODES_MAX] {
        let mut lives = [0; NODES_MAX];
        members(set).for_each(|node| lives[node] = self.nodes[node].life);
        lives
    }

    /// Two that have lost each other go on: this one as the cluster.
    fn go_on_alone(&mut self, context: &mut Context, node: usize) {
        let (set, conf_id) = (1 << node, self.next_conf_id(1 << node));
        let lives = self.lives(set);
        self.form(context, set, View { primary: true, conf_id, members: set, lives, left: 0, history: 0 });
    }

    /// A node of a branch dies, and is there again as what it was.
    pub(crate) fn recover(&mut self, context: &mut Context, node: usize) {
        let before = self.nodes[node].clone();
        if !before.is_branch || !before.runs() || self.views[before.view.unwrap_or(0)].members != 1 << node {
            return;
        }
        self.kill(context, node);
        let back = &mut self.nodes[node];
        let life = back.life;
        (*back, context.disturbed_at) = (before, context.now);
        back.life = life;
        (back.joins_at, back.transfer, back.state) = (context.now, back.transfer + 2, LocalState::Synced);
        back.pending.clear();
        back.unread.clear();
        let view = back.view.unwrap_or(0);
        self.views[view].lives[node] = life;
        self.listen(context);
    }

    /// Nodes without quorum are made Primary.
    fn make_primary(&mut self, context: &mut Context, set: u8) {
        let (history, id, conf_id) = (self.logs.len(), self.views.len(), self.next_conf_id(set));
        let length = members(set).map(|node| self.nodes[node].received).max().unwrap_or(0);
        let log = self.logs[0].get(..length).unwrap_or_default().to_vec();
        self.tables.push(self.tables_after(&log));
        self.logs.push(log);
        let lives = self.lives(set);
        self.views.push(View { primary: true, conf_id, members: set, lives, left: 0, history });
        for node in members(set) {
            context.disturb(|| format!("n{node} is made Primary in a view {conf_id} (#{id}) of its own"));
            let node = &mut self.nodes[node];
            (node.history, node.is_branch, node.received, node.applied) = (history, true, length, length);
            (node.view, node.last_primary, node.state) = (Some(id), Some(id), LocalState::Synced);
            node.joins_at = context.now;
            node.transfer += 1;
        }
        self.listen(context);
    }
}

impl World {
    /// Less than half of the nodes are cut off, none of them a writer; they may be made Primary then.
    pub(crate) fn split(&mut self, node: usize) {
        let count = self.cluster.nodes.len();
        let is_writer = |node: usize| self.weirs.iter().any(|weir| weir.last_writer == Some(node));
        let mut others = (0..count).map(|next| (node + next) % count).filter(|node| !is_writer(*node));
        let size = self.context.random.within(1..2.max(u64::try_from(count.div_ceil(2)).unwrap_or(2)));
        let set =
            others.by_ref().take(usize::try_from(size).unwrap_or(1)).fold(0, |set, node| set | 1 << node);
        self.context.disturb(|| format!("the nodes {set:#b} are cut off"));
        self.cluster.divide(&mut self.context, set);
        let suspect = self.cluster.settings.suspect;
        let helped = suspect + 500 * MS + self.context.random.within(HELP);
        let lost = if self.loses_parts { self.bounds.detect + NOTICED + LOST } else { 0 };
        self.context.calm(helped + NOTICED + lost);
        self.context.after(helped, Event::Act(Action::Branch(set)));
        let ended = helped + lost + self.context.random.within(LASTS);
        self.context.after(ended, Event::Act(Action::Repair));
    }

    /// Nodes that have been cut off are made Primary, if all Weirs write elsewhere.
    pub(crate) fn branch(&mut self, set: u8) {
        let Some(set) = self.cluster.without_quorum(set) else { return };
        let row = self.cluster.tables[0].row.as_ref().map(|row| node_of(&row.writer));
        let running = || self.weirs.iter().filter(|weir| weir.runs);
        let mut writers = running().map(|weir| weir.last_writer).chain(row.map(Some));
        let first = writers.next().flatten();
        let is_agreed = first.is_some() && writers.all(|writer| writer == first);
        let Some(writer) = first.filter(|writer| is_agreed && set & (1 << writer) == 0) else { return };
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        if cluster.nodes.len() == 2 && cluster.without_quorum(1 << writer).is_some() {
            if cluster.nodes[writer].received != cluster.logs[0].len() {
                return;
            }
            cluster.go_on_alone(context, writer);
        } else if cluster.with_quorum() <= set.count_ones() as usize {
            return;
        }
        cluster.make_primary(context, set);
        if self.loses_parts {
            self.plan_loss(set);
        }
    }

    /// What becomes of a branch and of the cluster beside it: views change, the branch is out of sight for a while, and the
    /// others are lost.
    fn plan_loss(&mut self, set: u8) {
        let (count, weirs, random) = (self.cluster.nodes.len(), self.weirs.len(), &mut self.context.random);
        let seen = self.bounds.detect + NOTICED;
        let lost_at = seen + random.within(0..4000 * MS);
        let mut plan = vec![(lost_at, Action::LoseOthers(set, random.percent(60)))];
        for node in 0..count {
            let is_branch = set & (1 << node) != 0;
            let at = random.within(0..lost_at + 8000 * MS);
            match random.within(0..10) {
                0..4 if is_branch => plan.push((at, Action::Recover(node))),
                4..6 if is_branch => plan.extend([
                    (at, Action::Hang(node)),
                    (at + random.within(100 * MS..4000 * MS), Action::Resume(node)),
                ]),
                6..8 if is_branch => {
                    let (weir, path) = (random.below(weirs), Path::any_broken(random));
                    plan.extend([
                        (at, Action::SetPath(weir, node, path)),
                        (
                            at + random.within(100 * MS..4000 * MS),
                            Action::SetPath(weir, node, Path::default()),
                        ),
                    ]);
                }
                8..9 if is_branch => plan.extend([
                    (at, Action::Drain(node, true)),
                    (at + random.within(100 * MS..4000 * MS), Action::Drain(node, false)),
                ]),
                0..4 => plan.extend([
                    (at, Action::Leave(node)),
                    (at + random.within(100 * MS..3000 * MS), Action::Start(node)),
                ]),
                4..6 => plan.push((at, Action::Maintain(node, true))),
                _ => {}
            }
        }
        for (at, action) in plan {
            self.context.after(at, Event::Act(action));
        }
    }

    pub(crate) fn lose_others(&mut self, set: u8, killed: bool) {
        let (cluster, context) = (&mut self.cluster, &mut self.context);
        for node in (0..cluster.nodes.len()).filter(|node| set & (1 << node) == 0) {
            if killed {
                cluster.kill(context, node);
                continue;
            }
            context.disturb(|| format!("no Weir reaches n{node}"));
            for paths in &mut cluster.paths {
                paths[node] = Path { there_broken: true, back_broken: true, delay: 0 };
            }
        }
    }

    /// Whether a Weir must have noticed what has been so since a moment: it has been awake, and its user has wanted the
    /// same.
    fn has_noticed(&self, weir: usize, node: usize, since: Option<Time>) -> bool {
        let asker = &self.weirs[weir];
        let since = since.map(|since| since.max(asker.awake_since).max(asker.wished_at));
        asker.wants(node)
            && since.is_some_and(|since| self.context.now > since + self.bounds.detect + NOTICED)
    }

    /// Whether a Weir must know of the cluster that lasts: a node of it answers.
    fn knows_cluster(&self, weir: usize) -> bool {
        let answers = |node: usize| self.has_noticed(weir, node, self.weirs[weir].reach[node].quorum_since);
        (0..self.cluster.nodes.len()).any(answers)
    }

    /// Who had to go by a branch goes on with that. Who has seen it beside the cluster had not to, whatever it sees now.
    pub(crate) fn note_branches(&mut self) {
        if !self.has_split_brains {
            return;
        }
        for weir in 0..self.weirs.len() {
            for node in 0..self.cluster.nodes.len() {
                let since = self.weirs[weir].reach[node].branch_since;
                let sees = self.weirs[weir].is_awake()
                    && self.weirs[weir].knew_history
                    && self.has_noticed(weir, node, since)
                    && self.knows_cluster(weir);
                let saw = &mut self.weirs[weir].saw_apart[node];
                *saw = self.cluster.nodes[node].is_branch && (*saw || sees);
            }
            let writers = &self.weirs[weir].writers;
            let on_branch = |node: &&usize| self.cluster.nodes[**node].is_branch;
            let is_excused = |node: &usize| !self.weirs[weir].saw_apart[*node];
            if writers.iter().find(on_branch).is_some_and(is_excused) && !self.knows_cluster(weir) {
                (self.weirs[weir].knew_history, self.weirs[weir].follows_branch) = (false, true);
            }
        }
    }

    /// Whether a Weir can't tell the cluster from a branch: it knows neither, has taken the branch for it, or that is as
    /// large.
    pub(crate) fn is_torn(&self, weir: usize) -> bool {
        let (branch, asker) = (self.cluster.branch_members().count(), &self.weirs[weir]);
        asker.follows_branch || branch > 0 && (!asker.knew_history || branch >= self.cluster.with_quorum())
    }

    /// Whether a Weir takes a branch for the cluster that has been out of its sight.
    pub(crate) fn mistakes_branch(&self, weir: usize, node: usize) -> bool {
        self.cluster.nodes[node].is_branch && !self.knows_cluster(weir)
    }

    /// Rule 1: nobody works on a branch while the cluster lasts, nor after it if it was seen beside it.
    pub(crate) fn check_branches(&mut self, weir: usize) {
        let asker = &self.weirs[weir];
        if !self.has_split_brains || !asker.knew_history {
            return;
        }
        let knows_cluster = self.knows_cluster(weir);
        let works = |node: &usize| {
            let is_of_node = |place: &&weir_topology::Place| place.endpoint == endpoint(*node);
            let mut places = asker.roles.places.iter().filter(is_of_node);
            places.any(|place| place.status == Status::Online && place.role != Role::Offline)
        };
        let is_noticed = |node: &usize| {
            let begun = self.cluster.nodes[*node].joins_at.max(asker.awake_since);
            asker.saw_apart[*node] || knows_cluster && self.context.now > begun + self.bounds.detect + NOTICED
        };
        let wrong = self.cluster.branch_members().filter(is_noticed).find(works);
        if let Some(node) = wrong {
            self.fail(|| {
                format!("weir {weir} works with n{node}, which was made Primary apart from the cluster")
            });
        }
    }
}
