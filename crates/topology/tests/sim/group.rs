//! The modelled group communication: who is in which view, which component is Primary, who brings whom up to date.
//!
//! From Galera's documentation ("Quorum Components", "Node Failure and Recovery") and experiments on MariaDB 10.11 with
//! Galera 26.4: silence is noticed after `evs.suspect_timeout`; meanwhile the survivors stay in the old view, call
//! themselves Primary and Synced and commit nothing. The next view is Primary if its members weigh more than half of
//! those of the last Primary one, without those that have left it in order. A node that was stopped and goes on calls
//! itself a member of its old view until it hears from the others.

use std::cmp::Reverse;

use weir_topology::LocalState;

use crate::chaos::Action;
use crate::cluster::{Cluster, Context, Payload};
use crate::epoch_tables::Tables;
use crate::node::{NODES_MAX, Process, View};
use crate::queue::{Event, MS, Time};

/// How a view begins for a member: it is installed at most this much later than elsewhere.
const SPREAD: Time = 40 * MS;

impl Cluster {
    /// Forms the views that are due.
    pub(crate) fn regroup(&mut self, context: &mut Context) {
        self.listen(context);
        // Where not everybody hears everybody, the present components come first, so that they last.
        let standing = |node: &usize| {
            let view = self.nodes[*node].target().map(|view| &self.views[view]);
            Reverse(view.map(|view| (view.primary, view.members.count_ones())))
        };
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(standing);
        let mut seen = 0_u8;
        for seed in order.iter().copied() {
            if seen & (1 << seed) != 0 || !self.hears(context.now, seed, seed) || self.is_apart(seed) {
                continue;
            }
            let mut component = 1_u8 << seed;
            for other in order.iter().copied() {
                let joins = |member: usize| self.is_together(context.now, member, other);
                if seen & (1 << other) == 0 && members(component).all(joins) {
                    component |= 1 << other;
                }
            }
            seen |= component;
            self.settle(context, component);
        }
    }

    /// Whether a node was set up as a cluster of its own.
    pub(crate) fn is_apart(&self, node: usize) -> bool {
        self.nodes[node].runs() && self.nodes[node].history != 0
    }

    /// Whether two nodes are members of one view, as far as the group knows.
    fn is_together(&self, now: Time, one: usize, two: usize) -> bool {
        if self.is_apart(one) || self.is_apart(two) {
            return false;
        }
        match self.silent_since[one][two] {
            None => true,
            Some(since) => {
                let has = |holder: usize, other: usize| {
                    self.nodes[holder].runs()
                        && self.nodes[holder].target().is_some_and(|view| {
                            let view = &self.views[view];
                            view.members & (1 << other) != 0 && view.left & (1 << other) == 0
                        })
                };
                (has(one, two) || has(two, one)) && now < since + self.settings.suspect
            }
        }
    }

    fn settle(&mut self, context: &mut Context, component: u8) {
        let now = context.now;
        if let Some(silent) = members(component).find(|member| !self.hears(now, *member, *member)) {
            let since = self.silent_since[silent][silent].unwrap_or(now);
            let left = (since + self.settings.suspect).saturating_sub(now) + MS;
            return context.after(left, Event::Regroup);
        }
        let pair = members(component)
            .flat_map(|one| members(component).map(move |two| (one, two)))
            .filter_map(|(one, two)| self.silent_since[one][two])
            .min();
        if let Some(since) = pair {
            let left = (since + self.settings.suspect).saturating_sub(now) + MS;
            return context.after(left, Event::Regroup);
        }
        if self.is_settled(component) || self.drop_superseded(context, component) {
            return;
        }
        let view = self.next_view(component);
        self.form(context, component, view);
    }

    /// Whether all members are in the view that the component would form.
    fn is_settled(&self, component: u8) -> bool {
        let mut targets = members(component).map(|member| self.nodes[member].target());
        let Some(Some(view)) = targets.next() else { return false };
        let is_same = targets.all(|target| target == Some(view));
        let view = &self.views[view];
        let lives = |member: usize| view.lives[member] == self.nodes[member].life;
        is_same && view.members == component && members(component).all(lives)
    }

