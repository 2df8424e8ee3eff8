//! Asks another proxy through its admin interface.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use weir_client::{Connection, Options, QueryResult};
use weir_config::{Cell, ClusterSslMode, ClusterVariables, ProxysqlServer, TableRow, TableRows};
use weir_store::{ColumnKind, Module, TableDef, Version, checksum_of_rows};
use weir_topology::Endpoint;

use crate::Encrypt;

/// How long the rows of a module may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

const VERSIONS: &str = "SELECT name, version, epoch, checksum FROM main.runtime_checksums_values";
const STATUS: &str = "SELECT Variable_Name, Variable_Value FROM stats.stats_mysql_global";

/// Why a module was not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0}")]
    Client(#[from] weir_client::Error),
    #[error(
        "the checksum of its rows is not the one that it announced: they have changed meanwhile, or it is a Weir of another version"
    )]
    OtherRows,
}

/// Another proxy, and what was seen of it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) row: ProxysqlServer,
    connection: Option<(Options, Connection)>,
    options: Option<Options>,
    /// The settings by which its connection is encrypted.
    ssl: Option<(ClusterSslMode, Option<PathBuf>)>,
    versions: Vec<Version>,
    /// When a module was last seen to have changed.
    pub(crate) changed: HashMap<Module, SystemTime>,
    /// When it was last seen at all.
    pub(crate) updated: Option<SystemTime>,
    pub(crate) last_look: Option<Instant>,
    pub(crate) status: Status,
    /// Why it does not answer; only changes are logged.
    silence: Option<String>,
}

/// The state of another proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub(crate) response_time: Duration,
    pub(crate) uptime_s: i64,
    pub(crate) queries: i64,
    pub(crate) clients_connected: i64,
    pub(crate) clients_created: i64,
}

