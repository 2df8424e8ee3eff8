//! Holds what the checkers of transactions share: who wrote what, what has happened, who replaced what they had read.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{AnomalyKind, Class, Findings};
use super::history::{Key, Op, Outcome, Transaction, Value};

/// A value of a row.
pub(super) type Version = (Key, Value);

/// Who wrote a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writer {
    /// The transaction.
    pub(super) transaction: usize,
    /// Whether it is its last write to the row.
    pub(super) is_last: bool,
}

/// The writers of all versions.
#[derive(Debug, Default)]
pub(super) struct Writers(HashMap<Version, Writer>);

/// What an operation writes.
pub(super) fn written(op: &Op) -> Option<Version> {
    match op {
        Op::Append { key, value } | Op::Write { key, value } => Some((*key, *value)),
        _ => None,
    }
}

impl Writers {
    /// Those of all transactions, whatever became of them.
    pub(super) fn of(transactions: &[Transaction], findings: &mut Findings) -> Writers {
        let mut writers = HashMap::new();
        for transaction in transactions {
            let mut last: HashMap<Key, Value> = HashMap::new();
            for (key, value) in transaction.ops.iter().filter_map(written) {
                last.insert(key, value);
                let writer = Writer { transaction: transaction.id, is_last: false };
                if writers.insert((key, value), writer).is_some() {
                    findings.undecided.push(format!("{value} is written to {key} more than once"));
                }
            }
            for version in last {
                writers.entry(version).and_modify(|writer| writer.is_last = true);
            }
        }
        Writers(writers)
    }

    /// Who wrote it.
    pub(super) fn find(&self, version: Version) -> Option<Writer> {
        self.0.get(&version).copied()
    }

    /// Judges the read of a version: its writer must have happened, and must not have replaced it itself.
    pub(super) fn judge(
        &self,
        reader: &Transaction,
        version: Version,
        is_newest: bool,
        transactions: &[Transaction],
        findings: &mut Findings,
    ) {
        let (key, value) = version;
        let mut add = |kind, with: Vec<usize>, why: &str| {
            findings.add(Class::of(kind), Some(key), with, format!("{value} of {key}: {why}"));
        };
        let Some(writer) = self.find(version) else {
            add(AnomalyKind::Unwritten, vec![reader.id], "nobody has written it");
            return;
        };
        if writer.transaction == reader.id {
            return;
        }
        let with = vec![writer.transaction, reader.id];
        if transactions.get(writer.transaction).is_some_and(|t| t.outcome == Outcome::Fail) {
            add(AnomalyKind::G1a, with, "its writer has failed");
        } else if is_newest && !writer.is_last {
            add(AnomalyKind::G1b, with, "its writer has replaced it");
        }
    }

    /// Which transactions have happened: the acknowledged ones, and those of unknown outcome of which a version was
    /// seen.
    pub(super) fn happened(
        &self,
        transactions: &[Transaction],
        seen: &HashSet<Version>,
        findings: &mut Findings,
    ) -> Vec<bool> {
        let mut happened: Vec<bool> = transactions.iter().map(|t| t.outcome == Outcome::Ok).collect();
        for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Unknown) {
            let mut writes = transaction.ops.iter().filter_map(written).peekable();
            if writes.peek().is_none() {
                continue;
            }
            let is_seen = writes.any(|version| seen.contains(&version));
            match is_seen {
                true => findings.unknown_done += 1,
                false => findings.unknown_not_done += 1,
            }
            if let Some(happened) = happened.get_mut(transaction.id) {
                *happened = is_seen;
            }
        }
        happened
    }
}

/// Who read a version before replacing it.
#[derive(Debug, Default)]
pub(super) struct Replacements(BTreeMap<Version, Vec<usize>>);

impl Replacements {
    /// A transaction that has happened has done so.
    pub(super) fn note(&mut self, version: Version, transaction: usize) {
        self.0.entry(version).or_default().push(transaction);
    }

    /// Two of them lose an update.
    pub(super) fn report(self, findings: &mut Findings) {
        for ((key, value), transactions) in self.0 {
            if transactions.len() > 1 {
                let count = transactions.len();
                let words = format!("{count} transactions have read {value} of {key}, and replaced it");
                findings.add(Class::of(AnomalyKind::LostUpdate), Some(key), transactions, words);
            }
        }
    }
}
