//! Runs `weir config`: looks at configurations, compares and converts them. Changes no running Weir.

mod check;
mod diff;
mod export;
mod import;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_config::{ConfigError, TableRows};
use weir_store::{DATABASE_FILE, StoreError};

use crate::config_file::Source;

pub(crate) use check::check;

pub(crate) const EXAMPLES: &str = "Examples:
  weir config check -c /etc/proxysql.cnf
  weir config import /var/lib/proxysql/proxysql.db --datadir /var/lib/weir
  weir config diff -c /etc/weir/weir.toml
  weir config export --datadir /var/lib/weir -o weir.toml

Exit status: see the `--help` of each command.";

const CHECK_EXAMPLES: &str = "Examples:
  weir config check -c /etc/weir/weir.toml
  weir config check -c /etc/proxysql.cnf            every row and setting without effect is a warning
  weir config check -c /var/lib/weir/weir.db --json | jq '.faults[]'
  weir config check -c /etc/weir/weir.toml --cluster     also what privileges and options the servers lack

Exit status: 0 if the configuration is valid, 1 if it has errors, 2 for wrong use, 3 if something is missing on a server.";

const DIFF_EXAMPLES: &str = "Examples:
  weir config diff -c /etc/weir/weir.toml           against weir.db in its datadir, from which Weir starts next
  weir config diff -c /etc/proxysql.cnf --datadir /var/lib/weir
  weir config diff -c new.toml --with old.toml      against another file of any form
  weir config diff -c /etc/weir/weir.toml --json | jq -r '.[].table'

Values of passwords are never shown. Exit status: 0 if both are equal, 3 if they differ, 1
for an error, 2 for wrong use.";

const EXPORT_EXAMPLES: &str = "Examples:
  weir config export --datadir /var/lib/weir -o weir.toml     what was saved, as TOML
  weir config export -c /etc/proxysql.cnf -o weir.toml        convert a file of any form
  weir config export --datadir /var/lib/weir --cnf            as ProxySQL's configuration file

Defaults are omitted. Settings that a weir.toml can't contain, such as features that are not built and broken references,
become comments with the reason, and are listed on standard error.
The result contains passwords: with -o only its owner can read it.
Exit status: 0 if the file does everything that its source does, 3 if a setting with an effect became a comment, 1 for
an error, 2 for wrong use.";

const IMPORT_EXAMPLES: &str = "Examples:
  weir config import /var/lib/proxysql/proxysql.db --datadir /var/lib/weir    from ProxySQL's database
  weir config import /etc/proxysql.cnf --datadir /var/lib/weir
  weir config import weir.toml --datadir /var/lib/weir --force                over what was saved before
  weir config import /etc/proxysql.cnf --dry-run --json                       only list settings without effect

`weir serve` starts with the result. A running Weir loads it by LOAD ... FROM DISK.
Exit status: 0 if imported, with a warning for each setting without effect; 1 if not; 2 for wrong use.";

/// What can be done with configurations
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Look for faults, and for what has no effect
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Compare a file with the database, or with another file
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Write a configuration as TOML, or as ProxySQL's configuration file
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Take a configuration into the database, such as ProxySQL's
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// weir.toml, proxysql.cnf, weir.db or proxysql.db
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Also look at the servers of the clusters: what is missing there, and what to do about it
    #[arg(long)]
    pub cluster: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct DiffArgs {
    /// weir.toml, proxysql.cnf, weir.db or proxysql.db
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Where weir.db is [default: as FILE says]
    #[arg(long, value_name = "DIR", conflicts_with = "with")]
    datadir: Option<PathBuf>,
    /// Another file, in place of the database
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// A JSON list
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["config", "datadir"])))]
pub(crate) struct ExportArgs {
    /// A file of any form
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where weir.db is
    #[arg(long, value_name = "DIR")]
    datadir: Option<PathBuf>,
    /// As ProxySQL's configuration file
    #[arg(long)]
    cnf: bool,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// proxysql.cnf, proxysql.db, weir.toml or weir.db
    source: PathBuf,
    /// Where weir.db is or will be [default: as SOURCE says, else /var/lib/weir]
    #[arg(long, value_name = "DIR")]
    datadir: Option<PathBuf>,
    /// In place of what was saved there before
    #[arg(long)]
    force: bool,
    /// Only tell
    #[arg(long)]
    dry_run: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigCommandError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<ConfigError>),
    #[error("weir: {0}")]
    Store(#[from] StoreError),
    #[error("weir: {0}")]
    Write(#[from] text::WriteError),
    #[error("weir: {}: {cause}", path.display())]
    File { path: PathBuf, cause: std::io::Error },
    #[error("weir: {}: already contains a configuration; use --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error("weir: {}: there is no such database", .0.display())]
    NoDatabase(PathBuf),
    #[error("weir: {0}")]
    Json(#[from] serde_json::Error),
}

/// Rows as ProxySQL's configuration file.
///
/// # Errors
/// When a row has no place in its table or in the file.
pub(crate) fn as_cnf(rows: &TableRows) -> Result<String, text::WriteError> {
    text::write(rows, None, text::Form::Cnf).map(|written| written.text)
}

/// Does it.
pub(crate) fn run(command: &ConfigCommand) -> ExitCode {
    let done = match command {
        ConfigCommand::Check(args) => return check(args),
        ConfigCommand::Diff(args) => diff::diff(args),
        ConfigCommand::Export(args) => export::export(args),
        ConfigCommand::Import(args) => import::import(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn read(path: &Path) -> Result<Source, ConfigCommandError> {
    Source::read(path).map_err(ConfigCommandError::Faults)
}

/// The database of a datadir.
fn read_database(datadir: &Path) -> Result<Source, ConfigCommandError> {
    let path = datadir.join(DATABASE_FILE);
    if path.exists() { read(&path) } else { Err(ConfigCommandError::NoDatabase(path)) }
}

/// Where a Weir keeps its data unless it is told something else.
fn default_datadir() -> PathBuf {
    weir_config::Config::default().datadir
}

/// A fault or warning as JSON.
#[derive(serde::Serialize)]
struct Finding<'f> {
    file: &'f str,
    #[serde(skip_serializing_if = "is_zero")]
    line: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'f str,
    reason: &'f str,
}

impl<'f> Finding<'f> {
    fn of(faults: &'f [ConfigError]) -> Vec<Self> {
        let finding = |fault: &'f ConfigError| {
            let ConfigError { file, line, key, reason } = fault;
            Self { file, line: *line, key, reason }
        };
        faults.iter().map(finding).collect()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
