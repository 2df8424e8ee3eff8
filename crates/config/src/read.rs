//! Reads a configuration from a file or from the rows of a database.

pub(crate) mod changed_rows;
pub(crate) mod clusters;
pub(crate) mod cnf;
pub(crate) mod file;
pub(crate) mod hostgroups;
pub(crate) mod listeners;
pub(crate) mod peers;
pub(crate) mod query_rules;
pub(crate) mod server_tls;
pub(crate) mod servers;
pub(crate) mod tables;
pub(crate) mod topology_table;
pub(crate) mod unread_keys;
pub(crate) mod user_attributes;
pub(crate) mod users;
