//! Declares `scheduler` and `proxysql_servers`: programs that Weir runs, and the other proxies.

use std::path::PathBuf;
use std::time::Duration;

use weir_topology::Endpoint;

/// A row of `scheduler`: a program that is run again and again. Key: id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The row's id; without one the next.
    pub id: u32,
    /// Whether it runs, default true.
    pub active: bool,
    /// From one start to the next. Required.
    pub interval: Duration,
    /// The program, an absolute path. Required.
    pub filename: PathBuf,
    /// Its arguments, up to the first that is not given.
    pub arguments: Vec<String>,
    /// For humans.
    pub comment: String,
}

/// A row of `proxysql_servers`: a proxy of the cluster, maybe this one. Key: (hostname, port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxysqlServer {
    /// Where its admin interface is; the port's default is 6032.
    pub endpoint: Endpoint,
    /// Kept for ProxySQL's sake, default 0.
    pub weight: u32,
    /// For humans.
    pub comment: String,
}
