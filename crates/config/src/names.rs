//! What ProxySQL 2.7 knows and Weir has not built yet. Names and defaults are ProxySQL's interface (its manual,
//! "Global variables" and "Main (runtime)").

use toml_edit::Item;

use crate::fields::as_bool;

/// Tables, top-level keys and whole modules of ProxySQL's configuration.
pub(crate) const TABLES_NOT_BUILT: &[&str] = &[
    "mysql_aws_aurora_hostgroups",
    "mysql_collations",
    "mysql_firewall_whitelist_users",
    "mysql_firewall_whitelist_rules",
    "mysql_firewall_whitelist_sqli_fingerprints",
    "mysql_ldap_mapping",
    "scheduler",
    "restapi",
    "restapi_routes",
    "proxysql_servers",
    "coredump_filters",
    "clickhouse_users",
    "clickhouse_variables",
    "sqliteserver_variables",
    "ldap_variables",
    "pgsql_servers",
    "pgsql_users",
    "pgsql_query_rules",
    "pgsql_variables",
    "pgsql_replication_hostgroups",
    "errorlog",
    "cluster_sync_interfaces",
    "execute_on_exit_failure",
    "ldap_auth_plugin",
    "restart_on_missing_heartbeats",
    "web_interface_plugin",
    "uuid",
];

/// `mysql-` variables whose default is false, 0 or empty and means "off": these values are accepted.
const MYSQL_OFF: &[&str] = &[
    "add_ldap_user_comment",
    "auditlog_filename",
    "auto_increment_delay_multiplex_timeout_ms",
    "automatic_detect_sqli",
    "autocommit_false_is_transaction",
    "autocommit_false_not_reusable",
    "client_host_cache_size",
    "client_host_error_counts",
    "connection_delay_multiplex_ms",
    "enable_load_data_local_infile",
    "enforce_autocommit_on_reads",
    "eventslog_default_log",
    "eventslog_filename",
    "eventslog_stmt_parameters",
    "fast_forward_grace_close_ms",
    "firewall_whitelist_enabled",
    "ldap_user_variable",
    "log_mysql_warnings_enabled",
    "monitor_replication_lag_group_by_host",
    "monitor_replication_lag_use_percona_heartbeat",
    "parse_failure_logs_digest",
    "proxy_protocol_networks",
    "query_cache_handle_warnings",
    "query_digests_normalize_digest_text",
    "select_version_forwarding",
    "show_processlist_extended",
    "stats_time_backend_query",
    "stats_time_query_processor",
    "tcp_keepalive_time",
    "throttle_max_bytes_per_second_to_client",
    "throttle_ratio_server_to_client",
    "unshun_algorithm",
    "use_tcp_keepalive",
    "verbose_query_error",
];

/// `mysql-` variables whose default does something: no value is accepted yet.
const MYSQL_ON: &[&str] = &[
    "auditlog_filesize",
    "auditlog_flush_size",
    "auditlog_flush_timeout",
    "aurora_max_lag_ms_only_read_from_replicas",
    "auto_increment_delay_multiplex",
    "binlog_reader_connect_retry_msec",
    "client_found_rows",
    "client_multi_statements",
    "client_session_track_gtid",
    "commands_stats",
    "connpoll_reset_queue_length",
    "data_packets_history_size",
    "default_character_set_results",
    "default_collation_connection",
    "default_isolation_level",
    "default_max_join_size",
    "default_net_write_timeout",
    "default_reconnect",
    "default_session_track_gtids",
    "default_sql_auto_is_null",
    "default_sql_mode",
    "default_sql_safe_updates",
    "default_sql_select_limit",
    "default_time_zone",
    "default_transaction_read",
    "default_tx_isolation",
    "enable_client_deprecate_eof",
    "enable_server_deprecate_eof",
    "eventslog_buffer_history_size",
    "eventslog_buffer_max_query_length",
    "eventslog_filesize",
    "eventslog_flush_size",
    "eventslog_flush_timeout",
    "eventslog_format",
    "eventslog_rate_limit",
    "eventslog_table_memory_size",
    "firewall_whitelist_errormsg",
    "forward_autocommit",
    "handle_unknown_charset",
    "handle_warnings",
    "have_compress",
    "hostgroup_manager_verbose",
    "keep_multiplexing_variables",
    "log_unhealthy_connections",
    "long_query_time",
    "max_stmts_cache",
    "metrics_compress",
    "min_num_servers_lantency_awareness",
    "mirror_max_concurrency",
    "mirror_max_queue_length",
    "monitor_aws_rds_topology_discovery_interval",
    "monitor_connect_interval",
    "monitor_enabled",
    "monitor_groupreplication_max_transactions_behind_count",
    "monitor_groupreplication_max_transactions_behind_for_read_only",
    "monitor_local_dns_cache_refresh_interval",
    "monitor_local_dns_cache_ttl",
    "monitor_local_dns_resolver_queue_maxsize",
    "monitor_query_interval",
    "monitor_query_timeout",
    "monitor_replication_lag_count",
    "monitor_replication_lag_interval",
    "monitor_replication_lag_timeout",
    "monitor_threads_max",
    "monitor_threads_min",
    "monitor_threads_queue_maxsize",
    "monitor_wait_timeout",
    "poll_timeout",
    "poll_timeout_on_failure",
    "processlist_max_query_length",
    "protocol_compression_level",
    "query_cache_size_MB",
    "query_cache_soft_ttl_pct",
    "query_cache_stores_empty_result",
    "query_rules_fast_routing_algorithm",
    "reset_connection_algorithm",
    "server_capabilities",
    "servers_stats",
    "session_idle_ms",
    "session_idle_show_processlist",
    "sessions_sort",
    "set_parser_algorithm",
    "set_query_lock_on_hostgroup",
    "show_processlist_max_query_length",
    "stacksize",
    "threshold_query_length",
    "threshold_resultset_size",
];

