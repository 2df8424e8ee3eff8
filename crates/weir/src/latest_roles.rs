//! The roles of now, for the threads that need them.

use std::sync::{Arc, Mutex, PoisonError};

use weir_topology::Roles;

/// The roles that the monitor has decided last, for all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestRoles(Arc<Mutex<Arc<Roles>>>);

impl LatestRoles {
    pub(crate) fn latest(&self) -> Arc<Roles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, roles: Arc<Roles>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = roles;
    }
}
