//! Reads the rows of large tables, but for those that are as they were.

use std::sync::Arc;

use crate::field::fields::Row;
use crate::report::error::Report;

/// Reads the rows of a large table, but for those that are as they were.
pub(crate) struct Reader<'c, T> {
    before: &'c [Arc<T>],
    /// How many rows were taken.
    count: usize,
    told: Vec<usize>,
}

impl<'c, T: PartialEq> Reader<'c, T> {
    /// `before` is what [`crate::TableRow::kept_at`] refers to.
    pub(crate) fn after(before: &'c [Arc<T>]) -> Self {
        Self { before, count: 0, told: Vec::new() }
    }

    /// `read` is for rows that are new.
    pub(crate) fn read(
        &mut self,
        row: &Row<'_>,
        report: &mut Report,
        read: impl FnOnce(&Row<'_>, &mut Report) -> Option<T>,
    ) -> Option<Arc<T>> {
        let told_before = report.told();
        let taken = match row.source.kept_at() {
            Some(at) => self.before.get(at).cloned().or_else(|| {
                report.refuse(&row.place, "", "is not known any more");
                None
            }),
            None => read(row, report).map(|new| {
                // From a file, at the start; or it was changed and is as before.
                let same = self.before.get(self.count).filter(|before| ***before == new);
                same.cloned().unwrap_or_else(|| Arc::new(new))
            }),
        }?;
        if report.told() != told_before {
            self.told.push(self.count);
        }
        self.count += 1;
        Some(taken)
    }

    /// About which there was something to tell.
    pub(crate) fn told(self) -> Arc<Vec<usize>> {
        Arc::new(self.told)
    }
}
