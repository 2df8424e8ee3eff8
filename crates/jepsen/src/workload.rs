//! Makes up what sessions ask for.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use serde::Serialize;
use weir_jepsen::checker::{Findings, History, Key, Op, Order, Value, bank, linearizable, list_append};
use weir_jepsen::checker::{rw_register, sessions, set};
use weir_seeds::SplitMix;

/// Rows of a workload that are written at a time.
const ACTIVE: usize = 6;
/// Writes to one row; then it is left to its readers, and another one takes its place.
const WRITES_MAX: u64 = 24;
/// Operations of one transaction.
const OPS_MAX: u64 = 4;
/// Accounts of the bank, and what each of them has at first.
const ACCOUNTS: u64 = 8;
const BALANCE: i64 = 100;
/// A set with more members is read in the end only.
const SET_READ_MAX: u64 = 5000;

/// What sessions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Transactions that append to lists and read them.
    ListAppend,
    /// Transactions that read and write registers.
    RwRegister,
    /// Single reads, writes and compare-and-set of registers.
    Register,
    /// Transfers between accounts, and reads of all of them.
    Bank,
    /// Sessions that write their own counter and read others'.
    Session,
    /// Additions to a set.
    Set,
}

/// How a transaction is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Style {
    /// Without one: the statement is its own transaction.
    Autocommit,
    /// BEGIN and COMMIT.
    Begin,
    /// START TRANSACTION READ ONLY and COMMIT.
    ReadOnly,
}

impl Workload {
    /// Its table.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Workload::ListAppend => "list_append",
            Workload::RwRegister => "rw_register",
            Workload::Register => "register",
            Workload::Bank => "bank",
            Workload::Session => "counters",
            Workload::Set => "members",
        }
    }

    /// What makes its table, without rows.
    pub(crate) fn table_sql(self) -> String {
        let table = self.table();
        let columns = match self {
            Workload::ListAppend => "id BIGINT PRIMARY KEY, v TEXT NOT NULL",
            Workload::Set => "id BIGINT AUTO_INCREMENT PRIMARY KEY, v BIGINT NOT NULL, KEY (v)",
            _ => "id BIGINT PRIMARY KEY, v BIGINT NOT NULL",
        };
        format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({columns})")
    }

    /// The rows at first: how many, and what each of them has.
    pub(crate) fn rows(self, rotating: u64, sessions: u64) -> (u64, &'static str) {
        match self {
            Workload::ListAppend => (rotating, "''"),
            Workload::RwRegister | Workload::Register => (rotating, "0"),
            Workload::Bank => (ACCOUNTS, "100"),
            Workload::Session => (sessions, "0"),
            Workload::Set => (0, "0"),
        }
    }

    /// Judges its history.
    pub(crate) fn check(self, history: &History, order: Order) -> Findings {
        match self {
            Workload::ListAppend => list_append::check(history, order),
            Workload::RwRegister => rw_register::check(history, order),
            // At less than the order of the clock nobody promises it.
            Workload::Register if order < Order::RealTime => Findings::default(),
            Workload::Register => linearizable::check(history, linearizable::STEPS_MAX),
            Workload::Bank => bank::check(history, ACCOUNTS as i64 * BALANCE),
            Workload::Session => sessions::check(history, order),
            Workload::Set => set::check(history, order),
        }
    }
}

/// Rows that are in use, and values that were not.
#[derive(Debug)]
pub(crate) struct Supply {
    active: [AtomicU64; ACTIVE],
    writes: [AtomicU64; ACTIVE],
    next_key: AtomicU64,
    keys: u64,
    next_value: AtomicU64,
}

impl Supply {
    /// Of so many rows.
    pub(crate) fn new(keys: u64) -> Supply {
        Supply {
            active: std::array::from_fn(|slot| AtomicU64::new(slot as u64)),
            writes: std::array::from_fn(|_| AtomicU64::new(0)),
            next_key: AtomicU64::new(ACTIVE as u64),
            keys,
            next_value: AtomicU64::new(1),
        }
    }

