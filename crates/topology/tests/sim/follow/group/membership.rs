//! Models how a group decides who is in it and who its primary is, and when each member finds out.

use weir_topology::MemberState;

use super::super::{Model, What};
use super::{Group, View};
use crate::cluster::Context;
use crate::group::members;
use crate::node::{NODES_MAX, Process};
use crate::queue::MS;

impl Group {
    /// The majority decides who is in the next view.
    pub(super) fn regroup(&mut self, context: &mut Context) {
        if !self.has_majority() {
            return;
        }
        let (now, view, majority) = (context.now, self.views[self.view].clone(), self.majority);
        let is_due = |node: &usize| {
            // One that does not hear it is enough.
            let since = members(majority).map(|member| self.silent_since[member][*node].unwrap_or(now)).min();
            let is_gone = !self.takes_part(&view, *node) && self.members[*node].host.runs();
            is_gone || since.is_some_and(|since| now >= since + self.suspect + self.expel)
        };
        let expelled: u8 =
            members(view.members & !majority).filter(is_due).fold(0, |set, node| set | 1 << node);
        let joins = |node: &usize| {
            self.members[*node].joins
                && view.members & (1 << node) == 0
                && members(majority).all(|member| self.hears(member, *node))
        };
        let joiners: u8 = (0..self.members.len()).filter(joins).fold(0, |set, node| set | 1 << node);
        let next = (view.members & !expelled) | joiners;
        if next != view.members {
            for node in members(joiners) {
                let joiner = &mut self.members[node];
                (joiner.joins, joiner.state, joiner.read_only) = (false, MemberState::Recovering, true);
                joiner.view = self.views.len();
                self.later(context, node, What::Recovered, 50 * MS..3000 * MS);
            }
            self.form(context, View { members: next, number: view.number + 1, ..view });
        }
        for node in members(majority).filter(|node| self.members[*node].view != self.view) {
            self.later(context, node, What::Install(self.view), MS..40 * MS);
        }
        self.catch_up(context);
        self.tell_expelled(context);
    }

    /// Members that were out of hearing for a moment get what they have missed.
    fn catch_up(&mut self, context: &mut Context) {
        self.refresh();
        let length = self.log.len();
        for node in members(self.majority) {
            self.apply(context.now, node);
            self.members[node].received = length;
        }
    }

    /// Who believes in an older view and hears a member of the newest finds out, and joins again.
    fn tell_expelled(&mut self, context: &mut Context) {
        let view = &self.views[self.view];
        for node in 0..self.members.len() {
            let member = &self.members[node];
            let believes = matches!(member.state, MemberState::Online | MemberState::Recovering)
                && self.views[member.view].history == view.history;
            let is_out = view.members & (1 << node) == 0 || view.lives[node] != member.host.life;
            if believes && is_out && members(self.majority).any(|other| self.hears(node, other)) {
                self.later(context, node, What::Expelled, 20 * MS..400 * MS);
            }
        }
    }

    pub(super) fn form(&mut self, context: &mut Context, mut view: View) {
        let id = self.views.len();
        for node in members(view.members & !self.views[self.view].members) {
            view.lives[node] = self.members[node].host.life;
        }
        let is_able = |node: &usize| {
            let member = &self.members[*node];
            member.state == MemberState::Online && self.takes_part(&view, *node)
        };
        if self.single && view.primary.is_none_or(|primary| view.members & (1 << primary) == 0) {
            view.primary = members(view.members & self.majority).find(is_able);
        }
        context.disturb(|| {
            format!("view {} #{id}: members {:#b}, primary {:?}", view.number, view.members, view.primary)
        });
        for node in members(view.members) {
            self.later(context, node, What::Install(id), MS..40 * MS);
        }
        self.views.push(view);
        self.view = id;
        self.refresh();
    }

    pub(super) fn install(&mut self, context: &mut Context, node: usize, view: usize) {
        let installed = &self.views[view];
        let member = &mut self.members[node];
        let is_member = installed.members & (1 << node) != 0 && installed.lives[node] == member.host.life;
        let is_in = matches!(member.state, MemberState::Online | MemberState::Recovering);
        if !is_member || !is_in || view <= member.view && member.state == MemberState::Online {
            return;
        }
        // Nobody hears of a view from behind a broken link.
        if self.majority & (1 << node) == 0 && view == self.view {
            return;
        }
        context.disturb(|| format!("n{node} is in view #{view}"));
        let primary = self.views[view].primary;
        self.members[node].view = view;
        self.told(context, node, primary.unwrap_or(NODES_MAX));
    }

