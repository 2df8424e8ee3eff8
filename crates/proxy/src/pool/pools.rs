//! Holds a worker's connections to each server, and its view of each hostgroup.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use weir_routing::{Consistency, ReplayMode};
use weir_session::state::State;
use weir_sql::Server as Reading;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::requirements::GroupFacts;
use crate::pool::balance::{GroupMember, Latency};
use crate::pool::freshness::{AwaitingChecks, LoadAverage};
use crate::pool::identity::Identities;
use crate::pool::outcome_rows::OutcomeRows;
use crate::pool::turns::{News, Turn};
use crate::pool::waiting::{WaitLimits, Waiter};
use crate::random::Dice;
use crate::server::connection::Principal;
use crate::server::connections::Connections;
use crate::session::transaction_log::TransactionLog;
use crate::snapshot::{Balancing, Holding, ReadPreference, Server, StrictRead, Throttle};
use crate::stats::ReadCounts;

/// For people.
pub(crate) const NO_WRITE_LEASE: &str = "not confirmed as the writer in time (by weir.topology, or with auto_failover by the servers themselves); another Weir may have moved the role";

/// A worker's connections to servers, and who waits for them.
pub(crate) struct Pools {
    pub connections: Connections,
    pub servers: Vec<Pool>,
    pub groups: HashMap<u32, Group>,
    pub identities: Identities,
    pub dice: Dice,
    /// Those who wait for any server of their hostgroup.
    pub parked: VecDeque<Waiter>,
    /// Some of them wait for servers to have a transaction.
    pub awaits_gtid: bool,
    /// Those who wait for a server to be fresh enough.
    pub awaiting: AwaitingChecks,
    /// Places that have another server now than before.
    pub reused: Vec<ServerIndex>,
    /// For sessions: see [`crate::pool::turns`].
    pub news: VecDeque<News>,
    pub turns: VecDeque<Turn>,
    pub wait_limits: WaitLimits,
    /// Those of all clusters.
    pub holdings: Vec<Arc<Holding>>,
    /// Some hostgroup has a retry buffer.
    pub buffers_results: bool,
    /// Logs of transactions that are over, for the next ones.
    #[expect(clippy::vec_box, reason = "sessions get them in their boxes, so that none is made")]
    pub spare_logs: Vec<Box<TransactionLog>>,
    pub outcomes: OutcomeRows,
}

impl Pools {
    /// Those of the worker with this number.
    pub(crate) fn new(worker: usize) -> Self {
        Self {
            connections: Connections::default(),
            servers: Vec::new(),
            groups: HashMap::new(),
            identities: Identities::default(),
            dice: Dice::new(worker as u64),
            parked: VecDeque::new(),
            awaits_gtid: false,
            awaiting: AwaitingChecks::new(),
            reused: Vec::new(),
            news: VecDeque::new(),
            turns: VecDeque::new(),
            wait_limits: WaitLimits::default(),
            holdings: Vec::new(),
            spare_logs: Vec::new(),
            outcomes: OutcomeRows::default(),
            buffers_results: false,
        }
    }
}

/// This worker's connections to one server.
pub(crate) struct Pool {
    pub(crate) server: Arc<Server>,
    /// Still configured.
    pub(crate) is_current: bool,
    /// Idle connections, the most recently used last.
    pub(crate) idle: Vec<ConnectionKey>,
    /// Connections that count against max_connections, in this worker.
    pub(crate) open: u32,
    pub(crate) dialing: u32,
    /// Connections on their way to this pool's waiters by COM_CHANGE_USER.
    pub(crate) handovers: u32,
    /// How many of both there are for each principal.
    pub(crate) coming: Vec<(Principal, u32)>,
    /// In line for a connection to it.
    pub(crate) waiters: VecDeque<Waiter>,
    /// The waiters are to be looked after at this time.
    pub(crate) supply_at: Nanos,
    /// After failures: no dial before this time.
    pub(crate) retry_at: Nanos,
    pub(crate) failures: u32,
    /// No new work before this time: a statement was turned away.
    pub(crate) suspect_until: Nanos,
    pub(crate) last_error: String,
    /// Workers that asked for a connection of ours.
    pub(crate) wanted_by: HashSet<usize>,
    /// We have asked the other workers.
    pub(crate) has_asked: bool,
    /// throttle_connections_per_sec keeps the first waiter from a connection of its own.
    pub(crate) is_throttled: bool,
    /// Statements of sessions that have been sent and are not answered.
    pub(crate) running: u32,
    pub(crate) latency: Latency,
    /// How many statements were under way lately.
    pub(crate) load: LoadAverage,
    /// It was out of a hostgroup, or shunned there.
    pub(crate) was_away: bool,
    /// How it reads statements, as it told this worker: see `dialect`.
    pub(crate) reads_as: u32,
    /// Nothing may be written there, and what was on its way has been seen to.
    pub(crate) has_lost_write_lease: bool,
    pub(crate) counts: crate::stats::statements::PoolCounts,
    /// What its connections have begun with, by identity.
    pub(crate) defaults: Vec<crate::pool::defaults::KnownDefaults>,
    /// The character sets after COM_RESET_CONNECTION on MySQL, in a state without a schema; on MariaDB, where they are
    /// those of the login, there is none.
    pub(crate) charsets_after_reset: Option<State>,
}

