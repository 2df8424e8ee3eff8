//! Holds what clients asked for and what they were told.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

/// A row.
pub type Key = u64;
/// What is written to a row; every value is written to a row at most once.
pub type Value = u64;
/// The value of a register that nobody has written yet.
pub const UNWRITTEN: Value = 0;

/// One operation of a transaction; what is read is `None` until it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A value is put behind all others of a list.
    Append {
        /// The list.
        key: Key,
        /// The value.
        value: Value,
    },
    /// A list is read.
    List {
        /// The list.
        key: Key,
        /// Its values.
        found: Option<Vec<Value>>,
    },
    /// A register gets a value.
    Write {
        /// The register.
        key: Key,
        /// The value.
        value: Value,
    },
    /// A register is read.
    Read {
        /// The register.
        key: Key,
        /// Its value.
        found: Option<Value>,
    },
    /// A register gets a value if it has another one.
    Cas {
        /// The register.
        key: Key,
        /// What it must have.
        from: Value,
        /// What it gets.
        to: Value,
        /// Whether it had that.
        found: Option<bool>,
    },
    /// Money moves, if there is enough.
    Transfer {
        /// The account that gives.
        from: Key,
        /// The account that takes.
        to: Key,
        /// How much.
        amount: u64,
    },
    /// All accounts are read.
    Balances {
        /// Their balances.
        found: Option<Vec<i64>>,
    },
    /// A set gets a member.
    Add {
        /// The member.
        value: Value,
    },
    /// A set is read.
    Members {
        /// Its members, in any order.
        found: Option<Vec<Value>>,
    },
}

impl Op {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Op::List { .. } | Op::Read { .. } | Op::Balances { .. } | Op::Members { .. })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Append { key, value } => write!(f, "append {value} to {key}"),
            Op::List { key, found: Some(list) } => write!(f, "list {key} = {list:?}"),
            Op::List { key, found: None } => write!(f, "list {key}"),
            Op::Write { key, value } => write!(f, "write {key} := {value}"),
            Op::Read { key, found: Some(value) } => write!(f, "read {key} = {value}"),
            Op::Read { key, found: None } => write!(f, "read {key}"),
            Op::Cas { key, from, to, found } => {
                let end = found.map_or("", |is_done| if is_done { " (done)" } else { " (not so)" });
                write!(f, "{key}: {from} -> {to}{end}")
            }
            Op::Transfer { from, to, amount } => write!(f, "{amount} from {from} to {to}"),
            Op::Balances { found: Some(balances) } => write!(f, "balances = {balances:?}"),
            Op::Balances { found: None } => f.write_str("balances"),
            Op::Add { value } => write!(f, "add {value}"),
            Op::Members { found: Some(members) } => write!(f, "{} members", members.len()),
            Op::Members { found: None } => f.write_str("members"),
        }
    }
}

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A process begins a transaction.
    Invoke,
    /// It has happened.
    Ok,
    /// It has certainly not happened.
    Fail,
    /// Nobody knows.
    Info,
}

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Who: a session on one connection. One that was cut off goes on under another number.
    pub process: u64,
    /// What.
    pub kind: Kind,
    /// When, nanoseconds.
    pub at_ns: u64,
    /// The operations, in their order.
    pub ops: Vec<Op>,
    /// What the client was told, of a failed or unknown transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A read after everything: all that was acknowledged must be in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has happened.
    Ok,
    /// It has not.
    Fail,
    /// Nobody knows: it may even happen later.
    Unknown,
}

/// A transaction: an invocation and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// Its place in the list of all.
    pub id: usize,
    /// Whose.
    pub process: u64,
    /// Begin, nanoseconds.
    pub invoked_ns: u64,
    /// Answer; the end of time if nobody knows.
    pub completed_ns: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// The operations; those of an unanswered one hold what was read so far.
    pub ops: Vec<Op>,
    /// What the client was told.
    pub error: Option<String>,
    /// As in [`Entry`].
    pub is_final: bool,
}

