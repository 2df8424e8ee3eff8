//! Finds settings of servers with which a cluster loses or mixes up data in a way that no proxy can mend, and tells the log of
//! each once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::warn;
use weir_client::{Connection, Error, Options};
pub use weir_topology::Risk;
use weir_topology::{Endpoint, Policy};

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
    Ok(rows.filter_map(|(name, value)| Risk::of_variable(name, value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_the_log_is_told_once_until_it_changes() {
        let risks = |value: &str| Risk::of_variable("wsrep_sync_wait", value).into_iter().collect::<Vec<_>>();
        let mut watch = RiskWatch::new(Endpoint::new("db1", 3306));
        assert_eq!(watch.news(risks("1")), risks("1"));
        assert_eq!(watch.news(risks("1")), []);
        assert_eq!(watch.news(risks("3")), risks("3"));
        assert_eq!((watch.news(risks("0")), watch.news(risks("3"))), (vec![], risks("3")));
    }
}
