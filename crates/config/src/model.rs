//! Declares what a configuration is, and says it in the words of those that go by it.

pub(crate) mod admin_variables;
pub(crate) mod cluster_variables;
pub(crate) mod clusters;
pub(crate) mod config;
pub(crate) mod hostgroups;
pub(crate) mod list;
pub(crate) mod listeners;
pub(crate) mod log_variables;
pub(crate) mod mysql_variables;
pub(crate) mod partial_read;
pub(crate) mod peers;
pub(crate) mod proxy_networks;
mod query_rules;
pub(crate) mod server_tls;
pub(crate) mod servers;
pub(crate) mod sockets;
pub(crate) mod topology;
pub(crate) mod topology_table;
pub(crate) mod users;
