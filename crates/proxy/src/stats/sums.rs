//! Adds up the workers' tables of digests. The sums live with whoever reports, not on a worker: a million digests are
//! held once, however many workers there are, and no worker's memory grows with them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::digests::{Counts, DigestTable};
use super::{Caller, Histogram};
use crate::keys::Nanos;

/// Two clocks at one moment: tells when something was that a worker has noted.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The workers' clock.
    pub now: Nanos,
}

impl Clock {
    /// A moment of the workers' clock in seconds since 1970.
    pub fn unix_s(&self, moment: Nanos) -> u64 {
        self.unix_s.saturating_sub(self.now.saturating_sub(moment) / 1_000_000_000)
    }
}

/// Executions by digest, caller and hostgroup, of all workers together.
#[derive(Debug)]
pub struct DigestSums {
    rows_max: usize,
    texts: HashMap<u64, Box<[u8]>>,
    callers: HashMap<Arc<Caller>, u32>,
    names: Vec<Arc<Caller>>,
    places: HashMap<Key, u32>,
    sums: Vec<Sum>,
    /// Executions that found no room.
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    digest: u64,
    hostgroup: u32,
    caller: u32,
}

/// A row, some 130 bytes with its histogram of one or two buckets.
#[derive(Debug)]
struct Sum {
    key: Key,
    count: u64,
    first_seen_s: u64,
    last_seen_s: u64,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
    rows_affected: u64,
    rows_sent: u64,
    /// Buckets of a [`Histogram`] that are not empty: few rows have more than a handful.
    latency: Vec<(u8, u32)>,
}

/// A row of the sums.
#[derive(Clone, Copy, Debug)]
pub struct DigestSum<'a> {
    /// Where they ran.
    pub hostgroup: u32,
    /// Whose they were.
    pub caller: &'a Caller,
    /// The digest's hash.
    pub digest: u64,
    /// The digest's text.
    pub text: &'a [u8],
    /// How many.
    pub count: u64,
    /// When the first ended, in seconds since 1970.
    pub first_seen_s: u64,
    /// When the last did.
    pub last_seen_s: u64,
    /// Their total time.
    pub sum_us: u64,
    /// The quickest.
    pub min_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// Rows that they changed.
    pub rows_affected: u64,
    /// Rows of their results.
    pub rows_sent: u64,
    latency: &'a [(u8, u32)],
}

impl DigestSum<'_> {
    /// How long they took.
    pub fn latency(&self) -> Histogram {
        Histogram::from_parts(self.latency)
    }

    /// How long the quickest `part` (0..=1) of them took at most, in microseconds.
    pub fn quantile_us(&self, part: f64) -> u64 {
        // The buckets know a duration less exactly than the two ends do.
        self.latency().quantile_us(part).clamp(self.min_us, self.max_us)
    }
}

impl DigestSums {
    /// Nothing yet; room for so many rows, and as many texts.
    pub fn new(rows_max: usize) -> Self {
        Self {
            rows_max,
            texts: HashMap::new(),
            callers: HashMap::new(),
            names: Vec::new(),
            places: HashMap::new(),
            sums: Vec::new(),
            dropped: 0,
        }
    }

