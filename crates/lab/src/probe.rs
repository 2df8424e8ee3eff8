//! Runs clients that write and read numbered rows every 5 ms and remember every answer.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_client::{Connection, Error, Options};

use crate::record::{Failure, Kind, RowId, Sample, Stream};
use crate::rows::SCHEMA;
use crate::{Account, Moment};

/// How often each probe has something to do.
const INTERVAL_MS: u64 = 5;
/// The same for transactions: four statements each.
const TRANSACTION_INTERVAL_MS: u64 = 20;
/// Longer than any proxy here makes a client wait.
const TIMEOUT: Duration = Duration::from_secs(40);
/// More failures of one probe are counted and not kept.
const FAILURES_MAX: usize = 20_000;
/// Lost connections as clients and proxies tell them; 2027 is what MariaDB's client library makes of an error with a
/// number of its own.
const LOST: [u16; 4] = [2006, 2013, 2027, 2055];
/// Server shutdown in progress, connection killed: nothing more comes, and what was asked has had no effect.
const ENDED: [u16; 2] = [1053, 1927];
const ER_LOCK_DEADLOCK: u16 = 1213;
/// "Transaction resolution unknown" in the SQL standard.
const UNKNOWN: &str = "08007";
/// The row that reads look for.
const READ_NUMBER: u64 = 17;

/// Where clients of a proxy connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// For everything that writes.
    pub writes: SocketAddrV4,
    /// For reads alone; the same where the proxy tells them apart.
    pub reads: SocketAddrV4,
}

/// Running probes.
#[derive(Debug)]
pub struct Probes {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Seen>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// When each stream was answered last, nanoseconds, in the order of [`Stream::ALL`].
    answered: [AtomicU64; 5],
}

/// What a probe has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Answered statements.
    pub samples: Vec<Sample>,
    /// Errors.
    pub failures: Vec<Failure>,
    /// Rows that may be there.
    pub unknown: Vec<RowId>,
}

impl Probes {
    /// Starts one probe per stream; rows go to `table`.
    pub fn start(target: Target, account: &Account, table: &str) -> Probes {
        let shared = Arc::new(Shared::default());
        let start = |(at, stream): (usize, Stream)| {
            let shared = Arc::clone(&shared);
            let address = if stream.writes() { target.writes } else { target.reads };
            let (options, table) = (account.at(address), table.to_owned());
            thread::spawn(move || Probe::new(stream, at, options, table).work(&shared))
        };
        let threads = Stream::ALL.into_iter().enumerate().map(start).collect();
        Probes { shared, threads }
    }

    /// Whether every stream has had an answer to something that was sent after `moment`, or nearly so.
    pub fn all_answered_since(&self, moment: Moment) -> bool {
        self.shared.answered.iter().all(|at| at.load(Ordering::Relaxed) > moment.0)
    }

    /// Lets every probe end its statement, and collects what they have seen.
    pub fn finish(self) -> Seen {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in self.threads {
            // A probe does not panic; if it did, what it had seen would be missing, and its rows found.
            let Ok(seen) = thread.join() else { continue };
            all.samples.extend(seen.samples);
            all.failures.extend(seen.failures);
            all.unknown.extend(seen.unknown);
        }
        all
    }
}

struct Probe {
    stream: Stream,
    /// Its place in [`Stream::ALL`].
    at: usize,
    options: Options,
    table: String,
    connection: Option<Connection>,
    seen: Seen,
}

/// A statement's error, and what it means.
type Failed = (Kind, Error);

impl Probe {
    fn new(stream: Stream, at: usize, options: Options, table: String) -> Probe {
        let options = options.schema(SCHEMA).timeouts(TIMEOUT, TIMEOUT);
        Probe { stream, at, options, table, connection: None, seen: Seen::default() }
    }

