//! Helps programs that start servers of their own.

mod haproxy;
pub mod network;
mod start;
mod united;
mod weir;

use std::path::PathBuf;

pub use haproxy::HaProxyPair;
pub use start::Start;
pub use united::{Server, Servers};
pub use weir::{RunningWeir, Told};
use weir_testkit::{Galera, Process, TestkitError, preflight, weir_binary};

use crate::report::Machine;
use crate::{Account, Error, Usage};

/// The programs that are compared or that compare, and the option that makes them tell their version.
const PROGRAMS: [(&str, &str); 3] = [("haproxy", "-v"), ("proxysql", "--version"), ("sysbench", "--version")];

/// What all of them are told on their command lines.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// The weir binary [default: WEIR_BIN, or the one beside this program]
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// Keep the directory with the servers' data, configurations and logs
    #[arg(long)]
    pub keep: bool,
}

impl ServerArgs {
    /// The binary to start.
    ///
    /// # Errors
    /// If none was named, and none is where it should be.
    pub fn weir_binary(&self) -> Result<PathBuf, Error> {
        match &self.weir {
            Some(binary) => Ok(binary.clone()),
            None => Ok(weir_binary()?),
        }
    }
}

/// The machine, the cluster's version, and those of the programs that are installed.
///
/// # Errors
/// If the cluster's first node does not answer.
pub fn machine(cluster: &Galera) -> Result<Machine, Error> {
    let version = cluster.node(1).root_query("SELECT VERSION()")?.concat().concat();
    let installed =
        PROGRAMS.iter().filter_map(|(name, option)| Some((preflight::program(name, "").ok()?, *option)));
    let installed: Vec<_> = installed.collect();
    Ok(Machine::observe(&version, installed.iter().map(|(path, option)| (path.as_path(), *option))))
}

impl From<weir_testkit::Account> for Account {
    fn from(account: weir_testkit::Account) -> Account {
        Account::new(account.user, account.password)
    }
}

impl From<TestkitError> for Error {
    fn from(error: TestkitError) -> Error {
        match error {
            TestkitError::Cancelled => Error::Interrupted,
            error => Error::Server(Box::new(error)),
        }
    }
}

/// What a child process takes.
pub fn usage(process: &Process) -> Usage {
    Usage::of(process.pid())
}
