//! `[mysql_variables]`: ProxySQL's `mysql-` variables that Weir has built, and Weir's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_routing::HintOrder;

use crate::fields::Fields;
use crate::hostgroups::{self, THROTTLE_MAX};
use crate::listeners::{self, ListenAddress};
use crate::log_variables::{self, LogVariables};
use crate::names;
use crate::password::Secret;
use crate::server_tls::{self, ServerTlsParams};
use crate::suggest::unknown_word;
use crate::tables::{PASSWORD_BYTES_MAX, SCHEMA_CHARS_MAX};
use crate::types::TlsFiles;

/// A day and a week in milliseconds: beyond them a time-out is a mistyped number.
const DAY_MS: u64 = 86_400_000;
const WEEK_MS: u64 = 7 * DAY_MS;
const YEAR_SEC: u64 = 365 * 86_400;
/// More digests than this take more memory than statistics are worth: some 4 GB.
const QUERY_DIGESTS_MAX: u32 = 10_000_000;
/// More workers than this gain nothing on any machine known.
const THREADS_MAX: u32 = 255;

/// The variables. A field has the variable's name; a time is a [`Duration`] whatever unit the file uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlVariables {
    /// Data-plane workers, 1..255. Default: the number of CPU cores (ProxySQL's is 4).
    pub threads: u32,
    /// Where clients connect, default 0.0.0.0:6033. Never empty. [`Config::listeners`](crate::Config::listeners)
    /// has them all.
    pub interfaces: Vec<ListenAddress>,
    /// The most clients at a time, default 10000.
    pub max_connections: u32,
    /// How long a client may take to log in, default 10 s.
    pub connect_timeout_client: Duration,
    /// How long one attempt to connect to a server may take, default 1 s.
    pub connect_timeout_server: Duration,
    /// How long a statement may wait for a connection in all, default 10 s.
    pub connect_timeout_server_max: Duration,
    /// How often a statement is given to another server because this one failed before it was sent, or turned it away
    /// before it did anything, default 10.
    pub connect_retries_on_failure: u32,
    /// How often a statement that can't have had an effect is sent again after its server was lost, default 1; a rule's
    /// `retries` comes first.
    pub query_retries_on_failure: u32,
    /// The pause after a failed attempt to connect, default 1 ms; longer after several.
    pub connect_retries_delay: Duration,
    /// Failed connections to a server within a second after which it is shunned, default 5.
    pub shun_on_failures: u32,
    /// How long it is, at least, default 10 s (`_sec`).
    pub shun_recovery_time_sec: Duration,
    /// Others are preferred to servers whose pings take longer, default 1 s; 0: no limit.
    pub default_max_latency_ms: Duration,
    /// The schema of clients that name none. Default none, as at a server (ProxySQL: information_schema).
    pub default_schema: String,
    /// How long a statement may run, default a day.
    pub default_query_timeout: Duration,
    /// How long every statement is held before it is sent, default 0.
    pub default_query_delay: Duration,
    /// How often a flagOUT may lead back to the first query rule, default 0: never.
    pub query_processor_iterations: u32,
    /// When hints in comments are looked at, default after the rules.
    pub query_processor_first_comment_parsing: HintOrder,
    /// The longest command of a client, in bytes, default 64 MiB.
    pub max_allowed_packet: u32,
    /// The version in the greeting; none (default): that of the servers.
    pub server_version: Option<String>,
    /// How long a client may be idle, default 8 h.
    pub wait_timeout: Duration,
    /// Whether the system asks a silent peer over TCP whether it is still there, client or server, default true.
    pub use_tcp_keepalive: bool,
    /// After how long a silence, default 120 s (in seconds); zero: as the system has it.
    pub tcp_keepalive_time: Duration,
    /// Prepared statements kept per server connection, default 20.
    pub max_stmts_per_connection: u32,
    /// Whether a statement is killed when its client goes away, default true.
    pub kill_backend_connection_when_disconnect: bool,
    /// The plugin that the greeting offers, default mysql_native_password.
    pub default_authentication_plugin: AuthPlugin,
    /// How often an idle server connection is pinged, default 10 s.
    pub ping_interval_server_msec: Duration,
    /// How long the answer may take before the connection is closed, default 200 ms.
    pub ping_timeout_server: Duration,
    /// Idle server connections kept, in percent of a server's max_connections, default 10.
    pub free_connections_pct: u32,
    /// Whether so many connections are opened in advance, default false.
    pub connection_warming: bool,
    /// A connection on which code may have run that no text shows (triggers, functions behind views) is reset before
    /// another session gets it, even if the server has reported no change. Default false.
    pub reset_after_hidden_code: bool,
    /// How old a server connection may become, default 0: as old as it likes.
    pub connection_max_age_ms: Duration,
    /// How long a connection's login counts before it is logged in anew for the next session, default a minute; 0: no limit.
    pub login_max_age_ms: Duration,
    /// Statements for each new server connection, one by one. Default none.
    pub init_connect: Vec<String>,
    /// Connections opened for a hostgroup in a second, default 1000000.
    pub throttle_connections_per_sec_to_hostgroup: u32,
    /// How long a transaction may take in all, default 4 h.
    pub max_transaction_time: Duration,
    /// How long a client may be silent in a transaction, default 4 h.
    pub max_transaction_idle_time: Duration,
    /// Whether clients may use TLS, default true.
    pub have_ssl: bool,
    /// Weir's own: `tls_cert_file` and `tls_key_file`. None (default): a self-signed certificate in `datadir`.
    pub tls_files: Option<TlsFiles>,
    /// Weir's own: how bytes are moved, default `auto`.
    pub io_driver: IoDriver,
    /// Weir's own: when workers get a processor, default `batch`.
    pub worker_scheduling: WorkerScheduling,
    /// `ssl_p2s_ca`, `ssl_p2s_cert`, `ssl_p2s_key`: TLS towards servers without a row of their own. Weir's own,
    /// `ssl_p2s_verify_identity`, default false, is for all.
    pub ssl_p2s: ServerTlsParams,
    /// Weir's own: how long running transactions may go on after SIGTERM, default 30 s.
    pub drain_timeout_ms: Duration,
    /// Whether statistics of statements are kept by digest, default true.
    pub query_digests: bool,
    /// Letters in digests become small, default false.
    pub query_digests_lowercase: bool,
    /// NULL in a statement is a literal, default false.
    pub query_digests_replace_null: bool,
    /// Digits in names become `?`, default false.
    pub query_digests_no_digits: bool,
    /// Comments stay in digests, default false.
    pub query_digests_keep_comment: bool,
    /// Statistics tell clients' addresses apart, default false.
    pub query_digests_track_hostname: bool,
    /// The longest digest in bytes, default 2048.
    pub query_digests_max_digest_length: u32,
    /// The longest digest that is made at all, in bytes, default 65000.
    pub query_digests_max_query_length: u32,
    /// Literals shown of a long list, default 3.
    pub query_digests_grouping_limit: u32,
    /// Groups shown of a long row of lists, default 10; 0 for all.
    pub query_digests_groups_grouping_limit: u32,
    /// Weir's own: digests kept, each with its hostgroup, schema, user and client apart, default 1000000.
    pub query_digests_max: u32,
    /// The account that looks at servers, default monitor.
    pub monitor_username: String,
    /// Its password in clear, default monitor.
    pub monitor_password: Secret,
    /// How often a Galera node is looked at, default 100 ms (ProxySQL's is 5 s).
    pub monitor_galera_healthcheck_interval: Duration,
    /// How long it may take to answer, default 800 ms.
    pub monitor_galera_healthcheck_timeout: Duration,
    /// Time-outs in a row after which it is offline, default 3.
    pub monitor_galera_healthcheck_max_timeout_count: u32,
    /// How often a server of a Group Replication group is looked at, default 100 ms (ProxySQL's is 5 s).
    pub monitor_groupreplication_healthcheck_interval: Duration,
    /// How long it may take to answer, default 800 ms.
    pub monitor_groupreplication_healthcheck_timeout: Duration,
    /// Time-outs in a row after which it is offline, default 3.
    pub monitor_groupreplication_healthcheck_max_timeout_count: u32,
    /// How often read_only and lag of a server with replication are looked at, default 100 ms (ProxySQL's is 1 s).
    pub monitor_read_only_interval: Duration,
    /// How long it may take to answer, default 800 ms.
    pub monitor_read_only_timeout: Duration,
    /// Time-outs in a row after which it is offline, default 3.
    pub monitor_read_only_max_timeout_count: u32,
    /// How far behind a replica counts as whose replication does not run, in seconds, default 60.
    pub monitor_slave_lag_when_null: u32,
    /// Whether writers of `mysql_replication_hostgroups` read, default true.
    pub monitor_writer_is_also_reader: bool,
    /// For how long what probes have seen is kept, default 10 min; at most 20000 looks of each kind are.
    pub monitor_history: Duration,
    /// How long the monitor may take to connect, default 600 ms.
    pub monitor_connect_timeout: Duration,
    /// How often a server of a plain hostgroup is pinged, default 1 s (ProxySQL's is 8 s).
    pub monitor_ping_interval: Duration,
    /// How long it may take to answer, default 1 s.
    pub monitor_ping_timeout: Duration,
    /// Time-outs in a row after which it is shunned and its connections are cut, default 3.
    pub monitor_ping_max_failures: u32,
    /// How often it is looked whether names of servers are to be looked up again, default a minute; 0: every second.
    pub monitor_local_dns_cache_refresh_interval: Duration,
    /// How long the addresses of a name count, default 5 minutes; 0: until the next look.
    pub monitor_local_dns_cache_ttl: Duration,
    /// What is logged of statements and logins.
    pub logs: LogVariables,
}

