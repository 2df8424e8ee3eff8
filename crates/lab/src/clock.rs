//! Reads the one clock of everything in a recording: the kernel's monotonic one, which other programs can read, too.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        let part = |part: i64| u64::try_from(part).unwrap_or(0);
        Moment(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
    }

    /// Milliseconds from `earlier` to this one; 0 if it is later.
    pub fn ms_since(self, earlier: Moment) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e6
    }

    /// So much later.
    pub fn plus_ms(self, ms: u64) -> Moment {
        Moment(self.0 + ms * 1_000_000)
    }

    /// So much earlier.
    pub fn minus_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_sub(ms * 1_000_000))
    }
}
