//! Models the agreement of a world's Weirs through the cluster: its tables, causal reads, and what each Weir writes.

use weir_topology::{
    Announcement, Cleared, Endpoint, EpochRead, EpochRow, InstanceRow, Leadership, Millis, Proposal, Role,
    Status, Switch, SwitchStep,
};

use crate::breach::Breach;
use crate::cluster::{Cluster, Context, Payload, Write};
use crate::node::endpoint;
use crate::queue::{Event, MS, Time};
use crate::random::Random;
use crate::watch::Watch;
use crate::weir::{WRITERS, Weir};
use crate::world::World;

/// How long a causal read may wait.
const READ_TIMEOUT: Time = 5000 * MS;
/// How often a Weir writes its own row.
const BEAT: Time = 1000 * MS;
/// How long a statement of a Weir's own may take.
const WRITE_TIMEOUT: Time = 1000 * MS;
/// How long a session may hold up a switchover.
const PIN_GRACE: Time = 5000 * MS;
/// A switchover that has not come about by then is given up.
const SWITCH_TIMEOUT: Time = 3000 * MS;

/// Rows of Weirs that are gone, where there are any.
const GHOSTS: usize = 100;

/// `weir.topology` and `weir.instances`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) row: Option<EpochRow>,
    pub(crate) instances: Vec<InstanceRow>,
}

/// What a Weir writes into the tables.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) proposal: Option<Proposal>,
    pub(crate) own: InstanceRow,
}

impl Tables {
    /// With rows of Weirs that are gone, as after years of containers with names of their own. Some had seen the writer.
    pub(crate) fn with_ghosts(random: &mut Random) -> Self {
        let ghost = |number: usize| InstanceRow {
            instance: format!("ghost{number}").into(),
            beat: random.within(0..1 << 40),
            says: Announcement {
                epoch: random.within(0..3),
                lease_ms: random.within(0..5000),
                sees_writer: random.percent(50),
                clear_of: 0,
            },
        };
        Self { row: None, instances: (0..GHOSTS).map(ghost).collect() }
    }

    /// A transaction takes effect; whether the epoch row changed.
    pub(crate) fn apply(&mut self, entry: &Entry, breach: Option<Breach>) -> bool {
        let changed = entry.proposal.as_ref().and_then(|proposal| {
            let instance = &entry.own.instance;
            match (breach, proposal) {
                // Whatever the row is now.
                (Some(Breach::ComparesNothing), Proposal::Claim { from, .. }) => {
                    let as_read =
                        self.row.clone().map(|row| EpochRow { epoch: from.0, version: from.1, ..row });
                    proposal.applied(as_read.as_ref(), instance)
                }
                _ => proposal.applied(self.row.as_ref(), instance),
            }
        });
        self.instances.retain(|row| row.instance != entry.own.instance);
        self.instances.push(entry.own.clone());
        let has_changed = changed.is_some();
        self.row = changed.or(self.row.take());
        has_changed
    }
}

/// What a Weir does for the agreement.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochState {
    /// Its own row is in the table, written by this process.
    pub(crate) is_registered: bool,
    /// What it has said last, and when it wrote it.
    said: Option<(Announcement, Time)>,
    /// Writes under way: its own row, and a proposal.
    under_way: [Option<(usize, Time)>; 2],
    /// A planned change that it makes.
    pub(crate) switch: Option<(Switch, Time)>,
    /// Its clients hold for a switchover, its own or another's.
    pub(crate) holds: bool,
    /// Writes of its clients that have not been answered, and when they were sent.
    pub(crate) in_flight: Vec<(usize, Time)>,
}

impl Weir {
    pub(crate) fn leadership(&self) -> Option<&Leadership> {
        self.roles.groups.first()?.leadership.as_ref()
    }

