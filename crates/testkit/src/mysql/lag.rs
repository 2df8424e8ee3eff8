//! Makes replicas late.

use super::{Family, Mysql};
use crate::TestkitError;

impl Mysql {
    /// From now on this replica applies everything so many seconds after the source has committed it.
    pub fn delay_replica(&self, index: usize, seconds: u32) -> Result<(), TestkitError> {
        let sql = match self.family() {
            Family::Mysql => {
                format!("STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {seconds}; START REPLICA")
            }
            Family::Mariadb => {
                format!("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = {seconds}; START SLAVE")
            }
        };
        self.server(index).root_query(&sql).map(drop)
    }

    /// This replica receives what its source writes, and applies nothing of it.
    pub fn stop_applier(&self, index: usize) -> Result<(), TestkitError> {
        let sql = match self.family() {
            Family::Mysql => "STOP REPLICA SQL_THREAD",
            Family::Mariadb => "STOP SLAVE SQL_THREAD",
        };
        self.server(index).root_query(sql).map(drop)
    }

    /// Ends that.
    pub fn start_applier(&self, index: usize) -> Result<(), TestkitError> {
        let sql = match self.family() {
            Family::Mysql => "START REPLICA SQL_THREAD",
            Family::Mariadb => "START SLAVE SQL_THREAD",
        };
        self.server(index).root_query(sql).map(drop)
    }
}
