//! Checks registers that transactions read and write: a transaction that reads a version and writes the row says which
//! version follows which. Less is known than of lists: what nobody has read is in no order.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::graph::{Dependency, Graph};
use super::history::{History, Key, Op, Outcome, Transaction, UNWRITTEN, Value};
use super::versions::{Replacements, Version, Writers};

/// Judges a history. `order` is the latest order that the transactions' own is to agree with.
pub fn check(history: &History, order: Order) -> Findings {
    let transactions = history.transactions();
    let mut findings = Findings::default();
    let writers = Writers::of(&transactions, &mut findings);
    let seen: HashSet<Version> = transactions
        .iter()
        .filter(|t| t.outcome == Outcome::Ok)
        .flat_map(|t| t.ops.iter().filter_map(read_of))
        .collect();
    let happened = writers.happened(&transactions, &seen, &mut findings);
    let mut versions = Versions::default();
    let mut replacements = Replacements::default();
    let mut uses = Vec::new();
    for transaction in transactions.iter().filter(|t| happened.get(t.id) == Some(&true)) {
        for (key, used) in used(transaction, &mut findings) {
            versions.note(key, &used);
            if let (Some(read), Some(_)) = (used.read, used.last) {
                replacements.note((key, read), transaction.id);
            }
            if let Some(read) = used.read.filter(|read| *read != UNWRITTEN) {
                writers.judge(transaction, (key, read), true, &transactions, &mut findings);
            }
            uses.push((transaction.id, key, used));
        }
    }
    let mut graph = Graph::new(transactions.len());
    versions.connect(&uses, &writers, &mut graph);
    versions.report_cycles(&mut findings);
    replacements.report(&mut findings);
    if order >= Order::Session {
        graph.add_sessions(&transactions, &happened);
    }
    if order >= Order::RealTime {
        graph.add_real_time(&transactions, &happened);
    }
    graph.report(&transactions, order, &mut findings);
    findings
}

fn read_of(op: &Op) -> Option<Version> {
    match op {
        Op::Read { key, found: Some(value) } => Some((*key, *value)),
        _ => None,
    }
}

/// What a transaction does with a row, as others see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    /// What it reads of others' writes.
    read: Option<Value>,
    /// What it leaves.
    last: Option<Value>,
}

