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

/// Whether one position is behind another in a domain that both name.
pub fn is_behind(one: &str, other: &str) -> bool {
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
    let last = |domain: u32| one.iter().filter(|gtid| gtid.domain == domain).map(|gtid| gtid.number).max();
    other.iter().any(|gtid| last(gtid.domain).is_some_and(|number| number < gtid.number))
}

/// The part of a set of MySQL's ids (manual, "GTID Sets") that a server has given itself; without spaces.
pub fn given_by(set: &str, server_uuid: &str) -> String {
    let parts = set.split(',').map(str::trim);
    let own = parts.filter(|part| {
        part.split(':').next().is_some_and(|uuid| !uuid.is_empty() && uuid.eq_ignore_ascii_case(server_uuid))
    });
    own.collect::<Vec<_>>().join(",")
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

    #[test]
    fn who_has_been_set_back() {
        assert!(is_behind("0-1-10", "0-1-11") && is_behind("0-1-1,1-1-9", "0-2-2"));
        assert!(!is_behind("0-1-11", "0-1-11") && !is_behind("0-2-12", "0-1-11"));
        assert!(!is_behind("0-1-10", "1-1-11"), "it has that from somebody else");
        assert!(!is_behind("0-1-10", "") && !is_behind("", "0-1-10"));
        let set = "3e11-a:1-5:7,\n4350-b:1-9,3E11-A:tag:1";
        assert_eq!(given_by(set, "3e11-a"), "3e11-a:1-5:7,3E11-A:tag:1");
        assert_eq!((given_by(set, "5c").as_str(), given_by("", "").as_str()), ("", ""));
    }

    /// Number 11 was given twice.
    #[test]
    fn histories_that_have_parted() {
        assert!(covers("0-2-15", "0-1-11"));
        assert!(!contains("0-1-10,0-2-15", "0-1-11"));
        assert!(contains("0-1-10,0-2-15", "0-1-10"));
    }
}
