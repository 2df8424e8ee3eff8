//! Declares `[mysql_variables]`: ProxySQL's `mysql-` variables that Weir has built, and Weir's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_routing::HintOrder;

use crate::field::fields::Fields;
use crate::field::kind::{
    BOOLEAN, By, Hidden, Nested, Numbered, OneValue, Only, PathName, Text, count_of, integer, millis,
    seconds, variables, word,
};
use crate::model::hostgroups::{THROTTLE_MAX, init_connect};
use crate::model::listeners;
use crate::model::listeners::{ListenAddress, interfaces};
use crate::model::log_variables::LogVariables;
use crate::model::proxy_networks::{ProxyNetworks, proxy_networks};
use crate::model::server_tls::{ServerTlsParams, TlsFiles};
use crate::table::variable::{LOCAL, LOCAL_AND_RESTART, MYSQL, RESTART};
use crate::value::limits::{PASSWORD_BYTES_MAX, SCHEMA_CHARS_MAX, USERNAME_CHARS_MAX};
use crate::value::password::Secret;

/// A day and a week in milliseconds: beyond them a time-out is a mistyped number.
const DAY_MS: u64 = 86_400_000;
const WEEK_MS: u64 = 7 * DAY_MS;
const YEAR_SEC: u64 = 365 * 86_400;
/// More digests than this take more memory than statistics are worth: some 4 GB.
const QUERY_DIGESTS_MAX: u32 = 10_000_000;
/// More workers than this gain nothing on any machine known.
const THREADS_MAX: u32 = 255;

