//! Carries out what takes a while with a cluster's servers: switchovers, failovers, drains, and the recovery of a
//! switchover whose Weir has died.
//!
//! ```text
//! weir_topology decides ──Roles──► Operations ──► ClusterAutomation (one per cluster): is something due, and may it begin?
//! users order ───────────────────► Operations         │ one operation at a time, on a thread of its own
//!                                      ▲               ▼
//!                                      └── Notice ── Operator ──► servers (weir_client), Proxy (hold, ask, publish)
//! ```
//!
//! [`Operations`] is told of new roles and of orders by the thread that owns it, and waits for nothing. An operation asks
//! the running Weir for the little that it needs of it by the trait [`Proxy`].

mod account;
mod auto_failover;
mod cluster_automation;
mod context;
mod drain;
mod drained_servers;
mod error;
mod failback;
mod operation_runner;
mod operations;
mod peer_agreement;
mod progress;
mod proxy;
mod recovery;
mod replication_server;
mod switchover;
mod unfinished_switchovers;

pub use context::Context;
pub use drained_servers::{DrainedServers, DrainedServersError};
pub use error::{DrainError, Ending, SwitchoverError};
pub use operations::{Notice, Operations};
pub use peer_agreement::foreign_switchover;
pub use progress::{Progress, ProgressEvent, progress};
pub use proxy::{Proxy, WritingSessions};
pub use switchover::{SwitchoverOrder, SwitchoverPlan};
pub use unfinished_switchovers::UnfinishedSwitchovers;
