//! Fills `stats_memory_metrics`: where memory is, in bytes.

use weir_proxy::stats::{DigestSums, ReportPart};

use super::{Rows, text};
use crate::process;
use crate::statistics::Statistics;
use crate::worker_sums::total_sums;

pub(super) fn memory(statistics: &Statistics) -> Rows {
    let collector = &statistics.collector;
    let totals = total_sums(&collector.report(ReportPart::Totals));
    let memory = process::memory();
    let values = [
        ("resident", memory.resident_bytes),
        ("virtual", memory.virtual_bytes),
        ("query_digest_memory", collector.digests(DigestSums::memory_bytes)),
        ("mysql_session_internal_bytes", totals.session_bytes_now),
        ("mysql_frontend_buffers_bytes", totals.client_buffer_bytes_now),
        ("mysql_backend_buffers_bytes", totals.server_buffer_bytes_now),
    ];
    values.into_iter().map(|(name, value)| vec![text(name), text(value.to_string())]).collect()
}
