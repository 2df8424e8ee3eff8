//! Finds settings of servers with which a cluster loses or mixes up data in a way that no proxy can mend, and tells the log of
//! each once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::warn;
use weir_client::{Connection, Error, Options};
use weir_topology::{Endpoint, Policy};

/// A setting, and what may happen with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// The setting as it is: `innodb_flush_log_at_trx_commit is 2`.
    pub setting: String,
    /// What may happen.
    pub effect: &'static str,
    /// What excludes that.
    pub remedy: &'static str,
}

const QUESTION: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('innodb_flush_log_at_trx_commit', 'innodb_snapshot_isolation', 'wsrep_sync_wait')";

/// How often the monitor looks whether they have changed.
const PAUSE: Duration = Duration::from_secs(30);

/// Tells the log of the risky settings of a server, when they are seen first and when they change.
pub(crate) struct RiskWatch {
    server: Endpoint,
    looked_at: Option<Instant>,
    told: Vec<Risk>,
}

impl RiskWatch {
    pub(crate) fn new(server: Endpoint) -> Self {
        Self { server, looked_at: None, told: Vec::new() }
    }

    /// Asks the server, if it is time. Faults are for the next look to find.
    pub(crate) fn look(&mut self, connection: &mut Connection) {
        if self.looked_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.looked_at = Some(Instant::now());
        if let Ok(risks) = ask(connection) {
            for Risk { setting, effect, remedy } in self.news(risks) {
                warn!(server = %self.server, "risk: {setting}: {effect}; set {remedy}");
            }
        }
    }

    /// Those of which nothing has been told.
    fn news(&mut self, risks: Vec<Risk>) -> Vec<Risk> {
        let news = risks.iter().filter(|risk| !self.told.contains(risk)).cloned().collect();
        self.told = risks;
        news
    }
}

/// Tells the log of the clusters that have several writers, when they are configured.
#[derive(Default)]
pub(crate) struct SeveralWriters {
    /// Their writer hostgroups.
    told: BTreeSet<u32>,
}

impl SeveralWriters {
    pub(crate) fn look(&mut self, policy: &Policy) {
        let several = policy.galera.iter().filter(|cluster| cluster.max_writers > 1);
        let several: BTreeSet<u32> = several.map(|cluster| cluster.writer_hostgroup).collect();
        for hostgroup in several.difference(&self.told) {
            warn!(
                hostgroup,
                "risk: max_writers is more than 1: transactions of two writers that change the same rows fail at COMMIT \
                 (error 1213); set max_writers = 1"
            );
        }
        self.told = several;
    }
}

/// The settings of a server that are a risk.
pub(super) fn of_server(options: &Options) -> Result<Vec<Risk>, Error> {
    ask(&mut Connection::connect(options)?)
}

fn ask(connection: &mut Connection) -> Result<Vec<Risk>, Error> {
    let answer = connection.query(QUESTION)?;
    let rows = (0..).map_while(|row| Some((answer.text(row, 0)?, answer.text(row, 1).unwrap_or_default())));
    Ok(rows.filter_map(|(name, value)| of_variable(name, value)).collect())
}

fn of_variable(name: &str, value: &str) -> Option<Risk> {
    let (effect, remedy) = match (name, value) {
        ("innodb_flush_log_at_trx_commit", "1") => return None,
        ("innodb_flush_log_at_trx_commit", _) => (
            "writes that clients were acknowledged are lost when all servers that have them crash at once",
            "innodb_flush_log_at_trx_commit = 1",
        ),
        ("innodb_snapshot_isolation", "OFF") => (
            "at REPEATABLE READ two transactions that have read a row may both overwrite it, and the first change is lost",
            "innodb_snapshot_isolation = ON",
        ),
        ("wsrep_sync_wait", value) if value != "0" => (
            "each statement waits in the server, although Weir's checks serve all sessions at once",
            "wsrep_sync_wait = 0, and a consistency level where reads need more than their own writes",
        ),
        _ => return None,
    };
    Some(Risk { setting: format!("{name} is {value}"), effect, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_the_log_is_told_once_until_it_changes() {
        let risks = |value: &str| of_variable("wsrep_sync_wait", value).into_iter().collect::<Vec<_>>();
        let mut watch = RiskWatch::new(Endpoint::new("db1", 3306));
        assert_eq!(watch.news(risks("1")), risks("1"));
        assert_eq!(watch.news(risks("1")), []);
        assert_eq!(watch.news(risks("3")), risks("3"));
        assert_eq!((watch.news(risks("0")), watch.news(risks("3"))), (vec![], risks("3")));
    }

    #[test]
    fn settings_that_are_a_risk() {
        let of = |name, value| of_variable(name, value).map(|risk| risk.setting);
        assert_eq!(of("innodb_flush_log_at_trx_commit", "1"), None);
        assert_eq!(
            of("innodb_flush_log_at_trx_commit", "0").as_deref(),
            Some("innodb_flush_log_at_trx_commit is 0")
        );
        assert_eq!(of("innodb_snapshot_isolation", "ON"), None);
        assert!(of("innodb_snapshot_isolation", "OFF").is_some());
        assert_eq!(of("wsrep_sync_wait", "0"), None);
        assert!(of("wsrep_sync_wait", "7").is_some());
    }
}
