//! Finds faults that only several rows together show.

pub(crate) mod clusters;
pub(crate) mod cross_table;
pub(crate) mod hostgroups;
pub(crate) mod listeners;
pub(crate) mod peers;
pub(crate) mod query_rules;
pub(crate) mod server_tls;
pub(crate) mod topology_table;
