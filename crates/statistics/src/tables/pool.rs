//! Fills the tables of connections to servers.

use std::collections::BTreeMap;

use serde_json::json;
use weir_config::Config;
use weir_proxy::stats::{FreeConnectionRow, ServerRow, WorkerReport};
use weir_store::Value;

use super::servers::status_word;
use super::{Rows, host_and_port, integer, text};
use crate::statistics::Statistics;
use crate::worker_sums::pool_sums;

/// `stats_mysql_connection_pool`: a row for each server in each hostgroup that it is in now, and for those that it was
/// in while there are connections left of that time.
pub(super) fn connection_pool(statistics: &Statistics, workers: &[WorkerReport]) -> Rows {
    let roles = statistics.roles.latest();
    let latencies = statistics.probes.latencies_us();
    let mut counts = pool_sums(workers);
    let mut rows: BTreeMap<(u32, String), Vec<Value>> = BTreeMap::new();
    for place in &roles.places {
        let endpoint = place.endpoint.to_string();
        let latency_us = latencies.get(&place.endpoint).copied().unwrap_or(0);
        let counts = counts.remove(&(place.hostgroup, endpoint.clone())).unwrap_or_default();
        let row = pool_row(place.hostgroup, &endpoint, status_word(place), &counts, latency_us);
        rows.insert((place.hostgroup, endpoint), row);
    }
    for ((hostgroup, endpoint), counts) in counts {
        if counts.used + counts.free > 0 {
            let row = pool_row(hostgroup, &endpoint, "OFFLINE_HARD", &counts, 0);
            rows.insert((hostgroup, endpoint), row);
        }
    }
    rows.into_values().collect()
}

fn pool_row(hostgroup: u32, endpoint: &str, status: &str, counts: &ServerRow, latency_us: u64) -> Vec<Value> {
    let (host, port) = host_and_port(endpoint);
    vec![
        integer(hostgroup),
        host,
        port,
        text(status),
        integer(counts.used),
        integer(counts.free),
        integer(counts.opened),
        integer(counts.failed),
        integer(counts.open_max),
        integer(counts.queries),
        integer(counts.gtid_queries),
        integer(counts.bytes_sent),
        integer(counts.bytes_received),
        integer(latency_us),
    ]
}

/// `stats_mysql_free_connections`
pub(super) fn free_connections(workers: &[WorkerReport], config: &Config) -> Rows {
    let row = |row: &FreeConnectionRow| {
        let (host, port) = host_and_port(&row.endpoint);
        let variable = |name: &str| {
            let known = row.variables.iter().find(|(known, _)| known == name);
            known.map_or(Value::Null, |(_, value)| text(value))
        };
        let statistics = json!({
            "age_ms": row.age_ns / 1_000_000,
            "prepared_statements": row.statements,
            "is_tls": row.is_tls,
        });
        let variables: BTreeMap<&str, &str> =
            row.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mysql_info = json!({
            "thread_id": row.thread_id,
            "address": row.endpoint,
            "user": row.username,
            "db": String::from_utf8_lossy(&row.schema),
            "variables": variables,
        });
        vec![
            integer(row.socket),
            integer(row.hostgroup),
            host,
            port,
            text(&row.username),
            super::bytes(&row.schema),
            init_connect(config),
            variable("time_zone"),
            variable("sql_mode"),
            variable("autocommit"),
            integer(row.idle_ns / 1_000_000),
            text(statistics.to_string()),
            text(mysql_info.to_string()),
        ]
    };
    workers.iter().flat_map(|worker| &worker.free_connections).map(row).collect()
}

/// What new connections are told first, where their hostgroup has nothing of its own.
fn init_connect(config: &Config) -> Value {
    let statements = &config.variables.init_connect;
    if statements.is_empty() { Value::Null } else { text(statements.join("; ")) }
}
