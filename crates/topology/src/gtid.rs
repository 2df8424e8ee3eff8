//! Reads global transaction ids, and holds sets of them: which transactions a server has executed.
//!
//! | family | an id | a set |
//! | --- | --- | --- |
//! | MySQL (manual, "GTID Format and Storage") | `UUID:NUMBER` | `UUID:1-5:7,UUID:1` |
//! | MariaDB (knowledge base, "Global Transaction ID") | `DOMAIN-SERVER-NUMBER` | the last id of each domain, with commas between them |
//!
//! Numbers of a MariaDB domain only grow, so that a set has all up to the last one. MySQL's ids with a tag (8.3 and later) are
//! none that can be asked for; in a set they are passed over.
//!
//! Texts come from clients, from servers and from whoever listens on a `gtid_port`.

use std::collections::BTreeMap;
use std::fmt;

/// A longer text is no id.
const GTID_BYTES_MAX: usize = 80;
/// Digits of a UUID without its hyphens.
const UUID_DIGITS: usize = 32;
/// Where its hyphens are.
const UUID_HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// MySQL gives no greater number (manual, "GTID Format and Storage"). No sum of two overflows.
const NUMBER_MAX: u64 = (i64::MAX - 1) as u64;
/// More intervals are not kept of any server. Usual ones have a handful.
pub const INTERVALS_MAX: usize = 16_384;

/// The server that has given an id its number (MySQL's `server_uuid`), or its group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; UUID_DIGITS / 2]);

/// The id of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gtid {
    /// MySQL's.
    Uuid {
        /// Who has given it.
        source: Uuid,
        /// From 1 on.
        number: u64,
    },
    /// MariaDB's.
    Domain {
        /// Its `gtid_domain_id`.
        domain: u32,
        /// The `server_id` of who has given it.
        server: u32,
        /// From 1 on.
        number: u64,
    },
}

/// Why something is not taken into a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GtidFault {
    /// It is no id, nor a set of them.
    #[error("it is no global transaction id, nor a set of them")]
    Malformed,
    /// The set would be too large.
    #[error("there are more than {INTERVALS_MAX} intervals in the set")]
    TooMany,
}

impl Uuid {
    /// Reads 32 hexadecimal digits, with their hyphens or without.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_hyphen = |at: &usize| text.get(*at) == Some(&b'-');
        let has_hyphens = text.len() == UUID_DIGITS + UUID_HYPHENS.len();
        if has_hyphens != (text.len() != UUID_DIGITS) || has_hyphens && !UUID_HYPHENS.iter().all(is_hyphen) {
            return None;
        }
        let mut bytes = [0; UUID_DIGITS / 2];
        let mut digits = text.iter().filter(|byte| !has_hyphens || **byte != b'-');
        for byte in &mut bytes {
            for _ in 0..2 {
                let digit = char::from(*digits.next()?).to_digit(16)?;
                *byte = *byte << 4 | u8::try_from(digit).ok()?;
            }
        }
        digits.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Gtid {
    /// Reads an id of either family; nothing may stand around it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > GTID_BYTES_MAX {
            return None;
        }
        if let Some(colon) = text.iter().position(|byte| *byte == b':') {
            let (source, number) = (&text[..colon], &text[colon + 1..]);
            return Some(Self::Uuid { source: Uuid::parse(source)?, number: number_of(number)? });
        }
        let mut parts = text.split(|byte| *byte == b'-');
        let (domain, server) = (parts.next().and_then(id_of)?, parts.next().and_then(id_of)?);
        let number = parts.next().and_then(number_of)?;
        parts.next().is_none().then_some(Self::Domain { domain, server, number })
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid { source, number } => write!(f, "{source}:{number}"),
            Self::Domain { domain, server, number } => write!(f, "{domain}-{server}-{number}"),
        }
    }
}

/// From 1 on; digits and nothing else.
fn number_of(digits: &[u8]) -> Option<u64> {
    digits_of(digits).filter(|number| (1..=NUMBER_MAX).contains(number))
}

fn id_of(digits: &[u8]) -> Option<u32> {
    digits_of(digits)?.try_into().ok()
}

fn digits_of(digits: &[u8]) -> Option<u64> {
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// `FROM-TO`, or one number.
pub(crate) fn interval_of(text: &[u8]) -> Option<(u64, u64)> {
    let mut ends = text.splitn(2, |byte| *byte == b'-');
    let from = ends.next().and_then(number_of)?;
    let to = ends.next().map_or(Some(from), number_of)?;
    (from <= to).then_some((from, to))
}

/// The transactions that a server has executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    /// The numbers of each source, in ascending order, from and to; neither do they touch.
    sources: BTreeMap<Uuid, Vec<(u64, u64)>>,
    /// MariaDB: the last id of each domain, with its server.
    domains: BTreeMap<u32, (u32, u64)>,
    /// How many intervals and domains there are.
    intervals: usize,
}

