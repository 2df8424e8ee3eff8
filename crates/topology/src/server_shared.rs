//! Shares facts about a server between the monitor and the data path, which never wait for each other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::coverage::{Coverage, Listener};
use crate::executed_gtids::ExecutedGtids;
use crate::{Endpoint, SessionVariables};

/// One server's counters, shared by all threads. All times are nanoseconds of CLOCK_BOOTTIME.
#[derive(Debug)]
pub struct ServerShared {
    /// The server.
    pub endpoint: Endpoint,
    /// What it has applied for certain. Only the monitor says so.
    pub coverage: Coverage,
    /// Which transactions it has executed, for statements that name one. Only the monitor says so.
    pub gtids: ExecutedGtids,
    /// Until when statements that may write may be sent to it: the lease of the epoch whose writer it is. `u64::MAX`: no
    /// limit. Only the monitor writes it.
    pub writes_until_ns: AtomicU64,
    /// Until when writes have been noted, at whatever server of the registry.
    written_until_ns: Arc<AtomicU64>,
    /// When a write was acknowledged last by a server of the registry that was not its cluster's only writer by then.
    parted_write_ns: Arc<AtomicU64>,
    /// How it reads statements, as its last greeting told, in a number of the data path's; 0: it has not greeted yet.
    pub reads_as: AtomicU32,
    /// Connections that the data path has open to the server, in all hostgroups and workers.
    pub connections_open: AtomicU32,
    /// Grows when accounts of the server, or the values that sessions begin with, may have changed: what a connection
    /// proved when it was logged in before that, and what it has for defaults, may be over.
    renewal: AtomicU64,
    /// The renewals since which the accounts that Weir follows have been read.
    followed_renewal: AtomicU64,
    /// Once the monitor has learnt them.
    session_variables: Mutex<Option<Arc<SessionVariables>>>,
    /// The global value of autocommit, as seen last.
    is_autocommit: AtomicBool,
    /// It offers QUERY_ATTRIBUTES, as its last greeting told.
    takes_query_attributes: AtomicBool,
}

/// A write that is noted stands for those of so much time after it, which need not be noted then: threads that write
/// all the time would fight for the place.
const NOTED_AHEAD_NS: u64 = 1_000_000;

impl ServerShared {
    /// A server of which nothing is known.
    pub fn new(endpoint: Endpoint) -> Self {
        Self::among(endpoint, Arc::default(), Arc::default(), Arc::default())
    }

    fn among(
        endpoint: Endpoint,
        written_until_ns: Arc<AtomicU64>,
        parted_write_ns: Arc<AtomicU64>,
        listener: Arc<Listener>,
    ) -> Self {
        Self {
            endpoint,
            coverage: Coverage::telling(listener.clone()),
            gtids: ExecutedGtids::telling(listener),
            writes_until_ns: AtomicU64::new(u64::MAX),
            written_until_ns,
            parted_write_ns,
            reads_as: AtomicU32::new(0),
            connections_open: AtomicU32::new(0),
            renewal: AtomicU64::new(0),
            followed_renewal: AtomicU64::new(0),
            session_variables: Mutex::default(),
            is_autocommit: AtomicBool::new(true),
            takes_query_attributes: AtomicBool::new(false),
        }
    }

    /// How often accounts or defaults may have changed. A connection remembers the number from before its login, and is
    /// logged in anew before a session gets it that does not have it already, if the number has grown.
    pub fn renewal(&self) -> u64 {
        self.renewal.load(Ordering::Relaxed)
    }

    /// The same for sessions of accounts that Weir follows: the renewals behind which these have been read. A connection is
    /// not logged in anew before, with a password that may be another by now.
    pub fn followed_renewal(&self) -> u64 {
        self.followed_renewal.load(Ordering::Relaxed)
    }

    /// The accounts have been read since the renewals were as many, and what was read is in force.
    pub fn follow_renewals(&self, renewals: u64) {
        self.followed_renewal.fetch_max(renewals, Ordering::Relaxed);
    }

    /// Accounts of the server, or the values that sessions begin with, may have changed.
    pub fn renew(&self) {
        self.renewal.fetch_add(1, Ordering::Relaxed);
    }