impl Peer {
    pub(crate) fn new(row: ProxysqlServer) -> Self {
        Self {
            row,
            connection: None,
            options: None,
            ssl: None,
            versions: Vec::new(),
            changed: HashMap::new(),
            updated: None,
            last_look: None,
            status: Status::default(),
            silence: None,
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.row.endpoint
    }

    /// What it goes by, as of the last look; empty if it did not answer then.
    pub(crate) fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// Asks what it goes by, and maybe how it does. Ends within about `timeout`, whatever it does.
    pub(crate) fn look(
        &mut self,
        variables: &ClusterVariables,
        encrypt: &Encrypt,
        timeout: Duration,
        with_status: bool,
    ) {
        self.last_look = Some(Instant::now());
        let looked = self.options(variables, encrypt, timeout).and_then(|options| {
            self.options = Some(options);
            self.ssl = Some((variables.ssl_mode, variables.ssl_ca.clone()));
            self.ask(with_status).map_err(|error| explained(&error, variables))
        });
        let from = self.endpoint().to_string();
        match looked {
            Ok(versions) => {
                let now = SystemTime::now();
                for version in &versions {
                    if !self.versions.iter().any(|known| known == version) {
                        self.changed.insert(version.module, now);
                    }
                }
                self.updated = Some(now);
                self.versions = versions;
                if self.silence.take().is_some() {
                    tracing::info!(from, "cluster: the proxy answers");
                }
            }
            Err(error) => {
                self.connection = None;
                self.versions.clear();
                if self.silence.as_ref() != Some(&error) {
                    tracing::warn!(from, error, "cluster: the proxy does not answer");
                }
                self.silence = Some(error);
            }
        }
    }

    /// How it is connected to. A connection that is there goes on as it was made, unless other settings are in force.
    fn options(
        &self,
        variables: &ClusterVariables,
        encrypt: &Encrypt,
        timeout: Duration,
    ) -> Result<Options, String> {
        let Endpoint { host, port } = self.endpoint();
        let options = Options::new(host, *port, &variables.username, variables.password.expose());
        let options = options.timeouts(timeout, timeout);
        let ssl = (variables.ssl_mode, variables.ssl_ca.clone());
        match (&self.connection, &self.ssl) {
            (Some((used, _)), Some(known)) if *known == ssl => Ok(options.tls(used.tls.clone())),
            _ => Ok(options.tls(encrypt(self.endpoint(), variables)?)),
        }
    }

    fn ask(&mut self, with_status: bool) -> Result<Vec<Version>, weir_client::Error> {
        let begun = Instant::now();
        let versions = self.query(VERSIONS)?;
        let response_time = begun.elapsed();
        if with_status {
            let values = self.query(STATUS)?;
            let values: HashMap<&str, i64> =
                values.pairs().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
            let value = |name| values.get(name).copied().unwrap_or(0);
            self.status = Status {
                response_time,
                uptime_s: value("ProxySQL_Uptime"),
                queries: value("Questions"),
                clients_connected: value("Client_Connections_connected"),
                clients_created: value("Client_Connections_created"),
            };
        }
        Ok((0..versions.rows.len()).filter_map(|row| version(&versions, row)).collect())
    }

    fn query(&mut self, sql: &str) -> Result<QueryResult, weir_client::Error> {
        let Some(options) = &self.options else { return Ok(QueryResult::default()) };
        let kept = self.connection.take().filter(|(used, kept)| used == options && !kept.is_broken());
        let mut connection = match kept {
            Some((_, connection)) => connection,
            None => Connection::connect(options)?,
        };
        let result = connection.query(sql)?;
        self.connection = Some((options.clone(), connection));
        Ok(result)
    }

    /// The rows of a module, if they are those of `checksum`.
    ///
    /// # Errors
    /// If it does not answer in time, or has other rows.
    pub(crate) fn fetch(&mut self, module: Module, checksum: u64) -> Result<TableRows, FetchError> {
        if let Some(options) = &mut self.options {
            options.read_timeout = Some(FETCH_TIMEOUT);
        }
        let mut rows = TableRows::new();
        for table in module.tables() {
            // What it was told to go by; runtime_mysql_servers is what it has observed.
            let name = match table.name.as_str() {
                "mysql_servers" => "runtime_weir_loaded_servers".to_owned(),
                name => format!("runtime_{name}"),
            };
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            let found = self.query(&format!("SELECT {} FROM main.{name}", columns.join(", ")))?;
            rows.set(&table.name, found.rows.iter().map(|row| row_of(table, row)).collect());
        }
        match checksum_of_rows(module, &rows) == checksum {
            true => Ok(rows),
            false => Err(FetchError::OtherRows),
        }
    }
}

/// With what to do about it.
fn explained(error: &weir_client::Error, variables: &ClusterVariables) -> String {
    let is_about_tls = matches!(error, weir_client::Error::Unsupported(_) | weir_client::Error::NoTls);
    match variables.ssl_mode {
        ClusterSslMode::Disabled => error.to_string(),
        _ if is_about_tls => format!(
            "{error}: set mysql-have_ssl there; admin-cluster_ssl_mode = 'DISABLED' on both would send passwords in clear"
        ),
        _ => error.to_string(),
    }
}

fn version(result: &QueryResult, row: usize) -> Option<Version> {
    let name = result.text(row, 0)?;
    Some(Version {
        module: Module::ALL.into_iter().find(|module| module.name() == name)?,
        version: result.text(row, 1)?.parse().ok()?,
        epoch: result.text(row, 2)?.parse().ok()?,
        checksum: u64::from_str_radix(result.text(row, 3)?.strip_prefix("0x")?, 16).ok()?,
    })
}

/// A row of text with the types of its columns.
fn row_of(table: &TableDef, values: &[Option<Vec<u8>>]) -> TableRow {
    let mut row = TableRow::new();
    for (column, value) in table.columns.iter().zip(values) {
        let Some(text) = value.as_deref().map(String::from_utf8_lossy) else { continue };
        let cell = match column.kind {
            ColumnKind::Integer => text.parse().map_or_else(|_| Cell::Text(text.into_owned()), Cell::Integer),
            ColumnKind::Real => text.parse().map_or_else(|_| Cell::Text(text.into_owned()), Cell::Real),
            ColumnKind::Text => Cell::Text(text.into_owned()),
        };
        row.insert(column.name.into(), cell);
    }
    row
}
