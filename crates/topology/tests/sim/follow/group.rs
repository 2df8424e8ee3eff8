//! A modelled group: who is in which view, who is its primary, who finds out what when.
//!
//! From the MySQL manual ("Group Replication": "Fault-tolerance", "Responses to Failure Detection and Network
//! Partitioning", "Changing a Group's Primary") and experiments on 8.0 and 8.4: a silent member is shown as UNREACHABLE
//! after a while and expelled later still, if a majority goes on; without one nobody decides anything, and nobody says so
//! but by UNREACHABLE. A member that was stopped or cut off believes in its old view until it hears from the others,
//! then it is in ERROR and joins again. A new primary takes writes when it stops being read_only, which with
//! `group_replication_consistency = EVENTUAL` is before it has applied what it had received.

mod membership;

use weir_topology::{
    ClusterPolicy, GroupMember, GroupState, Intent, MemberState, Policy, ServerState, WriterReads,
};

use super::{Host, Model, Taken, Turn, What};
use crate::chaos::Action;
use crate::cluster::Context;
use crate::group::members;
use crate::node::{NODES_MAX, Process, uuid_of};
use crate::queue::{Event, MS, Time};
use crate::random::Random;
use crate::weir::{BACKUPS, OFFLINE, READERS, WRITERS, row};

/// A membership between two changes.
#[derive(Clone, Debug)]
struct View {
    /// Counts the groups that were bootstrapped.
    history: usize,
    number: u64,
    /// Bit n: server n.
    members: u8,
    lives: [u32; NODES_MAX],
    primary: Option<usize>,
}

struct Member {
    host: Host,
    state: MemberState,
    /// The view that it is in, as far as it knows.
    view: usize,
    /// Whom it takes for the primary.
    primary: Option<usize>,
    read_only: bool,
    /// A person has set it.
    wished_read_only: bool,
    /// It waits to be let in.
    joins: bool,
    received: usize,
    applied: usize,
    applied_at: Time,
    /// Microseconds to apply a transaction.
    apply_us: u64,
    /// Transactions to apply that are not the model's.
    backlog: u32,
}

/// The servers and the network between them.
pub(crate) struct Group {
    single: bool,
    /// After this time a silent member is shown as UNREACHABLE, and after this again it is expelled.
    suspect: Time,
    expel: Time,
    members: Vec<Member>,
    views: Vec<View>,
    /// The view in which the group goes on, if it does.
    view: usize,
    histories: usize,
    cut: [[bool; NODES_MAX]; NODES_MAX],
    silent_since: [[Option<Time>; NODES_MAX]; NODES_MAX],
    log: Vec<usize>,
    /// The members that decide together; empty without a majority.
    majority: u8,
    looked_at: Time,
}

impl Model for Group {
    fn any(random: &mut Random, count: usize, _: u64) -> Self {
        let single = random.percent(65);
        let all = u8::try_from((1_u32 << count) - 1).unwrap_or(u8::MAX);
        let primary = single.then_some(0);
        let view = View { history: 0, number: 3, members: all, lives: [0; NODES_MAX], primary };
        let member = |node: usize| Member {
            host: Host::new(),
            state: MemberState::Online,
            view: 0,
            primary,
            read_only: single && node > 0,
            wished_read_only: false,
            joins: false,
            received: 0,
            applied: 0,
            applied_at: 0,
            apply_us: 50,
            backlog: 0,
        };
        Self {
            single,
            suspect: random.within(50 * MS..2500 * MS),
            expel: random.pick(&[0, 0, 500 * MS, 3000 * MS]),
            members: (0..count).map(member).collect(),
            views: vec![view],
            view: 0,
            histories: 1,
            cut: Default::default(),
            silent_since: Default::default(),
            log: Vec::new(),
            majority: all,
            looked_at: 0,
        }
    }

