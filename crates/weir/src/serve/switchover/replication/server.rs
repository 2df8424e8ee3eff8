//! A server with asynchronous replication, and what it is told in a switchover: the statements of both families.
//!
//! | | MySQL 8.0.23 and later | MariaDB |
//! | --- | --- | --- |
//! | takes no writes | `super_read_only`, which sets `read_only`, too | `read_only`: accounts with READ_ONLY ADMIN still write |
//! | position | `gtid_executed` | `gtid_current_pos` |
//! | has it all | `WAIT_FOR_EXECUTED_GTID_SET()` | `MASTER_GTID_WAIT()` |
//! | another source | `SOURCE_AUTO_POSITION = 1` | `MASTER_USE_GTID = slave_pos`; for a former writer the position is set before |

use std::time::Duration;

use weir_client::{Connection, Error, Options, QueryResult};
use weir_topology::Endpoint;

use super::super::account::connect;

/// ER_SPECIFIC_ACCESS_DENIED_ERROR: the text names the privilege.
const PRIVILEGE_MISSING: u16 = 1227;
/// No source is called so; a statement about it does nothing, after privileges have been looked at.
const NO_SOURCE: &str = "weir_none";
/// How long SET read_only may wait for statements of clients beside Weir, in seconds.
const LOCK_WAIT_S: u64 = 3;
/// A longer position is not waited for. Positions of usual servers have less than 1 KiB.
const POSITION_BYTES_MAX: usize = 64 * 1024;

/// A connection with the account that may change replication.
pub(super) struct ReplicationServer {
    pub(super) endpoint: Endpoint,
    user: String,
    connection: Connection,
    is_mariadb: bool,
    /// `server_uuid`, or MariaDB's `server_id`: how a replica names its source.
    pub(super) id: String,
}

/// Where a replica replicates from.
pub(super) struct Source {
    /// The source's `server_uuid`, or MariaDB's `server_id`.
    pub(super) id: String,
    /// Both threads run, and positions are global.
    pub(super) is_fit: bool,
    /// The connection to the source is encrypted.
    is_tls: bool,
    /// What the server says of its last error; empty for none.
    pub(super) error: String,
}