variables! {
/// The variables. A field has the variable's name; a time is a [`Duration`] whatever unit the file uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlVariables of MYSQL {
    /// Number of worker threads. ProxySQL's default is 4; Weir's is one per core.
    threads: u32 = cores(), integer(1..=THREADS_MAX), LOCAL_AND_RESTART;
    /// Addresses to [listen](listeners.md) on, `ip:port` or paths of Unix sockets, separated by `;`. At least one;
    /// `weir_listeners` adds more.
    interfaces: Vec<ListenAddress> = vec![ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 6033)))], INTERFACES, LOCAL;
    /// Maximum number of connected clients.
    max_connections: u32 = 10_000, integer(1..=1_000_000);
    /// Time limit for a client's login.
    connect_timeout_client: Duration = ms(10_000), millis(500..=3_600_000);
    /// Networks from which a connection may begin with a [header of the PROXY protocol](listeners.md#proxy-protocol), which
    /// tells the client's address: `10.0.0.0/8,::1`, `localhost` for Unix sockets, `*` for all; empty: none. Applies to new
    /// connections.
    proxy_protocol_networks: ProxyNetworks = ProxyNetworks::default(), PROXY_NETWORKS;
    /// Schema of a login that names none. ProxySQL's default is `information_schema`; Weir, like a server, selects none.
    default_schema: String = String::new(), Text(SCHEMA_CHARS_MAX, true);
    // The protocol's packets hold 16 MiB, a longer command is several; 1 GiB is the servers' own limit.
    /// Maximum size of a client's command.
    max_allowed_packet: u32 = 64 << 20, count_of("bytes", 8192..=1 << 30);
    /// Closes a session that has been idle for this long, unless the session has set its own `wait_timeout`. Weir checks
    /// every 10 s.
    wait_timeout: Duration = ms(28_800_000), millis(1000..=20 * DAY_MS);
    /// Enables TCP keepalive for [silent peers](connections-and-limits.md#clients), clients and servers. Applies to new
    /// connections.
    use_tcp_keepalive: bool = true, BOOLEAN;
    /// Idle time before the first keepalive probe; 0: the system's default (`net.ipv4.tcp_keepalive_time`).
    tcp_keepalive_time: Duration = Duration::from_secs(120), seconds(0..=7200);
    /// Version in the greeting. ProxySQL shows one of its own; Weir by default shows the version of its servers (the
    /// writer's), so that drivers adapt to them. It does not change how Weir parses statements: that follows the servers of
    /// the hostgroup.
    server_version: Option<String> = None, VERSION;
    /// Authentication plugin offered in the greeting; clients that use the other one are asked to switch.
    default_authentication_plugin: AuthPlugin = AuthPlugin::MysqlNativePassword, word(&[
        ("mysql_native_password", AuthPlugin::MysqlNativePassword),
        ("caching_sha2_password", AuthPlugin::CachingSha2Password),
    ]);
    /// Whether clients may use TLS.
    have_ssl: bool = true, BOOLEAN, RESTART;
    /// Weir's own: PEM file of the authorities that sign [clients' certificates](tls.md#certificates-of-clients). With it
    /// clients are asked for one, and may show none; which accounts need one, the accounts say.
    tls_client_ca_file: Option<PathBuf> = None, PathName, LOCAL_AND_RESTART;
    /// `tls_cert_file` and `tls_key_file`.
    tls_files: Option<TlsFiles> = None, Nested;
    /// Weir's own: the kernel interface for network I/O. `auto` uses io_uring where the kernel and the container run-time
    /// allow it, otherwise epoll.
    io_driver: IoDriver = IoDriver::Auto, word(&[
        ("auto", IoDriver::Auto), ("epoll", IoDriver::Epoll), ("io_uring", IoDriver::IoUring),
    ]), LOCAL_AND_RESTART;
    /// Weir's own: scheduling policy of the workers. `batch` (Linux' `SCHED_BATCH`): an arriving packet does not preempt
    /// other programs; the worker waits for its turn and handles everything that has arrived in one go. This saves CPU time
    /// where Weir shares its processors with clients or servers, and adds no delay on an idle processor. `normal`: every
    /// packet is handled at once, which may be better where other programs keep the processors busy for milliseconds at a
    /// stretch (not measured). Threads that probe servers and change roles are never `batch`.
    worker_scheduling: WorkerScheduling = WorkerScheduling::Batch, word(&[
        ("batch", WorkerScheduling::Batch), ("normal", WorkerScheduling::Normal),
    ]), LOCAL_AND_RESTART;
    /// Weir's own: how long transactions may continue after SIGTERM.
    drain_timeout_ms: Duration = ms(30_000), millis(0..=DAY_MS);
    /// TLS towards servers without a row of their own. `ssl_p2s_verify_identity` is for all.
    ssl_p2s: ServerTlsParams = ServerTlsParams::default(), Nested;
    /// Time limit for one attempt to connect to a server and log in.
    connect_timeout_server: Duration = ms(1000), millis(10..=120_000);
    /// Total time a statement may wait for a server before it gets error 9001.
    connect_timeout_server_max: Duration = ms(10_000), millis(10..=3_600_000);
    /// How often a statement is sent to another server if its connection was lost before it was sent, or if a Galera node
    /// rejects it. Attempts to connect are limited by time, not by number.
    connect_retries_on_failure: u32 = 10, integer(0..=1000);
    /// On how many more servers Weir tries a statement whose server was lost. Applies only outside transactions, to
    /// statements that are provably free of side effects (reads, [and some others](errors.md#when-a-server-is-lost)), as
    /// long as the client has received nothing of the result; for BEGIN `connect_retries_on_failure` counts. A server that
    /// dies loses its connections one after the other: those that a statement meets within two seconds count as one
    /// failure, up to `connect_retries_on_failure` in all. 0: no retry. A rule's `retries` and the hint `query_retries`
    /// take precedence.
    query_retries_on_failure: u32 = 1, integer(0..=1000);
    /// Pause after a failed attempt to connect. Pauses grow once there were enough failures to shun the server.
    connect_retries_delay: Duration = ms(1), millis(0..=10_000);
    /// Failed connections within a second after which a server is [shunned](servers.md#shunned). As in ProxySQL, at most
    /// `connect_retries_on_failure` + 1 applies, and 0 means 1.
    shun_on_failures: u32 = 5, integer(0..=10_000_000);
    /// Minimum time for which a server stays shunned. As in ProxySQL, at most one second less than
    /// `connect_timeout_server_max` applies.
    shun_recovery_time_sec: Duration = Duration::from_secs(10), seconds(0..=YEAR_SEC);
    /// Servers whose pings take longer get statements only if no faster server is available; 0: no limit.
    default_max_latency_ms: Duration = ms(1000), millis(0..=20 * DAY_MS);
    /// Kills statements that run longer.
    default_query_timeout: Duration = ms(DAY_MS), millis(1000..=20 * DAY_MS);
    /// Number of prepared statements kept on a connection, the most recently used ones. ProxySQL resets a connection that
    /// has more.
    max_stmts_per_connection: u32 = 20, integer(1..=1024);
    /// Kills the running statement of a client that has disconnected.
    kill_backend_connection_when_disconnect: bool = true, BOOLEAN;
    /// Interval between pings of an idle connection.
    ping_interval_server_msec: Duration = ms(10_000), millis(1000..=WEEK_MS);
    /// Closes an idle connection that does not answer a ping within this time.
    ping_timeout_server: Duration = ms(200), millis(10..=600_000);
    /// Idle connections to keep, as a percentage of the server's `max_connections`, at least 1.
    free_connections_pct: u32 = 10, count_of("%", 0..=100);
    /// Opens `free_connections_pct` of the connections in advance, once a user has had one.
    connection_warming: bool = false, BOOLEAN;
    /// Weir's own: resets a connection after any statement that may have run a trigger or a function behind a view, before
    /// another session gets it, even if the server has reported no change: see [limits](multiplexing-limits.md).
    reset_after_hidden_code: bool = false, BOOLEAN;
    /// Weir's own: age of a login after which Weir renews it before the next session gets the idle connection, so that the
    /// server applies the account's [current rights](multiplexing.md#rights). 0: only after a change was noticed.
    login_max_age_ms: Duration = ms(60_000), millis(0..=DAY_MS);
    /// Closes older connections when they are free, up to a quarter of the time sooner, so that not all close at once. 0:
    /// no limit.
    connection_max_age_ms: Duration = Duration::ZERO, millis(0..=DAY_MS);
    /// Statements for each new connection and after each reset, separated by `;`. Their settings are the default of all
    /// sessions; they can't change the schema. If one fails, Weir does not use the connection.
    init_connect: Vec<String> = Vec::new(), INIT_CONNECT;
    /// Maximum number of connections opened per second for a hostgroup, all workers together.
    throttle_connections_per_sec_to_hostgroup: u32 = THROTTLE_MAX, integer(1..=THROTTLE_MAX);
    /// Closes a session whose transaction takes longer. Weir checks once a second.
    max_transaction_time: Duration = ms(14_400_000), millis(1000..=20 * DAY_MS);
    /// Closes a session that has been idle within a transaction for this long.
    max_transaction_idle_time: Duration = ms(14_400_000), millis(1000..=20 * DAY_MS);
    /// Counts statements by [digest](statistics.md#digests).
    query_digests: bool = true, BOOLEAN;
    /// Converts ASCII letters in digests to lower case.
    query_digests_lowercase: bool = false, BOOLEAN;
    /// Replaces NULL in digests like other literals.
    query_digests_replace_null: bool = false, BOOLEAN;
    /// Replaces digits in names by `?`.
    query_digests_no_digits: bool = false, BOOLEAN;
    /// Keeps `/* */` comments in digests.
    query_digests_keep_comment: bool = false, BOOLEAN;
    /// Counts statements separately for each client address.
    query_digests_track_hostname: bool = false, BOOLEAN;
    /// Maximum length of a digest; longer ones are cut before they are hashed.
    query_digests_max_digest_length: u32 = 2048, count_of("bytes", 16..=1 << 20);
    /// Maximum length of a digest's text before it is cut to `query_digests_max_digest_length`. Weir reads the whole
    /// statement: a list of 100,000 values still becomes `(?,?,?,...)`.
    query_digests_max_query_length: u32 = 65_000, count_of("bytes", 16..=1 << 20);
    /// Number of literals shown of a long list in parentheses.
    query_digests_grouping_limit: u32 = 3, integer(1..=2089);
    /// Number of groups shown of a long sequence such as `(?,?,?,...),(?,?,?,...)`; 0: all.
    query_digests_groups_grouping_limit: u32 = 10, integer(0..=2089);
    /// Weir's own: maximum number of digests, counted separately per hostgroup, schema and user.
    query_digests_max: u32 = 1_000_000, integer(0..=QUERY_DIGESTS_MAX);
    /// Delays every statement by this time.
    default_query_delay: Duration = Duration::ZERO, millis(0..=3_600_000);
    /// How often a `flagOUT` may lead back to the first [query rule](query-rules.md); 0: never.
    query_processor_iterations: u32 = 0, integer(0..=1_000_000);
    /// When Weir evaluates hints in comments. 1: rules override hints; 2, 3: hints override rules.
    query_processor_first_comment_parsing: HintOrder = HintOrder::After,
        Numbered(&[HintOrder::Before, HintOrder::After, HintOrder::Both]);
    /// Patterns are PCRE's; Weir refuses 2 (RE2).
    query_processor_regex: OneValue = OneValue::default(), Only("1", pcre);
    /// Account of the monitor. On Galera it needs no privilege, with [replication](replication.md#the-monitors-account)
    /// some.
    monitor_username: String = "monitor".to_owned(), Text(USERNAME_CHARS_MAX, false);
    /// Password of the monitor's account.
    monitor_password: Secret = Secret::new("monitor"), Hidden(PASSWORD_BYTES_MAX);
    /// Pause between two probes of a Galera node. ProxySQL's default is 5000, too long to leave a failing node in time. A
    /// probe costs the node some 0.6 ms of CPU.
    monitor_galera_healthcheck_interval: Duration = ms(100), millis(10..=WEEK_MS);
    /// Time limit for the answer to such a probe.
    monitor_galera_healthcheck_timeout: Duration = ms(800), millis(50..=600_000);
    /// Unanswered probes in a row after which a node is offline. A refused connection counts at once.
    monitor_galera_healthcheck_max_timeout_count: u32 = 3, integer(1..=10);
    /// Pause between two probes of a Group Replication member. ProxySQL's default is 5000.
    monitor_groupreplication_healthcheck_interval: Duration = ms(100), millis(10..=WEEK_MS);
    /// Time limit for the answer to such a probe.
    monitor_groupreplication_healthcheck_timeout: Duration = ms(800), millis(50..=600_000);
    /// Unanswered probes in a row after which a member is offline.
    monitor_groupreplication_healthcheck_max_timeout_count: u32 = 3, integer(1..=10);
    /// Pause between two probes of a server with asynchronous replication, its lag included. ProxySQL's default is 1000.
    monitor_read_only_interval: Duration = ms(100), millis(10..=WEEK_MS);
    /// Time limit for the answer to such a probe.
    monitor_read_only_timeout: Duration = ms(800), millis(100..=600_000);
    /// Unanswered probes in a row after which a server is offline.
    monitor_read_only_max_timeout_count: u32 = 3, integer(1..=999_999);
    /// Lag that Weir assumes for a replica whose replication is stopped.
    monitor_slave_lag_when_null: u32 = 60, count_of("s", 0..=604_800);
    /// Lets writers of `mysql_replication_hostgroups` also take reads.
    monitor_writer_is_also_reader: bool = true, BOOLEAN;
    /// How long the `monitor` tables of the admin port keep results of probes; at most 20,000 of each kind.
    monitor_history: Duration = Duration::from_secs(600), millis(1000..=WEEK_MS);
    /// Time limit for the monitor to connect.
    monitor_connect_timeout: Duration = ms(600), millis(100..=600_000);
    /// Pause between two pings of a server without a cluster. ProxySQL's default is 8000. Dead servers are [pinged less
    /// often](servers.md#dead-servers).
    monitor_ping_interval: Duration = ms(1000), millis(100..=WEEK_MS);
    /// Time limit for the answer to such a ping.
    monitor_ping_timeout: Duration = ms(1000), millis(100..=600_000);
    /// Unanswered pings in a row after which such a server is shunned and its connections are cut. A refused connection
    /// counts at once.
    monitor_ping_max_failures: u32 = 3, integer(1..=1_000_000);
    /// Pause before Weir connects again to a [binlog reader](gtids.md#gtid_port) that it has lost, or did not reach.
    binlog_reader_connect_retry_msec: Duration = ms(3000), millis(200..=120_000);
    /// Interval at which Weir checks which servers' names to resolve again; 0: one second.
    monitor_local_dns_cache_refresh_interval: Duration = Duration::from_secs(60), millis(0..=WEEK_MS);
    /// Lifetime of a server's resolved addresses: Weir [resolves the name again](servers.md#names) at the first check after
    /// that. 0: at each check.
    monitor_local_dns_cache_ttl: Duration = Duration::from_secs(300), millis(0..=WEEK_MS);
    /// What is logged of statements and logins.
    logs: LogVariables = LogVariables::default(), Nested;
    /// Sessions always share the servers' connections.
    multiplexing: OneValue = OneValue::default(), Only("true", always_multiplexing);
    /// A login with a character set that the servers don't know gets `latin1_swedish_ci`, as from MariaDB itself.
    default_charset: OneValue = OneValue::default(), Only("utf8mb4", only_utf8mb4);
}
}

