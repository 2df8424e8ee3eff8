//! Answers `{"status": {}}`: who writes, who reads, and why.

use std::collections::BTreeMap;

use weir_proxy::stats::{ReportPart, Totals};
use weir_topology::{DrainRow, Endpoint, Group, InstanceId, Leadership, Place, Roles};

use crate::report::address;
use crate::statistics::Statistics;
use crate::worker_sums::total_sums;

/// A running Weir.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Clients connected.
    pub clients: u32,
    /// By writer hostgroup.
    pub clusters: Vec<ClusterStatus>,
    /// By hostgroup, then server.
    pub servers: Vec<ServerStatus>,
    /// What has become of transactions whose servers were lost.
    #[serde(default)]
    pub transactions: TransactionsStatus,
}

/// What has become of transactions whose servers were lost, or had undone them, since Weir was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TransactionsStatus {
    /// Run again.
    pub replayed: u64,
    /// How long their clients waited for that, in microseconds, all together.
    pub replayed_us: u64,
    /// Lost: their clients got 1213.
    pub lost: u64,
    /// COMMITs without an answer whose outcome was asked for.
    pub outcomes_asked: u64,
    /// How long their clients waited for that, in microseconds, all together.
    pub outcomes_asked_us: u64,
    /// Those of them that had been carried out.
    pub outcomes_committed: u64,
}

impl TransactionsStatus {
    fn of(totals: &Totals) -> Self {
        Self {
            replayed: totals.transactions_replayed,
            replayed_us: totals.transactions_replayed_us,
            lost: totals.transactions_lost,
            outcomes_asked: totals.outcomes_asked,
            outcomes_asked_us: totals.outcomes_asked_us,
            outcomes_committed: totals.outcomes_committed,
        }
    }
}

/// A cluster whose roles Weir decides.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ClusterStatus {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// Who takes writes.
    pub writers: Vec<String>,
    /// The writers that were lost, while statements wait for the next one.
    pub lost_writers: Vec<String>,
    /// What the next writer waits for, where that is not a server's own state.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The epoch of the writer, where several Weirs may agree on it; else this Weir goes by what it sees alone.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// Why the epoch can't be read or written, and what follows.
    #[serde(default)]
    pub epoch_trouble: Option<String>,
    /// For that reason no write is sent to the cluster, also where there is a writer.
    #[serde(default)]
    pub sends_no_writes: bool,
    /// A switchover that is written down in the cluster and not wholly finished or undone yet: another Weir has begun it, or
    /// this one, and a server could not be told.
    #[serde(default)]
    pub unfinished_switchover: Option<String>,
    /// Servers of which the cluster and the configuration do not say the same, and what is so.
    #[serde(default)]
    pub discovered: Vec<(String, String)>,
    /// Other Weirs in front of the cluster that have been heard of lately.
    #[serde(default)]
    pub other_weirs: Vec<String>,
    /// Other Weirs that have registered there and have not been heard of lately: stopped, dead or cut off.
    #[serde(default)]
    pub silent_weirs: Vec<String>,
    /// Where dead nodes are to be evicted: whether they would be, or what is missing.
    #[serde(default)]
    pub assist: Option<String>,
    /// Whom a Galera node that joins should name as its donors, the best first.
    #[serde(default)]
    pub donors: Vec<String>,
    /// Other Weirs are told of servers that leave, and tell how many of their sessions are still there.
    #[serde(default)]
    pub shares_drains: bool,
    /// Servers that can't write, and why.
    pub cannot_write: Vec<(String, String)>,
}

/// A server in a hostgroup.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerStatus {
    /// The hostgroup.
    pub hostgroup: u32,
    /// `HOST:PORT`
    pub server: String,
    /// Where it is spoken to; empty if its name has never been resolved.
    #[serde(default)]
    pub address: String,
    /// What it does there.
    pub role: String,
    /// ProxySQL's word for its state.
    pub status: String,
    /// Share of the hostgroup's statements.
    pub weight: u32,
    /// Connections to the server, of all hostgroups, that a session has now.
    pub used: u64,
    /// The same of other Weirs, where the server leaves; none for those that have not said yet.
    #[serde(default)]
    pub used_elsewhere: BTreeMap<String, Option<u64>>,
    /// Other Weirs that may have sessions there, if they still run: they have not been heard of for so long that they are not
    /// waited for.
    #[serde(default)]
    pub unheard_elsewhere: Vec<String>,
    /// Which Weirs want the server out.
    #[serde(default)]
    pub drained_by: Vec<String>,
    /// Those of them that have not been heard of lately.
    #[serde(default)]
    pub drained_by_silent: Vec<String>,
    /// Those that nobody has.
    pub free: u64,
    /// By `weir drain`.
    pub is_drained: bool,
    /// Why its role and state are so.
    pub reason: String,
}

