//! Reads the configuration, ProxySQL's tables and columns written as TOML, and checks it whole.
//!
//! [`parse`] either gives a [`Config`] in which every value is in range and every reference resolves, or every fault
//! of the file at once, each with its line. Nothing is ignored: a key that is unknown is refused with the nearest
//! known name, and a setting that ProxySQL has and Weir has not built yet is refused with the words "not built yet",
//! unless its value means "off".
//!
//! Each layer uses only those before it: `value` (what is written), `table` (what there is), `report` (faults and where
//! they are), `field` (reading one value), `model` (what a configuration is), `check` (rows together), `read` (from files
//! and rows to a configuration).
//!
//! ```
//! let text = r#"
//! [[mysql_servers]]
//! hostname = "10.0.0.1"
//! hostgroup_id = 100
//! "#;
//! let config = weir_config::parse(text, "weir.toml").unwrap();
//! assert_eq!(config.servers[0].port, 3306);
//!
//! let errors = weir_config::parse("[mysql_variables]\nthread = 4", "weir.toml").unwrap_err();
//! assert_eq!(errors[0].to_string(), "weir.toml:2: mysql_variables.thread: unknown key, did you mean \"threads\"?");
//! ```

mod check;
mod field;
pub mod fuzzing;
mod in_force;
mod model;
pub mod private_file;
mod read;
mod report;
mod table;
mod value;

use std::io::Read;
use std::path::Path;

use toml_edit::Document;

pub use field::kind::OneValue;
pub use in_force::InForce;
pub use model::admin_variables::{AdminAccount, AdminVariables};
pub use model::cluster_variables::{ClusterModule, ClusterSslMode, ClusterVariables};
pub use model::clusters::{Cluster, ClusterHostgroup, ReplicationHostgroup, WriterIsAlsoReader};
pub use model::config::{Config, WarnedRows};
pub use model::hostgroups::{
    Balancing, HostgroupAttributes, ReadPreference, SendProxyProtocol, WeirHostgroup,
};
pub use model::list::{is_secret_name, nearest_variable, variable, variables};
pub use model::listeners::{ListenAddress, Listener, ListenerMode};
pub use model::log_variables::LogVariables;
pub use model::mysql_variables::{AuthPlugin, IoDriver, MysqlVariables, WorkerScheduling};
pub use model::partial_read::PartialRead;
pub use model::peers::{Job, ProxysqlServer};
pub use model::proxy_networks::ProxyNetworks;
pub use model::server_tls::TlsFiles;
pub use model::server_tls::{NEEDS_AUTHORITY, ServerSslParams, ServerTlsParams, TlsCipher, TlsVersions};
pub use model::servers::{MysqlServer, ServerStatus};
pub use model::sockets::{CONTROL_SOCKET, Collision, Setting};
pub use model::topology_table::{Assist, AutoDiscover, OwnAccount, SWITCHOVER_GRACE_MS_MAX, WeirTopology};
pub use model::users::{IsolationLevel, MysqlUser};
pub use read::cnf::{CnfFile, RowLines, read_cnf};
pub use read::file::FILE_SIZE_BYTES_MAX;
pub use read::tables::TABLE_ROWS_MAX;
pub use report::error::{ConfigError, ERRORS_MAX, Strictness};
pub use table::column::{Column, Table};
pub use table::columns::{CONSISTENCY_TIMEOUT_MS, DEADLOCK_RETRIES, TRANSACTION_REPLAY_MAX_BYTES};
pub use table::tables;
pub use table::variable::{Effect, Variable};
pub use value::password::{Password, Secret};
pub use value::rows::{Cell, TableRow, TableRows};
pub use value::suggest::nearest;

/// Reads and checks a configuration. `file_name` is only used in messages.
///
/// # Errors
/// All faults of the text, ordered by line; of faults in the TOML syntax itself only the first.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Vec<ConfigError>> {
    let mut report = report::error::Report::new(file_name, text);
    let Some(document) = document(text, &mut report) else { return Err(report.into_errors()) };
    let config = read::tables::read(read::tables::Tables::File(document.as_table()), &mut report);
    report.finish(config).map(|(config, _)| config)
}

