//! Limits what an admin connection may take, so that no client can stop Weir or fill its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::SqlError;

/// Connections at a time; each has a thread.
pub(crate) const CONNECTIONS_MAX: usize = 512;
/// Connections that have not logged in yet.
pub(crate) const LOGINS_MAX: usize = 128;
/// The largest statement: one INSERT of 50,000 users has some 8 MB.
pub(crate) const PACKET_BYTES_MAX: usize = 64 << 20;
/// A client that says nothing for so long is left: 8 h, as a server's wait_timeout.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(28_800);
/// A packet that has begun must be there after this time, and an answer must be taken.
pub(crate) const PACKET_TIMEOUT: Duration = Duration::from_secs(60);
/// After another process has taken over, sessions may still read for so long: who had just connected gets an answer.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// SQLite works so long on one statement.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest value that SQLite makes or takes. It is not asked for the time while it is at work in a function, and some
/// take longer than in proportion: this is what keeps each of them short.
pub(crate) const VALUE_BYTES_MAX: i32 = 1 << 20;
/// The longest pattern of LIKE and GLOB; the time is a product of the pattern's length and the text's.
pub(crate) const PATTERN_BYTES_MAX: i32 = 1000;
/// What SQLite takes in all, tables of a million digests included; what would take more fails.
pub(crate) const SQLITE_BYTES_MAX: i64 = 3 << 30;
/// All results that are held at a time.
pub(crate) const RESULTS_BYTES_MAX: usize = 512 << 20;
/// Prepared statements of a connection.
pub(crate) const PREPARED_MAX: usize = 256;
/// Long data of a connection's prepared statements.
pub(crate) const LONG_DATA_BYTES_MAX: usize = 16 << 20;
/// Warnings that a connection keeps for SHOW WARNINGS.
pub(crate) const WARNINGS_MAX: usize = 1024;

/// The memory that all results take together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<AtomicUsize>);

impl Memory {
    /// For one result.
    pub(crate) fn budget(&self) -> Budget {
        Budget { memory: self.clone(), taken: 0 }
    }
}

/// The memory that one result takes; it is given back when dropped.
#[derive(Debug)]
pub(crate) struct Budget {
    memory: Memory,
    taken: usize,
}

impl Budget {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), SqlError> {
        self.taken += bytes;
        if self.memory.0.fetch_add(bytes, Ordering::Relaxed) + bytes > RESULTS_BYTES_MAX {
            return Err(SqlError::other(
                "the result is too large, together with those of other admin connections: add a LIMIT",
            ));
        }
        Ok(())
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.taken, Ordering::Relaxed);
    }
}