/// Whom a new replica logs in as at its source.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl ReplicationServer {
    /// Logs in. The statements here have no backslashes with a meaning, and no comments.
    pub(super) fn connect(endpoint: &Endpoint, options: &Options) -> Result<Self, String> {
        let mut connection = connect(options)?;
        let is_mariadb = connection.server_version().contains("MariaDB");
        let of = |error: Error| format!("{endpoint}: {error}");
        connection
            .query(&format!("SET SESSION sql_mode = '', SESSION lock_wait_timeout = {LOCK_WAIT_S}"))
            .map_err(of)?;
        let id = if is_mariadb { "SELECT @@GLOBAL.server_id" } else { "SELECT @@GLOBAL.server_uuid" };
        let id = connection.query(id).map_err(of)?.first().unwrap_or_default().to_owned();
        Ok(Self { endpoint: endpoint.clone(), user: options.user.clone(), connection, is_mariadb, id })
    }

    /// Tries everything that needs a privilege, without an effect.
    ///
    /// # Errors
    /// The privilege that is missing, in the server's words.
    pub(super) fn check_privileges(&mut self) -> Result<(), String> {
        let (stop, reset) = match self.is_mariadb {
            true => (format!("STOP SLAVE '{NO_SOURCE}'"), format!("RESET SLAVE '{NO_SOURCE}' ALL")),
            false => (
                format!("STOP REPLICA FOR CHANNEL '{NO_SOURCE}'"),
                format!("RESET REPLICA ALL FOR CHANNEL '{NO_SOURCE}'"),
            ),
        };
        for statement in ["SET GLOBAL read_only = @@GLOBAL.read_only", &stop, &reset] {
            match self.connection.query(statement) {
                Err(Error::Server { code: PRIVILEGE_MISSING, message, .. }) => {
                    return Err(format!("{} lacks a privilege at {}: {message}", self.user, self.endpoint));
                }
                // There is no such source.
                Ok(_) | Err(Error::Server { .. }) => {}
                Err(error) => return Err(self.said(&error)),
            }
        }
        Ok(())
    }

    /// Where it replicates from; nothing if it replicates from nobody.
    pub(super) fn sources(&mut self) -> Result<Vec<Source>, String> {
        let rows =
            self.query(if self.is_mariadb { "SHOW ALL SLAVES STATUS" } else { "SHOW REPLICA STATUS" })?;
        let source = |row| {
            let value = |names: [&str; 2]| column(&rows, row, names).unwrap_or_default();
            let is_yes = |names| value(names).eq_ignore_ascii_case("Yes");
            let is_running = is_yes(["Replica_IO_Running", "Slave_IO_Running"])
                && is_yes(["Replica_SQL_Running", "Slave_SQL_Running"]);
            let has_positions =
                value(["Auto_Position", ""]) == "1" || !["", "No"].contains(&value(["Using_Gtid", ""]));
            let errors = [value(["Last_IO_Error", ""]), value(["Last_SQL_Error", ""])];
            Source {
                id: value(["Source_UUID", "Master_Server_Id"]).to_owned(),
                is_fit: is_running && has_positions,
                is_tls: is_yes(["Source_SSL_Allowed", "Master_SSL_Allowed"]),
                error: errors.into_iter().find(|error| !error.is_empty()).unwrap_or_default().to_owned(),
            }
        };
        Ok((0..rows.rows.len()).map(source).collect())
    }

    /// Takes writes, or takes none any more. That waits for statements that write now.
    pub(super) fn set_read_only(&mut self, is_read_only: bool) -> Result<(), String> {
        let statement = match (self.is_mariadb, is_read_only) {
            (true, true) => "SET GLOBAL read_only = ON",
            (false, true) => "SET GLOBAL super_read_only = ON",
            // On MySQL that ends super_read_only, too.
            (_, false) => "SET GLOBAL read_only = OFF",
        };
        self.query(statement).map(drop)
    }

    /// All transactions that it has, in its family's notation.
    pub(super) fn position(&mut self) -> Result<String, String> {
        let question = if self.is_mariadb {
            "SELECT @@GLOBAL.gtid_current_pos"
        } else {
            "SELECT @@GLOBAL.gtid_executed"
        };
        let answer = self.query(question)?;
        let position: String =
            answer.first().unwrap_or_default().chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let is_plain =
            position.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | ',' | '_'));
        if position.is_empty() || !is_plain || position.len() > POSITION_BYTES_MAX {
            return Err(format!("{} has no global transaction ids", self.endpoint));
        }
        Ok(position)
    }

    /// Waits until it has applied a position.
    pub(super) fn wait_for(&mut self, position: &str, timeout: Duration) -> Result<(), String> {
        let function = if self.is_mariadb { "MASTER_GTID_WAIT" } else { "WAIT_FOR_EXECUTED_GTID_SET" };
        let timeout_s = timeout.as_secs().max(1);
        let answer = self.query(&format!("SELECT {function}('{position}', {timeout_s})"))?;
        if answer.first() == Some("0") {
            return Ok(());
        }
        Err(format!("{} has not applied everything within {timeout_s} s", self.endpoint))
    }

    pub(super) fn stop_replication(&mut self) -> Result<(), String> {
        self.query(if self.is_mariadb { "STOP SLAVE" } else { "STOP REPLICA" }).map(drop)
    }

    pub(super) fn start_replication(&mut self) -> Result<(), String> {
        self.query(if self.is_mariadb { "START SLAVE" } else { "START REPLICA" }).map(drop)
    }

    /// Forgets its source, so that a restart does not make it a replica again.
    pub(super) fn forget_source(&mut self) -> Result<(), String> {
        self.query(if self.is_mariadb { "RESET SLAVE ALL" } else { "RESET REPLICA ALL" }).map(drop)
    }

    /// A replica goes on at another source.
    pub(super) fn follow(&mut self, source: &Endpoint) -> Result<(), String> {
        self.stop_replication()?;
        let (host, port) = (quoted(&source.host), source.port);
        let change = match self.is_mariadb {
            true => format!("CHANGE MASTER TO MASTER_HOST = {host}, MASTER_PORT = {port}"),
            false => format!("CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}"),
        };
        let changed = self.query(&change);
        // In any case: it may go on where it was.
        self.start_replication()?;
        changed.map(drop)
    }

    /// A former writer becomes a replica, from where it stands; encrypted as `like`.
    pub(super) fn become_replica(
        &mut self,
        source: &Endpoint,
        login: &Login,
        like: &Source,
    ) -> Result<(), String> {
        let (host, port) = (quoted(&source.host), source.port);
        let (user, password) = (quoted(&login.user), quoted(&login.password));
        let tls = u8::from(like.is_tls);
        if self.is_mariadb {
            let position = self.position()?;
            self.query(&format!("SET GLOBAL gtid_slave_pos = '{position}'"))?;
            self.query(&format!(
                "CHANGE MASTER TO MASTER_HOST = {host}, MASTER_PORT = {port}, MASTER_USER = {user}, \
                 MASTER_PASSWORD = {password}, MASTER_SSL = {tls}, MASTER_USE_GTID = slave_pos"
            ))?;
        } else {
            self.query(&format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}, SOURCE_USER = {user}, \
                 SOURCE_PASSWORD = {password}, SOURCE_SSL = {tls}, GET_SOURCE_PUBLIC_KEY = 1, \
                 SOURCE_AUTO_POSITION = 1"
            ))?;
        }
        self.start_replication()
    }

    fn query(&mut self, statement: &str) -> Result<QueryResult, String> {
        self.connection.query(statement).map_err(|error| self.said(&error))
    }

    /// The statement is not shown: it may hold a password.
    fn said(&self, error: &Error) -> String {
        format!("{}: {error}", self.endpoint)
    }
}

/// The column that has one of these names in a row.
fn column<'a>(rows: &'a QueryResult, row: usize, names: [&str; 2]) -> Option<&'a str> {
    let is_wanted = |column: &String| names.iter().any(|name| column.eq_ignore_ascii_case(name));
    rows.text(row, rows.columns.iter().position(is_wanted)?)
}

/// Text as a literal, with backslashes escaped as sql_mode '' wants it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        assert_eq!(quoted(r"a'b\c"), r"'a''b\\c'");
    }
}
