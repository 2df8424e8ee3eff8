//! Defines the result: who has which role, and why.

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;

use crate::observation::Version;
use crate::{Endpoint, InstanceId, Leadership, Millis, Reason};

/// The roles of all servers at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roles {
    /// Every server's place in every hostgroup it is in now, by hostgroup, then endpoint.
    pub places: Vec<Place>,
    /// The clusters, by writer hostgroup.
    pub groups: Vec<Group>,
    /// The version of a writer, else of any server.
    pub server_version: Option<Version>,
    /// This Weir's name among those in front of the same clusters, where it has taken another one than it began with.
    pub renamed: Option<InstanceId>,
}

/// A server's place in a hostgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The hostgroup as it is now, not as configured.
    pub hostgroup: u32,
    /// The server.
    pub endpoint: Endpoint,
    /// What it does there.
    pub role: Role,
    /// Whether it takes work there.
    pub status: Status,
    /// Share of the hostgroup's statements. 0: only if all others are 0.
    pub weight: u32,
    /// The most connections to it in the hostgroup.
    pub max_connections: u32,
    /// Why.
    pub reason: Reason,
    /// What keeps work away from it although its role stands.
    pub trouble: Option<Trouble>,
}

/// Why others are preferred to a server that has a role. Where there are no others, it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Connections to it fail: it is [`Status::Shunned`].
    ConnectFailures {
        /// How many, up to the last one.
        failures: u32,
        /// The last one.
        cause: Arc<str>,
    },
    /// Its pings take too long; it stays [`Status::Online`].
    Slow {
        /// How long.
        latency_ms: u64,
        /// How long they may take.
        limit_ms: u64,
    },
}

/// The role of a server in a hostgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Writes.
    Writer,
    /// Could write.
    BackupWriter,
    /// Reads.
    Reader,
    /// Nothing.
    Offline,
    /// What the user put it there for: a hostgroup without topology rules.
    Plain,
}

/// ProxySQL's status words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Takes work.
    Online,
    /// Takes none for now, it can't be reached.
    Shunned,
    /// Takes no new work; what runs may finish.
    OfflineSoft,
    /// Takes none; its connections are useless or must be closed.
    OfflineHard,
}

/// A cluster as last decided; also the memory for the next decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// By whose rules.
    pub flavour: Flavour,
    /// The present writers.
    pub writers: Vec<Endpoint>,
    /// Why there is no writer although there was one: statements wait for the next.
    pub hold: Option<Hold>,
    /// When the cluster's roles were decided for the first time.
    pub begun: Option<Millis>,
    /// The history that its writers' data belongs to, for those who compare what they know of it: Galera's state uuid, a
    /// group's name, the only writer's own name with asynchronous replication, where another writer may lack what this one
    /// has acknowledged. While there is no writer the last one's counts; empty: unknown, or several writers whose
    /// histories are not one.
    pub history: String,
    /// The newest view that a healthy member reports; plain replication has none.
    pub view: Option<View>,
    /// The view in which the present writer, or the lost one, was last seen writing.
    pub writer_view: Option<View>,
    /// Who wrote in the last component of a Galera cluster that counted, also when they have left in order since.
    pub last_wrote: Vec<Endpoint>,
    /// Network segment of the last writer of a Galera cluster.
    pub writer_segment: u8,
    /// Who could write in their place, by Weir's choice or once the group or the user has made it the writer; the best
    /// first.
    pub successors: Vec<Endpoint>,
    /// Every server that can't write now, and why.
    pub cannot_write: Vec<(Endpoint, Reason)>,
    /// Since when servers could write that do not.
    pub ready_since: Vec<(Endpoint, Millis)>,
    /// Who is to get the writer role back by a switchover.
    pub failback: Option<Endpoint>,
    /// Members of the newest view of a Galera cluster.
    pub view_size: u32,
    /// When that view was first seen, if it has more members than the one before.
    pub joined_at: Option<Millis>,
    /// Who is to take the writer role by a switchover, because the writer is about to give a joining node its state.
    pub yields_to: Option<Endpoint>,
    /// Whom a node of a Galera cluster that joins should name as its donors (`wsrep_node_name`): Synced, and not the
    /// writer; the best first.
    pub donors: Vec<String>,
    /// How it stands with the eviction of dead nodes, in words, where that is wanted. No role goes by it: whoever decides
    /// adds it for those who look.
    pub assist: Option<Arc<str>>,
    /// Why the epoch can't be read or written, and what follows; none where it can, or there is none.
    pub epoch_trouble: Option<EpochTrouble>,
    /// Writers with replication that others have replaced while they were away, and about which nobody has decided since.
    pub replaced: Vec<Endpoint>,
    /// Galera: a node was seen that replicates writes to tables without transactions, and it may still be so.
    pub replicates_all_tables: bool,
    /// Galera: what is known of components that all call themselves Primary.
    pub split: Split,
    /// Servers of a Galera cluster that are the same node as another one, under another name.
    pub second_names: Vec<(Endpoint, Endpoint)>,
    /// Galera nodes that flow control holds up, and since when.
    pub held_up: Vec<(Endpoint, Millis)>,
    /// What the next writer waits for, where that is not a server's own state.
    pub waits_for: Option<Reason>,
    /// Where Weir replaces a lost writer (`auto_failover`): what is known of writers. None elsewhere.
    pub succession: Option<Succession>,
    /// What is known of the epoch; none where this Weir goes by facts alone.
    pub leadership: Option<Leadership>,
}