impl GtidSet {
    /// Reads a set, as `@@gtid_executed`, `@@gtid_current_pos` or a binlog reader gives it. Nothing is the empty set.
    ///
    /// # Errors
    /// See [`GtidFault`].
    pub fn parse(text: &[u8]) -> Result<Self, GtidFault> {
        let mut set = Self::default();
        for part in text.split(|byte| *byte == b',') {
            let part = part.trim_ascii();
            if part.is_empty() {
                continue;
            }
            if !part.contains(&b':') {
                match Gtid::parse(part) {
                    Some(Gtid::Domain { domain, server, number }) => {
                        set.insert_domain(domain, server, number)?;
                    }
                    _ => return Err(GtidFault::Malformed),
                }
                continue;
            }
            set.insert_source(part)?;
        }
        Ok(set)
    }

    /// `UUID:1-5:7:tag_1:1`
    fn insert_source(&mut self, part: &[u8]) -> Result<(), GtidFault> {
        let mut pieces = part.split(|byte| *byte == b':').map(<[u8]>::trim_ascii);
        let source = pieces.next().and_then(Uuid::parse).ok_or(GtidFault::Malformed)?;
        let mut is_tagged = false;
        for piece in pieces {
            match interval_of(piece) {
                Some((from, to)) if !is_tagged => {
                    self.insert(source, from, to)?;
                }
                Some(_) => {}
                None if is_tag(piece) => is_tagged = true,
                None => return Err(GtidFault::Malformed),
            }
        }
        Ok(())
    }

    /// Adds what a source has numbered so. Whether it was not all there before.
    ///
    /// # Errors
    /// See [`GtidFault`].
    pub fn insert(&mut self, source: Uuid, from: u64, to: u64) -> Result<bool, GtidFault> {
        if from == 0 || from > to || to > NUMBER_MAX {
            return Err(GtidFault::Malformed);
        }
        let is_full = self.intervals >= INTERVALS_MAX;
        if is_full && !self.sources.contains_key(&source) {
            return Err(GtidFault::TooMany);
        }
        let intervals = self.sources.entry(source).or_default();
        // Those that the new one touches become one with it.
        let begin = intervals.partition_point(|(_, last)| last + 1 < from);
        let end = intervals.partition_point(|(first, _)| *first <= to + 1);
        if let Some((first, last)) = intervals.get(begin)
            && *first <= from
            && to <= *last
        {
            return Ok(false);
        }
        if is_full && begin == end {
            return Err(GtidFault::TooMany);
        }
        let touched = intervals.get(begin..end).unwrap_or_default();
        let first = touched.first().map_or(from, |(first, _)| from.min(*first));
        let last = touched.last().map_or(to, |(_, last)| to.max(*last));
        self.intervals = self.intervals + 1 - touched.len();
        intervals.splice(begin..end, [(first, last)]);
        Ok(true)
    }

    fn insert_domain(&mut self, domain: u32, server: u32, number: u64) -> Result<(), GtidFault> {
        if self.intervals >= INTERVALS_MAX && !self.domains.contains_key(&domain) {
            return Err(GtidFault::TooMany);
        }
        let last = self.domains.entry(domain).or_insert_with(|| {
            self.intervals += 1;
            (server, 0)
        });
        if last.1 <= number {
            *last = (server, number);
        }
        Ok(())
    }

    /// Whether a transaction is in it.
    pub fn has(&self, gtid: &Gtid) -> bool {
        match gtid {
            Gtid::Uuid { source, number } => self.sources.get(source).is_some_and(|intervals| {
                let at = intervals.partition_point(|(_, last)| last < number);
                intervals.get(at).is_some_and(|(first, _)| first <= number)
            }),
            Gtid::Domain { domain, number, .. } => {
                self.domains.get(domain).is_some_and(|(_, last)| last >= number)
            }
        }
    }

    /// How many intervals it has.
    pub fn intervals(&self) -> usize {
        self.intervals
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.intervals == 0
    }
}

