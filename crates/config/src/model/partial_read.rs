//! Names what of a configuration that is in force is not read again.

use crate::model::config::Config;

/// A configuration that is in force, of which only a part is read again: what was checked once stays checked.
#[derive(Clone, Copy)]
pub struct PartialRead<'c> {
    /// The configuration. What is equal in the next one is shared with it.
    pub config: &'c Config,
    /// Whether a table is read, or the variables that begin so (`mysql-`, `admin-`). All others stay as they are in
    /// `config`. What ProxySQL loads as one is read or kept as one.
    pub reads: &'c dyn Fn(&str) -> bool,
}
