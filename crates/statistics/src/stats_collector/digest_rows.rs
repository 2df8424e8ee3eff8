//! Reads all digests, a few at a time: whoever reads a million of them holds up nobody who wants to know the hottest ten, nor
//! the thread that takes in new ones.

use std::sync::MutexGuard;

use weir_proxy::stats::DigestSum;

use super::{StatsCollector, lock};

/// Rows that are read at a time; that takes some milliseconds.
const SLICE: usize = 4096;

/// Rows as of now, in the order in which they were first seen. A row that is read later may have counted more meanwhile;
/// none is missing, and none comes twice: while this lives, the digests don't begin again.
pub(crate) struct DigestRows<'t, R, F> {
    collector: &'t StatsCollector,
    row: F,
    /// How many were asked for: those that come later are for the next reader.
    rows_max: usize,
    /// How many were read.
    read: usize,
    slice: std::vec::IntoIter<R>,
    _reading: MutexGuard<'t, ()>,
}

impl StatsCollector {
    /// Makes `row` of each digest of now.
    pub(crate) fn digest_rows<R, F: Fn(DigestSum<'_>) -> R>(&self, row: F) -> DigestRows<'_, R, F> {
        let reading = lock(&self.reading);
        let rows_max = self.digests(|sums| sums.len());
        DigestRows {
            collector: self,
            row,
            rows_max,
            read: 0,
            slice: Vec::new().into_iter(),
            _reading: reading,
        }
    }
}

impl<R, F: Fn(DigestSum<'_>) -> R> Iterator for DigestRows<'_, R, F> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        if let Some(row) = self.slice.next() {
            return Some(row);
        }
        let count = SLICE.min(self.rows_max - self.read);
        let digests = lock(&self.collector.digests);
        let rows: Vec<R> = digests.sums.rows_from(self.read).take(count).map(&self.row).collect();
        drop(digests);
        self.read += count;
        self.slice = rows.into_iter();
        self.slice.next()
    }
}
