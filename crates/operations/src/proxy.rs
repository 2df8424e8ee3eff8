//! Declares what operations need of the running proxy.

use std::collections::BTreeSet;

use weir_topology::Endpoint;

use crate::error::Ending;
use crate::operations::Notice;

/// Sessions that may write to a server, by what lets them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WritingSessions {
    /// The names of the pins, or `statement` for one that runs.
    pub because: String,
    /// How many.
    pub sessions: u64,
}

/// The running proxy, as operations see it, from any thread.
pub trait Proxy: Send + Sync {
    /// Has statements for a cluster's writer wait, for this reason, or (`None`) no longer. Returns when that has been
    /// published; [`Proxy::settle`] waits until it is in force.
    ///
    /// # Errors
    /// Weir has ended.
    fn hold(&self, writer_hostgroup: u32, because: Option<String>) -> Result<(), Ending>;

    /// Goes by the servers that are drained now. Returns when that has been published.
    ///
    /// # Errors
    /// Weir has ended.
    fn apply_drained(&self) -> Result<(), Ending>;

    /// Waits until every worker goes by what was published before; false if one has not answered for seconds.
    fn settle(&self) -> bool;

    /// Has sessions leave a server with their open transactions, which run again elsewhere; those stay whose can't.
    fn move_writers(&self, server: &Endpoint);

    /// Closes the sessions that may still write to a server.
    fn close_writers(&self, server: &Endpoint);

    /// The sessions that may write to a server; none if a worker does not answer: then nobody knows.
    fn writing(&self, server: &Endpoint) -> Option<Vec<WritingSessions>>;

    /// How many sessions have a connection to each of these servers; none if a worker does not answer.
    fn connected(&self, servers: &BTreeSet<Endpoint>) -> Option<Vec<(Endpoint, u64)>>;

    /// Adds a line to the topology log: what was done, such as `switchover`, to a cluster or (`None`) to none.
    fn log_change(&self, writer_hostgroup: Option<u32>, change: &str, reason: String);

    /// Gives something to [`crate::Operations::take`], on the thread that owns the operations. Waits for nothing.
    fn notify(&self, notice: Notice);
}
