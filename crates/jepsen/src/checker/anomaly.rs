//! Names the anomalies, as the field does.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::history::Key;

/// Anomalies of one class that are kept with their transactions; the others are counted.
const KEPT_MAX: usize = 8;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum AnomalyKind {
    /// A cycle of writes over writes.
    G0,
    /// A read of what a failed transaction has written.
    G1a,
    /// A read of what its writer has overwritten itself.
    G1b,
    /// A cycle of writes and reads of them.
    G1c,
    /// A cycle with one read that missed a write.
    GSingle,
    /// A cycle with several such reads, no two of them in a row.
    GNonadjacent,
    /// A cycle with two such reads in a row: write skew.
    G2Item,
    /// Two transactions have read the same version and both replaced it.
    LostUpdate,
    /// A transaction does not see its own writes, or sees others' in between.
    Internal,
    /// A value is there twice.
    Duplicate,
    /// Something that was acknowledged is not there in the end.
    Lost,
    /// Two reads show the values of a list in different orders.
    IncompatibleOrder,
    /// The versions of a register follow each other in a circle.
    CyclicVersions,
    /// A read of what nobody has written.
    Unwritten,
    /// No order of the operations explains the answers.
    NotLinearizable,
    /// Money was made or lost.
    WrongTotal,
    /// More was taken than there was.
    NegativeBalance,
    /// A session went back in time.
    NonMonotonic,
    /// A session did not see its own write.
    OwnWriteMissed,
    /// A read missed what was acknowledged before it began.
    Stale,
    /// Servers hold different data in the end.
    Diverged,
}

impl AnomalyKind {
    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::G0 => "G0",
            AnomalyKind::G1a => "G1a",
            AnomalyKind::G1b => "G1b",
            AnomalyKind::G1c => "G1c",
            AnomalyKind::GSingle => "G-single",
            AnomalyKind::GNonadjacent => "G-nonadjacent",
            AnomalyKind::G2Item => "G2-item",
            AnomalyKind::LostUpdate => "lost-update",
            AnomalyKind::Internal => "internal",
            AnomalyKind::Duplicate => "duplicate",
            AnomalyKind::Lost => "lost",
            AnomalyKind::IncompatibleOrder => "incompatible-order",
            AnomalyKind::CyclicVersions => "cyclic-versions",
            AnomalyKind::Unwritten => "unwritten",
            AnomalyKind::NotLinearizable => "not-linearizable",
            AnomalyKind::WrongTotal => "wrong-total",
            AnomalyKind::NegativeBalance => "negative-balance",
            AnomalyKind::NonMonotonic => "non-monotonic-read",
            AnomalyKind::OwnWriteMissed => "own-write-missed",
            AnomalyKind::Stale => "stale-read",
            AnomalyKind::Diverged => "diverged",
        }
    }
}

/// Which order of transactions an anomaly contradicts beside that of their reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// None: the reads and writes contradict each other.
    Data,
    /// That within a session.
    Session,
    /// That of a clock: one was over before the other began.
    RealTime,
}

/// A kind, and what it contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// What is wrong.
    pub kind: AnomalyKind,
    /// With which order.
    pub order: Order,
}

impl Class {
    /// One that needs no order.
    pub fn of(kind: AnomalyKind) -> Class {
        Class { kind, order: Order::Data }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self.order {
            Order::Data => self.kind.name().to_owned(),
            Order::Session => format!("{}-session", self.kind.name()),
            Order::RealTime => format!("{}-realtime", self.kind.name()),
        })
    }
}

impl Serialize for Class {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One of them, with what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What is wrong.
    pub class: Class,
    /// The row, if it is one.
    pub key: Option<Key>,
    /// In words.
    pub explanation: String,
    /// The transactions that show it, by their ids.
    pub transactions: Vec<usize>,
}

/// What a checker has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// How often each class was found.
    pub counts: BTreeMap<Class, usize>,
    /// The first ones of each class.
    pub anomalies: Vec<Anomaly>,
    /// What could not be decided, and why.
    pub undecided: Vec<String>,
    /// Transactions of unknown outcome that have happened, as reads show.
    pub unknown_done: usize,
    /// Those that have not, as far as reads show.
    pub unknown_not_done: usize,
}

impl Findings {
    /// Adds one.
    pub fn add(&mut self, class: Class, key: Option<Key>, transactions: Vec<usize>, explanation: String) {
        let count = self.counts.entry(class).or_default();
        *count += 1;
        if *count <= KEPT_MAX {
            self.anomalies.push(Anomaly { class, key, explanation, transactions });
        }
    }

    /// Those of both.
    pub fn merge(&mut self, other: Findings) {
        for (class, count) in other.counts {
            *self.counts.entry(class).or_default() += count;
        }
        self.anomalies.extend(other.anomalies);
        self.undecided.extend(other.undecided);
        self.unknown_done += other.unknown_done;
        self.unknown_not_done += other.unknown_not_done;
    }

    /// Whether this class was found.
    pub fn has(&self, kind: AnomalyKind, order: Order) -> bool {
        self.counts.contains_key(&Class { kind, order })
    }

    /// The names of the classes found, for tests and tables.
    pub fn names(&self) -> Vec<String> {
        self.counts.keys().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_a_class_are_kept_and_all_are_counted() {
        let mut findings = Findings::default();
        let class = Class { kind: AnomalyKind::GSingle, order: Order::RealTime };
        (0..20).for_each(|n| findings.add(class, Some(1), vec![n], String::new()));
        assert_eq!((findings.counts[&class], findings.anomalies.len()), (20, KEPT_MAX));
        assert_eq!(findings.names(), ["G-single-realtime"]);
        assert!(findings.has(AnomalyKind::GSingle, Order::RealTime));
        assert!(!findings.has(AnomalyKind::GSingle, Order::Data));
    }
}
