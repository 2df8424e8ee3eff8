//! Reports: the workers' parts summed up, as tables.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use weir_proxy::service::Publisher;
use weir_proxy::statistics::{
    Caller, CommandRow, DigestRow, ErrorRow, Histogram, ReportPart, ServerRow, WorkerReport,
};
use weir_topology::Roles;

use super::Subject;
use crate::drained::Drained;
use crate::latest_roles::LatestRoles;

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
#[derive(Debug)]
pub(crate) struct Reporter {
    pub publisher: Publisher,
    /// The roles of now.
    pub roles: LatestRoles,
    pub drained: Drained,
}

impl Reporter {
    /// The report on a subject as of now.
    pub(crate) fn report(&self, subject: Subject) -> Report {
        match subject {
            Subject::Digests => digests(&self.publisher.report(ReportPart::Digests)),
            Subject::Commands => commands(&self.publisher.report(ReportPart::Commands)),
            Subject::Errors => errors(&self.publisher.report(ReportPart::Errors)),
            Subject::Pool => pool(&self.roles.latest(), &self.publisher.report(ReportPart::Servers)),
            Subject::Servers => servers(&self.roles.latest()),
            Subject::Rules => rules(&self.publisher.report(ReportPart::Rules)),
        }
    }
}

/// Seconds since 1970 of a moment on a worker's clock.
fn unix_s(worker: &WorkerReport, moment_ns: u64) -> u64 {
    let ago_s = worker.now.saturating_sub(moment_ns) / 1_000_000_000;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now_s.saturating_sub(ago_s)
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

fn hash(digest: u64) -> String {
    format!("0x{digest:016X}")
}

struct Digest<'a> {
    row: &'a DigestRow,
    first_seen: u64,
    last_seen: u64,
    count: u64,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
    rows_affected: u64,
    rows_sent: u64,
    latency: Histogram,
}

/// ProxySQL's stats_mysql_query_digest, with quantiles; what took longest in all comes first.
fn digests(workers: &[WorkerReport]) -> Report {
    let mut sums: HashMap<(u32, &Caller, u64), Digest<'_>> = HashMap::new();
    for worker in workers {
        for row in &worker.digests {
            let (first_seen, last_seen) = (unix_s(worker, row.seen.0), unix_s(worker, row.seen.1));
            let sum = sums.entry((row.hostgroup, &row.caller, row.digest)).or_insert_with(|| Digest {
                row,
                first_seen,
                last_seen,
                count: 0,
                sum_us: 0,
                min_us: u64::MAX,
                max_us: 0,
                rows_affected: 0,
                rows_sent: 0,
                latency: Histogram::default(),
            });
            sum.first_seen = sum.first_seen.min(first_seen);
            sum.last_seen = sum.last_seen.max(last_seen);
            sum.count += row.count;
            sum.sum_us = sum.sum_us.saturating_add(row.sum_us);
            sum.min_us = sum.min_us.min(row.min_us);
            sum.max_us = sum.max_us.max(row.max_us);
            sum.rows_affected = sum.rows_affected.saturating_add(row.rows_affected);
            sum.rows_sent = sum.rows_sent.saturating_add(row.rows_sent);
            sum.latency.add(&row.latency);
        }
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|sum| (std::cmp::Reverse(sum.sum_us), sum.row.digest, sum.row.hostgroup));
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
    let mut report = Report::new(&columns, sums.iter().map(digest_row).collect());
    report.dropped = workers.iter().map(|worker| worker.dropped).sum();
    report
}

fn digest_row(sum: &Digest<'_>) -> Vec<Value> {
    // The buckets know a duration less exactly than the two ends do.
    let quantile = |part| sum.latency.quantile_us(part).clamp(sum.min_us, sum.max_us);
    vec![
        sum.row.hostgroup.into(),
        text(&sum.row.caller.schemaname),
        text(&sum.row.caller.username),
        json!(&*sum.row.caller.client_address),
        hash(sum.row.digest).into(),
        sum.count.into(),
        sum.first_seen.into(),
        sum.last_seen.into(),
        sum.sum_us.into(),
        sum.min_us.into(),
        sum.max_us.into(),
        quantile(0.5).into(),
        quantile(0.95).into(),
        quantile(0.99).into(),
        sum.rows_affected.into(),
        sum.rows_sent.into(),
        text(&sum.row.text),
    ]
}