    fn work(mut self, shared: &Shared) -> Seen {
        let interval_ms =
            if self.stream == Stream::WriteTransaction { TRANSACTION_INTERVAL_MS } else { INTERVAL_MS };
        let mut next = Moment::now();
        let mut number = 0;
        while !shared.stop.load(Ordering::Relaxed) {
            number += 1;
            let sent = Moment::now();
            match self.one(number) {
                Ok(node) => {
                    let done = Moment::now();
                    let stream = self.stream;
                    self.seen.samples.push(Sample { stream, number, sent, done, node });
                    if let Some(answered) = shared.answered.get(self.at) {
                        answered.store(sent.0, Ordering::Relaxed);
                    }
                    self.look_back(number);
                }
                Err(failed) => self.note(number, failed),
            }
            if self.stream.is_new() || self.connection.as_ref().is_some_and(Connection::is_broken) {
                self.connection = None;
            }
            // What could not be sent in time is left out, never sent in a burst.
            let now = Moment::now();
            next = next.plus_ms(interval_ms).max(now);
            thread::sleep(Duration::from_nanos(next.0.saturating_sub(now.0)));
        }
        self.seen
    }

    /// One statement or transaction; the node that has answered, if the answer says it.
    fn one(&mut self, number: u64) -> Result<u8, Failed> {
        if self.connection.is_none() {
            self.connection = Some(Connection::connect(&self.options).map_err(|e| (Kind::Outside, e))?);
        }
        let insert = format!(
            "INSERT INTO {} (stream, number, node) SELECT {}, {number}, name FROM node",
            self.table,
            self.stream.number()
        );
        if self.stream == Stream::WriteTransaction {
            self.ask("BEGIN", Kind::Outside)?;
            self.ask(&insert, Kind::Inside)?;
            self.ask("COMMIT", Kind::Unknown)?;
            return Ok(0);
        }
        if self.stream.writes() {
            self.ask(&insert, Kind::Unknown)?;
            return Ok(0);
        }
        let sql = format!("SELECT name FROM numbers, node WHERE number = {READ_NUMBER}");
        self.ask(&sql, Kind::Outside)
    }

    /// Whether the row of a transaction is seen by its own session.
    fn look_back(&mut self, number: u64) {
        if self.stream != Stream::WriteTransaction {
            return;
        }
        let stream = self.stream.number();
        let sql = format!("SELECT node FROM {} WHERE stream = {stream} AND number = {number}", self.table);
        match self.ask(&sql, Kind::Outside) {
            Ok(0) => self.seen.failures.push(Failure {
                at: Moment::now(),
                kind: Kind::Stale,
                text: format!("the row of transaction {number} is not seen"),
                is_load: false,
            }),
            Ok(_) => {}
            Err(failed) => self.note(number, failed),
        }
    }

