//! Fills the tables of statements by digest.

use weir_proxy::stats::DigestSum;
use weir_store::Value;

use super::{bytes, hash, integer, text};

/// A row of `stats_mysql_query_digest`.
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

/// A row of `stats_weir_query_digest`.
pub(super) fn weir_row(sum: DigestSum<'_>) -> Vec<Value> {
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
