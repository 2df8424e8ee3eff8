//! Makes tables of numbered rows, and compares what is in them with what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Connection;

use crate::record::RowId;
use crate::{Account, Error};

/// The schema of everything that the probes use.
pub const SCHEMA: &str = "failover";
/// How long a table may take to be on all servers.
const PATIENCE_S: u64 = 30;
/// Lost and doubled rows that are named; the others are only counted.
const NAMED_MAX: usize = 5;

/// What makes the schema: `numbers` for reads, and `node`, which differs from server to server.
pub fn schema_sql() -> String {
    let numbers: Vec<String> = (1..=100).map(|number| format!("({number})")).collect();
    format!(
        "CREATE DATABASE {SCHEMA}; \
         CREATE TABLE {SCHEMA}.numbers (number INT PRIMARY KEY); \
         INSERT INTO {SCHEMA}.numbers VALUES {}; \
         CREATE TABLE {SCHEMA}.node (id INT PRIMARY KEY, name INT NOT NULL); \
         INSERT INTO {SCHEMA}.node VALUES (1, 0)",
        numbers.join(", ")
    )
}

/// Writes a server's number into its `node`, on it alone. `alone` is the flavour's word for that.
pub fn node_sql(index: usize, alone: &str) -> String {
    format!("SET SESSION {alone}; REPLACE INTO {SCHEMA}.node VALUES (1, {index})")
}

/// What makes a table for the rows of one run. Nothing in it prevents a row from being there twice: that shall be seen.
pub fn table_sql(table: &str) -> String {
    format!(
        "CREATE TABLE {SCHEMA}.{table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, stream INT NOT NULL, \
         number BIGINT NOT NULL, node INT NOT NULL, KEY (stream, number))"
    )
}

/// Rows on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// How often it is there.
    pub count: u32,
    /// The server that has executed it.
    pub node: u8,
}

/// The rows of a table as one server has them.
pub type Rows = BTreeMap<RowId, Row>;

/// Reads rows of stream, number, count and node.
///
/// # Errors
/// If the server does not answer, or with something else.
pub fn read(connection: &mut Connection, sql: &str) -> Result<Rows, Error> {
    let result = connection.query(sql)?;
    let number = |row: usize, column: usize| result.text(row, column).and_then(|text| text.parse().ok());
    let mut rows = Rows::new();
    for row in 0..result.rows.len() {
        let fields: Option<Vec<u64>> = (0..4).map(|column| number(row, column)).collect();
        let Some([stream, at, count, node]) = fields.as_deref() else {
            return Err(Error::Answer { what: sql.to_owned(), answer: format!("row {row}") });
        };
        let id = RowId { stream: u8::try_from(*stream).unwrap_or(0), number: *at };
        let count = u32::try_from(*count).unwrap_or(u32::MAX);
        rows.insert(id, Row { count, node: u8::try_from(*node).unwrap_or(0) });
    }
    Ok(rows)
}

/// Asks one server for a table's rows, with everything that was committed before; `causal` is the flavour's statement for
/// that.
///
/// # Errors
/// As for [`read`].
pub fn rows(
    server: SocketAddrV4,
    account: &Account,
    table: &str,
    causal: Option<&str>,
) -> Result<Rows, Error> {
    let mut connection = connect(server, account)?;
    if let Some(causal) = causal {
        connection.query(causal)?;
    }
    let sql = format!("SELECT stream, number, COUNT(*), MIN(node) FROM {table} GROUP BY stream, number");
    read(&mut connection, &sql)
}