    /// The variables that a new connection is asked for, if they are known. For the set-up of connections.
    pub fn session_variables(&self) -> Option<Arc<SessionVariables>> {
        self.session_variables.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The monitor has learnt them. Connections from before know nothing of their defaults, and are logged in anew.
    pub fn learn_session_variables(&self, variables: Arc<SessionVariables>) {
        *self.session_variables.lock().unwrap_or_else(PoisonError::into_inner) = Some(variables);
        self.renew();
    }

    /// Whether sessions begin with autocommit, as far as is known.
    pub fn is_autocommit(&self) -> bool {
        self.is_autocommit.load(Ordering::Relaxed)
    }

    /// Whether clients may send query attributes to it (MySQL 8.0.23 and later); false until it has greeted.
    pub fn takes_query_attributes(&self) -> bool {
        self.takes_query_attributes.load(Ordering::Relaxed)
    }

    /// What its greeting offers.
    pub fn note_query_attributes(&self, are_taken: bool) {
        self.takes_query_attributes.store(are_taken, Ordering::Relaxed);
    }

    /// The global value of autocommit.
    pub fn note_autocommit(&self, is_on: bool) {
        self.is_autocommit.store(is_on, Ordering::Relaxed);
    }

    /// A write was acknowledged at this moment, by this server or another one of the registry.
    pub fn note_write(&self, acknowledged_ns: u64) {
        if self.written_until_ns.load(Ordering::Relaxed) <= acknowledged_ns {
            self.written_until_ns.store(acknowledged_ns + NOTED_AHEAD_NS, Ordering::Relaxed);
        }
    }

    /// A write was acknowledged at this moment by a server that is not its cluster's only writer: it was on its way there
    /// when another one became that, or was sent there by a rule.
    pub fn note_parted_write(&self, acknowledged_ns: u64) {
        self.parted_write_ns.fetch_max(acknowledged_ns, Ordering::Relaxed);
    }

    /// When such a write was noted last, of any server of the registry; 0: none was.
    pub fn parted_write_ns(&self) -> u64 {
        self.parted_write_ns.load(Ordering::Relaxed)
    }

    /// Whether a write may have been noted that is not certainly visible here.
    pub fn may_lack_writes(&self) -> bool {
        !self.covers(self.written_until_ns.load(Ordering::Relaxed))
    }

    /// Whether a statement that may write may be sent at this time.
    pub fn may_write_at(&self, now_ns: u64) -> bool {
        now_ns < self.writes_until_ns.load(Ordering::Acquire)
    }

    /// Sets until when statements that may write may be sent.
    pub fn write_until(&self, moment_ns: u64) {
        self.writes_until_ns.store(moment_ns, Ordering::Release);
    }

    /// Whether a write acknowledged at `acknowledged_ns` is certainly visible here.
    pub fn covers(&self, acknowledged_ns: u64) -> bool {
        self.coverage.covers(acknowledged_ns)
    }
}

/// The [`ServerShared`] of every server ever named, so that a server that is removed and added again keeps its
/// counters. Cheap to clone; for snapshots and probes, not for the path of a statement.
#[derive(Clone, Default)]
pub struct ServerRegistry {
    servers: Arc<Mutex<BTreeMap<Endpoint, Registered>>>,
    written_until_ns: Arc<AtomicU64>,
    parted_write_ns: Arc<AtomicU64>,
    listener: Arc<Listener>,
}

impl fmt::Debug for ServerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRegistry").field("servers", &self.servers).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Registered {
    /// Where it is, if that was said.
    at: Option<SocketAddr>,
    shared: Arc<ServerShared>,
}

impl ServerRegistry {
    /// From now on `listener` is called when a server has applied what sessions wait for, with the workers of those: worker n
    /// is bit n modulo 64. Only the first one is.
    pub fn on_covered(&self, listener: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    fn unknown(&self, endpoint: &Endpoint) -> Arc<ServerShared> {
        let (written_until_ns, parted_write_ns) = (&self.written_until_ns, &self.parted_write_ns);
        Arc::new(ServerShared::among(
            endpoint.clone(),
            written_until_ns.clone(),
            parted_write_ns.clone(),
            self.listener.clone(),
        ))
    }

    /// The counters of `endpoint`, the same ones for every caller.
    pub fn server(&self, endpoint: &Endpoint) -> Arc<ServerShared> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.entry(endpoint.clone());
        let shared = || self.unknown(endpoint);
        server.or_insert_with(|| Registered { at: None, shared: shared() }).shared.clone()
    }

    /// From now on `endpoint` is at this address. If it was at another one, it is another server from now on, of which
    /// nothing is known; whoever still has to do with the former one keeps that one's counters.
    pub fn is_at(&self, endpoint: &Endpoint, address: SocketAddr) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = || self.unknown(endpoint);
        let entry =
            servers.entry(endpoint.clone()).or_insert_with(|| Registered { at: None, shared: shared() });
        if entry.at.is_some_and(|known| known != address) {
            entry.shared = shared();
        }
        entry.at = Some(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_another_address_is_another_server() {
        let (registry, db1) = (ServerRegistry::default(), Endpoint::new("db1", 3306));
        let at = |host: u8| SocketAddr::from(([10, 0, 0, host], 3306));
        let first = registry.server(&db1);
        registry.is_at(&db1, at(1));
        first.coverage.cover_until(1_000);
        first.connections_open.store(3, Ordering::Relaxed);
        registry.is_at(&db1, at(1));
        assert!(Arc::ptr_eq(&first, &registry.server(&db1)));
        registry.is_at(&db1, at(2));
        let second = registry.server(&db1);
        assert!(!second.covers(1) && second.connections_open.load(Ordering::Relaxed) == 0);
        first.note_write(5_000);
        assert!(second.may_lack_writes(), "a session's own write counts wherever the server is");
        registry.is_at(&db1, at(1));
        assert!(!Arc::ptr_eq(&first, &registry.server(&db1)), "nobody knows what has become of it meanwhile");
    }

    #[test]
    fn a_write_at_one_server_is_lacked_by_the_others_until_they_cover_it() {
        let registry = ServerRegistry::default();
        let [writer, reader] = ["db1", "db2"].map(|host| registry.server(&Endpoint::new(host, 3306)));
        reader.coverage.cover_until(1_000);
        assert!(!reader.may_lack_writes(), "nobody has written");
        writer.note_write(2_000);
        assert!(reader.may_lack_writes());
        // One that is not noted by itself: the one before stands for it.
        writer.note_write(2_000 + NOTED_AHEAD_NS - 1);
        reader.coverage.cover_until(2_000 + NOTED_AHEAD_NS);
        assert!(reader.may_lack_writes());
        reader.coverage.cover_until(2_001 + NOTED_AHEAD_NS);
        assert!(!reader.may_lack_writes());
        writer.note_write(2_000 + NOTED_AHEAD_NS);
        assert!(reader.may_lack_writes());
    }
}
