//! Checks that registers are linearizable: that one order of all operations, each between its begin and its end, explains
//! every answer. Each key by itself, for which that is the same question.

use std::collections::{BTreeMap, HashSet};

use super::anomaly::{AnomalyKind, Class, Findings};
use super::history::{History, Key, Op, Outcome, Transaction, UNWRITTEN, Value};

/// Steps of the search for one key; beyond them it is undecided.
pub const STEPS_MAX: usize = 2_000_000;

/// Judges a history of single operations, with so many steps for each key at most ([`STEPS_MAX`]).
pub fn check(history: &History, steps_max: usize) -> Findings {
    let transactions = history.transactions();
    let mut keys: BTreeMap<Key, Vec<Operation<'_>>> = BTreeMap::new();
    for transaction in &transactions {
        for (key, operation) in transaction.ops.iter().filter_map(|op| operation(transaction, op)) {
            keys.entry(key).or_default().push(operation);
        }
    }
    let mut findings = Findings::default();
    for (key, operations) in keys {
        match Search::new(&operations).run(steps_max) {
            Verdict::Linearizable => {}
            Verdict::Not(at) => {
                let stuck = operations.get(at).map(|operation| operation.transaction.id);
                let words = operations.get(at).map_or_else(String::new, |operation| {
                    format!("no order of the operations on {key} explains: {}", operation.transaction)
                });
                let around = around(&operations, at);
                let ids = stuck.into_iter().chain(around).collect();
                findings.add(Class::of(AnomalyKind::NotLinearizable), Some(key), ids, words);
            }
            Verdict::Undecided => findings.undecided.push(format!(
                "key {key} with {} operations: no answer after {steps_max} steps",
                operations.len()
            )),
        }
    }
    findings
}

#[derive(Debug)]
struct Operation<'a> {
    transaction: &'a Transaction,
    op: &'a Op,
}

/// What counts: everything that may have had an effect, and every answer.
fn operation<'a>(transaction: &'a Transaction, op: &'a Op) -> Option<(Key, Operation<'a>)> {
    let key = match (op, transaction.outcome) {
        (_, Outcome::Fail) | (Op::Read { found: None, .. }, _) => return None,
        (Op::Read { .. }, Outcome::Unknown) => return None,
        (Op::Read { key, .. } | Op::Write { key, .. } | Op::Cas { key, .. }, _) => *key,
        _ => return None,
    };
    Some((key, Operation { transaction, op }))
}

/// What the register holds after an operation; nothing if the answer can't be given in this state.
fn apply(state: Value, op: &Op) -> Option<Value> {
    match op {
        Op::Read { found, .. } => (*found == Some(state)).then_some(state),
        Op::Write { value, .. } => Some(*value),
        Op::Cas { from, to, found, .. } => match (*found, state == *from) {
            (Some(true) | None, true) => Some(*to),
            (Some(false) | None, false) => Some(state),
            _ => None,
        },
        _ => None,
    }
}

/// Others at the same time as the one that can't be explained, and the last writes before it.
fn around(operations: &[Operation<'_>], at: usize) -> Vec<usize> {
    const SHOWN: usize = 6;
    let Some(stuck) = operations.get(at) else { return Vec::new() };
    let mut others: Vec<&Operation<'_>> = operations
        .iter()
        .filter(|other| {
            !other.op.is_read()
                && other.transaction.id != stuck.transaction.id
                && other.transaction.invoked_ns <= stuck.transaction.completed_ns
        })
        .collect();
    others.sort_by_key(|other| other.transaction.invoked_ns);
    others.iter().rev().take(SHOWN).rev().map(|other| other.transaction.id).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Linearizable,
    /// The operation that could not be passed by the longest order.
    Not(usize),
    Undecided,
}

/// Begins and ends of operations in the order of the clock, as a list from which operations are taken and into which
/// they are put back. Place 0 is its head; an operation n begins at 2n + 1 and ends at 2n + 2.
struct Search<'a> {
    operations: &'a [Operation<'a>],
    next: Vec<usize>,
    before: Vec<usize>,
}

