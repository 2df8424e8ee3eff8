//! The control plane: what happens beside the path of a statement.
//!
//! [`Monitor`] looks at the servers, has [`weir_topology::roles`] decide who writes and who reads, and publishes the
//! result. Its threads:
//!
//! ```text
//! probe (one per server) ──observation──┐
//! probe ...              ──observation──┼──► owner ── roles() ──► publish(Arc<Roles>), log
//! the data path ──suspicion, failure────┘      │
//!                                              └──orders: now, faster, end──► probes
//! causal probe (one per Galera server) ──► ServerShared::covered_until_ns
//! ```
//!
//! # What the monitor's account needs
//!
//! No privilege at all: `CREATE USER monitor@'%' IDENTIFIED BY '...'` is enough, with `mysql_native_password` or a
//! cached `caching_sha2_password` (the connections are not encrypted). Found out on MariaDB 10.11 with Galera
//! 26.4.23:
//!
//! | statement | how often | privilege |
//! | --- | --- | --- |
//! | `SHOW GLOBAL STATUS WHERE Variable_name IN (...)` | `monitor_galera_healthcheck_interval` | none; about 0.3 ms of the server's CPU |
//! | `SHOW GLOBAL VARIABLES WHERE Variable_name IN (...)` | the same | none; about 0.3 ms |
//! | `SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'` | at each connect | none |
//! | `SET SESSION wsrep_sync_wait = 1` | at each connect of the causal probe | none |
//! | `SELECT 1 FROM information_schema.ENGINES LIMIT 1` | every 25 ms | none; about 0.06 ms |
//! | COM_PING | Galera: every second; else `monitor_ping_interval` | none |
//! | a login | every 500 ms while a server is shunned | none |
//!
//! SHOW also answers on a node outside the Primary component, where SELECT is refused with error 1047.
//! Each Galera server has two connections of the account, every other server one.

mod causal;
mod clock;
mod monitor;
mod owner;
mod probe;
mod probe_thread;
mod settings;

pub use clock::monotonic_ns;
pub use monitor::{Monitor, Reporter};