/// What is known of components of one Galera cluster that all call themselves Primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Since when some exclude each other of which that was not known.
    pub since: Option<Millis>,
    /// Nodes of components that do not count.
    pub apart: Vec<Endpoint>,
    /// Those of them that were seen beside the one that counts for so long that it was no moment between two views.
    pub proven: Vec<Endpoint>,
    /// Nodes of the component that counts, also those that are lost.
    pub counting: Vec<Endpoint>,
}

/// Why an epoch can't be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochTrouble {
    /// In words, with what follows, and the next step.
    pub words: Arc<str>,
    /// This Weir sends no writes to the cluster for that.
    pub stops_writes: bool,
    /// The account may not use the tables, or they are unfit: it lasts until somebody changes that.
    pub is_refused: bool,
}

impl fmt::Display for EpochTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// What is known of the writers of servers with asynchronous replication where Weir replaces a lost one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Succession {
    /// How replicas name the last writer; empty: none was seen.
    pub writer_id: String,
    /// Servers that were seen to get their data from it while it was the writer.
    pub followers: Vec<Endpoint>,
    /// Since when a lost writer has been gone for more than half of the servers.
    pub gone_since: Option<Millis>,
    /// The lost writer that is to be replaced now.
    pub due: Option<Endpoint>,
    /// Former writers, and servers that were writable beside the present one, that do not replicate from it.
    pub deposed: Vec<Endpoint>,
    /// Servers that are writable beside the writer, and former writers without a source: they are to replicate from it.
    pub returned: Vec<Endpoint>,
    /// Replicas that wait until they try again to connect to a source that is there.
    pub unconnected: Vec<Endpoint>,
}

/// The kind of replication of a cluster, and who says which of its servers writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Galera: any healthy node may write, and Weir chooses.
    #[default]
    Galera,
    /// MySQL Group Replication: the group chooses.
    GroupReplication,
    /// Asynchronous replication: whoever sets `read_only` chooses.
    Replication,
}

/// A lost writer that the cluster has not yet replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The writers that were lost.
    pub lost: Vec<Endpoint>,
    /// Since when.
    pub since: Millis,
}

