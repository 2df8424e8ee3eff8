//! Makes the pages of the JSON API.

use serde_json::{Value, json};
use weir_http::Page;
use weir_proxy::stats::{ReportPart, SessionRow};
use weir_statistics::worker_sums::total_sums;
use weir_statistics::{Report, first_sessions};

use super::WebSource;

/// What a page shows now.
pub(super) fn page(source: &WebSource, page: Page, rows_max: usize) -> Value {
    match page {
        Page::Status => status(source),
        Page::Topology => topology(source),
        Page::Servers => json!({ "servers": objects(source.statistics.pool_report()) }),
        Page::Digests => digests(source, rows_max),
        Page::Processlist => processlist(source, rows_max),
    }
}

fn status(source: &WebSource) -> Value {
    let totals = total_sums(&source.statistics.collector.report(ReportPart::Totals));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": source.uptime_s().floor() as u64,
        "workers": source.statistics.collector.workers(),
        "clients": totals.clients_now,
        "clients_busy": totals.busy_now,
        "transactions": totals.transactions_now,
        "server_connections": totals.server_connections_now,
        "questions": totals.questions,
        "clusters": source.statistics.clusters(),
    })
}

fn topology(source: &WebSource) -> Value {
    let status = source.statistics.status();
    json!({ "clusters": status.clusters, "servers": status.servers })
}

fn digests(source: &WebSource, rows_max: usize) -> Value {
    source.statistics.collector.digests(|sums| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let rows = sums.hottest(0, rows_max);
        let row = |row: &weir_proxy::stats::DigestSum<'_>| {
            json!({
                "hostgroup": row.hostgroup,
                "schemaname": text(&row.caller.schemaname),
                "username": text(&row.caller.username),
                "client_address": &*row.caller.client_address,
                "digest": format!("0x{:016X}", row.digest),
                "digest_text": text(row.text),
                "count_star": row.count,
                "first_seen": row.first_seen_s,
                "last_seen": row.last_seen_s,
                "sum_time_us": row.sum_us,
                "min_time_us": row.min_us,
                "max_time_us": row.max_us,
                "p50_us": row.quantile_us(0.5),
                "p95_us": row.quantile_us(0.95),
                "p99_us": row.quantile_us(0.99),
                "sum_rows_affected": row.rows_affected,
                "sum_rows_sent": row.rows_sent,
            })
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        json!({ "digests": rows, "known": sums.len(), "dropped": sums.dropped() })
    })
}

fn processlist(source: &WebSource, rows_max: usize) -> Value {
    let workers = source.statistics.collector.sessions();
    let known: usize = workers.iter().map(|(_, rows)| rows.len()).sum();
    let row = |row: &SessionRow| {
        json!({
            "id": row.id,
            "username": row.username,
            "schema": String::from_utf8_lossy(&row.schema),
            "client": row.peer.to_string(),
            "program": row.program,
            "tls": row.is_tls,
            "listener": row.listener,
            "hostgroup": row.hostgroup,
            "server": row.server,
            "server_thread_id": row.server_thread_id,
            "command": row.command,
            "phase": row.phase,
            "time_ms": row.since_ns / 1_000_000,
            "digest": row.digest.map(|digest| format!("0x{digest:016X}")),
            "pins": row.pins,
            "transaction_ms": row.transaction_ns.map(|ns| ns / 1_000_000),
        })
    };
    let rows: Vec<Value> = first_sessions(&workers, rows_max).into_iter().map(row).collect();
    json!({ "sessions": rows, "known": known })
}

/// The rows of a report as objects.
fn objects(report: Report) -> Vec<Value> {
    let columns = report.columns;
    let object = |row: Vec<Value>| Value::Object(columns.iter().cloned().zip(row).collect());
    report.rows.into_iter().map(object).collect()
}
