//! The result: who has which role, and why.

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;

use crate::state::Version;
use crate::{Endpoint, GaleraState, LocalState, Maintenance, Millis, Wish};

/// The roles of all servers at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roles {
    /// Every server's place in every hostgroup it is in now, by hostgroup, then endpoint.
    pub places: Vec<Place>,
    /// The Galera clusters, by writer hostgroup.
    pub groups: Vec<Group>,
    /// The version of a writer, else of any server.
    pub server_version: Option<Version>,
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
    /// Its share of the hostgroup's work. 0: only if all others are 0.
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

/// What a server does in a hostgroup.
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

/// A Galera cluster as last decided; also the memory for the next decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The present writers.
    pub writers: Vec<Endpoint>,
    /// Why there is no writer although there was one: statements wait for the next.
    pub hold: Option<Hold>,
    /// When the cluster's roles were decided for the first time.
    pub begun: Option<Millis>,
    /// The newest view that a healthy node reports.
    pub view: Option<View>,
    /// The view in which the present writer, or the lost one, was last seen writing.
    pub writer_view: Option<View>,
    /// Network segment of the last writer.
    pub writer_segment: u8,
    /// Every server that can't write now, and why.
    pub cannot_write: Vec<(Endpoint, Reason)>,
}

/// A lost writer that the cluster has not yet replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The writers that were lost.
    pub lost: Vec<Endpoint>,
    /// Since when.
    pub since: Millis,
}

/// A view of a Galera cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The history.
    pub cluster_state_uuid: String,
    /// Counts the views of the history.
    pub conf_id: u64,
    /// The writer's own address among the members, if known.
    pub writer_address: Option<String>,
    /// When it was first seen.
    pub since: Millis,
}

/// Why a server has, or does not have, a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A plain hostgroup's server.
    Configured,
    /// Was writer and still can.
    StaysWriter,
    /// The first writer.
    ChosenWriter {
        /// Its weight in the writer hostgroup, if it has one there.
        weight: Option<u32>,
    },
    /// Took over from a lost or leaving writer.
    TookOver {
        /// The former writer.
        from: Endpoint,
        /// False: no newer view of the cluster confirmed the loss in time.
        confirmed: bool,
    },
    /// Desynced or donor, and the only one that can write.
    OnlyWriterThoughDesynced,
    /// Could write, not needed.
    CouldWrite,
    /// A healthy reader.
    Healthy,
    /// A donor that answers queries, with a short queue.
    Donor {
        /// Transactions behind.
        recv_queue: u32,
    },
    /// A writer that reads as configured.
    WriterReads,
    /// A writer that reads because nobody else can.
    WriterIsOnlyReader,
    /// Too far behind, but no reader is better.
    LaggingButOnlyReader {
        /// Transactions behind.
        recv_queue: u32,
    },
    /// Not probed yet.
    NotObserved,
    /// The last probe is too long ago.
    NotObservedForLong {
        /// How long.
        age_ms: u64,
    },
    /// The probe could not connect, or was refused.
    Unreachable {
        /// The cause in words.
        cause: String,
    },
    /// Too many probes in a row had no answer.
    TimedOut {
        /// How many.
        timeouts: u32,
    },
    /// `wsrep_connected` is OFF.
    NotConnected,
    /// `wsrep_ready` is OFF.
    NotReady,
    /// Without quorum.
    NonPrimary {
        /// `wsrep_cluster_status`
        cluster_status: String,
    },
    /// The data has another history than the cluster's.
    OtherHistory {
        /// `wsrep_cluster_state_uuid`
        cluster_state_uuid: String,
    },
    /// Others have been in a newer view for a while.
    OldView {
        /// Its `wsrep_cluster_conf_id`.
        conf_id: u64,
        /// Theirs.
        newest: u64,
    },
    /// Joining or Joined.
    NotSynced {
        /// `wsrep_local_state`
        local_state: LocalState,
    },
    /// A donor that rejects queries.
    DonorRejectsQueries,
    /// `wsrep_reject_queries`
    RejectsQueries,
    /// `pxc_maint_mode`
    Maintenance(Maintenance),
    /// `wsrep_desync`
    Desynced,
    /// A donor can't be the writer while another can.
    DonorCannotWrite,
    /// `read_only`
    ReadOnly,
    /// Too far behind to read.
    Lagging {
        /// Transactions behind.
        recv_queue: u32,
        /// The limit that it must get below.
        limit: u32,
    },
    /// Flow control stopped it most of the time.
    FlowControl {
        /// Share of the time, per mille.
        paused_permille: u16,
    },
    /// Waits until the cluster has removed the lost writer.
    AwaitsNewView {
        /// The lost writer.
        lost: Endpoint,
    },
    /// Waits until every server has been looked at once, for the choice of the first writer.
    AwaitsFirstLook,
    /// The user's wish.
    Wished(Wish),
}

impl Roles {
    /// The places of a hostgroup.
    pub fn hostgroup(&self, hostgroup: u32) -> &[Place] {
        let start = self.places.partition_point(|place| place.hostgroup < hostgroup);
        let end = self.places.partition_point(|place| place.hostgroup <= hostgroup);
        self.places.get(start..end).unwrap_or_default()
    }

    /// The Galera cluster whose writers are in `writer_hostgroup`.
    pub fn group(&self, writer_hostgroup: u32) -> Option<&Group> {
        self.groups.iter().find(|group| group.writer_hostgroup == writer_hostgroup)
    }