    fn settings(&self, random: &mut Random) -> (Policy, Vec<Intent>) {
        let group = ClusterPolicy {
            writer_hostgroup: WRITERS,
            backup_writer_hostgroup: BACKUPS,
            reader_hostgroup: READERS,
            offline_hostgroup: OFFLINE,
            max_writers: if self.single { 1 } else { random.pick(&[1, 1, 2, 3]) },
            writer_reads: random.pick(&[WriterReads::No, WriterReads::Yes, WriterReads::OnlyBackups]),
            max_transactions_behind: random.pick(&[0, 10, 100]),
            timeouts_max: u32::try_from(random.within(1..4)).unwrap_or(3),
            choices: weir_topology::Choices::default(),
        };
        let mut intents = Vec::new();
        for node in 0..self.members.len() {
            if random.percent(60) {
                intents.push(row(node, WRITERS, random.pick(&[1, 100, 10_000])));
            }
            intents.push(row(node, READERS, random.pick(&[1, 100, 1000])));
        }
        (Policy { group_replication: vec![group], ..Policy::default() }, intents)
    }

    fn hosts(&self) -> Vec<&Host> {
        self.members.iter().map(|member| &member.host).collect()
    }

    fn host(&mut self, node: usize) -> &mut Host {
        &mut self.members[node].host
    }

    fn say(&mut self, context: &Context, node: usize) -> ServerState {
        self.apply(context.now, node);
        self.note_silence(context.now);
        let member = &self.members[node];
        let mut state = GroupState {
            server_uuid: uuid_of(node),
            group_name: "b9a3d8e7-0000-0000-0000-000000000001".to_owned(),
            single_primary: self.single,
            read_only: member.read_only,
            applier_queue: u32::try_from(member.received - member.applied)
                .unwrap_or(u32::MAX)
                .saturating_add(member.backlog),
            ..GroupState::default()
        };
        let own = |state| GroupMember { id: uuid_of(node), state, is_primary: false };
        if !matches!(member.state, MemberState::Online | MemberState::Recovering) {
            state.members = vec![own(member.state)];
            return state.into();
        }
        let view = &self.views[member.view];
        (state.view_prefix, state.view_number) = (format!("1732195{}", view.history), view.number);
        let shown = |other: usize| {
            let silent = self.silent_since[node][other];
            match self.members[other].state {
                _ if other == node => member.state,
                _ if silent.is_some_and(|since| context.now >= since + self.suspect) => {
                    MemberState::Unreachable
                }
                MemberState::Recovering => MemberState::Recovering,
                _ => MemberState::Online,
            }
        };
        let listed = members(view.members).map(|other| GroupMember {
            id: uuid_of(other),
            state: shown(other),
            is_primary: if self.single { member.primary == Some(other) } else { true },
        });
        state.members = listed.collect();
        state.into()
    }

    fn take(&mut self, context: &mut Context, node: usize, write: usize) -> Taken {
        self.refresh();
        let member = &self.members[node];
        if member.state != MemberState::Online || member.read_only || member.host.busy {
            return Taken::Refused;
        }
        if self.is_apart(node) {
            return Taken::Committed;
        }
        if self.majority & (1 << node) == 0 || member.view != self.view {
            return Taken::Waits;
        }
        self.log.push(write);
        let length = self.log.len();
        for other in members(self.majority) {
            self.apply(context.now, other);
            self.members[other].received = length;
        }
        self.members[node].applied = length;
        Taken::Committed
    }

    fn died(&mut self, context: &mut Context, node: usize, in_order: bool) {
        let dead = &mut self.members[node];
        dead.received = dead.applied;
        (dead.backlog, dead.joins) = (0, false);
        (dead.state, dead.read_only, dead.wished_read_only) = (MemberState::Offline, true, false);
        // Whoever leaves in order tells the others, who decide with it once more.
        let view = self.views[self.view].clone();
        let members = view.members & !(1 << node);
        if in_order && members != 0 && self.majority & (1 << node) != 0 {
            self.form(context, View { members, number: view.number + 1, ..view });
        }
    }

    fn started(&mut self, context: &mut Context, node: usize) {
        self.members[node].applied_at = context.now;
        self.later(context, node, What::Joins, 100 * MS..1500 * MS);
    }

    fn listen(&mut self, context: &mut Context) {
        self.note_silence(context.now);
        let (suspect, expel) = (self.suspect, self.expel);
        for delay in [5 * MS, suspect + MS, suspect + expel + MS] {
            self.later(context, 0, What::Regroup, delay..delay + 60 * MS);
        }
        // One that comes back hears from the others only after a moment.
        self.later(context, 0, What::Regroup, 100 * MS..600 * MS);
    }

