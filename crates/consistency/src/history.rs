//! Judges reads by what was written and read before: the checkers.
//!
//! Everything is a counter that only grows, kept in two rows that one statement writes together. Reading less than a
//! checker knows to be there is a stale read, whoever wrote it and whichever of the two rows was read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::place::Level;

/// The values of all counters that their writers know to be committed, in memory that all sessions share.
#[derive(Debug)]
pub(crate) struct Acknowledged(Vec<AtomicU64>);

impl Acknowledged {
    /// So many counters, all of them 0.
    pub(crate) fn new(counters: usize) -> Acknowledged {
        Acknowledged((0..counters).map(|_| AtomicU64::new(0)).collect())
    }

    /// A writer has got its OK.
    pub(crate) fn note(&self, counter: usize, value: u64) {
        if let Some(cell) = self.0.get(counter) {
            cell.fetch_max(value, Ordering::SeqCst);
        }
    }

    /// What a read that is sent after this call has to see at `global` and `strict`.
    pub(crate) fn before_read(&self, counter: usize) -> u64 {
        self.0.get(counter).map_or(0, |cell| cell.load(Ordering::SeqCst))
    }
}

/// What is wrong with reads; a read may be wrong in more than one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Anomalies {
    /// Less than the session itself had written.
    pub(crate) own: u64,
    /// Less than the session had read before.
    pub(crate) monotonic: u64,
    /// Less than was acknowledged to anybody before the read was sent.
    pub(crate) global: u64,
}

impl Anomalies {
    /// Those of both.
    pub(crate) fn add(&mut self, other: Anomalies) {
        self.own += other.own;
        self.monotonic += other.monotonic;
        self.global += other.global;
    }

    /// Those that a level rules out; `eventual`, which rules out none, is measured by what `session` does.
    pub(crate) fn measured_at(self, level: Level) -> u64 {
        let global = if level.is_global() { self.global } else { 0 };
        self.own.max(self.monotonic).max(global)
    }
}

/// What one session knows. A new connection is another session.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    written: HashMap<usize, u64>,
    read: HashMap<usize, u64>,
}

impl Checker {
    /// The session's write was acknowledged.
    pub(crate) fn wrote(&mut self, counter: usize, value: u64) {
        let known = self.written.entry(counter).or_default();
        *known = (*known).max(value);
    }

    /// Judges a read by what was acknowledged before it was sent, and remembers it.
    pub(crate) fn judge(&mut self, counter: usize, value: u64, acknowledged: u64) -> Anomalies {
        let written = self.written.get(&counter).copied().unwrap_or(0);
        let read = self.read.entry(counter).or_default();
        let anomalies = Anomalies {
            own: u64::from(value < written),
            monotonic: u64::from(value < *read),
            global: u64::from(value < acknowledged),
        };
        *read = (*read).max(value);
        anomalies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Anomalies = Anomalies { own: 0, monotonic: 0, global: 0 };

    #[test]
    fn a_history_without_anomalies_has_none() {
        let (all, mut session) = (Acknowledged::new(2), Checker::default());
        all.note(0, 1);
        session.wrote(0, 1);
        assert_eq!(session.judge(0, 1, all.before_read(0)), NONE);
        // Somebody else's write may be seen before it is acknowledged.
        assert_eq!(session.judge(1, 5, all.before_read(1)), NONE);
        all.note(1, 5);
        assert_eq!(session.judge(1, 5, all.before_read(1)), NONE);
    }

    #[test]
    fn a_session_that_misses_its_own_write_is_found() {
        let (all, mut session) = (Acknowledged::new(1), Checker::default());
        all.note(0, 2);
        session.wrote(0, 2);
        let anomalies = session.judge(0, 1, all.before_read(0));
        assert_eq!(anomalies, Anomalies { own: 1, monotonic: 0, global: 1 });
    }

    #[test]
    fn a_session_that_goes_back_in_time_is_found_although_nothing_was_acknowledged() {
        let (all, mut session) = (Acknowledged::new(1), Checker::default());
        assert_eq!(session.judge(0, 4, all.before_read(0)), NONE);
        assert_eq!(session.judge(0, 3, all.before_read(0)), Anomalies { monotonic: 1, ..NONE });
        // What it has seen stays seen.
        assert_eq!(session.judge(0, 3, all.before_read(0)), Anomalies { monotonic: 1, ..NONE });
        assert_eq!(session.judge(0, 4, all.before_read(0)), NONE);
        // Another session has seen nothing yet.
        assert_eq!(Checker::default().judge(0, 1, all.before_read(0)), NONE);
    }

    #[test]
    fn a_read_without_what_others_were_told_is_global_alone() {
        let (all, mut session) = (Acknowledged::new(1), Checker::default());
        let before = all.before_read(0);
        all.note(0, 9);
        // It was sent before.
        assert_eq!(session.judge(0, 8, before), NONE);
        assert_eq!(session.judge(0, 8, all.before_read(0)), Anomalies { global: 1, ..NONE });
        // An older acknowledgement takes nothing back.
        all.note(0, 3);
        assert_eq!(all.before_read(0), 9);
    }

    #[test]
    fn anomalies_add_up() {
        let mut sum = NONE;
        sum.add(Anomalies { own: 1, monotonic: 2, global: 3 });
        sum.add(Anomalies { own: 1, ..NONE });
        assert_eq!(sum, Anomalies { own: 2, monotonic: 2, global: 3 });
    }

    #[test]
    fn levels_rule_out_what_they_promise() {
        let seen = Anomalies { own: 0, monotonic: 1, global: 5 };
        assert_eq!(Level::ALL.map(|level| seen.measured_at(level)), [1, 1, 5, 5]);
    }
}