impl ClusterStatus {
    /// The value of `wsrep_sst_donor` for a node that joins; empty if no donor can be recommended.
    ///
    /// The comma at the end lets the group choose another one if none of these can.
    pub fn donor_list(&self) -> String {
        self.donors.iter().map(|donor| format!("{donor},")).collect()
    }

    /// Whether writes are sent to it.
    pub fn takes_writes(&self) -> bool {
        !self.writers.is_empty() && !self.sends_no_writes
    }

    /// Why nobody takes writes, where that is so.
    pub fn why_no_writer(&self) -> String {
        if let Some(trouble) = self.epoch_trouble.as_ref().filter(|_| self.sends_no_writes) {
            return trouble.clone();
        }
        let lost = match self.lost_writers.as_slice() {
            [] => None,
            lost => Some(format!("lost {}, statements wait for the next one", lost.join(", "))),
        };
        let waits = self.waits_for.as_ref().map(|why| format!("the next one {why}"));
        let cannot = self.cannot_write.iter().map(|(server, why)| format!("{server} can't write: {why}"));
        let unfinished =
            self.unfinished_switchover.iter().map(|told| format!("unfinished switchover: {told}"));
        let reasons: Vec<String> = lost.into_iter().chain(waits).chain(unfinished).chain(cannot).collect();
        if reasons.is_empty() { "none is known yet".to_owned() } else { reasons.join("; ") }
    }
}

impl Statistics {
    /// The clusters of now.
    pub fn clusters(&self) -> Vec<ClusterStatus> {
        let unfinished = self.state.unfinished_switchovers();
        let mut discovered = self.state.discovered();
        let mut of_cluster = |hostgroup| {
            let found = discovered.remove(&hostgroup).unwrap_or_default();
            found.into_iter().map(|(server, text)| (server.to_string(), text)).collect()
        };
        let status = |group: &Group| ClusterStatus {
            unfinished_switchover: unfinished.get(&group.writer_hostgroup).cloned(),
            discovered: of_cluster(group.writer_hostgroup),
            ..cluster_status(group)
        };
        self.roles.latest().groups.iter().map(status).collect()
    }

    /// The status of now.
    pub fn status(&self) -> Status {
        let workers = self.collector.report(ReportPart::Servers);
        let roles = self.roles.latest();
        let (drained, known) = (self.state.drained(), self.state.addresses());
        let own = roles.renamed.clone().unwrap_or_else(|| self.instance.clone());
        let server = |place: &Place| {
            let server = place.endpoint.to_string();
            let rows =
                || workers.iter().flat_map(|worker| &worker.servers).filter(|row| row.endpoint == server);
            let trouble =
                place.trouble.as_ref().map(|trouble| format!(", but {trouble}")).unwrap_or_default();
            ServerStatus {
                hostgroup: place.hostgroup,
                address: address(&known, &place.endpoint),
                role: place.role.to_string(),
                status: place.status.word().to_owned(),
                weight: place.weight,
                used: rows().map(|row| row.used).sum(),
                free: rows().map(|row| row.free).sum(),
                used_elsewhere: used_elsewhere(&roles, &place.endpoint, drained.contains(&place.endpoint)),
                unheard_elsewhere: unheard_elsewhere(
                    &roles,
                    &place.endpoint,
                    drained.contains(&place.endpoint),
                ),
                drained_by: drained_by(&roles, &place.endpoint, |_, _| true),
                drained_by_silent: drained_by(&roles, &place.endpoint, |leadership, instance| {
                    *instance != own && !leadership.live.contains(instance)
                }),
                is_drained: drained.contains(&place.endpoint),
                reason: format!("{}{trouble}", place.reason),
                server,
            }
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clients: self.collector.clients(),
            clusters: self.clusters(),
            servers: roles.places.iter().map(server).collect(),
            transactions: TransactionsStatus::of(&total_sums(&self.collector.report(ReportPart::Totals))),
        }
    }
}

