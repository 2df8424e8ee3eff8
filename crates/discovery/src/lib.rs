//! Finds out what a server belongs to, and writes the configuration of a Weir in front of it.
//!
//! ```text
//! ServerUrl          mysql://admin@10.0.0.11:3306
//!    │
//! walk()             asks that server, and all that it names, and all that those name: Facts of each
//!    │                                                    (the only part that talks, with `creation`)
//! Findings           each server once, under the name by which its cluster calls it
//!    │
//! Cluster::of()      Galera, a group, a source and its replicas, a single server; or why Weir can't stand in front of it
//!    │
//! Proposal::new()    hostgroups, weights, accounts with the statements that make them, and why each is needed
//!    │
//! config_text()      weir.toml
//!
//! MemberWatch        in front of a cluster that is known: does it have the members that are configured?
//! ```
//!
//! Everything but [`walk`], [`creation`] and [`MemberWatch`] is a pure function.

pub mod address;
mod cluster;
mod config_text;
pub mod creation;
pub mod facts;
mod findings;
#[doc(hidden)]
pub mod fuzzing;
mod membership;
mod proposal;
mod service;
mod walk;
mod watch;

pub use address::{ServerUrl, SslMode, UrlError};
pub use cluster::{Cluster, Kind, Member, Refusal, Remark};
pub use config_text::{Places, config_text};
pub use facts::Facts;
pub use findings::{Findings, NamedBy, Server, Unreached};
pub use membership::{About, Configured, Difference, Incomparable, differences};
pub use proposal::{
    AccountPlan, AdminCredentials, AdminWish, AppUser, Grant, Proposal, ProposalError, Purpose, Row,
    Statement, Trust, Wishes, hostgroup,
};
pub use service::service_unit;
pub use walk::{Dialling, Limits, WalkError, walk, walk_from};
pub use watch::{Dial, KnownDifferences, MemberWatch, Watched, WatchedCluster};
pub use weir_eviction::MEASURED_OPTIONS;
