//! How far a Galera node has applied what the cluster has committed.
//!
//! A session with `wsrep_sync_wait = 1` waits before each read until its node has applied everything that the cluster
//! had ordered when the read began (Galera manual, `wsrep_sync_wait`). So once such a read that began at t0 has
//! ended, every write that any node acknowledged before t0 is visible to everybody on this node. The data path needs
//! not wait itself: it looks whether the moment of a session's last write is covered.
//!
//! A node that is cut off from the cluster can't finish the wait, so it covers nothing new from that moment on, long
//! before it knows that it is cut off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tracing::{debug, warn};
use weir_client::{Connection, Error, Options};
use weir_topology::ServerShared;

use crate::clock::monotonic_ns;
use crate::probe_thread::{Order, wait};

/// Reads a table, which every server that knows `wsrep_sync_wait` waits for, and which everybody may read.
const READ: &str = "SELECT 1 FROM information_schema.ENGINES LIMIT 1";
/// Counts the waits of all sessions.
const COUNTER: &str = "SHOW GLOBAL STATUS LIKE 'wsrep_causal_reads'";
/// The pause after a read.
const PAUSE: Duration = Duration::from_millis(25);
/// The pause while the server is no member of its cluster, and after a failure.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// The pause if the server doesn't do what its manual says.
const UNFIT_PAUSE: Duration = Duration::from_secs(10);
/// How long a read may wait. The server's own limit is `repl.causal_read_timeout`, 30 s.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps `shared.covered_until_ns` up to date until it is told to end.
pub(crate) fn run(
    mut options: Options,
    shared: &ServerShared,
    member: &AtomicBool,
    orders: &Receiver<Order>,
) {
    options.read_timeout = Some(READ_TIMEOUT);
    let mut session = None;
    loop {
        let pause = if member.load(Ordering::Relaxed) {
            read(&options, &mut session, shared)
        } else {
            session = None;
            IDLE_PAUSE
        };
        if !wait(orders, pause) {
            return;
        }
    }
}

/// One read; gives the pause that is due after it.
fn read(options: &Options, session: &mut Option<Connection>, shared: &ServerShared) -> Duration {
    let connection = match session {
        Some(connection) => connection,
        None => match open(options) {
            Ok(Some(connection)) => session.insert(connection),
            Ok(None) => {
                warn!(server = %shared.endpoint, "wsrep_sync_wait has no effect here: reads can't be known to be fresh");
                return UNFIT_PAUSE;
            }
            Err(error) => {
                debug!(server = %shared.endpoint, %error, "no causal probe");
                return IDLE_PAUSE;
            }
        },
    };
    let begin_ns = monotonic_ns();
    match connection.query(READ) {
        Ok(_) => {
            shared.cover_until(begin_ns);
            PAUSE
        }
        Err(error) => {
            debug!(server = %shared.endpoint, %error, "a causal read failed");
            if error.is_fatal() {
                *session = None;
            }
            IDLE_PAUSE
        }
    }
}

/// A session that waits, or none if it doesn't although it should: that is checked with the server's own counter.
fn open(options: &Options) -> Result<Option<Connection>, Error> {
    let mut connection = Connection::connect(options)?;
    connection.query("SET SESSION wsrep_sync_wait = 1")?;
    let count = |connection: &mut Connection| -> Result<Option<u64>, Error> {
        Ok(connection.query(COUNTER)?.text(0, 1).and_then(|count| count.parse().ok()))
    };
    let before = count(&mut connection)?;
    connection.query(READ)?;
    let after = count(&mut connection)?;
    Ok(before.zip(after).is_some_and(|(before, after)| after > before).then_some(connection))
}
