//! Names settings of servers with which a cluster loses or mixes up data in a way that no proxy can mend.

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

impl Risk {
    /// Of a row of SHOW GLOBAL VARIABLES; none if the value is no risk, or nothing is known of the variable.
    pub fn of_variable(name: &str, value: &str) -> Option<Self> {
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
        Some(Self { setting: format!("{name} is {value}"), effect, remedy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_a_risk() {
        let of = |name, value| Risk::of_variable(name, value).map(|risk| risk.setting);
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
