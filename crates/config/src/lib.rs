//! The configuration file: ProxySQL's tables and columns written as TOML, checked whole.
//!
//! [`parse`] either gives a [`Config`] in which every value is in range and every reference resolves, or every fault
//! of the file at once, each with its line. Nothing is ignored: a key that is unknown is refused with the nearest
//! known name, and a setting that ProxySQL has and Weir has not built yet is refused with the words "not built yet",
//! unless its value means "off".
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
mod clusters;
mod cnf;
mod error;
mod fields;
pub mod fuzzing;
mod hostgroups;
mod listeners;
mod names;
mod password;
mod query_rules;
mod rows;
mod server_tls;
mod statements;
mod suggest;
mod tables;
mod topology;
mod topology_table;
mod types;
mod user_attributes;
mod variables;

use std::io::Read;
use std::path::Path;

use toml_edit::Document;

pub use clusters::{Cluster, ClusterHostgroup, ReplicationHostgroup, WriterIsAlsoReader};
pub use cnf::{CnfFile, RowLines, read_cnf};
pub use error::ConfigError;
pub use hostgroups::{Balancing, HostgroupAttributes, WeirHostgroup};
pub use listeners::{ListenAddress, Listener, ListenerMode};
pub use password::{Password, Secret};
pub use rows::{Cell, Strictness, TableRow, TableRows};
pub use server_tls::{ServerSslParams, ServerTlsParams, TlsCipher, TlsVersions};
pub use topology_table::{Assist, OwnAccount, SWITCHOVER_GRACE_MS_MAX, WeirTopology};
pub use types::{Config, IsolationLevel, MysqlServer, MysqlUser, ServerStatus, TlsFiles};
pub use variables::{AuthPlugin, IoDriver, MysqlVariables};

/// The longest configuration file that is read, in bytes.
pub const FILE_SIZE_BYTES_MAX: usize = 4 << 20;

/// The most rows one table may have.
pub const TABLE_ROWS_MAX: usize = 10_000;

/// The most faults that are reported of one file; the last one then says that there are more.
pub const ERRORS_MAX: usize = 500;

/// Reads and checks a configuration. `file_name` is only used in messages.
///
/// # Errors
/// All faults of the text, ordered by line; of faults in the TOML syntax itself only the first.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Vec<ConfigError>> {
    let mut report = error::Report::new(file_name, text);
    if text.len() > FILE_SIZE_BYTES_MAX {
        report.refuse(0, "", format!("longer than {FILE_SIZE_BYTES_MAX} bytes"));
        return Err(report.into_errors());
    }
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(fault) => {
            let line = fault.span().map_or(0, |span| report.line_of(span.start));
            report.refuse(line, "", fault.message().trim().replace('\n', "; "));
            return Err(report.into_errors());
        }
    };
    let config = tables::read(document.as_table(), &mut report);
    let errors = report.into_errors();
    if errors.is_empty() { Ok(config) } else { Err(errors) }
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
