//! Histories of toy databases: a serializable one never gives an anomaly, one with snapshots gives write skew alone, and
//! what is changed in a good history is found.

use std::collections::{BTreeMap, HashMap};

use weir_jepsen::checker::{AnomalyKind, Entry, Findings, History, Key, Kind, Op, Order, Value};
use weir_jepsen::checker::{bank, linearizable, list_append, rw_register, sessions, set};
use weir_seeds::SplitMix;

const SEEDS: u64 = 30;
const TRANSACTIONS: u64 = 300;
const PROCESSES: u64 = 6;
const KEYS: u64 = 4;
const TOTAL: i64 = 40;

/// How a toy keeps transactions apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toy {
    /// One after the other, each at a moment between its begin and its end.
    Serializable,
    /// Reads of a snapshot; of two that write the same row the first one wins.
    Snapshot,
    /// The same, and both win.
    LostUpdates,
}

#[derive(Clone, Default)]
struct State {
    lists: BTreeMap<Key, Vec<Value>>,
    registers: BTreeMap<Key, Value>,
    accounts: BTreeMap<Key, i64>,
    members: Vec<Value>,
}

/// What a transaction asks for.
type Ask = fn(&mut SplitMix, &mut Value, u64) -> Vec<Op>;

fn lists(random: &mut SplitMix, value: &mut Value, _: u64) -> Vec<Op> {
    (0..random.within(1..5))
        .map(|_| {
            let key = random.within(0..KEYS);
            *value += 1;
            match random.percent(50) {
                true => Op::Append { key, value: *value },
                false => Op::List { key, found: None },
            }
        })
        .collect()
}

fn registers(random: &mut SplitMix, value: &mut Value, _: u64) -> Vec<Op> {
    (0..random.within(1..4))
        .flat_map(|_| {
            let key = random.within(0..KEYS);
            *value += 1;
            match random.percent(60) {
                true => vec![Op::Read { key, found: None }, Op::Write { key, value: *value }],
                false => vec![Op::Read { key, found: None }],
            }
        })
        .collect()
}

fn single(random: &mut SplitMix, value: &mut Value, _: u64) -> Vec<Op> {
    let key = random.within(0..KEYS);
    *value += 1;
    vec![match random.within(0..3) {
        0 => Op::Read { key, found: None },
        1 => Op::Write { key, value: *value },
        _ => Op::Cas { key, from: value.saturating_sub(random.within(1..8)), to: *value, found: None },
    }]
}

fn money(random: &mut SplitMix, _: &mut Value, _: u64) -> Vec<Op> {
    let (from, to) = (random.within(0..KEYS), random.within(0..KEYS));
    vec![match random.percent(50) && from != to {
        true => Op::Transfer { from, to, amount: random.within(1..5) },
        false => Op::Balances { found: None },
    }]
}

fn members(random: &mut SplitMix, value: &mut Value, _: u64) -> Vec<Op> {
    *value += 1;
    vec![if random.percent(20) { Op::Members { found: None } } else { Op::Add { value: *value } }]
}

fn counters(random: &mut SplitMix, value: &mut Value, process: u64) -> Vec<Op> {
    *value += 1;
    vec![match random.percent(40) {
        true => Op::Write { key: process % PROCESSES, value: *value },
        false => Op::Read { key: random.within(0..PROCESSES), found: None },
    }]
}

impl State {
    fn new() -> State {
        let accounts = (0..KEYS).map(|key| (key, TOTAL / KEYS as i64)).collect();
        State { accounts, ..State::default() }
    }

