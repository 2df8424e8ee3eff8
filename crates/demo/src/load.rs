//! Runs connections that write numbered rows and read them.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use weir_client::{Connection, Error, QueryResult};
use weir_lab::Stop;
use weir_lab::probe::meaning;
use weir_lab::record::{Kind as Fate, RowId};
use weir_lab::rows::Ledger;
use weir_testkit::Account;

use crate::ledger::TABLE;
use crate::stats::{Kind, Stats};

/// Every so many rows, two are written in a transaction.
const TRANSACTION_EVERY: u64 = 5;
/// Reads of earlier rows after each write.
const READS_PER_WRITE: u64 = 3;
/// Before a connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Longer than any wait that Weir imposes, so that Weir's error is seen and not the client's.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The load: what it talks to, and where it reports.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) server: SocketAddrV4,
    pub(crate) stats: &'a Stats,
    /// Raised at the end.
    pub(crate) finished: &'a Stop,
}

impl<'a> Load<'a> {
    /// Starts the connections. The writing ones return what became of their rows.
    pub(crate) fn spawn<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        writers: u32,
        readers: u32,
    ) -> Vec<ScopedJoinHandle<'scope, Ledger>>
    where
        'a: 'scope,
    {
        let written: Arc<Vec<AtomicU64>> = Arc::new((0..writers).map(|_| AtomicU64::new(0)).collect());
        for reader in 0..readers {
            let written = Arc::clone(&written);
            scope.spawn(move || self.read(u64::from(reader), &written));
        }
        (0..writers)
            .map(|worker| {
                let written = Arc::clone(&written);
                scope.spawn(move || self.write(worker, &written))
            })
            .collect()
    }

    fn read(self, reader: u64, written: &[AtomicU64]) {
        let mut session = Session::new(self);
        let mut step = reader;
        while !self.finished.is_raised() {
            step += 1;
            let worker = step as usize % written.len().max(1);
            let rows = written.get(worker).map_or(0, |count| count.load(Ordering::Relaxed));
            let _ = session.run(Kind::Read, &select(worker as u32, spread(step, rows)));
        }
    }

    fn write(self, worker: u32, written: &[AtomicU64]) -> Ledger {
        let mut session = Session::new(self);
        let mut ledger = Rows { worker, next: 1, ledger: Ledger::default() };
        while !self.finished.is_raised() {
            let acknowledged = if ledger.next.is_multiple_of(TRANSACTION_EVERY) {
                session.write_transaction(&mut ledger)
            } else {
                session.write_row(&mut ledger)
            };
            let Some(number) = acknowledged else { continue };
            if let Some(count) = written.get(worker as usize) {
                count.store(number, Ordering::Relaxed);
            }
            session.read_own(worker, number);
            for i in 0..READS_PER_WRITE {
                let _ = session.run(Kind::Read, &select(worker, spread(number + i, number)));
            }
        }
        ledger.ledger
    }
}

/// The rows of one writing connection.
struct Rows {
    worker: u32,
    next: u64,
    ledger: Ledger,
}

impl Rows {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn acknowledged(&mut self, number: u64) {
        let id = self.id(number);
        self.ledger.acknowledged.insert(id);
    }

    fn failed(&mut self, number: u64, in_doubt: bool) {
        if in_doubt {
            let id = self.id(number);
            self.ledger.unknown.insert(id);
        } else {
            self.ledger.refused += 1;
        }
    }

    fn id(&self, number: u64) -> RowId {
        RowId { stream: u8::try_from(self.worker).unwrap_or(u8::MAX), number }
    }
}

/// One client of the service, which connects again when it must.
struct Session<'a> {
    load: Load<'a>,
    connection: Option<Connection>,
}