/// An authentication plugin that Weir can offer to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthPlugin {
    /// `mysql_native_password`
    MysqlNativePassword,
    /// `caching_sha2_password`
    CachingSha2Password,
}

/// How Weir asks the kernel to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoDriver {
    /// io_uring where the kernel allows it, else epoll.
    Auto,
    /// epoll, which works everywhere.
    Epoll,
    /// io_uring or nothing.
    IoUring,
}

/// When workers get a processor that something else is running on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerScheduling {
    /// When that stops, or its time slice is over: what comes meanwhile is handled in one go.
    Batch,
    /// At once, as the kernel's scheduler sees fit.
    Normal,
}

impl Default for MysqlVariables {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            threads: u32::try_from(cores).unwrap_or(THREADS_MAX).min(THREADS_MAX),
            interfaces: vec![ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 6033)))],
            max_connections: 10_000,
            connect_timeout_client: Duration::from_millis(10_000),
            connect_timeout_server: Duration::from_millis(1_000),
            connect_timeout_server_max: Duration::from_millis(10_000),
            connect_retries_on_failure: 10,
            query_retries_on_failure: 1,
            connect_retries_delay: Duration::from_millis(1),
            shun_on_failures: 5,
            shun_recovery_time_sec: Duration::from_secs(10),
            default_max_latency_ms: Duration::from_millis(1000),
            default_schema: String::new(),
            default_query_timeout: Duration::from_millis(DAY_MS),
            default_query_delay: Duration::ZERO,
            query_processor_iterations: 0,
            query_processor_first_comment_parsing: HintOrder::After,
            max_allowed_packet: 64 << 20,
            server_version: None,
            wait_timeout: Duration::from_millis(28_800_000),
            use_tcp_keepalive: true,
            tcp_keepalive_time: Duration::from_secs(120),
            max_stmts_per_connection: 20,
            kill_backend_connection_when_disconnect: true,
            default_authentication_plugin: AuthPlugin::MysqlNativePassword,
            ping_interval_server_msec: Duration::from_millis(10_000),
            ping_timeout_server: Duration::from_millis(200),
            free_connections_pct: 10,
            connection_warming: false,
            reset_after_hidden_code: false,
            connection_max_age_ms: Duration::ZERO,
            login_max_age_ms: Duration::from_secs(60),
            init_connect: Vec::new(),
            throttle_connections_per_sec_to_hostgroup: THROTTLE_MAX,
            max_transaction_time: Duration::from_millis(14_400_000),
            max_transaction_idle_time: Duration::from_millis(14_400_000),
            have_ssl: true,
            tls_files: None,
            io_driver: IoDriver::Auto,
            worker_scheduling: WorkerScheduling::Batch,
            ssl_p2s: ServerTlsParams::default(),
            drain_timeout_ms: Duration::from_millis(30_000),
            query_digests: true,
            query_digests_lowercase: false,
            query_digests_replace_null: false,
            query_digests_no_digits: false,
            query_digests_keep_comment: false,
            query_digests_track_hostname: false,
            query_digests_max_digest_length: 2048,
            query_digests_max_query_length: 65_000,
            query_digests_grouping_limit: 3,
            query_digests_groups_grouping_limit: 10,
            query_digests_max: 1_000_000,
            monitor_username: "monitor".to_owned(),
            monitor_password: Secret::new("monitor"),
            monitor_galera_healthcheck_interval: Duration::from_millis(100),
            monitor_galera_healthcheck_timeout: Duration::from_millis(800),
            monitor_galera_healthcheck_max_timeout_count: 3,
            monitor_groupreplication_healthcheck_interval: Duration::from_millis(100),
            monitor_groupreplication_healthcheck_timeout: Duration::from_millis(800),
            monitor_groupreplication_healthcheck_max_timeout_count: 3,
            monitor_read_only_interval: Duration::from_millis(100),
            monitor_read_only_timeout: Duration::from_millis(800),
            monitor_read_only_max_timeout_count: 3,
            monitor_slave_lag_when_null: 60,
            monitor_writer_is_also_reader: true,
            monitor_history: Duration::from_secs(600),
            monitor_connect_timeout: Duration::from_millis(600),
            monitor_ping_interval: Duration::from_millis(1000),
            monitor_ping_timeout: Duration::from_millis(1000),
            monitor_ping_max_failures: 3,
            monitor_local_dns_cache_refresh_interval: Duration::from_secs(60),
            monitor_local_dns_cache_ttl: Duration::from_secs(300),
            logs: LogVariables::default(),
        }
    }
}

