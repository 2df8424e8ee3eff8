//! Lists the tables of the configuration with their columns. Names, columns, defaults and constraints of ProxySQL's tables
//! are its interface (its manual, "Main (runtime)"); tables that begin with `weir_` are Weir's own. A column is a line.

use crate::table::column::{Column, Table, any_text, between, count, flag, required_text, sql, text};

/// The longest time that a user may want something to wait, in milliseconds: an hour.
const WAIT_MS_MAX: i64 = 3_600_000;
/// The longest grace of a switchover, in milliseconds: all statements of the cluster wait meanwhile.
pub(crate) const SWITCHOVER_GRACE_MS_MAX: i64 = 30_000;
/// Larger results than this are not held back: a server is not read while so much waits for a client.
const RETRY_BUFFER_BYTES_MAX: i64 = 256 << 10;
/// `consistency_timeout_ms` of a hostgroup without a row in `weir_hostgroups`.
pub const CONSISTENCY_TIMEOUT_MS: u32 = 1000;
/// `transaction_replay_max_bytes` of a hostgroup without a row in `weir_hostgroups`.
pub const TRANSACTION_REPLAY_MAX_BYTES: u32 = 64 << 10;
/// `deadlock_retries` of a hostgroup without a row in `weir_hostgroups`.
pub const DEADLOCK_RETRIES: u32 = 3;
/// As in `column.rs`.
const INT_MAX: i64 = i32::MAX as i64;

/// All of them, in the order of their checksums.
#[rustfmt::skip]
pub(crate) const TABLES: &[Table] = &[
    table("mysql_servers", "mysql_servers", MYSQL_SERVERS, &["PRIMARY KEY (hostgroup_id, hostname, port)"], &["hostgroup_id", "hostgroup", "hostname", "address", "port"]),
    table("mysql_servers_ssl_params", "mysql_servers", MYSQL_SERVERS_SSL_PARAMS, &["PRIMARY KEY (hostname, port, username)"], &["hostname", "port", "username"]),
    table("mysql_replication_hostgroups", "mysql_servers", MYSQL_REPLICATION_HOSTGROUPS, &["UNIQUE (reader_hostgroup)"], &["writer_hostgroup"]),
    table("mysql_galera_hostgroups", "mysql_servers", CLUSTER, CLUSTER_CONSTRAINTS, &["writer_hostgroup"]),
    table("mysql_group_replication_hostgroups", "mysql_servers", CLUSTER, CLUSTER_CONSTRAINTS, &["writer_hostgroup"]),
    table("mysql_aws_aurora_hostgroups", "mysql_servers", MYSQL_AWS_AURORA_HOSTGROUPS, &["UNIQUE (reader_hostgroup)"], &["writer_hostgroup"]),
    table("mysql_hostgroup_attributes", "mysql_servers", MYSQL_HOSTGROUP_ATTRIBUTES, &[], &["hostgroup_id"]),
    table("weir_hostgroups", "mysql_servers", WEIR_HOSTGROUPS, &[], &["hostgroup_id"]),
    table("weir_topology", "mysql_servers", WEIR_TOPOLOGY, &[], &["writer_hostgroup"]),
    table("mysql_users", "mysql_users", MYSQL_USERS, &["PRIMARY KEY (username, backend)", "UNIQUE (username, frontend)"], &["username"]),
    table("mysql_query_rules", "mysql_query_rules", MYSQL_QUERY_RULES, &[], &["rule_id"]),
    table("mysql_query_rules_fast_routing", "mysql_query_rules", MYSQL_QUERY_RULES_FAST_ROUTING, &["PRIMARY KEY (username, schemaname, flagIN)"], &["username", "schemaname", "flagIN"]),
    table("global_variables", "mysql_variables", GLOBAL_VARIABLES, &[], &["writer_hostgroup"]),
    table("weir_listeners", "mysql_variables", WEIR_LISTENERS, &[], &["address"]),
    table("mysql_firewall_whitelist_users", "mysql_firewall", MYSQL_FIREWALL_WHITELIST_USERS, &["PRIMARY KEY (username, client_address)"], &["writer_hostgroup"]),
    table("mysql_firewall_whitelist_rules", "mysql_firewall", MYSQL_FIREWALL_WHITELIST_RULES, &["PRIMARY KEY (username, client_address, schemaname, flagIN, digest)"], &["writer_hostgroup"]),
    table("mysql_firewall_whitelist_sqli_fingerprints", "mysql_firewall", MYSQL_FIREWALL_WHITELIST_SQLI_FINGERPRINTS, &["PRIMARY KEY (fingerprint)"], &["writer_hostgroup"]),
    table("scheduler", "scheduler", SCHEDULER, &[], &["id"]),
    table("proxysql_servers", "proxysql_servers", PROXYSQL_SERVERS, &["PRIMARY KEY (hostname, port)"], &["hostname", "port", "username"]),
    table("restapi_routes", "restapi", RESTAPI_ROUTES, &[], &["writer_hostgroup"]),
];

