//! Tells a server with asynchronous replication what a procedure wants: the statements of both families.
//!
//! | | MySQL 8.0.23 and later | MariaDB |
//! | --- | --- | --- |
//! | takes no writes | `super_read_only`, which sets `read_only`, too | `read_only`: accounts with READ_ONLY ADMIN still write |
//! | position | `gtid_executed` | `gtid_current_pos` |
//! | received | with `Retrieved_Gtid_Set` | with `Gtid_IO_Pos` |
//! | has it all | `WAIT_FOR_EXECUTED_GTID_SET()` | `MASTER_GTID_WAIT()` |
//! | another source | `SOURCE_AUTO_POSITION = 1` | `MASTER_USE_GTID = slave_pos`; for a former writer the position is set before |

use std::time::Duration;

use weir_client::{Connection, Error, Options, QueryResult};
use weir_sql::literal::{text, with_escapes};
use weir_topology::procedure::{Entry, Login, Server, ServerError, Source};
use weir_topology::{Endpoint, Link, ReplicaState, SourceLink, positions};

use crate::account::connect;

/// ER_SPECIFIC_ACCESS_DENIED_ERROR: the text names the privilege.
const PRIVILEGE_MISSING: u16 = 1227;
/// ER_NO_SUCH_TABLE, ER_BAD_DB_ERROR.
const MISSING: [u16; 2] = [1146, 1049];
/// ER_TABLEACCESS_DENIED_ERROR, ER_DBACCESS_DENIED_ERROR: whoever may not read the table has not written it either.
const DENIED: [u16; 2] = [1142, 1044];
/// The journal of switchovers: what it is for is in [`weir_topology::procedure`].
const MAKE: [&str; 2] = [
    "CREATE DATABASE IF NOT EXISTS weir",
    "CREATE TABLE IF NOT EXISTS weir.switchovers (writer_hostgroup INT UNSIGNED NOT NULL PRIMARY KEY, from_server \
     VARCHAR(300) NOT NULL, to_server VARCHAR(300) NOT NULL, by_instance VARCHAR(100) NOT NULL, begun TIMESTAMP NOT \
     NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
];
/// No source is called so; a statement about it does nothing, after privileges have been looked at.
const NO_SOURCE: &str = "weir_none";
/// How long SET read_only may wait for statements of clients beside Weir, in seconds.
const LOCK_WAIT_S: u64 = 3;
/// A lock is lost after so many seconds of silence.
const LOCKED_MAX_S: u64 = 90;
/// A longer position is not waited for. Positions of usual servers have less than 1 KiB.
const POSITION_BYTES_MAX: usize = 64 * 1024;

/// A connection with the account that may change replication.
pub(crate) struct ReplicationServer {
    endpoint: Endpoint,
    user: String,
    connection: Connection,
    is_mariadb: bool,
    id: String,
}

impl ReplicationServer {
    /// Logs in. The statements here have no backslashes with a meaning, and no comments.
    pub(crate) fn connect(endpoint: &Endpoint, options: &Options) -> Result<Self, ServerError> {
        let mut connection = connect(options).map_err(|cause| ServerError::login(endpoint, cause))?;
        let is_mariadb = connection.server_version().contains("MariaDB");
        let of = |error| said(endpoint, error);
        connection
            .query(&format!(
                "SET SESSION sql_mode = '', SESSION autocommit = 1, SESSION lock_wait_timeout = {LOCK_WAIT_S}"
            ))
            .map_err(of)?;
        let id = if is_mariadb { "SELECT @@GLOBAL.server_id" } else { "SELECT @@GLOBAL.server_uuid" };
        let id = connection.query(id).map_err(of)?.first().unwrap_or_default().to_owned();
        Ok(Self { endpoint: endpoint.clone(), user: options.user.clone(), connection, is_mariadb, id })
    }

    fn ask_position(&mut self, of_mariadb: &str) -> Result<String, ServerError> {
        let variable = if self.is_mariadb { of_mariadb } else { "gtid_executed" };
        let answer = self.query(&format!("SELECT @@GLOBAL.{variable}"))?;
        match self.plain(answer.first().unwrap_or_default())? {
            position if position.is_empty() => {
                Err(ServerError::NoPositions { server: self.endpoint.clone() })
            }
            position => Ok(position),
        }
    }