/// What the Weirs in front of a server's clusters know of each other, and what they have said of servers that leave; without
/// clusters that the server does not leave.
fn leaving<'r>(
    roles: &'r Roles,
    server: &'r Endpoint,
    is_drained: bool,
) -> impl Iterator<Item = (&'r Leadership, &'r [DrainRow])> {
    roles.groups.iter().filter_map(move |group| {
        let leadership = group.leadership.as_ref()?;
        let rows = leadership.drains.as_deref().unwrap_or_default();
        let is_member = || {
            group.writers.contains(server) || group.cannot_write.iter().any(|(member, _)| member == server)
        };
        // Also where the others do not know it yet, or can't be told.
        let is_left = rows.iter().any(|row| row.server == *server) || (is_drained && is_member());
        is_left.then_some((leadership, rows))
    })
}

/// What other Weirs say of a server that leaves. One that has fallen silent may have sessions there for as long as it may
/// write.
fn used_elsewhere(roles: &Roles, server: &Endpoint, is_drained: bool) -> BTreeMap<String, Option<u64>> {
    let mut used = BTreeMap::new();
    for (leadership, drains) in leaving(roles, server, is_drained) {
        for peer in &leadership.live {
            let row = drains.iter().find(|row| row.server == *server && row.instance == *peer);
            used.insert(peer.to_string(), row.map(|row| row.sessions));
        }
        used.extend(leadership.silent.iter().map(|peer| (peer.to_string(), None)));
    }
    used
}

/// Those that have been silent for longer, and have not said before that nobody of theirs is there.
fn unheard_elsewhere(roles: &Roles, server: &Endpoint, is_drained: bool) -> Vec<String> {
    let mut unheard = Vec::new();
    for (leadership, drains) in leaving(roles, server, is_drained) {
        let left = |name: &InstanceId| {
            drains.iter().any(|row| row.server == *server && row.instance == *name && row.sessions == 0)
        };
        let names = leadership.peers.iter().map(|peer| &peer.instance);
        let names = names.filter(|name| {
            !leadership.live.contains(name) && !leadership.silent.contains(name) && !left(name)
        });
        unheard.extend(names.map(ToString::to_string));
    }
    unheard
}

fn drained_by(
    roles: &Roles,
    server: &Endpoint,
    is_meant: impl Fn(&Leadership, &InstanceId) -> bool,
) -> Vec<String> {
    let mut names = Vec::new();
    for leadership in roles.groups.iter().filter_map(|group| group.leadership.as_ref()) {
        let rows = leadership.drains.iter().flatten().filter(|row| row.wants_out && row.server == *server);
        let rows = rows.filter(|row| is_meant(leadership, &row.instance));
        names.extend(rows.map(|row| row.instance.to_string()));
    }
    names
}

/// A cluster of now.
pub fn cluster_status(group: &Group) -> ClusterStatus {
    let lost = group.hold.as_ref().map(|hold| hold.lost.as_slice()).unwrap_or_default();
    let cannot_write = group.cannot_write.iter();
    let leadership = group.leadership.as_ref();
    let live = leadership.map(|leadership| leadership.live.as_slice()).unwrap_or_default();
    let peers = leadership.map(|leadership| leadership.peers.as_slice()).unwrap_or_default();
    let peers = peers.iter().map(|peer| &peer.instance);
    ClusterStatus {
        writer_hostgroup: group.writer_hostgroup,
        writers: group.writers.iter().map(ToString::to_string).collect(),
        waits_for: group.waits_for.as_ref().map(ToString::to_string),
        epoch: leadership.and_then(|leadership| leadership.row.as_ref()).map(|row| row.epoch),
        shares_drains: leadership.is_some_and(|leadership| leadership.drains.is_some()),
        epoch_trouble: group.epoch_trouble.as_ref().map(ToString::to_string),
        sends_no_writes: group.sends_no_writes(),
        unfinished_switchover: None,
        discovered: Vec::new(),
        other_weirs: live.iter().map(ToString::to_string).collect(),
        silent_weirs: peers.filter(|name| !live.contains(name)).map(ToString::to_string).collect(),
        assist: group.assist.as_deref().map(str::to_owned),
        donors: group.donors.clone(),
        lost_writers: lost.iter().map(ToString::to_string).collect(),
        cannot_write: cannot_write.map(|(server, why)| (server.to_string(), why.to_string())).collect(),
    }
}
