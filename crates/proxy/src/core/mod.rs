//! A worker without I/O: all its sessions, backend connections and pools as one state machine.
//!
//! The driver hands in events ([`Core::accept`], [`Core::data`], [`Core::connected`], [`Core::closed`],
//! [`Core::drained`], [`Core::message`], [`Core::tick`]) with the time, and afterwards empties [`Core::out`].
//! Nothing here reads a clock, a socket or a random source, so that everything can be tested as bytes in and
//! bytes out.

mod acquire;
mod again;
mod aside;
mod backend;
mod backlog;
mod balance;
mod bound;
mod care;
pub mod census;
mod client;
mod command;
mod completion;
mod conditions;
mod counting;
mod cursor;
mod defaults;
mod explain;
mod explain_for;
mod finish;
mod found_rows;
mod get_diagnostics;
mod holding;
mod infile;
mod keep;
mod kill;
mod lapsed;
mod local;
mod long_data;
mod lost;
pub(crate) mod model;
mod offer;
mod old_eof;
mod parameters;
mod past;
mod prepared;
mod query_attributes;
mod read_only;
mod reading;
mod refusals;
mod relay;
mod reload;
mod renewal;
mod report;
mod route;
mod run;
mod saved;
mod schemas;
mod scribe;
mod seldom;
mod setup;
mod several;
mod silence;
mod status;
mod supply;
mod timers;
mod track;
mod turned_away;
mod typed;
mod upload;
mod verify;
mod withhold;
mod writing;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use sha2::{Digest, Sha256};
use slab::Slab;
use weir_config::Listener;
use weir_protocol::capability::Capabilities;
use weir_protocol::handshake::Scramble;
use weir_routing::Router;
use weir_session::prepared::Registry;
use weir_session::state::{Interner, State};
use weir_sql::{Dialect, Digester, Server as Reading};

use crate::listener::Peer;
use crate::outbox::{Outbox, Owner, SocketId};
use crate::shared::{Message, Shared};
use crate::snapshot::{Account, Balancing, Holding, Server, Snapshot, Throttle};
use crate::statistics::Statistics;
use balance::{Dice, GroupMember, Latency};
pub use model::Nanos;
use model::{Backend, BackendKey, ServerIndex, Session, SessionKey};

/// The capabilities that a backend connection takes over from its session, because they change results or
/// safety. Connections that differ in them are not interchangeable.
pub(crate) const IDENTITY_CAPABILITIES: Capabilities = Capabilities::FOUND_ROWS
    .union(Capabilities::IGNORE_SPACE)
    .union(Capabilities::MULTI_STATEMENTS)
    .union(Capabilities::INTERACTIVE)
    .union(Capabilities::LOCAL_FILES)
    .union(Capabilities::MARIADB_EXTENDED_METADATA)
    .union(Capabilities::QUERY_ATTRIBUTES);

/// character_set_connection and collation_connection.
type CharsetAndCollation = (Box<str>, Box<str>);
/// The words of a SET NAMES, the server that has them, and what decides about their meaning in the session.
type NamesOnServer = (ServerIndex, Box<[u8]>, [Option<Box<str>>; 3]);

