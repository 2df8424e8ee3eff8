//! Ends a run early: by Ctrl-C, or by whoever has started it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;

/// How quickly it is noticed, and how often a condition is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What a shell reports for a program that ended by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// A flag that everybody who waits looks at. Clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Raised by the first Ctrl-C (or SIGTERM), which asks for an orderly end; the second one ends the program at once:
    /// the next run then removes what is left.
    ///
    /// # Errors
    /// If signals can't be handled.
    pub fn on_signals() -> Result<Stop, Error> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            let status = i32::from(EXIT_INTERRUPTED);
            // The order matters: the first signal must find the flag down.
            signal_hook::flag::register_conditional_shutdown(signal, status, stop.flag())
                .and_then(|_| signal_hook::flag::register(signal, stop.flag()))
                .map_err(Error::io("handle signals"))?;
        }
        Ok(stop)
    }

    /// The flag itself, for who knows nothing of this type.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Asks everybody to end.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether everybody is to end.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on, or not.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once it is raised.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Sleeps so long.
    ///
    /// # Errors
    /// [`Error::Interrupted`] as soon as it is raised.
    pub fn sleep(&self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// The condition's own, [`Error::Timeout`] with `what` after `timeout_s` seconds, and [`Error::Interrupted`].
    pub fn wait(
        &self,
        what: &str,
        timeout_s: u64,
        mut condition: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(timeout_s);
        while !condition()? {
            if Instant::now() > deadline {
                return Err(Error::Timeout { what: what.to_owned(), timeout_s });
            }
            self.sleep(POLL_INTERVAL)?;
        }
        Ok(())
    }
}

/// The exit status of a program that was asked whether all is well; says why if there is no answer.
pub fn exit_status(program: &str, result: Result<bool, Error>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Error::Interrupted) => {
            eprintln!("{program}: interrupted; all servers are stopped");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_told_to_stop() {
        let stop = Stop::default();
        stop.sleep(Duration::from_millis(1)).unwrap();
        let late = stop.wait("a wonder", 0, || Ok(false)).unwrap_err();
        assert_eq!(late.to_string(), "a wonder did not happen within 0 s");
        stop.clone().raise();
        assert!(matches!(stop.sleep(Duration::from_secs(60)), Err(Error::Interrupted)));
        assert!(matches!(stop.wait("a wonder", 60, || Ok(false)), Err(Error::Interrupted)));
    }
}
