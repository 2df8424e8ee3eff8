//! Carries records from a thread to the writer.

use std::sync::{Mutex, PoisonError, TryLockError};

use crate::record::{AuditEvent, Statement};
use crate::{Log, QueryLogs};

/// What waits at each end: beyond that, records are left out. Some 3000 statements.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// From here on the writer is woken.
const WAKE_BYTES: usize = BUFFER_BYTES_MAX / 4;
/// An empty buffer keeps no more.
const BUFFER_BYTES_KEPT: usize = 128 << 10;

/// The place where one thread's records wait for the writer.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Vec<u8>>);

impl Slot {
    /// Takes all that waits, and leaves an empty buffer.
    pub(crate) fn take(&self, mut empty: Vec<u8>) -> Vec<u8> {
        empty.clear();
        empty.shrink_to(BUFFER_BYTES_KEPT);
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), empty)
    }
}

/// One thread's end. It belongs to one thread, so it has no lock.
#[derive(Debug)]
pub struct Feed {
    query_logs: QueryLogs,
    slot: usize,
    pending: Vec<u8>,
}

impl Feed {
    pub(crate) fn new(query_logs: QueryLogs, slot: usize) -> Self {
        Self { query_logs, slot, pending: Vec::new() }
    }

    /// Logs a statement, in the logs that it names.
    pub fn statement(&mut self, statement: &Statement<'_>) {
        let logs = statement.logs();
        self.record(logs, statement.size_bytes(), |pending| statement.encode(pending));
    }

    /// Logs something about a session.
    pub fn audit(&mut self, event: &AuditEvent<'_>) {
        self.record(Log::Audit.bit(), event.size_bytes(), |pending| event.encode(pending));
    }

    fn record(&mut self, logs: u8, size_bytes: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.pending.len() + size_bytes > BUFFER_BYTES_MAX {
            return self.query_logs.drop_lines(logs, 1);
        }
        encode(&mut self.pending);
    }

    /// Gives the writer what was logged since the last time. It never waits: if the writer is just about to take what is
    /// there, it is done the next time.
    pub fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let Some(slot) = self.query_logs.inner.slots.get(self.slot) else { return };
        let mut waiting = match slot.0.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let was = waiting.len();
        pass(&mut self.pending, &mut waiting);
        let is = waiting.len();
        drop(waiting);
        if was < WAKE_BYTES && is >= WAKE_BYTES {
            self.query_logs.wake();
        }
    }

    /// The same for those who may wait for another thread, and who won't come again.
    pub(crate) fn flush_blocking(&mut self) {
        let Some(slot) = self.query_logs.inner.slots.get(self.slot) else { return };
        let mut waiting = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        pass(&mut self.pending, &mut waiting);
        drop(waiting);
        if !self.pending.is_empty() {
            self.query_logs.drop_lines(Log::Audit.bit(), 1);
        }
    }
}

/// What there is room for, all or nothing: nothing of a record may be missing.
fn pass(pending: &mut Vec<u8>, waiting: &mut Vec<u8>) {
    if waiting.is_empty() {
        std::mem::swap(pending, waiting);
    } else if waiting.len() + pending.len() <= BUFFER_BYTES_MAX {
        waiting.extend_from_slice(pending);
        pending.clear();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            self.flush_blocking();
        }
    }
}
