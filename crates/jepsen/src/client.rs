//! Sends a transaction's statements, and says what became of it.

use std::net::SocketAddrV4;
use std::time::Duration;

use weir_client::{Connection, Error, Options};
use weir_jepsen::checker::{Key, Kind, Op, Value};
use weir_lab::{Account, probe, record};
use weir_testkit::Account as TestAccount;

use crate::stage::SCHEMA;
use crate::workload::{Style, Workload};

/// Longer than any proxy here makes a client wait.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Where a session connects, and what it says first.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// For everything that writes.
    pub(crate) writes: SocketAddrV4,
    /// For transactions and statements that only read; the same where the proxy tells them apart.
    pub(crate) reads: SocketAddrV4,
    /// Statements that begin each connection.
    pub(crate) greeting: Vec<String>,
}

/// A session's connection, or its two where reads have a port of their own.
#[derive(Debug)]
pub(crate) struct Client {
    writes: Connection,
    reads: Option<Connection>,
}

/// A transaction that was not acknowledged.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Failed or unknown.
    pub(crate) kind: Kind,
    /// What the client was told.
    pub(crate) text: String,
    /// Whether the session is of no further use.
    pub(crate) is_lost: bool,
}

/// How to connect as the application.
pub(crate) fn options(address: SocketAddrV4) -> Options {
    let account: Account = TestAccount::APP.into();
    account.at(address).schema(SCHEMA).timeouts(TIMEOUT, TIMEOUT)
}

impl Client {
    /// Logs in, and sets the session up.
    pub(crate) fn open(target: &Target) -> Result<Client, Error> {
        let open = |address| -> Result<Connection, Error> {
            let mut connection = Connection::connect(&options(address))?;
            target.greeting.iter().try_for_each(|sql| connection.query(sql).map(drop))?;
            Ok(connection)
        };
        let writes = open(target.writes)?;
        let reads = (target.reads != target.writes).then(|| open(target.reads)).transpose()?;
        Ok(Client { writes, reads })
    }

    /// Runs a transaction; what was read is in `ops` afterwards, as far as it came.
    pub(crate) fn run(&mut self, workload: Workload, style: Style, ops: &mut [Op]) -> Result<(), Failed> {
        let only_reads =
            style == Style::ReadOnly || (style == Style::Autocommit && ops.iter().all(Op::is_read));
        let connection = match (&mut self.reads, only_reads) {
            (Some(reads), true) => reads,
            _ => &mut self.writes,
        };
        let mut session = Session { connection, table: workload.table() };
        match style {
            Style::Autocommit => {
                let outcome = ops.iter_mut().try_for_each(|op| session.apply(op));
                outcome.map_err(|error| meaning(&error, only_reads, session.connection))
            }
            Style::Begin => session.transaction("BEGIN", ops),
            Style::ReadOnly => session.transaction("START TRANSACTION READ ONLY", ops),
        }
    }
}

/// What an error means for a statement that commits.
fn meaning(error: &Error, only_reads: bool, connection: &Connection) -> Failed {
    let is_unknown = probe::meaning(error, record::Kind::Unknown) == record::Kind::Unknown;
    // A read that was not answered has had no effect.
    let kind = if is_unknown && !only_reads { Kind::Info } else { Kind::Fail };
    let is_lost = is_unknown || connection.is_broken() || ends_session(error);
    Failed { kind, text: error.to_string(), is_lost }
}

/// Whether a server or a proxy closes the connection with this error.
fn ends_session(error: &Error) -> bool {
    matches!(error, Error::Server { sqlstate, .. } if sqlstate.starts_with("08"))
        || matches!(error.code(), Some(1053 | 1927))
}

/// Statements on one table.
struct Session<'a> {
    connection: &'a mut Connection,
    table: &'static str,
}

