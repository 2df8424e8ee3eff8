//! Fills `stats_weir_reads` and `stats_weir_coverage`: how reads came to be fresh enough, and what servers have applied.

use weir_proxy::stats::{CoverageRow, ReadCounts, WorkerReport};
use weir_store::Value;

use super::{Rows, host_and_port, integer, text};
use crate::worker_sums::read_sums;

/// `stats_weir_reads`, by hostgroup.
pub(super) fn reads(workers: &[WorkerReport]) -> Rows {
    let row = |(hostgroup, counts): (u32, ReadCounts)| {
        vec![
            integer(hostgroup),
            integer(counts.at_once),
            integer(counts.waited),
            integer(counts.on_writer),
            integer(counts.timed_out),
            integer(counts.waits.quantile_us(0.5)),
            integer(counts.waits.quantile_us(0.99)),
        ]
    };
    read_sums(workers).into_iter().map(row).collect()
}

/// `stats_weir_coverage`. All workers know the same.
pub(super) fn coverage(workers: &[WorkerReport]) -> Rows {
    let row = |row: &CoverageRow| {
        let (host, port) = host_and_port(&row.endpoint);
        let age = row.age_ns.map_or(Value::Null, |age_ns| integer(age_ns / 1000));
        let unchecked = row.unchecked.map(|why| why.as_str()).unwrap_or_default();
        vec![host, port, age, integer(row.latency_ns / 1000), integer(row.checks), text(unchecked)]
    };
    workers.first().map(|worker| worker.coverage.iter().map(row).collect()).unwrap_or_default()
}
