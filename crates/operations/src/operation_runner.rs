//! Carries out one operation, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::context::Context;
use crate::error::Ending;

/// How often an operation looks whether something has come to pass.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Whoever carries out an operation: what it goes by, and whether it is to be given up.
pub(crate) struct OperationRunner {
    pub(crate) context: Context,
    pub(crate) is_ending: Arc<AtomicBool>,
}

impl OperationRunner {
    /// Between two looks at something that is waited for.
    ///
    /// # Errors
    /// Weir is to end: then nothing is waited for any more.
    pub(crate) fn look_again(&self) -> Result<(), Ending> {
        self.look_again_after(LOOK_EVERY)
    }

    /// # Errors
    /// As [`OperationRunner::look_again`].
    pub(crate) fn look_again_after(&self, pause: Duration) -> Result<(), Ending> {
        sleep(pause);
        if self.is_ending.load(Ordering::Relaxed) { Err(Ending) } else { Ok(()) }
    }
}
