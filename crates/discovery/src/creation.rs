//! Creates accounts on a cluster, and waits until they are everywhere.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{Connection, Error};
use weir_topology::Endpoint;

use crate::proposal::{AccountPlan, Statement};
use crate::walk::{Dialling, PASSWORD_REMEDY};

/// How long an account may take to come to every server.
pub const ARRIVAL_WAIT: Duration = Duration::from_secs(20);
/// Between two looks whether it is there.
const ARRIVAL_PAUSE: Duration = Duration::from_millis(200);

/// Why accounts were not made, and what of them is there.
#[derive(Debug, thiserror::Error)]
pub enum CreationError {
    /// The server does not answer.
    #[error("{server}: {cause}")]
    Server {
        /// Where.
        server: Endpoint,
        /// Why.
        cause: Error,
    },
    /// An account that is there already, with a password that nobody has told.
    #[error("the account '{user}'@'{host}' exists on {server}, and its password is not known")]
    Exists {
        /// Where.
        server: Endpoint,
        /// Its name.
        user: String,
        /// Its host part.
        host: String,
    },
    /// The server has stopped taking writes since it was chosen.
    #[error(
        "{server} takes no writes any more: {hindrance}; run this again when it does, or the cluster has another writer"
    )]
    TakesNoWrites {
        /// Where.
        server: Endpoint,
        /// Why not.
        hindrance: &'static str,
    },
    /// A statement that the server refuses.
    #[error("{server} refuses {statement}: {cause}")]
    Statement {
        /// Where.
        server: Endpoint,
        /// Without its password.
        statement: String,
        /// Why.
        cause: Box<Error>,
        /// SQL that removes what was made before.
        removal: Vec<String>,
    },
    /// A server that was found, not named, wants an account's password to see the account for the first time.
    #[error("{user} was not tried at {server}: it asks for the password itself; {PASSWORD_REMEDY}")]
    Withheld {
        /// Where.
        server: Endpoint,
        /// Its name.
        user: String,
    },
    /// An account that does not come to a server.
    #[error("{user} can't log in at {server} {} s after the account was made: {cause}", ARRIVAL_WAIT.as_secs())]
    Arrival {
        /// Where.
        server: Endpoint,
        /// Its name.
        user: String,
        /// Why.
        cause: Error,
    },
}

/// A server on which accounts can be made.
#[derive(Debug)]
pub struct Origin {
    server: Endpoint,
    connection: Connection,
}

impl Origin {
    /// Logs in with an account that may make others.
    ///
    /// # Errors
    /// If that fails.
    pub fn connect(server: &Endpoint, dialling: Dialling) -> Result<Self, CreationError> {
        let failed = |cause| CreationError::Server { server: server.clone(), cause };
        let Dialling { options, is_tls_optional } = dialling;
        let (mut connection, _) = crate::walk::connect(options, is_tls_optional).map_err(failed)?;
        // The texts are quoted for this mode.
        connection.query("SET SESSION sql_mode = ''").map_err(failed)?;
        Ok(Self { server: server.clone(), connection })
    }

    /// Which of these accounts are there.
    ///
    /// # Errors
    /// If the server does not tell.
    pub fn existing(&mut self, plans: &[AccountPlan]) -> Result<BTreeSet<(String, String)>, CreationError> {
        if plans.is_empty() {
            return Ok(BTreeSet::new());
        }
        // Letters, digits, _ and - only.
        let names: Vec<String> = plans.iter().map(|plan| format!("'{}'", plan.user)).collect();
        let sql = format!("SELECT User, Host FROM mysql.user WHERE User IN ({})", names.join(", "));
        let failed = |cause| CreationError::Server { server: self.server.clone(), cause };
        let rows = self.connection.query(&sql).map_err(failed)?;
        Ok(rows.pairs().map(|(user, host)| (user.to_owned(), host.to_owned())).collect())
    }

    /// The names of accounts that may be those of applications, for a hint: none if the server does not tell.
    pub fn other_accounts(&mut self) -> Vec<String> {
        // Roles of MariaDB have no host.
        let sql = "SELECT DISTINCT User FROM mysql.user WHERE Host <> '' AND User NOT IN ('', 'root', 'mysql', 'mariadb.sys') \
                   AND User NOT LIKE 'mysql.%' ORDER BY User LIMIT 100";
        let rows = self.connection.query(sql).map(|result| result.rows).unwrap_or_default();
        let names = rows.into_iter().filter_map(|row| String::from_utf8(row.into_iter().next()??).ok());
        names.collect()
    }

    /// Whether an account that is there has a password that is known: `is_known` by its name.
    ///
    /// # Errors
    /// The first of which it is not.
    pub fn check_known(
        &self,
        plans: &[AccountPlan],
        existing: &BTreeSet<(String, String)>,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), CreationError> {
        for plan in plans.iter().filter(|plan| !is_known(&plan.user)) {
            let is_there = |host: &&String| existing.contains(&(plan.user.clone(), (*host).clone()));
            if let Some(host) = plan.hosts.iter().find(is_there) {
                let (server, user, host) = (self.server.clone(), plan.user.clone(), host.clone());
                return Err(CreationError::Exists { server, user, host });
            }
        }
        Ok(())
    }