    /// One that nobody else has.
    fn value(&self) -> Value {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// A row in use: the first one half of the time, the second one a quarter of it, and so on.
    fn slot(random: &mut SplitMix) -> usize {
        (random.number().trailing_ones() as usize).min(ACTIVE - 1)
    }

    fn key(&self, slot: usize) -> Key {
        self.active.get(slot).map_or(0, |key| key.load(Ordering::Relaxed))
    }

    /// The same for a write. Where there are no fresh rows left, the row stays.
    fn key_to_write(&self, slot: usize) -> Key {
        let key = self.key(slot);
        if let (Some(active), Some(writes)) = (self.active.get(slot), self.writes.get(slot))
            && writes.fetch_add(1, Ordering::Relaxed) + 1 == WRITES_MAX
        {
            let next = self.next_key.fetch_add(1, Ordering::Relaxed);
            if next < self.keys {
                active.store(next, Ordering::Relaxed);
                writes.store(0, Ordering::Relaxed);
            }
        }
        key
    }
}

/// What a session asks for, one transaction after the other.
#[derive(Debug)]
pub(crate) struct Generator<'a> {
    workload: Workload,
    supply: &'a Supply,
    random: SplitMix,
    /// Its own counter's row, and how many there are.
    number: u64,
    sessions: u64,
    only_begin: bool,
    counter: Value,
    has_written: bool,
    last_read: Option<(Key, Value)>,
}