/// An authentication plugin that Weir can offer to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthPlugin {
    /// `mysql_native_password`
    MysqlNativePassword,
    /// `caching_sha2_password`
    CachingSha2Password,
}

/// The kernel interface by which Weir moves bytes.
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

const INTERFACES: By<Vec<ListenAddress>> =
    By { read: interfaces, text: |addresses| listeners::written(addresses), values: "" };
const INIT_CONNECT: By<Vec<String>> =
    By { read: init_connect, text: |statements| statements.join(";"), values: "up to 16 statements" };
const PROXY_NETWORKS: By<ProxyNetworks> =
    By { read: proxy_networks, text: |networks| networks.to_string(), values: "up to 64 networks" };
const VERSION: By<Option<String>> =
    By { read: server_version, text: |version| version.clone().unwrap_or_default(), values: "" };

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(THREADS_MAX).min(THREADS_MAX)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn pcre(f: &mut Fields<'_, '_>, name: &'static str) {
    if f.integer(name, 1, 1..=2) != 1 {
        f.tolerate(name, "2 is not built yet: patterns are PCRE's (1)");
    }
}

fn always_multiplexing(f: &mut Fields<'_, '_>, name: &'static str) {
    if !f.boolean(name, true) {
        f.tolerate(name, "false is not built yet (only true)");
    }
}

fn only_utf8mb4(f: &mut Fields<'_, '_>, name: &'static str) {
    if f.optional_text(name, 64).is_some_and(|charset| charset != "utf8mb4") {
        f.tolerate(name, "other values than utf8mb4 are not built yet");
    }
}

/// Part of the greeting, where it ends at a zero byte; clients expect it to begin with a number.
fn server_version(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Option<String>> {
    let version = f.optional_text(name, 60).filter(|version| !version.is_empty())?;
    let digit_first = version.starts_with(|c: char| c.is_ascii_digit());
    if !digit_first || version.contains(|c: char| !c.is_ascii_graphic()) {
        f.refuse(name, format!("\"{version}\" is not a version such as 8.0.36"));
        return None;
    }
    Some(Some(version))
}
