//! Serves Weir's state over HTTP: `/healthz`, `/readyz`, `/metrics` and a small JSON API under `/api/v1/`.
//!
//! One thread with an event loop of its own ([`Http`]) serves all addresses; what takes longer than a moment, because the
//! workers are asked, runs on a second one. The data path is not touched: who asks gets copies of what is counted anyway.
//! What is shown comes from a [`Source`]; this crate knows nothing of proxies.
//!
//! | path | shows | needs a password |
//! | --- | --- | --- |
//! | `/healthz` | whether the process works | no |
//! | `/readyz`, `/readyz?hostgroup=10` | whether clients should be sent here, and if not, why | no |
//! | `/metrics` | the metrics | unless [`Access::metrics_are_public`] |
//! | `/api/v1/...` | see [`Page`] | yes |

mod access;
mod metrics;
mod routes;
mod server;
mod sockets;

use serde_json::Value;

pub use access::{Access, Account};
pub use metrics::{Buckets, Family, Format, Kind, Number, Sample, metrics_text};
pub use server::{Finish, Http, HttpError, Options};
pub use sockets::HttpSockets;

/// The source of everything that is shown. Its methods are called on a thread for this purpose, one at a time, and
/// may take seconds.
pub trait Source: Send + Sync + 'static {
    /// What keeps the process from working, in sentences; empty when it works.
    fn ailments(&self) -> Vec<String>;

    /// Whether clients should be sent here now, or those of one hostgroup.
    fn readiness(&self, hostgroup: Option<u32>) -> Readiness;

    /// The metrics of now.
    fn metrics(&self) -> Vec<Family>;

    /// A page of the JSON API, with at most so many rows where it has rows.
    fn page(&self, page: Page, rows_max: usize) -> Value;
}

/// Whether clients should be sent here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are welcome. What does not work all the same, in sentences.
    Ready(Vec<String>),
    /// They could not be served, and why, in sentences.
    NotReady(Vec<String>),
    /// There is no such hostgroup.
    Unknown,
}

/// A page under `/api/v1/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `status`: the process, its clients, its clusters.
    Status,
    /// `topology`: who writes, who reads, and why.
    Topology,
    /// `servers`: connections and traffic of each server.
    Servers,
    /// `digests`: the statements with the greatest total time.
    Digests,
    /// `processlist`: the sessions of now.
    Processlist,
}
