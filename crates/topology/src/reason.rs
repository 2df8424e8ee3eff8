//! Lists the reasons for which a server has, or does not have, a role: each with its words.

use crate::{Endpoint, InstanceId, LocalState, Maintenance, MemberState, Wish};

/// Why a server has, or does not have, a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A plain hostgroup's server.
    #[error("as configured")]
    Configured,
    /// Was writer and still can.
    #[error("was writer and still can")]
    StaysWriter,
    /// The first writer.
    #[error("first choice {}", first_choice(*.weight))]
    ChosenWriter {
        /// Its weight in the writer hostgroup, if it has one there.
        weight: Option<u32>,
    },
    /// Took over from a lost or leaving writer.
    #[error("took over from {from}{}", although_there(*.confirmed))]
    TookOver {
        /// The former writer.
        from: Endpoint,
        /// False: no newer view of the cluster confirmed the loss in time.
        confirmed: bool,
    },
    /// Took over from a writer with a smaller weight.
    #[error("took over from {from}, which has a smaller weight")]
    TookBack {
        /// The former writer.
        from: Endpoint,
    },
    /// Desynced or donor, and the only one that can write.
    #[error("desynced, but no other can write")]
    OnlyWriterThoughDesynced,
    /// Could write, not needed.
    #[error("could write")]
    CouldWrite,
    /// A healthy reader.
    #[error("healthy")]
    Healthy,
    /// A donor that answers queries, with a short queue.
    #[error("donor with recv_queue {recv_queue}")]
    Donor {
        /// Transactions behind.
        recv_queue: u32,
    },
    /// A writer that reads as configured.
    #[error("writer that also reads")]
    WriterReads,
    /// A writer that reads because nobody else can.
    #[error("writer that reads because no other can")]
    WriterIsOnlyReader,
    /// Reads all the same, since too few others do.
    #[error("reads although {despite}: fewer than {readers_min} others do")]
    NeededReader {
        /// Why it should not.
        despite: Box<Reason>,
        /// How many should read at least.
        readers_min: u32,
    },
    /// A writer that is to be spared.
    #[error("it is the writer")]
    WriterStandsAside,
    /// Nodes of another network segment are preferred.
    #[error("it is in segment {segment}, not in {preferred}")]
    OtherSegment {
        /// Its own, `gmcast.segment`.
        segment: u8,
        /// The preferred one.
        preferred: u8,
    },
    /// A donor that is to be spared.
    #[error("it is a donor")]
    DonorStandsAside,
    /// Too far behind, but no reader is better.
    #[error("recv_queue {recv_queue}, but no other reader is better")]
    LaggingButOnlyReader {
        /// Transactions behind.
        recv_queue: u32,
    },
    /// Not probed yet.
    #[error("not probed yet")]
    NotObserved,
    /// The last probe is too long ago.
    #[error("last probed {age_ms} ms ago")]
    NotObservedForLong {
        /// How long.
        age_ms: u64,
    },
    /// The probe could not connect, or was refused.
    #[error("{cause}")]
    Unreachable {
        /// The cause in words.
        cause: String,
    },
    /// Too many probes in a row had no answer.
    #[error("{timeouts} probes in a row without an answer")]
    TimedOut {
        /// How many.
        timeouts: u32,
    },
    /// It has begun to answer again after it was lost by its silence, and may not know yet what happened meanwhile.
    #[error("answers again after a long silence")]
    JustBack,
    /// `wsrep_connected` is OFF.
    #[error("wsrep_connected is OFF")]
    NotConnected,
    /// `wsrep_ready` is OFF.
    #[error("wsrep_ready is OFF")]
    NotReady,
    /// Without quorum.
    #[error("wsrep_cluster_status is {cluster_status}")]
    NonPrimary {
        /// `wsrep_cluster_status`
        cluster_status: String,
    },
    /// The data has another history than the cluster's.
    #[error("another history, wsrep_cluster_state_uuid is {cluster_state_uuid}")]
    OtherHistory {
        /// `wsrep_cluster_state_uuid`
        cluster_state_uuid: String,
    },
    /// It calls itself Primary in a component that is not the one that counts.
    #[error(
        "split brain: Primary in a component of its own (view {conf_id}, {size} members) beside the one that counts (pc.bootstrap or pc.ignore_sb?)"
    )]
    SplitBrain {
        /// Its view.
        conf_id: u64,
        /// How many members that has.
        size: u32,
    },
    /// The same, and by its tables another Weir writes there.
    #[error(
        "split brain: Primary in a component of its own (view {conf_id}, {size} members) beside the one that counts, and by its tables the Weir {claimed_by} WRITES THERE, to {writer}: set all servers of one of the two OFFLINE_HARD in all Weirs"
    )]
    WrittenApart {
        /// Its view.
        conf_id: u64,
        /// How many members that has.
        size: u32,
        /// Who writes there.
        writer: Endpoint,
        /// Who has chosen that.
        claimed_by: InstanceId,
    },
    /// The same, and that one is lost.
    #[error(
        "split brain: Primary in a component (view {conf_id}, {size} members) that lacks what the lost one has acknowledged; to go on without that, set all servers of the lost one OFFLINE_HARD"
    )]
    SplitOff {
        /// Its view.
        conf_id: u64,
        /// How many members that has.
        size: u32,
    },
    /// It calls itself Primary beside others that do so, too, and nothing tells which of them are the cluster.
    #[error(
        "split brain: Primary in one of several components (view {conf_id}, {size} members), and nobody knows which one counts; set all servers of the others OFFLINE_HARD"
    )]
    Undecided {
        /// Its view.
        conf_id: u64,
        /// How many members that has.
        size: u32,
    },
    /// Others have been in a newer view for a while.
    #[error("still in view {conf_id} of the cluster, others are in {newest}")]
    OldView {
        /// Its `wsrep_cluster_conf_id`.
        conf_id: u64,
        /// Theirs.
        newest: u64,
    },
    /// It does not answer, and the others have gone on without it.
    #[error("it does not answer, and view {newest} of the cluster is without it")]
    NotInView {
        /// Their `wsrep_cluster_conf_id`.
        newest: u64,
    },
    /// Joining or Joined.
    #[error("wsrep_local_state is {}", .local_state.name())]
    NotSynced {
        /// `wsrep_local_state`
        local_state: LocalState,
    },
    /// A donor that rejects queries.
    #[error("donor that rejects queries")]
    DonorRejectsQueries,
    /// `wsrep_reject_queries`
    #[error("wsrep_reject_queries is set")]
    RejectsQueries,
    /// `pxc_maint_mode`
    #[error("pxc_maint_mode is {}", maintenance(*.0))]
    Maintenance(Maintenance),
    /// `wsrep_desync`
    #[error("wsrep_desync is ON")]
    Desynced,
    /// A donor can't be the writer while another can.
    #[error("donor or desynced")]
    DonorCannotWrite,
    /// `read_only`, or what else the check looks at.
    #[error("read_only")]
    ReadOnly,
    /// Too far behind to read.
    #[error("recv_queue {recv_queue} is more than {limit}")]
    Lagging {
        /// Transactions behind.
        recv_queue: u32,
        /// The limit that it must get below.
        limit: u32,
    },
    /// Flow control stopped it most of the time.
    #[error("flow control paused it for {}% of the time", .paused_permille / 10)]
    FlowControl {
        /// Share of the time, per mille.
        paused_permille: u16,
    },
    /// Waits until the cluster has removed the lost writer.
    #[error("waits until the cluster has removed {lost}")]
    AwaitsNewView {
        /// The lost writer.
        lost: Endpoint,
    },
    /// Waits until every server has been looked at once, for the choice of the first writer.
    #[error("waits until every server has been probed once")]
    AwaitsFirstLook,
    /// Waits for the first look at `weir.topology`, or for a fresh one.
    #[error("waits until weir.topology has been read")]
    AwaitsEpoch,
    /// Waits until the next epoch is written.
    #[error("waits until the next epoch is written to weir.topology")]
    AwaitsClaim,
    /// The writer is to leave, and another Weir does not know that yet.
    #[error("waits until another Weir ({peer}) knows that {server} is to leave")]
    AwaitsDrain {
        /// The writer.
        server: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// Another Weir still reaches the lost writer, so the cluster is not without.
    #[error("waits: another Weir ({peer}) reaches {lost}, so only the path to it from here is broken")]
    AwaitsPeer {
        /// The lost writer.
        lost: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// A Weir that knew of no other one has fallen silent, and may go on writing to the lost writer for minutes.
    #[error(
        "waits until {lost} is back, or until another Weir ({peer}), which has fallen silent, can't be writing to it any more"
    )]
    AwaitsSilentPeer {
        /// The lost writer.
        lost: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// `weir.topology` names a writer that this configuration does not have, and another Weir uses it.
    #[error(
        "waits: another Weir ({peer}) uses {writer} as the writer, which is not in mysql_servers here; all Weirs must name the servers alike"
    )]
    UnknownWriter {
        /// The name.
        writer: Endpoint,
        /// The other Weir.
        peer: InstanceId,
    },
    /// Waits until no other Weir can be writing by an earlier epoch.
    #[error("waits until no other Weir can be writing by an epoch before {epoch}")]
    AwaitsLeases {
        /// The epoch that waits.
        epoch: u64,
    },
    /// Another Weir has claimed the epoch for it.
    #[error("writer of epoch {epoch}, which another Weir ({claimed_by}) has claimed")]
    WriterOfEpoch {
        /// The epoch.
        epoch: u64,
        /// The other Weir.
        claimed_by: InstanceId,
    },
    /// The primary that the group has chosen.
    #[error("the group's primary")]
    GroupPrimary,
    /// A secondary of a single-primary group.
    #[error("secondary of its group")]
    Secondary,
    /// Waits until the group has another primary.
    #[error("waits until the group has another primary than {lost}")]
    AwaitsElection {
        /// The lost one.
        lost: Endpoint,
    },
    /// A new primary that has not yet applied what its group had committed before.
    #[error("new primary, which still has to apply {transactions} earlier transactions")]
    AwaitsBacklog {
        /// Transactions to go.
        transactions: u32,
    },
    /// Another server of a single-primary group calls itself its primary, too.
    #[error("{other} reports that it is primary, too")]
    AnotherPrimary {
        /// The other.
        other: Endpoint,
    },
    /// It is in no group.
    #[error("not a member of a group")]
    NotInGroup,
    /// Its own state in its group, other than ONLINE.
    #[error("its state in the group is {}", .state.name())]
    NotOnline {
        /// `MEMBER_STATE`
        state: MemberState,
    },
    /// It reaches half of its group, or less.
    #[error("without quorum, it does not reach {unreachable} of {members} members of the group")]
    NoQuorum {
        /// Members that it does not reach.
        unreachable: usize,
        /// Members of its view, itself included.
        members: usize,
    },
    /// Another group than that of the others, or one that was bootstrapped beside it.
    #[error("in another group, {group}")]
    OtherGroup {
        /// The group's name and the first part of its view id.
        group: String,
    },
    /// Servers report different groups, and nothing tells which one counts.
    #[error("servers report different groups")]
    GroupsDiffer,
    /// The group's newest view has no such member.
    #[error("no member of the group's view {newest}")]
    Expelled {
        /// The number of that view.
        newest: u64,
    },
    /// It does not answer, and the group's newest view has no such member.
    #[error("does not answer, and is no member of the group's view {newest} any more")]
    SilentAndExpelled {
        /// The number of that view.
        newest: u64,
    },
    /// Most other members of the group do not reach it.
    #[error("most other members of the group do not reach it")]
    OutOfGroupsSight,
    /// Too many transactions behind its group to read.
    #[error("{transactions} transactions behind, more than {limit}")]
    Behind {
        /// Transactions to certify and to apply.
        transactions: u32,
        /// The limit that it must get below.
        limit: u32,
    },
    /// Too far behind its group, but no reader is better.
    #[error("{transactions} transactions behind, but no other reader is better")]
    BehindButOnlyReader {
        /// Transactions to certify and to apply.
        transactions: u32,
    },
    /// Is not read_only, which makes it a writer.
    #[error("not read_only")]
    NotReadOnly,
    /// Is one of several servers that are not read_only: all are writers.
    #[error("not read_only, and neither is {other}: both are writers")]
    WritesBeside {
        /// The first of the others.
        other: Endpoint,
    },
    /// The variable that the check looks at does not exist.
    #[error("read_only, as it has no variable {name}")]
    NoReadOnlyVariable {
        /// Its name.
        name: &'static str,
    },
    /// Further behind its source than `max_replication_lag` allows.
    #[error("{lag_s} s behind its source, more than max_replication_lag {limit_s}")]
    ReplicationLag {
        /// How far, in seconds.
        lag_s: u64,
        /// `max_replication_lag`, in seconds.
        limit_s: u32,
    },
    /// Its replication does not run, so that nobody knows how far behind it is.
    #[error(
        "replication does not run, which counts as {counts_as_s} s behind, more than max_replication_lag {limit_s}"
    )]
    ReplicationStopped {
        /// What that counts as, in seconds.
        counts_as_s: u32,
        /// `max_replication_lag`, in seconds.
        limit_s: u32,
    },
    /// Reads although nothing arrives there any more: the user has set no limit that forbids it, as ProxySQL has none.
    #[error("replication does not run; reads, as no max_replication_lag forbids it")]
    ReadsUnreplicated,
    /// Is not read_only, but was the writer, was lost, and has come back after another one had taken its place.
    #[error(
        "not read_only, but {writer} has replaced it while it was away: it gets no work until you make it read_only, or make other servers its replicas"
    )]
    Replaced {
        /// The other.
        writer: Endpoint,
    },
    /// Is not read_only, and the others replicate from another writer.
    #[error("not read_only, but the others replicate from {writer}: it gets no work until it does, too")]
    Deposed {
        /// The other.
        writer: Endpoint,
    },
    /// Is not read_only, and too few servers replicate from it.
    #[error(
        "not read_only, but only {support} servers are seen to get their data from it; auto_failover needs {majority}"
    )]
    NoMajority {
        /// How many do, itself included.
        support: usize,
        /// How many must.
        majority: usize,
    },
    /// Replicates from nobody, so that nobody knows what it lacks.
    #[error("has no source, and {writer} is the writer")]
    NoSource {
        /// The writer.
        writer: Endpoint,
    },
    /// Gets its data from a server that is neither the last writer nor was seen to replicate from it.
    #[error("may lack recent writes: its source did not replicate from the last writer")]
    OtherLine,
    /// Replicates from a server that is writable beside the writer.
    #[error("replicates from {of}, which is not the writer")]
    OtherSource {
        /// Its source.
        of: Endpoint,
    },
    /// Waits until more servers find that the writer is lost.
    #[error(
        "waits for {lost}: {votes} servers report that they can't connect to it, {majority} are needed for a failover"
    )]
    AwaitsVotes {
        /// The lost writer.
        lost: Endpoint,
        /// How many do.
        votes: usize,
        /// How many must.
        majority: usize,
    },
    /// Waits for a moment whether the lost writer comes back.
    #[error("waits a moment for {lost}, to which no majority can connect")]
    AwaitsReturn {
        /// The lost writer.
        lost: Endpoint,
    },
    /// Waits until a replica has been made the writer.
    #[error("waits until a replica of {lost} has been made the writer")]
    AwaitsFailover {
        /// The lost writer.
        lost: Endpoint,
    },
    /// The user's wish.
    #[error("taken out: {}", wished(*.0))]
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

fn first_choice(weight: Option<u32>) -> String {
    weight.map_or_else(|| "by name".to_owned(), |weight| format!("with weight {weight}"))
}

fn although_there(confirmed: bool) -> &'static str {
    if confirmed { "" } else { ", which can't be reached although the cluster still has it" }
}

fn maintenance(mode: Maintenance) -> &'static str {
    if mode == Maintenance::Shutdown { "SHUTDOWN" } else { "MAINTENANCE" }
}

fn wished(wish: Wish) -> &'static str {
    match wish {
        Wish::Online => "no",
        Wish::OfflineSoft => "drained, or OFFLINE_SOFT in mysql_servers",
        Wish::OfflineHard => "OFFLINE_HARD in mysql_servers",
    }
}