/// Reads the table.
pub(crate) fn read(mut f: Fields<'_, '_>) -> MysqlVariables {
    let mut v = MysqlVariables::default();
    frontend(&mut f, &mut v);
    backend(&mut f, &mut v);
    digests(&mut f, &mut v);
    rules(&mut f, &mut v);
    monitor(&mut f, &mut v);
    v.logs = log_variables::read(&mut f);
    only_defaults(&mut f);
    let is_strict = f.report.is_strict();
    let known: Vec<&'static str> = names::not_built(names::MYSQL).collect();
    f.finish(|name, value| names::leftover(names::MYSQL, name, value, is_strict), &known);
    v
}

/// Settings whose default is what Weir does, and that can't be changed yet.
fn only_defaults(f: &mut Fields<'_, '_>) {
    if !f.boolean("multiplexing", true) {
        f.tolerate("multiplexing", "false is not built yet (only true)");
    }
    if f.optional_text("default_charset", 64).is_some_and(|charset| charset != "utf8mb4") {
        f.tolerate("default_charset", "other values than utf8mb4 are not built yet");
    }
}

fn frontend(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.threads = f.integer("threads", v.threads, 1..=THREADS_MAX);
    if let Some(interfaces) = listeners::interfaces(f) {
        v.interfaces = interfaces;
    }
    v.max_connections = f.integer("max_connections", v.max_connections, 1..=1_000_000);
    v.connect_timeout_client = f.millis("connect_timeout_client", v.connect_timeout_client, 500..=3_600_000);
    if let Some(schema) = f.optional_text("default_schema", SCHEMA_CHARS_MAX) {
        v.default_schema = schema;
    }
    // The protocol's packets hold 16 MiB, a longer command is several; 1 GiB is the servers' own limit.
    v.max_allowed_packet = f.integer("max_allowed_packet", v.max_allowed_packet, 8192..=1 << 30);
    v.wait_timeout = f.millis("wait_timeout", v.wait_timeout, 1000..=20 * DAY_MS);
    keepalive(f, v);
    v.server_version = server_version(f);
    if let Some(plugin) = f.optional_text("default_authentication_plugin", 64) {
        match plugin.as_str() {
            "mysql_native_password" => v.default_authentication_plugin = AuthPlugin::MysqlNativePassword,
            "caching_sha2_password" => v.default_authentication_plugin = AuthPlugin::CachingSha2Password,
            word => {
                let fault = unknown_word(word, &["mysql_native_password", "caching_sha2_password"]);
                f.refuse("default_authentication_plugin", fault);
            }
        }
    }
    v.have_ssl = f.boolean("have_ssl", v.have_ssl);
    v.tls_files = tls_files(f);
    v.io_driver = match f.optional_text("io_driver", 64).as_deref() {
        None | Some("auto") => IoDriver::Auto,
        Some("epoll") => IoDriver::Epoll,
        Some("io_uring") => IoDriver::IoUring,
        Some(word) => {
            f.refuse("io_driver", unknown_word(word, &["auto", "epoll", "io_uring"]));
            IoDriver::Auto
        }
    };
    v.worker_scheduling = match f.optional_text("worker_scheduling", 64).as_deref() {
        None | Some("batch") => WorkerScheduling::Batch,
        Some("normal") => WorkerScheduling::Normal,
        Some(word) => {
            f.refuse("worker_scheduling", unknown_word(word, &["batch", "normal"]));
            WorkerScheduling::Batch
        }
    };
    v.drain_timeout_ms = f.millis("drain_timeout_ms", v.drain_timeout_ms, 0..=DAY_MS);
}

