//! Fills the tables of small counters: statements by kind, rules, users.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use weir_proxy::snapshot::Users;
use weir_proxy::stats::{CommandRow, WorkerReport};

use super::{Rows, integer, text};
use crate::worker_sums::{command_sums, command_word, rule_sums};

/// Bounds of the columns `cnt_100us` to `cnt_10s`, in microseconds.
const BOUNDS_US: [u64; 11] =
    [100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000];

/// `stats_mysql_commands_counters`: kinds that ProxySQL has the same word for stand under that word.
pub(super) fn commands(workers: &[WorkerReport]) -> Rows {
    let mut sums: BTreeMap<String, CommandRow> = BTreeMap::new();
    for row in command_sums(workers) {
        let word = proxysql_word(&command_word(&format!("{:?}", row.kind)));
        match sums.get_mut(&word) {
            None => {
                sums.insert(word, row);
            }
            Some(sum) => {
                sum.count += row.count;
                sum.sum_us = sum.sum_us.saturating_add(row.sum_us);
                sum.latency.add(&row.latency);
            }
        }
    }
    let row = |(word, sum): (String, CommandRow)| {
        let mut row = vec![text(word), integer(sum.sum_us), integer(sum.count)];
        let mut below = 0;
        for up_to in sum.latency.cumulative(&BOUNDS_US) {
            row.push(integer(up_to - below));
            below = up_to;
        }
        row.push(integer(sum.count.saturating_sub(below)));
        row
    };
    sums.into_iter().map(row).collect()
}

/// The word of ProxySQL's table for a kind of statement.
fn proxysql_word(word: &str) -> String {
    let same = match word {
        "BEGIN" | "START_TRANSACTION_READ_ONLY" => "START_TRANSACTION",
        "WITH" | "VALUES" | "TABLE" => "SELECT",
        "ROLLBACK_TO" => "ROLLBACK",
        "XA_START" | "XA_END" | "XA_PREPARE" | "XA_COMMIT" | "XA_ROLLBACK" | "XA_RECOVER" => "XA",
        "CREATE_TEMPORARY_TABLE" => "CREATE_TEMPORARY",
        "DROP_TEMPORARY_TABLE" => "DROP_TABLE",
        "TRUNCATE" => "TRUNCATE_TABLE",
        "SHOW_WARNINGS" | "SHOW_ERRORS" | "SHOW_COUNT_WARNINGS" | "SHOW_COUNT_ERRORS" => "SHOW",
        "SET_ROLE" | "SET_DEFAULT_ROLE" | "SET_PASSWORD" | "SET_RESOURCE_GROUP" | "SET_STATEMENT" => "SET",
        "LOAD_DATA" => "LOAD",
        "OTHER" | "EMPTY" => "UNKNOWN",
        other => other,
    };
    same.to_owned()
}

/// `stats_mysql_query_rules`
pub(super) fn query_rules(workers: &[WorkerReport]) -> Rows {
    rule_sums(workers).into_iter().map(|(rule_id, hits)| vec![integer(rule_id), integer(hits)]).collect()
}

/// `stats_mysql_users`: by name, each with its clients of now.
pub(super) fn users(users: &Users) -> Rows {
    // The accounts of a user at different hosts are one user's.
    let mut sums: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for account in users.iter() {
        let (clients, clients_max) = sums.entry(&account.user.username).or_default();
        *clients += account.clients.load(Ordering::Relaxed);
        *clients_max = account.clients_max().max(*clients_max);
    }
    let row = |(username, (clients, clients_max)): (&str, (u32, u32))| {
        vec![text(username), integer(clients), integer(clients_max)]
    };
    sums.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use weir_proxy::stats::Histogram;
    use weir_sql::Kind;
    use weir_store::Value;

    use super::*;

    fn command(kind: Kind, took_us: &[u64]) -> CommandRow {
        let mut latency = Histogram::default();
        took_us.iter().for_each(|took_us| latency.record(*took_us));
        CommandRow { kind, count: took_us.len() as u64, sum_us: took_us.iter().sum(), latency }
    }

    #[test]
    fn commands_stand_under_proxysqls_words_in_buckets() {
        let report = |commands| WorkerReport { commands, ..WorkerReport::default() };
        let workers = [
            report(vec![command(Kind::Begin, &[3]), command(Kind::Select, &[50, 70, 2_000_000])]),
            report(vec![command(Kind::StartTransactionReadOnly, &[4]), command(Kind::Select, &[20_000_000])]),
        ];
        let rows = commands(&workers);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][..3], [text("SELECT"), integer(22_000_120), integer(4)]);
        let counts: Vec<&Value> = rows[0][3..].iter().collect();
        let expected = [2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1].map(Value::Integer);
        assert_eq!(counts, expected.iter().collect::<Vec<_>>());
        assert_eq!(rows[1][..3], [text("START_TRANSACTION"), integer(7), integer(2)]);
    }
}
