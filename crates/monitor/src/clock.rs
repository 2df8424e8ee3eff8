//! Reads the monotonic clock in the unit of the topology's rules.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_topology::Millis;

/// Nanoseconds of CLOCK_BOOTTIME, the clock of [`weir_topology::ServerShared`]. It goes on while the machine is
/// suspended: a lease must not outlast that.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither part is ever negative.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A time in nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// [`monotonic_ns`] in milliseconds, for decisions about roles.
pub(crate) fn monotonic_ms() -> Millis {
    Millis(monotonic_ns() / 1_000_000)
}
