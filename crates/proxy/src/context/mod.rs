//! Provides what all parts of a worker use: the time, timers, randomness, what is learnt and counted.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use weir_routing::Router;
use weir_session::defaults;
use weir_session::prepared::Registry;
use weir_session::state::{Interner, State};
use weir_sql::{Dialect, Digester, Server as Reading};

use crate::context::counting::digest_options;
use crate::context::known_schemas::KnownSchemas;
use crate::context::refusals::Refusals;
use crate::context::timers::Timers;
use crate::keys::{Nanos, ServerIndex, SessionKey};
use crate::outbox::{Outbox, SocketId};
use crate::random::Random;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::stats::Statistics;
use crate::stats::query_log::QueryLog;

pub(crate) mod counting;
pub(crate) mod known_schemas;
pub(crate) mod refusals;
pub(crate) mod timers;

/// How far the worker is with a drain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Draining {
    /// While it drains: until when.
    pub until: Option<Nanos>,
    /// While it drains: until when clients that have just come may send their first command.
    pub newcomers_until: Nanos,
}

/// See the module's text.
pub(crate) struct Context {
    /// What is to be done to sockets.
    pub out: Outbox,
    /// The time of the current event.
    pub now: Nanos,
    /// This worker's number.
    pub worker: usize,
    pub shared: Arc<Shared>,
    pub snapshot: Arc<Snapshot>,
    pub started_at: Nanos,
    pub drain: Draining,
    /// The sessions by the connection ids that their clients know.
    pub ids: HashMap<u32, SessionKey>,
    /// Sessions that have ended: the worker removes them once the current event is dealt with.
    pub ended: Vec<(SessionKey, SocketId)>,
    pub timers: Timers,
    pub random: Random,
    /// Sessions to look at again once the current event is dealt with.
    pub runnable: VecDeque<(SessionKey, SocketId)>,
    pub statistics: Statistics,
    pub query_log: QueryLog,
    pub refusals: Refusals,
    pub interner: Interner,
    pub fresh: Rc<State>,
    pub defaults: defaults::Interner,
    pub registry: Registry,
    pub digester: Digester,
    pub router: Router,
    /// Patterns given up that the log knows of.
    pub told_given_up: u64,
    /// The same of comments with a min_gtid that is none.
    pub told_malformed_gtids: u64,
    pub learnt: Learnt,
}

/// What the worker has learnt from servers, and remembers.
pub(crate) struct Learnt {
    /// How statements are read where a session has not said otherwise; as which server is another matter, see
    /// `plan::dialect`.
    pub default_dialect: Dialect,
    /// The servers as which all hostgroups read statements, if it is the same in all.
    pub reads_as: Option<Reading>,
    /// A server has told its sql_mode.
    pub knows_sql_mode: bool,
    /// What a `SET NAMES ...` does to (character_set_connection, collation_connection), by its text.
    pub collations: HashMap<NamesOnServer, CharsetAndCollation>,
    /// Users whose read-only transactions have turned out to need more than a reader gives.
    pub read_only_on_writer: HashSet<String>,
    pub known_schemas: KnownSchemas,
    /// Variables that servers were asked about for lists of session_track_system_variables.
    pub variable_names: HashSet<Box<str>>,
}

impl Context {
    /// Time passes. The events of a batch come with times of their own, and it never goes back: what came later must not seem
    /// to have come before what it was told of.
    pub(crate) fn pass_to(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// That of a worker with this number. `seed` is secret: scrambles are made from it.
    pub(crate) fn new(
        worker: usize,
        shared: Arc<Shared>,
        snapshot: Arc<Snapshot>,
        seed: [u8; 32],
        now: Nanos,
    ) -> Self {
        let statistics = Statistics::new(shared.full_tables.clone());
        let query_log = QueryLog::new(shared.query_logs.feed(worker), worker);
        let mut interner = Interner::default();
        let fresh = interner.intern(State::fresh());
        Self {
            out: Outbox::default(),
            now,
            worker,
            started_at: now,
            drain: Draining::default(),
            ids: HashMap::new(),
            ended: Vec::new(),
            timers: Timers::new(now),
            random: Random { seed, drawn: 0 },
            runnable: VecDeque::new(),
            statistics,
            query_log,
            refusals: Refusals::default(),
            interner,
            fresh,
            defaults: defaults::Interner::default(),
            registry: Registry::default(),
            digester: Digester::new(digest_options(&snapshot)),
            router: Router::new(&snapshot.rules),
            told_given_up: 0,
            told_malformed_gtids: 0,
            learnt: Learnt {
                default_dialect: Dialect { server: Reading::UNKNOWN, ..snapshot.dialect },
                reads_as: None,
                knows_sql_mode: false,
                collations: HashMap::new(),
                read_only_on_writer: HashSet::new(),
                known_schemas: KnownSchemas::default(),
                variable_names: HashSet::new(),
            },
            shared,
            snapshot,
        }
    }
}

/// character_set_connection and collation_connection.
pub(crate) type CharsetAndCollation = (Box<str>, Box<str>);

/// The words of a SET NAMES, the server that has them, and what decides about their meaning in the session.
pub(crate) type NamesOnServer = (ServerIndex, Box<[u8]>, [Option<Box<str>>; 3]);
