//! Runs one session of the part staleness: it writes its own counter, reads its own and others', and judges what it reads.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use weir_seeds::SplitMix;
use weir_testkit::Account;

use crate::client::{Client, Found, Prepared, Refused};
use crate::history::{Acknowledged, Anomalies, Checker};
use crate::place::Level;
use crate::stage::SCHEMA;

/// The rows of a counter.
pub(crate) const ROWS_PER_COUNTER: usize = 2;
/// Of 100 plain reads, those that come right after a write of the session's own.
const OWN_PERCENT: u64 = 30;
/// Of 100 reads of others' counters, those of the busiest ones.
const BUSY_PERCENT: u64 = 70;
/// After an error, for a server or a proxy to come back.
const PAUSE: Duration = Duration::from_millis(20);
/// Stale reads that are told in words.
const NAMED_MAX: usize = 5;
/// Different texts of errors that are kept.
const TEXTS_MAX: usize = 20;
/// How often a session changes its table's columns before it makes the table anew.
const COLUMNS_MAX: u64 = 50;

/// What comes before a read, and how it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// COM_QUERY in autocommit.
    Text,
    /// COM_STMT_EXECUTE in autocommit.
    Prepared,
    /// In START TRANSACTION READ ONLY.
    ReadOnly,
    /// After writes with autocommit = 0.
    AutocommitOff,
    /// After BEGIN, a write and COMMIT.
    Transaction,
    /// After two writes in one text.
    MultiStatement,
    /// After CALL of a routine that writes.
    Call,
    /// Of a column that ALTER TABLE has just added.
    Ddl,
    /// Of a counter that is written past Weir.
    Beside,
}

impl Kind {
    /// In the report's order.
    pub(crate) const ALL: [Kind; 9] = [
        Kind::Text,
        Kind::Prepared,
        Kind::ReadOnly,
        Kind::AutocommitOff,
        Kind::Transaction,
        Kind::MultiStatement,
        Kind::Call,
        Kind::Ddl,
        Kind::Beside,
    ];

    /// As a column's heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Prepared => "prepared",
            Kind::ReadOnly => "read only tx",
            Kind::AutocommitOff => "autocommit=0",
            Kind::Transaction => "tx",
            Kind::MultiStatement => "multi",
            Kind::Call => "call",
            Kind::Ddl => "ddl",
            Kind::Beside => "beside",
        }
    }

    /// The next one by chance: plain reads mostly, schema changes seldom.
    fn by_chance(random: &mut SplitMix) -> Kind {
        match random.within(0..1000) {
            0..390 => Kind::Text,
            390..760 => Kind::Prepared,
            760..880 => Kind::ReadOnly,
            880..917 => Kind::AutocommitOff,
            917..954 => Kind::Transaction,
            954..991 => Kind::MultiStatement,
            991..998 => Kind::Call,
            _ => Kind::Ddl,
        }
    }
}

/// Which counters there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Of the sessions, the first ones.
    pub(crate) sessions: usize,
    /// Of the writers behind them.
    pub(crate) writers: usize,
    /// Whether the last one is written past Weir.
    pub(crate) has_beside: bool,
}

impl Counters {
    /// How many.
    pub(crate) fn len(self) -> usize {
        self.sessions + self.writers + usize::from(self.has_beside)
    }

    /// The one that is written past Weir.
    pub(crate) fn beside(self) -> usize {
        self.sessions + self.writers
    }

    /// One that somebody else may write, more often one of the writers'.
    fn by_chance(self, random: &mut SplitMix) -> usize {
        match random.percent(BUSY_PERCENT) {
            true => self.sessions + random.below(self.writers + usize::from(self.has_beside)),
            false => random.below(self.sessions),
        }
    }
}

/// What all sessions of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What the sessions' reads have to be like; less than that is worth words.
    pub(crate) level: Level,
    /// The counters.
    pub(crate) counters: Counters,
    /// Their values.
    pub(crate) acknowledged: Acknowledged,
    /// Reads that were checked.
    pub(crate) checks: AtomicU64,
    /// Whether to end.
    pub(crate) is_over: AtomicBool,
}

