//! What a worker counts of the statements it runs. No other thread sees it: who wants to know sends
//! [`Message::Report`](crate::shared::Message::Report) and gets a copy.
//!
//! Everything is bounded. Counting allocates only when something is seen for the first time.

mod commands;
mod errors;
mod histogram;
mod report;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use weir_sql::Digest;

pub use commands::CommandRow;
pub(crate) use commands::Commands;
pub(crate) use errors::{ErrorKey, Errors};
pub use histogram::Histogram;
pub use report::{DigestRow, ErrorRow, ReportPart, ServerRow, WorkerReport, WritingRow};

use crate::core::Nanos;

/// Rows of the digest table, and different digest texts, of one worker. Further ones are counted as dropped: with
/// texts of mysql-query_digests_max_digest_length a full table takes some 11 MB.
const DIGESTS_MAX: usize = 4096;
/// Different callers of one worker. The statements of further ones are counted as dropped.
const CALLERS_MAX: usize = 4096;

/// Who has sent a statement, as far as it is told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The user.
    pub username: Box<[u8]>,
    /// The schema; empty for none.
    pub schemaname: Box<[u8]>,
    /// The client's address; empty unless mysql-query_digests_track_hostname is on.
    pub client_address: Box<str>,
}

/// A [`Caller`] as a number; `None`: one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallerId(Option<u32>);

/// What a row of the digest table stands for.
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

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    texts: HashMap<u64, Box<[u8]>>,
    callers: HashMap<Caller, u32>,
    rows: HashMap<DigestKey, usize>,
    counts: Vec<Counts>,
    /// Executions that found no room in the table.
    dropped: u64,
    pub errors: Errors,
    pub commands: Commands,
}

/// The numbers of a row of the digest table.
#[derive(Clone, Debug)]
struct Counts {
    count: u64,
    first_seen: Nanos,
    last_seen: Nanos,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
    rows_affected: u64,
    rows_sent: u64,
    latency: Histogram,
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

impl Statistics {
    /// Keeps the text of a digest that is going to be counted.
    pub(crate) fn note_text(&mut self, digest: &Digest<'_>) {
        if !self.texts.contains_key(&digest.hash) && self.texts.len() < DIGESTS_MAX {
            self.texts.insert(digest.hash, digest.text.into());
        }
    }

    /// The number of a caller.
    pub(crate) fn caller(&mut self, caller: Caller) -> CallerId {
        let next = self.callers.len();
        match self.callers.entry(caller) {
            Entry::Occupied(known) => CallerId(Some(*known.get())),
            Entry::Vacant(_) if next >= CALLERS_MAX => CallerId(None),
            Entry::Vacant(new) => CallerId(Some(*new.insert(next as u32))),
        }
    }

    /// Counts a statement, of which [`Statistics::note_text`] has been told.
    pub(crate) fn count(&mut self, key: DigestKey, execution: &Execution, now: Nanos) {
        let at = match self.rows.get(&key) {
            Some(at) => *at,
            None if self.counts.len() < DIGESTS_MAX
                && key.caller.0.is_some()
                && self.texts.contains_key(&key.digest) =>
            {
                self.rows.insert(key, self.counts.len());
                self.counts.push(Counts::new(now));
                self.counts.len() - 1
            }
            None => {
                self.dropped += 1;
                return;
            }
        };
        self.counts[at].add(execution, now);
    }
}
