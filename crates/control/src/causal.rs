//! Which writes of its cluster a server has for certain.
//!
//! A session that the server itself makes wait before each read tells: once such a read that began at t0 has ended,
//! every write that any server of the cluster acknowledged before t0 is visible to everybody on this one. The data path
//! needs not wait itself: it looks whether the moment of a session's last write is covered.
//!
//! | cluster | what makes a read wait |
//! | --- | --- |
//! | Galera | `wsrep_sync_wait = 1`: for everything that the cluster had ordered when the read began (Galera manual) |
//! | Group Replication | `group_replication_consistency = BEFORE`: the same (MySQL manual, "Transaction Consistency Guarantees") |
//! | asynchronous replication | nothing: see [`replication`] |
//!
//! A node that is cut off from the cluster can't finish the wait, so it covers nothing new from that moment on, long
//! before it knows that it is cut off.

mod replication;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use weir_client::{Connection, Error, Options};
use weir_topology::{EpochRead, ServerShared};

use crate::clock::{monotonic_ms, monotonic_ns};
use crate::owner::Event;
use crate::probe_thread::{Order, wait};
use crate::settings::Kind;
use crate::tables::{self, Fault};

/// Reads a table, which every server waits for that waits at all, and which everybody may read. MySQL does not wait for
/// a SELECT without tables, nor for one of its performance schema.
const READ: &str = "SELECT 1 FROM information_schema.ENGINES LIMIT 1";
/// The pause after a read.
const PAUSE: Duration = Duration::from_millis(25);
/// The pause while the server is no member of its cluster, and after a failure.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// The pause if the server doesn't do what its manual says.
const UNFIT_PAUSE: Duration = Duration::from_secs(10);
/// How long a read may wait. Galera's own limit is `repl.causal_read_timeout`, 30 s.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A read of the epoch's tables that shows nothing new is told so often.
const EPOCH_PAUSE: Duration = Duration::from_millis(200);

/// What the owner tells a causal probe of its server.
#[derive(Default)]
pub(crate) struct Standing {
    works: AtomicBool,
    /// The cluster whose epoch is to be read, plus one; 0: none.
    epoch_of: AtomicU64,
    writer: Mutex<Option<Writer>>,
}

/// The only writer of servers with asynchronous replication.
#[derive(Clone, PartialEq)]
pub(crate) enum Writer {
    /// The server itself.
    Itself,
    /// Another one, and how to connect to it.
    Other(Box<Options>),
}

impl Standing {
    /// Whether the server works in its cluster, and with replication who is its only writer.
    pub(crate) fn set(&self, works: bool, writer: Option<Writer>) {
        self.works.store(works, Ordering::Relaxed);
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = writer;
    }

    /// Of which cluster the epoch's tables are to be read, if of any.
    pub(crate) fn read_epoch_of(&self, hostgroup: Option<u32>) {
        self.epoch_of.store(hostgroup.map_or(0, |hostgroup| u64::from(hostgroup) + 1), Ordering::Relaxed);
    }

    fn epoch_of(&self) -> Option<u32> {
        let stored = self.epoch_of.load(Ordering::Relaxed);
        stored.checked_sub(1).and_then(|hostgroup| u32::try_from(hostgroup).ok())
    }

    fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    fn writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Keeps `shared.covered_until_ns` up to date until it is told to end.
pub(crate) fn run(
    kind: Kind,
    mut options: Options,
    shared: &ServerShared,
    standing: &Standing,
    told: Told,
    orders: &Receiver<Order>,
) {
    let mut told = told;
    options.read_timeout = Some(READ_TIMEOUT);
    let waiting = match kind {
        Kind::Ping => return,
        Kind::Replication { .. } => return replication::run(options, shared, standing, orders),
        Kind::Galera => WAITING_GALERA,
        Kind::GroupReplication => WAITING_GROUP,
    };
    let mut session = None;
    loop {
        let pause = if standing.works() {
            read(&waiting, &options, &mut session, shared, standing.epoch_of(), &mut told)
        } else {
            session = None;
            IDLE_PAUSE
        };
        if !wait(orders, pause) {
            return;
        }
    }
}

/// How a session is made to wait.
struct Waiting {
    variable: &'static str,
    set: &'static str,
    /// Counts the waits of all sessions.
    counter: &'static str,
}

const WAITING_GALERA: Waiting = Waiting {
    variable: "wsrep_sync_wait",
    set: "SET SESSION wsrep_sync_wait = 1",
    counter: "SHOW GLOBAL STATUS LIKE 'wsrep_causal_reads'",
};
/// The counter is there from MySQL 8.1 on.
const WAITING_GROUP: Waiting = Waiting {
    variable: "group_replication_consistency",
    set: "SET SESSION group_replication_consistency = 'BEFORE'",
    counter: "SHOW GLOBAL STATUS LIKE 'Gr_transactions_consistency_before_begin_count'",
};

/// One read; gives the pause that is due after it.
fn read(
    waiting: &Waiting,
    options: &Options,
    session: &mut Option<Connection>,
    shared: &ServerShared,
    epoch_of: Option<u32>,
    told: &mut Told,
) -> Duration {
    let connection = match session {
        Some(connection) => connection,
        None => match open(waiting, options) {
            Ok(Some(connection)) => session.insert(connection),
            Ok(None) => {
                let Waiting { variable, .. } = waiting;
                warn!(server = %shared.endpoint, "{variable} has no effect here: reads can't be known to be fresh");
                told.tell(Err(Fault::Unfit(variable)));
                return UNFIT_PAUSE;
            }
            Err(error) => {
                debug!(server = %shared.endpoint, %error, "no causal probe");
                return IDLE_PAUSE;
            }
        },
    };
    let (begin_ms, begin_ns) = (monotonic_ms(), monotonic_ns());
    let result = match epoch_of {
        Some(hostgroup) => tables::read(connection, hostgroup, begin_ms).map(Some),
        None => connection.query(READ).map(|_| None).map_err(Fault::Other),
    };
    match result {
        Ok(read) => {
            shared.cover_until(begin_ns);
            if let Some(read) = read {
                told.tell(Ok(read));
            }
            PAUSE
        }
        Err(fault) => {
            debug!(server = %shared.endpoint, %fault, "a causal read failed");
            match &fault {
                Fault::Other(error) if error.is_fatal() => *session = None,
                Fault::Other(_) => {}
                // The read itself has waited, or another one can.
                Fault::Nonsense(_) => shared.cover_until(begin_ns),
                _ => {
                    let begin_ns = monotonic_ns();
                    if connection.query(READ).is_ok() {
                        shared.cover_until(begin_ns);
                    }
                }
            }
            told.tell(Err(fault));
            IDLE_PAUSE
        }
    }
}

/// Tells the owner what reads of the epoch's tables have shown.
pub(crate) struct Told {
    pub(crate) events: SyncSender<Event>,
    pub(crate) generation: u64,
    pub(crate) endpoint: weir_topology::Endpoint,
    pub(crate) last: Option<(EpochRead, Instant)>,
}

impl Told {
    fn tell(&mut self, result: Result<EpochRead, Fault>) {
        if let (Ok(read), Some((last, at))) = (&result, &self.last)
            && (&read.row, &read.instances) == (&last.row, &last.instances)
            && at.elapsed() < EPOCH_PAUSE
        {
            return;
        }
        self.last = result.as_ref().ok().map(|read| (read.clone(), Instant::now()));
        let (endpoint, generation) = (self.endpoint.clone(), self.generation);
        // Fails only at the end.
        let _ = self.events.send(Event::Epoch { endpoint, generation, result });
    }
}

/// A session that waits, or none if it doesn't although it should: that is checked with the server's own counter.
fn open(waiting: &Waiting, options: &Options) -> Result<Option<Connection>, Error> {
    let mut connection = Connection::connect(options)?;
    connection.query(waiting.set)?;
    let count = |connection: &mut Connection| -> Result<Option<u64>, Error> {
        Ok(connection.query(waiting.counter)?.text(0, 1).and_then(|count| count.parse().ok()))
    };
    let before = count(&mut connection)?;
    connection.query(READ)?;
    let after = count(&mut connection)?;
    Ok(before.zip(after).is_some_and(|(before, after)| after > before).then_some(connection))
}