    /// Does an operation in this state, and puts what it reads into it.
    fn apply(&mut self, op: &mut Op) {
        match op {
            Op::Append { key, value } => self.lists.entry(*key).or_default().push(*value),
            Op::List { key, found } => *found = Some(self.lists.get(key).cloned().unwrap_or_default()),
            Op::Write { key, value } => drop(self.registers.insert(*key, *value)),
            Op::Read { key, found } => *found = Some(self.registers.get(key).copied().unwrap_or(0)),
            Op::Cas { key, from, to, found } => {
                let is_so = self.registers.get(key).copied().unwrap_or(0) == *from;
                if is_so {
                    self.registers.insert(*key, *to);
                }
                *found = Some(is_so);
            }
            Op::Transfer { from, to, amount } => {
                let amount = *amount as i64;
                if self.accounts[from] >= amount {
                    self.accounts.entry(*from).and_modify(|balance| *balance -= amount);
                    self.accounts.entry(*to).and_modify(|balance| *balance += amount);
                }
            }
            Op::Balances { found } => *found = Some(self.accounts.values().copied().collect()),
            Op::Add { value } => self.members.push(*value),
            Op::Members { found } => *found = Some(self.members.clone()),
        }
    }
}

struct Open {
    process: u64,
    invoked: u64,
    ops: Vec<Op>,
    snapshot: State,
    version: u64,
}

/// Runs random transactions of some processes. Some fail without effect; of some nobody says whether they had one.
fn history(toy: Toy, ask: Ask, seed: u64) -> History {
    let mut random = SplitMix::new(seed);
    let (mut state, mut history, mut value) = (State::new(), History::default(), 0);
    let mut changed: HashMap<Key, u64> = HashMap::new();
    let mut open: Vec<Open> = Vec::new();
    let (mut clock, mut version, mut next_process) = (0, 0, PROCESSES);
    let mut idle: Vec<u64> = (0..PROCESSES).collect();
    let mut begun = 0;
    while begun < TRANSACTIONS || !open.is_empty() {
        clock += 1 + random.within(0..5);
        if begun < TRANSACTIONS && !idle.is_empty() && random.percent(55) {
            let process = idle.swap_remove(random.below(idle.len()));
            let ops = ask(&mut random, &mut value, process);
            open.push(Open { process, invoked: clock, ops, snapshot: state.clone(), version });
            begun += 1;
            continue;
        }
        if open.is_empty() {
            continue;
        }
        let one = open.swap_remove(random.below(open.len()));
        let Open { process, invoked, mut ops, mut snapshot, version: began } = one;
        let writes: Vec<Key> = ops.iter().filter_map(written).collect();
        let is_late = writes.iter().any(|key| changed.get(key).is_some_and(|at| *at > began));
        let fate = random.within(0..100);
        let (kind, happens) = match fate {
            0..5 => (Kind::Fail, false),
            5..10 => (Kind::Info, random.percent(50)),
            _ if toy == Toy::Snapshot && is_late => (Kind::Fail, false),
            _ => (Kind::Ok, true),
        };
        let happens = happens && !(toy == Toy::Snapshot && is_late);
        let asked = ops.clone();
        if happens {
            version += 1;
            match toy {
                Toy::Serializable => ops.iter_mut().for_each(|op| state.apply(op)),
                Toy::Snapshot | Toy::LostUpdates => {
                    for op in &mut ops {
                        snapshot.apply(op);
                        if !op.is_read() {
                            state.apply(&mut op.clone());
                        }
                    }
                }
            }
            changed.extend(writes.iter().map(|key| (*key, version)));
        }
        let entry = |kind, at_ns, ops| Entry { process, kind, at_ns, ops, error: None, is_final: false };
        history.entries.push(entry(Kind::Invoke, invoked, asked.clone()));
        clock += 1;
        let answer = if kind == Kind::Ok { ops } else { asked };
        history.entries.push(entry(kind, clock, answer));
        match kind {
            // Cut off: it goes on as somebody else.
            Kind::Info => {
                next_process += 1;
                idle.push(process % PROCESSES + PROCESSES * next_process);
            }
            _ => idle.push(process),
        }
    }
    let mut last = vec![Op::Balances { found: None }, Op::Members { found: None }];
    last.extend((0..KEYS.max(PROCESSES)).map(|key| Op::List { key, found: None }));
    last.extend((0..KEYS.max(PROCESSES)).map(|key| Op::Read { key, found: None }));
    last.iter_mut().for_each(|op| state.apply(op));
    history.push_final(last);
    history
}

