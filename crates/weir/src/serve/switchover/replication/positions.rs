//! MariaDB's global transaction ids (knowledge base, "Global Transaction ID"): `DOMAIN-SERVER-NUMBER`, with commas between
//! them. Numbers of a domain only grow. `gtid_binlog_state` has the last one of each server in each domain.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Clone, Copy)]
struct Gtid {
    domain: u32,
    server: u32,
    number: u64,
}

/// Whether one position has all of another, of servers with the same history.
pub(super) fn covers(one: &str, other: &str) -> bool {
    reaches(one, other, |gtid| gtid.domain)
}

/// Whether one server's history has all of another's: the numbers of each server, as two that were writable at a time
/// have given the same numbers to different transactions.
pub(super) fn contains(one: &str, other: &str) -> bool {
    reaches(one, other, |gtid| (gtid.domain, gtid.server))
}

/// What is not understood is never reached.
fn reaches<K: Hash + Eq>(one: &str, other: &str, key: impl Fn(Gtid) -> K) -> bool {
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
    let mut last: HashMap<K, u64> = HashMap::new();
    for gtid in one {
        let number = last.entry(key(gtid)).or_default();
        *number = gtid.number.max(*number);
    }
    other.into_iter().all(|gtid| last.get(&key(gtid)).is_some_and(|number| *number >= gtid.number))
}

/// Callers limit the length.
fn parse(text: &str) -> Option<Vec<Gtid>> {
    let gtid = |text: &str| {
        let mut parts = text.split('-');
        let (domain, server) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Gtid { domain, server, number })
    };
    text.split(',').map(gtid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_replicas() {
        let table = [
            ("0-1-10", "0-1-10", true),
            ("0-1-10", "0-1-11", false),
            ("0-1-10,0-1-12", "0-1-11", true),
            ("0-2-12", "0-1-11", true),
            ("0-1-10", "0-1-10,1-1-1", false),
            ("1-1-1,0-1-10", "0-1-10,1-1-1", true),
            ("", "", false),
            ("0-1", "0-1-1", false),
            ("0-1-1-1", "0-1-1", false),
            ("0-1-99999999999999999999", "0-1-1", false),
        ];
        for (one, other, is_covered) in table {
            assert_eq!(covers(one, other), is_covered, "{one} {other}");
        }
    }

    /// Number 11 was given twice.
    #[test]
    fn histories_that_have_parted() {
        assert!(covers("0-2-15", "0-1-11"));
        assert!(!contains("0-1-10,0-2-15", "0-1-11"));
        assert!(contains("0-1-10,0-2-15", "0-1-10"));
    }
}