    /// Runs a statement; `lost` is what a lost connection means for it. Returns the first field as a number, or 0.
    fn ask(&mut self, sql: &str, lost: Kind) -> Result<u8, Failed> {
        let connection = self.connection.as_mut().ok_or((Kind::Outside, Error::Closed))?;
        let result = connection.query(sql).map_err(|error| {
            let kind = match self.stream {
                Stream::WriteTransaction => of_commit_error(&error, lost),
                _ => meaning(&error, lost),
            };
            // Whatever state a refused transaction is in, the next one begins on another connection.
            if lost != Kind::Outside && self.stream == Stream::WriteTransaction {
                self.connection = None;
            }
            (kind, error)
        })?;
        Ok(result.first().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    fn note(&mut self, number: u64, (kind, error): Failed) {
        if kind == Kind::Unknown {
            self.seen.unknown.push(RowId { stream: self.stream.number(), number });
        }
        if self.seen.failures.len() < FAILURES_MAX {
            let failure = Failure { at: Moment::now(), kind, text: error.to_string(), is_load: false };
            self.seen.failures.push(failure);
        }
        if ends_connection(&error) {
            self.connection = None;
        }
    }
}

/// Whether a client knows that nothing more comes on a connection with this error.
fn ends_connection(error: &Error) -> bool {
    match error {
        Error::Server { code, sqlstate, .. } => {
            LOST.contains(code) || ENDED.contains(code) || sqlstate == UNKNOWN
        }
        _ => true,
    }
}

/// What an error means for a statement whose lost connection would mean `lost`.
pub fn meaning(error: &Error, lost: Kind) -> Kind {
    match error {
        Error::Server { code, sqlstate, message } => meaning_of(*code, sqlstate, message, lost),
        _ => lost,
    }
}

fn of_commit_error(error: &Error, lost: Kind) -> Kind {
    match error {
        Error::Server { code, message, .. } => of_commit(meaning(error, lost), *code, message, lost),
        _ => of_commit(meaning(error, lost), 0, "", lost),
    }
}

/// Whether a server itself has ended a transaction in favour of another one, and no proxy in its name: by the texts of
/// MariaDB, Galera and MySQL.
fn is_deadlock(code: u16, message: &str) -> bool {
    const TEXTS: [&str; 3] = ["Deadlock found", "WSREP detected deadlock", "Deadlock: wsrep"];
    code == ER_LOCK_DEADLOCK && TEXTS.iter().any(|text| message.starts_with(text))
}

/// Server's errors: whether they say that the statement, or its transaction, has had no effect.
pub fn meaning_of(code: u16, sqlstate: &str, message: &str, lost: Kind) -> Kind {
    match (code, sqlstate, lost) {
        // Only a transaction can be repeated by its application.
        (_, _, Kind::Inside) if is_deadlock(code, message) => Kind::Deadlock,
        (code, _, _) if LOST.contains(&code) => lost,
        (_, UNKNOWN, _) => lost,
        (_, _, Kind::Unknown) => Kind::Outside,
        _ => lost,
    }
}

/// What it means for a transaction: a COMMIT that was refused is its end.
pub fn of_commit(kind: Kind, code: u16, message: &str, lost: Kind) -> Kind {
    match kind {
        Kind::Outside if lost == Kind::Unknown && is_deadlock(code, message) => Kind::Deadlock,
        Kind::Outside if lost == Kind::Unknown => Kind::Inside,
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_mean_what_an_application_can_conclude_from_them() {
        // An autocommit write or a COMMIT.
        assert_eq!(meaning_of(1053, "08007", "", Kind::Unknown), Kind::Unknown);
        assert_eq!(meaning_of(1205, "08007", "", Kind::Unknown), Kind::Unknown);
        assert_eq!(meaning_of(9001, "HY000", "", Kind::Unknown), Kind::Outside);
        // Within a transaction.
        let text = "Deadlock found when trying to get lock; try restarting transaction";
        assert_eq!(meaning_of(1213, "40001", text, Kind::Inside), Kind::Deadlock);
        assert_eq!(meaning_of(2013, "HY000", "", Kind::Inside), Kind::Inside);
        // Not the server's, but the proxy's, which is to do without.
        let of_proxy = "n1 is read_only now: the transaction is rolled back";
        assert_eq!(meaning_of(1213, "40001", of_proxy, Kind::Inside), Kind::Inside);
        // A COMMIT that was certainly not done, and one of which nobody knows.
        let commit = |code, sqlstate, text| {
            of_commit(meaning_of(code, sqlstate, text, Kind::Unknown), code, text, Kind::Unknown)
        };
        assert_eq!(commit(1053, "08S01", ""), Kind::Inside);
        let of_galera =
            "WSREP detected deadlock/conflict and aborted the transaction. Try restarting the transaction";
        assert_eq!(commit(1213, "40001", of_galera), Kind::Deadlock);
        assert_eq!(commit(1213, "40001", of_proxy), Kind::Inside);
        assert_eq!(commit(1053, "08007", ""), Kind::Unknown);
        // BEGIN, a read, a login.
        assert_eq!(meaning_of(1047, "08S01", "", Kind::Outside), Kind::Outside);
    }
}
