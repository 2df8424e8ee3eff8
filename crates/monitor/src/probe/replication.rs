//! Probes a server with asynchronous replication.

use weir_client::{Connection, Error, QueryResult};
use weir_topology::ReplicaState;

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'innodb_read_only', \
    'super_read_only', 'server_uuid', 'server_id', 'server_uid', 'gtid_domain_id')";
/// MariaDB's statement: all sources, as the default connection alone may not be the one.
const SOURCES_MARIADB: &str = "SHOW ALL SLAVES STATUS";
/// MySQL's, from 8.0.22 on: all channels.
const SOURCES_MYSQL: &str = "SHOW REPLICA STATUS";

/// `asks_source`: how far it is behind whom needs a privilege, and is asked only where that counts.
pub(super) fn state(connection: &mut Connection, asks_source: bool) -> Result<ReplicaState, Error> {
    let is_mariadb = connection.server_version().contains("MariaDB");
    let variables = connection.query(VARIABLES)?;
    let sources = match (asks_source, is_mariadb) {
        (false, _) => None,
        (true, true) => Some(connection.query(SOURCES_MARIADB)?),
        (true, false) => Some(connection.query(SOURCES_MYSQL)?),
    };
    Ok(ReplicaState::from_rows(variables.pairs(), sources.iter().flat_map(rows)))
}

/// Each row as headings and values.
fn rows(result: &QueryResult) -> impl Iterator<Item = impl Iterator<Item = (&str, Option<&str>)>> {
    (0..result.rows.len()).map(move |row| {
        let names = result.columns.iter().enumerate();
        names.map(move |(column, name)| (name.as_str(), result.text(row, column)))
    })
}
