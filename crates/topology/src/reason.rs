//! Lists the reasons for which a server has, or does not have, a role: each with its words.

use std::fmt;

use crate::{Endpoint, InstanceId, LocalState, Maintenance, MemberState, Wish};

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
    /// Took over from a writer with a smaller weight.
    TookBack {
        /// The former writer.
        from: Endpoint,
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
    /// Reads all the same, since too few others do.
    NeededReader {
        /// Why it should not.
        despite: Box<Reason>,
        /// How many should read at least.
        readers_min: u32,
    },
    /// A writer that is to be spared.
    WriterStandsAside,
    /// Nodes of another network segment are preferred.
    OtherSegment {
        /// Its own, `gmcast.segment`.
        segment: u8,
        /// The preferred one.
        preferred: u8,
    },
    /// A donor that is to be spared.
    DonorStandsAside,
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
    /// It has begun to answer again after it was lost by its silence, and may not know yet what happened meanwhile.
    JustBack,
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
    /// It calls itself Primary in a component that is not the one that counts.
    SplitBrain {
        /// Its view.
        conf_id: u64,
        /// How many members that has.
        size: u32,
    },
    /// Others have been in a newer view for a while.
    OldView {
        /// Its `wsrep_cluster_conf_id`.
        conf_id: u64,
        /// Theirs.
        newest: u64,
    },
    /// It does not answer, and the others have gone on without it.
    NotInView {
        /// Their `wsrep_cluster_conf_id`.
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
    /// `read_only`, or what else the check looks at.
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
    /// Waits for the first look at `weir.topology`, or for a fresh one.
    AwaitsEpoch,
    /// Waits until the next epoch is written.
    AwaitsClaim,
    /// The writer is to leave, and another Weir does not know that yet.
    AwaitsDrain {
        /// The writer.
        server: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// Another Weir still reaches the lost writer, so the cluster is not without.
    AwaitsPeer {
        /// The lost writer.
        lost: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// A Weir that knew of no other one has fallen silent, and may go on writing to the lost writer for minutes.
    AwaitsSilentPeer {
        /// The lost writer.
        lost: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// `weir.topology` names a writer that this configuration does not have, and another Weir uses it.
    UnknownWriter {
        /// The name.
        writer: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// Waits until no other Weir can be writing by an earlier epoch.
    AwaitsLeases {
        /// The epoch that waits.
        epoch: u64,
    },
    /// Another Weir has claimed the epoch for it.
    WriterOfEpoch {
        /// The epoch.
        epoch: u64,
        /// The other Weir.
        claimed_by: InstanceId,
    },
    /// The primary that the group has chosen.
    GroupPrimary,
    /// A secondary of a single-primary group.
    Secondary,
    /// Waits until the group has another primary.
    AwaitsElection {
        /// The lost one.
        lost: Endpoint,
    },
    /// A new primary that has not yet applied what its group had committed before.
    AwaitsBacklog {
        /// Transactions to go.
        transactions: u32,
    },
    /// Another server of a single-primary group calls itself its primary, too.
    AnotherPrimary {
        /// The other.
        other: Endpoint,
    },
    /// It is in no group.
    NotInGroup,
    /// Its own state in its group, other than ONLINE.
    NotOnline {
        /// `MEMBER_STATE`
        state: MemberState,
    },
    /// It reaches half of its group, or less.
    NoQuorum {
        /// Members that it does not reach.
        unreachable: usize,
        /// Members of its view, itself included.
        members: usize,
    },
    /// Another group than that of the others, or one that was bootstrapped beside it.
    OtherGroup {
        /// The group's name and the first part of its view id.
        group: String,
    },
    /// Servers report different groups, and nothing tells which one counts.
    GroupsDiffer,
    /// The group's newest view has no such member.
    Expelled {
        /// The number of that view.
        newest: u64,
    },
    /// It does not answer, and the group's newest view has no such member.
    SilentAndExpelled {
        /// The number of that view.
        newest: u64,
    },
    /// Most other members of the group do not reach it.
    OutOfGroupsSight,
    /// Too many transactions behind its group to read.
    Behind {
        /// Transactions to certify and to apply.
        transactions: u32,
        /// The limit that it must get below.
        limit: u32,
    },
    /// Too far behind its group, but no reader is better.
    BehindButOnlyReader {
        /// Transactions to certify and to apply.
        transactions: u32,
    },
    /// Is not read_only, which makes it a writer.
    NotReadOnly,
    /// Is one of several servers that are not read_only: all are writers.
    WritesBeside {
        /// The first of the others.
        other: Endpoint,
    },
    /// The variable that the check looks at does not exist.
    NoReadOnlyVariable {
        /// Its name.
        name: &'static str,
    },
    /// Further behind its source than `max_replication_lag` allows.
    ReplicationLag {
        /// How far, in seconds.
        lag_s: u64,
        /// `max_replication_lag`, in seconds.
        limit_s: u32,
    },
    /// Its replication does not run, so that nobody knows how far behind it is.
    ReplicationStopped {
        /// What that counts as, in seconds.
        counts_as_s: u32,
        /// `max_replication_lag`, in seconds.
        limit_s: u32,
    },
    /// Is not read_only, but was the writer, was lost, and has come back after another one had taken its place.
    Replaced {
        /// The other.
        writer: Endpoint,
    },
    /// Is not read_only, and the others replicate from another writer.
    Deposed {
        /// The other.
        writer: Endpoint,
    },
    /// Is not read_only, and too few servers replicate from it.
    NoMajority {
        /// How many do, itself included.
        support: usize,
        /// How many must.
        majority: usize,
    },
    /// Replicates from nobody, so that nobody knows what it lacks.
    NoSource {
        /// The writer.
        writer: Endpoint,
    },
    /// Gets its data from a server that is neither the last writer nor was seen to replicate from it.
    OtherLine,
    /// Replicates from a server that is writable beside the writer.
    OtherSource {
        /// Its source.
        source: Endpoint,
    },
    /// Waits until more servers find that the writer is lost.
    AwaitsVotes {
        /// The lost writer.
        lost: Endpoint,
        /// How many do.
        votes: usize,
        /// How many must.
        majority: usize,
    },
    /// Waits for a moment whether the lost writer comes back.
    AwaitsReturn {
        /// The lost writer.
        lost: Endpoint,
    },
    /// Waits until a replica has been made the writer.
    AwaitsFailover {
        /// The lost writer.
        lost: Endpoint,
    },
    /// The user's wish.
    Wished(Wish),
}

impl Reason {
    /// Whether it says that a reader was too far behind, also of one that read all the same.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Self::Lagging { .. } | Self::LaggingButOnlyReader { .. } => true,
            Self::Behind { .. } | Self::BehindButOnlyReader { .. } => true,
            Self::NeededReader { despite, .. } => despite.is_behind(),
            _ => false,
        }
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
            Self::TookBack { from } => write!(f, "took over from {from}, which has a smaller weight"),
            Self::OnlyWriterThoughDesynced => f.write_str("desynced, but no other can write"),
            Self::CouldWrite => f.write_str("could write"),
            Self::Healthy => f.write_str("healthy"),
            Self::Donor { recv_queue } => write!(f, "donor with recv_queue {recv_queue}"),
            Self::WriterReads => f.write_str("writer that also reads"),
            Self::WriterIsOnlyReader => f.write_str("writer that reads because no other can"),
            Self::NeededReader { despite, readers_min } => {
                write!(f, "reads although {despite}: fewer than {readers_min} others do")
            }
            Self::WriterStandsAside => f.write_str("it is the writer"),
            Self::OtherSegment { segment, preferred } => {
                write!(f, "it is in segment {segment}, not in {preferred}")
            }
            Self::DonorStandsAside => f.write_str("it is a donor"),
            Self::LaggingButOnlyReader { recv_queue } => {
                write!(f, "recv_queue {recv_queue}, but no other reader is better")
            }
            Self::NotObserved => f.write_str("not probed yet"),
            Self::NotObservedForLong { age_ms } => write!(f, "last probed {age_ms} ms ago"),
            Self::Unreachable { cause } => f.write_str(cause),
            Self::TimedOut { timeouts } => write!(f, "{timeouts} probes in a row without an answer"),
            Self::JustBack => f.write_str("answers again after a long silence"),
            Self::NotConnected => f.write_str("wsrep_connected is OFF"),
            Self::NotReady => f.write_str("wsrep_ready is OFF"),
            Self::NonPrimary { cluster_status } => write!(f, "wsrep_cluster_status is {cluster_status}"),
            Self::OtherHistory { cluster_state_uuid } => {
                write!(f, "another history, wsrep_cluster_state_uuid is {cluster_state_uuid}")
            }
            Self::SplitBrain { conf_id, size } => write!(
                f,
                "split brain: Primary in a component of its own (view {conf_id}, {size} members) beside the one that counts \
                 (pc.bootstrap or pc.ignore_sb?)"
            ),
            Self::OldView { conf_id, newest } => {
                write!(f, "still in view {conf_id} of the cluster, others are in {newest}")
            }
            Self::NotInView { newest } => {
                write!(f, "it does not answer, and view {newest} of the cluster is without it")
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
            Self::AwaitsEpoch => f.write_str("waits until weir.topology has been read"),
            Self::AwaitsDrain { server, peer } => {
                write!(f, "waits until another Weir ({peer}) knows that {server} is to leave")
            }
            Self::AwaitsClaim => f.write_str("waits until the next epoch is written to weir.topology"),
            Self::AwaitsPeer { lost, peer } => write!(
                f,
                "waits: another Weir ({peer}) reaches {lost}, so only the path to it from here is broken"
            ),
            Self::AwaitsSilentPeer { lost, peer } => write!(
                f,
                "waits until {lost} is back, or until another Weir ({peer}), which has fallen silent, can't be writing to \
                 it any more"
            ),
            Self::UnknownWriter { writer, peer } => write!(
                f,
                "waits: another Weir ({peer}) uses {writer} as the writer, which is not in mysql_servers here; all \
                 Weirs must name the servers alike"
            ),
            Self::AwaitsLeases { epoch } => {
                write!(f, "waits until no other Weir can be writing by an epoch before {epoch}")
            }
            Self::WriterOfEpoch { epoch, claimed_by } => {
                write!(f, "writer of epoch {epoch}, which another Weir ({claimed_by}) has claimed")
            }
            Self::GroupPrimary => f.write_str("the group's primary"),
            Self::Secondary => f.write_str("secondary of its group"),
            Self::AwaitsElection { lost } => {
                write!(f, "waits until the group has another primary than {lost}")
            }
            Self::AwaitsBacklog { transactions } => {
                write!(f, "new primary, which still has to apply {transactions} earlier transactions")
            }
            Self::AnotherPrimary { other } => write!(f, "{other} reports that it is primary, too"),
            Self::NotInGroup => f.write_str("not a member of a group"),
            Self::NotOnline { state } => write!(f, "its state in the group is {}", state.name()),
            Self::NoQuorum { unreachable, members } => {
                write!(f, "without quorum, it does not reach {unreachable} of {members} members of the group")
            }
            Self::OtherGroup { group } => write!(f, "in another group, {group}"),
            Self::GroupsDiffer => f.write_str("servers report different groups"),
            Self::Expelled { newest } => write!(f, "no member of the group's view {newest}"),
            Self::SilentAndExpelled { newest } => {
                write!(f, "does not answer, and is no member of the group's view {newest} any more")
            }
            Self::OutOfGroupsSight => f.write_str("most other members of the group do not reach it"),
            Self::Behind { transactions, limit } => {
                write!(f, "{transactions} transactions behind, more than {limit}")
            }
            Self::BehindButOnlyReader { transactions } => {
                write!(f, "{transactions} transactions behind, but no other reader is better")
            }
            Self::NotReadOnly => f.write_str("not read_only"),
            Self::WritesBeside { other } => {
                write!(f, "not read_only, and neither is {other}: both are writers")
            }
            Self::NoReadOnlyVariable { name } => write!(f, "read_only, as it has no variable {name}"),
            Self::ReplicationLag { lag_s, limit_s } => {
                write!(f, "{lag_s} s behind its source, more than max_replication_lag {limit_s}")
            }
            Self::ReplicationStopped { counts_as_s, limit_s } => write!(
                f,
                "replication does not run, which counts as {counts_as_s} s behind, more than max_replication_lag \
                 {limit_s}"
            ),
            Self::Replaced { writer } => write!(
                f,
                "not read_only, but {writer} has replaced it while it was away: it gets no work until you make it read_only, or make other servers its replicas"
            ),
            Self::Deposed { writer } => write!(
                f,
                "not read_only, but the others replicate from {writer}: it gets no work until it does, too"
            ),
            Self::NoMajority { support, majority } => write!(
                f,
                "not read_only, but only {support} servers are seen to get their data from it; auto_failover needs {majority}"
            ),
            Self::NoSource { writer } => write!(f, "has no source, and {writer} is the writer"),
            Self::OtherLine => {
                f.write_str("may lack recent writes: its source did not replicate from the last writer")
            }
            Self::OtherSource { source } => write!(f, "replicates from {source}, which is not the writer"),
            Self::AwaitsVotes { lost, votes, majority } => write!(
                f,
                "waits for {lost}: {votes} servers report that they can't connect to it, {majority} are needed for a failover"
            ),
            Self::AwaitsReturn { lost } => {
                write!(f, "waits a moment for {lost}, to which no majority can connect")
            }
            Self::AwaitsFailover { lost } => {
                write!(f, "waits until a replica of {lost} has been made the writer")
            }
            Self::Wished(Wish::Online) => f.write_str("mysql_servers.status is ONLINE"),
            Self::Wished(Wish::OfflineSoft) => f.write_str("mysql_servers.status is OFFLINE_SOFT"),
            Self::Wished(Wish::OfflineHard) => f.write_str("mysql_servers.status is OFFLINE_HARD"),
        }
    }
}