/// What sessions have seen.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    /// Checked reads of each kind, and what was wrong with them.
    pub(crate) kinds: BTreeMap<Kind, (u64, Anomalies)>,
    /// Reads that each server has answered.
    pub(crate) by_server: BTreeMap<usize, u64>,
    /// Statements or logins that have failed.
    pub(crate) errors: u64,
    /// How often each text came, of the first ones.
    pub(crate) texts: BTreeMap<String, u64>,
    /// Some of the stale reads, in words.
    pub(crate) named: Vec<String>,
}

impl Seen {
    /// That of both.
    pub(crate) fn add(&mut self, other: Seen) {
        for (kind, (checks, anomalies)) in other.kinds {
            let all = self.kinds.entry(kind).or_default();
            all.0 += checks;
            all.1.add(anomalies);
        }
        other
            .by_server
            .into_iter()
            .for_each(|(server, reads)| *self.by_server.entry(server).or_default() += reads);
        self.errors += other.errors;
        other.texts.into_iter().for_each(|(text, times)| *self.texts.entry(text).or_default() += times);
        self.named.extend(other.named);
        self.named.truncate(NAMED_MAX);
    }

    /// All kinds together.
    pub(crate) fn total(&self) -> (u64, Anomalies) {
        self.kinds.values().fold((0, Anomalies::default()), |(checks, mut sum), (more, anomalies)| {
            sum.add(*anomalies);
            (checks + more, sum)
        })
    }

    fn note_error(&mut self, refused: &Refused) {
        self.errors += 1;
        let text = refused.to_string();
        if self.texts.len() < TEXTS_MAX || self.texts.contains_key(&text) {
            *self.texts.entry(text).or_default() += 1;
        }
    }
}

/// One session, with a counter and a table of its own.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    shared: &'a Shared,
    address: SocketAddrV4,
    account: Account,
    /// Its number, which is its counter, too.
    number: usize,
    random: SplitMix,
    link: Option<Link>,
    /// The last value that it has sent.
    value: u64,
    /// The newest column of its table; 0 if the table has to be made.
    column: u64,
    seen: Seen,
}

/// A connection, and what its session knows.
#[derive(Debug)]
struct Link {
    client: Client,
    prepared: Prepared,
    checker: Checker,
}

/// Reads one row of a counter; the server's number beside it.
fn read_sql(row: &str) -> String {
    format!("SELECT c.v, n.name + 0 FROM counters c, failover.node n WHERE c.id = {row}")
}

/// Writes both rows of a counter. Never less than what is there: a write that was given up may come later than the next.
pub(crate) fn write_sql(counter: usize, value: u64) -> String {
    let (first, second) = (counter * ROWS_PER_COUNTER, counter * ROWS_PER_COUNTER + 1);
    format!("UPDATE counters SET v = GREATEST(v, {value}) WHERE id IN ({first}, {second})")
}

/// What makes the counters, all of them 0.
pub(crate) fn make_sql(counters: usize) -> String {
    let row = |id: usize| format!("({id}, {}, 0)", id / ROWS_PER_COUNTER);
    let rows: Vec<String> = (0..counters * ROWS_PER_COUNTER).map(row).collect();
    format!(
        "DROP TABLE IF EXISTS counters; \
         CREATE TABLE counters (id INT PRIMARY KEY, counter INT NOT NULL, v BIGINT NOT NULL, KEY (counter)); \
         INSERT INTO counters VALUES {}",
        rows.join(", ")
    )
}

