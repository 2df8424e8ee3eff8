//! Holds what the workers know of configuration and topology: immutable, swapped whole.

mod users;

pub use users::{Account, FollowedAccounts, Users};

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sha2::{Digest, Sha256};
use weir_config::{MysqlVariables, SendProxyProtocol};
use weir_protocol::auth::StoredPassword;
use weir_protocol::auth::rsa::RsaKey;
use weir_routing::{Consistency, ReplayMode, Rules};
use weir_sql::Dialect;
use weir_topology::ServerShared;

/// One consistent view of configuration and roles.
#[derive(Debug)]
pub struct Snapshot {
    /// Who may log in; the same allocation as long as no user has changed.
    pub users: Arc<Users>,
    /// Every server that is in some hostgroup, in no order.
    pub servers: Vec<Arc<Server>>,
    /// Who serves a hostgroup now.
    pub hostgroups: HashMap<u32, Hostgroup>,
    /// The query rules; the same allocation as long as they have not changed.
    pub rules: Arc<Rules>,
    /// `[mysql_variables]`.
    pub variables: MysqlVariables,
    /// The version that the greeting shows.
    pub server_version: String,
    /// The servers are MariaDBs.
    pub is_mariadb: bool,
    /// Collation of a login that asks for one that the servers do not know.
    pub default_collation: String,
    /// How statements are read where a session has not set sql_mode.
    pub dialect: Dialect,
    /// Whether clients may ask for TLS.
    pub tls: bool,
    /// What somebody is checked against who is not there, so that nobody finds out who is: a password that nobody has. None:
    /// there is nothing to find out, as known users are asked for no more than others.
    pub decoy: Option<Arc<StoredPassword>>,
    /// With which clients may seal a password; made when some user's password needs it.
    pub rsa_key: Option<Arc<RsaKey>>,
}

/// A server and what all workers share about it.
#[derive(Debug)]
pub struct Server {
    /// `host:port`, as configured; the server's name in messages.
    pub endpoint: String,
    /// Where to connect to.
    pub addr: SocketAddr,
    /// Connections of all workers together.
    pub max_connections: u32,
    /// It is out of every hostgroup for a reason that leaves its connections no hope (OFFLINE_HARD): they are cut.
    pub is_gone: bool,
    /// It is out of every hostgroup because it does not answer, and may yet: reads that wait for it run elsewhere.
    pub is_silent: bool,
    /// How connections are encrypted; `None`: not at all. The same object as long as nothing about it changes.
    pub tls: Option<Arc<ServerTls>>,
    /// What it is told of clients' addresses.
    pub proxy_header: SendProxyProtocol,
    /// It is to take no new work (OFFLINE_SOFT, maintenance): its connections are closed as they become free.
    pub is_leaving: bool,
    /// From then on (monotonic, nanoseconds) sessions that still have it and run nothing are closed.
    pub leave_by: Option<u64>,
    /// How its connections are looked after.
    pub care: Care,
    /// Counters and positions, shared with the control plane.
    pub shared: Arc<ServerShared>,
}

/// TLS towards a server.
#[derive(Debug)]
pub struct ServerTls {
    /// Which certificates are trusted, and which one is shown.
    pub config: Arc<ClientConfig>,
    /// The server's name as it is told in the handshake.
    pub name: ServerName<'static>,
}

/// How connections to a server are looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Care {
    /// Statements for each new connection, in this order; what they set is the state of a fresh connection.
    pub init_connect: Vec<String>,
    /// Idle connections kept, in percent of `max_connections`.
    pub free_connections_pct: u32,
    /// So many are opened in advance.
    pub is_warmed: bool,
}