    /// A position without spaces, fit to be a literal.
    fn plain(&self, text: &str) -> Result<String, ServerError> {
        let position: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let is_plain =
            position.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | ',' | '_'));
        if !is_plain || position.len() > POSITION_BYTES_MAX {
            return Err(ServerError::UnknownPositions { server: self.endpoint.clone() });
        }
        Ok(position)
    }

    /// Connects to its source at once, and not only when its time has come.
    pub(crate) fn reconnect(&mut self) -> Result<(), ServerError> {
        self.stop_receiving()?;
        self.query(if self.is_mariadb { "START SLAVE IO_THREAD" } else { "START REPLICA IO_THREAD" })
            .map(drop)
    }

    fn query(&mut self, statement: &str) -> Result<QueryResult, ServerError> {
        self.connection.query(statement).map_err(|error| said(&self.endpoint, error))
    }
}

impl Server for ReplicationServer {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn check_privileges(&mut self) -> Result<(), ServerError> {
        let nobody = with_escapes(NO_SOURCE);
        let (stop, reset) = match self.is_mariadb {
            true => (format!("STOP SLAVE {nobody}"), format!("RESET SLAVE {nobody} ALL")),
            false => (
                format!("STOP REPLICA FOR CHANNEL {nobody}"),
                format!("RESET REPLICA ALL FOR CHANNEL {nobody}"),
            ),
        };
        for statement in ["SET GLOBAL read_only = @@GLOBAL.read_only", &stop, &reset] {
            match self.connection.query(statement) {
                Err(Error::Server { code: PRIVILEGE_MISSING, message, .. }) => {
                    let (server, user) = (self.endpoint.clone(), self.user.clone());
                    return Err(ServerError::LacksPrivilege { server, user, message });
                }
                // There is no such source.
                Ok(_) | Err(Error::Server { .. }) => {}
                Err(error) => return Err(said(&self.endpoint, error)),
            }
        }
        Ok(())
    }

    fn lock(&mut self, name: &str) -> Result<bool, ServerError> {
        self.query(&format!("SET SESSION wait_timeout = {LOCKED_MAX_S}"))?;
        Ok(self.query(&format!("SELECT GET_LOCK({}, 0)", text(name)))?.first() == Some("1"))
    }

    fn sources(&mut self) -> Result<Vec<Source>, ServerError> {
        let rows =
            self.query(if self.is_mariadb { "SHOW ALL SLAVES STATUS" } else { "SHOW REPLICA STATUS" })?;
        let source = |row| {
            let value = |names: [&str; 2]| column(&rows, row, names).unwrap_or_default();
            let is_yes = |names| value(names).eq_ignore_ascii_case("Yes");
            let applies = is_yes(["Replica_SQL_Running", "Slave_SQL_Running"]);
            let is_running = applies && is_yes(["Replica_IO_Running", "Slave_IO_Running"]);
            let has_positions =
                value(["Auto_Position", ""]) == "1" || !["", "No"].contains(&value(["Using_Gtid", ""]));
            let errors = [value(["Last_IO_Error", ""]), value(["Last_SQL_Error", ""])];
            Source {
                id: value(["Source_UUID", "Master_Server_Id"]).to_owned(),
                is_fit: is_running && has_positions,
                has_positions,
                applies,
                received: value(["Retrieved_Gtid_Set", "Gtid_IO_Pos"]).to_owned(),
                link: link(&rows, row),
                is_tls: is_yes(["Source_SSL_Allowed", "Master_SSL_Allowed"]),
                error: errors.into_iter().find(|error| !error.is_empty()).unwrap_or_default().to_owned(),
            }
        };
        Ok((0..rows.rows.len()).map(source).collect())
    }

    fn is_read_only(&mut self) -> Result<bool, ServerError> {
        Ok(self.query("SELECT @@GLOBAL.read_only")?.first() == Some("1"))
    }

    fn set_read_only(&mut self, is_read_only: bool) -> Result<(), ServerError> {
        let statement = match (self.is_mariadb, is_read_only) {
            (true, true) => "SET GLOBAL read_only = ON",
            (false, true) => "SET GLOBAL super_read_only = ON",
            // On MySQL that ends super_read_only, too.
            (_, false) => "SET GLOBAL read_only = OFF",
        };
        self.query(statement).map(drop)
    }

    fn position(&mut self) -> Result<String, ServerError> {
        self.ask_position("gtid_current_pos")
    }

    fn received(&mut self, source: &Source) -> Result<String, ServerError> {
        let applied = self.position()?;
        let received = self.plain(&source.received)?;
        let has_more = !received.is_empty() && received != applied;
        Ok(if has_more { format!("{applied},{received}") } else { applied })
    }

