//! Adds up the workers' parts of a report.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use weir_proxy::stats::{
    Caller, CommandRow, ErrorRow, ReadCounts, RuleTimes, ServerRow, Totals, WorkerReport,
};

use crate::stats_collector::clock;

/// Errors of one kind, of all workers together.
#[derive(Debug)]
pub struct ErrorSum<'a> {
    /// Of the worker that saw the last one.
    pub row: &'a ErrorRow,
    /// How many.
    pub count: u64,
    /// In seconds since 1970.
    pub first_seen_s: u64,
    /// In seconds since 1970.
    pub last_seen_s: u64,
}

/// In which way reads were fresh enough, by writer hostgroup.
pub fn read_sums(workers: &[WorkerReport]) -> BTreeMap<u32, ReadCounts> {
    let mut sums: BTreeMap<u32, ReadCounts> = BTreeMap::new();
    for (hostgroup, counts) in workers.iter().flat_map(|worker| &worker.reads) {
        sums.entry(*hostgroup).or_default().add(counts);
    }
    sums
}

/// The most frequent come first.
pub fn error_sums(workers: &[WorkerReport]) -> Vec<ErrorSum<'_>> {
    let clock = clock();
    let mut sums: HashMap<(u32, &str, &Caller, u16), ErrorSum<'_>> = HashMap::new();
    for row in workers.iter().flat_map(|worker| &worker.errors) {
        let (first_seen_s, last_seen_s) = (clock.unix_s(row.seen.0), clock.unix_s(row.seen.1));
        let key = (row.hostgroup, row.endpoint.as_str(), &*row.caller, row.code);
        let sum = sums.entry(key).or_insert(ErrorSum { row, count: 0, first_seen_s, last_seen_s });
        sum.count += row.count;
        sum.first_seen_s = sum.first_seen_s.min(first_seen_s);
        if last_seen_s >= sum.last_seen_s {
            (sum.row, sum.last_seen_s) = (row, last_seen_s);
        }
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|sum| (Reverse(sum.count), sum.row.code, sum.row.hostgroup));
    sums
}

/// What took longest in all comes first.
pub fn command_sums(workers: &[WorkerReport]) -> Vec<CommandRow> {
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
    sums.sort_by_key(|sum| Reverse(sum.sum_us));
    sums
}

/// `ShowWarnings` as `SHOW_WARNINGS`.
pub fn command_word(variant: &str) -> String {
    let mut word = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(c.to_ascii_uppercase());
    }
    word
}

/// By server, all hostgroups together; `hostgroup` means nothing in them.
pub fn server_sums(workers: &[WorkerReport]) -> Vec<ServerRow> {
    let mut sums: BTreeMap<&str, ServerRow> = BTreeMap::new();
    for worker in workers {
        let mut open_max: HashMap<&str, u64> = HashMap::new();
        for row in &worker.servers {
            let new = || ServerRow { endpoint: row.endpoint.clone(), ..ServerRow::default() };
            let sum = sums.entry(row.endpoint.as_str()).or_insert_with(new);
            add(sum, row);
            // All hostgroups have the same connections.
            let most = open_max.entry(row.endpoint.as_str()).or_default();
            *most = (*most).max(row.open_max);
        }
        for (endpoint, most) in open_max {
            if let Some(sum) = sums.get_mut(endpoint) {
                sum.open_max += most;
            }
        }
    }
    sums.into_values().collect()
}

/// By hostgroup and server.
pub fn pool_sums(workers: &[WorkerReport]) -> BTreeMap<(u32, String), ServerRow> {
    let mut sums: BTreeMap<(u32, String), ServerRow> = BTreeMap::new();
    for row in workers.iter().flat_map(|worker| &worker.servers) {
        let new =
            || ServerRow { endpoint: row.endpoint.clone(), hostgroup: row.hostgroup, ..ServerRow::default() };
        let sum = sums.entry((row.hostgroup, row.endpoint.clone())).or_insert_with(new);
        add(sum, row);
        sum.open_max += row.open_max;
    }
    sums
}

/// Everything but `open_max`, which is of all hostgroups.
fn add(sum: &mut ServerRow, row: &ServerRow) {
    sum.used += row.used;
    sum.free += row.free;
    sum.opened += row.opened;
    sum.failed += row.failed;
    sum.queries += row.queries;
    sum.gtid_queries += row.gtid_queries;
    sum.bytes_sent += row.bytes_sent;
    sum.bytes_received += row.bytes_received;
    sum.latency.add(&row.latency);
    sum.latency_sum_us = sum.latency_sum_us.saturating_add(row.latency_sum_us);
}

/// Hits by rule_id, since the rules were taken.
pub fn rule_sums(workers: &[WorkerReport]) -> BTreeMap<u32, u64> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (rule_id, hits) in workers.iter().flat_map(|worker| &worker.rules) {
        *sums.entry(*rule_id).or_default() += hits;
    }
    sums
}

/// How long statements took by the rule_id of the last rule that they matched, since the rules were taken.
pub fn rule_time_sums(workers: &[WorkerReport]) -> BTreeMap<u32, RuleTimes> {
    let mut sums: BTreeMap<u32, RuleTimes> = BTreeMap::new();
    for (rule_id, times) in workers.iter().flat_map(|worker| &worker.rule_times) {
        let sum = sums.entry(*rule_id).or_default();
        sum.sum_us = sum.sum_us.saturating_add(times.sum_us);
        sum.latency.add(&times.latency);
    }
    sums
}

/// What is counted in all.
pub fn total_sums(workers: &[WorkerReport]) -> Totals {
    let mut sum = Totals::default();
    for worker in workers {
        sum += &worker.totals;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(endpoint: &str, hostgroup: u32, open_max: u64, queries: u64) -> ServerRow {
        ServerRow { endpoint: endpoint.to_owned(), hostgroup, open_max, queries, ..ServerRow::default() }
    }

    fn worker(servers: Vec<ServerRow>) -> WorkerReport {
        WorkerReport { servers, ..WorkerReport::default() }
    }

    #[test]
    fn servers_by_themselves_and_by_hostgroup() {
        let workers = [
            worker(vec![row("db1:1", 100, 5, 7), row("db1:1", 101, 4, 1), row("db2:1", 101, 1, 2)]),
            worker(vec![row("db1:1", 101, 3, 10)]),
        ];
        let by_server = server_sums(&workers);
        let seen: Vec<_> =
            by_server.iter().map(|row| (row.endpoint.as_str(), row.open_max, row.queries)).collect();
        assert_eq!(seen, [("db1:1", 8, 18), ("db2:1", 1, 2)]);
        let by_group = pool_sums(&workers);
        let seen: Vec<_> = by_group
            .iter()
            .map(|((hostgroup, server), row)| ((*hostgroup, server.as_str()), row.open_max, row.queries))
            .collect();
        assert_eq!(seen, [((100, "db1:1"), 5, 7), ((101, "db1:1"), 7, 11), ((101, "db2:1"), 1, 2)]);
    }
}
