//! Declares the tables of one number a column and one row a moment, and how rows of many moments become one.

use rusqlite::{Connection, params};

/// The function that makes one value of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Of what goes up and down: the mean.
    Mean,
    /// Of what only goes up: the last.
    Last,
}

/// A table with a twin for hours, `..._hour`, and perhaps one for days.
pub(super) struct Series {
    pub table: &'static str,
    pub has_days: bool,
    /// Tells rows of one moment apart.
    key: Option<&'static str>,
    /// The columns behind `timestamp`, or behind key and `timestamp`.
    pub columns: &'static [(&'static str, Fold)],
}

use Fold::{Last, Mean};

pub(super) const CONNECTIONS: Series = Series {
    table: "mysql_connections",
    has_days: true,
    key: None,
    columns: &[
        ("Client_Connections_aborted", Last),
        ("Client_Connections_connected", Mean),
        ("Client_Connections_created", Last),
        ("Server_Connections_aborted", Last),
        ("Server_Connections_connected", Mean),
        ("Server_Connections_created", Last),
        ("ConnPool_get_conn_failure", Last),
        ("ConnPool_get_conn_immediate", Last),
        ("ConnPool_get_conn_success", Last),
        ("Questions", Last),
        ("Slow_queries", Last),
        ("GTID_consistent_queries", Last),
    ],
};

pub(super) const POOL: Series = Series {
    table: "myhgm_connections",
    has_days: true,
    key: None,
    columns: &[
        ("MyHGM_myconnpoll_destroy", Last),
        ("MyHGM_myconnpoll_get", Last),
        ("MyHGM_myconnpoll_get_ok", Last),
        ("MyHGM_myconnpoll_push", Last),
        ("MyHGM_myconnpoll_reset", Last),
    ],
};

pub(super) const CPU: Series = Series {
    table: "system_cpu",
    has_days: false,
    key: None,
    columns: &[("tms_utime", Last), ("tms_stime", Last)],
};

pub(super) const MEMORY: Series = Series {
    table: "system_memory",
    has_days: false,
    key: None,
    columns: &[
        ("allocated", Mean),
        ("resident", Mean),
        ("active", Mean),
        ("mapped", Mean),
        ("metadata", Mean),
        ("retained", Mean),
    ],
};

pub(super) const STATUS: Series = Series {
    table: "history_mysql_status_variables",
    has_days: true,
    key: Some("variable_id"),
    columns: &[("variable_value", Last)],
};

impl Series {
    /// Makes rows of `length_s` each in `to` of those in `from`, for all times that are over and have none yet.
    pub(super) fn fold(
        &self,
        connection: &Connection,
        from: &str,
        to: &str,
        length_s: u64,
        now_s: u64,
    ) -> Result<(), rusqlite::Error> {
        let (length, now) = (super::stored(length_s), super::stored(now_s));
        let key = self.key.map(|key| format!("{key}, ")).unwrap_or_default();
        let columns: Vec<String> = self.columns.iter().map(|(column, fold)| folded(column, *fold)).collect();
        let statement = format!(
            "INSERT OR REPLACE INTO {to} SELECT {key}timestamp / ?1 * ?1, {} FROM (SELECT *, max(timestamp) \
             OVER (PARTITION BY {key}timestamp / ?1) AS last FROM {from}) \
             WHERE timestamp >= coalesce((SELECT max(timestamp) + ?1 FROM {to}), 0) AND timestamp < ?2 / ?1 * ?1 \
             GROUP BY {key}timestamp / ?1",
            columns.join(", ")
        );
        connection.prepare_cached(&statement)?.execute(params![length, now]).map(drop)
    }
}

fn folded(column: &str, fold: Fold) -> String {
    match fold {
        Fold::Mean => format!("CAST(round(avg({column})) AS INTEGER)"),
        Fold::Last => format!("max(CASE WHEN timestamp = last THEN {column} END)"),
    }
}
