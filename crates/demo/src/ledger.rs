//! Checks at the end that the database agrees with what its clients know.

use std::fmt;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Connection;
use weir_lab::Error;
use weir_lab::rows::{self, Audit, Ledger, Rows};
use weir_testkit::{Account, Galera};

/// The table of the demo, in the schema `test`.
pub(crate) const TABLE: &str = "weir_demo";
/// The key is not unique on purpose: a row written twice must be found, not refused.
const DEFINITION: &str = "id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT NOT NULL, number BIGINT NOT NULL, \
                          KEY worker_number (worker, number)";
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the service may need until it answers for the first time.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of the check.
#[derive(Debug)]
pub(crate) struct AuditResult {
    audit: Audit,
    refused: usize,
    in_doubt: usize,
}

impl AuditResult {
    fn of(ledger: &Ledger, server: String, rows: Rows) -> AuditResult {
        let audit = Audit::of(ledger, &[(server, rows)]);
        AuditResult { audit, refused: ledger.refused, in_doubt: ledger.unknown.len() }
    }
}

impl fmt::Display for AuditResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Audit { acknowledged, lost, doubled, refused_and_there, unknown_and_there, .. } = self.audit;
        if self.audit.is_good() {
            write!(f, "checked: each of the {acknowledged} acknowledged rows is there exactly once")?;
        } else {
            write!(
                f,
                "checked: of {acknowledged} acknowledged rows {lost} are lost; {doubled} rows are there twice; \
                 {refused_and_there} refused rows are there"
            )?;
        }
        if self.refused > 0 {
            let absent = self.refused.saturating_sub(refused_and_there);
            write!(f, "; {absent} rows were refused with an error and are not there")?;
        }
        if self.in_doubt > 0 {
            write!(
                f,
                "; {} rows have an unknown outcome, said so by the error ({unknown_and_there} are there)",
                self.in_doubt
            )?;
        }
        Ok(())
    }
}

/// Makes the table anew through the service, waiting for its first answer.
pub(crate) fn create_table(service: SocketAddrV4) -> Result<(), Error> {
    let started = Instant::now();
    let sql = format!("CREATE OR REPLACE TABLE {TABLE} ({DEFINITION})");
    loop {
        let result = connect(service).and_then(|mut connection| connection.query(&sql));
        match result {
            Ok(_) => return Ok(()),
            Err(_) if started.elapsed() < FIRST_ANSWER_TIMEOUT => thread::sleep(Duration::from_millis(100)),
            Err(error) => {
                let what = "can't create the demo's table".to_owned();
                return Err(Error::Answer { what, answer: error.to_string() });
            }
        }
    }
}

/// Compares the ledger with every node's table, each asked directly.
pub(crate) fn verify(cluster: &Galera, ledger: &Ledger) -> Result<AuditResult, Error> {
    let sql = format!("SELECT worker, number, COUNT(*), 0 FROM {TABLE} GROUP BY worker, number");
    let mut last = None;
    for node in cluster.nodes() {
        let found = connect(node.addr()).map_err(Error::from).and_then(|mut connection| {
            // The read waits until the node has applied everything that was committed before.
            connection.query("SET SESSION wsrep_sync_wait = 1")?;
            rows::read(&mut connection, &sql)
        });
        let found = found.map_err(|error| Error::Failed(format!("can't check the rows: {error}")))?;
        let result = AuditResult::of(ledger, node.name(), found);
        if !result.audit.is_good() {
            return Err(Error::Failed(format!("{}: {result}", node.name())));
        }
        last = Some(result);
    }
    last.ok_or_else(|| Error::Failed("there are no nodes to ask".to_owned()))
}

fn connect(server: SocketAddrV4) -> Result<Connection, weir_client::Error> {
    let account = weir_lab::Account::from(Account::APP);
    Connection::connect(&account.at(server).schema("test").timeouts(TIMEOUT, TIMEOUT))
}

#[cfg(test)]
mod tests {
    use weir_lab::record::RowId;
    use weir_lab::rows::Row;

    use super::*;

    fn result(found: &[(u64, u32)]) -> AuditResult {
        let id = |number| RowId { stream: 0, number };
        let ledger = Ledger {
            acknowledged: [id(1), id(2)].into(),
            // 3 was refused.
            refused: 1,
            unknown: [id(4)].into(),
        };
        let rows = found.iter().map(|&(number, count)| (id(number), Row { count, node: 0 }));
        AuditResult::of(&ledger, "n1".to_owned(), rows.collect())
    }

    #[test]
    fn a_database_that_agrees_is_good_whatever_became_of_rows_in_doubt() {
        for found in [&[(1, 1), (2, 1)][..], &[(1, 1), (2, 1), (4, 1)]] {
            let result = result(found);
            assert!(result.audit.is_good(), "{result}");
            assert!(result.to_string().contains("2 acknowledged rows is there exactly once"), "{result}");
        }
    }

    #[test]
    fn every_disagreement_is_found() {
        for found in [&[(1, 1)][..], &[(1, 2), (2, 1)], &[(1, 1), (2, 1), (3, 1)], &[(1, 1), (2, 1), (4, 2)]]
        {
            let result = result(found);
            assert!(!result.audit.is_good(), "{found:?} passed as {result}");
        }
    }
}
