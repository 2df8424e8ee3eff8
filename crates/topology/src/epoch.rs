//! Defines the epoch: an agreement of several Weirs in front of one cluster, kept in the cluster itself.
//!
//! Two tables of the cluster: `weir.topology` has a row per cluster with the *epoch*, a number that counts its writers;
//! `weir.instances` has a row per Weir. A read of both that a session makes the node wait for (`wsrep_sync_wait`) shows
//! every change that was acknowledged anywhere before the read was sent. So a Weir that reads epoch E knows that nobody
//! had claimed E+1 at the moment of asking, and may write by E for one *lease* from that moment on.

use std::sync::Arc;

use crate::{Endpoint, Millis};

/// A Weir's name among those in front of one cluster.
pub type InstanceId = Arc<str>;

/// A Weir's reads confirm an epoch only while its own row shows a beat that is no older than this. So the others know
/// when a Weir that they no longer hear of has stopped writing.
pub const BEAT_AGE_MAX_MS: u64 = 10_000;

/// The settings of this Weir's part in the agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPolicy {
    /// Its own name. No other Weir in front of the cluster may have it.
    pub instance: InstanceId,
    /// How long after the moment of a confirming read it sends writes, while it knows of other Weirs.
    pub lease_ms: u64,
    /// The same while it knows of no other: only that its end comes at all matters then.
    pub lone_lease_ms: u64,
    /// A Weir whose beat has stood still for so long is not waited for any more.
    pub peer_timeout_ms: u64,
}

impl EpochPolicy {
    /// The usual limits.
    pub fn new(instance: &str) -> Self {
        Self { instance: instance.into(), lease_ms: 5_000, lone_lease_ms: 300_000, peer_timeout_ms: 3_000 }
    }
}

/// By how much the clocks of two Weirs may differ over a time, in milliseconds: 5% and 100 ms.
pub fn drift_ms(over_ms: u64) -> u64 {
    over_ms / 20 + 100
}

/// The row of a cluster in `weir.topology`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRow {
    /// Counts the writers, from 1 on.
    pub epoch: u64,
    /// Counts the changes of the row. A change is made only to the version that was read (compare and set).
    pub version: u64,
    /// The writer of this epoch, as all Weirs must name it in `mysql_servers`.
    pub writer: Endpoint,
    /// Its own address among the members of a view (`wsrep_incoming_addresses`), if the node told it.
    pub writer_address: Option<String>,
    /// Who claimed the epoch.
    pub claimed_by: InstanceId,
    /// Nobody may be writing by an earlier epoch any more, so that the writer can be written to. If false, each Weir
    /// waits until it knows that by itself.
    pub is_open: bool,
    /// A switchover for which the others are to hold.
    pub switching: Option<Switching>,
}

/// A switchover that has been announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switching {
    /// The next writer.
    pub to: Endpoint,
    /// Who moves the role.
    pub by: InstanceId,
}

/// The row of a Weir in `weir.instances`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRow {
    /// Its name.
    pub instance: InstanceId,
    /// When it was last written: milliseconds of the Weir's own clock, so that others only see that it changes.
    pub beat: u64,
    /// What the Weir says of itself.
    pub says: Announcement,
}

/// A Weir's message to the others about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The epoch it goes by: it sends no write by an earlier one any more. 0: none yet.
    pub epoch: u64,
    /// The longest lease that it goes by until it says otherwise.
    pub lease_ms: u64,
    /// It reaches the writer of the epoch.
    pub sees_writer: bool,
    /// The version of the epoch row for whose switchover it holds and none of its sessions may write to the writer any
    /// more. 0: none.
    pub clear_of: u64,
}

/// The row of a Weir about a server that leaves, in `weir.drains`. A server that one Weir wants out is out for all; each
/// has a row about it, so that the others know that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRow {
    /// The server, as all Weirs must name it in `mysql_servers`.
    pub server: Endpoint,
    /// Whose row it is.
    pub instance: InstanceId,
    /// This Weir's user wants it out; else another's does.
    pub wants_out: bool,
    /// How many of its sessions still have a connection to the server.
    pub sessions: u64,
}

/// The result of one causal read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRead {
    /// Just before it was sent.
    pub asked_at: Millis,
    /// The cluster's row; none if there is none yet.
    pub row: Option<EpochRow>,
    /// All Weirs that have registered, this one too.
    pub instances: Vec<InstanceRow>,
    /// The rows about servers that leave; none where they can't be read.
    pub drains: Option<Vec<DrainRow>>,
    /// What is wrong with a row that was passed over, or that there are too many.
    pub malformed: Option<String>,
}

/// Another Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub instance: InstanceId,
    /// Its last beat.
    pub beat: u64,
    /// When that was first seen.
    pub beat_since: Millis,
    /// What it said with it.
    pub says: Announcement,
}

impl Peer {
    /// Whether it has been heard of lately.
    pub fn is_live(&self, policy: &EpochPolicy, now: Millis) -> bool {
        now.since(self.beat_since) < policy.peer_timeout_ms
    }

    /// Until when it may write by the epoch that it last said, if it hears of no other.
    pub fn may_write_until(&self) -> Millis {
        let lease_ms = self.says.lease_ms;
        let ms = BEAT_AGE_MAX_MS.saturating_add(lease_ms).saturating_add(drift_ms(lease_ms));
        Millis(self.beat_since.0.saturating_add(ms))
    }
}

/// A change of the epoch row that should be made: a compare-and-set, off the way of decisions. Whether it succeeded shows
/// in the next read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// The next epoch, for this writer. From version 0: the first row.
    Claim {
        /// The epoch and version that it follows.
        from: (u64, u64),
        /// The next writer.
        to: Endpoint,
        /// [`EpochRow::writer_address`]
        address: Option<String>,
        /// [`EpochRow::is_open`]
        is_open: bool,
    },
    /// Nobody can be writing by an earlier epoch any more.
    Open {
        /// The epoch and version that it is said of.
        from: (u64, u64),
    },
    /// The others are to hold for a switchover.
    Ask {
        /// The epoch and version at which the role is to move.
        from: (u64, u64),
        /// The next writer.
        to: Endpoint,
    },
    /// The switchover does not take place.
    Unask {
        /// The epoch and version that announce it.
        from: (u64, u64),
    },
}

/// A row's change, as the compare-and-set makes it; for whoever executes proposals on something else than a server.
impl Proposal {
    /// The row after the change by `instance`; none if `row` is not the one that was proposed for.
    pub fn applied(&self, row: Option<&EpochRow>, instance: &InstanceId) -> Option<EpochRow> {
        let (Self::Claim { from, .. } | Self::Open { from } | Self::Ask { from, .. } | Self::Unask { from }) =
            self;
        if *from != row.map_or((0, 0), |row| (row.epoch, row.version)) {
            return None;
        }
        let version = from.1 + 1;
        match self {
            Self::Claim { to, address, is_open, .. } => Some(EpochRow {
                epoch: from.0 + 1,
                version,
                writer: to.clone(),
                writer_address: address.clone(),
                claimed_by: instance.clone(),
                is_open: *is_open,
                switching: None,
            }),
            Self::Open { .. } => row.map(|row| EpochRow { version, is_open: true, ..row.clone() }),
            Self::Ask { to, .. } => {
                let switching = Some(Switching { to: to.clone(), by: instance.clone() });
                row.map(|row| EpochRow { version, switching, ..row.clone() })
            }
            Self::Unask { .. } => row.map(|row| EpochRow { version, switching: None, ..row.clone() }),
        }
    }
}