/// ProxySQL's range.
fn keepalive(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.use_tcp_keepalive = f.boolean("use_tcp_keepalive", v.use_tcp_keepalive);
    let time_sec = f.integer("tcp_keepalive_time", v.tcp_keepalive_time.as_secs(), 0..=7200);
    v.tcp_keepalive_time = Duration::from_secs(time_sec);
}

fn rules(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.default_query_delay = f.millis("default_query_delay", v.default_query_delay, 0..=3_600_000);
    v.query_processor_iterations = f.integer("query_processor_iterations", 0, 0..=1_000_000);
    v.query_processor_first_comment_parsing =
        match f.integer("query_processor_first_comment_parsing", 2, 1..=3) {
            1 => HintOrder::Before,
            3 => HintOrder::Both,
            _ => HintOrder::After,
        };
    if f.integer("query_processor_regex", 1, 1..=2) != 1 {
        f.tolerate("query_processor_regex", "2 is not built yet: patterns are PCRE's (1)");
    }
}

fn backend(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.ssl_p2s = server_tls::variables(f);
    v.connect_timeout_server = f.millis("connect_timeout_server", v.connect_timeout_server, 10..=120_000);
    v.connect_timeout_server_max =
        f.millis("connect_timeout_server_max", v.connect_timeout_server_max, 10..=3_600_000);
    v.connect_retries_on_failure =
        f.integer("connect_retries_on_failure", v.connect_retries_on_failure, 0..=1000);
    v.query_retries_on_failure = f.integer("query_retries_on_failure", v.query_retries_on_failure, 0..=1000);
    v.connect_retries_delay = f.millis("connect_retries_delay", v.connect_retries_delay, 0..=10_000);
    v.shun_on_failures = f.integer("shun_on_failures", v.shun_on_failures, 0..=10_000_000);
    let recovery_sec = f.integer("shun_recovery_time_sec", v.shun_recovery_time_sec.as_secs(), 0..=YEAR_SEC);
    v.shun_recovery_time_sec = Duration::from_secs(recovery_sec);
    v.default_max_latency_ms = f.millis("default_max_latency_ms", v.default_max_latency_ms, 0..=20 * DAY_MS);
    v.default_query_timeout = f.millis("default_query_timeout", v.default_query_timeout, 1000..=20 * DAY_MS);
    v.max_stmts_per_connection = f.integer("max_stmts_per_connection", v.max_stmts_per_connection, 1..=1024);
    v.kill_backend_connection_when_disconnect =
        f.boolean("kill_backend_connection_when_disconnect", v.kill_backend_connection_when_disconnect);
    v.ping_interval_server_msec =
        f.millis("ping_interval_server_msec", v.ping_interval_server_msec, 1000..=WEEK_MS);
    v.ping_timeout_server = f.millis("ping_timeout_server", v.ping_timeout_server, 10..=600_000);
    care(f, v);
}

