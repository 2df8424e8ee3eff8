//! Collects what the workers count, and shows it: as tables of `stats` and `monitor`, as reports and status for the
//! control socket, as the data of `weir top`, and as history on the disk.
//!
//! ```text
//! workers (weir_proxy) ─► StatsCollector ─┐
//! probes (weir_monitor) ──────────────────┼─► Statistics ─► rows of a table, Report, Status, TopData
//! logs (weir_query_log), RunningState ────┘        └─────► HistoryWriter ─► datadir/weir_stats.db
//! ```
//!
//! Nothing is decided by what is here. What the numbers need of the running Weir besides what is counted is
//! [`RunningState`].

mod history;
mod history_writer;
pub mod process;
mod report;
mod statistics;
mod stats_collector;
mod status;
mod tables;
mod top_data;
mod top_sessions;
pub mod worker_sums;

pub use history_writer::HistoryWriter;
pub use report::Report;
pub use statistics::{RunningState, Statistics};
pub use stats_collector::{Sessions, StatsCollector};
pub use status::{ClusterStatus, ServerStatus, Status, TransactionsStatus, cluster_status};
pub use tables::{RowIter, Rows};
pub use top_sessions::first_sessions;