fn written(op: &Op) -> Option<Key> {
    match op {
        Op::Append { key, .. } | Op::Write { key, .. } => Some(*key),
        _ => None,
    }
}

type Check = fn(&History) -> Findings;

const CHECKS: [(&str, Ask, Check); 6] = [
    ("lists", lists, |history| list_append::check(history, Order::RealTime)),
    ("registers", registers, |history| rw_register::check(history, Order::RealTime)),
    ("single", single, |history| linearizable::check(history, linearizable::STEPS_MAX)),
    ("money", money, |history| bank::check(history, TOTAL)),
    ("members", members, |history| set::check(history, Order::RealTime)),
    ("counters", counters, |history| sessions::check(history, Order::RealTime)),
];

#[test]
fn serializable_histories_have_no_anomaly() {
    for (name, ask, check) in CHECKS {
        for seed in 0..SEEDS {
            let findings = check(&history(Toy::Serializable, ask, seed));
            assert!(findings.counts.is_empty(), "{name}, seed {seed}: {:?}", findings.anomalies);
            assert!(findings.undecided.is_empty(), "{name}, seed {seed}: {:?}", findings.undecided);
        }
    }
}

#[test]
fn snapshots_have_write_skew_alone() {
    let mut skews = 0;
    for (name, ask, check) in &CHECKS[..2] {
        for seed in 0..SEEDS {
            let findings = check(&history(Toy::Snapshot, *ask, seed));
            let others: Vec<_> =
                findings.counts.keys().filter(|class| class.kind != AnomalyKind::G2Item).collect();
            assert!(others.is_empty(), "{name}, seed {seed}: {:?}", findings.anomalies);
            skews += usize::from(!findings.counts.is_empty());
        }
    }
    assert!(skews > 20, "only {skews} histories had write skew: the toy shows nothing");
}

#[test]
fn updates_that_are_lost_are_found() {
    for (name, ask, check) in &CHECKS[..2] {
        for seed in 0..SEEDS {
            let findings = check(&history(Toy::LostUpdates, *ask, seed));
            let has = |kind| findings.has(kind, Order::Data);
            // What a snapshot shows of its own append is not where it ends up in the list.
            assert!(
                has(AnomalyKind::LostUpdate) || has(AnomalyKind::GSingle),
                "{name}, seed {seed}: {:?}",
                findings.names()
            );
        }
    }
}

/// Changes one answer of a history; false if it has none that can be changed so.
type Mutation = fn(&mut History, &mut SplitMix) -> bool;

fn pick(history: &History, random: &mut SplitMix, fits: impl Fn(&Entry) -> bool) -> Option<usize> {
    let fitting: Vec<usize> = (0..history.entries.len()).filter(|at| fits(&history.entries[*at])).collect();
    (!fitting.is_empty()).then(|| fitting[random.below(fitting.len())])
}

fn list_of(op: &mut Op) -> Option<&mut Vec<Value>> {
    match op {
        Op::List { found: Some(list), .. } => Some(list),
        _ => None,
    }
}

fn has_list(entry: &Entry, len: usize) -> bool {
    entry.ops.iter().any(|op| matches!(op, Op::List { found: Some(list), .. } if list.len() >= len))
}

fn change(history: &mut History, random: &mut SplitMix, len: usize, how: fn(&mut Vec<Value>)) -> bool {
    let at = pick(history, random, |entry| entry.kind == Kind::Ok && !entry.is_final && has_list(entry, len));
    let Some(at) = at else { return false };
    let lists = history.entries[at].ops.iter_mut().filter_map(list_of);
    lists.filter(|list| list.len() >= len).take(1).for_each(how);
    true
}