/// What becomes of server connections.
fn care(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.free_connections_pct = f.integer("free_connections_pct", v.free_connections_pct, 0..=100);
    v.connection_warming = f.boolean("connection_warming", v.connection_warming);
    v.reset_after_hidden_code = f.boolean("reset_after_hidden_code", v.reset_after_hidden_code);
    v.login_max_age_ms = f.millis("login_max_age_ms", v.login_max_age_ms, 0..=DAY_MS);
    v.connection_max_age_ms = f.millis("connection_max_age_ms", v.connection_max_age_ms, 0..=DAY_MS);
    v.init_connect = hostgroups::init_connect(f);
    v.throttle_connections_per_sec_to_hostgroup = f.integer(
        "throttle_connections_per_sec_to_hostgroup",
        v.throttle_connections_per_sec_to_hostgroup,
        1..=THROTTLE_MAX,
    );
    v.max_transaction_time = f.millis("max_transaction_time", v.max_transaction_time, 1000..=20 * DAY_MS);
    v.max_transaction_idle_time =
        f.millis("max_transaction_idle_time", v.max_transaction_idle_time, 1000..=20 * DAY_MS);
}

fn digests(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.query_digests = f.boolean("query_digests", v.query_digests);
    v.query_digests_lowercase = f.boolean("query_digests_lowercase", v.query_digests_lowercase);
    v.query_digests_replace_null = f.boolean("query_digests_replace_null", v.query_digests_replace_null);
    v.query_digests_no_digits = f.boolean("query_digests_no_digits", v.query_digests_no_digits);
    v.query_digests_keep_comment = f.boolean("query_digests_keep_comment", v.query_digests_keep_comment);
    v.query_digests_track_hostname =
        f.boolean("query_digests_track_hostname", v.query_digests_track_hostname);
    // ProxySQL's ranges.
    v.query_digests_max_digest_length =
        f.integer("query_digests_max_digest_length", v.query_digests_max_digest_length, 16..=1 << 20);
    v.query_digests_max_query_length =
        f.integer("query_digests_max_query_length", v.query_digests_max_query_length, 16..=1 << 20);
    v.query_digests_grouping_limit =
        f.integer("query_digests_grouping_limit", v.query_digests_grouping_limit, 1..=2089);
    v.query_digests_groups_grouping_limit =
        f.integer("query_digests_groups_grouping_limit", v.query_digests_groups_grouping_limit, 0..=2089);
    v.query_digests_max = f.integer("query_digests_max", v.query_digests_max, 0..=QUERY_DIGESTS_MAX);
}