impl<'a> Generator<'a> {
    /// Session `number` of so many.
    pub(crate) fn new(
        workload: Workload,
        supply: &'a Supply,
        seed: u64,
        number: u64,
        sessions: u64,
    ) -> Generator<'a> {
        let random = SplitMix::new(seed.wrapping_mul(1_000_003).wrapping_add(number + 1));
        let (counter, has_written, only_begin, last_read) = (0, false, false, None);
        Generator { workload, supply, random, number, sessions, only_begin, counter, has_written, last_read }
    }

    /// With BEGIN before every transaction: Weir sends all of it to the writer.
    pub(crate) fn only_begin(mut self, only_begin: bool) -> Generator<'a> {
        self.only_begin = only_begin;
        self
    }

    /// The next transaction.
    pub(crate) fn next(&mut self) -> (Style, Vec<Op>) {
        match self.workload {
            Workload::ListAppend => self.transaction(|generator, ops| {
                let slot = Supply::slot(&mut generator.random);
                ops.push(match generator.random.percent(50) {
                    true => Op::List { key: generator.supply.key(slot), found: None },
                    false => Op::Append {
                        key: generator.supply.key_to_write(slot),
                        value: generator.supply.value(),
                    },
                });
            }),
            Workload::RwRegister => self.transaction(|generator, ops| {
                let slot = Supply::slot(&mut generator.random);
                if generator.random.percent(45) {
                    ops.push(Op::Read { key: generator.supply.key(slot), found: None });
                    return;
                }
                let key = generator.supply.key_to_write(slot);
                // Which version a write follows is known of those that read before.
                if generator.random.percent(75) {
                    ops.push(Op::Read { key, found: None });
                }
                ops.push(Op::Write { key, value: generator.supply.value() });
            }),
            Workload::Register => (Style::Autocommit, vec![self.register()]),
            Workload::Bank => self.bank(),
            Workload::Session => (Style::Autocommit, vec![self.session()]),
            Workload::Set => (Style::Autocommit, vec![self.set()]),
        }
    }

    /// Remembers what was read.
    pub(crate) fn saw(&mut self, ops: &[Op]) {
        if let Some(Op::Read { key, found: Some(value) }) = ops.last() {
            self.last_read = Some((*key, *value));
        }
    }

    fn transaction(&mut self, mut op: impl FnMut(&mut Self, &mut Vec<Op>)) -> (Style, Vec<Op>) {
        let mut ops = Vec::new();
        for _ in 0..self.random.within(1..OPS_MAX + 1) {
            op(self, &mut ops);
        }
        let style = match (ops.iter().all(Op::is_read), ops.len()) {
            _ if self.only_begin => Style::Begin,
            (_, 1) if self.random.percent(60) => Style::Autocommit,
            (true, _) if self.random.percent(80) => Style::ReadOnly,
            _ => Style::Begin,
        };
        (style, ops)
    }

    fn register(&mut self) -> Op {
        let slot = Supply::slot(&mut self.random);
        let key = self.supply.key(slot);
        match (self.random.within(0..100), self.last_read) {
            (0..50, _) => Op::Read { key, found: None },
            (50..75, Some((read, from))) if read == key => {
                Op::Cas { key: self.supply.key_to_write(slot), from, to: self.supply.value(), found: None }
            }
            _ => Op::Write { key: self.supply.key_to_write(slot), value: self.supply.value() },
        }
    }

    fn bank(&mut self) -> (Style, Vec<Op>) {
        if self.random.percent(50) {
            let style =
                self.random.pick(&[Style::Autocommit, Style::ReadOnly, Style::ReadOnly, Style::Begin]);
            return (style, vec![Op::Balances { found: None }]);
        }
        let from = self.random.within(0..ACCOUNTS);
        let to = (from + self.random.within(1..ACCOUNTS)) % ACCOUNTS;
        (Style::Begin, vec![Op::Transfer { from, to, amount: self.random.within(1..20) }])
    }

    fn session(&mut self) -> Op {
        // Its own counter right after the write, before a replica may have it.
        let has_written = std::mem::take(&mut self.has_written);
        match self.random.within(0..100) {
            0..60 if has_written => Op::Read { key: self.number, found: None },
            0..35 => {
                self.counter += 1;
                self.has_written = true;
                Op::Write { key: self.number, value: self.counter }
            }
            35..50 => Op::Read { key: self.number, found: None },
            _ => Op::Read { key: self.random.within(0..self.sessions), found: None },
        }
    }

    fn set(&mut self) -> Op {
        let is_small = self.supply.next_value.load(Ordering::Relaxed) < SET_READ_MAX;
        match is_small && self.random.percent(4) {
            true => Op::Members { found: None },
            false => Op::Add { value: self.supply.value() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_what_a_session_asks_for() {
        for workload in Workload::value_variants() {
            let asked = |seed| {
                let supply = Supply::new(1000);
                let mut generator = Generator::new(*workload, &supply, seed, 3, 8);
                (0..200).map(|_| generator.next()).collect::<Vec<_>>()
            };
            assert_eq!(asked(1), asked(1));
            assert_ne!(asked(1), asked(2), "{workload:?}");
        }
    }

    #[test]
    fn values_are_written_once_and_rows_are_left_after_some_writes() {
        let supply = Supply::new(1000);
        let mut generator = Generator::new(Workload::ListAppend, &supply, 1, 0, 1);
        let mut values = std::collections::HashSet::new();
        let mut writes = std::collections::BTreeMap::new();
        for op in (0..2000).flat_map(|_| generator.next().1) {
            if let Op::Append { key, value } = op {
                assert!(values.insert(value));
                *writes.entry(key).or_insert(0) += 1;
            }
        }
        assert!(writes.len() > 50 && writes.values().all(|count| *count <= WRITES_MAX), "{writes:?}");
    }

    #[test]
    fn only_reads_are_sent_as_read_only() {
        let supply = Supply::new(1000);
        let mut generator = Generator::new(Workload::RwRegister, &supply, 1, 0, 1);
        let all: Vec<_> = (0..500).map(|_| generator.next()).collect();
        let read_only = all.iter().filter(|(style, _)| *style == Style::ReadOnly);
        assert!(
            read_only.clone().count() > 10
                && read_only.into_iter().all(|(_, ops)| ops.iter().all(Op::is_read))
        );
        let autocommit = all.iter().filter(|(style, _)| *style == Style::Autocommit);
        assert!(autocommit.into_iter().all(|(_, ops)| ops.len() == 1));
    }
}