    fn covers(&mut self, one: &str, other: &str) -> Result<bool, ServerError> {
        if self.is_mariadb {
            return Ok(positions::covers(one, other));
        }
        Ok(self.query(&format!("SELECT GTID_SUBSET({}, {})", text(other), text(one)))?.first() == Some("1"))
    }

    fn history(&mut self) -> Result<String, ServerError> {
        self.ask_position("gtid_binlog_state")
    }

    fn lacks(&mut self, history: &str) -> Result<Option<String>, ServerError> {
        let own = self.history()?;
        if self.is_mariadb {
            return Ok((!positions::contains(&own, history)).then(|| history.to_owned()));
        }
        let answer = self.query(&format!("SELECT GTID_SUBTRACT({}, {})", text(history), text(&own)))?;
        let lacks = answer.first().map(ToOwned::to_owned);
        lacks
            .map(|text| (!text.is_empty()).then_some(text))
            .ok_or_else(|| ServerError::no_answer(&self.endpoint, "no answer"))
    }

    fn wait_for(&mut self, position: &str, timeout: Duration) -> Result<(), ServerError> {
        let function = if self.is_mariadb { "MASTER_GTID_WAIT" } else { "WAIT_FOR_EXECUTED_GTID_SET" };
        let seconds = timeout.as_secs().max(1);
        let answer = self.query(&format!("SELECT {function}({}, {seconds})", text(position)))?;
        if answer.first() == Some("0") {
            return Ok(());
        }
        Err(ServerError::NotApplied { server: self.endpoint.clone(), seconds })
    }

    fn has_part_beyond(&mut self, received: &str) -> Result<bool, ServerError> {
        if self.is_mariadb {
            return Ok(false);
        }
        let owned = self.query("SELECT @@GLOBAL.gtid_owned")?;
        let owned = without_owners(owned.first().unwrap_or_default());
        Ok(!owned.is_empty() && !self.covers(received, &owned)?)
    }

    fn stop_receiving(&mut self) -> Result<(), ServerError> {
        self.query(if self.is_mariadb { "STOP SLAVE IO_THREAD" } else { "STOP REPLICA IO_THREAD" }).map(drop)
    }

    fn stop_replication(&mut self) -> Result<(), ServerError> {
        self.query(if self.is_mariadb { "STOP SLAVE" } else { "STOP REPLICA" }).map(drop)
    }

    fn start_replication(&mut self) -> Result<(), ServerError> {
        self.query(if self.is_mariadb { "START SLAVE" } else { "START REPLICA" }).map(drop)
    }

    fn forget_source(&mut self) -> Result<(), ServerError> {
        self.query(if self.is_mariadb { "RESET SLAVE ALL" } else { "RESET REPLICA ALL" }).map(drop)
    }

    fn follow(&mut self, source: &Endpoint) -> Result<(), ServerError> {
        // MySQL's applier goes on: of a transaction of which it has a part only, the new source sends the whole.
        match self.is_mariadb {
            true => self.stop_replication()?,
            false => self.stop_receiving()?,
        }
        let (host, port) = (with_escapes(&source.host), source.port);
        let change = match self.is_mariadb {
            true => format!("CHANGE MASTER TO MASTER_HOST = {host}, MASTER_PORT = {port}"),
            false => format!("CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}"),
        };
        let changed = self.query(&change);
        // In any case: it may go on where it was.
        self.start_replication()?;
        changed.map(drop)
    }