fn monitor(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    if let Some(name) = f.optional_text("monitor_username", 128) {
        if name.is_empty() {
            f.refuse("monitor_username", "is empty");
        }
        v.monitor_username = name;
    }
    if let Some(password) = f.secret_text("monitor_password", PASSWORD_BYTES_MAX) {
        v.monitor_password = Secret::new(password);
    }
    v.monitor_galera_healthcheck_interval =
        f.millis("monitor_galera_healthcheck_interval", v.monitor_galera_healthcheck_interval, 10..=WEEK_MS);
    v.monitor_galera_healthcheck_timeout =
        f.millis("monitor_galera_healthcheck_timeout", v.monitor_galera_healthcheck_timeout, 50..=600_000);
    v.monitor_galera_healthcheck_max_timeout_count = f.integer(
        "monitor_galera_healthcheck_max_timeout_count",
        v.monitor_galera_healthcheck_max_timeout_count,
        1..=10,
    );
    monitor_replication(f, v);
    v.monitor_history = f.millis("monitor_history", v.monitor_history, 1000..=WEEK_MS);
    v.monitor_connect_timeout = f.millis("monitor_connect_timeout", v.monitor_connect_timeout, 100..=600_000);
    v.monitor_ping_interval = f.millis("monitor_ping_interval", v.monitor_ping_interval, 100..=WEEK_MS);
    v.monitor_ping_timeout = f.millis("monitor_ping_timeout", v.monitor_ping_timeout, 100..=600_000);
    v.monitor_ping_max_failures =
        f.integer("monitor_ping_max_failures", v.monitor_ping_max_failures, 1..=1_000_000);
    let refresh_interval = v.monitor_local_dns_cache_refresh_interval;
    v.monitor_local_dns_cache_refresh_interval =
        f.millis("monitor_local_dns_cache_refresh_interval", refresh_interval, 0..=WEEK_MS);
    v.monitor_local_dns_cache_ttl =
        f.millis("monitor_local_dns_cache_ttl", v.monitor_local_dns_cache_ttl, 0..=WEEK_MS);
}