    /// The epoch by which it writes.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.leadership()?.row.as_ref()?.epoch)
    }

    /// Whether it may send a write at this moment.
    pub(crate) fn may_write(&self, now: Time, breach: Option<Breach>) -> bool {
        let until = self.leadership().map(Leadership::writes_until);
        let is_over = until.is_some_and(|until| self.clock(now) > until);
        (!is_over || breach == Some(Breach::IgnoresLease)) && !self.epoch_state.holds
    }

    /// The nodes that work, as far as it knows.
    fn working(&self) -> Vec<usize> {
        let works = |role: Role| matches!(role, Role::Writer | Role::BackupWriter | Role::Reader);
        let places =
            || self.roles.places.iter().filter(|place| works(place.role) && place.status == Status::Online);
        (0..self.probes.len())
            .filter(|node| places().any(|place| place.endpoint == endpoint(*node)))
            .collect()
    }

    /// What the next decision needs to know of planned changes.
    pub(crate) fn prepare(&mut self, context: &Context) {
        let Some(epoch) = self.settings.policy.epoch.clone() else { return };
        let foreign = self
            .leadership()
            .and_then(|leadership| leadership.foreign_switch(&epoch))
            .map(|(_, version)| version);
        // Who holds up a switchover for long is closed.
        self.epoch_state.in_flight.retain(|(_, since)| context.now < since + PIN_GRACE);
        let is_clear = self.epoch_state.in_flight.is_empty();
        self.epoch_state.holds = foreign.is_some() || self.epoch_state.switch.is_some();
        let cleared =
            foreign.filter(|_| is_clear).map(|version| Cleared { writer_hostgroup: WRITERS, version });
        self.settings.policy.cleared = cleared.into_iter().collect();
        let writer =
            self.leadership().and_then(|leadership| leadership.row.as_ref()).map(|row| row.writer.clone());
        // Made, or moved elsewhere by somebody else, or it takes too long.
        self.epoch_state.switch.take_if(|(switch, since)| {
            writer.as_ref().is_some_and(|writer| *writer != switch.from)
                || context.now > *since + SWITCH_TIMEOUT
        });
        let agreed = self
            .leadership()
            .is_some_and(|leadership| leadership.awaited.is_empty() && leadership.is_announced);
        if let Some((switch, since)) = &mut self.epoch_state.switch
            && agreed
            && is_clear
            && context.now > *since
        {
            switch.step = SwitchStep::Move;
        }
        let planned = self.epoch_state.switch.iter();
        self.settings.policy.switches = planned.map(|(switch, _)| switch.clone()).collect();
    }
}

impl Cluster {
    /// A causal read: the tables, once the node has everything that the cluster has ordered.
    fn read_tables(&mut self, context: &Context, node: usize) -> Option<Tables> {
        let is_settled = self.is_in_settled_primary(context.now, node);
        let asked = &mut self.nodes[node];
        asked.apply(context.now);
        let is_current = asked.complete && asked.received == asked.applied;
        (is_settled && is_current && asked.is_open && !asked.rejects && !asked.busy)
            .then(|| self.tables[asked.history].clone())
    }
}

impl World {
    /// A Weir reads the tables on a node.
    pub(crate) fn read_due(&mut self, weir: usize, life: u32, node: usize) {
        let pause = self.weirs[weir].settings.read_pause;
        if !self.weirs[weir].working().contains(&node) {
            return self.context.within(pause..pause * 2, Event::ReadDue { weir, life, node });
        }
        let (now, asked_at) = (self.context.now, self.weirs[weir].clock(self.context.now));
        if self.cluster.paths[weir][node].there_broken {
            return self.context.after(READ_TIMEOUT, Event::ReadDue { weir, life, node });
        }
        let event = Event::ReadAsked { weir, life, node, asked_at, deadline: now + READ_TIMEOUT };
        self.context.within(100..1500, event);
    }