/// Waits until all servers have the table.
///
/// # Errors
/// If that takes too long, or a server can't be reached.
pub fn wait_for_table(servers: &[SocketAddrV4], account: &Account, table: &str) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(PATIENCE_S);
    for &server in servers {
        let mut connection = connect(server, account)?;
        while connection.query(&format!("SELECT COUNT(*) FROM {table}")).is_err() {
            if Instant::now() > deadline {
                let what = format!("{table} on {server}");
                return Err(Error::Timeout { what, timeout_s: PATIENCE_S });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// A connection past all proxies.
///
/// # Errors
/// If the server can't be reached, or refuses.
pub fn connect(server: SocketAddrV4, account: &Account) -> Result<Connection, Error> {
    Ok(Connection::connect(&account.at(server).schema(SCHEMA))?)
}

/// What became of rows, as their clients know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Acknowledged.
    pub acknowledged: BTreeSet<RowId>,
    /// Sent, and not answered: there or not, both is right.
    pub unknown: BTreeSet<RowId>,
    /// How many were refused in so many words.
    pub refused: usize,
}

impl Ledger {
    /// The same with another's rows.
    #[must_use]
    pub fn and(mut self, other: Ledger) -> Ledger {
        self.acknowledged.extend(other.acknowledged);
        self.unknown.extend(other.unknown);
        self.refused += other.refused;
        self
    }
}

/// What was acknowledged, compared with what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Acknowledged rows.
    pub acknowledged: usize,
    /// Acknowledged, and not there on some server.
    pub lost: usize,
    /// There twice, or oftener.
    pub doubled: usize,
    /// There although their statement was refused in so many words.
    pub refused_and_there: usize,
    /// Rows whose statement was sent and not answered, and that are there.
    pub unknown_and_there: usize,
    /// Some of them, in words.
    pub named: Vec<String>,
}

impl Audit {
    /// Compares what clients know with the rows of every server that runs.
    pub fn of(ledger: &Ledger, servers: &[(String, Rows)]) -> Audit {
        let Ledger { acknowledged, unknown, .. } = ledger;
        let mut audit = Audit { acknowledged: acknowledged.len(), ..Audit::default() };
        let (mut lost, mut doubled) = (BTreeSet::new(), BTreeSet::new());
        let (mut refused, mut there) = (BTreeSet::new(), BTreeSet::new());
        for (server, rows) in servers {
            for id in acknowledged.iter().filter(|id| !rows.contains_key(id)) {
                if lost.insert(*id) {
                    audit.name(format!("row {}/{} is lost on {server}", id.stream, id.number));
                }
            }
            for (id, row) in rows {
                if row.count > 1 && doubled.insert(*id) {
                    audit.name(format!("row {}/{} is there {} times", id.stream, id.number, row.count));
                }
                match (acknowledged.contains(id), unknown.contains(id)) {
                    (false, true) => drop(there.insert(*id)),
                    (false, false) if refused.insert(*id) => {
                        audit.name(format!("row {}/{} was refused and is there", id.stream, id.number));
                    }
                    _ => {}
                }
            }
        }
        audit.lost = lost.len();
        audit.doubled = doubled.len();
        audit.refused_and_there = refused.len();
        audit.unknown_and_there = there.len();
        audit
    }

    /// Whether no row is lost, twice, or there against an error's word.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.refused_and_there == 0
    }

    fn name(&mut self, row: String) {
        if self.named.len() < NAMED_MAX {
            self.named.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recording;
    use crate::record::tests::example;

    fn all_rows(recording: &Recording) -> Rows {
        let writes = recording.samples.iter().filter(|sample| sample.stream.writes());
        writes
            .map(|s| (RowId { stream: s.stream.number(), number: s.number }, Row { count: 1, node: 1 }))
            .collect()
    }

    #[test]
    fn lost_doubled_refused_and_unknown_rows_are_told_apart() {
        let mut recording = example();
        let good = all_rows(&recording);
        let servers = |rows: &Rows| vec![("n1".to_owned(), good.clone()), ("n2".to_owned(), rows.clone())];
        let audit = Audit::of(&recording.ledger(), &servers(&good));
        assert_eq!((audit.lost, audit.doubled, audit.refused_and_there), (0, 0, 0));
        assert_eq!(audit.acknowledged, good.len());

        let mut rows = good.clone();
        rows.remove(&RowId { stream: 1, number: 7 });
        rows.insert(RowId { stream: 2, number: 8 }, Row { count: 2, node: 1 });
        rows.insert(RowId { stream: 1, number: 9_000 }, Row { count: 1, node: 1 });
        let audit = Audit::of(&recording.ledger(), &servers(&rows));
        assert_eq!((audit.lost, audit.doubled, audit.refused_and_there), (1, 1, 1));
        assert_eq!(audit.named.len(), 3);

        recording.unknown.push(RowId { stream: 1, number: 9_000 });
        let audit = Audit::of(&recording.ledger(), &servers(&rows));
        assert_eq!((audit.refused_and_there, audit.unknown_and_there), (0, 1));
    }
}
