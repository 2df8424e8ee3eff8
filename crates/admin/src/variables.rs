//! Lists variables that clients ask a server for and that mean nothing here: what a driver must hear to be content.

/// The version of the interface, with which tools decide what they can ask for: ProxySQL's, and Weir's own behind it.
pub(crate) const VERSION: &str = concat!("2.7.2-weir-", env!("CARGO_PKG_VERSION"));
/// What the greeting says: drivers decide by it what to ask a MySQL server first.
pub(crate) const GREETING: &str = concat!("8.0.30-weir-", env!("CARGO_PKG_VERSION"));

/// Names and values, sorted by name.
const SYSTEM: &[(&str, &str)] = &[
    ("auto_increment_increment", "1"),
    ("auto_increment_offset", "1"),
    ("autocommit", "1"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("character_set_system", "utf8mb4"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("collation_database", "utf8mb4_general_ci"),
    ("collation_server", "utf8mb4_general_ci"),
    ("default_storage_engine", "SQLITE"),
    ("error_count", "0"),
    ("foreign_key_checks", "1"),
    ("have_query_cache", "NO"),
    ("have_ssl", "YES"),
    ("init_connect", ""),
    ("innodb_version", ""),
    ("interactive_timeout", "28800"),
    ("license", "Apache-2.0"),
    ("lower_case_file_system", "OFF"),
    ("lower_case_table_names", "2"),
    ("max_allowed_packet", "67108864"),
    ("max_execution_time", "0"),
    ("net_buffer_length", "16384"),
    ("net_read_timeout", "60"),
    ("net_write_timeout", "60"),
    ("performance_schema", "0"),
    ("protocol_version", "10"),
    ("query_cache_size", "0"),
    ("query_cache_type", "OFF"),
    ("read_only", "0"),
    ("session_track_schema", "0"),
    ("session_track_system_variables", ""),
    ("sql_mode", "NO_BACKSLASH_ESCAPES"),
    ("sql_safe_updates", "0"),
    ("sql_select_limit", "18446744073709551615"),
    ("system_time_zone", "UTC"),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "SERIALIZABLE"),
    ("transaction_read_only", "0"),
    ("tx_isolation", "SERIALIZABLE"),
    ("tx_read_only", "0"),
    ("unique_checks", "1"),
    ("version", VERSION),
    ("version_comment", "Weir admin interface"),
    ("version_compile_machine", std::env::consts::ARCH),
    ("version_compile_os", std::env::consts::OS),
    ("wait_timeout", "28800"),
    ("warning_count", "0"),
    ("wsrep_on", "OFF"),
];

/// The value of a variable, by its name without `@@` and scope.
pub(crate) fn system(name: &str) -> Option<&'static str> {
    SYSTEM.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SYSTEM.iter().copied()
}

/// `@@session.x`, `@@x` as `x`.
pub(crate) fn bare(name: &str) -> &str {
    let name = name.trim_start_matches('@');
    let scopes = ["session.", "global.", "local.", "persist."];
    let scope = scopes
        .iter()
        .find(|scope| name.get(..scope.len()).is_some_and(|head| head.eq_ignore_ascii_case(scope)));
    scope.map_or(name, |scope| name.get(scope.len()..).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found_in_any_case_and_scope() {
        assert!(SYSTEM.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(system(bare("@@Session.Autocommit")), Some("1"));
        assert_eq!(system(bare("@@mysql-threads")), None);
    }
}
