//! Names the things that a worker keeps.

/// Monotonic nanoseconds, passed in by the driver.
pub type Nanos = u64;
/// Key of a session in its worker.
pub(crate) type SessionKey = usize;
/// Key of a backend connection in its worker.
pub(crate) type ConnectionKey = usize;
/// Index of a server in its worker (stays the same over reloads).
pub(crate) type ServerIndex = usize;
