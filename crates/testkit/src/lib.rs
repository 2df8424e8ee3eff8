//! Runs real servers for tests, the demo and the benchmark, and breaks them on request.
//!
//! - [`Galera`]: a MariaDB Galera cluster on loopback addresses, up in seconds, whose nodes can be stopped, killed,
//!   paused and started again.
//! - [`Mysql`]: Oracle MySQL or MariaDB servers without Galera, alone, with replicas, or as a group.
//! - [`Weir`], [`HaProxy`] and [`ProxySql`]: the proxies, as child processes with a configuration made for the occasion.
//! - [`Sysbench`]: load, and its report as numbers.
//! - [`FakeServer`]: a MySQL server that follows a script, for what real ones can't be made to do on command.
//! - [`wire`]: a client that sends exactly what it is told, for what real ones never send.
//!
//! Servers are children of the calling process and end with the value that stands for them. What a crashed run
//! leaves behind is ended by the next one (see [`RunDir`]). Everything listens on 127.0.0.0/8 only.

mod error;
pub mod fake_server;
mod galera;
mod haproxy;
mod mysql;
mod not_run;
pub mod preflight;
mod process;
mod proxysql;
mod resolver;
mod run_dir;
mod sysbench;
mod template;
mod versions;
mod weir;
pub mod wire;

pub use error::{PortHolder, TestkitError};
pub use fake_server::{FakeGreeting, FakeLogin, FakeServer, Script, Step};
pub use galera::{Account, Galera, GaleraOptions, Node, Place};
pub use haproxy::{HaProxy, HaProxyCheck, HaProxyOptions};
pub use mysql::{Family, Mysql, MysqlOptions, MysqlRouter, MysqlRouterOptions, MysqlServer};
pub use not_run::{NOT_RUN_FILE, not_run};
pub use process::Process;
pub use proxysql::{ProxySql, ProxySqlOptions, ProxySqlValue};
pub use resolver::OwnResolver;
pub use run_dir::{ROOT, RunDir, clean};
/// The signals that [`Process::signal`] takes.
pub use rustix::process::Signal;
pub use sysbench::{Sysbench, SysbenchReport, SysbenchRun};
pub use template::cache_dir;
pub use weir::{OUTCOMES_TABLE, Weir, WeirConfig, hostgroup, weir_binary};