/// See the module's text.
pub struct Core {
    /// What is to be done to sockets.
    pub out: Outbox,
    shared: Arc<Shared>,
    /// This worker's number.
    worker: usize,
    snapshot: Arc<Snapshot>,
    sessions: Slab<Session>,
    backends: Slab<Backend>,
    servers: Vec<Pool>,
    groups: HashMap<u32, Group>,
    identities: Identities,
    interner: Interner,
    defaults: weir_session::defaults::Interner,
    registry: Registry,
    random: Random,
    dice: Dice,
    digester: Digester,
    statistics: Statistics,
    scribe: scribe::Scribe,
    refusals: refusals::Refusals,
    router: Router,
    /// Patterns given up that the log knows of.
    told_given_up: u64,
    /// How statements are read where a session has not said otherwise; as which server is another matter, see `reading`.
    default_dialect: Dialect,
    /// The servers as which all hostgroups read statements, if it is the same in all.
    reads_as: Option<Reading>,
    /// A server has told its sql_mode.
    knows_sql_mode: bool,
    timers: timers::Timers,
    /// What a `SET NAMES ...` does to (character_set_connection, collation_connection), by its text.
    collations: HashMap<NamesOnServer, CharsetAndCollation>,
    /// Sessions that wait for any server of their hostgroup.
    parked: VecDeque<(SessionKey, SocketId)>,
    wait_limits: holding::WaitLimits,
    /// Some hostgroup has a retry buffer.
    withholds_results: bool,
    /// Sessions to look at again once the current event is dealt with.
    runnable: VecDeque<(SessionKey, SocketId)>,
    fresh: Rc<State>,
    next_session: u32,
    /// The sessions by the connection ids that their clients know.
    ids: HashMap<u32, SessionKey>,
    /// Users whose read-only transactions have turned out to need more than a reader gives.
    read_only_on_writer: HashSet<String>,
    known_schemas: schemas::KnownSchemas,
    /// Variables that servers were asked about for lists of session_track_system_variables.
    variable_names: HashSet<Box<str>>,
    started_at: Nanos,
    draining_until: Option<Nanos>,
    /// While draining: until when clients that have just come may send their first command.
    newcomers_until: Nanos,
    now: Nanos,
}

/// This worker's connections to one server.
struct Pool {
    server: Arc<Server>,
    /// Still configured.
    is_current: bool,
    /// Idle connections, the most recently used last.
    idle: Vec<BackendKey>,
    /// Connections that count against max_connections, in this worker.
    open: u32,
    dialing: u32,
    /// Connections on their way to this pool's waiters by COM_CHANGE_USER.
    handovers: u32,
    /// How many of both there are for each identity.
    coming: Vec<(usize, u32)>,
    waiters: VecDeque<(SessionKey, SocketId)>,
    /// The waiters are to be looked after at this time.
    supply_at: Nanos,
    /// After failures: no dial before this time.
    retry_at: Nanos,
    failures: u32,
    /// No new work before this time: a statement was turned away.
    suspect_until: Nanos,
    last_error: String,
    /// Workers that asked for a connection of ours.
    wanted_by: HashSet<usize>,
    /// We have asked the other workers.
    has_asked: bool,
    /// throttle_connections_per_sec keeps the first waiter from a connection of its own.
    is_throttled: bool,
    /// Statements of sessions that have been sent and are not answered.
    running: u32,
    latency: Latency,
    /// It was out of a hostgroup, or shunned there.
    was_away: bool,
    /// How it reads statements, as it told this worker: see `reading`.
    reads_as: u32,
    /// Nothing may be written there, and what was on its way has been seen to.
    has_lapsed: bool,
    counts: counting::PoolCounts,
    /// What its connections have begun with, by identity.
    defaults: Vec<defaults::KnownDefaults>,
    /// The character sets after COM_RESET_CONNECTION on MySQL, in a state without a schema; on MariaDB, where they are
    /// those of the login, there is none.
    charsets_after_reset: Option<State>,
}

/// This worker's view of a hostgroup.
struct Group {
    members: Vec<GroupMember>,
    reader_hostgroup: Option<u32>,
    is_replicated: bool,
    /// Sessions keep the connection that they have got here (multiplex = 0).
    keeps_connections: bool,
    absent: String,
    balancing: Balancing,
    throttle: Arc<Throttle>,
    holding: Option<Arc<Holding>>,
    /// Results of reads up to this size are held back until they are complete.
    retry_buffer_bytes: u32,
    /// As which servers statements are read that go to it.
    reads_as: Reading,
}

/// Who a backend connection is logged in as, and with which capabilities.
struct Identity {
    account: Arc<Account>,
    capabilities: Capabilities,
}

#[derive(Default)]
struct Identities(Vec<Identity>);

impl Identities {
    fn of(&mut self, account: &Arc<Account>, capabilities: Capabilities) -> usize {
        let capabilities = capabilities & IDENTITY_CAPABILITIES;
        let known = self
            .0
            .iter()
            .position(|known| Arc::ptr_eq(&known.account, account) && known.capabilities == capabilities);
        known.unwrap_or_else(|| {
            self.0.push(Identity { account: account.clone(), capabilities });
            self.0.len() - 1
        })
    }
}

