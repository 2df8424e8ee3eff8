//! Collects a worker's statements by digest. The table is never copied: whoever asks gets it whole, and the worker
//! begins an empty one. That takes the same moment whether ten digests were seen since or thousands.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::{HashMap, HashMapExt};

use super::{Caller, CallerId, Histogram};
use crate::keys::Nanos;

/// Rows, and different texts, of one table; a full one is handed over unasked. With texts of
/// mysql-query_digests_max_digest_length it takes some 11 MB.
const ROWS_MAX: usize = 4096;
/// Full tables that wait to be summed up. Further ones are lost, and counted as dropped.
const WAITING_MAX: usize = 32;

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DigestKey {
    pub hostgroup: u32,
    pub caller: CallerId,
    pub digest: u64,
}

/// One statement that has been answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Execution {
    pub took_ns: Nanos,
    pub rows_affected: u64,
    pub rows_sent: u64,
}

/// What one worker has counted by digest since it handed over the table before. To be added to
/// [`DigestSums`](super::DigestSums).
#[derive(Debug, Default)]
pub struct DigestTable {
    pub(crate) texts: HashMap<u64, Box<[u8]>>,
    places: HashMap<DigestKey, usize>,
    pub(crate) rows: Vec<Row>,
    /// Executions that found no room.
    pub(crate) dropped: u64,
}

/// A row. Its text may be in a table that was handed over before.
#[derive(Debug)]
pub(crate) struct Row {
    pub hostgroup: u32,
    pub caller: Arc<Caller>,
    pub digest: u64,
    pub counts: Counts,
}

/// The numbers of a row.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub count: u64,
    pub first_seen: Nanos,
    pub last_seen: Nanos,
    pub sum_us: u64,
    pub min_us: u64,
    pub max_us: u64,
    pub rows_affected: u64,
    pub rows_sent: u64,
    pub latency: Histogram,
}

impl Counts {
    fn new(now: Nanos) -> Self {
        Self {
            count: 0,
            first_seen: now,
            last_seen: now,
            sum_us: 0,
            min_us: u64::MAX,
            max_us: 0,
            rows_affected: 0,
            rows_sent: 0,
            latency: Histogram::default(),
        }
    }

    fn add(&mut self, execution: &Execution, now: Nanos) {
        let took_us = execution.took_ns / 1000;
        self.count += 1;
        self.last_seen = now;
        self.sum_us = self.sum_us.saturating_add(took_us);
        self.min_us = self.min_us.min(took_us);
        self.max_us = self.max_us.max(took_us);
        self.rows_affected = self.rows_affected.saturating_add(execution.rows_affected);
        self.rows_sent = self.rows_sent.saturating_add(execution.rows_sent);
        self.latency.record(took_us);
    }
}

impl DigestTable {
    pub(crate) fn knows_text(&self, digest: u64) -> bool {
        self.texts.contains_key(&digest)
    }

    pub(crate) fn note_text(&mut self, digest: u64, text: &[u8]) {
        self.texts.insert(digest, text.into());
    }

    /// Counts a statement in its row; false if there is none yet.
    pub(crate) fn count(&mut self, key: DigestKey, execution: &Execution, now: Nanos) -> bool {
        let row = self.places.get(&key).and_then(|place| self.rows.get_mut(*place));
        row.map(|row| row.counts.add(execution, now)).is_some()
    }

    /// Begins a row with its first statement.
    pub(crate) fn begin(&mut self, key: DigestKey, caller: Arc<Caller>, execution: &Execution, now: Nanos) {
        let mut counts = Counts::new(now);
        counts.add(execution, now);
        self.places.insert(key, self.rows.len());
        self.rows.push(Row { hostgroup: key.hostgroup, caller, digest: key.digest, counts });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.texts.len() >= ROWS_MAX
    }

    /// The table, and an empty one with as much room in its place: what was seen will be seen again.
    pub(crate) fn take(&mut self) -> Self {
        let next = Self {
            texts: HashMap::with_capacity(self.texts.len()),
            places: HashMap::with_capacity(self.places.len()),
            rows: Vec::with_capacity(self.rows.len()),
            dropped: 0,
        };
        std::mem::replace(self, next)
    }

    /// Statements that are counted here.
    pub(crate) fn executions(&self) -> u64 {
        self.rows.iter().map(|row| row.counts.count).sum::<u64>() + self.dropped
    }
}

/// Where workers put tables that are full. Touched once for some thousand new digests.
#[derive(Debug)]
pub struct FullTables {
    sender: SyncSender<DigestTable>,
    receiver: Mutex<Receiver<DigestTable>>,
}

impl Default for FullTables {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        Self { sender, receiver: Mutex::new(receiver) }
    }
}

impl FullTables {
    /// Takes a table in; tells how many executions are lost if too many wait.
    pub(crate) fn put(&self, table: DigestTable) -> u64 {
        use std::sync::mpsc::TrySendError::{Disconnected, Full};
        match self.sender.try_send(table) {
            Ok(()) => 0,
            Err(Full(lost) | Disconnected(lost)) => lost.executions(),
        }
    }

    /// All tables that wait.
    pub fn take(&self) -> Vec<DigestTable> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).try_iter().collect()
    }
}
