//! Brings about the end of the admin interface of a process that another one has taken over from.
//!
//! Who comes from now on comes to the new process. Those who are here already may read for a moment, so that nobody who
//! has just connected is turned away; what they would change is refused, as nobody would see it. After that moment the
//! next command is answered with an error that says what to do, and is the last one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_protocol::error;

use crate::error::SqlError;
use crate::limits::SHUTDOWN_GRACE;

/// How often it is looked whether all have left.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whether this is the end, and who is in the middle of something.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    since: OnceLock<Instant>,
    /// Commands that are being answered.
    busy: AtomicUsize,
}

impl Shutdown {
    /// Another process has taken over.
    pub(crate) fn begin(&self) {
        self.since.get_or_init(Instant::now);
    }

    /// What answers every command, once the grace is over.
    pub(crate) fn refusal_after_grace(&self) -> Option<SqlError> {
        self.is_past(SHUTDOWN_GRACE).then(refusal)
    }

    /// What answers a command that is to change something.
    ///
    /// # Errors
    /// When another process has taken over.
    pub(crate) fn check_change(&self) -> Result<(), SqlError> {
        if self.is_past(Duration::ZERO) { Err(refusal()) } else { Ok(()) }
    }

    /// A command is being answered until what this returns is dropped.
    pub(crate) fn work(&self) -> BusyGuard<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        BusyGuard(&self.busy)
    }

    /// Waits until all have left, or nobody is in the middle of something when the grace is over; at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration, have_all_left: impl Fn() -> bool) {
        let until = Instant::now() + limit;
        let is_idle = || self.is_past(SHUTDOWN_GRACE) && self.busy.load(Ordering::SeqCst) == 0;
        while !have_all_left() && !is_idle() && Instant::now() < until {
            sleep(LOOK_EVERY);
        }
    }

    fn is_past(&self, grace: Duration) -> bool {
        self.since.get().is_some_and(|since| since.elapsed() >= grace)
    }
}

fn refusal() -> SqlError {
    SqlError::new(error::SERVER_SHUTDOWN, "a new process has taken over from this one: connect again")
}

/// A command that is being answered.
#[derive(Debug)]
pub(crate) struct BusyGuard<'l>(&'l AtomicUsize);

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_end_at_once_and_reading_after_a_grace() {
        let shutdown = Shutdown::default();
        assert!(shutdown.refusal_after_grace().is_none() && shutdown.check_change().is_ok());
        shutdown.begin();
        assert!(shutdown.refusal_after_grace().is_none(), "the grace is over already");
        assert_eq!(shutdown.check_change().unwrap_err().error, error::SERVER_SHUTDOWN);
        let over = Shutdown::default();
        over.since.set(Instant::now() - SHUTDOWN_GRACE).unwrap();
        assert!(over.refusal_after_grace().unwrap().message.contains("connect again"));
    }

    #[test]
    fn the_end_waits_for_those_who_work() {
        let shutdown = Shutdown::default();
        shutdown.since.set(Instant::now() - SHUTDOWN_GRACE).unwrap();
        shutdown.wait(Duration::MAX / 4, || false);
        let work = shutdown.work();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| shutdown.wait(Duration::from_secs(3600), || false));
            assert!(!waits.is_finished());
            drop(work);
        });
        shutdown.begin();
        Shutdown::default().wait(Duration::from_secs(3600), || true);
    }
}