/// `admin-` variables that are off at false, 0 or empty.
const ADMIN_OFF: &[&str] = &[
    "cluster_password",
    "cluster_username",
    "debug",
    "read_only",
    "restapi_enabled",
    "ssl_keylog_file",
    "stats_mysql_query_digest_to_disk",
    "telnet_admin_ifaces",
    "telnet_stats_ifaces",
    "web_enabled",
    "web_verbosity",
];

/// All `admin-` variables.
pub(crate) const ADMIN_VARIABLES: &[&str] = &[
    "admin_credentials",
    "checksum_admin_variables",
    "checksum_ldap_variables",
    "checksum_mysql_query_rules",
    "checksum_mysql_servers",
    "checksum_mysql_users",
    "checksum_mysql_variables",
    "cluster_admin_variables_diffs_before_sync",
    "cluster_admin_variables_save_to_disk",
    "cluster_check_interval_ms",
    "cluster_check_status_frequency",
    "cluster_ldap_variables_diffs_before_sync",
    "cluster_ldap_variables_save_to_disk",
    "cluster_mysql_query_rules_diffs_before_sync",
    "cluster_mysql_query_rules_save_to_disk",
    "cluster_mysql_servers_diffs_before_sync",
    "cluster_mysql_servers_save_to_disk",
    "cluster_mysql_servers_sync_algorithm",
    "cluster_mysql_users_diffs_before_sync",
    "cluster_mysql_users_save_to_disk",
    "cluster_mysql_variables_diffs_before_sync",
    "cluster_mysql_variables_save_to_disk",
    "cluster_password",
    "cluster_proxysql_servers_diffs_before_sync",
    "cluster_proxysql_servers_save_to_disk",
    "cluster_username",
    "coredump_generation_interval_ms",
    "coredump_generation_threshold",
    "debug",
    "hash_passwords",
    "mysql_ifaces",
    "pgsql_ifaces",
    "prometheus_memory_metrics_interval",
    "read_only",
    "refresh_interval",
    "restapi_enabled",
    "restapi_port",
    "ssl_keylog_file",
    "stats_credentials",
    "stats_mysql_connection_pool",
    "stats_mysql_connections",
    "stats_mysql_eventslog_sync_buffer_to_disk",
    "stats_mysql_query_cache",
    "stats_mysql_query_digest_to_disk",
    "stats_system_cpu",
    "stats_system_memory",
    "telnet_admin_ifaces",
    "telnet_stats_ifaces",
    "vacuum_stats",
    "version",
    "web_enabled",
    "web_port",
    "web_verbosity",
];

const NOT_BUILT: &str = "not built yet";

/// All `mysql-` variables that are not built.
pub(crate) fn not_built_mysql_variables() -> impl Iterator<Item = &'static str> {
    MYSQL_OFF.iter().chain(MYSQL_ON).copied()
}

/// What to say of a variable of `module` ("mysql" or "admin"); empty if its value means "off", none if the name is
/// unknown.
pub(crate) fn not_built_variable(module: &str, name: &str, item: &Item) -> Option<String> {
    let bare = name.strip_prefix(module).and_then(|rest| rest.strip_prefix(['-', '_']));
    let known = |name: &str| match module {
        "mysql" => not_built_mysql_variables().any(|known| known == name),
        _ => ADMIN_VARIABLES.contains(&name),
    };
    if !known(name) {
        let bare = bare.filter(|bare| !bare.is_empty())?;
        return Some(format!("names have no {module}- prefix here: write {}", crate::fields::quotable(bare)));
    }
    let has_off = if module == "mysql" { MYSQL_OFF.contains(&name) } else { ADMIN_OFF.contains(&name) };
    Some(if has_off && is_off(item) { String::new() } else { NOT_BUILT.to_owned() })
}

/// What to say of a top-level key; empty for a table without rows, none if the name is unknown.
pub(crate) fn not_built_table(name: &str, item: &Item) -> Option<String> {
    if !TABLES_NOT_BUILT.contains(&name) {
        return None;
    }
    let empty = match item {
        Item::ArrayOfTables(rows) => rows.is_empty(),
        Item::Table(table) => table.is_empty(),
        Item::Value(value) => {
            value.as_array().is_some_and(toml_edit::Array::is_empty)
                || value.as_inline_table().is_some_and(toml_edit::InlineTable::is_empty)
                || is_off(item)
        }
        Item::None => true,
    };
    Some(if empty { String::new() } else { NOT_BUILT.to_owned() })
}

fn is_off(item: &Item) -> bool {
    as_bool(item) == Some(false) || item.as_str() == Some("")
}