    /// Members of a Primary view that the others have replaced find out that they are alone, before they join again.
    fn drop_superseded(&mut self, context: &mut Context, component: u8) -> bool {
        let primary = |member: usize| self.nodes[member].target().filter(|view| self.views[*view].primary);
        let Some(newest) = members(component).filter_map(primary).max() else { return false };
        let old: Vec<usize> =
            members(component).filter(|member| primary(*member).is_some_and(|view| view < newest)).collect();
        for member in &old {
            let alone = View { primary: false, ..self.next_view(1 << member) };
            self.form(context, 1 << member, alone);
        }
        if !old.is_empty() {
            context.within(100 * MS..500 * MS, Event::Regroup);
        }
        !old.is_empty()
    }

    fn next_view(&self, component: u8) -> View {
        let last = members(component).filter_map(|member| self.nodes[member].last_primary).max();
        let mut lives = [0; NODES_MAX];
        members(component).for_each(|member| lives[member] = self.nodes[member].life);
        let mut view = View { primary: false, conf_id: 0, members: component, lives, left: 0, history: 0 };
        if let Some(last) = last {
            let weight = |mask: u8| members(mask).map(|member| self.settings.weights[member]).sum::<u32>();
            let before = &self.views[last];
            let voters: u8 = members(component)
                .filter(|member| self.nodes[*member].last_primary == Some(last))
                .fold(0, |mask, member| mask | 1 << member);
            let has_data = members(voters).any(|member| self.nodes[member].complete);
            view.primary = has_data && 2 * weight(voters) > weight(before.members & !before.left);
            view.conf_id = before.conf_id + 1;
        }
        view
    }

    pub(crate) fn form(&mut self, context: &mut Context, component: u8, view: View) {
        let id = self.views.len();
        context.disturb(|| {
            let names: Vec<String> = members(component).map(|member| format!("n{member}")).collect();
            let kind = if view.primary { "Primary" } else { "non-Primary" };
            format!("{} form a {kind} view {} (#{id})", names.join(" "), view.conf_id)
        });
        if view.primary && view.history == 0 {
            self.newest_primary = id;
        }
        self.views.push(view);
        for member in members(component) {
            let node = &mut self.nodes[member];
            node.installing = Some(id);
            let life = node.life;
            context.within(MS..SPREAD, Event::Install { node: member, life, view: id });
        }
        // Somebody may have died or have come meanwhile.
        context.after(SPREAD + 10 * MS, Event::Regroup);
    }

    pub(crate) fn install(&mut self, context: &mut Context, node: usize, life: u32, view: usize) {
        let (now, installed) = (context.now, &self.views[view]);
        let (primary, members) = (installed.primary, installed.members);
        let member = &mut self.nodes[node];
        if member.life != life || member.installing != Some(view) {
            return;
        }
        if member.process == Process::Hung {
            // It will, when it goes on.
            return context.after(50 * MS, Event::Install { node, life, view });
        }
        context.disturb(|| format!("n{node} installs view #{view}"));
        member.apply(now);
        member.view = Some(view);
        member.installing = None;
        if !primary {
            (member.state, member.is_open) = (LocalState::Other, true);
            member.transfer += 1;
            return self.refuse_pending(context, node);
        }
        let was_member = member.last_primary.is_some();
        member.last_primary = Some(view);
        let is_behind = member.received < self.logs[member.history].len();
        if !was_member || !member.complete || is_behind {
            if member.state != LocalState::Joining {
                member.state = LocalState::Joining;
                member.complete = false;
                member.transfer += 1;
                let (life, transfer) = (member.life, member.transfer);
                context.within(50 * MS..300 * MS, Event::Join { node, life, transfer });
            }
        } else if member.state == LocalState::Other {
            self.catch_up(context, node);
        }
        // Whoever installs it last lets the others go on.
        (0..self.nodes.len()).filter(|member| members & (1 << member) != 0).for_each(|member| {
            self.commit_pending(context, member);
        });
    }

