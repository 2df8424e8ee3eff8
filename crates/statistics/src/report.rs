//! Makes reports: the workers' parts summed up, as tables.

use std::cmp::Reverse;

use serde_json::{Value, json};
use weir_monitor::ServerAddresses;
use weir_proxy::stats::{CommandRow, DigestSum, DigestSums, ReportPart, ServerRow, WorkerReport};
use weir_query_log::{Counts, Log, QueryLogs};
use weir_topology::{Endpoint, Roles};

use crate::statistics::Statistics;
use crate::stats_collector::StatsCollector;
use crate::worker_sums::{ErrorSum, command_sums, command_word, error_sums, rule_sums, server_sums};

/// A table. Each row has a value for each column: a number or a string.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Their names.
    pub columns: Vec<String>,
    /// A value for each column.
    pub rows: Vec<Vec<Value>>,
    /// What found no room in the workers' tables and is missing here.
    #[serde(default)]
    pub dropped: u64,
}

impl Report {
    fn new(columns: &[&str], rows: Vec<Vec<Value>>) -> Self {
        Self { columns: columns.iter().map(|&name| name.to_owned()).collect(), rows, dropped: 0 }
    }
}

impl Statistics {
    /// Statements by digest, with quantiles; what took longest in all comes first.
    pub fn digest_report(&self) -> Report {
        digests(&self.collector)
    }

    /// Statements by kind; what took longest in all comes first.
    pub fn command_report(&self) -> Report {
        commands(&self.collector.report(ReportPart::Commands))
    }

    /// Errors that servers have answered with; the most frequent come first.
    pub fn error_report(&self) -> Report {
        errors(&self.collector.report(ReportPart::Errors))
    }

    /// Connections and traffic by server.
    pub fn pool_report(&self) -> Report {
        pool(&self.roles.latest(), &self.state.addresses(), &self.collector.report(ReportPart::Servers))
    }

    /// Servers with the role and the state they have now, and why.
    pub fn server_report(&self) -> Report {
        servers(&self.roles.latest(), &self.state.addresses())
    }

    /// How often each query rule has matched since the rules were taken, in the order of the rules.
    pub fn rule_report(&self) -> Report {
        rules(&self.collector.report(ReportPart::Rules))
    }

    /// What has become of the lines of each log since the start.
    pub fn log_report(&self) -> Report {
        logs(&self.query_logs)
    }
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

fn hash(digest: u64) -> String {
    format!("0x{digest:016X}")
}

/// ProxySQL's stats_mysql_query_digest, with quantiles; what took longest in all comes first.
fn digests(collector: &StatsCollector) -> Report {
    let keyed = |sum: DigestSum<'_>| ((Reverse(sum.sum_us), sum.digest, sum.hostgroup), digest_row(&sum));
    let mut rows: Vec<_> = collector.digest_rows(keyed).collect();
    rows.sort_by_key(|(key, _)| *key);
    let columns = [
        "hostgroup",
        "schemaname",
        "username",
        "client_address",
        "digest",
        "count_star",
        "first_seen",
        "last_seen",
        "sum_time_us",
        "min_time_us",
        "max_time_us",
        "p50_us",
        "p95_us",
        "p99_us",
        "sum_rows_affected",
        "sum_rows_sent",
        "digest_text",
    ];
    let mut report = Report::new(&columns, rows.into_iter().map(|(_, row)| row).collect());
    report.dropped = collector.digests(DigestSums::dropped);
    report
}

fn digest_row(sum: &DigestSum<'_>) -> Vec<Value> {
    vec![
        sum.hostgroup.into(),
        text(&sum.caller.schemaname),
        text(&sum.caller.username),
        json!(&*sum.caller.client_address),
        hash(sum.digest).into(),
        sum.count.into(),
        sum.first_seen_s.into(),
        sum.last_seen_s.into(),
        sum.sum_us.into(),
        sum.min_us.into(),
        sum.max_us.into(),
        sum.quantile_us(0.5).into(),
        sum.quantile_us(0.95).into(),
        sum.quantile_us(0.99).into(),
        sum.rows_affected.into(),
        sum.rows_sent.into(),
        text(sum.text),
    ]
}

/// Like ProxySQL's stats_mysql_commands_counters; what took longest in all comes first.
fn commands(workers: &[WorkerReport]) -> Report {
    let sums = command_sums(workers);
    let columns = ["command", "count_star", "sum_time_us", "p50_us", "p95_us", "p99_us"];
    let row = |sum: &CommandRow| {
        vec![
            command_word(&format!("{:?}", sum.kind)).into(),
            sum.count.into(),
            sum.sum_us.into(),
            sum.latency.quantile_us(0.5).into(),
            sum.latency.quantile_us(0.95).into(),
            sum.latency.quantile_us(0.99).into(),
        ]
    };
    Report::new(&columns, sums.iter().map(row).collect())
}

/// ProxySQL's stats_mysql_errors; the most frequent come first.
fn errors(workers: &[WorkerReport]) -> Report {
    let sums = error_sums(workers);
    let columns = [
        "hostgroup",
        "server",
        "username",
        "client_address",
        "schemaname",
        "errno",
        "count_star",
        "first_seen",
        "last_seen",
        "last_error",
    ];
    let row = |sum: &ErrorSum<'_>| {
        vec![
            sum.row.hostgroup.into(),
            json!(sum.row.endpoint),
            text(&sum.row.caller.username),
            json!(&*sum.row.caller.client_address),
            text(&sum.row.caller.schemaname),
            sum.row.code.into(),
            sum.count.into(),
            sum.first_seen_s.into(),
            sum.last_seen_s.into(),
            text(&sum.row.last_message),
        ]
    };
    let mut report = Report::new(&columns, sums.iter().map(row).collect());
    report.dropped = workers.iter().map(|worker| worker.dropped).sum();
    report
}