    fn become_replica(&mut self, source: &Endpoint, login: &Login) -> Result<(), ServerError> {
        let (host, port) = (with_escapes(&source.host), source.port);
        let (user, password) = (with_escapes(&login.user), with_escapes(&login.password));
        let tls = u8::from(login.is_tls);
        if self.is_mariadb {
            let position = self.position()?;
            self.query(&format!("SET GLOBAL gtid_slave_pos = {}", text(&position)))?;
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

    fn entry(&mut self, writer_hostgroup: u32) -> Result<Option<Entry>, ServerError> {
        let select = format!(
            "SELECT from_server, to_server, by_instance FROM weir.switchovers WHERE writer_hostgroup = {writer_hostgroup}"
        );
        let rows = match self.connection.query(&select) {
            Ok(rows) => rows,
            Err(error)
                if error.code().is_some_and(|code| MISSING.contains(&code) || DENIED.contains(&code)) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(said(&self.endpoint, error)),
        };
        if rows.rows.is_empty() {
            return Ok(None);
        }
        let [from, to, by] = [0, 1, 2].map(|column| rows.text(0, column).unwrap_or_default());
        let nonsense = |cause| ServerError::ForeignRow { server: self.endpoint.clone(), cause };
        let endpoint = |text: &str| text.parse::<Endpoint>().map_err(nonsense);
        Ok(Some(Entry {
            writer_hostgroup,
            from: endpoint(from)?,
            to: endpoint(to)?,
            by_instance: by.to_owned(),
        }))
    }

    fn enter(&mut self, entry: &Entry) -> Result<Option<String>, ServerError> {
        let Entry { writer_hostgroup, from, to, by_instance } = entry;
        let [from, to, by] =
            [from.to_string(), to.to_string(), by_instance.clone()].map(|value| text(&value));
        let replace = format!(
            "REPLACE INTO weir.switchovers (writer_hostgroup, from_server, to_server, by_instance) VALUES \
             ({writer_hostgroup}, {from}, {to}, {by})"
        );
        let mut entered = self.connection.query(&replace);
        if entered.as_ref().is_err_and(|error| error.code().is_some_and(|code| MISSING.contains(&code))) {
            let made = MAKE.iter().try_for_each(|make| self.connection.query(make).map(drop));
            entered = made.and_then(|()| self.connection.query(&replace));
        }
        match entered {
            Ok(_) => Ok(None),
            Err(error @ Error::Server { .. }) => {
                let (endpoint, user) = (&self.endpoint, &self.user);
                let hint = "GRANT SELECT, INSERT, DELETE, CREATE ON weir.* TO";
                Ok(Some(format!("{endpoint}: {error}; {hint} {user}")))
            }
            Err(error) => Err(said(&self.endpoint, error)),
        }
    }

    fn strike_out(&mut self, writer_hostgroup: u32) -> Result<(), ServerError> {
        let delete = format!("DELETE FROM weir.switchovers WHERE writer_hostgroup = {writer_hostgroup}");
        match self.connection.query(&delete) {
            Ok(_) => Ok(()),
            Err(error)
                if error.code().is_some_and(|code| MISSING.contains(&code) || DENIED.contains(&code)) =>
            {
                Ok(())
            }
            Err(error) => Err(said(&self.endpoint, error)),
        }
    }
}

/// What came in the place of a result. The statement is not shown: it may hold a password.
fn said(endpoint: &Endpoint, error: Error) -> ServerError {
    match error {
        Error::Server { code, sqlstate, message } => {
            ServerError::Refused { server: endpoint.clone(), code, sqlstate, message }
        }
        silent => ServerError::no_answer(endpoint, silent),
    }
}

/// The column that has one of these names in a row.
fn column<'a>(rows: &'a QueryResult, row: usize, names: [&str; 2]) -> Option<&'a str> {
    let is_wanted = |column: &String| names.iter().any(|name| column.eq_ignore_ascii_case(name));
    rows.text(row, rows.columns.iter().position(is_wanted)?)
}

/// `gtid_owned` as a set of transactions: "uuid:5#12:6#13" names the thread that owns each.
fn without_owners(owned: &str) -> String {
    let mut in_owner = false;
    let is_kept = |c: &char| {
        in_owner = *c == '#' || in_owner && c.is_ascii_digit();
        !in_owner && !c.is_ascii_whitespace()
    };
    owned.chars().filter(is_kept).collect()
}

/// A source as the probes see it.
fn link(rows: &QueryResult, row: usize) -> SourceLink {
    let names = rows.columns.iter().enumerate();
    let source = names.map(|(column, name)| (name.as_str(), rows.text(row, column)));
    let nobody = || SourceLink { id: String::new(), endpoint: None, link: Link::Idle };
    ReplicaState::from_rows([], [source]).source.unwrap_or_else(nobody)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_client::Error;
    use weir_topology::Endpoint;

    #[test]
    fn a_server_error_has_the_words_of_the_client_behind_the_name() {
        let db1 = Endpoint::new("db1", 3306);
        let refused = || {
            let (sqlstate, message) = ("HY000".to_owned(), "it is read_only".to_owned());
            Error::Server { code: 1290, sqlstate, message }
        };
        let silent = || Error::Timeout(Duration::from_secs(5));
        assert_eq!(super::said(&db1, refused()).to_string(), format!("db1:3306: {}", refused()));
        assert_eq!(super::said(&db1, silent()).to_string(), format!("db1:3306: {}", silent()));
    }

    #[test]
    fn owned_transactions_are_a_set() {
        let one = "a4bc3141-e79e-11f1-8053-02fc00000001";
        let owned = format!("{one}:41#9:42#10,\n{one}:tag:7#11");
        assert_eq!(super::without_owners(&owned), format!("{one}:41:42,{one}:tag:7"));
        assert_eq!(super::without_owners(""), "");
    }
}
