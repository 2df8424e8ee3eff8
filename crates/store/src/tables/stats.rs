//! Lists `stats`: counters of now. Times are microseconds, moments seconds since 1970, unless a column's name says otherwise.

use super::Declared;

const fn table(name: &'static str, columns: &'static [(&'static str, &'static str)]) -> Declared {
    Declared { name, module: None, columns, constraints: &[], has_reset: false }
}

const fn with_reset(name: &'static str, columns: &'static [(&'static str, &'static str)]) -> Declared {
    Declared { has_reset: true, ..table(name, columns) }
}

const NAME: &str = "VARCHAR";
const NUMBER: &str = "INT";

pub(super) const CONNECTION_POOL: &[(&str, &str)] = &[
    ("hostgroup", NUMBER),
    ("srv_host", NAME),
    ("srv_port", NUMBER),
    ("status", NAME),
    ("ConnUsed", NUMBER),
    ("ConnFree", NUMBER),
    ("ConnOK", NUMBER),
    ("ConnERR", NUMBER),
    ("MaxConnUsed", NUMBER),
    ("Queries", NUMBER),
    ("Queries_GTID_sync", NUMBER),
    ("Bytes_data_sent", NUMBER),
    ("Bytes_data_recv", NUMBER),
    ("Latency_us", NUMBER),
];

