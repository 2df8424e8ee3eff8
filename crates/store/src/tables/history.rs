//! Lists `stats_history`: counters as they were, with hours and days. Kept in the datadir. Timestamps are seconds since 1970.

use super::Declared;

const fn table(
    name: &'static str,
    columns: &'static [(&'static str, &'static str)],
    constraints: &'static [&'static str],
) -> Declared {
    Declared { name, module: None, columns, constraints, has_reset: false }
}

const NAME: &str = "VARCHAR";
const NUMBER: &str = "INT NOT NULL";
const MOMENT: &[&str] = &["PRIMARY KEY (timestamp)"];

const CONNECTIONS: &[(&str, &str)] = &[
    ("timestamp", NUMBER),
    ("Client_Connections_aborted", NUMBER),
    ("Client_Connections_connected", NUMBER),
    ("Client_Connections_created", NUMBER),
    ("Server_Connections_aborted", NUMBER),
    ("Server_Connections_connected", NUMBER),
    ("Server_Connections_created", NUMBER),
    ("ConnPool_get_conn_failure", NUMBER),
    ("ConnPool_get_conn_immediate", NUMBER),
    ("ConnPool_get_conn_success", NUMBER),
    ("Questions", NUMBER),
    ("Slow_queries", NUMBER),
    ("GTID_consistent_queries", NUMBER),
];

const POOL: &[(&str, &str)] = &[
    ("timestamp", NUMBER),
    ("MyHGM_myconnpoll_destroy", NUMBER),
    ("MyHGM_myconnpoll_get", NUMBER),
    ("MyHGM_myconnpoll_get_ok", NUMBER),
    ("MyHGM_myconnpoll_push", NUMBER),
    ("MyHGM_myconnpoll_reset", NUMBER),
];

const CPU: &[(&str, &str)] = &[("timestamp", NUMBER), ("tms_utime", NUMBER), ("tms_stime", NUMBER)];

const MEMORY: &[(&str, &str)] = &[
    ("timestamp", NUMBER),
    ("allocated", NUMBER),
    ("resident", NUMBER),
    ("active", NUMBER),
    ("mapped", NUMBER),
    ("metadata", NUMBER),
    ("retained", NUMBER),
];

const QUERY_CACHE: &[(&str, &str)] = &[
    ("timestamp", NUMBER),
    ("count_GET", NUMBER),
    ("count_GET_OK", NUMBER),
    ("count_SET", NUMBER),
    ("bytes_IN", NUMBER),
    ("bytes_OUT", NUMBER),
    ("Entries_Purged", NUMBER),
    ("Entries_In_Cache", NUMBER),
    ("Memory_Bytes", NUMBER),
];

const STATUS_VARIABLE: &[(&str, &str)] =
    &[("variable_id", NUMBER), ("timestamp", NUMBER), ("variable_value", "VARCHAR NOT NULL")];
const STATUS_VARIABLE_KEY: &[&str] = &["PRIMARY KEY (variable_id, timestamp)"];

pub(super) const TABLES: &[Declared] = &[
    table("mysql_connections", CONNECTIONS, MOMENT),
    table("mysql_connections_hour", CONNECTIONS, MOMENT),
    table("mysql_connections_day", CONNECTIONS, MOMENT),
    table("myhgm_connections", POOL, MOMENT),
    table("myhgm_connections_hour", POOL, MOMENT),
    table("myhgm_connections_day", POOL, MOMENT),
    table("system_cpu", CPU, MOMENT),
    table("system_cpu_hour", CPU, MOMENT),
    table("system_memory", MEMORY, MOMENT),
    table("system_memory_hour", MEMORY, MOMENT),
    table("mysql_query_cache", QUERY_CACHE, MOMENT),
    table("mysql_query_cache_hour", QUERY_CACHE, MOMENT),
    table("mysql_query_cache_day", QUERY_CACHE, MOMENT),
    table(
        "history_mysql_status_variables_lookup",
        &[
            ("variable_id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"),
            ("variable_name", "VARCHAR NOT NULL UNIQUE"),
        ],
        &[],
    ),
    table("history_mysql_status_variables", STATUS_VARIABLE, STATUS_VARIABLE_KEY),
    table("history_mysql_status_variables_hour", STATUS_VARIABLE, STATUS_VARIABLE_KEY),
    table("history_mysql_status_variables_day", STATUS_VARIABLE, STATUS_VARIABLE_KEY),
    table(
        "history_stats_mysql_connection_pool",
        &[
            ("timestamp", NUMBER),
            ("hostgroup", "INT"),
            ("srv_host", NAME),
            ("srv_port", "INT"),
            ("status", NAME),
            ("ConnUsed", "INT"),
            ("ConnFree", "INT"),
            ("ConnOK", "INT"),
            ("ConnERR", "INT"),
            ("MaxConnUsed", "INT"),
            ("Queries", "INT"),
            ("Queries_GTID_sync", "INT"),
            ("Bytes_data_sent", "INT"),
            ("Bytes_data_recv", "INT"),
            ("Latency_us", "INT"),
        ],
        &["PRIMARY KEY (timestamp, hostgroup, srv_host, srv_port)"],
    ),
    table(
        "history_mysql_query_digest",
        &[
            ("dump_time", NUMBER),
            ("hostgroup", "INT"),
            ("schemaname", NAME),
            ("username", NAME),
            ("client_address", NAME),
            ("digest", NAME),
            ("digest_text", NAME),
            ("count_star", "INT"),
            ("first_seen", "INT"),
            ("last_seen", "INT"),
            ("sum_time", "INT"),
            ("min_time", "INT"),
            ("max_time", "INT"),
            ("sum_rows_affected", "INT"),
            ("sum_rows_sent", "INT"),
        ],
        &[],
    ),
];