    /// Another limit. Rows that are there stay.
    pub fn limit(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether nothing has been counted.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Whether no other row finds room.
    pub fn is_full(&self) -> bool {
        self.sums.len() >= self.rows_max
    }

    /// Executions that found no room, here or in a worker.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds what a worker has handed over.
    pub fn add(&mut self, table: DigestTable, clock: &Clock) {
        self.dropped += table.dropped;
        for (digest, text) in table.texts {
            if self.texts.len() < self.rows_max {
                self.texts.entry(digest).or_insert(text);
            }
        }
        for row in table.rows {
            let caller = self.caller(row.caller);
            let key = Key { digest: row.digest, hostgroup: row.hostgroup, caller };
            self.add_row(key, &row.counts, clock);
        }
    }

    fn caller(&mut self, caller: Arc<Caller>) -> u32 {
        if let Some(known) = self.callers.get(&caller) {
            return *known;
        }
        let id = self.names.len() as u32;
        self.names.push(caller.clone());
        self.callers.insert(caller, id);
        id
    }

    fn add_row(&mut self, key: Key, counts: &Counts, clock: &Clock) {
        let (first_seen_s, last_seen_s) = (clock.unix_s(counts.first_seen), clock.unix_s(counts.last_seen));
        let place = match self.places.get(&key) {
            Some(place) => *place as usize,
            None if self.sums.len() >= self.rows_max => {
                self.dropped += counts.count;
                return;
            }
            None => {
                self.places.insert(key, self.sums.len() as u32);
                self.sums.push(Sum::new(key, first_seen_s));
                self.sums.len() - 1
            }
        };
        let sum = &mut self.sums[place];
        sum.count += counts.count;
        sum.first_seen_s = sum.first_seen_s.min(first_seen_s);
        sum.last_seen_s = sum.last_seen_s.max(last_seen_s);
        sum.sum_us = sum.sum_us.saturating_add(counts.sum_us);
        sum.min_us = sum.min_us.min(counts.min_us);
        sum.max_us = sum.max_us.max(counts.max_us);
        sum.rows_affected = sum.rows_affected.saturating_add(counts.rows_affected);
        sum.rows_sent = sum.rows_sent.saturating_add(counts.rows_sent);
        for (bucket, count) in counts.latency.parts() {
            match sum.latency.iter_mut().find(|(known, _)| *known == bucket) {
                Some((_, known)) => *known = known.saturating_add(count),
                None => {
                    sum.latency.reserve_exact(1);
                    sum.latency.push((bucket, count));
                }
            }
        }
    }

    /// How much memory they take, about.
    pub fn memory_bytes(&self) -> u64 {
        /// What an allocator adds to each piece.
        const EXTRA: usize = 16;
        let texts: usize = self.texts.values().map(|text| text.len() + EXTRA).sum();
        let histograms: usize =
            self.sums.iter().map(|sum| sum.latency.capacity() * size_of::<(u8, u32)>() + EXTRA).sum();
        let tables = self.texts.capacity() * (size_of::<(u64, Box<[u8]>)>() + 1)
            + self.places.capacity() * (size_of::<(Key, u32)>() + 1)
            + self.sums.capacity() * size_of::<Sum>();
        (texts + histograms + tables) as u64
    }

    /// All rows, in the order in which they were first seen.
    pub fn rows(&self) -> impl Iterator<Item = DigestSum<'_>> {
        self.rows_from(0)
    }

    /// Those that are not among the first `skipped`. A row keeps its place until all begin again.
    pub fn rows_from(&self, skipped: usize) -> impl Iterator<Item = DigestSum<'_>> {
        self.sums.iter().skip(skipped).filter_map(|sum| self.row(sum))
    }

    /// The rows that took longest in all, the longest first; only those that ran since this second.
    pub fn hottest(&self, since_s: u64, rows_max: usize) -> Vec<DigestSum<'_>> {
        let order = |sum: &&Sum| (Reverse(sum.sum_us), sum.key.digest, sum.key.hostgroup, sum.key.caller);
        let mut hottest: Vec<&Sum> = Vec::new();
        for sum in self.sums.iter().filter(|sum| sum.last_seen_s >= since_s) {
            hottest.push(sum);
            // Never many more than are wanted: there may be a million.
            if hottest.len() > 2 * rows_max {
                hottest.select_nth_unstable_by_key(rows_max, order);
                hottest.truncate(rows_max);
            }
        }
        hottest.sort_unstable_by_key(order);
        hottest.into_iter().take(rows_max).filter_map(|sum| self.row(sum)).collect()
    }

    fn row<'a>(&'a self, sum: &'a Sum) -> Option<DigestSum<'a>> {
        Some(DigestSum {
            hostgroup: sum.key.hostgroup,
            caller: self.names.get(sum.key.caller as usize)?,
            digest: sum.key.digest,
            text: self.texts.get(&sum.key.digest).map(|text| &**text).unwrap_or_default(),
            count: sum.count,
            first_seen_s: sum.first_seen_s,
            last_seen_s: sum.last_seen_s,
            sum_us: sum.sum_us,
            min_us: sum.min_us,
            max_us: sum.max_us,
            rows_affected: sum.rows_affected,
            rows_sent: sum.rows_sent,
            latency: &sum.latency,
        })
    }

    /// The sums up to now; from now on they begin again. Statements that are `running` are counted when they end, and
    /// their texts may not be told once more: they stay known.
    pub fn begin_again(&mut self, running: impl IntoIterator<Item = u64>) -> Self {
        let mut next = Self::new(self.rows_max);
        for digest in running {
            if let Some(text) = self.texts.get(&digest) {
                next.texts.insert(digest, text.clone());
            }
        }
        std::mem::replace(self, next)
    }
}

