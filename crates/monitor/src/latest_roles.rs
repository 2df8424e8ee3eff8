//! Holds the roles of now, for the threads that need them.

use std::sync::{Arc, Mutex, PoisonError};

use weir_topology::Roles;

/// The roles that the monitor has decided last, for all threads.
#[derive(Clone, Debug, Default)]
pub struct LatestRoles(Arc<Mutex<Arc<Roles>>>);

impl LatestRoles {
    /// The roles of now.
    pub fn latest(&self) -> Arc<Roles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// These are the roles from now on.
    pub fn set(&self, roles: Arc<Roles>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = roles;
    }
}
