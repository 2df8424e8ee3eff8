//! Runs the control plane: everything that happens beside the path of a statement.
//!
//! [`Monitor`] looks at the servers, has [`weir_topology::roles`] decide who writes and who reads, and publishes the
//! result. Its threads:
//!
//! ```text
//! probe (one per server) ──observation──┐
//! probe ...              ──observation──┼──► owner ── roles() ──► publish(Arc<Roles>), log
//! the data path ──suspicion, failure────┘      │
//!                                              └──orders: now, faster, end──► probes
//! causal probe (one per server of a cluster) ──► ServerShared::covered_until_ns
//! assist (one per Galera cluster): evicts dead nodes, see [`weir_eviction`]
//! ```
//!
//! # What the monitor's account needs
//!
//! On Galera and for servers without a cluster no privilege at all: `CREATE USER monitor@'%' IDENTIFIED BY '...'` is
//! enough, with `mysql_native_password` or a cached `caching_sha2_password` (the connections are not encrypted unless
//! `use_ssl` says so). Found out on MariaDB 10.11 with Galera 26.4.23, and on MySQL 9.7:
//!
//! | statement | how often | privilege |
//! | --- | --- | --- |
//! | `SHOW GLOBAL STATUS WHERE Variable_name IN (...)` | `monitor_galera_healthcheck_interval` | none; about 0.3 ms of the server's CPU |
//! | `SHOW GLOBAL VARIABLES WHERE Variable_name IN (...)` | the cluster's interval | none; about 0.3 ms |
//! | `SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'` | at each connect | none |
//! | `SELECT` of `replication_group_members`, `replication_group_member_stats` | `monitor_groupreplication_healthcheck_interval` | SELECT on these two tables of `performance_schema`; without, a member has no role |
//! | `SHOW REPLICA STATUS` or `SHOW ALL SLAVES STATUS`, where `max_replication_lag` or `auto_failover` is set | `monitor_read_only_interval` | REPLICATION CLIENT, on MariaDB REPLICA MONITOR; without, the server has no role |
//! | `SET SESSION wsrep_sync_wait = 1`, `SET SESSION group_replication_consistency = 'BEFORE'` | at each connect of the causal probe | none |
//! | `SELECT 1 FROM information_schema.ENGINES LIMIT 1` | every 25 ms | none; about 0.06 ms, on Group Replication 0.2 ms and a message in the group |
//! | `SELECT @@GLOBAL.gtid_executed`, `WAIT_FOR_EXECUTED_GTID_SET()`; on MariaDB `@@GLOBAL.gtid_binlog_pos`, `MASTER_GTID_WAIT()` | for each replica every 25 ms | none |
//! | the same with `weir.topology` and `weir.instances` in place of it, where the account may | every 25 ms | SELECT on both; without, facts alone tell who writes |
//! | INSERT, UPDATE, DELETE of a row there | every second, every 3 s without other Weirs | these, and CREATE for the first start |
//! | `SELECT @@GLOBAL.gtid_executed`; on MariaDB `@@GLOBAL.gtid_current_pos` | every 1 to 20 ms while a statement with a `min_gtid` waits for the server, not on Galera; every second in the minute after that | none |
//! | COM_PING | in a cluster: every second; else `monitor_ping_interval` | none |
//! | what [`weir_eviction::Evictor`] lists | where `weir_topology.assist` is not off | SUPER; without, dead nodes are not evicted |
//! | a login | every 500 ms while a server is shunned | none |
//!
//! SHOW also answers on a Galera node outside the Primary component, where SELECT is refused with error 1047.
//! Each server of a cluster has two connections of the account, with replication up to three; every other server one; and one
//! more while statements wait for transactions.

mod causal_probe;
mod change_watch;
mod clock;
mod epoch_client;
mod epoch_tables;
mod epoch_trouble;
mod epoch_writer;
mod gtid_watch;
mod latest_roles;
mod monitor;
mod probe;
mod probe_log;
mod probe_thread;
mod server_address;
mod server_check;
mod settings;
mod topology_thread;

pub use clock::monotonic_ns;
pub use latest_roles::LatestRoles;
pub use monitor::{Monitor, Planner, Reporter};
pub use probe_log::{GaleraSeen, GroupSeen, LagSeen, ProbeCounts, ProbeLog, Probed};
pub use server_address::{ServerAddress, ServerAddresses};
pub use server_check::{Finding, NOT_EVICTED, Remedy, Risk, ServerCheck, examine};
pub use settings::Reach;