impl Server {
    /// Takes the right to open one more connection, if max_connections leaves one.
    pub fn try_open(&self) -> bool {
        let open = &self.shared.connections_open;
        let more = |open| (open < self.max_connections).then_some(open + 1);
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// The client, of those at this address, for whom alone a connection is there; none where the server isn't told of it, or
    /// nobody knows the address (a Unix socket). Servers take 127.0.0.1 for `localhost`, their own machine, which Weir's is
    /// not.
    pub(crate) fn client_told(&self, address: Option<IpAddr>) -> Option<IpAddr> {
        const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        match self.proxy_header {
            SendProxyProtocol::Off => None,
            SendProxyProtocol::V1 | SendProxyProtocol::V2 => address.filter(|at| !LOCALHOST.contains(at)),
        }
    }

    /// Gives the right to a connection back.
    pub fn close_one(&self) {
        self.shared.connections_open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The servers that may be used for one role now.
#[derive(Debug, Default)]
pub struct Hostgroup {
    /// Servers with their weights.
    pub members: Vec<Member>,
    /// For a writer hostgroup: where its plain reads go.
    pub reader_hostgroup: Option<u32>,
    /// Whether a read must wait for a session's own last write here (Galera).
    pub is_replicated: bool,
    /// Whether sessions keep the connection that they have got here (multiplex = 0).
    pub keeps_connections: bool,
    /// Why there are not more members, for error messages ("127.0.0.11:3306 is non-Primary").
    pub absent: String,
    /// How statements are shared between the members.
    pub balancing: Balancing,
    /// It has no members because its writer is being moved on purpose: who that will be is not known yet.
    pub is_held: bool,
    /// How its sessions wait for a server, if it belongs to a cluster.
    pub holding: Option<Arc<Holding>>,
    /// Results of reads up to this size are held back until they are complete, so that a read whose server dies in the
    /// middle is run again elsewhere; 0: none.
    pub retry_buffer_bytes: u32,
    /// The history that its cluster's data belongs to; none if it is no cluster's, or is not known yet.
    pub history: Option<History>,
    /// How fresh reads have to be that are split from it, where nobody else says so.
    pub consistency: Consistency,
    /// Where reads go for which no reader is known to be fresh enough.
    pub reads: ReadPreference,
    /// How long a read waits for a reader to be fresh enough; none: not at all.
    pub consistency_timeout: Duration,
    /// How often a statement with autocommit is run again that its server has undone (1213).
    pub deadlock_retries: u32,
    /// Whether transactions run again where their server is lost.
    pub transaction_replay: ReplayMode,
    /// How long the log of such a transaction may become, in bytes.
    pub transaction_replay_max_bytes: u32,
    /// Transactions that write have a row of their own in `weir.outcomes`, which says whether they were committed.
    pub marks_commits: bool,
    /// What a server writes without a transaction stays with it.
    pub replicates_transactions_only: bool,
    /// What makes a server wait by itself until it has everything.
    pub strict: StrictRead,
    /// In which time a member that was away comes back to its full share.
    pub slow_start: Duration,
    /// How many connections may be opened for it in a second.
    pub throttle: Arc<Throttle>,
}

/// How a read at [`Consistency::Strict`] is made to see everything that was committed anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrictRead {
    /// It runs on the writer, which alone has everything (asynchronous replication).
    #[default]
    OnWriter,
    /// The session has `wsrep_sync_wait` (Galera).
    WsrepSyncWait,
    /// The session has `group_replication_consistency` (Group Replication).
    GroupConsistency,
}

/// The history of a cluster's data, by a hash of its name: writes of one are not in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History(pub(crate) u64);

impl History {
    /// The one with this name ([`weir_topology::Group::history`]).
    pub fn of(name: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(name).into();
        Self(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

pub use weir_config::{Balancing, ReadPreference};

/// For so long interrupted transactions go first. They need a few round trips each; one that meets locks may need more, and the
/// others do not wait for that.
const REPLAYS_FIRST_NS: u64 = 500_000_000;

/// How sessions wait for a server of a cluster, all workers together. Touched when a session finds no server, never on
/// the way of a statement that finds one.
#[derive(Debug)]
pub struct Holding {
    /// For how long a statement waits; none: `connect_timeout_server_max`.
    timeout: Option<Duration>,
    sessions_max: u32,
    sessions: AtomicU32,
    /// Interrupted transactions that are about to run again.
    replays: AtomicU32,
    /// Until when others let them go first (monotonic, nanoseconds); 0: nobody has had to yet.
    replays_first_until: AtomicU64,
}

/// A session's right to wait; dropping it gives it back.
#[derive(Debug)]
pub struct Held(Arc<Holding>);

/// A transaction's right to run again before others write; dropping it gives it back.
#[derive(Debug)]
pub struct ReplayTurn(Arc<Holding>);

impl Holding {
    /// At most `sessions_max` sessions wait, each statement for `timeout`; none: `connect_timeout_server_max`.
    pub fn new(timeout: Option<Duration>, sessions_max: u32) -> Self {
        let (sessions, replays, replays_first_until) = Default::default();
        Self { timeout, sessions_max, sessions, replays, replays_first_until }
    }

    /// For how long a statement waits, if the cluster has a limit of its own.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The most sessions that wait.
    pub fn sessions_max(&self) -> u32 {
        self.sessions_max
    }

    /// Takes the right to wait, if one is left.
    pub fn try_hold(self: &Arc<Self>) -> Option<Held> {
        let more = |sessions| (sessions < self.sessions_max).then_some(sessions + 1);
        let result = self.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        result.is_ok().then(|| Held(self.clone()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Holding {
    /// A transaction was interrupted, and is to run again. Where it is not the first time for it, nobody waits for longer.
    pub fn replay_turn(self: &Arc<Self>, is_first: bool) -> ReplayTurn {
        if self.replays.fetch_add(1, Ordering::AcqRel) == 0 && is_first {
            self.begin_replays_anew();
        }
        ReplayTurn(self.clone())
    }

    /// There is another writer: whoever waits for it waits from now on.
    pub fn begin_replays_anew(&self) {
        self.replays_first_until.store(0, Ordering::Release);
    }

    /// Whether what could be written now is to wait until interrupted transactions have run again: it might take the
    /// AUTO_INCREMENT values that they have told their clients, or the rows that they had locked. From the first time that
    /// somebody waits it is so for [`REPLAYS_FIRST_NS`] at most.
    pub fn lets_replays_first(&self, now: u64) -> bool {
        if self.replays.load(Ordering::Acquire) == 0 {
            return false;
        }
        let until = now.saturating_add(REPLAYS_FIRST_NS);
        let begun = &self.replays_first_until;
        match begun.compare_exchange(0, until, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(until) => now < until,
        }
    }

    /// Whether interrupted transactions are to run again.
    pub fn has_replays(&self) -> bool {
        self.replays.load(Ordering::Acquire) > 0
    }
}

impl ReplayTurn {
    /// It has run again, or will not. True if it was the last one.
    pub fn give_back(self) -> bool {
        let holding = self.0.clone();
        drop(self);
        !holding.has_replays()
    }
}

impl Drop for ReplayTurn {
    fn drop(&mut self) {
        self.0.replays.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A limit on connections opened in each second for one hostgroup, all workers together. Touched when a connection is
/// opened, never on the way of a statement.
#[derive(Debug)]
pub struct Throttle {
    limit: u32,
    /// The second in the upper half, the connections opened in it in the lower.
    opened: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

impl Throttle {
    /// So many connections a second; 0 means none at all.
    pub fn new(limit: u32) -> Self {
        Self { limit, opened: AtomicU64::new(0) }
    }

    /// The limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes the right to open one more connection at this time; else says when there may be another.
    ///
    /// # Errors
    /// The time at which the next second begins.
    pub fn try_open(&self, now_ns: u64) -> Result<(), u64> {
        const SECOND_NS: u64 = 1_000_000_000;
        let second = now_ns / SECOND_NS;
        let more = |opened: u64| {
            let count = if opened >> 32 == second & 0xFFFF_FFFF { opened & 0xFFFF_FFFF } else { 0 };
            (count < u64::from(self.limit)).then_some((second << 32) | (count + 1))
        };
        let result = self.opened.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        result.map(drop).map_err(|_| (second + 1) * SECOND_NS)
    }
}

/// A server's share in a hostgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index into [`Snapshot::servers`].
    pub server: usize,
    /// Share of statements relative to the other members; 0 only if no other member is there.
    pub weight: u32,
    /// Whether it takes its share.
    pub health: Health,
}

/// Whether a member serves, or only where no better one can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// It takes its share.
    #[default]
    Good,
    /// Its pings take longer than `max_latency_ms`.
    Slow,
    /// Connections to it have failed: the last resort.
    Shunned,
}