/// Scrambles and jitter: the hash of a secret seed and a counter, so that the driver gives the seed once and the
/// core stays deterministic.
struct Random {
    seed: [u8; 32],
    drawn: u64,
}

impl Random {
    fn block(&mut self) -> [u8; 32] {
        self.drawn += 1;
        Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_le_bytes()).finalize().into()
    }

    /// 20 bytes that no client can foresee; none is zero, nor `$`, as servers have it.
    fn scramble(&mut self) -> Scramble {
        let block = self.block();
        std::array::from_fn(|at| 0x25 + block[at] % 0x5A)
    }

    fn next(&mut self) -> u64 {
        let block = self.block();
        block.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// `value` plus or minus a quarter.
    fn jitter(&mut self, value: Nanos) -> Nanos {
        value - value / 4 + self.next() % (value / 2 + 1)
    }
}

impl Core {
    /// A worker with this number. `seed` is secret: scrambles are made from it.
    pub fn new(
        worker: usize,
        shared: Arc<Shared>,
        snapshot: Arc<Snapshot>,
        seed: [u8; 32],
        now: Nanos,
    ) -> Self {
        let statistics = Statistics::new(shared.full_tables.clone());
        let feed = shared.journal.feed(worker);
        let mut interner = Interner::default();
        let fresh = interner.intern(State::fresh());
        let mut core = Self {
            out: Outbox::default(),
            shared,
            worker,
            snapshot: snapshot.clone(),
            sessions: Slab::new(),
            backends: Slab::new(),
            servers: Vec::new(),
            groups: HashMap::new(),
            identities: Identities::default(),
            interner,
            defaults: Default::default(),
            registry: Registry::default(),
            random: Random { seed, drawn: 0 },
            dice: Dice::new(worker as u64),
            digester: Digester::new(counting::digest_options(&snapshot)),
            statistics,
            scribe: scribe::Scribe::new(feed, worker),
            refusals: refusals::Refusals::default(),
            router: Router::new(&snapshot.rules),
            told_given_up: 0,
            default_dialect: Dialect { server: Reading::UNKNOWN, ..snapshot.dialect },
            reads_as: None,
            knows_sql_mode: false,
            timers: timers::Timers::new(now),
            collations: HashMap::new(),
            parked: VecDeque::new(),
            wait_limits: Default::default(),
            withholds_results: false,
            runnable: VecDeque::new(),
            fresh,
            next_session: 0,
            ids: HashMap::new(),
            read_only_on_writer: HashSet::new(),
            known_schemas: Default::default(),
            variable_names: HashSet::new(),
            started_at: now,
            draining_until: None,
            newcomers_until: 0,
            now,
        };
        core.take_snapshot(snapshot);
        core
    }

    /// A client has connected to a listener. Its socket's events come under the id that is returned; `None` when the worker
    /// takes no clients any more.
    pub fn accept(&mut self, peer: Peer, listener: &Arc<Listener>, now: Nanos) -> Option<SocketId> {
        self.now = now;
        self.greet(peer, listener)
    }

    /// Bytes have come. They may be changed in place (sequence ids are).
    pub fn data(&mut self, socket: SocketId, bytes: &mut [u8], now: Nanos) {
        self.now = now;
        match self.out.owner(socket) {
            Some(Owner::Session(key)) => self.client_data(key, bytes),
            Some(Owner::Backend(key)) => self.backend_data(key, bytes),
            None => {}
        }
        self.run_runnable();
    }

    /// A connection that was ordered stands, or could not be made.
    pub fn connected(&mut self, socket: SocketId, result: std::io::Result<()>, now: Nanos) {
        self.now = now;
        if let (Some(Owner::Backend(key)), Err(error)) = (self.out.owner(socket), result) {
            self.dial_failed(key, None, &error.to_string());
        }
        self.run_runnable();
    }

    /// TLS towards a server has begun, as ordered: what is queued from now on goes through it.
    pub fn encrypted(&mut self, socket: SocketId, now: Nanos) {
        self.now = now;
        if let Some(Owner::Backend(key)) = self.out.owner(socket) {
            self.backend_encrypted(key);
        }
    }

