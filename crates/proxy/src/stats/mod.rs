//! Counts the statements that a worker runs. No other thread sees the counters: who wants to know sends
//! [`Message::Report`](crate::shared::Message::Report) and gets a copy, or the thing itself: the table of digests is handed
//! over whole, and a new one begun. [`DigestSums`] is what all that were handed over add up to.
//!
//! Everything is bounded. Counting allocates only when something is seen for the first time.

mod commands;
mod digests;
mod errors;
mod histogram;
pub(crate) mod query_log;
mod reads;
mod report;
mod rules;
pub(crate) mod statements;
mod sums;
mod totals;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use weir_sql::Digest;

pub use commands::CommandRow;
pub(crate) use commands::Commands;
pub(crate) use digests::{DigestKey, Execution};
pub use digests::{DigestTable, FullTables};
pub(crate) use errors::{ErrorKey, Errors};
pub use histogram::Histogram;
pub use reads::ReadCounts;
pub use report::CoverageRow;
pub use report::{
    ErrorRow, FreeConnectionRow, ReportPart, SESSIONS_PER_REPORT, ServerRow, SessionRow, StatementRow,
    WorkerReport, WritingRow,
};
pub use rules::RuleTimes;
pub(crate) use rules::Rules;
pub use sums::{Clock, DigestSum, DigestSums};
pub use totals::Totals;

use crate::keys::Nanos;

/// Different callers of one worker. The statements of further ones are counted as dropped.
const CALLERS_MAX: usize = 1 << 16;

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

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Statistics {
    callers: HashMap<Arc<Caller>, u32>,
    /// By their numbers.
    names: Vec<Arc<Caller>>,
    digests: DigestTable,
    full: Arc<FullTables>,
    pub errors: Errors,
    pub commands: Commands,
    pub rules: Rules,
    pub totals: Totals,
}

impl Statistics {
    /// Nothing counted yet. A table of digests that is full goes to `full`.
    pub(crate) fn new(full: Arc<FullTables>) -> Self {
        Self {
            callers: HashMap::new(),
            names: Vec::new(),
            digests: DigestTable::default(),
            full,
            errors: Errors::default(),
            commands: Commands::default(),
            rules: Rules::default(),
            totals: Totals::default(),
        }
    }

    /// Keeps the text of a digest that is going to be counted.
    pub(crate) fn note_text(&mut self, digest: &Digest<'_>) {
        if !self.digests.knows_text(digest.hash) {
            self.make_room();
            self.digests.note_text(digest.hash, digest.text);
        }
    }

    /// The number of a caller.
    pub(crate) fn caller(&mut self, caller: Caller) -> CallerId {
        let next = self.names.len();
        match self.callers.entry(Arc::new(caller)) {
            Entry::Occupied(known) => CallerId(Some(*known.get())),
            Entry::Vacant(_) if next >= CALLERS_MAX => CallerId(None),
            Entry::Vacant(new) => {
                self.names.push(new.key().clone());
                CallerId(Some(*new.insert(next as u32)))
            }
        }
    }

    /// Counts a statement, of which [`Statistics::note_text`] has been told.
    pub(crate) fn count(&mut self, key: DigestKey, execution: &Execution, now: Nanos) {
        if self.digests.count(key, execution, now) {
            return;
        }
        let Some(caller) = key.caller.0.and_then(|id| self.names.get(id as usize)).cloned() else {
            self.digests.dropped += 1;
            return;
        };
        self.make_room();
        self.digests.begin(key, caller, execution, now);
    }

    /// Hands the table of digests over, and begins a new one.
    pub(crate) fn take_digests(&mut self) -> DigestTable {
        self.digests.take()
    }

    /// A full table makes way for an empty one.
    fn make_room(&mut self) {
        if self.digests.is_full() {
            let full = self.digests.take();
            self.digests.dropped += self.full.put(full);
        }
    }

    fn caller_name(&self, id: CallerId) -> Arc<Caller> {
        id.0.and_then(|id| self.names.get(id as usize)).cloned().unwrap_or_default()
    }
}
