//! What the monitor and the data path tell each other about a server without waiting for each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Endpoint;

/// One server's counters, shared by all threads. All times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct ServerShared {
    /// The server.
    pub endpoint: Endpoint,
    /// Every write that any node of the cluster acknowledged before this moment is visible on this server. 0: nothing
    /// is known. Only the monitor writes it, and it never goes back.
    pub covered_until_ns: AtomicU64,
    /// Until when statements that may write may be sent to it: the lease of the epoch whose writer it is. `u64::MAX`: no
    /// limit. Only the monitor writes it.
    pub writes_until_ns: AtomicU64,
    /// Connections that the data path has open to the server, in all hostgroups and workers.
    pub connections_open: AtomicU32,
}

impl ServerShared {
    /// A server of which nothing is known.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            covered_until_ns: AtomicU64::new(0),
            writes_until_ns: AtomicU64::new(u64::MAX),
            connections_open: AtomicU32::new(0),
        }
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
        self.covered_until_ns.load(Ordering::Acquire) > acknowledged_ns
    }

    /// Records that all writes acknowledged before `moment_ns` are visible.
    pub fn cover_until(&self, moment_ns: u64) {
        self.covered_until_ns.fetch_max(moment_ns, Ordering::AcqRel);
    }
}

/// The [`ServerShared`] of every server ever named, so that a server that is removed and added again keeps its
/// counters. Cheap to clone; for snapshots and probes, not for the path of a statement.
#[derive(Clone, Debug, Default)]
pub struct ServerRegistry(Arc<Mutex<BTreeMap<Endpoint, Arc<ServerShared>>>>);

impl ServerRegistry {
    /// The counters of `endpoint`, the same ones for every caller.
    pub fn server(&self, endpoint: &Endpoint) -> Arc<ServerShared> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.entry(endpoint.clone());
        server.or_insert_with(|| Arc::new(ServerShared::new(endpoint.clone()))).clone()
    }
}
