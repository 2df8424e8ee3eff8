//! Judges histories. Each workload has its checker; all of them take a [`History`] and give [`Findings`].
//!
//! - [`list_append`], [`rw_register`]: who saw whose writes makes a graph of dependencies ([`graph`]), and its cycles are
//!   anomalies: Adya, Liskov, O'Neil, "Generalized Isolation Level Definitions" (2000); how the graph is inferred from what
//!   clients see: Kingsbury, Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations" (VLDB 2020).
//! - [`linearizable`]: Wing, Gong, "Testing and Verifying Concurrent Objects" (1993), with Lowe's memory of states seen,
//!   "Testing for linearizability" (2017).
//! - [`sessions`]: Terry and others, "Session Guarantees for Weakly Consistent Replicated Data" (1994).
//! - [`bank`], [`set`]: sums and members.

pub mod anomaly;
pub mod bank;
pub mod graph;
pub mod history;
pub mod linearizable;
pub mod list_append;
pub mod rw_register;
pub mod sessions;
pub mod set;
mod versions;

pub use anomaly::{Anomaly, AnomalyKind, Class, Findings, Order};
pub use history::{Entry, History, Key, Kind, Op, Outcome, Transaction, Value};
