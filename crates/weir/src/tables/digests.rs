//! Statements by digest.

use weir_proxy::statistics::{DigestSum, DigestSums};
use weir_store::Value;

use super::{bytes, hash, integer, text};

/// `stats_mysql_query_digest`
pub(super) fn mysql(sums: &DigestSums) -> impl Iterator<Item = Vec<Value>> {
    sums.rows().map(mysql_row)
}

/// A row of it.
pub(super) fn mysql_row(sum: DigestSum<'_>) -> Vec<Value> {
    let mut row = who(&sum);
    row.extend([
        integer(sum.count),
        integer(sum.first_seen_s),
        integer(sum.last_seen_s),
        integer(sum.sum_us),
        integer(sum.min_us),
        integer(sum.max_us),
        integer(sum.rows_affected),
        integer(sum.rows_sent),
    ]);
    row
}

/// `stats_weir_query_digest`
pub(super) fn weir(sums: &DigestSums) -> impl Iterator<Item = Vec<Value>> {
    let row = |sum: DigestSum<'_>| {
        let mut row = who(&sum);
        row.extend([
            integer(sum.count),
            integer(sum.sum_us),
            integer(sum.quantile_us(0.5)),
            integer(sum.quantile_us(0.95)),
            integer(sum.quantile_us(0.99)),
            integer(sum.max_us),
        ]);
        row
    };
    sums.rows().map(row)
}

fn who(sum: &DigestSum<'_>) -> Vec<Value> {
    let mut row = Vec::with_capacity(14);
    row.extend([
        integer(sum.hostgroup),
        bytes(&sum.caller.schemaname),
        bytes(&sum.caller.username),
        text(&*sum.caller.client_address),
        hash(sum.digest),
        bytes(sum.text),
    ]);
    row
}
