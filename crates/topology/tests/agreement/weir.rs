//! One Weir: the real decision, what it writes into the tables, and the steps of a switchover.

use weir_topology::{
    Announcement, Cleared, DrainRow, Endpoint, EpochPolicy, EpochRead, InstanceId, InstanceRow, Intent, Lag,
    Leadership, Millis, Observation, Policy, Proposal, ReadOnlyCheck, ReplicaState, ReplicationPolicy, Roles,
    Switch, SwitchStep, Wish, roles,
};

pub(crate) const WRITERS: u32 = 10;
const READERS: u32 = 20;

/// Each as the monitor has it, in milliseconds.
const BEAT: u64 = 1_000;
const LONE_BEAT: u64 = 3_000;
const LOOK: u64 = 100;

/// What is written at once.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) own: InstanceRow,
    pub(crate) drains: Vec<DrainRow>,
    pub(crate) proposal: Option<Proposal>,
}

/// How far a switchover has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits until it is known which other Weirs there are.
    Begins,
    /// Statements are held; its own sessions and those of others are waited for.
    Waits,
    /// The old writer is read_only; from that moment on the next one may be made writable.
    Moves,
    /// It waits until its own roles show the next writer.
    Follows,
}

#[derive(Clone, Debug)]
pub(crate) struct Switchover {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) step: Step,
    pub(crate) since: u64,
    /// The row's version when the others were asked.
    pub(crate) ordered_at: u64,
}

pub(crate) struct Weir {
    pub(crate) instance: InstanceId,
    policy: Policy,
    intents: Vec<Intent>,
    seen: Vec<Observation>,
    pub(crate) roles: Roles,
    /// The last ones that differ from those before: what operations and workers know.
    published: Roles,
    /// Since when its own row is in the table: what is read from then on counts.
    pub(crate) registered_at: Option<u64>,
    said: Option<(Announcement, Vec<DrainRow>, u64)>,
    looked_at: u64,
    pub(crate) is_writing: bool,
    /// Something since its last decision.
    pub(crate) has_seen: bool,
    pub(crate) switchover: Option<Switchover>,
    /// A switchover that its user orders once more: from where, to where and when.
    pub(crate) reorder: Option<(usize, usize, u64)>,
    /// Transactions of its sessions: on which server, until when.
    pub(crate) transactions: Vec<(usize, u64)>,
    /// The server that its user keeps out.
    pub(crate) keeps_out: Option<usize>,
}

pub(crate) fn server(number: usize) -> Endpoint {
    Endpoint::new(&format!("db{number}"), 3306)
}

pub(crate) fn number(endpoint: &Endpoint) -> usize {
    (0..9).find(|number| server(*number) == *endpoint).unwrap_or(9)
}

impl Weir {
    pub(crate) fn new(name: &str, servers: usize) -> Self {
        let row = |number: usize, hostgroup| Intent {
            endpoint: server(number),
            hostgroup,
            wish: Wish::Online,
            weight: 1,
            max_connections: 100,
            latency_max_us: 0,
            lag_max_s: 0,
        };
        let replication = ReplicationPolicy {
            writer_hostgroup: WRITERS,
            reader_hostgroup: READERS,
            check: ReadOnlyCheck::ReadOnly,
            writer_reads: false,
            lag_when_stopped_s: 60,
            timeouts_max: 3,
            failover_after_ms: None,
        };
        Self {
            instance: name.into(),
            policy: Policy {
                replication: vec![replication],
                epoch: Some(EpochPolicy::new(name)),
                ..Policy::default()
            },
            intents: (0..servers).flat_map(|number| [row(number, WRITERS), row(number, READERS)]).collect(),
            seen: Vec::new(),
            roles: Roles::default(),
            published: Roles::default(),
            registered_at: None,
            said: None,
            looked_at: 0,
            is_writing: false,
            has_seen: false,
            switchover: None,
            reorder: None,
            transactions: Vec::new(),
            keeps_out: None,
        }
    }

    pub(crate) fn leadership(&self) -> Option<&Leadership> {
        self.roles.groups.first()?.leadership.as_ref()
    }

    /// As operations know it.
    pub(crate) fn published_leadership(&self) -> Option<&Leadership> {
        self.published.groups.first()?.leadership.as_ref()
    }

    /// The only writer of the published roles.
    pub(crate) fn writer(&self) -> Option<usize> {
        match self.published.groups.first()?.writers.as_slice() {
            [writer] => Some(number(writer)),
            _ => None,
        }
    }

    /// The announced switchover of another Weir, by its version.
    pub(crate) fn foreign(&self) -> Option<u64> {
        let epoch = self.policy.epoch.as_ref()?;
        self.published_leadership()?.foreign_switch(epoch).map(|(_, version)| version)
    }

    /// Whether the row announces a switchover of its own, of whichever order.
    pub(crate) fn announces(&self) -> bool {
        let row = self.published_leadership().and_then(|known| known.row.as_ref());
        row.and_then(|row| row.switching.as_ref()).is_some_and(|switching| switching.by == self.instance)
    }