/// A view of a cluster: its membership between two changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which views it can be compared with: `wsrep_cluster_state_uuid`, or a group's name and the first part of its
    /// view id.
    pub history: String,
    /// Counts the views of the history: `wsrep_cluster_conf_id`, or the second part of a group's view id.
    pub number: u64,
    /// How many members it has.
    pub size: u32,
    /// The writer's own address among the members of a Galera cluster, if known.
    pub writer_address: Option<String>,
    /// When it was first seen.
    pub since: Millis,
    /// Since when only older views of the history are reported, if so.
    pub older_since: Option<Millis>,
    /// The oldest view of the history whose members are believed: it takes a moment until all report a new one.
    pub oldest: u64,
}

impl Roles {
    /// The places of a hostgroup.
    pub fn hostgroup(&self, hostgroup: u32) -> &[Place] {
        let start = self.places.partition_point(|place| place.hostgroup < hostgroup);
        let end = self.places.partition_point(|place| place.hostgroup <= hostgroup);
        self.places.get(start..end).unwrap_or_default()
    }

    /// The cluster whose writers are in `writer_hostgroup`.
    pub fn group(&self, writer_hostgroup: u32) -> Option<&Group> {
        self.groups.iter().find(|group| group.writer_hostgroup == writer_hostgroup)
    }

    /// What was decided of a cluster before; nothing if it was none of this flavour.
    pub(crate) fn before(&self, writer_hostgroup: u32, flavour: Flavour) -> Group {
        let known = self.group(writer_hostgroup).filter(|group| group.flavour == flavour);
        known.cloned().unwrap_or_else(|| Group { writer_hostgroup, flavour, ..Group::default() })
    }

    /// Why a server has its place in a hostgroup, if it has one.
    pub(crate) fn reason_in(&self, hostgroup: u32, endpoint: &Endpoint) -> Option<&Reason> {
        let mut places = self.hostgroup(hostgroup).iter();
        places.find(|place| place.endpoint == *endpoint).map(|place| &place.reason)
    }

    /// Whether nothing changed that matters to a statement; figures within reasons may differ.
    pub fn same_as(&self, other: &Self) -> bool {
        self.server_version == other.server_version
            && self.renamed == other.renamed
            && self.places.len() == other.places.len()
            && self.places.iter().zip(&other.places).all(|(one, two)| one.same_as(two))
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(|(one, two)| one.same_as(two))
    }

    /// Why no server of `hostgroup` takes work: every server that is known there with its reason.
    pub fn explain(&self, hostgroup: u32) -> String {
        let mut reasons: Vec<String> = self
            .hostgroup(hostgroup)
            .iter()
            .filter(|place| place.status != Status::Online)
            .map(|place| format!("{}: {}", place.endpoint, place.reason))
            .collect();
        if let Some(group) = self.group(hostgroup) {
            reasons
                .extend(group.cannot_write.iter().map(|(endpoint, reason)| format!("{endpoint}: {reason}")));
        } else if reasons.is_empty() {
            // A reader hostgroup is empty only if every server of the cluster is offline.
            let offline = self.places.iter().filter(|place| place.role == Role::Offline);
            reasons.extend(offline.map(|place| format!("{}: {}", place.endpoint, place.reason)));
        }
        match reasons.is_empty() {
            true => format!("hostgroup {hostgroup}: no server"),
            false => format!("hostgroup {hostgroup}: {}", reasons.join("; ")),
        }
    }

    /// What is different from `previous`, for the log.
    pub fn changes<'a>(&'a self, previous: &'a Self) -> Vec<Change<'a>> {
        let came = self
            .places
            .iter()
            .filter(|place| !previous.hostgroup(place.hostgroup).iter().any(|old| old.same_as(place)));
        let went = previous.places.iter().filter(|place| {
            !self.hostgroup(place.hostgroup).iter().any(|new| new.endpoint == place.endpoint)
        });
        came.map(Change::Is).chain(went.map(Change::NoLonger)).collect()
    }
}

impl Group {
    /// Whether what a server writes to a table without transactions stays with it: Galera as it is set up usually, and groups,
    /// whose members refuse such writes. Replicas get everything.
    pub fn replicates_transactions_only(&self) -> bool {
        match self.flavour {
            Flavour::Galera => !self.replicates_all_tables,
            Flavour::GroupReplication => true,
            Flavour::Replication => false,
        }
    }