    /// Minutes may lie between the choice of the server and the answer of a user.
    fn check_takes_writes(&mut self) -> Result<(), CreationError> {
        let mut rows = |sql: &str| {
            let asked = self.connection.query(sql);
            let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            asked.map(|result| result.pairs().map(pair).collect::<Vec<_>>())
        };
        let asked = rows(WRITES).and_then(|variables| Ok((variables, rows(QUORUM)?)));
        let server = self.server.clone();
        let (variables, status) = match asked {
            Ok(asked) => asked,
            Err(cause) => return Err(CreationError::Server { server, cause }),
        };
        match hindrance(&variables, &status) {
            Some(hindrance) => Err(CreationError::TakesNoWrites { server, hindrance }),
            None => Ok(()),
        }
    }

    /// Makes the accounts that are not there, and gives all of them their privileges. Returns those that it has made.
    ///
    /// # Errors
    /// If the server takes no writes any more; the first statement that it refuses, with what removes those before it.
    pub fn make(
        &mut self,
        plans: &[AccountPlan],
        existing: &BTreeSet<(String, String)>,
    ) -> Result<Vec<(String, String)>, CreationError> {
        self.check_takes_writes()?;
        let mut made: Vec<(String, String)> = Vec::new();
        let mut removal: Vec<String> = Vec::new();
        for plan in plans {
            for Statement { sql, shown, .. } in plan.statements(existing) {
                if let Err(cause) = self.connection.query(sql.expose()) {
                    let server = self.server.clone();
                    let cause = Box::new(cause);
                    return Err(CreationError::Statement { server, statement: shown, cause, removal });
                }
                let host = plan
                    .hosts
                    .iter()
                    .find(|host| shown.starts_with(&format!("CREATE USER '{}'@'{host}'", plan.user)));
                if let Some(host) = host {
                    made.push((plan.user.clone(), host.clone()));
                    removal.push(plan.removal(host));
                }
            }
        }
        Ok(made)
    }
}

/// How the server is asked whether it takes writes: privileges let an admin write where read_only is on.
const WRITES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'wsrep_on', 'wsrep_provider')";
const QUORUM: &str = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_status'";

/// Why a server with these variables and this status takes no writes.
fn hindrance(variables: &[(String, String)], status: &[(String, String)]) -> Option<&'static str> {
    let value = |name: &str| {
        let row = variables.iter().chain(status).find(|(found, _)| found.eq_ignore_ascii_case(name));
        row.map(|(_, value)| value.as_str())
    };
    let is_off = |value: &str| value.eq_ignore_ascii_case("OFF") || value == "0";
    let is_in_galera = value("wsrep_on").is_some_and(|value| !is_off(value))
        && value("wsrep_provider").is_some_and(|provider| !provider.is_empty() && provider != "none");
    // A server that does not say so is not trusted.
    if !value("read_only").is_some_and(is_off) || value("super_read_only").is_some_and(|value| !is_off(value))
    {
        Some("it is read_only")
    } else if is_in_galera && value("wsrep_cluster_status") != Some("Primary") {
        Some("it has no quorum (wsrep_cluster_status)")
    } else {
        None
    }
}

/// Logs in, and leaves.
///
/// # Errors
/// If that fails.
pub fn log_in(dialling: &Dialling) -> Result<(), Error> {
    let Dialling { options, is_tls_optional } = dialling.clone();
    crate::walk::connect(options, is_tls_optional).map(drop)
}

/// Waits until an account can log in at a server, which the servers' replication takes a moment for.
///
/// # Errors
/// If it can't after [`ARRIVAL_WAIT`].
pub fn await_login(server: &Endpoint, dialling: &Dialling) -> Result<(), CreationError> {
    let begun = Instant::now();
    loop {
        match log_in(dialling) {
            Ok(()) => return Ok(()),
            Err(cause) if begun.elapsed() >= ARRIVAL_WAIT || matches!(cause, Error::PasswordWithheld) => {
                let (server, user) = (server.clone(), dialling.options.user.clone());
                return Err(match cause {
                    Error::PasswordWithheld => CreationError::Withheld { server, user },
                    cause => CreationError::Arrival { server, user, cause },
                });
            }
            Err(_) => thread::sleep(ARRIVAL_PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_made_where_writes_are_taken_only() {
        let said = |text: &str| {
            let pair =
                |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            let rows: Vec<_> = text.split(' ').filter_map(pair).collect();
            hindrance(&rows, &[])
        };
        assert_eq!(said("read_only=OFF super_read_only=OFF"), None);
        assert_eq!(
            said("read_only=OFF wsrep_on=ON wsrep_provider=none wsrep_cluster_status=Disconnected"),
            None
        );
        assert_eq!(said("read_only=OFF wsrep_on=ON wsrep_provider=g.so wsrep_cluster_status=Primary"), None);
        let no_quorum =
            said("read_only=OFF wsrep_on=ON wsrep_provider=g.so wsrep_cluster_status=non-Primary");
        assert!(no_quorum.is_some_and(|text| text.contains("quorum")));
        for read_only in ["", "read_only=ON", "read_only=1", "read_only=OFF super_read_only=ON"] {
            assert_eq!(said(read_only), Some("it is read_only"), "{read_only}");
        }
    }
}
