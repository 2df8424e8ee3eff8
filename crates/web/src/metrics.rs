//! Makes the metrics: ProxySQL's names where they mean the same, `weir_` for the rest. Each is explained in the guide.

#[cfg(test)]
mod guide;
mod totals;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use weir_http::{Family, Kind, Number};
use weir_proxy::stats::{CommandRow, DigestSum, Histogram, ReportPart, ServerRow, WorkerReport};
use weir_query_log::Counts;
use weir_statistics::worker_sums::{
    command_sums, command_word, error_sums, pool_sums, read_sums, rule_sums, rule_time_sums, total_sums,
};
use weir_topology::{Endpoint, Place, Roles, Status};

use super::{Limits, WebSource, buckets, process};

/// Digests with metrics of their own: those that took longest in all.
const DIGESTS_MAX: usize = 50;
/// So much of a digest's text is a label.
const DIGEST_CHARS_MAX: usize = 120;
/// Rules with metrics of their own: those that have matched most often.
const RULES_MAX: usize = 200;
/// Kinds of errors with metrics of their own: the most frequent.
const ERRORS_MAX: usize = 500;

/// The labels of errors.
const ERROR_LABELS: [&str; 4] = ["address", "code", "hostgroup", "port"];
/// The labels of digests.
const DIGEST_LABELS: [&str; 6] =
    ["digest", "hostgroup", "schemaname", "username", "client_address", "digest_text"];

/// Dealings with servers, by hostgroup and server.
type Pools = BTreeMap<(u32, String), ServerRow>;

/// All metrics of now.
pub(super) fn families(source: &WebSource) -> Vec<Family> {
    let collector = &source.statistics.collector;
    let roles = source.statistics.roles.latest();
    let totals = total_sums(&collector.report(ReportPart::Totals));
    let servers = collector.report(ReportPart::Servers);
    let mut pools = pool_sums(&servers);
    // What has not been used yet is shown with zeros: a rate needs a beginning.
    for place in &roles.places {
        pools.entry((place.hostgroup, place.endpoint.to_string())).or_default();
    }
    let is_paused = source.is_paused.load(Ordering::Relaxed);
    let mut families = about(source.limits(), collector.workers() as u64, is_paused, source.uptime_s());
    families.extend(totals::families(&totals));
    families.extend(logs(source.statistics.query_logs.counts()));
    families.extend(pool(&pools));
    families.extend(freshness(&servers));
    families.extend(places(&roles, &source.statistics.probes.latencies_us()));
    families.push(hostgroups(&pools));
    families.extend(clusters(&roles));
    families.extend(commands(&command_sums(&collector.report(ReportPart::Commands))));
    families.push(errors(&collector.report(ReportPart::Errors)));
    families.extend(rules(&collector.report(ReportPart::Rules)));
    families.extend(collector.digests(|sums| digests(&sums.hottest(0, DIGESTS_MAX), sums.len())));
    families.push(digests_dropped(collector.digests_dropped()));
    families.extend(process::families(source.uptime_s()));
    families
}

fn counter(name: &'static str, help: &'static str, number: impl Into<Number>) -> Family {
    Family::counter(name, help).with(&[], number)
}

fn gauge(name: &'static str, help: &'static str, number: impl Into<Number>) -> Family {
    Family::gauge(name, help).with(&[], number)
}

