//! Holds the configuration that Weir runs by, for the threads that need it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Config;

/// The configuration in force, for all threads.
#[derive(Clone, Debug)]
pub struct InForce(Arc<Mutex<Arc<Config>>>);

impl InForce {
    /// This one.
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(config.clone()))))
    }

    /// The configuration of now.
    pub fn config(&self) -> Arc<Config> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This is the configuration from now on.
    pub fn set(&self, config: &Config) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.clone());
    }
}