    /// TLS can't go on, for this reason; the socket is of no use any more.
    pub fn tls_failed(&mut self, socket: SocketId, reason: &str, now: Nanos) {
        self.now = now;
        match self.out.owner(socket) {
            Some(Owner::Backend(key)) if self.backends[key].login.is_some() => {
                self.dial_failed(key, None, &format!("TLS: {reason}"));
                self.run_runnable();
            }
            _ => self.closed(socket, now),
        }
    }

    /// The peer has closed, or the socket broke.
    pub fn closed(&mut self, socket: SocketId, now: Nanos) {
        self.now = now;
        match self.out.owner(socket) {
            Some(Owner::Session(key)) => self.client_gone(key),
            Some(Owner::Backend(key)) => self.backend_gone(key),
            None => {}
        }
        self.run_runnable();
    }

    /// Everything queued for a socket has been sent, after [`Outbox::notify_drained`].
    pub fn drained(&mut self, socket: SocketId, now: Nanos) {
        self.now = now;
        match self.out.owner(socket) {
            Some(Owner::Session(key)) => self.client_drained(key),
            Some(Owner::Backend(key)) => self.backend_drained(key),
            None => {}
        }
        self.run_runnable();
    }

    /// Another thread has something to say. [`Message::Client`] and [`Message::Listen`] are the driver's own
    /// business.
    pub fn message(&mut self, message: Message, now: Nanos) {
        self.now = now;
        match message {
            Message::Client(..) | Message::Listen(..) | Message::Wake | Message::Barrier(_) => {}
            Message::Checked(socket, verdict) => self.password_checked(socket, verdict),
            Message::Snapshot(snapshot) => self.take_snapshot(snapshot),
            Message::Wanted { endpoint, by } => self.connection_wanted(&endpoint, by),
            Message::Credit { server } => self.credit_given(&server),
            Message::Kill { victims, query_only, user, by } => {
                self.kill_asked(victims, query_only, &user, by);
            }
            Message::KillByAdmin { session, query_only, to } => {
                // Who asked may have given up.
                let _ = to.send(self.kill_by_admin(session, query_only));
            }
            Message::Killed { to, outcome } => self.kill_answered(to, outcome),
            Message::Report { part, begins_again, to } => {
                // Whoever asked may have gone.
                let _ = to.send(self.report(part, begins_again));
            }
            Message::CutWriters { endpoint } => self.cut_writers(&endpoint),
            Message::Drain(drain) => self.drain(drain),
        }
        self.run_runnable();
    }

    /// Time has passed. To be called at [`Core::next_deadline`], harmless at any other time.
    pub fn tick(&mut self, now: Nanos) {
        self.now = now;
        self.run_timers();
        self.run_runnable();
    }

    /// When [`Core::tick`] is due.
    pub fn next_deadline(&self) -> Nanos {
        self.timers_deadline()
    }

    /// After how long a silence the system asks a peer over TCP whether it is still there, for connections that begin
    /// now; zero: as the system has it, `None`: never.
    pub fn keepalive(&self) -> Option<Duration> {
        let variables = &self.snapshot.variables;
        variables.use_tcp_keepalive.then_some(variables.tcp_keepalive_time)
    }

    /// Clients connected to this worker.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Whether a drain is complete: nobody is left.
    pub fn is_drained(&self) -> bool {
        self.draining_until.is_some() && self.sessions.is_empty()
    }

    /// Takes up sessions that an event has set free, one after the other: a chain of sessions that hand on a
    /// connection must not become a chain of calls.
    fn run_runnable(&mut self) {
        while let Some((key, socket)) = self.runnable.pop_front() {
            if self.session_is(key, socket) {
                self.advance(key);
            }
        }
    }

    fn session_is(&self, key: SessionKey, socket: SocketId) -> bool {
        self.sessions.get(key).is_some_and(|session| session.socket == socket)
    }

    fn backend_is(&self, key: BackendKey, socket: SocketId) -> bool {
        self.backends.get(key).is_some_and(|backend| backend.socket == socket)
    }
}
