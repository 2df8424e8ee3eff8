//! Reads the variables that servers report, and says what they mean to Weir.

/// completion_type with which a server closes the connection behind a transaction, as servers report it.
pub(crate) const RELEASE: &str = "RELEASE";

/// What a reported variable means for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A variable like any other: carried to other connections with SET.
    State,
    /// Not state, or state that is known otherwise.
    NotState,
    /// LAST_INSERT_ID().
    InsertId,
    /// Holds for one statement.
    NextStatement,
    /// Its value can't be read or written back: `timestamp=DEFAULT` reports a number.
    Unreadable,
}

pub(crate) fn meaning_of(name: &str) -> Meaning {
    match name {
        "last_insert_id" | "identity" => Meaning::InsertId,
        "insert_id" => Meaning::NextStatement,
        "timestamp"
        | "rand_seed1"
        | "rand_seed2"
        | "pseudo_thread_id"
        | "gtid_seq_no"
        | "wsrep_gtid_seq_no"
        | "collation_database"
        | "character_set_database"
        | "system_versioning_asof"
        | "gtid_next"
        // Changes wsrep_sync_wait, too, and reports itself only (MariaDB 10.11).
        | "wsrep_causal_reads"
        // Of MySQL: servers put them back with the end of a transaction, and do not report it (9.7).
        | "immediate_server_version"
        | "original_server_version"
        | "original_commit_timestamp"
        | "pseudo_slave_mode" => Meaning::Unreadable,
        "last_gtid" | "statement_id" | "error_count" | "warning_count" | "in_transaction"
        | "external_user" | "proxy_user" => Meaning::NotState,
        name if name.starts_with("session_track_") => Meaning::NotState,
        _ => Meaning::State,
    }
}
