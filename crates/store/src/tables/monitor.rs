//! Lists `monitor`: what probes saw. Times are microseconds since 1970, durations microseconds.

use super::Declared;

const fn log(name: &'static str, columns: &'static [(&'static str, &'static str)]) -> Declared {
    Declared { name, module: None, columns, constraints: &[], has_reset: false }
}

const NAME: &str = "VARCHAR NOT NULL";
const PORT: &str = "INT NOT NULL DEFAULT 3306";
const TIME: &str = "INT NOT NULL";
const DURATION: &str = "INT DEFAULT 0";
const NO: &str = "VARCHAR NOT NULL DEFAULT 'NO'";
const YES: &str = "VARCHAR NOT NULL DEFAULT 'YES'";
const ERROR: &str = "VARCHAR";

pub(super) const TABLES: &[Declared] = &[
    log(
        "mysql_server_connect_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("connect_success_time_us", DURATION),
            ("connect_error", ERROR),
        ],
    ),
    log(
        "mysql_server_ping_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("ping_success_time_us", DURATION),
            ("ping_error", ERROR),
        ],
    ),
    log(
        "mysql_server_read_only_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("success_time_us", DURATION),
            ("read_only", "INT DEFAULT 1"),
            ("error", ERROR),
        ],
    ),
    log(
        "mysql_server_replication_lag_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("success_time_us", DURATION),
            ("repl_lag", "INT DEFAULT 0"),
            ("error", ERROR),
        ],
    ),
    log(
        "mysql_server_group_replication_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("success_time_us", DURATION),
            ("viable_candidate", NO),
            ("read_only", YES),
            ("transactions_behind", "INT DEFAULT 0"),
            ("error", ERROR),
        ],
    ),
    log(
        "mysql_server_galera_log",
        &[
            ("hostname", NAME),
            ("port", PORT),
            ("time_start_us", TIME),
            ("success_time_us", DURATION),
            ("primary_partition", NO),
            ("read_only", YES),
            ("wsrep_local_recv_queue", "INT DEFAULT 0"),
            ("wsrep_local_state", "INT DEFAULT 0"),
            ("wsrep_desync", NO),
            ("wsrep_reject_queries", NO),
            ("wsrep_sst_donor_rejects_queries", NO),
            ("pxc_maint_mode", "VARCHAR NOT NULL DEFAULT 'DISABLED'"),
            ("error", ERROR),
        ],
    ),
];