/// All of them; what contradicts itself is told.
fn used(transaction: &Transaction, findings: &mut Findings) -> BTreeMap<Key, Used> {
    let mut all: BTreeMap<Key, Used> = BTreeMap::new();
    for op in &transaction.ops {
        match op {
            Op::Write { key, value } => all.entry(*key).or_default().last = Some(*value),
            Op::Read { key, found: Some(found) } => {
                let used = all.entry(*key).or_default();
                match used.last.or(used.read) {
                    None => used.read = Some(*found),
                    Some(expected) if expected != *found => {
                        let words = format!("{key} is {found}, and {expected} for the transaction itself");
                        let class = Class::of(AnomalyKind::Internal);
                        findings.add(class, Some(*key), vec![transaction.id], words);
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }
    all
}

/// Which version follows which.
#[derive(Debug, Default)]
struct Versions {
    next: BTreeMap<Version, Vec<Value>>,
    has_before: HashSet<Version>,
    written: BTreeMap<Key, Vec<Value>>,
}

impl Versions {
    fn note(&mut self, key: Key, used: &Used) {
        let Some(last) = used.last else { return };
        self.written.entry(key).or_default().push(last);
        if let Some(read) = used.read
            && read != last
        {
            self.next.entry((key, read)).or_default().push(last);
            self.has_before.insert((key, last));
        }
    }

    /// Those that come right after; the first ones after the one that nobody has written.
    fn after(&self, (key, value): Version) -> Vec<Value> {
        let mut after = self.next.get(&(key, value)).cloned().unwrap_or_default();
        if value == UNWRITTEN {
            let written = self.written.get(&key).map_or(&[][..], Vec::as_slice);
            let firsts = written.iter().filter(|value| !self.has_before.contains(&(key, **value)));
            after.extend(firsts);
        }
        after
    }

    fn connect(&self, uses: &[(usize, Key, Used)], writers: &Writers, graph: &mut Graph) {
        let writer = |key, value| Some(writers.find((key, value))?.transaction);
        let mut known: HashMap<Version, Vec<Value>> = HashMap::new();
        for (transaction, key, used) in uses {
            let (id, key) = (*transaction, *key);
            if let Some(read) = used.read {
                if let Some(before) = writer(key, read) {
                    graph.add(before, id, Dependency::WriteRead(key));
                }
                let after = known.entry((key, read)).or_insert_with(|| self.after((key, read)));
                for value in after.iter() {
                    if let Some(after) = writer(key, *value) {
                        graph.add(id, after, Dependency::ReadWrite(key));
                    }
                }
            }
            if let Some(last) = used.last {
                let after = known.entry((key, last)).or_insert_with(|| self.after((key, last)));
                for value in after.iter() {
                    if let Some(after) = writer(key, *value) {
                        graph.add(id, after, Dependency::WriteWrite(key));
                    }
                }
            }
        }
    }

    /// A version that follows itself.
    fn report_cycles(&self, findings: &mut Findings) {
        // Versions without one before are taken away until none is left but those in and behind circles.
        let mut before: HashMap<Version, usize> = HashMap::new();
        for ((key, value), after) in &self.next {
            before.entry((*key, *value)).or_default();
            after.iter().for_each(|next| *before.entry((*key, *next)).or_default() += 1);
        }
        let free = before.iter().filter(|(_, count)| **count == 0);
        let mut open: Vec<Version> = free.map(|(version, _)| *version).collect();
        while let Some((key, value)) = open.pop() {
            before.remove(&(key, value));
            for next in self.next.get(&(key, value)).into_iter().flatten() {
                if let Some(count) = before.get_mut(&(key, *next)) {
                    *count -= 1;
                    if *count == 0 {
                        open.push((key, *next));
                    }
                }
            }
        }
        let keys: BTreeMap<Key, usize> = before.keys().fold(BTreeMap::new(), |mut keys, (key, _)| {
            *keys.entry(*key).or_default() += 1;
            keys
        });
        for (key, count) in keys {
            let words = format!("{count} versions of {key} are in or behind a circle");
            findings.add(Class::of(AnomalyKind::CyclicVersions), Some(key), Vec::new(), words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    fn write(key: Key, value: Value) -> Op {
        Op::Write { key, value }
    }

    fn read(key: Key, value: Value) -> Op {
        Op::Read { key, found: Some(value) }
    }

    fn names(transactions: &[(Kind, Vec<Op>)]) -> Vec<String> {
        let mut history = History::default();
        for (process, (kind, ops)) in (0..).zip(transactions) {
            history.push(process, process, 100 + process, *kind, ops.clone());
        }
        check(&history, Order::RealTime).names()
    }

    #[test]
    fn aborted_intermediate_and_circular_reads_are_found() {
        assert_eq!(names(&[(Kind::Fail, vec![write(1, 1)]), (Kind::Ok, vec![read(1, 1)])]), ["G1a"]);
        let intermediate = [(Kind::Ok, vec![write(1, 1), write(1, 2)]), (Kind::Ok, vec![read(1, 1)])];
        assert!(names(&intermediate).contains(&"G1b".to_owned()));
        let circular = [(Kind::Ok, vec![write(1, 1), read(2, 1)]), (Kind::Ok, vec![write(2, 1), read(1, 1)])];
        assert_eq!(names(&circular), ["G1c"]);
    }

    #[test]
    fn lost_updates_read_skew_and_write_skew_are_told_apart() {
        let lost = [(Kind::Ok, vec![read(1, 0), write(1, 1)]), (Kind::Ok, vec![read(1, 0), write(1, 2)])];
        assert!(names(&lost).contains(&"lost-update".to_owned()), "{:?}", names(&lost));
        let skew = [
            (Kind::Ok, vec![read(1, 0), read(2, 0), write(1, 1), write(2, 1)]),
            (Kind::Ok, vec![read(1, 0), read(2, 1)]),
        ];
        assert_eq!(names(&skew), ["G-single"]);
        let write_skew = [
            (Kind::Ok, vec![read(1, 0), read(2, 0), write(1, 1)]),
            (Kind::Ok, vec![read(1, 0), read(2, 0), write(2, 1)]),
        ];
        assert_eq!(names(&write_skew), ["G2-item"]);
    }

    #[test]
    fn writes_that_replace_each_other_in_a_circle_are_found() {
        let circle = [(Kind::Ok, vec![read(1, 2), write(1, 1)]), (Kind::Ok, vec![read(1, 1), write(1, 2)])];
        let found = names(&circle);
        assert!(
            found.contains(&"cyclic-versions".to_owned()) && found.contains(&"G0".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn internal_and_unwritten_are_found_and_order_is_right() {
        assert_eq!(names(&[(Kind::Ok, vec![write(1, 1), read(1, 0)])]), ["internal"]);
        assert_eq!(names(&[(Kind::Ok, vec![read(1, 7)])]), ["unwritten"]);
        let mut history = History::default();
        history.push(1, 0, 10, Kind::Ok, vec![read(1, 0), write(1, 1)]);
        history.push(2, 20, 30, Kind::Ok, vec![read(1, 0)]);
        assert_eq!(check(&history, Order::RealTime).names(), ["G-single-realtime"]);
        assert!(check(&history, Order::Session).names().is_empty());
    }

    #[test]
    fn good_histories_have_nothing_and_unknown_writes_are_resolved_by_reads() {
        let good = [
            (Kind::Ok, vec![read(1, 0), write(1, 1)]),
            (Kind::Info, vec![read(1, 1), write(1, 2)]),
            (Kind::Ok, vec![read(1, 2), write(1, 3)]),
            (Kind::Info, vec![write(1, 4)]),
        ];
        assert!(names(&good).is_empty());
    }
}