impl<'a> Session<'a> {
    fn new(load: Load<'a>) -> Session<'a> {
        Session { load, connection: None }
    }

    /// Writes the next row by itself; returns its number if that was acknowledged.
    fn write_row(&mut self, ledger: &mut Rows) -> Option<u64> {
        // Without a connection nothing can have been written.
        self.connected()?;
        let number = ledger.take_number();
        match self.run(Kind::Write, &insert(ledger.worker, number)) {
            Ok(_) => {
                ledger.acknowledged(number);
                Some(number)
            }
            Err(error) => {
                ledger.failed(number, may_have_happened(&error));
                None
            }
        }
    }

    /// Writes the next two rows in a transaction; returns the second one's number if the commit was acknowledged.
    fn write_transaction(&mut self, ledger: &mut Rows) -> Option<u64> {
        self.connected()?;
        let rows = [ledger.take_number(), ledger.take_number()];
        let prepared = self.run(Kind::Write, "BEGIN").and_then(|_| {
            rows.iter().try_for_each(|row| self.run(Kind::Write, &insert(ledger.worker, *row)).map(drop))
        });
        let (result, in_doubt) = match prepared {
            // Whatever happened before a COMMIT was sent, nothing is committed.
            Err(error) => (Err(error), false),
            Ok(()) => match self.run(Kind::Write, "COMMIT") {
                Ok(_) => (Ok(()), false),
                Err(error) => {
                    let in_doubt = may_have_happened(&error);
                    (Err(error), in_doubt)
                }
            },
        };
        if result.is_ok() {
            rows.iter().for_each(|row| ledger.acknowledged(*row));
            return Some(rows[1]);
        }
        rows.iter().for_each(|row| ledger.failed(*row, in_doubt));
        // A transaction that failed half-way may still be open.
        self.connection = None;
        None
    }

    /// Reads the row just written: the service must not show an older state.
    fn read_own(&mut self, worker: u32, number: u64) {
        let result = self.run(Kind::Read, &select(worker, number));
        if result.is_ok_and(|result| result.rows.is_empty()) {
            self.load.stats.was_stale();
        }
    }

    /// Runs a statement and counts how it went.
    fn run(&mut self, kind: Kind, sql: &str) -> Result<QueryResult, Error> {
        let connection = self.connected().ok_or(Error::Closed)?;
        let started = Instant::now();
        let result = connection.query(sql);
        match &result {
            Ok(_) => self.load.stats.acknowledged(kind, started.elapsed()),
            Err(error) => {
                self.load.stats.failed(error);
                if error.is_fatal() {
                    self.connection = None;
                }
            }
        }
        result
    }

    fn connected(&mut self) -> Option<&mut Connection> {
        if self.connection.is_none() {
            let Load { server, stats, .. } = self.load;
            let account = weir_lab::Account::from(Account::APP);
            let options = account.at(server).schema("test").timeouts(ANSWER_TIMEOUT, ANSWER_TIMEOUT);
            match Connection::connect(&options) {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    stats.failed(&error);
                    thread::sleep(RECONNECT_PAUSE);
                }
            }
        }
        self.connection.as_mut()
    }
}

/// Whether a write that failed so may nevertheless have been executed: the answer was lost, or the service says that
/// it does not know (SQLSTATE 08007, "transaction resolution unknown").
fn may_have_happened(error: &Error) -> bool {
    // Without a connection nothing was sent.
    !matches!(error, Error::Closed) && meaning(error, Fate::Unknown) == Fate::Unknown
}

fn insert(worker: u32, number: u64) -> String {
    format!("INSERT INTO {TABLE} (worker, number) VALUES ({worker}, {number})")
}

fn select(worker: u32, number: u64) -> String {
    format!("SELECT id, number FROM {TABLE} WHERE worker = {worker} AND number = {number}")
}

/// One of the numbers 1..=`count`, all over them as `step` grows; 7919 is prime.
fn spread(step: u64, count: u64) -> u64 {
    step.wrapping_mul(7919) % count.max(1) + 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn reads_go_all_over_the_rows() {
        let seen: HashSet<u64> = (0..100).map(|step| spread(step, 100)).collect();
        assert_eq!(seen.len(), 100);
        assert!(seen.iter().all(|number| (1..=100).contains(number)));
        assert_eq!(spread(5, 0), 1);
    }

    #[test]
    fn only_lost_answers_are_in_doubt() {
        let server = |code, sqlstate: &str| Error::Server {
            code,
            sqlstate: sqlstate.to_owned(),
            message: String::new(),
        };
        assert!(!may_have_happened(&server(1213, "40001")));
        assert!(may_have_happened(&server(1053, "08007")));
        assert!(may_have_happened(&Error::Timeout(Duration::from_secs(1))));
        assert!(!may_have_happened(&Error::Closed));
    }
}
