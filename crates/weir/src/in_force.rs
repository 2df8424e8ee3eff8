//! The configuration that Weir runs by, for the threads that need it.

use std::sync::{Arc, Mutex, PoisonError};

use weir_config::Config;

/// The configuration in force, for all threads.
#[derive(Clone, Debug)]
pub(crate) struct InForce(Arc<Mutex<Arc<Config>>>);

impl InForce {
    pub(crate) fn new(config: &Config) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(config.clone()))))
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, config: &Config) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.clone());
    }
}
