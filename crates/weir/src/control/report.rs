//! Reports: the workers' parts summed up, as tables.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use weir_monitor::LatestRoles;
use weir_operations::DrainedServers;
use weir_proxy::stats::{CommandRow, DigestSum, DigestSums, ReportPart, ServerRow, WorkerReport};
use weir_query_log::{Counts, Journal, Log};
use weir_topology::{Endpoint, Roles};

use super::Subject;
use crate::addresses::{Known, Names};
use crate::tally::Tally;
use crate::tally::sums::{ErrorSum, command_sums, command_word, error_sums, rule_sums, server_sums};

/// A table. Each row has a value for each column: a number or a string.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Report {
    pub columns: Vec<String>,
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

/// Knows whom to ask.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// When this Weir was.
    pub started: Instant,
    pub tally: Arc<Tally>,
    pub journal: Journal,
    /// The roles of now.
    pub roles: LatestRoles,
    pub drained: DrainedServers,
    /// This Weir's name among those in front of one cluster.
    pub instance: Arc<str>,
    pub names: Names,
}

impl Reporter {
    /// The report on a subject as of now.
    pub(crate) fn report(&self, subject: Subject) -> Report {
        match subject {
            Subject::Digests => digests(&self.tally),
            Subject::Commands => commands(&self.tally.report(ReportPart::Commands)),
            Subject::Errors => errors(&self.tally.report(ReportPart::Errors)),
            Subject::Pool => {
                pool(&self.roles.latest(), &self.names.all(), &self.tally.report(ReportPart::Servers))
            }
            Subject::Servers => servers(&self.roles.latest(), &self.names.all()),
            Subject::Rules => rules(&self.tally.report(ReportPart::Rules)),
            Subject::Logs => logs(&self.journal),
        }
    }
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

fn hash(digest: u64) -> String {
    format!("0x{digest:016X}")
}

/// ProxySQL's stats_mysql_query_digest, with quantiles; what took longest in all comes first.
fn digests(tally: &Tally) -> Report {
    let keyed = |sum: DigestSum<'_>| ((Reverse(sum.sum_us), sum.digest, sum.hostgroup), digest_row(&sum));
    let mut rows: Vec<_> = tally.digest_rows(keyed).collect();
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
    report.dropped = tally.digests(DigestSums::dropped);
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
fn pool(roles: &Roles, known: &Known, workers: &[WorkerReport]) -> Report {
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
fn logs(journal: &Journal) -> Report {
    let counts = Log::ALL.into_iter().zip(journal.counts());
    let row =
        |(log, counts): (Log, Counts)| vec![log.word().into(), counts.written.into(), counts.dropped.into()];
    Report::new(&["log", "lines", "dropped"], counts.map(row).collect())
}

/// Where a server is spoken to; empty if nobody knows.
pub(super) fn address(known: &Known, server: &Endpoint) -> String {
    known.get(server).and_then(|known| known.at).map(|at| at.to_string()).unwrap_or_default()
}

fn servers(roles: &Roles, known: &Known) -> Report {
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