    /// Whether nothing changed that matters to a statement; figures within reasons may differ.
    pub fn same_as(&self, other: &Self) -> bool {
        let writers = |roles: &Self| -> Vec<_> {
            roles.groups.iter().map(|group| (group.writers.clone(), group.hold.clone())).collect()
        };
        self.server_version == other.server_version
            && self.places.len() == other.places.len()
            && self.places.iter().zip(&other.places).all(|(one, two)| one.same_as(two))
            && writers(self) == writers(other)
    }

    /// Why no server of `hostgroup` takes work: every server that is known there with its reason.
    pub fn explain(&self, hostgroup: u32) -> String {
        let mut reasons: Vec<String> = self
            .hostgroup(hostgroup)
            .iter()
            .filter(|place| place.status != Status::Online)
            .map(|place| format!("{} {}", place.endpoint, place.reason))
            .collect();
        if let Some(group) = self.group(hostgroup) {
            reasons
                .extend(group.cannot_write.iter().map(|(endpoint, reason)| format!("{endpoint} {reason}")));
        } else if reasons.is_empty() {
            // A reader hostgroup is empty only if every server of the cluster is offline.
            let offline = self.places.iter().filter(|place| place.role == Role::Offline);
            reasons.extend(offline.map(|place| format!("{} {}", place.endpoint, place.reason)));
        }
        match reasons.is_empty() {
            true => format!("hostgroup {hostgroup}: no server"),
            false => format!("hostgroup {hostgroup}: {}", reasons.join(", ")),
        }
    }

    /// What is different from `previous`, for the log.
    pub fn changes<'a>(&'a self, previous: &'a Self) -> Vec<Change<'a>> {
        let came = self.places.iter().filter(|place| !previous.places.iter().any(|old| old.same_as(place)));
        let went = previous.places.iter().filter(|place| {
            !self.hostgroup(place.hostgroup).iter().any(|new| new.endpoint == place.endpoint)
        });
        came.map(Change::Is).chain(went.map(Change::NoLonger)).collect()
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("as configured"),
            Self::StaysWriter => f.write_str("was writer and still can"),
            Self::ChosenWriter { weight: Some(weight) } => write!(f, "first choice with weight {weight}"),
            Self::ChosenWriter { weight: None } => f.write_str("first choice by name"),
            Self::TookOver { from, confirmed: true } => write!(f, "took over from {from}"),
            Self::TookOver { from, confirmed: false } => {
                write!(f, "took over from {from}, which can't be reached although the cluster still has it")
            }
            Self::OnlyWriterThoughDesynced => f.write_str("desynced, but no other can write"),
            Self::CouldWrite => f.write_str("could write"),
            Self::Healthy => f.write_str("healthy"),
            Self::Donor { recv_queue } => write!(f, "donor with recv_queue {recv_queue}"),
            Self::WriterReads => f.write_str("writer that also reads"),
            Self::WriterIsOnlyReader => f.write_str("writer that reads because no other can"),
            Self::LaggingButOnlyReader { recv_queue } => {
                write!(f, "recv_queue {recv_queue}, but no other reader is better")
            }
            Self::NotObserved => f.write_str("not probed yet"),
            Self::NotObservedForLong { age_ms } => write!(f, "last probed {age_ms} ms ago"),
            Self::Unreachable { cause } => f.write_str(cause),
            Self::TimedOut { timeouts } => write!(f, "{timeouts} probes in a row without an answer"),
            Self::NotConnected => f.write_str("wsrep_connected is OFF"),
            Self::NotReady => f.write_str("wsrep_ready is OFF"),
            Self::NonPrimary { cluster_status } => write!(f, "wsrep_cluster_status is {cluster_status}"),
            Self::OtherHistory { cluster_state_uuid } => {
                write!(f, "another history, wsrep_cluster_state_uuid is {cluster_state_uuid}")
            }
            Self::OldView { conf_id, newest } => {
                write!(f, "still in view {conf_id} of the cluster, others are in {newest}")
            }
            Self::NotSynced { local_state } => write!(f, "wsrep_local_state is {}", local_state.name()),
            Self::DonorRejectsQueries => f.write_str("donor that rejects queries"),
            Self::RejectsQueries => f.write_str("wsrep_reject_queries is set"),
            Self::Maintenance(Maintenance::Shutdown) => f.write_str("pxc_maint_mode is SHUTDOWN"),
            Self::Maintenance(_) => f.write_str("pxc_maint_mode is MAINTENANCE"),
            Self::Desynced => f.write_str("wsrep_desync is ON"),
            Self::DonorCannotWrite => f.write_str("donor or desynced"),
            Self::ReadOnly => f.write_str("read_only"),
            Self::Lagging { recv_queue, limit } => write!(f, "recv_queue {recv_queue} is more than {limit}"),
            Self::FlowControl { paused_permille } => {
                write!(f, "flow control paused it for {}% of the time", paused_permille / 10)
            }
            Self::AwaitsNewView { lost } => write!(f, "waits until the cluster has removed {lost}"),
            Self::AwaitsFirstLook => f.write_str("waits until every server has been probed once"),
            Self::Wished(Wish::Online) => f.write_str("mysql_servers.status is ONLINE"),
            Self::Wished(Wish::OfflineSoft) => f.write_str("mysql_servers.status is OFFLINE_SOFT"),
            Self::Wished(Wish::OfflineHard) => f.write_str("mysql_servers.status is OFFLINE_HARD"),
        }
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

impl View {
    pub(crate) fn of(state: &GaleraState, since: Millis) -> Self {
        Self {
            cluster_state_uuid: state.cluster_state_uuid.clone(),
            conf_id: state.cluster_conf_id,
            writer_address: None,
            since,
        }
    }
}
