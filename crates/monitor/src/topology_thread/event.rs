//! Lists what the topology thread hears of.

use std::sync::mpsc::SyncSender;

use weir_topology::{Cleared, Endpoint, EpochRead, Millis, Switch};

use crate::epoch_tables::Fault;
use crate::epoch_writer::{Released, Written};
use crate::probe::ProbeResult;
use crate::settings::Settings;

/// An event of the topology thread.
pub(crate) enum Event {
    /// A probe ended.
    Observed {
        /// The server.
        endpoint: Endpoint,
        /// Which of the server's probes, since reloads replace them.
        generation: u64,
        /// What it saw.
        look: Box<ProbeResult>,
        /// The version in the server's greeting, if there was one.
        version: Option<String>,
    },
    /// A causal read of the epoch's tables ended.
    Epoch {
        /// The server.
        endpoint: Endpoint,
        /// Which of the server's probes.
        generation: u64,
        /// What it showed.
        result: Result<EpochRead, Fault>,
    },
    /// This Weir's own row was written, or not.
    Beat {
        /// Names the cluster.
        hostgroup: u32,
        /// What has come of it.
        written: Written,
    },
    /// A proposal was made, or not.
    Claim {
        /// Names the cluster.
        hostgroup: u32,
        /// What has come of it.
        written: Written,
    },
    /// None of this Weir's sessions may write to a cluster's writer any more.
    Cleared(Cleared),
    /// So many sessions have a connection to these servers, which are to leave.
    Used(Vec<(Endpoint, u64)>),
    /// The sessions on a deposed writer have been closed.
    Cut {
        /// Names the cluster.
        hostgroup: u32,
        /// When the epoch that has deposed it was first seen here.
        learned_at: Millis,
    },
    /// The data path lost a connection to the server.
    Suspect(Endpoint),
    /// The data path could not connect to the server, for this reason.
    ConnectFailed(Endpoint, Box<str>),
    /// Another configuration.
    Configure {
        /// What follows from it for the monitor.
        settings: Box<Settings>,
        /// Dropped when the roles that follow from it have been published.
        published: SyncSender<()>,
    },
    /// A planned change of a writer, for the next decision.
    Switch {
        /// From whom to whom.
        switch: Switch,
        /// Dropped when the roles that follow from it have been published.
        published: SyncSender<()>,
    },
    /// A planned change is given up, or was made.
    SwitchEnds {
        /// Names the cluster.
        writer_hostgroup: u32,
    },
    /// This Weir is there for others to see.
    Serve,
    /// Another process has taken over and speaks for this Weir's user.
    Followed,
    /// Rows of `weir.drains` by Weirs that are no more are to go.
    Release {
        /// Names the cluster.
        hostgroup: u32,
        /// The servers, and who wants them out.
        rows: Vec<Released>,
    },
    /// The end.
    Stop,
}

impl Event {
    /// It tells what was seen of a server, as hundreds of others do in a second.
    pub(super) fn is_seen(&self) -> bool {
        matches!(self, Self::Observed { .. } | Self::ConnectFailed(..) | Self::Suspect(_))
    }
}