/// Connections and traffic by server. A server that is in several hostgroups has one row, for its connections serve
/// all of them.
fn pool(roles: &Roles, known: &ServerAddresses, workers: &[WorkerReport]) -> Report {
    let sums = server_sums(workers);
    let columns = [
        "server",
        "address",
        "hostgroups",
        "used",
        "free",
        "opened",
        "failed",
        "open_max",
        "queries",
        "bytes_sent",
        "bytes_received",
        "p50_us",
        "p95_us",
        "p99_us",
    ];
    let row = |sum: &ServerRow| {
        let places = roles.places.iter().filter(|place| place.endpoint.to_string() == sum.endpoint);
        let hostgroups: Vec<String> = places.map(|place| place.hostgroup.to_string()).collect();
        vec![
            json!(sum.endpoint),
            sum.endpoint.parse().map(|server| address(known, &server)).unwrap_or_default().into(),
            hostgroups.join(",").into(),
            sum.used.into(),
            sum.free.into(),
            sum.opened.into(),
            sum.failed.into(),
            sum.open_max.into(),
            sum.queries.into(),
            sum.bytes_sent.into(),
            sum.bytes_received.into(),
            sum.latency.quantile_us(0.5).into(),
            sum.latency.quantile_us(0.95).into(),
            sum.latency.quantile_us(0.99).into(),
        ]
    };
    Report::new(&columns, sums.iter().map(row).collect())
}

/// The hits since the rules were taken, in the order of the rules.
fn rules(workers: &[WorkerReport]) -> Report {
    let row = |(rule_id, hits): (u32, u64)| vec![rule_id.into(), hits.into()];
    Report::new(&["rule_id", "hits"], rule_sums(workers).into_iter().map(row).collect())
}

/// What has become of the lines of each log since the start.
fn logs(query_logs: &QueryLogs) -> Report {
    let counts = Log::ALL.into_iter().zip(query_logs.counts());
    let row =
        |(log, counts): (Log, Counts)| vec![log.word().into(), counts.written.into(), counts.dropped.into()];
    Report::new(&["log", "lines", "dropped"], counts.map(row).collect())
}

/// Where a server is spoken to; empty if nobody knows.
pub(crate) fn address(known: &ServerAddresses, server: &Endpoint) -> String {
    known.get(server).and_then(|known| known.at).map(|at| at.to_string()).unwrap_or_default()
}

fn servers(roles: &Roles, known: &ServerAddresses) -> Report {
    let columns = ["hostgroup", "server", "address", "role", "status", "weight", "max_connections", "reason"];
    let row = |place: &weir_topology::Place| {
        vec![
            place.hostgroup.into(),
            place.endpoint.to_string().into(),
            address(known, &place.endpoint).into(),
            place.role.to_string().into(),
            place.status.word().into(),
            place.weight.into(),
            place.max_connections.into(),
            place.reason.to_string().into(),
        ]
    };
    Report::new(&columns, roles.places.iter().map(row).collect())
}