impl Sum {
    fn new(key: Key, first_seen_s: u64) -> Self {
        Self {
            key,
            count: 0,
            first_seen_s,
            last_seen_s: first_seen_s,
            sum_us: 0,
            min_us: u64::MAX,
            max_us: 0,
            rows_affected: 0,
            rows_sent: 0,
            latency: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DigestKey, Execution, FullTables, Statistics};
    use super::*;
    use weir_sql::Digest;

    const CLOCK: Clock = Clock { unix_s: 1_000_000, now: 500_000_000_000 };

    fn worker() -> Statistics {
        Statistics::new(Arc::default())
    }

    fn run(worker: &mut Statistics, user: &str, digest: u64, took_us: u64, at: Nanos) {
        worker.note_text(&Digest { text: format!("text {digest}").as_bytes(), hash: digest });
        let caller = Caller { username: user.as_bytes().into(), ..Caller::default() };
        let key = DigestKey { hostgroup: 1, caller: worker.caller(caller), digest };
        let execution = Execution { took_ns: took_us * 1000, rows_affected: 2, rows_sent: 3 };
        worker.count(key, &execution, at);
    }

    #[test]
    fn workers_add_up() {
        let (mut one, mut other, mut sums) = (worker(), worker(), DigestSums::new(10));
        run(&mut one, "app", 7, 100, CLOCK.now - 20_000_000_000);
        run(&mut one, "app", 7, 300, CLOCK.now - 10_000_000_000);
        run(&mut other, "app", 7, 5000, CLOCK.now);
        run(&mut other, "root", 7, 1, CLOCK.now);
        sums.add(one.take_digests(), &CLOCK);
        sums.add(other.take_digests(), &CLOCK);
        run(&mut one, "app", 7, 50, CLOCK.now);
        sums.add(one.take_digests(), &CLOCK);
        let rows: Vec<DigestSum<'_>> = sums.rows().collect();
        assert_eq!(rows.len(), 2);
        let app = rows[0];
        assert_eq!((&*app.caller.username, app.text, app.count), (&b"app"[..], &b"text 7"[..], 4));
        assert_eq!((app.sum_us, app.min_us, app.max_us), (5450, 50, 5000));
        assert_eq!((app.first_seen_s, app.last_seen_s), (999_980, 1_000_000));
        assert_eq!((app.rows_affected, app.rows_sent), (8, 12));
        assert!((100..=125).contains(&app.quantile_us(0.5)) && app.quantile_us(1.0) == 5000);
        assert_eq!((rows[1].count, rows[1].max_us), (1, 1));
    }

    #[test]
    fn a_statement_that_runs_while_the_sums_begin_again_keeps_its_text() {
        let (mut one, mut sums) = (worker(), DigestSums::new(10));
        one.note_text(&Digest { text: b"SELECT SLEEP(?)", hash: 5 });
        run(&mut one, "app", 6, 1, 0);
        sums.add(one.take_digests(), &CLOCK);
        let before = sums.begin_again([5]);
        assert_eq!((before.len(), sums.len()), (1, 0));
        let caller = one.caller(Caller::default());
        one.count(DigestKey { hostgroup: 0, caller, digest: 5 }, &Execution::default(), 9);
        sums.add(one.take_digests(), &CLOCK);
        assert_eq!(sums.rows().map(|row| row.text).collect::<Vec<_>>(), [b"SELECT SLEEP(?)"]);
    }

    #[test]
    fn a_full_table_is_handed_over_and_nothing_is_lost() {
        let full = Arc::new(FullTables::default());
        let (mut one, mut sums) = (Statistics::new(full.clone()), DigestSums::new(1_000_000));
        for digest in 0..20_000 {
            run(&mut one, "app", digest, 1, 0);
            run(&mut one, "app", digest, 1, 0);
        }
        let waiting = full.take();
        assert_eq!(waiting.len(), 4);
        for table in waiting.into_iter().chain([one.take_digests()]) {
            sums.add(table, &CLOCK);
        }
        assert_eq!((sums.len(), sums.dropped()), (20_000, 0));
        assert!(sums.rows().all(|row| row.count == 2 && row.text.starts_with(b"text ")));
    }

    #[test]
    fn a_digest_takes_little_more_than_its_text() {
        let full = Arc::new(FullTables::default());
        let (mut one, mut sums) = (Statistics::new(full.clone()), DigestSums::new(1_000_000));
        for digest in 0..100_000_u64 {
            run(&mut one, "app", digest.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1, 0);
            if digest % 20_000 == 0 {
                full.take().into_iter().for_each(|table| sums.add(table, &CLOCK));
            }
        }
        full.take().into_iter().chain([one.take_digests()]).for_each(|table| sums.add(table, &CLOCK));
        assert_eq!((sums.len(), sums.dropped()), (100_000, 0));
        let each = sums.memory_bytes() / 100_000;
        assert!((150..=400).contains(&each), "{each} bytes each, with a text of 24");
    }

    #[test]
    fn the_hottest_of_many() {
        let (mut one, mut sums) = (worker(), DigestSums::new(2000));
        for digest in 0..1000 {
            // 7919 is prime: each time occurs once.
            let at = CLOCK.now - if digest % 2 == 0 { 60_000_000_000 } else { 0 };
            run(&mut one, "app", digest, 1 + digest * 7919 % 1000, at);
        }
        sums.add(one.take_digests(), &CLOCK);
        let all = |since_s, rows_max| {
            let mut rows: Vec<_> = sums.rows().filter(|row| row.last_seen_s >= since_s).collect();
            rows.sort_by_key(|row| Reverse(row.sum_us));
            rows.iter().take(rows_max).map(|row| row.digest).collect::<Vec<_>>()
        };
        for (since_s, rows_max) in [(0, 0), (0, 1), (0, 7), (0, 999), (0, 5000), (CLOCK.unix_s - 1, 10)] {
            let hottest = sums.hottest(since_s, rows_max);
            let hottest: Vec<_> = hottest.iter().map(|row| row.digest).collect();
            assert_eq!(hottest, all(since_s, rows_max), "{since_s} {rows_max}");
        }
        assert_eq!(sums.rows_from(990).count(), 10);
        assert_eq!(sums.rows_from(2000).count(), 0);
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let (mut one, mut sums) = (worker(), DigestSums::new(2));
        for digest in [1, 2, 3, 3, 1] {
            run(&mut one, "app", digest, 1, 0);
        }
        sums.add(one.take_digests(), &CLOCK);
        assert_eq!((sums.len(), sums.dropped(), sums.is_full()), (2, 2, true));
        // Tables that nobody takes are lost in the end, and told.
        let mut alone = worker();
        for digest in 0..200_000 {
            run(&mut alone, "app", digest, 1, 0);
        }
        let left = alone.take_digests();
        let kept: u64 = alone.full.take().iter().map(DigestTable::executions).sum();
        assert_eq!(kept + left.executions(), 200_000);
        assert!(left.dropped > 0);
    }
}
