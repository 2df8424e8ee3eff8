//! Counts what the load does, shared by its connections, the view and the script.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_lab::Latencies;

/// Messages of errors that are kept to be shown.
const MESSAGES_MAX: usize = 3;

/// Reads and writes are told apart in everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A statement that only reads.
    Read,
    /// A statement that writes or ends a transaction.
    Write,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) statements: u64,
    pub(crate) errors: u64,
    /// Reads that did not show a row which the same connection had written and seen acknowledged.
    pub(crate) stale: u64,
}

/// The longest time without any acknowledged statement of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) reads: Duration,
    pub(crate) writes: Duration,
}

/// Percentiles of a stretch of time, milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

/// Everything that is counted.
pub(crate) struct Stats {
    started: Instant,
    statements: AtomicU64,
    errors: AtomicU64,
    stale: AtomicU64,
    reads: Flow,
    writes: Flow,
    recent: Mutex<Latencies>,
    earlier: Mutex<Latencies>,
    messages: Mutex<Vec<String>>,
}

impl Stats {
    pub(crate) fn new() -> Stats {
        Stats {
            started: Instant::now(),
            statements: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            reads: Flow::default(),
            writes: Flow::default(),
            recent: Mutex::default(),
            earlier: Mutex::default(),
            messages: Mutex::default(),
        }
    }

    /// How long the load has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A statement was answered well.
    pub(crate) fn acknowledged(&self, kind: Kind, latency: Duration) {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.flow(kind).acknowledged(self.now_us());
        lock(&self.recent).record(latency);
    }

    /// A statement failed, or a connection could not be made.
    pub(crate) fn failed(&self, error: &weir_client::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut messages = lock(&self.messages);
        if messages.len() < MESSAGES_MAX {
            messages.push(format!("{:5.1} s  {error}", self.elapsed().as_secs_f64()));
        }
    }

    /// A read did not show its connection's own write.
    pub(crate) fn was_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            statements: self.statements.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            stale: self.stale.load(Ordering::Relaxed),
        }
    }

    /// The first errors.
    pub(crate) fn messages(&self) -> Vec<String> {
        lock(&self.messages).clone()
    }

    /// The longest pauses since this was last asked, the ones under way included.
    pub(crate) fn take_pauses(&self) -> Pauses {
        let now_us = self.now_us();
        Pauses { reads: self.reads.take_pause(now_us), writes: self.writes.take_pause(now_us) }
    }

    /// The latencies since this was last asked.
    pub(crate) fn take_recent_latency(&self) -> Latency {
        let mut recent = lock(&self.recent);
        let latency = percentiles(&recent);
        recent.move_to(&mut lock(&self.earlier));
        latency
    }

    /// The latencies of everything that [`Stats::take_recent_latency`] has returned.
    pub(crate) fn latency(&self) -> Latency {
        percentiles(&lock(&self.earlier))
    }

    fn flow(&self, kind: Kind) -> &Flow {
        match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// When statements of one kind were acknowledged. Times are µs since the start.
#[derive(Default)]
struct Flow {
    last_us: AtomicU64,
    pause_max_us: AtomicU64,
}

impl Flow {
    fn acknowledged(&self, now_us: u64) {
        // Two connections may get here in the other order; fetch_max keeps the clock from going back.
        let last_us = self.last_us.fetch_max(now_us, Ordering::Relaxed);
        self.pause_max_us.fetch_max(now_us.saturating_sub(last_us), Ordering::Relaxed);
    }

    fn take_pause(&self, now_us: u64) -> Duration {
        let under_way = now_us.saturating_sub(self.last_us.load(Ordering::Relaxed));
        Duration::from_micros(self.pause_max_us.swap(0, Ordering::Relaxed).max(under_way))
    }
}

fn percentiles(latencies: &Latencies) -> Latency {
    let ms = |percent| latencies.percentile_ms(percent).unwrap_or_default();
    Latency { p50_ms: ms(50.0), p99_ms: ms(99.0), max_ms: ms(100.0) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_longest_stretch_between_two_answers() {
        let flow = Flow::default();
        for now_us in [1_000, 2_000, 9_000, 8_500, 10_000] {
            flow.acknowledged(now_us);
        }
        assert_eq!(flow.take_pause(10_500), Duration::from_micros(7_000));
        // The next one counts from the last answer on, though none has come since.
        assert_eq!(flow.take_pause(14_000), Duration::from_micros(4_000));
    }

    #[test]
    fn recent_latencies_are_taken_once_and_stay_in_the_whole() {
        let stats = Stats::new();
        stats.acknowledged(Kind::Read, Duration::from_millis(2));
        assert!((stats.take_recent_latency().p50_ms - 2.0).abs() < 0.01);
        assert_eq!(stats.take_recent_latency().max_ms, 0.0);
        assert!((stats.latency().max_ms - 2.0).abs() < 0.01);
        assert_eq!(stats.totals().statements, 1);
    }
}
