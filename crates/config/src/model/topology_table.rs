//! Declares `weir_topology`: what ProxySQL's tables of clusters have no column for.

use std::time::Duration;

use weir_topology::Choices;

use crate::table::columns;
use crate::value::password::Secret;

/// The longest grace of a switchover, in milliseconds: all statements of the cluster wait meanwhile.
pub const SWITCHOVER_GRACE_MS_MAX: u64 = columns::SWITCHOVER_GRACE_MS_MAX as u64;

/// A row of `weir_topology`: how one cluster is looked after. Key: writer_hostgroup. A cluster without a row has the
/// defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirTopology {
    /// Names the cluster. Required.
    pub writer_hostgroup: u32,
    /// What decides between servers.
    pub choices: Choices,
    /// In which time a reader that was away comes back to its full share, default 5 s.
    pub slow_start: Duration,
    /// How long a statement waits for a server of the cluster; none (default):
    /// `MysqlVariables::connect_timeout_server_max`.
    pub hold_timeout: Option<Duration>,
    /// The most sessions that wait for a server of the cluster at a time, default 10000.
    pub held_max: u32,
    /// Results of reads up to this size are held back until they are complete, so that a read whose server dies
    /// meanwhile is run again elsewhere; 0: none. Default 16384: most results, and less than what comes in one piece.
    pub retry_buffer_bytes: u32,
    /// How long sessions may keep a server that is drained or in maintenance; then those that run nothing are closed.
    /// None (0, the default): for as long as they want.
    pub drain_grace: Option<Duration>,
    /// How long a switchover waits for transactions and pins on the old writer, default 1 s.
    pub switchover_pin_grace: Duration,
    /// Whether a Galera cluster is helped to get rid of a dead node, default [`Assist::Dead`].
    pub assist: Assist,
    /// The account for that; none (default): the monitor's.
    pub assist_account: Option<OwnAccount>,
    /// The account that changes `read_only`, replication or a group's primary for a switchover; none (default): the
    /// monitor's.
    pub switchover_account: Option<OwnAccount>,
    /// The account with which a former writer replicates from the next one, with `mysql_replication_hostgroups`; none
    /// (default): that of the switchover.
    pub replication_account: Option<OwnAccount>,
    /// Whether a replica is made the writer when the writer is lost, with `mysql_replication_hostgroups`. Off by default:
    /// writes that no replica has received are lost then.
    pub auto_failover: bool,
    /// What is done about members of the cluster that are not configured, default [`AutoDiscover::Off`].
    pub auto_discover: AutoDiscover,
}

/// What is done about members of a cluster that are not configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoDiscover {
    /// Nobody looks for them.
    #[default]
    Off,
    /// They are told.
    Tell,
    /// They are added.
    Follow,
}

/// When a Galera cluster is helped to get rid of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Assist {
    /// Never.
    Off,
    /// When it is proven to be dead.
    #[default]
    Dead,
    /// Also when it hangs.
    Hung,
}

/// An account for one of Weir's own duties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAccount {
    /// Its name, never empty.
    pub username: String,
    /// Its password in clear, maybe empty.
    pub password: Secret,
}

impl WeirTopology {
    /// The defaults.
    pub fn of(writer_hostgroup: u32) -> Self {
        Self {
            writer_hostgroup,
            choices: Choices::default(),
            slow_start: Duration::from_secs(5),
            hold_timeout: None,
            held_max: 10_000,
            retry_buffer_bytes: 16 << 10,
            drain_grace: None,
            switchover_pin_grace: Duration::from_secs(1),
            assist: Assist::default(),
            assist_account: None,
            switchover_account: None,
            replication_account: None,
            auto_failover: false,
            auto_discover: AutoDiscover::default(),
        }
    }
}
