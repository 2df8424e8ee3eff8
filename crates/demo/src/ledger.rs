//! Records what became of every row, and checks at the end that the database agrees.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{Connection, Options};
use weir_testkit::{Account, Galera};

use crate::DemoError;

/// The table of the demo, in the schema `test`.
pub(crate) const TABLE: &str = "weir_demo";
/// The key is not unique on purpose: a row written twice must be found, not refused.
const DEFINITION: &str = "id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT NOT NULL, number BIGINT NOT NULL, \
                          KEY worker_number (worker, number)";
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the service may need until it answers for the first time.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The rows of one writing connection.
#[derive(Debug)]
pub(crate) struct Ledger {
    worker: u32,
    next: u64,
    acknowledged: Vec<u64>,
    /// Refused with an error that says so.
    refused: Vec<u64>,
    /// The answer was lost: there or not, both is right.
    in_doubt: Vec<u64>,
}

impl Ledger {
    pub(crate) fn new(worker: u32) -> Ledger {
        Ledger { worker, next: 1, acknowledged: Vec::new(), refused: Vec::new(), in_doubt: Vec::new() }
    }

    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    pub(crate) fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn acknowledged(&mut self, number: u64) {
        self.acknowledged.push(number);
    }

    pub(crate) fn failed(&mut self, number: u64, in_doubt: bool) {
        if in_doubt { self.in_doubt.push(number) } else { self.refused.push(number) }
    }
}

/// The result of the check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    acknowledged: usize,
    lost: usize,
    doubled: usize,
    refused: usize,
    refused_but_there: usize,
    in_doubt: usize,
    in_doubt_there: usize,
}

impl Verdict {
    fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.refused_but_there == 0
    }

    /// Compares one connection's ledger with how often the database has each of its numbers.
    fn judge(&mut self, ledger: &Ledger, found: &HashMap<u64, u64>) {
        let times = |number: &u64| found.get(number).copied().unwrap_or(0);
        let count = |numbers: &[u64], wanted: fn(u64) -> bool| {
            numbers.iter().filter(|number| wanted(times(number))).count()
        };
        self.acknowledged += ledger.acknowledged.len();
        self.lost += count(&ledger.acknowledged, |times| times == 0);
        self.doubled += found.values().filter(|times| **times > 1).count();
        self.refused += ledger.refused.len();
        self.refused_but_there += count(&ledger.refused, |times| times > 0);
        self.in_doubt += ledger.in_doubt.len();
        self.in_doubt_there += count(&ledger.in_doubt, |times| times > 0);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            write!(f, "checked: each of the {} acknowledged rows is there exactly once", self.acknowledged)?;
        } else {
            write!(
                f,
                "checked: of {} acknowledged rows {} are lost; {} rows are there twice; {} refused rows are there",
                self.acknowledged, self.lost, self.doubled, self.refused_but_there
            )?;
        }
        if self.refused > 0 {
            write!(
                f,
                "; {} rows were refused with an error and are not there",
                self.refused - self.refused_but_there
            )?;
        }
        if self.in_doubt > 0 {
            write!(
                f,
                "; {} rows have an unknown outcome, said so by the error ({} are there)",
                self.in_doubt, self.in_doubt_there
            )?;
        }
        Ok(())
    }
}

/// Makes the table anew through the service, waiting for its first answer.
pub(crate) fn create_table(service: SocketAddrV4) -> Result<(), DemoError> {
    let started = Instant::now();
    let sql = format!("CREATE OR REPLACE TABLE {TABLE} ({DEFINITION})");
    loop {
        let result = connect(service).and_then(|mut connection| connection.query(&sql));
        match result {
            Ok(_) => return Ok(()),
            Err(_) if started.elapsed() < FIRST_ANSWER_TIMEOUT => thread::sleep(Duration::from_millis(100)),
            Err(source) => return Err(DemoError::Client { doing: "can't create the demo's table", source }),
        }
    }
}

/// Compares the ledgers with every node's table, each asked directly.
pub(crate) fn verify(cluster: &Galera, ledgers: &[Ledger]) -> Result<Verdict, DemoError> {
    let mut last = Verdict::default();
    for node in cluster.nodes() {
        let doing = "can't check the rows";
        let error = |source| DemoError::Client { doing, source };
        let mut connection = connect(node.addr()).map_err(error)?;
        // The read waits until the node has applied everything that was committed before.
        connection.query("SET SESSION wsrep_sync_wait = 1").map_err(error)?;
        let mut verdict = Verdict::default();
        for ledger in ledgers {
            let sql = format!(
                "SELECT number, COUNT(*) FROM {TABLE} WHERE worker = {} GROUP BY number",
                ledger.worker
            );
            let result = connection.query(&sql).map_err(error)?;
            let found = result.pairs().filter_map(|(n, times)| Some((n.parse().ok()?, times.parse().ok()?)));
            verdict.judge(ledger, &found.collect());
        }
        if !verdict.is_good() {
            return Err(DemoError::Failed(format!("{}: {verdict}", node.name())));
        }
        last = verdict;
    }
    Ok(last)
}

fn connect(server: SocketAddrV4) -> Result<Connection, weir_client::Error> {
    let Account { user, password } = Account::APP;
    let options = Options::new(&server.ip().to_string(), server.port(), user, password);
    Connection::connect(&options.schema("test").timeouts(TIMEOUT, TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(0);
        ledger.acknowledged(1);
        ledger.acknowledged(2);
        ledger.failed(3, false);
        ledger.failed(4, true);
        ledger
    }

    #[test]
    fn a_database_that_agrees_is_good_whatever_became_of_rows_in_doubt() {
        for found in [vec![(1, 1), (2, 1)], vec![(1, 1), (2, 1), (4, 1)]] {
            let mut verdict = Verdict::default();
            verdict.judge(&ledger(), &found.into_iter().collect());
            assert!(verdict.is_good(), "{verdict}");
            assert!(verdict.to_string().contains("2 acknowledged rows is there exactly once"), "{verdict}");
        }
    }

    #[test]
    fn every_disagreement_is_found() {
        for found in
            [vec![(1, 1)], vec![(1, 2), (2, 1)], vec![(1, 1), (2, 1), (3, 1)], vec![(1, 1), (2, 1), (4, 2)]]
        {
            let mut verdict = Verdict::default();
            verdict.judge(&ledger(), &found.iter().copied().collect());
            assert!(!verdict.is_good(), "{found:?} passed as {verdict}");
        }
    }
}
