//! Names the switchovers that nobody has wholly finished or undone yet, mostly those of other Weirs, for those who look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// In words, by writer hostgroup; for all threads.
#[derive(Clone, Debug, Default)]
pub struct UnfinishedSwitchovers(Arc<Mutex<BTreeMap<u32, String>>>);

impl UnfinishedSwitchovers {
    /// All of them.
    pub fn all(&self) -> BTreeMap<u32, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known of a cluster's; none: there is none.
    pub(crate) fn set(&self, writer_hostgroup: u32, words: Option<String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words {
            Some(words) => all.insert(writer_hostgroup, words),
            None => all.remove(&writer_hostgroup),
        };
    }
}
