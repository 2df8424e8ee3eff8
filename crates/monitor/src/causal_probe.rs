//! Finds out which writes of its cluster a server has for certain.
//!
//! A session that the server itself makes wait before each read tells: once such a read that began at t0 has ended,
//! every write that any server of the cluster acknowledged before t0 is visible to everybody on this one. The data path
//! looks whether the moment that a session must see is covered, and where it is not it says so: the next read begins as soon
//! as the last one has ended and the server has had its pause ([`pace`]), and serves all who wait. While nobody waits nor
//! writes, and no other Weir waits for this one to notice what it has written into the epoch's tables, such reads are rare.
//!
//! | cluster | what makes a read wait |
//! | --- | --- |
//! | Galera | `wsrep_sync_wait = 1`: for everything that the cluster had ordered when the read began (Galera manual) |
//! | Group Replication | `group_replication_consistency = BEFORE`: the same (MySQL manual, "Transaction Consistency Guarantees") |
//! | asynchronous replication | nothing: see [`replication`] |
//!
//! A node that is cut off from the cluster can't finish the wait, so it covers nothing new from that moment on, long
//! before it knows that it is cut off. How that is kept from holding up anybody once the node is well: [`reads`].

pub(crate) mod alarm;
#[cfg(test)]
mod fake;
mod pace;
mod reads;
mod replication;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_client::Options;
use weir_topology::{EpochRead, ReadOnlyCheck};

use self::alarm::Alarm;
use self::reads::Reads;
use crate::epoch_tables::Fault;
use crate::probe_thread::{Order, ends};
use crate::settings::Kind;
use crate::topology_thread::Event;

/// The pause after a read, while somebody writes and nobody waits.
const PAUSE: Duration = Duration::from_millis(25);
/// The pause between reads that would tell nobody anything new.
const REST: Duration = Duration::from_millis(200);
/// The pause while the server is no member of its cluster, and after failures.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// The pause if the server doesn't do what its manual says.
const UNFIT_PAUSE: Duration = Duration::from_secs(10);

/// A read of the epoch's tables that shows nothing new is told so often.
const EPOCH_PAUSE: Duration = Duration::from_millis(200);

/// The rows of the epoch's tables that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The cluster's writer hostgroup.
    pub(crate) hostgroup: u32,
    /// Those of `weir.drains`, too.
    pub(crate) with_drains: bool,
}

/// The state of a server, from the topology thread for its causal probe.
#[derive(Default)]
pub(crate) struct Standing {
    works: AtomicBool,
    /// The cluster whose epoch is to be read, plus one; 0: none.
    epoch_of: AtomicU64,
    /// And servers that leave.
    with_drains: AtomicBool,
    /// Other Weirs may wait for this one to read it.
    has_peers: AtomicBool,
    writer: Mutex<Option<Writer>>,
}

/// The only writer of servers with asynchronous replication.
#[derive(Clone, PartialEq)]
pub(crate) enum Writer {
    /// The server itself, and what would make it read_only.
    Itself(ReadOnlyCheck),
    /// Another one.
    Other(Box<Source>),
}

/// A writer that others replicate from.
#[derive(Clone, PartialEq)]
pub(crate) struct Source {
    /// How to connect to it.
    pub(crate) options: Options,
    /// What would make it read_only.
    pub(crate) check: ReadOnlyCheck,
}

impl Standing {
    /// Whether the server works in its cluster, and with replication who is its only writer.
    pub(crate) fn set(&self, works: bool, writer: Option<Writer>) {
        self.works.store(works, Ordering::Relaxed);
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = writer;
    }

    /// Of which cluster the epoch's tables are to be read, if of any, and whether other Weirs live by them.
    pub(crate) fn read_epoch_of(&self, tables: Option<Tables>, has_peers: bool) {
        self.has_peers.store(has_peers, Ordering::Relaxed);
        self.with_drains.store(tables.is_some_and(|tables| tables.with_drains), Ordering::Relaxed);
        let stored = tables.map_or(0, |tables| u64::from(tables.hostgroup) + 1);
        self.epoch_of.store(stored, Ordering::Relaxed);
    }

    fn epoch_of(&self) -> Option<Tables> {
        let stored = self.epoch_of.load(Ordering::Relaxed);
        let hostgroup = stored.checked_sub(1).and_then(|hostgroup| u32::try_from(hostgroup).ok())?;
        Some(Tables { hostgroup, with_drains: self.with_drains.load(Ordering::Relaxed) })
    }

    fn is_awaited(&self) -> bool {
        self.has_peers.load(Ordering::Relaxed)
    }

    fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    fn writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Keeps the coverage of the alarm's server up to date until it is told to end.
pub(crate) fn run(
    kind: Kind,
    options: Options,
    alarm: &Alarm,
    standing: &Standing,
    told: Told,
    hurry: &AtomicBool,
    orders: &Receiver<Order>,
) {
    let waiting = match kind {
        Kind::Ping => return,
        Kind::Replication { .. } => return replication::run(options, alarm, standing, orders),
        Kind::Galera => reads::GALERA,
        Kind::GroupReplication => reads::GROUP_REPLICATION,
    };
    let mut reads = Reads::new(waiting, options, alarm, told);
    loop {
        if standing.works() {
            reads.go_on(standing.epoch_of(), standing.is_awaited() || hurry.load(Ordering::Relaxed));
        } else {
            reads.forget();
            reads.sleep(IDLE_PAUSE);
        }
        if ends(orders) {
            return;
        }
    }
}

/// Tells the topology thread what reads of the epoch's tables have shown.
pub(crate) struct Told {
    pub(crate) events: SyncSender<Event>,
    pub(crate) generation: u64,
    pub(crate) endpoint: weir_topology::Endpoint,
    pub(crate) last: Option<(EpochRead, Instant)>,
}

impl Told {
    fn tell(&mut self, result: Result<EpochRead, Fault>) {
        if let (Ok(read), Some((last, at))) = (&result, &self.last)
            && (&read.row, &read.instances, &read.drains) == (&last.row, &last.instances, &last.drains)
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
