//! Counts statements by kind.

use weir_sql::Kind;

use super::Histogram;
use crate::keys::Nanos;

/// How often statements of each kind have run, and how long they took. There are as many rows as kinds at most.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// By the kind's number.
    rows: Vec<Option<CommandRow>>,
}

/// Statements of one kind.
#[derive(Clone, Debug)]
pub struct CommandRow {
    /// What they are.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// Their total time.
    pub sum_us: u64,
    /// How long they took.
    pub latency: Histogram,
}

impl Commands {
    /// Counts one.
    pub(crate) fn count(&mut self, kind: Kind, took_ns: Nanos) {
        let at = kind as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, None);
        }
        let new = || CommandRow { kind, count: 0, sum_us: 0, latency: Histogram::default() };
        let row = self.rows[at].get_or_insert_with(new);
        row.count += 1;
        row.sum_us = row.sum_us.saturating_add(took_ns / 1000);
        row.latency.record(took_ns / 1000);
    }

    /// Copies the kinds that have been seen.
    pub(crate) fn rows(&self) -> Vec<CommandRow> {
        self.rows.iter().flatten().cloned().collect()
    }
}
