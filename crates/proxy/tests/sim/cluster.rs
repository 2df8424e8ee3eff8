//! Holds what all model servers have in common: the data (which writes have happened), and how far each server is.

use std::collections::{HashMap, HashSet};

use crate::token::Token;

/// A write, by its token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Write {
    /// Times that it ran.
    pub runs: u32,
    /// It has run in a transaction that was rolled back; it may have run again since.
    pub is_rolled_back: bool,
    /// Commit number; 0 while it is not committed.
    pub committed: u64,
    pub insert_id: u64,
}

/// One server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Writes may run here.
    pub may_write: bool,
    /// The last commit that is visible here.
    pub applied: u64,
    /// Statements are turned away before they do anything.
    pub is_out: bool,
    /// New connections are refused.
    pub is_down: bool,
    /// `SET innodb_lock_wait_timeout` is refused.
    pub refuses_lock_wait: bool,
    pub threads: u32,
}

/// Names a row of `weir.outcomes`.
pub(crate) type OutcomeKey = (u64, u64);

/// A change of such a row that is not committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutcomeChange {
    pub key: OutcomeKey,
    pub number: u64,
    /// How often it had been changed before.
    pub version: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
    pub writes: HashMap<(usize, usize), Write>,
    pub commits: u64,
    insert_ids: u64,
    /// Rows of `weir.outcomes`: what they hold, and how often they were changed.
    pub outcomes: HashMap<OutcomeKey, (u64, u64)>,
    /// Writes whose clients were told that they are rolled back.
    pub given_up: HashSet<(usize, usize)>,
    /// Transactions may run again on another server.
    pub replays: bool,
    /// What must not happen and did.
    pub faults: Vec<String>,
}

impl Cluster {
    pub(crate) fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    /// A write runs; returns its insert id. Where transactions may run again it may do so as long as it is not committed: the
    /// server on which it ran before may not know yet that its client is gone. Then it is given the same id, `forced`.
    pub(crate) fn write(&mut self, node: usize, token: &Token, forced: Option<u64>) -> u64 {
        if !self.nodes[node].may_write {
            self.fault(format!("a write ran on reader {node}: {token}"));
        }
        let insert_id = forced.unwrap_or(self.insert_ids + 1);
        self.insert_ids = self.insert_ids.max(insert_id);
        let replays = self.replays;
        let write = self.writes.entry(token.name()).or_default();
        write.runs += 1;
        write.insert_id = insert_id;
        if write.committed != 0 || (write.runs > 1 && !replays) {
            let runs = write.runs;
            self.fault(format!("a write ran {runs} times: {token}"));
        }
        insert_id
    }

    /// These writes are committed on `node`.
    pub(crate) fn commit(&mut self, node: usize, names: &[(usize, usize)]) {
        if names.is_empty() {
            return;
        }
        self.commits += 1;
        self.nodes[node].applied = self.commits;
        for name in names {
            let write = self.writes.entry(*name).or_default();
            if std::mem::replace(&mut write.committed, self.commits) != 0 {
                self.faults.push(format!("a write was committed twice: {name:?}"));
            }
            if self.given_up.contains(name) {
                self.faults
                    .push(format!("a write was committed that had been said to be rolled back: {name:?}"));
            }
        }
    }

    /// What a row is to hold according to `INSERT INTO weir.outcomes ...`, whose numbers are these.
    pub(crate) fn change_outcome(&self, numbers: &[u64]) -> Option<OutcomeChange> {
        let (&[owner, slot, number], update) = numbers.split_first_chunk::<3>()?;
        let (held, version) = self.outcomes.get(&(owner, slot)).copied().unwrap_or_default();
        let number = match update {
            [marker, _] if held == *marker => held,
            _ => number,
        };
        Some(OutcomeChange { key: (owner, slot), number, version })
    }

    /// False if another one was faster.
    pub(crate) fn commit_outcome(&mut self, change: OutcomeChange) -> bool {
        let row = self.outcomes.entry(change.key).or_default();
        if row.1 != change.version {
            return false;
        }
        *row = (change.number, row.1 + 1);
        true
    }

    pub(crate) fn roll_back(&mut self, names: &[(usize, usize)]) {
        for name in names {
            self.writes.entry(*name).or_default().is_rolled_back = true;
        }
    }
}