impl Transaction {
    /// Whether it was over before the other one began.
    pub fn precedes(&self, other: &Transaction) -> bool {
        self.completed_ns < other.invoked_ns
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops: Vec<String> = self.ops.iter().map(ToString::to_string).collect();
        write!(f, "T{} (process {}): {}", self.id, self.process, ops.join("; "))?;
        match self.outcome {
            Outcome::Ok => Ok(()),
            Outcome::Fail => write!(f, " FAILED"),
            Outcome::Unknown => write!(f, " UNKNOWN"),
        }
    }
}

/// Everything that clients did, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct History {
    /// The lines.
    pub entries: Vec<Entry>,
}

impl History {
    /// Invocations and answers put together, in the order of their begin. What has no answer is unknown; an answer without
    /// an invocation is left out.
    pub fn transactions(&self) -> Vec<Transaction> {
        let mut order: Vec<&Entry> = self.entries.iter().collect();
        // Of equal times the answer comes last: what may have been at the same time was.
        order.sort_by_key(|entry| (entry.at_ns, entry.kind != Kind::Invoke));
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut transactions: Vec<Transaction> = Vec::new();
        for entry in order {
            if entry.kind == Kind::Invoke {
                open.insert(entry.process, transactions.len());
                transactions.push(Transaction {
                    id: transactions.len(),
                    process: entry.process,
                    invoked_ns: entry.at_ns,
                    completed_ns: u64::MAX,
                    outcome: Outcome::Unknown,
                    ops: entry.ops.clone(),
                    error: None,
                    is_final: entry.is_final,
                });
                continue;
            }
            let Some(transaction) = open.remove(&entry.process).and_then(|id| transactions.get_mut(id))
            else {
                continue;
            };
            (transaction.ops, transaction.error) = (entry.ops.clone(), entry.error.clone());
            (transaction.outcome, transaction.completed_ns) = match entry.kind {
                Kind::Ok => (Outcome::Ok, entry.at_ns),
                Kind::Fail => (Outcome::Fail, entry.at_ns),
                Kind::Info | Kind::Invoke => (Outcome::Unknown, u64::MAX),
            };
        }
        transactions
    }

    /// Adds a transaction, for tests and toys.
    pub fn push(&mut self, process: u64, from_ns: u64, to_ns: u64, kind: Kind, ops: Vec<Op>) {
        let entry = |kind, at_ns, ops| Entry { process, kind, at_ns, ops, error: None, is_final: false };
        self.entries.push(entry(Kind::Invoke, from_ns, ops.clone()));
        self.entries.push(entry(kind, to_ns, ops));
    }

    /// Adds a read after everything.
    pub fn push_final(&mut self, ops: Vec<Op>) {
        let at_ns = self.entries.iter().map(|entry| entry.at_ns).max().unwrap_or(0) + 1;
        self.push(u64::MAX, at_ns, at_ns + 1, Kind::Ok, ops);
        self.entries.iter_mut().rev().take(2).for_each(|entry| entry.is_final = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invocations_find_their_answers_and_what_has_none_is_unknown() {
        let read = |found| vec![Op::Read { key: 1, found }];
        let mut history = History::default();
        history.push(7, 10, 20, Kind::Ok, read(Some(3)));
        history.push(8, 5, 30, Kind::Fail, read(None));
        history.push(9, 40, 50, Kind::Info, read(None));
        history.entries.push(Entry {
            process: 10,
            kind: Kind::Invoke,
            at_ns: 60,
            ops: read(None),
            error: None,
            is_final: false,
        });
        let all = history.transactions();
        let outcomes: Vec<_> = all.iter().map(|t| (t.process, t.outcome, t.completed_ns)).collect();
        assert_eq!(
            outcomes,
            [
                (8, Outcome::Fail, 30),
                (7, Outcome::Ok, 20),
                (9, Outcome::Unknown, u64::MAX),
                (10, Outcome::Unknown, u64::MAX)
            ]
        );
        assert!(all[1].precedes(&all[2]) && !all[0].precedes(&all[1]) && !all[2].precedes(&all[3]));
        assert_eq!(all[1].to_string(), "T1 (process 7): read 1 = 3");
    }
}
