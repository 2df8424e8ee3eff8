//! Decides who writes and who reads: a pure function of what the user wants, what was seen of the servers and what was
//! decided before.
//!
//! Probes fold what they see into an [`Observation`] per server; one owner calls [`roles`] whenever an observation
//! changes or time has passed, and publishes the [`Roles`] if they are not [`Roles::same_as`] the last ones. Nothing
//! else decides a role. The rules:
//!
//! 1. A Galera node outside the Primary component, or with another history than the cluster, has no role, not even as
//!    the last one left. A node that stays in an older view than others is on its way out of the cluster; one that was
//!    lost by its silence is believed after a moment, as its process may have been stopped and not know what has
//!    happened. Another history than the one so far counts only if more than half of all servers have it.
//! 2. A writer is wanted, Primary, Synced, not rejecting, not in maintenance and not read_only. Present writers stay
//!    (failback: never); else the greatest weight in the writer hostgroup wins, then in the backup writers', then the
//!    segment of the last writer, a short receive queue, the name; the first choice waits until every server has
//!    been looked at once. A desynced writer gives way only if another
//!    can take over.
//! 3. Every healthy node reads, without read_only anywhere. `writer_is_also_reader` takes the writer out only if
//!    another reader remains. A reader's weight is that of its row in the reader hostgroup.
//! 4. A reader whose receive queue is longer than `max_transactions_behind` leaves, and returns at half of it. A donor
//!    that rejects no queries reads while its queue is short. The last readers never leave for being slow.
//! 5. Maintenance takes work away without cutting anything off: [`Status::OfflineSoft`].
//! 6. Losing sight of the writer changes nothing but that statements are held ([`Hold`]). The next writer needs a view
//!    of the cluster newer than the lost writer's that no longer has it; survivors that still call themselves Primary
//!    in the old view can't commit. If no such view comes within `unconfirmed_failover_ms`, only the way between Weir
//!    and the writer is broken. With an epoch (see [`Leadership`]) another is claimed for then, unless another Weir reaches
//!    it; without, it takes over: Galera's certification keeps two writers correct.
//! 7. Roles are for servers; connections are another matter. A server to which connections fail is shunned, one whose
//!    pings take too long is passed over, in favour of the others in its hostgroup, and both keep their roles.
//!
//! For MySQL Group Replication 1 to 5 hold in its own words, and 6 is the group's business:
//!
//! - A member has a role while it is ONLINE, reaches more than half of its view, and is in the newest view that any
//!   server reports; a member that most others do not reach is out too. The group of the last writer counts, else that
//!   of most servers; where servers report different groups or memberships and none has more votes, nobody works.
//! - The primary is the writer as soon as it says so itself, is not read_only, and has applied what the group had
//!   committed before; until then statements are held. Weir never chooses in a single-primary group. Where every member
//!   is a primary, it chooses by rule 2.
//!
//! With asynchronous replication whoever sets read_only decides:
//!
//! - Every server that is not read_only writes, also if there are several; the others read. A lost writer is waited for
//!   until a server is not read_only: Weir makes none writable, but with `auto_failover`.
//! - With `auto_failover` more than half of all configured servers stand for the writer, or for its loss: see
//!   [`ReplicationPolicy::failover_after_ms`]. A server that is writable beside the writer gets nothing.
//! - A replica further behind than its `max_replication_lag` does not read, not even as the last one; then the writer
//!   does.

mod coverage;
mod decide;
mod endpoint;
mod epoch;
mod executed_gtids;
#[doc(hidden)]
pub mod fuzzing;
mod galera;
mod galera_state;
mod group_replication;
mod group_state;
mod gtid;
mod gtid_stream;
mod health;
mod leadership;
mod member;
mod observation;
mod policy;
pub mod positions;
pub mod procedure;
mod readers;
mod reason;
mod replica_state;
mod replication;
mod risk;
mod role;
mod server_shared;
pub mod session_variables;
mod shunning;

pub use coverage::{Coverage, Unchecked};
pub use decide::roles;
pub use endpoint::{Endpoint, Millis, NoEndpoint};
pub use epoch::{
    Announcement, BEAT_AGE_MAX_MS, DrainRow, EpochPolicy, EpochRead, EpochRow, InstanceId, InstanceRow, Peer,
    Proposal, Switching, drift_ms,
};
pub use executed_gtids::{ExecutedGtids, GtidsShown, WhyUnknown};
pub use galera_state::{GaleraState, LocalState, Maintenance};
pub use group_state::{GroupMember, GroupState, MemberRow, MemberState};
pub use gtid::{Gtid, GtidFault, GtidSet, INTERVALS_MAX, Uuid};
pub use gtid_stream::{GtidStream, StreamFault, Told};
pub use leadership::{Confirmed, Leadership};
pub use observation::{Back, Observation, ProbeError, ServerState};
pub use policy::{
    Choices, Cleared, ClusterPolicy, DonorReads, EpochUse, Failback, Intent, Policy, ReadOnlyCheck,
    ReplicationPolicy, Switch, SwitchStep, Wish, WriterReads,
};
pub use reason::Reason;
pub use replica_state::{Lag, Link, ReplicaState, SourceLink};
pub use risk::Risk;
pub use role::{
    Change, EpochTrouble, Flavour, Group, Hold, Place, Role, Roles, Split, Status, Succession, Trouble, View,
};
pub use server_shared::{ServerRegistry, ServerShared};
pub use session_variables::SessionVariables;
pub use shunning::{Connects, Shun};

#[cfg(test)]
mod tests;
