//! The probes' tables, and what is in them afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{Connection, Options};
use weir_testkit::Account;

use crate::error::FailoverError;
use crate::record::{Recording, RowId};

/// The schema of everything that the probes use.
pub(crate) const SCHEMA: &str = "failover";
/// How long a table may take to be on all servers.
const PATIENCE_S: u64 = 30;
/// Lost and doubled rows that are named; the others are only counted.
const NAMED_MAX: usize = 5;

/// What makes the schema: `numbers` for reads, and `node`, which differs from server to server.
pub(crate) fn schema_sql() -> String {
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
pub(crate) fn node_sql(index: usize, alone: &str) -> String {
    format!("SET SESSION {alone}; REPLACE INTO {SCHEMA}.node VALUES (1, {index})")
}

/// What makes a table for the rows of one run. Nothing in it prevents a row from being there twice: that shall be seen.
pub(crate) fn table_sql(table: &str) -> String {
    format!(
        "CREATE TABLE {SCHEMA}.{table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, stream INT NOT NULL, \
         number BIGINT NOT NULL, node INT NOT NULL, KEY (stream, number))"
    )
}

/// Rows on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// How often it is there.
    pub(crate) count: u32,
    /// The server that has executed it.
    pub(crate) node: u8,
}

/// The rows of a table as one server has them.
pub(crate) type Rows = BTreeMap<RowId, Row>;

/// Asks one server, with everything that was committed before; `causal` is the flavour's statement for that.
pub(crate) fn rows(server: SocketAddrV4, table: &str, causal: Option<&str>) -> Result<Rows, FailoverError> {
    let mut connection = connect(server)?;
    if let Some(causal) = causal {
        connection.query(causal)?;
    }
    let sql = format!("SELECT stream, number, COUNT(*), MIN(node) FROM {table} GROUP BY stream, number");
    let result = connection.query(&sql)?;
    let number = |row: usize, column: usize| result.text(row, column).and_then(|text| text.parse().ok());
    let mut rows = Rows::new();
    for row in 0..result.rows.len() {
        let fields: Option<Vec<u64>> = (0..4).map(|column| number(row, column)).collect();
        let Some([stream, at, count, node]) = fields.as_deref() else {
            return Err(FailoverError::Answer { what: sql, answer: format!("row {row}") });
        };
        let id = RowId { stream: u8::try_from(*stream).unwrap_or(0), number: *at };
        let count = u32::try_from(*count).unwrap_or(u32::MAX);
        rows.insert(id, Row { count, node: u8::try_from(*node).unwrap_or(0) });
    }
    Ok(rows)
}

/// Waits until all servers have the table.
pub(crate) fn wait_for_table(servers: &[SocketAddrV4], table: &str) -> Result<(), FailoverError> {
    let deadline = Instant::now() + Duration::from_secs(PATIENCE_S);
    for &server in servers {
        let mut connection = connect(server)?;
        while connection.query(&format!("SELECT COUNT(*) FROM {table}")).is_err() {
            if Instant::now() > deadline {
                let what = format!("{table} on {server}");
                return Err(FailoverError::Timeout { what, timeout_s: PATIENCE_S });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// A connection of the application's account, past all proxies.
pub(crate) fn connect(server: SocketAddrV4) -> Result<Connection, FailoverError> {
    let Account { user, password } = Account::APP;
    let options = Options::new(&server.ip().to_string(), server.port(), user, password).schema(SCHEMA);
    Ok(Connection::connect(&options)?)
}

/// What was acknowledged, compared with what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Acknowledged rows.
    pub(crate) acknowledged: usize,
    /// Acknowledged, and not there on some server.
    pub(crate) lost: usize,
    /// There twice, or oftener.
    pub(crate) doubled: usize,
    /// There although their statement was refused in so many words.
    pub(crate) refused_and_there: usize,
    /// Rows whose statement was sent and not answered, and that are there.
    pub(crate) unknown_and_there: usize,
    /// Some of them, in words.
    pub(crate) named: Vec<String>,
}

impl Audit {
    /// Compares a recording with the rows of every server that runs.
    pub(crate) fn of(recording: &Recording, servers: &[(String, Rows)]) -> Audit {
        let writes = recording.samples.iter().filter(|sample| sample.stream.writes());
        let acknowledged: BTreeSet<RowId> =
            writes.map(|sample| RowId { stream: sample.stream.number(), number: sample.number }).collect();
        let unknown: BTreeSet<RowId> = recording.unknown.iter().copied().collect();
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

    fn name(&mut self, row: String) {
        if self.named.len() < NAMED_MAX {
            self.named.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let audit = Audit::of(&recording, &servers(&good));
        assert_eq!((audit.lost, audit.doubled, audit.refused_and_there), (0, 0, 0));
        assert_eq!(audit.acknowledged, good.len());

        let mut rows = good.clone();
        rows.remove(&RowId { stream: 1, number: 7 });
        rows.insert(RowId { stream: 2, number: 8 }, Row { count: 2, node: 1 });
        rows.insert(RowId { stream: 1, number: 9_000 }, Row { count: 1, node: 1 });
        let audit = Audit::of(&recording, &servers(&rows));
        assert_eq!((audit.lost, audit.doubled, audit.refused_and_there), (1, 1, 1));
        assert_eq!(audit.named.len(), 3);

        recording.unknown.push(RowId { stream: 1, number: 9_000 });
        let audit = Audit::of(&recording, &servers(&rows));
        assert_eq!((audit.refused_and_there, audit.unknown_and_there), (0, 1));
    }
}