    fn turn(&mut self, context: &mut Context, turn: Turn) {
        let Turn { node, life, what } = turn;
        self.note_silence(context.now);
        if let What::Regroup = what {
            return self.regroup(context);
        }
        if self.members[node].host.life != life {
            return;
        }
        if self.members[node].host.process == Process::Hung {
            // When it goes on.
            return self.later(context, node, what, 50 * MS..100 * MS);
        }
        match what {
            What::Install(view) => self.install(context, node, view),
            What::Recovered => self.recovered(context, node),
            What::Opens => self.open(context, node),
            What::Expelled => self.expelled(context, node),
            What::Joins if self.members[node].state != MemberState::Online => {
                context.disturb(|| format!("n{node} joins"));
                (self.members[node].joins, self.members[node].state) = (true, MemberState::Offline);
                self.regroup(context);
            }
            What::Told(primary) => self.told(context, node, primary),
            What::Promoted => self.elect(context, node),
            _ => {}
        }
    }

    fn any_action(&self, random: &mut Random, node: usize, other: usize) -> Action {
        match random.within(0..100) {
            0..20 => Action::Cut(node, other),
            20..40 => Action::Divide(u8::try_from(random.within(1..31)).unwrap_or(1)),
            40..52 => Action::ReadOnly(node, true),
            52..62 => Action::Apply(node, random.within(10 * MS..300 * MS)),
            62..74 => Action::Backlog(node, random.pick(&[5, 11, 60, 101, 5000])),
            74..90 => Action::Switch(node),
            _ => Action::SetApart(node),
        }
    }

    fn act(&mut self, context: &mut Context, action: Action) {
        match action {
            Action::Cut(one, two) => self.set_link(context, one, two, true),
            Action::Mend(one, two) => self.set_link(context, one, two, false),
            Action::Divide(set) => {
                let side = |node: usize| set & (1 << node) != 0;
                for one in 0..self.members.len() {
                    for two in (0..one).filter(|two| side(*two) != side(one)) {
                        self.set_link(context, one, two, true);
                    }
                }
            }
            Action::ReadOnly(node, on) => {
                self.members[node].wished_read_only = on;
                self.members[node].read_only |= on;
                self.later(context, node, What::Opens, MS..5 * MS);
            }
            Action::Apply(node, us) => self.members[node].apply_us = us,
            Action::Backlog(node, queue) => self.members[node].backlog = queue,
            // group_replication_set_as_primary()
            Action::Switch(node) if self.majority & (1 << node) != 0 => {
                if let Some(primary) = self.members[node].primary.filter(|primary| *primary != node) {
                    self.members[primary].read_only = true;
                    self.later(context, node, What::Promoted, 5 * MS..400 * MS);
                }
            }
            Action::StartApart(node) => self.start_apart(context, node),
            _ => {}
        }
    }

    fn repair(&mut self, context: &mut Context) {
        for one in 0..self.members.len() {
            for two in 0..one {
                if self.cut[one][two] {
                    self.set_link(context, one, two, false);
                }
            }
            let member = &mut self.members[one];
            (member.apply_us, member.backlog, member.wished_read_only) = (50, 0, false);
            self.later(context, one, What::Opens, MS..5 * MS);
        }
    }

    fn operate(&mut self, context: &mut Context) -> bool {
        let count = self.members.len();
        if self.has_majority() {
            return false;
        }
        let is_whole = (0..count).all(|one| (0..count).all(|two| self.hears(one, two)));
        if is_whole {
            self.bootstrap(context);
        }
        true
    }

    fn look(&mut self, now: Time) {
        self.looked_at = now;
        self.refresh();
    }

    fn may_write(&self, node: usize) -> bool {
        let member = &self.members[node];
        let is_primary = !self.single || member.primary == Some(node);
        self.may_read(node) && is_primary && !member.read_only
    }

    fn is_ready(&self, node: usize) -> bool {
        let member = &self.members[node];
        self.may_write(node) && member.applied == member.received && member.backlog == 0
    }

    fn may_read(&self, node: usize) -> bool {
        let member = &self.members[node];
        member.host.runs()
            && !member.host.busy
            && member.state == MemberState::Online
            && self.majority & (1 << node) != 0
    }

    fn is_apart(&self, node: usize) -> bool {
        self.views[self.members[node].view].history != self.views[self.view].history
    }

