//! Holds what an operation goes by.

use std::sync::Arc;

use weir_config::Config;
use weir_monitor::{LatestRoles, Planner, Reach, Reporter};
use weir_topology::ServerRegistry;

use crate::drained_servers::DrainedServers;
use crate::proxy::Proxy;
use crate::unfinished_switchovers::UnfinishedSwitchovers;

/// The configuration and the parts of the running Weir that operations need. An operation keeps those with which it was
/// begun.
#[derive(Clone)]
pub struct Context {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// Where servers are, and how connections to them are encrypted.
    pub reach: Reach,
    /// This Weir's name among those in front of one cluster.
    pub instance: Arc<str>,
    /// Up to when each server has all that was written.
    pub registry: ServerRegistry,
    /// The roles of now.
    pub roles: LatestRoles,
    /// The servers that users have taken out.
    pub drained: DrainedServers,
    /// The switchovers that others have left behind.
    pub unfinished: UnfinishedSwitchovers,
    /// Changes writers where the monitor decides who writes.
    pub planner: Planner,
    /// Tells the monitor what has happened here.
    pub reporter: Reporter,
    /// The proxy.
    pub proxy: Arc<dyn Proxy>,
}