    pub(crate) fn sees(&mut self, at: usize, read_only: bool, source: Option<usize>, now: u64) {
        self.has_seen = true;
        let state = ReplicaState {
            read_only: Some(read_only),
            lag: if source.is_some() { Lag::Seconds(0) } else { Lag::NoReplica },
            ..ReplicaState::default()
        };
        let endpoint = server(at);
        let before = self.seen.iter().position(|seen| seen.endpoint == endpoint);
        let previous = before.map(|before| self.seen.remove(before));
        self.seen.push(Observation::after(previous.as_ref(), &endpoint, Millis(now), Ok(state.into())));
    }

    pub(crate) fn has_read(&mut self, at: usize, read: EpochRead) {
        if self.registered_at.is_none() {
            return;
        }
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.endpoint == server(at))
            && seen.epoch.as_ref().is_none_or(|known| known.asked_at <= read.asked_at)
        {
            seen.epoch = Some(read);
            self.has_seen = true;
        }
    }

    /// The rows that were read last about servers which leave.
    fn drains(&self) -> Vec<DrainRow> {
        let reads = self.seen.iter().filter_map(|seen| seen.epoch.as_ref());
        let newest = reads.filter(|read| read.drains.is_some()).max_by_key(|read| read.asked_at);
        newest.and_then(|read| read.drains.clone()).unwrap_or_default()
    }

    /// Decides. `cleared`: whether it tells others that nobody of its sessions writes.
    pub(crate) fn decide(&mut self, cleared: bool, now: u64) {
        self.has_seen = false;
        let version = self.foreign().filter(|_| cleared);
        let cleared = version.map(|version| Cleared { writer_hostgroup: WRITERS, version });
        self.policy.cleared = cleared.into_iter().collect();
        let asks = self.switchover.as_ref().filter(|switchover| switchover.step != Step::Begins);
        let switch = |switchover: &Switchover| Switch {
            writer_hostgroup: WRITERS,
            from: server(switchover.from),
            to: server(switchover.to),
            step: SwitchStep::Ask,
            ordered_at: switchover.ordered_at,
        };
        self.policy.switches = asks.map(switch).into_iter().collect();
        let drains = self.drains();
        let mut intents = self.intents.clone();
        for intent in &mut intents {
            let is_out = |row: &DrainRow| {
                row.wants_out && row.server == intent.endpoint && row.instance != self.instance
            };
            let is_own = self.keeps_out.map(server).as_ref() == Some(&intent.endpoint);
            if is_own || drains.iter().any(is_out) {
                intent.wish = Wish::OfflineSoft;
            }
        }
        let decided = roles(&self.policy, &intents, &self.seen, &self.roles, Millis(now));
        if !decided.same_as(&self.roles) {
            self.published = decided.clone();
        }
        self.roles = decided;
    }

    /// Where it writes and reads the tables: at the writer, also while that is kept out.
    pub(crate) fn tables_at(&self, tells_of_writers: bool) -> Option<usize> {
        let group = self.roles.groups.first()?;
        if let [writer] = group.writers.as_slice() {
            return Some(number(writer));
        }
        let row = self.leadership()?.row.as_ref()?;
        let is_kept_out = group.cannot_write.iter().any(|(server, why)| {
            *server == row.writer && *why == weir_topology::Reason::Wished(Wish::OfflineSoft)
        });
        (tells_of_writers && group.writers.is_empty() && is_kept_out).then(|| number(&row.writer))
    }

    /// What is due to be written.
    pub(crate) fn entry(&mut self, now: u64) -> Option<Entry> {
        let policy = self.policy.epoch.clone()?;
        let nothing = Leadership {
            announcement: Announcement { lease_ms: policy.lease_ms, ..Announcement::default() },
            ..Leadership::default()
        };
        let leadership = self.leadership().cloned().unwrap_or(nothing);
        let says = leadership.announcement;
        let of_others =
            self.drains().into_iter().filter(|row| row.wants_out && row.instance != self.instance);
        let mut servers: Vec<(Endpoint, bool)> = of_others.map(|row| (row.server, false)).collect();
        if let Some(own) = self.keeps_out.map(server) {
            servers.retain(|(server, _)| *server != own);
            servers.push((own, true));
        }
        let row = |(server, wants_out)| DrainRow {
            server,
            instance: self.instance.clone(),
            wants_out,
            sessions: 0,
        };
        let drains: Vec<DrainRow> = servers.into_iter().map(row).collect();
        let pause = if leadership.peers.is_empty() { LONE_BEAT } else { BEAT };
        let is_due = self
            .said
            .as_ref()
            .is_none_or(|(said, told, at)| *said != says || *told != drains || now >= at + pause);
        let proposal = leadership.proposal.filter(|_| self.registered_at.is_some());
        if !is_due && proposal.is_none() {
            return None;
        }
        self.said = Some((says, drains.clone(), now));
        let own = InstanceRow { instance: self.instance.clone(), beat: now, says };
        Some(Entry { own, drains, proposal })
    }

    pub(crate) fn forget_said(&mut self) {
        self.said = None;
    }

    /// Whether it is time to look what others have written.
    pub(crate) fn is_to_look(&mut self, now: u64) -> bool {
        let Some(policy) = self.policy.epoch.as_ref() else { return false };
        let has_peers = self.leadership().is_some_and(|known| known.has_live_peers(policy, Millis(now)));
        let row = self.leadership().and_then(|known| known.row.as_ref());
        let is_planned = row.is_some_and(|row| row.switching.is_some());
        let is_due = (has_peers || is_planned) && now >= self.looked_at + LOOK;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }
}