const MUTATIONS: [(&str, Mutation); 7] = [
    ("a value in the middle is missing", |history, random| {
        change(history, random, 3, |list| {
            list.retain({
                let second = list[1];
                move |value| *value != second
            })
        })
    }),
    ("two values are the other way round", |history, random| {
        change(history, random, 3, |list| list.swap(0, 1))
    }),
    ("a value is there twice", |history, random| change(history, random, 2, |list| list.push(list[0]))),
    ("a value that nobody wrote", |history, random| change(history, random, 1, |list| list.push(999_999))),
    ("a read goes back by far", |history, random| change(history, random, 12, |list| list.truncate(1))),
    ("the last read misses a value", |history, _| {
        let Some(last) = history.entries.last_mut() else { return false };
        let lists = last.ops.iter_mut().filter_map(list_of);
        let changed = lists.filter(|list| list.len() > 2).take(1).map(|list| list.remove(1)).count();
        changed > 0
    }),
    ("a writer that was read is said to have failed", |history, random| {
        let read: std::collections::HashSet<Value> = history
            .entries
            .iter()
            .flat_map(|entry| entry.ops.iter())
            .filter_map(|op| match op {
                Op::List { found: Some(list), .. } => Some(list.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        let is_read = |op: &Op| matches!(op, Op::Append { value, .. } if read.contains(value));
        let at = pick(history, random, |entry| entry.kind == Kind::Ok && entry.ops.iter().any(is_read));
        at.map(|at| history.entries[at].kind = Kind::Fail).is_some()
    }),
];

#[test]
fn what_is_changed_in_a_good_history_is_found() {
    for (name, mutation) in MUTATIONS {
        let mut tried = 0;
        for seed in 0..SEEDS {
            let (mut history, mut random) = (history(Toy::Serializable, lists, seed), SplitMix::new(seed));
            if mutation(&mut history, &mut random) {
                tried += 1;
                let findings = list_append::check(&history, Order::RealTime);
                assert!(!findings.counts.is_empty(), "{name}, seed {seed}: nothing was found");
            }
        }
        assert!(tried > SEEDS / 2, "{name}: only {tried} histories");
    }
}

#[test]
fn a_register_that_goes_back_is_not_linearizable() {
    let (mut tried, mut caught) = (0, 0);
    for seed in 0..SEEDS {
        let mut history = history(Toy::Serializable, single, seed);
        let last = history.entries.iter().rposition(|entry| {
            entry.kind == Kind::Ok
                && !entry.is_final
                && matches!(entry.ops[..], [Op::Read { found: Some(1..), .. }])
        });
        let Some(Op::Read { found, .. }) = last.and_then(|at| history.entries[at].ops.first_mut()) else {
            continue;
        };
        // What no register has had since the first transactions.
        *found = Some(0);
        tried += 1;
        let findings = linearizable::check(&history, linearizable::STEPS_MAX);
        caught += u64::from(findings.has(AnomalyKind::NotLinearizable, Order::Data));
    }
    assert!(tried > SEEDS / 2 && caught == tried, "{caught} of {tried}");
}

/// 100,000 transactions of a server that is right, as many sessions would send them.
#[test]
fn a_long_history_takes_seconds() {
    let mut history = History::default();
    let (mut random, mut value) = (SplitMix::new(1), 0);
    let mut lists: HashMap<Key, Vec<Value>> = HashMap::new();
    for n in 0..100_000u64 {
        let ops = (0..3)
            .map(|_| {
                // Rows are left after some writes, as the workload does.
                let key = n / 40 + random.within(0..4);
                let list = lists.entry(key).or_default();
                value += 1;
                if random.percent(50) {
                    list.push(value);
                    Op::Append { key, value }
                } else {
                    Op::List { key, found: Some(list.clone()) }
                }
            })
            .collect();
        history.push(n % 24, n * 10, n * 10 + 200, Kind::Ok, ops);
    }
    // Sessions do one thing after the other.
    for (n, pair) in history.entries.chunks_mut(2).enumerate() {
        pair[1].at_ns = pair[0].at_ns + 1 + (n as u64 * 7) % 200;
    }
    let begun = std::time::Instant::now();
    let findings = list_append::check(&history, Order::RealTime);
    assert!(findings.counts.is_empty(), "{:?}", findings.anomalies);
    let took = begun.elapsed();
    assert!(took.as_secs() < 30, "{took:?}");
    println!("100,000 transactions in {took:?}");
}
