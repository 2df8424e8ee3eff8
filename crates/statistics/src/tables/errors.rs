//! Fills `stats_mysql_errors`.

use weir_proxy::stats::WorkerReport;

use super::{Rows, bytes, host_and_port, integer, text};
use crate::worker_sums::{ErrorSum, error_sums};

pub(super) fn errors(workers: &[WorkerReport]) -> Rows {
    let row = |sum: &ErrorSum<'_>| {
        let (host, port) = host_and_port(&sum.row.endpoint);
        let caller = &sum.row.caller;
        vec![
            integer(sum.row.hostgroup),
            host,
            port,
            bytes(&caller.username),
            text(&*caller.client_address),
            bytes(&caller.schemaname),
            integer(sum.row.code),
            integer(sum.count),
            integer(sum.first_seen_s),
            integer(sum.last_seen_s),
            bytes(&sum.row.last_message),
        ]
    };
    error_sums(workers).iter().map(row).collect()
}