    fn catch_up(&mut self, context: &mut Context, node: usize) {
        let caught = &mut self.nodes[node];
        caught.state = LocalState::Joined;
        caught.transfer += 1;
        let (life, transfer) = (caught.life, caught.transfer);
        context.within(5 * MS..300 * MS, Event::Synced { node, life, transfer });
    }

    /// A joiner takes a donor; without one it asks again.
    pub(crate) fn join(&mut self, context: &mut Context, node: usize, life: u32, transfer: u32) {
        let joiner = &self.nodes[node];
        if joiner.life != life || joiner.transfer != transfer || joiner.process != Process::Running {
            return;
        }
        let Some(view) = joiner.view else { return };
        let donors: Vec<usize> = members(self.views[view].members)
            .filter(|donor| {
                let donor = &self.nodes[*donor];
                donor.runs()
                    && donor.view == Some(view)
                    && donor.state == LocalState::Synced
                    && donor.complete
            })
            .collect();
        if donors.is_empty() {
            return context.within(100 * MS..400 * MS, Event::Join { node, life, transfer });
        }
        let donor = context.random.pick(&donors);
        let is_whole = context.random.percent(30);
        let took = context.random.within(50 * MS..if is_whole { self.settings.transfer } else { 400 * MS });
        context.disturb(|| {
            format!(
                "n{node} gets {} from n{donor}",
                if is_whole { "a state transfer" } else { "what it lacks" }
            )
        });
        self.nodes[node].is_open = !is_whole;
        let giver = &mut self.nodes[donor];
        giver.state = LocalState::Donor;
        giver.transfer += 1;
        giver.donor_rejects = is_whole && context.random.percent(20);
        let donor = (donor, giver.life, giver.transfer);
        context.after(took, Event::Transferred { joiner: (node, life, transfer), donor });
    }

    pub(crate) fn transferred(
        &mut self,
        context: &mut Context,
        joiner: (usize, u32, u32),
        donor: (usize, u32, u32),
    ) {
        let is_same = |who: (usize, u32, u32), cluster: &Self| {
            let node = &cluster.nodes[who.0];
            (node.life, node.transfer) == (who.1, who.2) && node.process != Process::Dead
        };
        let donor_is_there = is_same(donor, self);
        if donor_is_there {
            self.nodes[donor.0].donor_rejects = false;
            context.disturb(|| format!("n{} has given", donor.0));
            self.catch_up(context, donor.0);
        }
        if !is_same(joiner, self) {
            return;
        }
        if self.nodes[joiner.0].process == Process::Hung {
            return context.after(200 * MS, Event::Transferred { joiner, donor });
        }
        if !donor_is_there {
            context.disturb(|| format!("n{} has lost its donor and gives up", joiner.0));
            self.die(context, joiner.0);
            return context.within(500 * MS..2000 * MS, Event::Act(Action::Start(joiner.0)));
        }
        context.disturb(|| format!("n{} has all data", joiner.0));
        let length = self.logs[0].len();
        let node = &mut self.nodes[joiner.0];
        (node.history, node.received, node.applied) = (0, length, length);
        (node.complete, node.is_open) = (true, true);
        self.catch_up(context, joiner.0);
    }

    pub(crate) fn synced(&mut self, context: &mut Context, node: usize, life: u32, transfer: u32) {
        let synced = &mut self.nodes[node];
        if (synced.life, synced.transfer) != (life, transfer) || synced.state != LocalState::Joined {
            return;
        }
        if synced.process == Process::Hung {
            return context.after(100 * MS, Event::Synced { node, life, transfer });
        }
        synced.state = LocalState::Synced;
        context.disturb(|| format!("n{node} is Synced"));
    }

    /// Whether a node works in the newest Primary component.
    pub(crate) fn has_quorum(&self, node: usize) -> bool {
        let Some(view) = self.nodes[node].view.filter(|_| self.nodes[node].runs()) else { return false };
        let newest = &self.views[self.newest_primary];
        let is_member = newest.members & (1 << node) != 0 && newest.lives[node] == self.nodes[node].life;
        self.views[view].primary && self.nodes[node].history == 0 && is_member
    }