/// Like ProxySQL's stats_mysql_commands_counters; what took longest in all comes first.
fn commands(workers: &[WorkerReport]) -> Report {
    let mut sums: Vec<CommandRow> = Vec::new();
    for row in workers.iter().flat_map(|worker| &worker.commands) {
        match sums.iter_mut().find(|sum| sum.kind == row.kind) {
            None => sums.push(row.clone()),
            Some(sum) => {
                sum.count += row.count;
                sum.sum_us = sum.sum_us.saturating_add(row.sum_us);
                sum.latency.add(&row.latency);
            }
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.sum_us));
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

/// `ShowWarnings` as `SHOW_WARNINGS`.
fn command_word(variant: &str) -> String {
    let mut word = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(c.to_ascii_uppercase());
    }
    word
}

/// ProxySQL's stats_mysql_errors; the most frequent come first.
fn errors(workers: &[WorkerReport]) -> Report {
    struct Error<'a> {
        row: &'a ErrorRow,
        count: u64,
        first_seen: u64,
        last_seen: u64,
    }
    let mut sums: HashMap<(u32, &str, &Caller, u16), Error<'_>> = HashMap::new();
    for worker in workers {
        for row in &worker.errors {
            let (first_seen, last_seen) = (unix_s(worker, row.seen.0), unix_s(worker, row.seen.1));
            let key = (row.hostgroup, row.endpoint.as_str(), &*row.caller, row.code);
            let sum = sums.entry(key).or_insert(Error { row, count: 0, first_seen, last_seen });
            sum.count += row.count;
            sum.first_seen = sum.first_seen.min(first_seen);
            if last_seen >= sum.last_seen {
                (sum.row, sum.last_seen) = (row, last_seen);
            }
        }
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|sum| (std::cmp::Reverse(sum.count), sum.row.code, sum.row.hostgroup));
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
    let row = |sum: &Error<'_>| {
        vec![
            sum.row.hostgroup.into(),
            json!(sum.row.endpoint),
            text(&sum.row.caller.username),
            json!(&*sum.row.caller.client_address),
            text(&sum.row.caller.schemaname),
            sum.row.code.into(),
            sum.count.into(),
            sum.first_seen.into(),
            sum.last_seen.into(),
            text(&sum.row.last_message),
        ]
    };
    let mut report = Report::new(&columns, sums.iter().map(row).collect());
    report.dropped = workers.iter().map(|worker| worker.dropped).sum();
    report
}

/// Connections and traffic by server. A server that is in several hostgroups has one row, for its connections serve
/// all of them.
fn pool(roles: &Roles, workers: &[WorkerReport]) -> Report {
    let mut sums: Vec<ServerRow> = Vec::new();
    for row in workers.iter().flat_map(|worker| &worker.servers) {
        match sums.iter_mut().find(|sum| sum.endpoint == row.endpoint) {
            None => sums.push(row.clone()),
            Some(sum) => {
                sum.used += row.used;
                sum.free += row.free;
                sum.opened += row.opened;
                sum.failed += row.failed;
                sum.open_max += row.open_max;
                sum.queries += row.queries;
                sum.bytes_sent += row.bytes_sent;
                sum.bytes_received += row.bytes_received;
                sum.latency.add(&row.latency);
            }
        }
    }
    sums.sort_by(|one, other| one.endpoint.cmp(&other.endpoint));
    let columns = [
        "server",
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
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (rule_id, hits) in workers.iter().flat_map(|worker| &worker.rules) {
        *sums.entry(*rule_id).or_default() += hits;
    }
    let row = |(rule_id, hits): (u32, u64)| vec![rule_id.into(), hits.into()];
    Report::new(&["rule_id", "hits"], sums.into_iter().map(row).collect())
}

fn servers(roles: &Roles) -> Report {
    let columns = ["hostgroup", "server", "role", "status", "weight", "max_connections", "reason"];
    let row = |place: &weir_topology::Place| {
        vec![
            place.hostgroup.into(),
            place.endpoint.to_string().into(),
            place.role.to_string().into(),
            place.status.word().into(),
            place.weight.into(),
            place.max_connections.into(),
            place.reason.to_string().into(),
        ]
    };
    Report::new(&columns, roles.places.iter().map(row).collect())
}
