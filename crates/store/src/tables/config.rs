//! Tables of configuration: in `main`, in `disk`, and as `main.runtime_...`.

use super::{Declared, Module};

const fn table(
    name: &'static str,
    module: Module,
    columns: &'static [(&'static str, &'static str)],
    constraints: &'static [&'static str],
) -> Declared {
    Declared { name, module: Some(module), columns, constraints, has_reset: false }
}

/// Text that is never missing.
const TEXT: &str = "VARCHAR NOT NULL DEFAULT ''";
/// Text that may be missing, which means something else than an empty one.
const ANY_TEXT: &str = "VARCHAR";
const NAME: &str = "VARCHAR NOT NULL";
const ID: &str = "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL";

pub(super) const TABLES: &[Declared] = &[
    table("mysql_servers", Module::MysqlServers, SERVER, SERVER_KEY),
    table(
        "mysql_servers_ssl_params",
        Module::MysqlServers,
        &[
            ("hostname", NAME),
            ("port", "INT CHECK (port BETWEEN 0 AND 65535) NOT NULL DEFAULT 3306"),
            ("username", TEXT),
            ("ssl_ca", TEXT),
            ("ssl_cert", TEXT),
            ("ssl_key", TEXT),
            ("ssl_capath", TEXT),
            ("ssl_crl", TEXT),
            ("ssl_crlpath", TEXT),
            ("ssl_cipher", TEXT),
            ("tls_version", TEXT),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (hostname, port, username)"],
    ),
    table(
        "mysql_replication_hostgroups",
        Module::MysqlServers,
        &[
            ("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY"),
            (
                "reader_hostgroup",
                "INT NOT NULL CHECK (reader_hostgroup <> writer_hostgroup AND reader_hostgroup >= 0)",
            ),
            (
                "check_type",
                "VARCHAR CHECK (LOWER(check_type) IN ('read_only','innodb_read_only','super_read_only',\
                 'read_only|innodb_read_only','read_only&innodb_read_only')) NOT NULL DEFAULT 'read_only'",
            ),
            ("comment", TEXT),
        ],
        &["UNIQUE (reader_hostgroup)"],
    ),
    table("mysql_galera_hostgroups", Module::MysqlServers, CLUSTER, CLUSTER_KEYS),
    table("mysql_group_replication_hostgroups", Module::MysqlServers, CLUSTER, CLUSTER_KEYS),
    table(
        "mysql_aws_aurora_hostgroups",
        Module::MysqlServers,
        &[
            ("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY"),
            (
                "reader_hostgroup",
                "INT NOT NULL CHECK (reader_hostgroup <> writer_hostgroup AND reader_hostgroup >= 0)",
            ),
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("aurora_port", "INT NOT NULL DEFAULT 3306"),
            ("domain_name", "VARCHAR NOT NULL CHECK (SUBSTR(domain_name, 1, 1) = '.')"),
            ("max_lag_ms", "INT NOT NULL CHECK (max_lag_ms BETWEEN 10 AND 600000) DEFAULT 600000"),
            (
                "check_interval_ms",
                "INT NOT NULL CHECK (check_interval_ms BETWEEN 100 AND 600000) DEFAULT 1000",
            ),
            ("check_timeout_ms", "INT NOT NULL CHECK (check_timeout_ms BETWEEN 80 AND 3000) DEFAULT 800"),
            ("writer_is_also_reader", "INT CHECK (writer_is_also_reader IN (0,1)) NOT NULL DEFAULT 0"),
            ("new_reader_weight", "INT CHECK (new_reader_weight BETWEEN 0 AND 10000000) NOT NULL DEFAULT 1"),
            ("add_lag_ms", "INT NOT NULL CHECK (add_lag_ms BETWEEN 0 AND 600000) DEFAULT 30"),
            ("min_lag_ms", "INT NOT NULL CHECK (min_lag_ms BETWEEN 0 AND 600000) DEFAULT 30"),
            ("lag_num_checks", "INT NOT NULL CHECK (lag_num_checks BETWEEN 1 AND 16) DEFAULT 1"),
            ("comment", ANY_TEXT),
        ],
        &["UNIQUE (reader_hostgroup)"],
    ),
    table(
        "mysql_hostgroup_attributes",
        Module::MysqlServers,
        &[
            ("hostgroup_id", "INT NOT NULL PRIMARY KEY"),
            (
                "max_num_online_servers",
                "INT CHECK (max_num_online_servers BETWEEN 0 AND 1000000) NOT NULL DEFAULT 1000000",
            ),
            ("autocommit", "INT CHECK (autocommit IN (-1,0,1)) NOT NULL DEFAULT -1"),
            (
                "free_connections_pct",
                "INT CHECK (free_connections_pct BETWEEN 0 AND 100) NOT NULL DEFAULT 10",
            ),
            ("init_connect", TEXT),
            ("multiplex", "INT CHECK (multiplex IN (0,1)) NOT NULL DEFAULT 1"),
            ("connection_warming", "INT CHECK (connection_warming IN (0,1)) NOT NULL DEFAULT 0"),
            (
                "throttle_connections_per_sec",
                "INT CHECK (throttle_connections_per_sec BETWEEN 1 AND 1000000) NOT NULL DEFAULT 1000000",
            ),
            (
                "ignore_session_variables",
                "VARCHAR CHECK (ignore_session_variables = '' OR JSON_VALID(ignore_session_variables)) NOT NULL \
                 DEFAULT ''",
            ),
            (
                "hostgroup_settings",
                "VARCHAR CHECK (hostgroup_settings = '' OR JSON_VALID(hostgroup_settings)) NOT NULL DEFAULT ''",
            ),
            (
                "servers_defaults",
                "VARCHAR CHECK (servers_defaults = '' OR JSON_VALID(servers_defaults)) NOT NULL DEFAULT ''",
            ),
            ("comment", TEXT),
        ],
        &[],
    ),
    table(
        "weir_hostgroups",
        Module::MysqlServers,
        &[
            ("hostgroup_id", "INT CHECK (hostgroup_id >= 0) NOT NULL PRIMARY KEY"),
            ("balancing", "VARCHAR NOT NULL DEFAULT 'weighted'"),
            ("comment", TEXT),
        ],
        &[],
    ),
    // NULL is the default, which is not the same for every kind of cluster.
    table(
        "weir_topology",
        Module::MysqlServers,
        &[
            ("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY"),
            ("failback", ANY_TEXT),
            ("min_uptime_s", "INT"),
            ("prefer_segment", "INT"),
            ("min_readers", "INT"),
            ("donor", ANY_TEXT),
            ("unconfirmed_failover_ms", "INT"),
            ("epoch", ANY_TEXT),
            ("slow_start_ms", "INT"),
            ("hold_timeout_ms", "INT"),
            ("max_held", "INT"),
            ("retry_buffer_bytes", "INT"),
            ("drain_grace_ms", "INT"),
            ("switchover_pin_grace_ms", "INT"),
            ("assist", ANY_TEXT),
            ("assist_username", ANY_TEXT),
            ("assist_password", ANY_TEXT),
            ("switchover_username", ANY_TEXT),
            ("switchover_password", ANY_TEXT),
            ("replication_username", ANY_TEXT),
            ("replication_password", ANY_TEXT),
            ("auto_failover", "INT"),
        ],
        &[],
    ),
    table(
        "mysql_users",
        Module::MysqlUsers,
        &[
            ("username", NAME),
            ("password", ANY_TEXT),
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("use_ssl", "INT CHECK (use_ssl IN (0,1)) NOT NULL DEFAULT 0"),
            ("default_hostgroup", "INT NOT NULL DEFAULT 0"),
            ("default_schema", ANY_TEXT),
            ("schema_locked", "INT CHECK (schema_locked IN (0,1)) NOT NULL DEFAULT 0"),
            ("transaction_persistent", "INT CHECK (transaction_persistent IN (0,1)) NOT NULL DEFAULT 1"),
            ("fast_forward", "INT CHECK (fast_forward IN (0,1)) NOT NULL DEFAULT 0"),
            ("backend", "INT CHECK (backend IN (0,1)) NOT NULL DEFAULT 1"),
            ("frontend", "INT CHECK (frontend IN (0,1)) NOT NULL DEFAULT 1"),
            ("max_connections", "INT CHECK (max_connections >= 0) NOT NULL DEFAULT 10000"),
            ("attributes", "VARCHAR CHECK (attributes = '' OR JSON_VALID(attributes)) NOT NULL DEFAULT ''"),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (username, backend)", "UNIQUE (username, frontend)"],
    ),
    table("mysql_query_rules", Module::MysqlQueryRules, QUERY_RULE, &[]),
    table(
        "mysql_query_rules_fast_routing",
        Module::MysqlQueryRules,
        &[
            ("username", NAME),
            ("schemaname", NAME),
            ("flagIN", "INT NOT NULL DEFAULT 0"),
            ("destination_hostgroup", "INT CHECK (destination_hostgroup >= 0) NOT NULL"),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (username, schemaname, flagIN)"],
    ),
    table(
        super::GLOBAL_VARIABLES,
        Module::MysqlVariables,
        &[("variable_name", "VARCHAR NOT NULL PRIMARY KEY"), ("variable_value", NAME)],
        &[],
    ),
    table(
        "weir_listeners",
        Module::MysqlVariables,
        &[
            ("address", "VARCHAR NOT NULL PRIMARY KEY"),
            ("mode", "VARCHAR NOT NULL DEFAULT 'split'"),
            ("hostgroup", "INT"),
            ("comment", TEXT),
        ],
        &[],
    ),
    table(
        "mysql_firewall_whitelist_users",
        Module::MysqlFirewall,
        &[
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("username", NAME),
            ("client_address", NAME),
            ("mode", "VARCHAR CHECK (mode IN ('OFF','DETECTING','PROTECTING')) NOT NULL DEFAULT 'OFF'"),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (username, client_address)"],
    ),
    table(
        "mysql_firewall_whitelist_rules",
        Module::MysqlFirewall,
        &[
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("username", NAME),
            ("client_address", NAME),
            ("schemaname", NAME),
            ("flagIN", "INT NOT NULL DEFAULT 0"),
            ("digest", NAME),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (username, client_address, schemaname, flagIN, digest)"],
    ),
    table(
        "mysql_firewall_whitelist_sqli_fingerprints",
        Module::MysqlFirewall,
        &[("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"), ("fingerprint", NAME)],
        &["PRIMARY KEY (fingerprint)"],
    ),
    table(
        "scheduler",
        Module::Scheduler,
        &[
            ("id", ID),
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("interval_ms", "INTEGER CHECK (interval_ms BETWEEN 100 AND 100000000) NOT NULL"),
            ("filename", NAME),
            ("arg1", ANY_TEXT),
            ("arg2", ANY_TEXT),
            ("arg3", ANY_TEXT),
            ("arg4", ANY_TEXT),
            ("arg5", ANY_TEXT),
            ("comment", TEXT),
        ],
        &[],
    ),
    table(
        "proxysql_servers",
        Module::ProxysqlServers,
        &[
            ("hostname", NAME),
            ("port", "INT CHECK (port BETWEEN 1 AND 65535) NOT NULL DEFAULT 6032"),
            ("weight", "INT CHECK (weight >= 0) NOT NULL DEFAULT 0"),
            ("comment", TEXT),
        ],
        &["PRIMARY KEY (hostname, port)"],
    ),
    table(
        "restapi_routes",
        Module::Restapi,
        &[
            ("id", ID),
            ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
            ("timeout_ms", "INTEGER CHECK (timeout_ms BETWEEN 100 AND 100000000) NOT NULL"),
            ("method", "VARCHAR NOT NULL CHECK (UPPER(method) IN ('GET','POST'))"),
            ("uri", NAME),
            ("script", NAME),
            ("comment", TEXT),
        ],
        &[],
    ),
];

const SERVER: &[(&str, &str)] = &[
    ("hostgroup_id", "INT CHECK (hostgroup_id >= 0) NOT NULL DEFAULT 0"),
    ("hostname", NAME),
    ("port", "INT CHECK (port BETWEEN 0 AND 65535) NOT NULL DEFAULT 3306"),
    (
        "gtid_port",
        "INT CHECK (gtid_port = 0 OR (gtid_port <> port AND gtid_port BETWEEN 0 AND 65535)) NOT NULL DEFAULT 0",
    ),
    (
        "status",
        "VARCHAR CHECK (UPPER(status) IN ('ONLINE','SHUNNED','OFFLINE_SOFT','OFFLINE_HARD')) NOT NULL \
         DEFAULT 'ONLINE'",
    ),
    ("weight", "INT CHECK (weight BETWEEN 0 AND 10000000) NOT NULL DEFAULT 1"),
    ("compression", "INT CHECK (compression IN (0,1)) NOT NULL DEFAULT 0"),
    ("max_connections", "INT CHECK (max_connections >= 0) NOT NULL DEFAULT 1000"),
    ("max_replication_lag", "INT CHECK (max_replication_lag BETWEEN 0 AND 126144000) NOT NULL DEFAULT 0"),
    ("use_ssl", "INT CHECK (use_ssl IN (0,1)) NOT NULL DEFAULT 0"),
    ("max_latency_ms", "INT UNSIGNED CHECK (max_latency_ms >= 0) NOT NULL DEFAULT 0"),
    ("comment", TEXT),
];

const SERVER_KEY: &[&str] = &["PRIMARY KEY (hostgroup_id, hostname, port)"];

/// Of Galera and of Group Replication.
const CLUSTER: &[(&str, &str)] = &[
    ("writer_hostgroup", "INT CHECK (writer_hostgroup >= 0) NOT NULL PRIMARY KEY"),
    (
        "backup_writer_hostgroup",
        "INT CHECK (backup_writer_hostgroup >= 0 AND backup_writer_hostgroup <> writer_hostgroup) NOT NULL",
    ),
    (
        "reader_hostgroup",
        "INT NOT NULL CHECK (reader_hostgroup >= 0 AND reader_hostgroup NOT IN (writer_hostgroup, \
         backup_writer_hostgroup))",
    ),
    (
        "offline_hostgroup",
        "INT NOT NULL CHECK (offline_hostgroup >= 0 AND offline_hostgroup NOT IN (writer_hostgroup, \
         backup_writer_hostgroup, reader_hostgroup))",
    ),
    ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1"),
    ("max_writers", "INT NOT NULL CHECK (max_writers >= 0) DEFAULT 1"),
    ("writer_is_also_reader", "INT CHECK (writer_is_also_reader IN (0,1,2)) NOT NULL DEFAULT 0"),
    ("max_transactions_behind", "INT CHECK (max_transactions_behind >= 0) NOT NULL DEFAULT 0"),
    ("comment", ANY_TEXT),
];

const CLUSTER_KEYS: &[&str] =
    &["UNIQUE (reader_hostgroup)", "UNIQUE (offline_hostgroup)", "UNIQUE (backup_writer_hostgroup)"];

const QUERY_RULE: &[(&str, &str)] = &[
    ("rule_id", ID),
    ("active", "INT CHECK (active IN (0,1)) NOT NULL DEFAULT 0"),
    ("username", ANY_TEXT),
    ("schemaname", ANY_TEXT),
    ("flagIN", "INT CHECK (flagIN >= 0) NOT NULL DEFAULT 0"),
    ("client_addr", ANY_TEXT),
    ("proxy_addr", ANY_TEXT),
    ("proxy_port", "INT CHECK (proxy_port BETWEEN 0 AND 65535)"),
    ("digest", ANY_TEXT),
    ("match_digest", ANY_TEXT),
    ("match_pattern", ANY_TEXT),
    ("negate_match_pattern", "INT CHECK (negate_match_pattern IN (0,1)) NOT NULL DEFAULT 0"),
    ("re_modifiers", "VARCHAR DEFAULT 'CASELESS'"),
    ("flagOUT", "INT CHECK (flagOUT >= 0)"),
    ("replace_pattern", "VARCHAR CHECK (replace_pattern IS NULL OR match_pattern IS NOT NULL)"),
    ("destination_hostgroup", "INT DEFAULT NULL"),
    ("cache_ttl", "INT CHECK (cache_ttl > 0)"),
    ("cache_empty_result", "INT CHECK (cache_empty_result IN (0,1)) DEFAULT NULL"),
    ("cache_timeout", "INT CHECK (cache_timeout >= 0)"),
    ("reconnect", "INT CHECK (reconnect IN (0,1)) DEFAULT NULL"),
    ("timeout", "INT UNSIGNED CHECK (timeout >= 0)"),
    ("retries", "INT CHECK (retries BETWEEN 0 AND 1000)"),
    ("delay", "INT UNSIGNED CHECK (delay >= 0)"),
    ("next_query_flagIN", "INT UNSIGNED"),
    ("mirror_flagOUT", "INT UNSIGNED"),
    ("mirror_hostgroup", "INT UNSIGNED"),
    ("error_msg", ANY_TEXT),
    ("OK_msg", ANY_TEXT),
    ("sticky_conn", "INT CHECK (sticky_conn IN (0,1))"),
    ("multiplex", "INT CHECK (multiplex IN (0,1,2))"),
    ("gtid_from_hostgroup", "INT UNSIGNED"),
    ("log", "INT CHECK (log IN (0,1))"),
    ("apply", "INT CHECK (apply IN (0,1)) NOT NULL DEFAULT 0"),
    ("attributes", "VARCHAR CHECK (attributes = '' OR JSON_VALID(attributes)) NOT NULL DEFAULT ''"),
    ("comment", ANY_TEXT),
];

/// Tables of `main` that nobody edits and that have no twin.
pub(super) const RUNTIME_ONLY: &[Declared] = &[
    Declared {
        name: "runtime_checksums_values",
        module: None,
        columns: &[
            ("name", "VARCHAR NOT NULL PRIMARY KEY"),
            ("version", "INT NOT NULL"),
            ("epoch", "INT NOT NULL"),
            ("checksum", NAME),
        ],
        constraints: &[],
        has_reset: false,
    },
    // What was loaded, where runtime_mysql_servers shows what is observed.
    Declared {
        name: "runtime_weir_loaded_servers",
        module: None,
        columns: SERVER,
        constraints: SERVER_KEY,
        has_reset: false,
    },
];

/// Tables of `disk` that nobody edits.
pub(super) const DISK_ONLY: &[Declared] = &[Declared {
    // When what is saved was made, so that a proxy that comes back knows how old its configuration is.
    name: "weir_saved_epochs",
    module: None,
    columns: &[("name", "VARCHAR NOT NULL PRIMARY KEY"), ("epoch", "INT NOT NULL"), ("checksum", NAME)],
    constraints: &[],
    has_reset: false,
}];