/// [`parse`] and [`file_rows`] of the same text, which is read once.
///
/// # Errors
/// As [`parse`]; else as [`file_rows`].
pub fn parse_with_rows(text: &str, file_name: &str) -> Result<(Config, TableRows), Vec<ConfigError>> {
    let mut report = report::error::Report::new(file_name, text);
    let Some(document) = document(text, &mut report) else { return Err(report.into_errors()) };
    let config = read::tables::read(read::tables::Tables::File(document.as_table()), &mut report);
    if report.len() > 0 {
        return Err(report.into_errors());
    }
    let rows = read::file::of_file(document.as_table(), &mut report);
    report.finish(config).map(|(config, _)| (config, rows))
}

/// The rows of a file in TOML as they stand there: for a database, whose own reader checks them.
///
/// # Errors
/// As [`parse`] of what can't be rows: faults in the syntax, and values that no column takes.
pub fn file_rows(text: &str, file_name: &str) -> Result<TableRows, Vec<ConfigError>> {
    let mut report = report::error::Report::new(file_name, text);
    let Some(document) = document(text, &mut report) else { return Err(report.into_errors()) };
    let rows = read::file::of_file(document.as_table(), &mut report);
    let errors = report.into_errors();
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

/// Checks the rows of a database. The configuration comes with warnings: of what has no effect or refers to nothing.
///
/// # Errors
/// All faults; with [`Strictness::Strict`] what would be warnings, too.
pub fn read_rows(
    rows: &TableRows,
    strictness: Strictness,
) -> Result<(Config, Vec<ConfigError>), Vec<ConfigError>> {
    read_rows_for(rows, strictness, None, |_, _| true)
}

/// [`read_rows`] with some tables as they are in a configuration that is there, and only those warnings that `is_wanted`: by [`ConfigError::key`], and by the table or variable of another
/// module that has not got what that refers to, such as `mysql_servers`, or nothing. They are chosen before they are
/// counted, so that others do not take their place.
///
/// # Errors
/// As [`read_rows`].
pub fn read_rows_for(
    rows: &TableRows,
    strictness: Strictness,
    kept: Option<PartialRead<'_>>,
    is_wanted: impl Fn(&str, &str) -> bool + 'static,
) -> Result<(Config, Vec<ConfigError>), Vec<ConfigError>> {
    let mut report = report::error::Report::of_rows(strictness, Box::new(is_wanted));
    let config = read::tables::read(read::tables::Tables::Rows(rows, kept), &mut report);
    report.finish(config)
}

fn document<'t>(text: &'t str, report: &mut report::error::Report) -> Option<Document<&'t str>> {
    if text.len() > FILE_SIZE_BYTES_MAX {
        report.refuse_line(0, "", format!("longer than {FILE_SIZE_BYTES_MAX} bytes"));
        return None;
    }
    match Document::parse(text) {
        Ok(document) => Some(document),
        Err(fault) => {
            let line = fault.span().map_or(0, |span| report.line_of(span.start));
            report.refuse_line(line, "", fault.message().trim().replace('\n', "; "));
            None
        }
    }
}

/// [`parse`] for the file at `path`.
///
/// # Errors
/// As [`parse`]; also one without a line if the file can't be read or is not UTF-8.
pub fn load(path: impl AsRef<Path>) -> Result<Config, Vec<ConfigError>> {
    let path = path.as_ref();
    let file_name = path.display().to_string();
    let mut text = String::new();
    // One byte more than allowed, so that parse() sees that it is too long.
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(FILE_SIZE_BYTES_MAX as u64 + 1).read_to_string(&mut text));
    match read {
        Ok(_) => parse(&text, &file_name),
        Err(cause) => Err(vec![ConfigError {
            file: file_name,
            line: 0,
            key: String::new(),
            reason: format!("can't be read: {cause}"),
        }]),
    }
}

#[cfg(test)]
mod tests;
