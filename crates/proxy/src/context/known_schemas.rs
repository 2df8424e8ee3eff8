//! Remembers for a while into which schemas each user has come, so that a login there need not ask a server.

use std::collections::HashMap;

use crate::keys::Nanos;

/// Schemas remembered for each user; beyond that all of the user's are asked for anew.
const SCHEMAS_MAX: usize = 1024;

/// Until when each user's schemas are known.
#[derive(Debug, Default)]
pub(crate) struct KnownSchemas {
    of_users: HashMap<String, HashMap<Box<[u8]>, Nanos>>,
    /// The sum of the servers' renewal numbers when all this was seen.
    renewals: u64,
}

impl KnownSchemas {
    pub(crate) fn contains(&self, user: &str, schema: &[u8], now: Nanos) -> bool {
        let until = self.of_users.get(user).and_then(|schemas| schemas.get(schema));
        until.is_some_and(|until| now < *until)
    }

    /// With other renewal numbers accounts may have changed: nothing is known any more.
    pub(crate) fn drop_outdated(&mut self, renewals: u64) {
        if self.renewals != renewals {
            self.renewals = renewals;
            self.of_users.clear();
        }
    }

    pub(crate) fn insert(&mut self, user: &str, schema: &[u8], until: Nanos) {
        let schemas = self.of_users.entry(user.to_owned()).or_default();
        if schemas.len() >= SCHEMAS_MAX {
            schemas.clear();
        }
        schemas.insert(schema.into(), until);
    }
}