    /// A member hears who is the primary.
    pub(super) fn told(&mut self, context: &mut Context, node: usize, primary: usize) {
        if !self.single {
            return;
        }
        context.disturb(|| format!("n{node} hears that n{primary} is the primary"));
        let member = &mut self.members[node];
        member.primary = Some(primary);
        member.read_only |= primary != node;
        if primary == node {
            self.later(context, node, What::Opens, MS..200 * MS);
        }
    }

    /// It takes writes, if it is to.
    pub(super) fn open(&mut self, context: &mut Context, node: usize) {
        let member = &mut self.members[node];
        let is_primary = !self.single || member.primary == Some(node);
        let is_open = is_primary && !member.wished_read_only && member.state == MemberState::Online;
        if is_open && member.read_only {
            context.disturb(|| format!("n{node} takes writes"));
            member.read_only = false;
        }
    }

    /// The group makes a member its primary because somebody wants it.
    pub(super) fn elect(&mut self, context: &mut Context, node: usize) {
        self.refresh();
        let from = self.views[self.view].primary;
        if self.majority & (1 << node) == 0 || self.members[node].state != MemberState::Online {
            // It did not come about.
            if let Some(from) = from {
                self.later(context, from, What::Opens, MS..5 * MS);
            }
            return;
        }
        context.disturb(|| format!("n{node} is elected"));
        self.views[self.view].primary = Some(node);
        for member in members(self.views[self.view].members) {
            self.later(context, member, What::Told(node), MS..40 * MS);
        }
    }

    pub(super) fn recovered(&mut self, context: &mut Context, node: usize) {
        self.refresh();
        if self.members[node].state != MemberState::Recovering {
            return;
        }
        if self.majority & (1 << node) == 0 {
            return self.later(context, node, What::Recovered, 200 * MS..800 * MS);
        }
        context.disturb(|| format!("n{node} is ONLINE"));
        let length = self.log.len();
        let member = &mut self.members[node];
        member.state = MemberState::Online;
        (member.received, member.applied) = (length, length);
        self.later(context, node, What::Opens, MS..50 * MS);
    }

    pub(super) fn expelled(&mut self, context: &mut Context, node: usize) {
        let view = &self.views[self.view];
        let member = &mut self.members[node];
        let is_out = view.members & (1 << node) == 0 || view.lives[node] != member.host.life;
        if !is_out || matches!(member.state, MemberState::Error | MemberState::Offline) {
            return;
        }
        context.disturb(|| format!("n{node} finds out that it was expelled"));
        (member.state, member.read_only, member.primary) = (MemberState::Error, true, None);
        self.later(context, node, What::Joins, 500 * MS..3000 * MS);
    }

    /// Somebody starts a server as a group of its own, by mistake.
    pub(super) fn start_apart(&mut self, context: &mut Context, node: usize) {
        if self.members[node].host.process != Process::Dead {
            return;
        }
        context.disturb(|| format!("n{node} is bootstrapped as a group of its own"));
        let mut lives = [0; NODES_MAX];
        lives[node] = self.members[node].host.life;
        let primary = self.single.then_some(node);
        self.views.push(View { history: self.histories, number: 1, members: 1 << node, lives, primary });
        self.histories += 1;
        let member = &mut self.members[node];
        member.host.process = Process::Running;
        (member.state, member.view, member.primary) = (MemberState::Online, self.views.len() - 1, primary);
        (member.read_only, member.joins) = (false, false);
        self.listen(context);
    }

    /// A person bootstraps the group anew, from the server that has most.
    pub(super) fn bootstrap(&mut self, context: &mut Context) {
        let ours = (0..self.members.len()).filter(|node| !self.is_apart(*node));
        let Some(best) = ours.max_by_key(|node| self.members[*node].received) else { return };
        context.disturb(|| format!("the group is bootstrapped anew on n{best}"));
        self.log.truncate(self.members[best].received);
        let mut lives = [0; NODES_MAX];
        lives[best] = self.members[best].host.life;
        let primary = self.single.then_some(best);
        self.views.push(View { history: self.histories, number: 1, members: 1 << best, lives, primary });
        self.histories += 1;
        self.view = self.views.len() - 1;
        for node in 0..self.members.len() {
            let member = &mut self.members[node];
            member.received = member.received.min(self.log.len());
            member.applied = member.applied.min(member.received);
            if node == best {
                (member.state, member.view, member.primary) = (MemberState::Online, self.view, primary);
                self.later(context, node, What::Opens, MS..50 * MS);
            } else {
                (member.state, member.read_only, member.primary) = (MemberState::Offline, true, None);
                self.later(context, node, What::Joins, 100 * MS..2000 * MS);
            }
        }
        self.refresh();
    }
}