/// This worker's view of a hostgroup.
pub(crate) struct Group {
    pub(crate) members: Vec<GroupMember>,
    pub(crate) reader_hostgroup: Option<u32>,
    /// It has no members because its writer is being moved on purpose.
    pub(crate) is_held: bool,
    pub(crate) is_replicated: bool,
    /// It has one member, which has taken the writes of its cluster since then.
    pub(crate) sole_writer_since: Option<Nanos>,
    /// How fresh reads have to be where nobody else says so.
    pub(crate) consistency: Consistency,
    /// Where reads go for which no reader is known to be fresh enough.
    pub(crate) reads: ReadPreference,
    /// How long a read waits for a reader to be fresh enough.
    pub(crate) consistency_timeout: Nanos,
    /// How often a statement is run again that its server has undone (1213).
    pub(crate) deadlock_retries: u32,
    /// Whether transactions run again where their server is lost.
    pub(crate) transaction_replay: ReplayMode,
    /// How long the log of such a transaction may become, in bytes.
    pub(crate) transaction_replay_max_bytes: u32,
    /// Transactions that write have a row of their own in `weir.outcomes`, which says whether they were committed.
    pub(crate) marks_commits: bool,
    /// What a server writes without a transaction stays with it.
    pub(crate) replicates_transactions_only: bool,
    /// What makes a server wait by itself until it has everything.
    pub(crate) strict: StrictRead,
    /// In which way its reads were fresh enough.
    pub(crate) reads_by: ReadCounts,
    /// Sessions keep the connection that they have got here (multiplex = 0).
    pub(crate) keeps_connections: bool,
    pub(crate) absent: String,
    pub(crate) balancing: Balancing,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) holding: Option<Arc<Holding>>,
    /// Results of reads up to this size are held back until they are complete.
    pub(crate) retry_buffer_bytes: u32,
    /// As which servers statements are read that go to it.
    pub(crate) reads_as: Reading,
}

impl Group {
    /// What of it decides how fresh its members are.
    pub(crate) fn facts(&self) -> GroupFacts {
        GroupFacts {
            is_replicated: self.is_replicated,
            sole_writer_since: self.sole_writer_since,
            takes_writes: self.reader_hostgroup.is_some(),
            is_uncheckable: false,
        }
    }
}

/// A server that turned a statement away gets no new ones for so long, unless the monitor says otherwise.
const SUSPECT_NS: Nanos = 100_000_000;

impl Pools {
    /// Whether a connection leads to a server of this hostgroup.
    pub(crate) fn is_member(&self, connection: ConnectionKey, hostgroup: u32) -> bool {
        let server = self.connections[connection].server;
        let group = self.groups.get(&hostgroup);
        group.is_some_and(|group| group.members.iter().any(|member| member.server == server))
    }

    /// Whether a connection leads to the only writer of the cluster whose hostgroup it is used for.
    pub(crate) fn is_sole_writer(&self, connection: ConnectionKey) -> bool {
        let hostgroup = self.connections[connection].hostgroup;
        self.groups.get(&hostgroup).is_some_and(|group| group.sole_writer_since.is_some())
            && self.is_member(connection, hostgroup)
    }

    /// Takes the connection that still knows a session's diagnostics, if it is idle and well.
    pub(crate) fn take_retaining(&mut self, retained_on: ConnectionKey) -> bool {
        let server = self.connections[retained_on].server;
        let idle = &mut self.servers[server].idle;
        let Some(at) = idle.iter().position(|connection| *connection == retained_on) else { return false };
        idle.remove(at);
        true
    }

    /// Something is wrong with a server: no new work for a moment, and a word to the monitor.
    pub(crate) fn suspect(&mut self, ctx: &Context, server: ServerIndex) {
        let pool = &mut self.servers[server];
        pool.suspect_until = ctx.now + SUSPECT_NS;
        ctx.shared.suspect(&pool.server.endpoint);
    }
}

impl Pools {
    /// Whether a connection's server leaves, and sessions may have it no longer.
    pub(crate) fn has_overstayed(&self, ctx: &Context, connection: ConnectionKey) -> bool {
        let server =
            self.connections.get(connection).map(|connection| &self.servers[connection.server].server);
        server.is_some_and(|server| server.is_leaving && server.leave_by.is_some_and(|by| by <= ctx.now))
    }

    /// Whether a connection's server has no part any more in the hostgroup for which it was used, and still answers.
    pub(crate) fn is_left(&self, lease: ConnectionKey) -> bool {
        let connection = &self.connections[lease];
        let server = &self.servers[connection.server].server;
        self.groups.contains_key(&connection.hostgroup)
            && !self.is_member(lease, connection.hostgroup)
            && !server.is_gone
            && !server.is_silent
    }
}

impl Pools {
    /// A connection is being opened.
    pub(crate) fn count_open(&mut self, server: ServerIndex, hostgroup: u32) {
        let pool = &mut self.servers[server];
        let counts = pool.counts.of(hostgroup);
        counts.open_max = counts.open_max.max(pool.open);
    }
}
