//! Names what of a configuration that is in force is not read again.

use std::sync::Arc;

use crate::model::types::Config;

/// A configuration that is in force, of which only a part is read again: what was checked once stays checked.
#[derive(Clone, Copy)]
pub struct PartialRead<'c> {
    /// The configuration. What is equal in the next one is shared with it.
    pub config: &'c Config,
    /// Whether a table is read, or the variables that begin so (`mysql-`, `admin-`). All others stay as they are in
    /// `config`. What ProxySQL loads as one is read or kept as one.
    pub reads: &'c dyn Fn(&str) -> bool,
}

/// The rows of the tables that may be very large about which there is something to tell each time they are read, by
/// their position among those that were taken; in order.
///
/// It is no part of what a configuration means: any two are equal.
#[derive(Clone, Debug, Default)]
pub struct WarnedRows {
    /// Of `mysql_users`.
    pub users: Arc<Vec<usize>>,
    /// Of `mysql_query_rules`.
    pub rules: Arc<Vec<usize>>,
}

impl PartialEq for WarnedRows {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