/// Names and values, in pairs.
fn labels<'v, const N: usize>(
    names: [&'static str; N],
    values: [&'v str; N],
) -> [(&'static str, &'v str); N] {
    std::array::from_fn(|at| (names[at], values[at]))
}

fn about(limits: Limits, workers: u64, is_paused: bool, uptime_s: f64) -> Vec<Family> {
    vec![
        Family::gauge("weir_info", "Weir itself.").with(&[("version", env!("CARGO_PKG_VERSION"))], 1),
        counter("proxysql_uptime_seconds", "Seconds since the start.", uptime_s.floor() as u64),
        gauge(
            "proxysql_mysql_listener_paused",
            "1 while no new clients are accepted, by PROXYSQL PAUSE.",
            u64::from(is_paused),
        ),
        gauge("proxysql_mysql_thread_workers", "Workers, mysql-threads.", workers),
        gauge(
            "proxysql_mysql_max_connections",
            "Maximum number of connected clients.",
            u64::from(limits.clients_max),
        ),
        gauge("proxysql_mysql_wait_timeout", "Maximum idle time of a client, in ms.", limits.wait_timeout_ms),
    ]
}

/// What was written, and what was left out.
fn logs(counts: [Counts; 3]) -> Vec<Family> {
    let mut lines = Family::counter("weir_log_lines", "Lines written to the events, slow and audit log.");
    let mut dropped =
        Family::counter("weir_log_lines_dropped", "Lines dropped because a buffer or the disk was full.");
    for (log, counts) in ["events", "slow", "audit"].into_iter().zip(counts) {
        lines.add(&[("log", log)], counts.written);
        dropped.add(&[("log", log)], counts.dropped);
    }
    vec![lines, dropped]
}

/// By writer hostgroup, and by server.
fn freshness(workers: &[WorkerReport]) -> Vec<Family> {
    let mut reads =
        Family::counter("weir_reads", "Reads that may leave the writer, by how they were fresh enough.");
    for (hostgroup, counts) in read_sums(workers) {
        let hostgroup = hostgroup.to_string();
        let ways = [
            ("at_once", counts.at_once),
            ("waited", counts.waited),
            ("on_writer", counts.on_writer),
            ("timed_out", counts.timed_out),
        ];
        for (way, count) in ways {
            reads.add(&[("hostgroup", hostgroup.as_str()), ("way", way)], count);
        }
    }
    let mut age = Family::gauge("weir_coverage_age_seconds", "How old what a server certainly has is.");
    let mut latency =
        Family::gauge("weir_causality_check_seconds", "How long a server's causality checks take.");
    let mut checks = Family::counter("weir_causality_checks", "Causality checks that have ended.");
    for row in workers.first().map(|worker| worker.coverage.as_slice()).unwrap_or_default() {
        let server = [("endpoint", row.endpoint.as_str())];
        if let Some(age_ns) = row.age_ns {
            age.add(&server, age_ns as f64 / 1e9);
        }
        latency.add(&server, row.latency_ns as f64 / 1e9);
        checks.add(&server, row.checks);
    }
    vec![reads, age, latency, checks]
}

/// By server and hostgroup.
fn pool(pools: &Pools) -> Vec<Family> {
    let mut bytes = Family::counter("proxysql_connpool_data_bytes", "Bytes of statements and results.");
    let help = "Connections opened, and attempts that failed.";
    let mut opened =
        Family { kind: Kind::NamesakeCounter, ..Family::counter("proxysql_connpool_conns", help) };
    let mut now = Family::gauge("proxysql_connpool_conns", "Connections now.");
    let mut queries = Family::counter("proxysql_connpool_conns_queries", "Statements sent.");
    for ((hostgroup, endpoint), row) in pools {
        let hostgroup = hostgroup.to_string();
        let place = [("endpoint", endpoint.as_str()), ("hostgroup", hostgroup.as_str())];
        let with = |label, value| [place[0], place[1], (label, value)];
        bytes.add(&with("traffic_flow", "sent"), row.bytes_sent);
        bytes.add(&with("traffic_flow", "recv"), row.bytes_received);
        opened.add(&with("status", "ok"), row.opened);
        opened.add(&with("status", "err"), row.failed);
        now.add(&with("status", "used"), row.used);
        now.add(&with("status", "free"), row.free);
        queries.add(&place, row.queries);
    }
    vec![bytes, opened, now, queries]
}

fn places(roles: &Roles, latencies_us: &BTreeMap<Endpoint, u64>) -> Vec<Family> {
    let mut status = Family::gauge(
        "proxysql_connpool_conns_status",
        "1 ONLINE, 2 SHUNNED, 3 OFFLINE_SOFT, 4 OFFLINE_HARD.",
    );
    let mut latency =
        Family::gauge("proxysql_connpool_conns_latency_us", "Duration of the monitor's last ping, in us.");
    let mut role = Family::gauge("weir_server_role", "1 for the role that the server has in the hostgroup.");
    let mut weight = Family::gauge("weir_server_weight", "Share of the hostgroup's statements.");
    for place in &roles.places {
        let (endpoint, hostgroup) = (place.endpoint.to_string(), place.hostgroup.to_string());
        let labels = [("endpoint", endpoint.as_str()), ("hostgroup", hostgroup.as_str())];
        status.add(&labels, status_number(place));
        if let Some(latency_us) = latencies_us.get(&place.endpoint) {
            latency.add(&labels, *latency_us);
        }
        weight.add(&labels, u64::from(place.weight));
        role.add(&[labels[0], labels[1], ("role", &place.role.to_string())], 1);
    }
    vec![status, latency, role, weight]
}

fn status_number(place: &Place) -> u64 {
    match place.status {
        Status::Online => 1,
        Status::Shunned => 2,
        Status::OfflineSoft => 3,
        Status::OfflineHard => 4,
    }
}

fn hostgroups(pools: &Pools) -> Family {
    let mut sums: BTreeMap<u32, (Histogram, u64)> = BTreeMap::new();
    for ((hostgroup, _), row) in pools {
        let sum = sums.entry(*hostgroup).or_default();
        sum.0.add(&row.latency);
        sum.1 += row.latency_sum_us;
    }
    let mut family = Family::histogram(
        "weir_hostgroup_statement_seconds",
        "From sending a statement to the end of its result.",
    );
    for (hostgroup, (latency, sum_us)) in sums {
        family.add(&[("hostgroup", &hostgroup.to_string())], buckets::seconds(&latency, sum_us));
    }
    family
}

fn clusters(roles: &Roles) -> Vec<Family> {
    let mut writers = Family::gauge("weir_cluster_writers", "Servers of the cluster that take writes.");
    let mut epoch =
        Family::gauge("weir_cluster_epoch", "The epoch of the writer, where several Weirs agree on it.");
    for group in &roles.groups {
        let hostgroup = group.writer_hostgroup.to_string();
        let labels = [("hostgroup", hostgroup.as_str())];
        writers.add(&labels, group.writers.len() as u64);
        if let Some(row) = group.leadership.as_ref().and_then(|leadership| leadership.row.as_ref()) {
            epoch.add(&labels, row.epoch);
        }
    }
    vec![writers, epoch]
}

fn commands(commands: &[CommandRow]) -> Vec<Family> {
    let mut count = Family::counter("weir_commands", "Statements by kind.");
    let mut time = Family::counter("weir_command_time_seconds", "Their total time.");
    let count_of = |word: &str| {
        let row = commands.iter().find(|row| command_word(&format!("{:?}", row.kind)) == word);
        row.map_or(0, |row| row.count)
    };
    for row in commands {
        let word = command_word(&format!("{:?}", row.kind));
        let labels = [("command", word.as_str())];
        count.add(&labels, row.count);
        time.add(&labels, row.sum_us as f64 / 1e6);
    }
    let commits = counter("proxysql_com_commit_cnt", "COMMIT.", count_of("COMMIT"));
    let rollbacks = counter("proxysql_com_rollback", "ROLLBACK.", count_of("ROLLBACK"));
    vec![count, time, commits, rollbacks]
}

/// Errors of servers, whoever's statements they were.
fn errors(workers: &[WorkerReport]) -> Family {
    let mut sums: BTreeMap<(u32, &str, u16), u64> = BTreeMap::new();
    for sum in error_sums(workers) {
        *sums.entry((sum.row.hostgroup, sum.row.endpoint.as_str(), sum.row.code)).or_default() += sum.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut family = Family::counter("mysql_error", "Errors returned by servers.");
    for ((hostgroup, endpoint, code), count) in sums.into_iter().take(ERRORS_MAX) {
        let (address, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
        let (hostgroup, code) = (hostgroup.to_string(), code.to_string());
        family.add(&labels(ERROR_LABELS, [address, &code, &hostgroup, port]), count);
    }
    family
}

fn rules(workers: &[WorkerReport]) -> Vec<Family> {
    let mut hits: Vec<(u32, u64)> = rule_sums(workers).into_iter().filter(|(_, hits)| *hits > 0).collect();
    hits.sort_by_key(|(rule_id, hits)| (std::cmp::Reverse(*hits), *rule_id));
    hits.truncate(RULES_MAX);
    let mut matched =
        Family::counter("weir_rule_hits", "Matches of a query rule since the rules were loaded.");
    for (rule_id, hits) in &hits {
        matched.add(&[("rule_id", &rule_id.to_string())], *hits);
    }
    let mut times: Vec<_> = rule_time_sums(workers).into_iter().collect();
    times.sort_by_key(|(rule_id, times)| (std::cmp::Reverse(times.latency.count()), *rule_id));
    let mut took = Family::histogram(
        "weir_rule_statement_seconds",
        "Statements by the last query rule that they matched, from the command to the end of the result.",
    );
    for (rule_id, times) in times.iter().take(RULES_MAX) {
        took.add(&[("rule_id", &rule_id.to_string())], buckets::seconds(&times.latency, times.sum_us));
    }
    vec![matched, took]
}

fn digests(rows: &[DigestSum<'_>], known: usize) -> Vec<Family> {
    let mut took = Family::histogram(
        "weir_digest_statement_seconds",
        "Statements with the greatest total time, from the command to the end of the result.",
    );
    for row in rows {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let digest_text: String = text(row.text).chars().take(DIGEST_CHARS_MAX).collect();
        let values = [
            &*format!("0x{:016X}", row.digest),
            &*row.hostgroup.to_string(),
            &*text(&row.caller.schemaname),
            &*text(&row.caller.username),
            &*row.caller.client_address,
            &*digest_text,
        ];
        took.add(&labels(DIGEST_LABELS, values), buckets::seconds(&row.latency(), row.sum_us));
    }
    let held = gauge("weir_digests", "Rows of the table of digests.", known as u64);
    vec![took, held]
}

fn digests_dropped(count: u64) -> Family {
    counter("weir_digests_dropped", "Statements for which the table of digests had no room.", count)
}