pub(super) const TABLES: &[Declared] = &[
    with_reset("stats_mysql_connection_pool", CONNECTION_POOL),
    with_reset(
        "stats_mysql_query_digest",
        &[
            ("hostgroup", NUMBER),
            ("schemaname", NAME),
            ("username", NAME),
            ("client_address", NAME),
            ("digest", NAME),
            ("digest_text", NAME),
            ("count_star", NUMBER),
            ("first_seen", NUMBER),
            ("last_seen", NUMBER),
            ("sum_time", NUMBER),
            ("min_time", NUMBER),
            ("max_time", NUMBER),
            ("sum_rows_affected", NUMBER),
            ("sum_rows_sent", NUMBER),
        ],
    ),
    table(
        "stats_weir_addresses",
        &[("hostname", NAME), ("port", NUMBER), ("address", NAME), ("all_addresses", NAME), ("error", NAME)],
    ),
    table(
        "stats_weir_query_digest",
        &[
            ("hostgroup", NUMBER),
            ("schemaname", NAME),
            ("username", NAME),
            ("client_address", NAME),
            ("digest", NAME),
            ("digest_text", NAME),
            ("count_star", NUMBER),
            ("sum_time", NUMBER),
            ("p50_time", NUMBER),
            ("p95_time", NUMBER),
            ("p99_time", NUMBER),
            ("max_time", NUMBER),
        ],
    ),
    table(
        "stats_mysql_processlist",
        &[
            ("ThreadID", NUMBER),
            ("SessionID", NUMBER),
            ("user", NAME),
            ("db", NAME),
            ("cli_host", NAME),
            ("cli_port", NUMBER),
            ("hostgroup", NUMBER),
            ("l_srv_host", NAME),
            ("l_srv_port", NUMBER),
            ("srv_host", NAME),
            ("srv_port", NUMBER),
            ("command", NAME),
            ("time_ms", NUMBER),
            ("info", NAME),
            ("status_flags", NUMBER),
            ("extended_info", NAME),
        ],
    ),
    table("stats_mysql_global", &[("Variable_Name", NAME), ("Variable_Value", NAME)]),
    with_reset(
        "stats_mysql_errors",
        &[
            ("hostgroup", NUMBER),
            ("hostname", NAME),
            ("port", NUMBER),
            ("username", NAME),
            ("client_address", NAME),
            ("schemaname", NAME),
            ("errno", NUMBER),
            ("count_star", NUMBER),
            ("first_seen", NUMBER),
            ("last_seen", NUMBER),
            ("last_error", NAME),
        ],
    ),
    table(
        "stats_mysql_free_connections",
        &[
            ("fd", NUMBER),
            ("hostgroup", NUMBER),
            ("srv_host", NAME),
            ("srv_port", NUMBER),
            ("user", NAME),
            ("schema", NAME),
            ("init_connect", NAME),
            ("time_zone", NAME),
            ("sql_mode", NAME),
            ("autocommit", NAME),
            ("idle_ms", NUMBER),
            ("statistics", NAME),
            ("mysql_info", NAME),
        ],
    ),
    table(
        "stats_mysql_commands_counters",
        &[
            ("Command", NAME),
            ("Total_Time_us", NUMBER),
            ("Total_cnt", NUMBER),
            ("cnt_100us", NUMBER),
            ("cnt_500us", NUMBER),
            ("cnt_1ms", NUMBER),
            ("cnt_5ms", NUMBER),
            ("cnt_10ms", NUMBER),
            ("cnt_50ms", NUMBER),
            ("cnt_100ms", NUMBER),
            ("cnt_500ms", NUMBER),
            ("cnt_1s", NUMBER),
            ("cnt_5s", NUMBER),
            ("cnt_10s", NUMBER),
            ("cnt_INFs", NUMBER),
        ],
    ),
    table("stats_mysql_query_rules", &[("rule_id", NUMBER), ("hits", NUMBER)]),
    table(
        "stats_mysql_users",
        &[("username", NAME), ("frontend_connections", NUMBER), ("frontend_max_connections", NUMBER)],
    ),
    table(
        "stats_mysql_gtid_executed",
        &[("hostname", NAME), ("port", NUMBER), ("gtid_executed", NAME), ("events", NUMBER)],
    ),
    table(
        "stats_mysql_prepared_statements_info",
        &[
            ("global_stmt_id", NUMBER),
            ("schemaname", NAME),
            ("username", NAME),
            ("digest", NAME),
            ("ref_count_client", NUMBER),
            ("ref_count_server", NUMBER),
            ("num_columns", NUMBER),
            ("num_params", NUMBER),
            ("query", NAME),
        ],
    ),
    with_reset(
        "stats_mysql_client_host_cache",
        &[("client_address", NAME), ("error_count", NUMBER), ("last_updated", NUMBER)],
    ),
    table("stats_memory_metrics", &[("Variable_Name", NAME), ("Variable_Value", NAME)]),
    table(
        "stats_proxysql_servers_checksums",
        &[
            ("hostname", NAME),
            ("port", NUMBER),
            ("name", NAME),
            ("version", NUMBER),
            ("epoch", NUMBER),
            ("checksum", NAME),
            ("changed_at", NUMBER),
            ("updated_at", NUMBER),
            ("diff_check", NUMBER),
        ],
    ),
    table(
        "stats_proxysql_servers_metrics",
        &[
            ("hostname", NAME),
            ("port", NUMBER),
            ("weight", NUMBER),
            ("comment", NAME),
            ("response_time_ms", NUMBER),
            ("Uptime_s", NUMBER),
            ("last_check_ms", NUMBER),
            ("Queries", NUMBER),
            ("Client_Connections_connected", NUMBER),
            ("Client_Connections_created", NUMBER),
        ],
    ),
    table(
        "stats_proxysql_servers_status",
        &[
            ("hostname", NAME),
            ("port", NUMBER),
            ("weight", NUMBER),
            ("master", NAME),
            ("global_version", NUMBER),
            ("check_age_us", NUMBER),
            ("ping_time_us", NUMBER),
            ("checks_OK", NUMBER),
            ("checks_ERR", NUMBER),
        ],
    ),
    table(
        "stats_proxysql_servers_clients_status",
        &[
            ("uuid", NAME),
            ("hostname", NAME),
            ("port", NUMBER),
            ("admin_mysql_ifaces", NAME),
            ("last_seen_at", NUMBER),
        ],
    ),
];
