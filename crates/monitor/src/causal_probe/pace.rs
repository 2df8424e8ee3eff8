//! Chooses how soon one causality check may follow another.
//!
//! A check costs the servers about as much as a statement. On idle servers nobody notices that, and whoever waits for a check
//! should have the next one at once. On busy servers each check takes time from statements, while those who wait stand in
//! line anyway. How busy the servers are shows in the checks themselves: they take longer than the fastest ones lately.
//! So the pause grows with that difference, as senders on a network slow down when their round trips take longer than the
//! shortest one.

use std::time::{Duration, Instant};

/// The shortest time from the beginning of one check to that of the next: a thousand a second cost a busy cluster 7 % of its
/// writes.
const GAP_MIN: Duration = Duration::from_millis(2);
/// The longest one.
const GAP_MAX: Duration = Duration::from_millis(25);
/// So many times what checks take longer than the fastest ones is added.
const FACTOR: f64 = 4.0;
/// For so long a fast check counts, and up to twice that.
const WINDOW: Duration = Duration::from_secs(5);

/// The pace of one server's checks.
#[derive(Debug)]
pub(super) struct Pace {
    /// The fastest check of this window and of the one before, in nanoseconds.
    fastest_ns: [Option<u64>; 2],
    window_begun: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { fastest_ns: [None; 2], window_begun: now }
    }

    /// A check has ended.
    pub(super) fn note(&mut self, took_ns: u64, now: Instant) {
        let age = now.duration_since(self.window_begun);
        if age >= WINDOW {
            self.fastest_ns = [None, self.fastest_ns[0].filter(|_| age < 2 * WINDOW)];
            self.window_begun = now;
        }
        let fastest = self.fastest_ns[0].map_or(took_ns, |fastest| fastest.min(took_ns));
        self.fastest_ns[0] = Some(fastest);
    }

    /// From the beginning of a check to that of the next, when checks take so long on average.
    pub(super) fn gap(&self, mean_ns: u64) -> Duration {
        let Some(fastest_ns) = self.fastest_ns.into_iter().flatten().min() else { return GAP_MIN };
        let longer = Duration::from_nanos(mean_ns.saturating_sub(fastest_ns)).min(GAP_MAX);
        (GAP_MIN + longer.mul_f64(FACTOR)).min(GAP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn checks_that_take_longer_than_the_fastest_come_at_a_slower_pace() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        assert_eq!(pace.gap(0), GAP_MIN);
        pace.note(MS, begun);
        assert_eq!(pace.gap(MS), GAP_MIN, "a long way is no load");
        assert_eq!(pace.gap(3 * MS), GAP_MIN + 2 * Duration::from_millis(1).mul_f64(FACTOR));
        assert_eq!(pace.gap(5000 * MS), GAP_MAX);
        assert_eq!(pace.gap(MS / 2), GAP_MIN);
    }

    #[test]
    fn what_was_fast_long_ago_does_not_count() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        pace.note(MS, begun);
        pace.note(4 * MS, begun + WINDOW);
        assert!(pace.gap(4 * MS) > GAP_MIN, "the window before counts");
        pace.note(4 * MS, begun + 2 * WINDOW);
        assert_eq!(pace.gap(4 * MS), GAP_MIN);
        pace.note(8 * MS, begun + 10 * WINDOW);
        assert_eq!(pace.gap(8 * MS), GAP_MIN, "nor what came before a long silence");
    }
}
