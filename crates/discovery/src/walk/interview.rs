//! Asks a server what it is and whom it knows. Changes nothing.

use std::time::{Duration, Instant};

use weir_client::{Connection, Error, Options, QueryResult};

use crate::facts::{Answers, Facts, NamedRow, ROWS_MAX, Refused};
use crate::walk::Limits;

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'hostname', 'port', \
    'server_id', 'server_uuid', 'read_only', 'super_read_only', 'log_bin', 'log_slave_updates', 'log_replica_updates', \
    'gtid_mode', 'require_secure_transport', 'innodb_flush_log_at_trx_commit', 'innodb_snapshot_isolation', \
    'wsrep_on', 'wsrep_provider', 'wsrep_cluster_name', 'wsrep_cluster_address', 'wsrep_node_name', 'wsrep_sync_wait', \
    'wsrep_provider_options', 'wsrep_desync', 'wsrep_reject_queries', 'pxc_maint_mode', \
    'group_replication_group_name', 'group_replication_single_primary_mode')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_connected', 'wsrep_cluster_status', \
    'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id', 'wsrep_cluster_size', 'wsrep_cluster_weight', \
    'wsrep_incoming_addresses', 'wsrep_local_state', 'wsrep_local_index', 'wsrep_gcomm_uuid', 'wsrep_provider_version')";
const MEMBERS: &str = "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE \
    FROM performance_schema.replication_group_members";
const WHO: &str = "SELECT USER(), CURRENT_USER()";
const GRANTS: &str = "SHOW GRANTS";
const BINLOG_READERS: &str =
    "SELECT HOST FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
/// MySQL 9 may be without the other one.
const BINLOG_READERS_MYSQL: &str =
    "SELECT PROCESSLIST_HOST FROM performance_schema.threads WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'";
/// From this version on MySQL has statements that say "replica" (8.0.22).
const SAYS_REPLICA: (u16, u16, u16) = (8, 0, 22);

/// The most rows of a list, and bytes of an answer: more says nothing more of a server.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Logs in. Where TLS is optional and the server offers none, in clear; whether it is encrypted comes with it.
pub(crate) fn connect(mut options: Options, is_tls_optional: bool) -> Result<(Connection, bool), Error> {
    options.rows_max = ROWS_MAX * 16;
    options.reply_bytes_max = ANSWER_BYTES_MAX;
    let is_encrypted = options.tls.is_some();
    match Connection::connect(&options) {
        // Nothing has been sent but the wish for TLS.
        Err(Error::NoTls) if is_encrypted && is_tls_optional => {
            Connection::connect(&options.tls(None)).map(|connection| (connection, false))
        }
        connected => connected.map(|connection| (connection, is_encrypted)),
    }
}

/// Asks all there is to ask, and how long an answer takes.
///
/// # Errors
/// If the connection breaks, or the server does not even show its variables.
pub(super) fn interview(connection: &mut Connection, limits: &Limits) -> Result<(Facts, Duration), Error> {
    let mut answers = Answers { greeting: connection.server_version().to_owned(), ..Answers::default() };
    answers.variables = pairs(&connection.query(VARIABLES)?);
    let known = Facts::from_answers(&answers);
    let is_mariadb = known.product == crate::facts::Product::MariaDb;
    let mut asked = Asked { connection, refused: Vec::new() };
    if known.galera.is_some() {
        answers.status = asked.optional(STATUS, "its cluster")?.as_ref().map(pairs).unwrap_or_default();
    }
    if known.group.is_some() {
        answers.members = asked.rows(MEMBERS, "the members of its group")?;
    }
    let says_replica = !is_mariadb && known.version_number >= SAYS_REPLICA;
    let (sources, replicas) = match (is_mariadb, says_replica) {
        (true, _) => ("SHOW ALL SLAVES STATUS", "SHOW SLAVE HOSTS"),
        (false, true) => ("SHOW REPLICA STATUS", "SHOW REPLICAS"),
        (false, false) => ("SHOW SLAVE STATUS", "SHOW SLAVE HOSTS"),
    };
    answers.sources = asked.rows(sources, "its source")?;
    answers.replicas = asked.rows(replicas, "its replicas")?;
    if limits.asks_about_account {
        asked.about_account(&mut answers, is_mariadb)?;
    }
    answers.refused = asked.refused;
    let rtt = shortest(connection, limits.pings)?;
    Ok((Facts::from_answers(&answers), rtt))
}

/// A connection, and what was not answered there.
struct Asked<'c> {
    connection: &'c mut Connection,
    refused: Vec<Refused>,
}

impl Asked<'_> {
    /// None if the server refuses.
    fn optional(
        &mut self,
        statement: &'static str,
        lost: &'static str,
    ) -> Result<Option<QueryResult>, Error> {
        match self.connection.query(statement) {
            Ok(result) => Ok(Some(result)),
            Err(error @ Error::Server { .. }) => {
                self.refused.push(Refused { statement, lost, cause: error.to_string() });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn rows(&mut self, statement: &'static str, lost: &'static str) -> Result<Vec<NamedRow>, Error> {
        Ok(self.optional(statement, lost)?.map(|result| named_rows(&result)).unwrap_or_default())
    }

    fn about_account(&mut self, answers: &mut Answers, is_mariadb: bool) -> Result<(), Error> {
        answers.dump_hosts = self.binlog_readers(is_mariadb)?;
        if let Some(who) = self.optional(WHO, "how it sees this host")? {
            answers.user = who.text(0, 0).unwrap_or_default().to_owned();
            answers.current_user = who.text(0, 1).unwrap_or_default().to_owned();
        }
        let grants = self.optional(GRANTS, "what the account may do")?;
        answers.grants = grants.map(|rows| first_column(&rows)).unwrap_or_default();
        Ok(())
    }

    /// Without PROCESS only the account's own threads are shown, which is no error.
    fn binlog_readers(&mut self, is_mariadb: bool) -> Result<Vec<String>, Error> {
        let refused = self.refused.len();
        let readers = match self.optional(BINLOG_READERS, "who reads its binary log")? {
            None if !is_mariadb => {
                self.refused.truncate(refused);
                self.optional(BINLOG_READERS_MYSQL, "who reads its binary log")?
            }
            readers => readers,
        };
        Ok(readers.map(|rows| first_column(&rows)).unwrap_or_default())
    }
}

/// The shortest time of an answer to a question that costs the server nothing: that is the way there and back, and what is
/// more is load, here or there, which weights of a configuration must not go by.
fn shortest(connection: &mut Connection, pings: usize) -> Result<Duration, Error> {
    let mut shortest = Duration::MAX;
    for _ in 0..pings.max(1) {
        let begun = Instant::now();
        connection.ping()?;
        shortest = shortest.min(begun.elapsed());
    }
    Ok(shortest)
}

fn pairs(result: &QueryResult) -> Vec<(String, String)> {
    result.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn first_column(result: &QueryResult) -> Vec<String> {
    (0..result.rows.len()).filter_map(|row| Some(result.text(row, 0)?.to_owned())).collect()
}

fn named_rows(result: &QueryResult) -> Vec<NamedRow> {
    let row = |row: usize| {
        let names = result.columns.iter().enumerate();
        NamedRow(
            names.map(|(column, name)| (name.clone(), result.text(row, column).map(str::to_owned))).collect(),
        )
    };
    (0..result.rows.len().min(ROWS_MAX)).map(row).collect()
}