impl Session<'_> {
    /// Until COMMIT is sent nothing has happened.
    fn transaction(&mut self, begin: &str, ops: &mut [Op]) -> Result<(), Failed> {
        let before = self.query(begin).and_then(|()| ops.iter_mut().try_for_each(|op| self.apply(op)));
        if let Err(error) = before {
            let is_lost = self.connection.is_broken()
                || ends_session(&error)
                || self.connection.query("ROLLBACK").is_err();
            return Err(Failed { kind: Kind::Fail, text: error.to_string(), is_lost });
        }
        let only_reads = ops.iter().all(Op::is_read);
        self.query("COMMIT").map_err(|error| meaning(&error, only_reads, self.connection))
    }

    fn query(&mut self, sql: &str) -> Result<(), Error> {
        self.connection.query(sql).map(drop)
    }

    /// Runs one operation, and puts what it reads into it.
    fn apply(&mut self, op: &mut Op) -> Result<(), Error> {
        let table = self.table;
        match op {
            Op::Append { key, value } => {
                self.query(&format!("UPDATE {table} SET v = CONCAT(v, '{value},') WHERE id = {key}"))
            }
            Op::List { key, found } => {
                let result = self.connection.query(&format!("SELECT v FROM {table} WHERE id = {key}"))?;
                *found = Some(values(result.first().unwrap_or_default()));
                Ok(())
            }
            // A counter never goes back: a write that was given up may come later than the next one.
            Op::Write { key, value } if table == Workload::Session.table() => {
                self.query(&format!("UPDATE {table} SET v = GREATEST(v, {value}) WHERE id = {key}"))
            }
            Op::Write { key, value } => {
                self.query(&format!("UPDATE {table} SET v = {value} WHERE id = {key}"))
            }
            Op::Read { key, found } => {
                let result = self.connection.query(&format!("SELECT v FROM {table} WHERE id = {key}"))?;
                *found = Some(number(result.first())?);
                Ok(())
            }
            Op::Cas { key, from, to, found } => {
                let sql = format!("UPDATE {table} SET v = {to} WHERE id = {key} AND v = {from}");
                *found = Some(self.connection.query(&sql)?.ok.affected_rows > 0);
                Ok(())
            }
            Op::Transfer { from, to, amount } => self.transfer(*from, *to, *amount),
            Op::Balances { found } => {
                let result = self.connection.query(&format!("SELECT v FROM {table} ORDER BY id"))?;
                let balance = |row| number(result.text(row, 0));
                *found = Some((0..result.rows.len()).map(balance).collect::<Result<_, _>>()?);
                Ok(())
            }
            Op::Add { value } => self.query(&format!("INSERT INTO {table} (v) VALUES ({value})")),
            Op::Members { found } => {
                let result = self.connection.query(&format!("SELECT v FROM {table}"))?;
                *found = Some(
                    (0..result.rows.len())
                        .map(|row| number(result.text(row, 0)))
                        .collect::<Result<_, _>>()?,
                );
                Ok(())
            }
        }
    }

    /// Reads both balances, and writes both if there is enough: an update that is lost makes money, or loses some.
    fn transfer(&mut self, from: Key, to: Key, amount: u64) -> Result<(), Error> {
        let table = self.table;
        let mut balance = |key: Key| -> Result<i64, Error> {
            let result = self.connection.query(&format!("SELECT v FROM {table} WHERE id = {key}"))?;
            number(result.first())
        };
        let amount = amount.cast_signed();
        let (gives, takes) = (balance(from)? - amount, balance(to)? + amount);
        if gives < 0 {
            return Ok(());
        }
        self.query(&format!("UPDATE {table} SET v = {gives} WHERE id = {from}"))?;
        self.query(&format!("UPDATE {table} SET v = {takes} WHERE id = {to}"))
    }
}

/// `3,5,` as numbers.
pub(crate) fn values(text: &str) -> Vec<Value> {
    text.split(',').filter_map(|word| word.parse().ok()).collect()
}

fn number<N: std::str::FromStr>(text: Option<&str>) -> Result<N, Error> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::Protocol(format!("no number: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_each_with_a_comma() {
        assert_eq!(values("3,15,"), [3, 15]);
        assert!(values("").is_empty());
        assert_eq!(number::<i64>(Some("-4")).unwrap(), -4);
        assert!(number::<u64>(Some("x")).is_err() && number::<u64>(None).is_err());
    }

    #[test]
    fn errors_that_end_a_session_are_known() {
        let error = |code, sqlstate: &str| Error::Server {
            code,
            sqlstate: sqlstate.to_owned(),
            message: String::new(),
        };
        assert!(ends_session(&error(1053, "08S01")) && ends_session(&error(1927, "70100")));
        assert!(!ends_session(&error(1213, "40001")) && !ends_session(&error(9001, "HY000")));
    }
}