const CLUSTER_CONSTRAINTS: &[&str] =
    &["UNIQUE (reader_hostgroup)", "UNIQUE (offline_hostgroup)", "UNIQUE (backup_writer_hostgroup)"];

pub(crate) const fn table(
    name: &'static str,
    module: &'static str,
    columns: &'static [Column],
    constraints: &'static [&'static str],
    key: &'static [&'static str],
) -> Table {
    Table { name, module, columns, constraints, key }
}

#[rustfmt::skip]
const MYSQL_SERVERS: &[Column] = &[
    count("hostgroup_id", 0, "the hostgroup, required in a file; `hostgroup` is accepted, too. In a Galera cluster: see [the configuration](configuration-servers.md#mysql_servers)"),
    required_text("hostname", "name or address; `address` is accepted, too. Weir resolves names as the system does, and [follows changes](servers.md#names)"),
    between("port", 0, 65_535, 3306, "its TCP port").takes(1, 65_535),
    sql("gtid_port", "INT CHECK (gtid_port = 0 OR (gtid_port <> port AND gtid_port BETWEEN 0 AND 65535)) NOT NULL DEFAULT 0", "where ProxySQL's binlog reader tells [which transactions](gtids.md) the server has executed; 0: Weir asks the server itself. If it has several rows, the largest value counts").takes(0, 65_535),
    sql("status", "VARCHAR CHECK (UPPER(status) IN ('ONLINE','SHUNNED','OFFLINE_SOFT','OFFLINE_HARD')) NOT NULL DEFAULT 'ONLINE'", "`OFFLINE_SOFT`: no new statements; transactions may finish, then connections close. `OFFLINE_HARD` (in all its rows): connections are closed at once. [States](servers.md)"),
    between("weight", 0, 10_000_000, 1, "share of the statements; also the preference in the choice of a writer. 0: used only if all others have 0 or are down"),
    flag("compression", 0, "").one_value(),
    count("max_connections", 1000, "maximum number of connections to the server, all workers together. If it has several rows, the largest value counts").takes(0, 1_000_000),
    between("max_replication_lag", 0, 126_144_000, 0, "with `mysql_replication_hostgroups`: replication lag in seconds beyond which the server takes no reads; 0: no limit. [Replication](replication.md)"),
    flag("use_ssl", 0, "[encrypts](tls.md#towards-servers) connections to the server; must be the same in all its rows"),
    sql("max_latency_ms", "INT UNSIGNED CHECK (max_latency_ms >= 0) NOT NULL DEFAULT 0", "while its pings take longer, the server gets statements only if no faster one is available; 0: `default_max_latency_ms`").takes(0, INT_MAX),
    text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_SERVERS_SSL_PARAMS: &[Column] = &[
    required_text("hostname", "the server, as in `mysql_servers`"),
    between("port", 0, 65_535, 3306, "its port").takes(1, 65_535),
    text("username", "not built (must be empty): users share connections, and so their encryption").one_value(),
    text("ssl_ca", "PEM file of certificate authorities"),
    text("ssl_cert", "PEM file of the certificate that Weir presents; requires `ssl_key`"),
    text("ssl_key", "PEM file of that certificate's key"),
    text("ssl_capath", "directory of such files; without both, any certificate is accepted"),
    text("ssl_crl", "PEM file of certificate revocation lists; requires authorities"),
    text("ssl_crlpath", "directory of such files"),
    text("ssl_cipher", "ciphers, separated by colons, with OpenSSL's names or IANA's; see [ciphers](tls.md#towards-servers)"),
    text("tls_version", "accepted versions, of `TLSv1.2,TLSv1.3`; empty: both"),
    text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_REPLICATION_HOSTGROUPS: &[Column] = &[
    sql("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY", "servers that are not read_only").takes(0, INT_MAX),
    sql("reader_hostgroup", "INT NOT NULL CHECK (reader_hostgroup <> writer_hostgroup AND reader_hostgroup >= 0)", "all others, and those that can't be reached").takes(0, INT_MAX),
    sql("check_type", "VARCHAR CHECK (LOWER(check_type) IN ('read_only','innodb_read_only','super_read_only','read_only|innodb_read_only','read_only&innodb_read_only')) NOT NULL DEFAULT 'read_only'", "variables that make a server read_only: `read_only`, `innodb_read_only`, `super_read_only` (MySQL only), `read_only&innodb_read_only` (both), `read_only|innodb_read_only` (one of them)"),
    text("comment", "for you"),
];

/// Of Galera and of Group Replication.
#[rustfmt::skip]
const CLUSTER: &[Column] = &[
    sql("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY", "hostgroup of the writers").takes(0, INT_MAX),
    sql("backup_writer_hostgroup", "INT CHECK (backup_writer_hostgroup >= 0 AND backup_writer_hostgroup <> writer_hostgroup) NOT NULL", "hostgroup of servers that could take writes and are not needed for it").takes(0, INT_MAX),
    sql("reader_hostgroup", "INT NOT NULL CHECK (reader_hostgroup >= 0 AND reader_hostgroup NOT IN (writer_hostgroup, backup_writer_hostgroup))", "hostgroup of the readers").takes(0, INT_MAX),
    sql("offline_hostgroup", "INT NOT NULL CHECK (offline_hostgroup >= 0 AND offline_hostgroup NOT IN (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup))", "hostgroup of the servers without a role").takes(0, INT_MAX),
    flag("active", 1, "whether Weir uses the row"),
    sql("max_writers", "INT NOT NULL CHECK (max_writers >= 0) DEFAULT 1", "maximum number of writers at a time").takes(1, 1000).or(1),
    sql("writer_is_also_reader", "INT CHECK (writer_is_also_reader IN (0,1,2)) NOT NULL DEFAULT 0", "0, 2: the writer takes reads only if too few other servers can. 1: it always does").takes(0, 2),
    count("max_transactions_behind", 0, "transactions (Galera: in the receive queue) that a reader may be behind; beyond that it takes no reads. 0: no limit"),
    any_text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_AWS_AURORA_HOSTGROUPS: &[Column] = &[
    sql("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY", "").without_effect(),
    sql("reader_hostgroup", "INT NOT NULL CHECK (reader_hostgroup <> writer_hostgroup AND reader_hostgroup >= 0)", "").without_effect(),
    flag("active", 1, "").without_effect(),
    sql("aurora_port", "INT NOT NULL DEFAULT 3306", "").or(3306).without_effect(),
    sql("domain_name", "VARCHAR NOT NULL CHECK (SUBSTR(domain_name, 1, 1) = '.')", "").without_effect(),
    sql("max_lag_ms", "INT NOT NULL CHECK (max_lag_ms BETWEEN 10 AND 600000) DEFAULT 600000", "").or(600_000).without_effect(),
    sql("check_interval_ms", "INT NOT NULL CHECK (check_interval_ms BETWEEN 100 AND 600000) DEFAULT 1000", "").or(1000).without_effect(),
    sql("check_timeout_ms", "INT NOT NULL CHECK (check_timeout_ms BETWEEN 80 AND 3000) DEFAULT 800", "").or(800).without_effect(),
    flag("writer_is_also_reader", 0, "").without_effect(),
    between("new_reader_weight", 0, 10_000_000, 1, "").without_effect(),
    sql("add_lag_ms", "INT NOT NULL CHECK (add_lag_ms BETWEEN 0 AND 600000) DEFAULT 30", "").or(30).without_effect(),
    sql("min_lag_ms", "INT NOT NULL CHECK (min_lag_ms BETWEEN 0 AND 600000) DEFAULT 30", "").or(30).without_effect(),
    sql("lag_num_checks", "INT NOT NULL CHECK (lag_num_checks BETWEEN 1 AND 16) DEFAULT 1", "").or(1).without_effect(),
    any_text("comment", "").without_effect(),
];

#[rustfmt::skip]
const MYSQL_HOSTGROUP_ATTRIBUTES: &[Column] = &[
    sql("hostgroup_id", "INT NOT NULL PRIMARY KEY", "the hostgroup").takes(0, INT_MAX),
    between("max_num_online_servers", 0, 1_000_000, 1_000_000, "with more servers online the hostgroup gets no statements: a protection against two clusters that both write"),
    sql("autocommit", "INT CHECK (autocommit IN (-1,0,1)) NOT NULL DEFAULT -1", "").or(-1).one_value(),
    between("free_connections_pct", 0, 100, 10, "as the variable"),
    text("init_connect", "as the variable; empty: the variable applies"),
    flag("multiplex", 1, "0: each session [keeps its connection](pins.md#hostgroups-with-multiplex-0) in this hostgroup"),
    flag("connection_warming", 0, "as the variable"),
    between("throttle_connections_per_sec", 1, 1_000_000, 1_000_000, "maximum number of connections opened per second for the hostgroup, all workers together"),
    sql("ignore_session_variables", "VARCHAR CHECK (ignore_session_variables = '' OR JSON_VALID(ignore_session_variables)) NOT NULL DEFAULT ''", "not built (must be empty): servers report what a session has set, so Weir parses no SET; and Weir discovers no servers beyond `mysql_servers`").one_value(),
    sql("hostgroup_settings", "VARCHAR CHECK (hostgroup_settings = '' OR JSON_VALID(hostgroup_settings)) NOT NULL DEFAULT ''", "not built (must be empty): servers report what a session has set, so Weir parses no SET; and Weir discovers no servers beyond `mysql_servers`").one_value(),
    sql("servers_defaults", "VARCHAR CHECK (servers_defaults = '' OR JSON_VALID(servers_defaults)) NOT NULL DEFAULT ''", "not built (must be empty): servers report what a session has set, so Weir parses no SET; and Weir discovers no servers beyond `mysql_servers`").one_value(),
    text("comment", "for you"),
];

#[rustfmt::skip]
const WEIR_HOSTGROUPS: &[Column] = &[
    sql("hostgroup_id", "INT CHECK (hostgroup_id >= 0) NOT NULL PRIMARY KEY", "the hostgroup").takes(0, INT_MAX),
    sql("balancing", "VARCHAR NOT NULL DEFAULT 'weighted'", "`weighted`, `least_in_flight` or `latency`: [how statements are balanced](servers.md#balancing)"),
    sql("consistency", "VARCHAR NOT NULL DEFAULT 'session'", "of a writer hostgroup: how fresh reads have to be that its readers get: `eventual`, `session`, `global` or `strict`. [Consistency](consistency.md)"),
    sql("reads", "VARCHAR NOT NULL DEFAULT 'spread'", "of a writer hostgroup: reads for which no reader is fresh enough yet wait for one unless the writer is idle (`spread`), or go where the answer is expected first (`fastest`)"),
    between("consistency_timeout_ms", 1, WAIT_MS_MAX, CONSISTENCY_TIMEOUT_MS as i64, "of a writer hostgroup: how long a read waits for a reader to be fresh enough; then the writer gets it"),
    between("deadlock_retries", 0, 10, DEADLOCK_RETRIES as i64, "how often a statement with autocommit is run again that its server has undone for a deadlock, or for a write of another Galera node (error 1213). [Deadlocks](deadlocks.md)"),
    sql("transaction_replay", "VARCHAR NOT NULL DEFAULT 'safe'", "whether open transactions run again on another server when their own is lost: not at all (`off`), where that can do nothing twice (`safe`), or also a write that was in flight when only its connection was lost (`on`), which is done twice in tables without transactions. [Replay](replay.md)"),
    between("transaction_replay_max_bytes", 1024, 16 << 20, TRANSACTION_REPLAY_MAX_BYTES as i64, "how long the log of an open transaction may become, in bytes, by which it runs again: longer ones don't"),
    sql("commit_outcome", "VARCHAR NOT NULL DEFAULT 'off'", "how the end of a COMMIT is found out whose answer is lost with its server: not at all (`off`: error 08007), or by a row of the transaction's own in weir.outcomes (`marker`). [Replay](replay.md)"),
    flag("follow_accounts", 0, "of a writer hostgroup: the accounts of its servers may log in, with this `default_hostgroup`, unless a row of `mysql_users` has their name; the monitor's account must be allowed to read them. [Accounts](accounts.md)"),
    sql("send_proxy_protocol", "VARCHAR NOT NULL DEFAULT 'off'", "whether its servers are told each client's address by a header of the PROXY protocol: `off`, `v1` or `v2`. Clients with different addresses then share no connections. If a server is in several hostgroups, the last of these words counts. [Client addresses at the servers](client-addresses.md)"),
    text("comment", "for you"),
];

#[rustfmt::skip]
const WEIR_TOPOLOGY: &[Column] = &[
    sql("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY", "identifies the cluster").takes(0, INT_MAX),
    any_text("failback", "whether the writer role returns to a server with a greater weight in the writer hostgroup (then in the backup writers'). `never`: not while the present writer works. `drained`: by a switchover that Weir starts, repeated after 60 s if it fails. `immediate`: at once, while transactions finish on the old writer. Default: `never`. Galera only"),
    sql("min_uptime_s", "INT", "for `failback`: how long that server must have been able to write before. Also counts after a `weir switchover` to a server with a smaller weight. Galera only").takes(0, 86_400).or(60),
    sql("prefer_segment", "INT", "nodes of this network segment (`gmcast.segment`) take reads, others only if `min_readers` requires it. Does not affect the choice of writers. Galera only").takes(0, 255),
    sql("min_readers", "INT", "minimum number of readers. With fewer, further servers take reads: first those of other segments, then the writer, donors, and servers that are behind. Not with replication").takes(1, 1000).or(1),
    any_text("donor", "`read`: a donor that answers queries takes reads while its queue is short. `avoid`: only if `min_readers` requires it. Default: `read`. Galera only"),
    sql("unconfirmed_failover_ms", "INT", "how long Weir waits for a lost writer if the cluster keeps its view, before another node takes over. With [several Weirs](several-weirs.md) only if none of them reaches the writer. Galera only").takes(1000, WAIT_MS_MAX).or(10_000),
    any_text("epoch", "whether writes need the [epoch](several-weirs.md#what-it-takes) on which several Weirs agree. `auto`: once it has been read. `required`: always. `optional`: never. Default: `auto`. Galera only"),
    sql("slow_start_ms", "INT", "time in which a server that was away grows back to its full share of the statements, in all hostgroups of the cluster").takes(0, 600_000).or(5000),
    sql("hold_timeout_ms", "INT", "how long a statement waits for a server of the cluster before it gets error 9001 with the reasons. Default: `connect_timeout_server_max`").takes(1, WAIT_MS_MAX),
    sql("max_held", "INT", "maximum number of sessions that wait at a time; further ones get error 9001 at once").takes(1, 1_000_000).or(10_000),
    sql("retry_buffer_bytes", "INT", "Weir holds back results of plain reads up to this size until they are complete: if the server dies meanwhile, Weir runs the read on another server, and the client notices nothing. A larger result ends with [an error](errors.md#when-a-server-is-lost) in place of the missing rows. 0: no buffering").takes(0, RETRY_BUFFER_BYTES_MAX).or(16_384),
    sql("drain_grace_ms", "INT", "how long sessions may keep a server that is drained, OFFLINE_SOFT or in maintenance. After that, checked once a second, sessions without a running statement are closed (error 1053 with the reason); a read of which the client has received nothing runs on another server; a result of which the client has received a part ends with that error. Statements that may have an effect finish. 0: no limit").takes(0, WAIT_MS_MAX),
    sql("switchover_pin_grace_ms", "INT", "how long `weir switchover` waits for transactions and pins on the old writer; `--grace-ms` overrides it").takes(0, SWITCHOVER_GRACE_MS_MAX).or(1000),
    any_text("assist", "nodes that Weir [evicts from the cluster](eviction.md): `off` none, `dead` those whose process has ended, `hung` also those that hang. Default: `dead`. Galera only"),
    any_text("assist_username", "account for evictions. Default: the monitor's. Galera only"),
    any_text("assist_password", "its password. Galera only"),
    any_text("switchover_username", "account for switchovers of a group or of replicas ([privileges](replication.md#the-monitors-account)); not with Galera. Default: the monitor's"),
    any_text("switchover_password", "its password"),
    any_text("replication_username", "account with which the old writer replicates from the new one; only with `mysql_replication_hostgroups`. Default: that of the switchover"),
    any_text("replication_password", "its password"),
    sql("auto_failover", "INT", "promotes a replica when the writer is lost, [which may lose writes](auto-failover.md); only with `mysql_replication_hostgroups`. Default: `false`"),
    any_text("auto_discover", "servers that [belong to the cluster](discovery.md) and are not in `mysql_servers`: `off` nobody looks for them, `tell` the log, `weir status` and `stats_weir_discovered_servers` name them, `follow` they are added (Galera and groups only). Default: `off`"),
];

#[rustfmt::skip]
const MYSQL_USERS: &[Column] = &[
    required_text("username", "its name"),
    any_text("password", "in one of [three forms](configuration-servers.md#mysql_users)"),
    flag("active", 1, "whether it may log in"),
    flag("use_ssl", 0, "its clients must use TLS"),
    sql("default_hostgroup", "INT NOT NULL DEFAULT 0", "hostgroup of its statements; the writer hostgroup of a cluster enables the [read/write split](read-write-split.md)").takes(0, INT_MAX),
    any_text("default_schema", "schema of a login that names none. Default: `mysql_variables.default_schema`"),
    flag("schema_locked", 0, "its sessions stay in the schema of their login: USE and COM_INIT_DB get error 1044"),
    flag("transaction_persistent", 1, "0: query rules and hints may send [reads of an open transaction](query-rules-routing.md#reads-that-leave-a-transaction) to other hostgroups"),
    flag("fast_forward", 0, "each of its sessions keeps one connection to a server of its `default_hostgroup`, as at a listener with mode [primary](listeners.md#one-server-per-session): no rules, no digests"),
    flag("backend", 1, "").one_value(),
    flag("frontend", 1, "").one_value(),
    count("max_connections", 10_000, "maximum number of clients logged in as this user; further ones get error 1226").takes(0, 1_000_000),
    sql("attributes", "VARCHAR CHECK (attributes = '' OR JSON_VALID(attributes)) NOT NULL DEFAULT ''", "a JSON object. `{\"default-transaction_isolation\": \"READ COMMITTED\"}`: the isolation level of its sessions, at the login and after a reset. `{\"additional_password\": \"old\"}`: clients may also log in with this password, for instance while it is being changed. Both must be in clear text; Weir uses `password` at servers. `{\"weir_consistency\": \"global\"}`: how [fresh](consistency.md) the reads of its sessions have to be. `{\"weir_replay\": \"on\", \"weir_commit_outcome\": \"marker\"}`: what becomes of [its transactions](replay-settings.md). `spiffe_id` is not built: Weir asks clients for no certificate"),
    text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_QUERY_RULES: &[Column] = &[
    sql("rule_id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "order of evaluation. Default: the next number").takes(1, INT_MAX),
    flag("active", 0, "whether the rule counts"),
    any_text("username", "matches the user exactly; empty: any"),
    any_text("schemaname", "matches the schema exactly; empty: any"),
    count("flagIN", 0, "the flag that the evaluation must have reached"),
    any_text("client_addr", "matches the client's address; a final `%` stands for any rest. `localhost` through a Unix socket"),
    any_text("proxy_addr", "matches the address of the listener, as configured"),
    sql("proxy_port", "INT CHECK (proxy_port BETWEEN 0 AND 65535)", "matches the port of the listener").takes(1, 65_535),
    any_text("digest", "matches the digest's hash, `0x` and hex digits, as ProxySQL shows it"),
    any_text("match_digest", "a pattern, on the digest's text"),
    any_text("match_pattern", "a pattern, on the statement itself (as earlier rules have rewritten it); of a statement over 1 MB on its first megabyte"),
    flag("negate_match_pattern", 0, "1: the rule matches if the patterns do not"),
    sql("re_modifiers", "VARCHAR DEFAULT 'CASELESS'", "modifiers of the patterns: `CASELESS`, `GLOBAL`, separated by commas"),
    sql("flagOUT", "INT CHECK (flagOUT >= 0)", "changes the flag: evaluation continues with later rules of that flag").takes(0, INT_MAX),
    sql("replace_pattern", "VARCHAR CHECK (replace_pattern IS NULL OR match_pattern IS NOT NULL)", "replaces what `match_pattern` matches; `\\1` to `\\9` are its groups, `\\0` the whole match"),
    sql("destination_hostgroup", "INT DEFAULT NULL", "where the statement goes").takes(0, INT_MAX),
    sql("cache_ttl", "INT CHECK (cache_ttl > 0)", "").without_effect(),
    sql("cache_empty_result", "INT CHECK (cache_empty_result IN (0,1)) DEFAULT NULL", "").one_value(),
    sql("cache_timeout", "INT CHECK (cache_timeout >= 0)", "").without_effect(),
    sql("reconnect", "INT CHECK (reconnect IN (0,1)) DEFAULT NULL", "").one_value(),
    sql("timeout", "INT UNSIGNED CHECK (timeout >= 0)", "kills the statement after this many ms; 0: `default_query_timeout`").takes(0, INT_MAX),
    sql("retries", "INT CHECK (retries BETWEEN 0 AND 1000)", "on how many more servers Weir may try the statement after its server was lost, if it is provably free of side effects. Default: `query_retries_on_failure`").takes(0, 1000),
    sql("delay", "INT UNSIGNED CHECK (delay >= 0)", "delays the statement by this many ms, in addition to `default_query_delay`").takes(0, INT_MAX),
    sql("next_query_flagIN", "INT UNSIGNED", "the flag with which the session's next statement begins").takes(0, INT_MAX),
    sql("mirror_flagOUT", "INT UNSIGNED", "").without_effect(),
    sql("mirror_hostgroup", "INT UNSIGNED", "").without_effect(),
    any_text("error_msg", "answers with error 1148 (42000) and this text"),
    any_text("OK_msg", "answers with OK; a PREPARE is still prepared, and its executions get the answer"),
    sql("sticky_conn", "INT CHECK (sticky_conn IN (0,1))", "").one_value(),
    sql("multiplex", "INT CHECK (multiplex IN (0,1,2))", "0: the session keeps its connection from now on; 1: no longer for this reason; 2: an `@` is no reason to keep it (it never is in Weir)").takes(0, 2),
    sql("gtid_from_hostgroup", "INT UNSIGNED", "the statement runs only where the session's last write through this hostgroup is: its [level](gtids.md#gtid_from_hostgroup) is at least `session`").takes(0, INT_MAX),
    sql("log", "INT CHECK (log IN (0,1))", "whether to write the statement into the [events log](logs.md)").takes(0, 1),
    flag("apply", 0, "ends the evaluation"),
    sql("attributes", "VARCHAR CHECK (attributes = '' OR JSON_VALID(attributes)) NOT NULL DEFAULT ''", "a JSON object: `flagOUTs` picks a flag at random, by weight; `{\"weir_consistency\": \"global\"}`: how [fresh](consistency.md) the read has to be; `{\"weir_replay\": \"on\", \"weir_commit_outcome\": \"marker\"}`: what becomes of [the transaction](replay-settings.md) that it begins"),
    any_text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_QUERY_RULES_FAST_ROUTING: &[Column] = &[
    required_text("username", "the user; empty: any"),
    required_text("schemaname", "the schema"),
    sql("flagIN", "INT NOT NULL DEFAULT 0", "the flag after the evaluation of the rules").takes(0, INT_MAX),
    sql("destination_hostgroup", "INT CHECK (destination_hostgroup >= 0) NOT NULL", "where the statement goes").takes(0, INT_MAX),
    text("comment", "for you"),
];

#[rustfmt::skip]
const GLOBAL_VARIABLES: &[Column] = &[
    sql("variable_name", "VARCHAR NOT NULL PRIMARY KEY", "such as `mysql-threads`: [every variable](#mysql_variables)"),
    required_text("variable_value", "its value, as text"),
];

#[rustfmt::skip]
const WEIR_LISTENERS: &[Column] = &[
    sql("address", "VARCHAR NOT NULL PRIMARY KEY", "`ip:port`, or the absolute path of a Unix socket"),
    sql("mode", "VARCHAR NOT NULL DEFAULT 'split'", "`split`: Weir splits reads and writes by statement. `primary`, `replicas`: [one server per session](listeners.md#one-server-per-session)"),
    sql("hostgroup", "INT", "hostgroup of its sessions' statements, in place of their users' `default_hostgroup`").takes(0, INT_MAX),
    text("comment", "for you"),
];

#[rustfmt::skip]
const MYSQL_FIREWALL_WHITELIST_USERS: &[Column] = &[
    flag("active", 1, "").without_effect(),
    required_text("username", "").without_effect(),
    required_text("client_address", "").without_effect(),
    sql("mode", "VARCHAR CHECK (mode IN ('OFF','DETECTING','PROTECTING')) NOT NULL DEFAULT 'OFF'", "").without_effect(),
    text("comment", "").without_effect(),
];

#[rustfmt::skip]
const MYSQL_FIREWALL_WHITELIST_RULES: &[Column] = &[
    flag("active", 1, "").without_effect(),
    required_text("username", "").without_effect(),
    required_text("client_address", "").without_effect(),
    required_text("schemaname", "").without_effect(),
    sql("flagIN", "INT NOT NULL DEFAULT 0", "").without_effect(),
    required_text("digest", "").without_effect(),
    text("comment", "").without_effect(),
];

#[rustfmt::skip]
const MYSQL_FIREWALL_WHITELIST_SQLI_FINGERPRINTS: &[Column] = &[
    flag("active", 1, "").without_effect(),
    required_text("fingerprint", "").without_effect(),
];

#[rustfmt::skip]
const SCHEDULER: &[Column] = &[
    sql("id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "key. Default: the next number").takes(0, INT_MAX),
    flag("active", 1, "whether Weir runs it"),
    sql("interval_ms", "INTEGER CHECK (interval_ms BETWEEN 100 AND 100000000) NOT NULL", "from start to start").takes(100, 100_000_000),
    required_text("filename", "the program, as a path"),
    any_text("arg1", "its arguments"),
    any_text("arg2", "its arguments"),
    any_text("arg3", "its arguments"),
    any_text("arg4", "its arguments"),
    any_text("arg5", "its arguments"),
    text("comment", "for you"),
];

#[rustfmt::skip]
const PROXYSQL_SERVERS: &[Column] = &[
    required_text("hostname", "name or address"),
    between("port", 1, 65_535, 6032, "of its admin port"),
    count("weight", 0, "not used; kept for compatibility with ProxySQL"),
    text("comment", "for you"),
];

#[rustfmt::skip]
const RESTAPI_ROUTES: &[Column] = &[
    sql("id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "").without_effect(),
    flag("active", 1, "").without_effect(),
    sql("timeout_ms", "INTEGER CHECK (timeout_ms BETWEEN 100 AND 100000000) NOT NULL", "").without_effect(),
    sql("method", "VARCHAR NOT NULL CHECK (UPPER(method) IN ('GET','POST'))", "").without_effect(),
    required_text("uri", "").without_effect(),
    required_text("script", "").without_effect(),
    text("comment", "").without_effect(),
];