    fn is_left(&self, node: usize) -> bool {
        self.takes_part(&self.views[self.view], node)
    }

    /// It hears more than half of its view, but not all of these each other: whether it decides with them is not modelled. Or
    /// it has not noticed yet that it does not hear them any more, and says that it does.
    fn is_doubtful(&self, node: usize) -> bool {
        let view = &self.views[self.members[node].view];
        let hears = |other: usize| other == node || self.takes_part(view, other) && self.hears(node, other);
        let seems = |other: &usize| {
            let silent = self.silent_since[node][*other];
            hears(*other) || silent.is_some_and(|since| self.looked_at < since + self.suspect)
        };
        let heard = members(view.members).filter(seems).count();
        let is_out = self.takes_part(view, node) && self.majority & (1 << node) == 0;
        is_out && 2 * heard > members(view.members).count()
    }

    fn is_clear(&self) -> bool {
        let count = self.members.len();
        let fit = (0..count).filter(|node| self.may_read(*node)).count();
        let is_first = self.views[self.view].history == 0;
        !(0..count).any(|node| self.is_apart(node)) && (is_first || 2 * fit > count)
    }

    fn is_steady(&self) -> bool {
        self.members.iter().all(|member| member.apply_us < MS)
    }

    fn is_quick(&self, node: usize) -> bool {
        let member = &self.members[node];
        member.apply_us < MS && member.backlog <= 5
    }

    fn notice(&self) -> Time {
        self.suspect + self.expel + 1200 * MS
    }

    fn keeps(&self, write: usize) -> bool {
        self.log.contains(&write)
    }

    fn is_chosen_by_weirs(&self) -> bool {
        !self.single
    }
}

impl Group {
    fn refresh(&mut self) {
        self.majority = self.majority_of(self.view);
    }

    fn later(&self, context: &mut Context, node: usize, what: What, delays: std::ops::Range<Time>) {
        let life = self.members[node].host.life;
        context.within(delays, Event::Turn(Turn { node, life, what }));
    }

    fn hears(&self, one: usize, two: usize) -> bool {
        let runs = |node: usize| self.members[node].host.runs();
        runs(one) && runs(two) && !self.cut[one][two]
    }

    /// Notes since when members do not hear those of their view.
    fn note_silence(&mut self, now: Time) {
        for one in 0..self.members.len() {
            for two in 0..self.members.len() {
                let view = &self.views[self.members[one].view];
                let hears = self.hears(one, two) && self.takes_part(view, two);
                let since = self.silent_since[one][two].unwrap_or(now);
                self.silent_since[one][two] = (!hears).then_some(since);
            }
        }
    }

    fn set_link(&mut self, context: &mut Context, one: usize, two: usize, cut: bool) {
        self.cut[one][two] = cut;
        self.cut[two][one] = cut;
        self.listen(context);
    }

    fn apply(&mut self, now: Time, node: usize) {
        let member = &mut self.members[node];
        let done = (now - member.applied_at) / member.apply_us.max(1);
        let done = usize::try_from(done).unwrap_or(usize::MAX);
        if member.host.runs() && done > 0 {
            member.applied = member.received.min(member.applied.saturating_add(done));
            member.applied_at = now;
        }
    }

    fn has_majority(&mut self) -> bool {
        self.refresh();
        self.majority != 0
    }

    /// Members of a view, in that life, that take part in it.
    fn takes_part(&self, view: &View, node: usize) -> bool {
        let member = &self.members[node];
        view.members & (1 << node) != 0
            && view.lives[node] == member.host.life
            && member.host.runs()
            && matches!(member.state, MemberState::Online | MemberState::Recovering)
            && self.views[member.view].history == view.history
    }

    /// The members of a view that hear each other, if they are more than half.
    fn majority_of(&self, view: usize) -> u8 {
        let view = &self.views[view];
        let mut order: Vec<usize> =
            members(view.members).filter(|node| self.takes_part(view, *node)).collect();
        order.sort_by_key(|node| view.primary != Some(*node));
        for seed in &order {
            let mut set = 1_u8 << seed;
            for other in &order {
                if members(set).all(|member| self.hears(member, *other)) {
                    set |= 1 << other;
                }
            }
            if 2 * set.count_ones() > view.members.count_ones() {
                return set;
            }
        }
        0
    }
}