impl<'a> Session<'a> {
    /// Not connected yet.
    pub(crate) fn new(
        shared: &'a Shared,
        address: SocketAddrV4,
        account: Account,
        number: usize,
    ) -> Session<'a> {
        let random = SplitMix::new(number as u64 + 1);
        let seen = Seen::default();
        Session { shared, address, account, number, random, link: None, value: 0, column: 0, seen }
    }

    /// Works until everybody is to end; what it has seen.
    pub(crate) fn work(mut self) -> Seen {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if let Err(refused) = self.step() {
                self.seen.note_error(&refused);
                // Whatever state it is in: the next one is another session, which has seen and written nothing.
                self.link = None;
                self.column = 0;
                thread::sleep(PAUSE);
            }
        }
        self.seen
    }

    fn step(&mut self) -> Result<(), Refused> {
        if self.link.is_none() {
            let mut client = Client::open(self.address, self.account, SCHEMA)?;
            let prepared = client.prepare(&read_sql("?"))?;
            self.link = Some(Link { client, prepared, checker: Checker::default() });
        }
        let kind = Kind::by_chance(&mut self.random);
        match kind {
            Kind::Text | Kind::Prepared | Kind::ReadOnly | Kind::Beside => {
                let is_own = self.random.percent(OWN_PERCENT);
                if is_own {
                    let sql = self.next_write();
                    self.write(&[&sql])?;
                }
                let counter =
                    if is_own { self.number } else { self.shared.counters.by_chance(&mut self.random) };
                self.check(kind, counter)
            }
            Kind::AutocommitOff => {
                let sql = self.next_write();
                self.write(&["SET autocommit = 0", &sql, "COMMIT"])?;
                self.check(kind, self.number)?;
                self.run("COMMIT")?;
                self.run("SET autocommit = 1")?;
                self.check(kind, self.number)
            }
            Kind::Transaction => {
                let sql = self.next_write();
                self.write(&["BEGIN", &sql, "COMMIT"])?;
                self.check(kind, self.number)
            }
            Kind::MultiStatement => {
                let (first, second) = (self.next_write(), self.next_write());
                self.write(&[&format!("{first}; {second}")])?;
                self.check(kind, self.number)
            }
            Kind::Call => {
                self.value += 1;
                let sql = format!("CALL put({}, {})", self.number, self.value);
                self.write(&[&sql])?;
                self.check(kind, self.number)?;
                // A routine may have taken locks: Weir keeps such a session on the writer, where nothing is stale.
                self.link = None;
                Ok(())
            }
            Kind::Ddl => self.check_column(),
        }
    }

    /// Its counter's next value.
    fn next_write(&mut self) -> String {
        self.value += 1;
        write_sql(self.number, self.value)
    }

    /// The last of these statements makes the session's value known.
    fn write(&mut self, statements: &[&str]) -> Result<(), Refused> {
        statements.iter().try_for_each(|sql| self.run(sql))?;
        let (number, value) = (self.number, self.value);
        self.link()?.checker.wrote(number, value);
        self.shared.acknowledged.note(number, value);
        Ok(())
    }

    /// Reads one of a counter's rows and judges it.
    fn check(&mut self, kind: Kind, counter: usize) -> Result<(), Refused> {
        let acknowledged = self.shared.acknowledged.before_read(counter);
        let row = counter * ROWS_PER_COUNTER + self.random.below(ROWS_PER_COUNTER);
        let Link { client, prepared, checker } = self.link.as_mut().ok_or_else(gone)?;
        let found = match kind {
            Kind::Prepared => client.execute(*prepared, row as u64)?,
            Kind::ReadOnly => {
                client.run("START TRANSACTION READ ONLY")?;
                let found = client.read(&read_sql(&row.to_string()))?;
                client.run("COMMIT")?;
                found
            }
            _ => client.read(&read_sql(&row.to_string()))?,
        };
        let anomalies = checker.judge(counter, found.value, acknowledged);
        let counters = self.shared.counters;
        let is_beside = counters.has_beside && counter == counters.beside();
        let kind = if is_beside { Kind::Beside } else { kind };
        self.count(kind, anomalies, found, &format!("counter {counter}, of {acknowledged}"));
        Ok(())
    }

    /// Adds a column to the session's table and reads it.
    fn check_column(&mut self) -> Result<(), Refused> {
        let table = format!("columns_{}", self.number);
        if self.column == 0 || self.column >= COLUMNS_MAX {
            self.run(&format!("DROP TABLE IF EXISTS {table}"))?;
            self.run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))?;
            self.run(&format!("INSERT INTO {table} VALUES (1)"))?;
            self.column = 0;
        }
        let column = self.column + 1;
        self.run(&format!("ALTER TABLE {table} ADD COLUMN c{column} BIGINT NOT NULL DEFAULT {column}"))?;
        self.column = column;
        let sql = format!("SELECT t.c{column}, n.name + 0 FROM {table} t, failover.node n WHERE t.id = 1");
        let stale = Anomalies { own: 1, ..Anomalies::default() };
        match self.link()?.client.read(&sql) {
            Ok(found) => {
                let anomalies = if found.value == column { Anomalies::default() } else { stale };
                self.count(Kind::Ddl, anomalies, found, &format!("{table}.c{column}"));
                Ok(())
            }
            // A server without the column, or without the table; which one is not said.
            Err(refused) if refused.is_missing() => {
                let nowhere = Found { value: 0, server: 0 };
                self.count(Kind::Ddl, stale, nowhere, &format!("{table}.c{column}: {refused}"));
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    fn count(&mut self, kind: Kind, anomalies: Anomalies, found: Found, what: &str) {
        self.shared.checks.fetch_add(1, Ordering::Relaxed);
        let all = self.seen.kinds.entry(kind).or_default();
        all.0 += 1;
        all.1.add(anomalies);
        *self.seen.by_server.entry(found.server).or_default() += 1;
        if anomalies.measured_at(self.shared.level) > 0 && self.seen.named.len() < NAMED_MAX {
            let Anomalies { own, monotonic, global } = anomalies;
            self.seen.named.push(format!(
                "session {}, {}: {} from server {} ({what}; own {own}, monotonic {monotonic}, global {global})",
                self.number,
                kind.heading(),
                found.value,
                found.server,
            ));
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), Refused> {
        self.link()?.client.run(sql)
    }

    fn link(&mut self) -> Result<&mut Link, Refused> {
        self.link.as_mut().ok_or_else(gone)
    }
}

fn gone() -> Refused {
    Refused { code: 0, text: "not connected".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_read_comes_by_chance_but_the_one_past_weir() {
        let mut random = SplitMix::new(1);
        let mut kinds = BTreeMap::new();
        (0..100_000).for_each(|_| *kinds.entry(Kind::by_chance(&mut random)).or_insert(0) += 1);
        let came: Vec<Kind> = kinds.keys().copied().collect();
        assert_eq!(came, Kind::ALL.into_iter().filter(|kind| *kind != Kind::Beside).collect::<Vec<_>>());
        assert!(kinds[&Kind::Ddl] < 500);
    }

    #[test]
    fn all_counters_are_read() {
        let counters = Counters { sessions: 3, writers: 2, has_beside: true };
        assert_eq!((counters.len(), counters.beside()), (6, 5));
        let mut random = SplitMix::new(1);
        let mut read = [0; 6];
        (0..1000).for_each(|_| read[counters.by_chance(&mut random)] += 1);
        assert!(read.iter().all(|reads| *reads > 0), "{read:?}");
    }

    #[test]
    fn what_sessions_have_seen_adds_up() {
        let seen = |errors, stale: u64| Seen {
            kinds: BTreeMap::from([(Kind::Text, (10, Anomalies { own: stale, ..Anomalies::default() }))]),
            by_server: BTreeMap::from([(2, 10)]),
            errors,
            texts: BTreeMap::from([("no".to_owned(), errors)]),
            named: vec!["it".to_owned(); 3],
        };
        let mut sum = seen(1, 0);
        sum.add(seen(2, 4));
        assert_eq!(sum.total(), (20, Anomalies { own: 4, ..Anomalies::default() }));
        assert_eq!((sum.errors, sum.texts["no"], sum.by_server[&2], sum.named.len()), (3, 3, 20, NAMED_MAX));
    }

    #[test]
    fn both_rows_of_a_counter_are_written_together() {
        assert_eq!(write_sql(3, 9), "UPDATE counters SET v = GREATEST(v, 9) WHERE id IN (6, 7)");
        assert!(make_sql(2).ends_with("(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)"));
    }
}