    pub(crate) fn read_asked(
        &mut self,
        weir: usize,
        life: u32,
        node: usize,
        asked_at: Millis,
        deadline: Time,
    ) {
        let path = self.cluster.paths[weir][node];
        let read = self.cluster.read_tables(&self.context, node);
        let again = Event::ReadDue { weir, life, node };
        if !self.cluster.claims_quorum(node) && !self.cluster.hangs(node) {
            return self.context.within(50 * MS..150 * MS, again);
        }
        match read {
            Some(_) if path.back_broken => self.context.queue.add(deadline, again),
            Some(Tables { row, instances }) => {
                let read = Box::new(EpochRead { asked_at, row, instances, drains: None, malformed: None });
                let slow = if path.delay > 0 { self.context.random.within(0..path.delay) } else { 0 };
                self.context.within(slow + 100..slow + 1500, Event::Read { weir, life, node, read });
            }
            None if self.context.now + 20 * MS < deadline => {
                self.context.after(20 * MS, Event::ReadAsked { weir, life, node, asked_at, deadline });
            }
            None => self.context.after(0, again),
        }
    }

    pub(crate) fn read_done(&mut self, weir: usize, life: u32, node: usize, read: EpochRead) {
        let asker = &mut self.weirs[weir];
        let pause = asker.settings.read_pause;
        self.context.within(pause / 2..pause * 3 / 2, Event::ReadDue { weir, life, node });
        let server: Endpoint = endpoint(node);
        if !asker.epoch_state.is_registered {
            return;
        }
        if let Some(seen) = asker.seen.iter_mut().find(|seen| seen.endpoint == server)
            && seen.epoch.as_ref().is_none_or(|known| known.asked_at <= read.asked_at)
        {
            seen.epoch = Some(read);
        }
        self.decide(weir);
    }

    /// Has written what a Weir wants to be written.
    pub(crate) fn write_down(&mut self, weir: usize) {
        let now = self.context.now;
        let asker = &mut self.weirs[weir];
        let Some(instance) = asker.settings.policy.epoch.as_ref().map(|epoch| epoch.instance.clone()) else {
            return;
        };
        for slot in &mut asker.epoch_state.under_way {
            *slot = slot.filter(|(_, since)| now < since + WRITE_TIMEOUT);
        }
        let says = asker.leadership().map(|leadership| leadership.announcement).unwrap_or_default();
        let own = InstanceRow { instance, beat: asker.clock(now).0, says };
        let is_due = asker.epoch_state.said.is_none_or(|(said, at)| said != says || now >= at + BEAT);
        let proposal = asker.leadership().and_then(|leadership| leadership.proposal.clone());
        if is_due && asker.epoch_state.under_way[0].is_none() {
            self.write_entry(weir, 0, Entry { proposal: None, own: own.clone() });
            self.weirs[weir].epoch_state.said = Some((says, now));
        }
        if proposal.is_some() && self.weirs[weir].epoch_state.under_way[1].is_none() {
            self.write_entry(weir, 1, Entry { proposal, own });
        }
    }

    fn write_entry(&mut self, weir: usize, slot: usize, entry: Entry) {
        let servers = self.weirs[weir].working();
        if servers.is_empty() {
            return;
        }
        let node = self.context.random.pick(&servers);
        if let Some(proposal) = &entry.proposal {
            self.context.note(|| format!("    weir {weir} proposes on n{node}: {proposal:?}"));
        }
        let id = self.cluster.writes.len();
        let write = Write {
            weir,
            weir_life: self.weirs[weir].life,
            node,
            node_life: self.cluster.nodes[node].life,
            committed: None,
            sent_at: self.context.now,
            payload: Payload::Enter(Box::new(entry)),
        };
        self.cluster.writes.push(write);
        self.weirs[weir].epoch_state.under_way[slot] = Some((id, self.context.now));
        if !self.cluster.paths[weir][node].there_broken {
            self.context.within(100..1500, Event::Written { write: id });
        }
    }

    /// A write of a Weir's own was answered.
    pub(crate) fn entered(&mut self, weir: usize, write: usize, is_committed: bool) {
        let epoch_state = &mut self.weirs[weir].epoch_state;
        for slot in &mut epoch_state.under_way {
            *slot = slot.filter(|(id, _)| *id != write);
        }
        epoch_state.is_registered |= is_committed;
        if !is_committed {
            epoch_state.said = None;
        }
    }
}