    /// Whether a node says that it is in a Primary component.
    pub(crate) fn claims_quorum(&self, node: usize) -> bool {
        let runs = self.nodes[node].runs() && self.nodes[node].is_open;
        runs && self.nodes[node].view.is_some_and(|view| self.views[view].primary)
    }

    /// Somebody starts a node as a cluster of its own, by mistake.
    pub(crate) fn start_apart(&mut self, context: &mut Context, node: usize) {
        if self.nodes[node].process != Process::Dead {
            return;
        }
        self.start(context, node);
        let (history, id) = (self.logs.len(), self.views.len());
        self.logs.push(Vec::new());
        self.tables.push(Tables::default());
        context.disturb(|| format!("n{node} was started as a cluster of its own"));
        let mut lives = [0; NODES_MAX];
        let apart = &mut self.nodes[node];
        lives[node] = apart.life;
        (apart.history, apart.received, apart.applied, apart.complete) = (history, 0, 0, true);
        (apart.view, apart.last_primary, apart.state) = (Some(id), Some(id), LocalState::Synced);
        apart.joins_at = context.now;
        self.views.push(View { primary: true, conf_id: 1, members: 1 << node, lives, left: 0, history });
        self.listen(context);
    }

    /// What was not on the disk of anybody is gone, also from the Weirs' tables.
    fn rewind(&mut self, length: usize) {
        if length == self.logs[0].len() {
            return;
        }
        self.logs[0].truncate(length);
        let tables = self.tables_after(&self.logs[0]);
        let epoch = tables.row.as_ref().map_or(0, |row| row.epoch);
        self.epochs.retain(|known| known.number <= epoch);
        self.tables[0] = tables;
    }

    /// What the Weirs' tables are made by these transactions.
    pub(crate) fn tables_after(&self, log: &[usize]) -> Tables {
        let mut tables = Tables::default();
        for write in log {
            if let Payload::Enter(entry) = &self.writes[*write].payload {
                tables.apply(entry, self.breach);
            }
        }
        tables
    }

    /// A person makes the most advanced node a Primary component, where all is lost; it must run for that.
    pub(crate) fn bootstrap(&mut self, context: &mut Context) {
        let position = |index: &usize| {
            let node = &self.nodes[*index];
            (node.received, node.runs() && node.complete)
        };
        let ours = (0..self.nodes.len()).filter(|node| self.nodes[*node].history == 0);
        let Some(best) = ours.max_by_key(position) else { return };
        if self.nodes[best].process == Process::Dead {
            self.start(context, best);
            self.nodes[best].joins_at = context.now;
        }
        let length = self.nodes[best].received;
        self.rewind(length);
        let conf_id = self.views.iter().filter(|view| view.history == 0).map(|view| view.conf_id).max();
        // A group that runs goes on counting; one that was started anew begins at 1.
        let runs_on = self.nodes[best].view.is_some();
        let conf_id = if runs_on { conf_id.unwrap_or(0) + 1 } else { 1 };
        if !runs_on {
            self.recounted_at = context.now;
        }
        let mut lives = [0; NODES_MAX];
        lives[best] = self.nodes[best].life;
        context.disturb(|| format!("n{best} is bootstrapped at position {length}"));
        let view = View { primary: true, conf_id, members: 1 << best, lives, left: 0, history: 0 };
        for node in &mut self.nodes {
            if node.history == 0 {
                node.last_primary = None;
            }
        }
        let node = &mut self.nodes[best];
        (node.last_primary, node.complete) = (Some(self.views.len()), true);
        self.form(context, 1 << best, view);
    }
}

/// The nodes of a set.
pub(crate) fn members(set: u8) -> impl Iterator<Item = usize> + Clone {
    (0..NODES_MAX).filter(move |node| set & (1 << node) != 0)
}