/// A tag of MySQL's: a letter or `_`, then letters, digits and `_`.
fn is_tag(piece: &[u8]) -> bool {
    piece.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && piece.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// As ProxySQL's `stats_mysql_gtid_executed` has it: every interval with its source, `UUID:1-5,UUID:7-7`. Servers read that,
/// too.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (source, intervals) in &self.sources {
            for (from, to) in intervals {
                write!(f, "{comma}{source}:{from}-{to}")?;
                comma = ",";
            }
        }
        for (domain, (server, number)) in &self.domains {
            write!(f, "{comma}{domain}-{server}-{number}")?;
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const TWO: &str = "4350f323-7565-4e59-8763-4b1b83a0ce0e";

    fn gtid(text: &str) -> Gtid {
        Gtid::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"))
    }

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    #[test]
    fn ids_of_both_families() {
        for text in [&format!("{ONE}:23"), "0-1-100", "4294967295-4294967295-1"] {
            assert_eq!(gtid(text).to_string(), *text);
        }
        assert_eq!(gtid(&format!("{}:5", ONE.replace('-', "").to_uppercase())), gtid(&format!("{ONE}:5")));
        for text in [
            "",
            ":",
            "a:1",
            "0-1",
            "0-1-1-1",
            "0-1-0",
            "4294967296-1-1",
            "0--1",
            "0-1-+1",
            &format!("{ONE}:"),
            &format!("{ONE}:0"),
            &format!("{ONE}:-1"),
            &format!("{ONE}:1-5"),
            &format!("{ONE}:1 "),
            &format!("{ONE}:tag:1"),
            &format!("{ONE}:9223372036854775807"),
            &format!("{ONE}:99999999999999999999"),
            &format!("{ONE}-:1"),
            &format!("{}:1", ONE.replacen('-', "0", 1)),
            &format!("{}:1", &ONE[1..]),
            &format!("{ONE}:{}", "0".repeat(80)),
        ] {
            assert_eq!(Gtid::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_in_a_set() {
        let executed = set(&format!("{ONE}:1-5:7:9-10,\n{TWO}:3, {TWO}:tag_1:1-9"));
        assert_eq!(
            executed.to_string(),
            format!("{ONE}:1-5,{ONE}:7-7,{ONE}:9-10,{TWO}:3-3"),
            "tagged ones are left out"
        );
        for (source, number, is_in) in [
            (ONE, 1, true),
            (ONE, 5, true),
            (ONE, 6, false),
            (ONE, 7, true),
            (ONE, 11, false),
            (TWO, 9, false),
        ] {
            assert_eq!(executed.has(&gtid(&format!("{source}:{number}"))), is_in, "{source}:{number}");
        }
        assert!(!executed.has(&gtid("0-1-1")));
        let position = set("0-2-10,1-1-1,0-1-7");
        assert_eq!(position.to_string(), "0-2-10,1-1-1");
        assert!(position.has(&gtid("0-1-9")) && position.has(&gtid("1-7-1")));
        assert!(!position.has(&gtid("0-2-11")) && !position.has(&gtid("2-1-1")));
        assert!(set("").is_empty() && set(" \n,").is_empty());
    }

    #[test]
    fn what_is_no_set() {
        for text in ["x", "0-1", &format!("{ONE}:5-1"), &format!("{ONE}:0-1"), &format!("{ONE}:1-2-3"), "a:1"]
        {
            assert_eq!(GtidSet::parse(text.as_bytes()), Err(GtidFault::Malformed), "{text:?}");
        }
    }

    #[test]
    fn a_set_has_a_limit() {
        let many: Vec<String> = (0..=INTERVALS_MAX).map(|at| format!("{}", 2 * at + 1)).collect();
        let text = format!("{ONE}:{}", many.join(":"));
        assert_eq!(GtidSet::parse(text.as_bytes()), Err(GtidFault::TooMany));
        let mut full = set(&format!("{ONE}:{}", many[1..].join(":")));
        assert_eq!(full.intervals(), INTERVALS_MAX);
        let [one, two] = [ONE, TWO].map(|uuid| Uuid::parse(uuid.as_bytes()).unwrap());
        assert_eq!(full.insert(two, 1, 1), Err(GtidFault::TooMany));
        assert_eq!(full.insert(one, 1, 1), Err(GtidFault::TooMany));
        assert_eq!(full.insert(one, 4, 4), Ok(true), "between two: there is one less");
        assert_eq!(full.insert(one, 1, 1), Ok(true));
    }

    proptest! {
        #[test]
        fn a_set_has_what_was_put_in(
            ranges in prop::collection::vec((1_u64..60, 0_u64..6, any::<bool>()), 0..40),
        ) {
            let sources = [ONE, TWO].map(|uuid| Uuid::parse(uuid.as_bytes()).unwrap());
            let mut set = GtidSet::default();
            let mut known = std::collections::BTreeSet::new();
            for (from, more, is_two) in ranges {
                let source = usize::from(is_two);
                let before = known.len();
                known.extend((from..=from + more).map(|number| (source, number)));
                prop_assert_eq!(set.insert(sources[source], from, from + more), Ok(known.len() > before));
            }
            for (at, source) in sources.into_iter().enumerate() {
                for number in 1..70 {
                    prop_assert_eq!(set.has(&Gtid::Uuid { source, number }), known.contains(&(at, number)));
                }
            }
            let starts = known.iter().filter(|(at, number)| !known.contains(&(*at, number - 1)));
            prop_assert_eq!(set.intervals(), starts.count());
            prop_assert_eq!(GtidSet::parse(set.to_string().as_bytes()), Ok(set));
        }
    }
}
