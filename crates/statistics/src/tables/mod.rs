//! Fills the tables of `stats` and `monitor`, and the observed `runtime_mysql_servers`: rows of now, with columns in
//! the order of their declaration (`weir_store::tables`).

mod accounts;
mod counters;
mod digests;
mod errors;
mod global;
mod memory;
mod monitor;
mod pool;
mod reads;
mod servers;
mod sessions;

use weir_proxy::stats::ReportPart;
use weir_store::Value;
use weir_topology::Endpoint;

use crate::statistics::Statistics;

pub(crate) use global::values as global_values;

/// Rows of a table.
pub type Rows = Vec<Vec<Value>>;
/// Rows that are made while they are taken.
pub type RowIter<'a> = &'a mut dyn Iterator<Item = Vec<Value>>;

impl Statistics {
    /// Gives `take` the rows of a table as of now, unless it is not one of these. Those of digests, of which there may be a
    /// million, are made while they are taken.
    pub fn rows(&self, table: &str, take: &mut dyn FnMut(RowIter<'_>)) {
        let collector = &self.collector;
        match table {
            "stats_mysql_query_digest" => take(&mut collector.digest_rows(digests::mysql_row)),
            "stats_weir_query_digest" => take(&mut collector.digest_rows(digests::weir_row)),
            _ => {
                if let Some(rows) = few_rows(table, self) {
                    take(&mut rows.into_iter());
                }
            }
        }
    }

    /// The same for tables whose name ends in `_reset`: what they show is counted anew from now on. What happens meanwhile
    /// is in these rows or in the next ones, never in both.
    pub fn rows_and_reset(&self, table: &str, take: &mut dyn FnMut(RowIter<'_>)) {
        let collector = &self.collector;
        match table {
            "stats_mysql_query_digest_reset" => {
                take(&mut collector.take_digests().rows().map(digests::mysql_row));
            }
            "stats_mysql_connection_pool_reset" => {
                take(&mut pool::connection_pool(self, &collector.take(ReportPart::Servers)).into_iter());
            }
            "stats_mysql_errors_reset" => {
                take(&mut errors::errors(&collector.take(ReportPart::Errors)).into_iter());
            }
            "stats_mysql_client_host_cache_reset" => take(&mut std::iter::empty()),
            _ => {}
        }
    }
}

/// `stats_mysql_connection_pool`
pub(crate) fn connection_pool(statistics: &Statistics) -> Rows {
    pool::connection_pool(statistics, &statistics.collector.report(ReportPart::Servers))
}

/// Rows of `stats_mysql_query_digest` that took longest in all, the longest first. All digests begin again.
pub(crate) fn hottest_digests_and_reset(statistics: &Statistics, rows_max: usize) -> Rows {
    statistics.collector.take_digests().hottest(0, rows_max).into_iter().map(digests::mysql_row).collect()
}

fn few_rows(table: &str, statistics: &Statistics) -> Option<Rows> {
    let collector = &statistics.collector;
    let config = || statistics.state.config();
    let rows = match table {
        "stats_mysql_connection_pool" => connection_pool(statistics),
        "stats_mysql_free_connections" => {
            pool::free_connections(&collector.report(ReportPart::FreeConnections), &config())
        }
        "stats_mysql_processlist" => sessions::processlist(&collector.sessions()),
        "stats_mysql_prepared_statements_info" => {
            sessions::statements(&collector.report(ReportPart::Statements))
        }
        "stats_mysql_errors" => errors::errors(&collector.report(ReportPart::Errors)),
        "stats_mysql_commands_counters" => counters::commands(&collector.report(ReportPart::Commands)),
        "stats_mysql_query_rules" => counters::query_rules(&collector.report(ReportPart::Rules)),
        "stats_mysql_users" => counters::users(&collector.users()),
        "stats_mysql_global" => global::global(statistics),
        "stats_memory_metrics" => memory::memory(statistics),
        "stats_mysql_gtid_executed" => {
            servers::gtid_executed(&statistics.roles.latest(), &statistics.registry)
        }
        // Weir forgets no client for its errors.
        "stats_mysql_client_host_cache" => Vec::new(),
        "stats_weir_accounts" => accounts::accounts(&collector.users()),
        "stats_weir_discovered_servers" => servers::discovered(&statistics.state.discovered()),
        "stats_weir_addresses" => servers::addresses(&statistics.state.addresses()),
        "stats_weir_reads" => reads::reads(&collector.report(ReportPart::Servers)),
        "stats_weir_coverage" => reads::coverage(&collector.report(ReportPart::Servers)),
        "runtime_mysql_servers" => servers::runtime_mysql_servers(&statistics.roles.latest(), &config()),
        _ => return monitor::rows(table, &statistics.probes),
    };
    Some(rows)
}

fn integer(number: impl TryInto<i64>) -> Value {
    Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// Bytes of which nobody knows whether they are UTF-8.
fn bytes(bytes: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(bytes).into_owned())
}

fn hash(digest: u64) -> Value {
    Value::Text(format!("0x{digest:016X}"))
}

/// Host and port of a server as a worker names it.
fn host_and_port(endpoint: &str) -> (Value, Value) {
    match endpoint.parse::<Endpoint>() {
        Ok(endpoint) => (text(&*endpoint.host), integer(endpoint.port)),
        Err(_) => (text(endpoint), integer(0)),
    }
}
