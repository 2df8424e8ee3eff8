//! What of a configuration that is in force is not read again.

use std::sync::Arc;

use crate::Config;
use crate::error::Report;
use crate::tables::Row;

/// A configuration that is in force, of which only a part is read again: what was checked once stays checked.
#[derive(Clone, Copy)]
pub struct Kept<'c> {
    /// The configuration. What is equal in the next one is shared with it.
    pub config: &'c Config,
    /// Whether a table is read, or the variables that begin so (`mysql-`, `admin-`). All others stay as they are in
    /// `config`. What ProxySQL loads as one is read or kept as one.
    pub reads: &'c dyn Fn(&str) -> bool,
}

/// The rows of the tables that may be very large about which there is something to tell each time they are read, by
/// their position among those that were taken; in order.
///
/// It is no part of what a configuration means: any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Of `mysql_users`.
    pub users: Arc<Vec<usize>>,
    /// Of `mysql_query_rules`.
    pub rules: Arc<Vec<usize>>,
}

impl PartialEq for Told {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

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