/// The end of the list.
const END: usize = usize::MAX;

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation<'a>]) -> Search<'a> {
        let mut places: Vec<(u64, bool, usize)> = Vec::new();
        for (n, operation) in operations.iter().enumerate() {
            places.push((operation.transaction.invoked_ns, false, 2 * n + 1));
            places.push((operation.transaction.completed_ns, true, 2 * n + 2));
        }
        places.sort_unstable();
        let mut search =
            Search { operations, next: vec![END; places.len() + 1], before: vec![0; places.len() + 1] };
        let mut last = 0;
        for (_, _, place) in places {
            (search.next[last], search.before[place]) = (place, last);
            last = place;
        }
        search
    }

    fn take(&mut self, place: usize) {
        for place in [place, place + 1] {
            let (before, next) = (self.before[place], self.next[place]);
            self.next[before] = next;
            if next != END {
                self.before[next] = before;
            }
        }
    }

    fn put_back(&mut self, place: usize) {
        for place in [place + 1, place] {
            let (before, next) = (self.before[place], self.next[place]);
            self.next[before] = place;
            if next != END {
                self.before[next] = place;
            }
        }
    }

    fn run(mut self, steps_max: usize) -> Verdict {
        let mut done = vec![0u64; self.operations.len().div_ceil(64)];
        let mut seen: HashSet<(Vec<u64>, Value)> = HashSet::new();
        let mut taken: Vec<(usize, Value)> = Vec::new();
        let (mut state, mut at, mut steps) = (UNWRITTEN, self.next[0], 0);
        let (mut longest, mut stuck) = (0, 0);
        while self.next[0] != END {
            steps += 1;
            if steps > steps_max {
                return Verdict::Undecided;
            }
            let number = (at - 1) / 2;
            let is_begin = at % 2 == 1;
            if is_begin {
                let after = self.operations.get(number).and_then(|o| apply(state, o.op));
                if let Some(after) = after {
                    done[number / 64] |= 1 << (number % 64);
                    if seen.insert((done.clone(), after)) {
                        taken.push((at, state));
                        self.take(at);
                        (state, at) = (after, self.next[0]);
                        continue;
                    }
                    done[number / 64] &= !(1 << (number % 64));
                }
                at = self.next[at];
                continue;
            }
            // An operation's end comes before it was taken: another order is needed.
            if taken.len() >= longest {
                (longest, stuck) = (taken.len(), number);
            }
            let Some((place, state_before)) = taken.pop() else { return Verdict::Not(stuck) };
            let number = (place - 1) / 2;
            done[number / 64] &= !(1 << (number % 64));
            self.put_back(place);
            (state, at) = (state_before, self.next[place]);
        }
        Verdict::Linearizable
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    fn write(value: Value) -> Vec<Op> {
        vec![Op::Write { key: 1, value }]
    }

    fn read(value: Value) -> Vec<Op> {
        vec![Op::Read { key: 1, found: Some(value) }]
    }

    fn cas(from: Value, to: Value, found: Option<bool>) -> Vec<Op> {
        vec![Op::Cas { key: 1, from, to, found }]
    }

    /// Operations of different processes: begin, end, answer.
    fn names(operations: &[(u64, u64, Kind, Vec<Op>)]) -> Vec<String> {
        let mut history = History::default();
        for (process, (from, to, kind, ops)) in (0..).zip(operations) {
            history.push(process, *from, *to, *kind, ops.clone());
        }
        check(&history, STEPS_MAX).names()
    }

    #[test]
    fn a_read_at_the_same_time_may_see_either_and_a_later_one_must_not_go_back() {
        // Figures of Herlihy, Wing, "Linearizability" (1990), with registers in place of queues.
        let good = [(0, 10, Kind::Ok, write(1)), (5, 15, Kind::Ok, read(0)), (6, 20, Kind::Ok, read(1))];
        assert!(names(&good).is_empty());
        let back = [(0, 30, Kind::Ok, write(1)), (5, 10, Kind::Ok, read(1)), (15, 20, Kind::Ok, read(0))];
        assert_eq!(names(&back), ["not-linearizable"]);
        let stale = [(0, 10, Kind::Ok, write(1)), (20, 30, Kind::Ok, read(0))];
        assert_eq!(names(&stale), ["not-linearizable"]);
    }

    #[test]
    fn compare_and_set_happens_once_and_its_refusal_says_something() {
        let twice = [(0, 10, Kind::Ok, cas(0, 1, Some(true))), (0, 10, Kind::Ok, cas(0, 2, Some(true)))];
        assert_eq!(names(&twice), ["not-linearizable"]);
        let refused = [(0, 10, Kind::Ok, cas(0, 1, Some(false)))];
        assert_eq!(names(&refused), ["not-linearizable"]);
        let good = [
            (0, 10, Kind::Ok, cas(0, 1, Some(true))),
            (0, 10, Kind::Ok, cas(0, 2, Some(false))),
            (11, 12, Kind::Ok, read(1)),
        ];
        assert!(names(&good).is_empty());
    }

    #[test]
    fn unknown_writes_may_happen_late_or_never_and_failed_ones_must_not() {
        let late = [(0, 10, Kind::Info, write(1)), (20, 30, Kind::Ok, read(0)), (40, 50, Kind::Ok, read(1))];
        assert!(names(&late).is_empty());
        assert!(names(&[(0, 10, Kind::Info, write(1)), (20, 30, Kind::Ok, read(0))]).is_empty());
        let failed = [(0, 10, Kind::Fail, write(1)), (20, 30, Kind::Ok, read(1))];
        assert_eq!(names(&failed), ["not-linearizable"]);
        let twice = [
            (0, 10, Kind::Info, write(1)),
            (12, 13, Kind::Ok, read(1)),
            (14, 15, Kind::Ok, write(2)),
            (16, 17, Kind::Ok, read(1)),
        ];
        assert_eq!(names(&twice), ["not-linearizable"]);
    }

    #[test]
    fn a_search_that_gives_up_says_so() {
        let mut history = History::default();
        // Nobody knows of any of them, and the read fits none.
        (0..40).for_each(|n| history.push(n, n, 100, Kind::Info, write(n + 1)));
        history.push(100, 200, 201, Kind::Ok, read(99));
        let findings = check(&history, 10_000);
        assert!(findings.names().is_empty() && findings.undecided.len() == 1, "{findings:?}");
        assert!(findings.undecided[0].contains("no answer after 10000 steps"));
    }
}