/// What is asked of servers with MySQL Group Replication, and with asynchronous replication.
fn monitor_replication(f: &mut Fields<'_, '_>, v: &mut MysqlVariables) {
    v.monitor_groupreplication_healthcheck_interval = f.millis(
        "monitor_groupreplication_healthcheck_interval",
        v.monitor_groupreplication_healthcheck_interval,
        10..=WEEK_MS,
    );
    v.monitor_groupreplication_healthcheck_timeout = f.millis(
        "monitor_groupreplication_healthcheck_timeout",
        v.monitor_groupreplication_healthcheck_timeout,
        50..=600_000,
    );
    v.monitor_groupreplication_healthcheck_max_timeout_count = f.integer(
        "monitor_groupreplication_healthcheck_max_timeout_count",
        v.monitor_groupreplication_healthcheck_max_timeout_count,
        1..=10,
    );
    v.monitor_read_only_interval =
        f.millis("monitor_read_only_interval", v.monitor_read_only_interval, 10..=WEEK_MS);
    v.monitor_read_only_timeout =
        f.millis("monitor_read_only_timeout", v.monitor_read_only_timeout, 100..=600_000);
    v.monitor_read_only_max_timeout_count =
        f.integer("monitor_read_only_max_timeout_count", v.monitor_read_only_max_timeout_count, 1..=999_999);
    v.monitor_slave_lag_when_null =
        f.integer("monitor_slave_lag_when_null", v.monitor_slave_lag_when_null, 0..=604_800);
    v.monitor_writer_is_also_reader =
        f.boolean("monitor_writer_is_also_reader", v.monitor_writer_is_also_reader);
}

/// Part of the greeting, where it ends at a zero byte; clients expect it to begin with a number.
fn server_version(f: &mut Fields<'_, '_>) -> Option<String> {
    let version = f.optional_text("server_version", 60).filter(|version| !version.is_empty())?;
    let digit_first = version.starts_with(|c: char| c.is_ascii_digit());
    if !digit_first || version.contains(|c: char| !c.is_ascii_graphic()) {
        f.refuse("server_version", format!("\"{version}\" is not a version such as 8.0.36"));
        return None;
    }
    Some(version)
}

fn tls_files(f: &mut Fields<'_, '_>) -> Option<TlsFiles> {
    let mut path = |name| f.optional_text(name, 4096).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (path("tls_cert_file"), path("tls_key_file")) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
        (None, None) => None,
        (Some(_), None) => {
            f.refuse("tls_cert_file", "needs tls_key_file too");
            None
        }
        (None, Some(_)) => {
            f.refuse("tls_key_file", "needs tls_cert_file too");
            None
        }
    }
}