    fn same_as(&self, other: &Self) -> bool {
        let agreed = |group: &'_ Self| {
            group.leadership.clone().map(|leadership| {
                let peers: Vec<_> = leadership.peers.into_iter().map(|peer| peer.instance).collect();
                let heard_of = (peers, leadership.live, leadership.silent);
                let switch = (leadership.is_announced, leadership.awaited);
                (leadership.row, switch, leadership.deposed, leadership.drains, heard_of)
            })
        };
        let deeds = |group: &'_ Self| {
            let succession = group.succession.clone().unwrap_or_default();
            (succession.due, succession.returned, succession.unconnected)
        };
        // What else a reason tells may change all the time; votes come and go with servers.
        let awaited = |group: &'_ Self| {
            let votes = group.waits_for.as_ref().and_then(|reason| match reason {
                Reason::AwaitsVotes { votes, .. } => Some(*votes),
                _ => None,
            });
            (group.waits_for.as_ref().map(discriminant), votes)
        };
        (&self.writers, &self.hold, &self.failback, &self.yields_to, &self.assist, &self.epoch_trouble)
            == (
                &other.writers,
                &other.hold,
                &other.failback,
                &other.yields_to,
                &other.assist,
                &other.epoch_trouble,
            )
            && self.donors == other.donors
            && self.history == other.history
            && self.second_names == other.second_names
            && deeds(self) == deeds(other)
            && awaited(self) == awaited(other)
            && agreed(self) == agreed(other)
    }

    /// Whether no write is sent to the cluster, also where it has a writer, because its epoch is not known.
    pub fn sends_no_writes(&self) -> bool {
        self.epoch_trouble.as_ref().is_some_and(|trouble| trouble.stops_writes)
    }

    /// The writers of the last decision, lost ones too.
    pub(crate) fn last_writers(&self) -> &[Endpoint] {
        self.hold.as_ref().map_or(&self.writers, |hold| &hold.lost)
    }
}

/// A difference between two [`Roles`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// A place that is new, or whose role, status, weight or reason changed.
    Is(&'a Place),
    /// A place that is gone.
    NoLonger(&'a Place),
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(place) => write!(f, "{place}"),
            Self::NoLonger(place) => {
                write!(f, "hostgroup {} {}: no longer {}", place.hostgroup, place.endpoint, place.role)
            }
        }
    }
}

impl Place {
    fn same_as(&self, other: &Self) -> bool {
        (self.hostgroup, &self.endpoint, self.role, self.status, self.weight, self.max_connections)
            == (
                other.hostgroup,
                &other.endpoint,
                other.role,
                other.status,
                other.weight,
                other.max_connections,
            )
            && discriminant(&self.reason) == discriminant(&other.reason)
            && self.trouble.as_ref().map(discriminant) == other.trouble.as_ref().map(discriminant)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hostgroup, endpoint, role, status, reason, trouble, .. } = self;
        write!(f, "hostgroup {hostgroup} {endpoint}: {role}: {reason}")?;
        if let Some(trouble) = trouble {
            write!(f, ", but {trouble}")?;
        }
        if *status == Status::Online { Ok(()) } else { write!(f, " ({})", status.word()) }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectFailures { failures, cause } => {
                write!(f, "{failures} connections failed, the last: {cause}")
            }
            Self::Slow { latency_ms, limit_ms } => {
                write!(f, "a ping takes {latency_ms} ms, more than {limit_ms}")
            }
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writer => "writer",
            Self::BackupWriter => "backup writer",
            Self::Reader => "reader",
            Self::Offline => "offline",
            Self::Plain => "server",
        })
    }
}

impl Status {
    /// ProxySQL's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Shunned => "SHUNNED",
            Self::OfflineSoft => "OFFLINE_SOFT",
            Self::OfflineHard => "OFFLINE_HARD",
        }
    }
}
