//! Compares the positions of two servers by MariaDB's global transaction ids (knowledge base, "Global Transaction ID"):
//! `DOMAIN-SERVER-NUMBER`, with commas between them. Numbers of a domain only grow. `gtid_binlog_state` has the last one
//! of each server in each domain. MySQL's servers compare theirs themselves.
//!
//! Texts come from servers; those who ask for them limit their length.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Clone, Copy)]
struct Gtid {
    domain: u32,
    server: u32,
    number: u64,
}

/// Whether one position has all of another, of servers with the same history. What is not understood has nothing, and
/// nothing has it.
pub fn covers(one: &str, other: &str) -> bool {
    reaches(one, other, |gtid| gtid.domain)
}

/// Whether one server's history has all of another's: the numbers of each server, as two that were writable at a time
/// have given the same numbers to different transactions.
pub fn contains(one: &str, other: &str) -> bool {
    reaches(one, other, |gtid| (gtid.domain, gtid.server))
}

fn reaches<K: Hash + Eq>(one: &str, other: &str, key: impl Fn(Gtid) -> K) -> bool {
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
    let mut last: HashMap<K, u64> = HashMap::new();
    for gtid in one {
        let number = last.entry(key(gtid)).or_default();
        *number = gtid.number.max(*number);
    }
    other.into_iter().all(|gtid| last.get(&key(gtid)).is_some_and(|number| *number >= gtid.number))
}

fn parse(text: &str) -> Option<Vec<Gtid>> {
    let gtid = |text: &str| {
        let mut parts = text.split('-').map(number);
        let (domain, server, number) = (parts.next()??, parts.next()??, parts.next()??);
        let (domain, server) = (domain.try_into().ok()?, server.try_into().ok()?);
        parts.next().is_none().then_some(Gtid { domain, server, number })
    };
    text.split(',').map(gtid).collect()
}

/// Digits and nothing else: no sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
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
            ("0-1-18446744073709551615", "0-1-18446744073709551615", true),
            ("4294967296-1-1", "4294967296-1-1", false),
            ("0-1-+10", "0-1-1", false),
            ("0--1", "0--1", false),
            ("0-1-1,", "0-1-1", false),
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
