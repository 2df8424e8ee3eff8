//! Waiting for what comes about by itself.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

/// Looks every few milliseconds until `holds` says yes; fails with `what` when it has not within `timeout`.
pub fn eventually(
    what: &str,
    timeout: Duration,
    mut holds: impl FnMut() -> Result<bool, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > timeout {
            return Err(format!("{what}: not so after {:.1} s", started.elapsed().as_secs_f64()).into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
