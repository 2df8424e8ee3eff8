//! Asks the servers which statements they have executed.

use std::net::SocketAddrV4;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Connection;
use weir_lab::Stop;
use weir_testkit::{Account, Galera, Node};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// A node that does not answer within this time is shown as it is known.
const TIMEOUT: Duration = Duration::from_millis(400);
/// `wsrep_replicated` counts the write sets that the node's own clients committed. `Com_insert` would not do: it also
/// counts what the node applies for the others, so all nodes would show the same.
const STATUS_SQL: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_select', 'wsrep_replicated', \
                          'wsrep_local_state_comment')";

/// One node as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct ServerRow {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) address: SocketAddrV4,
    /// Galera's word for a node that answers ("Synced", "Donor/Desynced"), else "stopped" or "not answering".
    pub(crate) state: String,
    pub(crate) reads_per_s: f64,
    pub(crate) writes_per_s: f64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// Asks every node twice a second.
pub(crate) struct ServerWatch {
    rows: Mutex<Vec<ServerRow>>,
}

impl ServerWatch {
    pub(crate) fn new(cluster: &Galera) -> ServerWatch {
        let row = |node: &Node| ServerRow {
            index: node.index(),
            name: node.name(),
            address: node.addr(),
            state: String::new(),
            reads_per_s: 0.0,
            writes_per_s: 0.0,
            reads: 0,
            writes: 0,
        };
        ServerWatch { rows: Mutex::new(cluster.nodes().iter().map(row).collect()) }
    }

    /// Watches until `finished` is raised.
    pub(crate) fn run(&self, cluster: &Galera, finished: &Stop) {
        let mut probes: Vec<Probe> = cluster.nodes().iter().map(Probe::new).collect();
        while !finished.is_raised() {
            for (i, probe) in probes.iter_mut().enumerate() {
                let sample = probe.sample();
                if let Some(row) = self.lock().get_mut(i) {
                    sample.apply(row);
                }
            }
            thread::sleep(SAMPLE_INTERVAL);
        }
    }

    /// All nodes.
    pub(crate) fn rows(&self) -> Vec<ServerRow> {
        self.lock().clone()
    }

    /// The node that gets the writes now.
    pub(crate) fn writer(&self) -> usize {
        let rows = self.rows();
        let busiest = rows.iter().max_by(|a, b| a.writes_per_s.total_cmp(&b.writes_per_s));
        busiest.map_or(1, |row| row.index)
    }

    /// The last node that does not get the writes.
    pub(crate) fn reader(&self) -> usize {
        let writer = self.writer();
        self.rows().iter().rev().map(|row| row.index).find(|index| *index != writer).unwrap_or(1)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ServerRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection to one node, and the counters as last read from it.
struct Probe<'a> {
    node: &'a Node,
    connection: Option<Connection>,
    counters: Option<(Counters, Instant)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    reads: u64,
    writes: u64,
}

/// What one look at a node gave.
struct Sample {
    state: String,
    delta: Counters,
    elapsed: Duration,
}

impl Sample {
    fn apply(self, row: &mut ServerRow) {
        let per_s = |count: u64| {
            let seconds = self.elapsed.as_secs_f64();
            if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
        };
        row.reads_per_s = per_s(self.delta.reads);
        row.writes_per_s = per_s(self.delta.writes);
        row.reads += self.delta.reads;
        row.writes += self.delta.writes;
        row.state = self.state;
    }
}

impl<'a> Probe<'a> {
    fn new(node: &'a Node) -> Probe<'a> {
        Probe { node, connection: None, counters: None }
    }

    fn sample(&mut self) -> Sample {
        let nothing = |state: &str| Sample {
            state: state.to_owned(),
            delta: Counters::default(),
            elapsed: Duration::ZERO,
        };
        if !self.node.is_running() {
            self.forget();
            return nothing("stopped");
        }
        let Some((state, counters)) = self.ask() else {
            self.forget();
            return nothing("not answering");
        };
        let now = Instant::now();
        let before = self.counters.replace((counters, now));
        let Some((before, then)) = before else { return nothing(&state) };
        Sample { state, delta: since(counters, before), elapsed: now - then }
    }

    fn ask(&mut self) -> Option<(String, Counters)> {
        if self.connection.is_none() {
            let options = weir_lab::Account::from(Account::APP).at(self.node.addr());
            self.connection = Connection::connect(&options.timeouts(TIMEOUT, TIMEOUT)).ok();
        }
        let result = self.connection.as_mut()?.query(STATUS_SQL).ok()?;
        let (mut state, mut counters) = (String::new(), Counters::default());
        for (name, value) in result.pairs() {
            match name {
                "wsrep_local_state_comment" => state = value.to_owned(),
                "Com_select" => counters.reads = value.parse().ok()?,
                "wsrep_replicated" => counters.writes = value.parse().ok()?,
                _ => {}
            }
        }
        Some((state, counters))
    }

    /// A server that starts anew counts from zero.
    fn forget(&mut self) {
        self.connection = None;
        self.counters = None;
    }
}

fn since(now: Counters, before: Counters) -> Counters {
    let delta = |now: u64, before: u64| if now < before { now } else { now - before };
    Counters { reads: delta(now.reads, before.reads), writes: delta(now.writes, before.writes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_server_started_anew_count_from_zero() {
        let before = Counters { reads: 100, writes: 10 };
        let delta = since(Counters { reads: 103, writes: 4 }, before);
        assert_eq!(delta, Counters { reads: 3, writes: 4 });
    }
}
