//! Makes metrics of the workers' overall counters, by a table of names.

use weir_http::{Family, Kind};
use weir_proxy::stats::Totals;

/// One of the totals.
type Figure = fn(&Totals) -> u64;

/// Name, meaning, and the total that it shows.
type Row = (&'static str, &'static str, Figure);

/// Name, meaning, a label, and the totals that its values show.
type LabelledRow = (&'static str, &'static str, &'static str, &'static [(&'static str, Figure)]);

const COUNTERS: &[Row] = &[
    ("proxysql_access_denied_wrong_password", "Logins with a wrong user or password.", |t| {
        t.refused_password
    }),
    ("proxysql_access_denied_max_connections", "Clients refused because of mysql-max_connections.", |t| {
        t.refused_max_connections
    }),
    (
        "proxysql_access_denied_max_user_connections",
        "Clients refused because of their user's max_connections.",
        |t| t.refused_max_user_connections,
    ),
    ("weir_proxy_headers", "Clients of whom a header of the PROXY protocol has come.", |t| t.proxy_headers),
    ("weir_proxy_headers_refused", "Clients refused because of such a header.", |t| t.refused_proxy_header),
    ("proxysql_questions", "Commands of clients.", |t| t.questions),
    ("proxysql_slow_queries", "Statements that took longer than mysql-long_query_time.", |t| t.slow_queries),
    ("proxysql_com_frontend_init_db", "COM_INIT_DB of clients.", |t| t.client_init_db),
    ("proxysql_com_backend_init_db", "COM_INIT_DB to servers.", |t| t.server_init_db),
    ("proxysql_com_backend_change_user", "COM_CHANGE_USER to servers.", |t| t.server_change_user),
    ("weir_server_set", "SET statements that carried a session's variables to a connection.", |t| {
        t.server_set
    }),
    ("proxysql_generated_error_packets", "Errors sent by Weir itself.", |t| t.errors_generated),
    ("proxysql_max_connect_timeouts", "Statements for which no connection was available in time.", |t| {
        t.waits_timed_out
    }),
    ("proxysql_mysql_killed_backend_queries", "Statements that Weir has killed at a server.", |t| {
        t.killed_queries
    }),
    ("proxysql_mysql_killed_backend_connections", "Connections that Weir has killed at a server.", |t| {
        t.killed_connections
    }),
    ("weir_sessions_moved", "Moves of a session with its user variables to another server.", |t| {
        t.sessions_moved
    }),
    ("weir_sessions_not_moved", "Failed attempts to move a session to another server.", |t| {
        t.sessions_not_moved
    }),
    ("weir_deadlocks_retried", "Statements that ran again after a deadlock.", |t| t.deadlocks_retried),
    ("weir_deadlocks_told", "Deadlocks that clients were told of.", |t| t.deadlocks_told),
    ("weir_transactions_replayed", "Interrupted transactions that ran again.", |t| t.transactions_replayed),
    ("weir_outcomes_asked", "COMMITs without an answer whose outcome was asked for.", |t| t.outcomes_asked),
    ("weir_outcomes_committed", "Those of them that had taken effect.", |t| t.outcomes_committed),
    ("weir_outcome_markers_refused", "COMMITs without a marker, as the server did not allow it.", |t| {
        t.outcome_markers_refused
    }),
    ("proxysql_myhgm_myconnpool_get", "Connections requested for statements whose session had none.", |t| {
        t.pool_gets
    }),
    ("proxysql_connpool_get_conn_success", "Requests that got a connection.", |t| t.pool_lends),
    ("proxysql_connpool_get_conn_success_immediate", "Requests that got an idle connection at once.", |t| {
        t.pool_gets_immediate
    }),
    ("proxysql_myhgm_myconnpool_push", "Connections returned to the pool.", |t| t.pool_returns),
    (
        "proxysql_myhgm_myconnpool_destroy",
        "Connections closed for reasons other than the pool's size.",
        |t| t.pool_discards,
    ),
];

/// Name, meaning, and a time, in seconds.
type TimeRow = (&'static str, &'static str, fn(&Totals) -> f64);

const SECONDS: &[TimeRow] = &[
    ("proxysql_backend_query_time_seconds", "Total time that servers spent on statements.", |t| {
        t.server_time_ns as f64 / 1e9
    }),
    ("weir_transactions_replayed_seconds", "How long clients waited for transactions that ran again.", |t| {
        t.transactions_replayed_us as f64 / 1e6
    }),
    ("weir_outcomes_asked_seconds", "How long clients waited for the outcome of a COMMIT.", |t| {
        t.outcomes_asked_us as f64 / 1e6
    }),
];

const GAUGES: &[Row] = &[
    ("proxysql_client_connections_connected", "Clients connected.", |t| t.clients_now),
    ("proxysql_client_connections_non_idle", "Clients that run a statement or wait for one.", |t| t.busy_now),
    ("proxysql_active_transactions", "Clients with an open transaction.", |t| t.transactions_now),
    ("proxysql_mysql_frontend_buffers_bytes", "Memory for buffers towards clients, in bytes.", |t| {
        t.client_buffer_bytes_now
    }),
    ("proxysql_mysql_backend_buffers_bytes", "Memory for buffers from servers, in bytes.", |t| {
        t.server_buffer_bytes_now
    }),
    ("proxysql_mysql_session_internal_bytes", "Memory of sessions, in bytes.", |t| t.session_bytes_now),
    ("proxysql_stmt_client_active", "Prepared statements of clients.", |t| t.client_statements_now),
    ("proxysql_stmt_client_active_unique", "Distinct prepared statements of clients.", |t| t.statements_now),
    ("proxysql_stmt_server_active", "Prepared statements at servers.", |t| t.server_statements_now),
    ("proxysql_server_connections_connected", "Connections to servers.", |t| t.server_connections_now),
];

const LABELLED_COUNTERS: &[LabelledRow] = &[
    (
        "weir_transactions_lost",
        "Interrupted transactions that could not run again, by the reason.",
        "reason",
        &[
            ("statement", |t| t.lost_statement),
            ("non_transactional_table", |t| t.lost_non_transactional_table),
            ("earlier_statement", |t| t.lost_earlier_statement),
            ("several_ids", |t| t.lost_several_ids),
            ("announced", |t| t.lost_announced),
            ("too_long", |t| t.lost_too_long),
            ("half_answered", |t| t.lost_half_answered),
            ("too_many_attempts", |t| t.lost_too_many_attempts),
            ("different", |t| t.lost_different),
        ],
    ),
    (
        "proxysql_client_connections",
        "Clients that have connected, and those that were refused.",
        "status",
        &[("created", |t| t.clients_accepted), ("aborted", |t| t.clients_refused)],
    ),
    (
        "proxysql_server_connections",
        "Connections opened to servers, and attempts that failed.",
        "status",
        &[("created", |t| t.server_connections_opened), ("aborted", |t| t.server_connections_failed)],
    ),
    (
        "proxysql_queries_frontends_bytes",
        "Bytes from and to clients.",
        "traffic_flow",
        &[("received", |t| t.client_bytes_received), ("sent", |t| t.client_bytes_sent)],
    ),
    (
        "proxysql_queries_backends_bytes",
        "Bytes from and to servers.",
        "traffic_flow",
        &[("received", |t| t.server_bytes_received), ("sent", |t| t.server_bytes_sent)],
    ),
    (
        "proxysql_com_frontend_stmt",
        "Commands of clients for prepared statements.",
        "op",
        &[
            ("prepare", |t| t.client_prepares),
            ("execute", |t| t.client_executes),
            ("close", |t| t.client_closes),
        ],
    ),
    (
        "proxysql_com_backend_stmt",
        "Commands to servers for prepared statements.",
        "op",
        &[
            ("prepare", |t| t.server_prepares),
            ("execute", |t| t.server_executes),
            ("close", |t| t.server_closes),
        ],
    ),
];

/// All of them.
pub(super) fn families(totals: &Totals) -> Vec<Family> {
    let bare = |kind| {
        move |(name, help, figure): &Row| {
            Family { name, help, kind, samples: Vec::new() }.with(&[], figure(totals))
        }
    };
    let labelled = |(name, help, label, figures): &LabelledRow| {
        let family = Family::counter(name, help);
        figures.iter().fold(family, |family, (value, figure)| family.with(&[(label, value)], figure(totals)))
    };
    let seconds = |(name, help, figure): &TimeRow| Family::counter(name, help).with(&[], figure(totals));
    let mut families: Vec<_> = COUNTERS.iter().map(bare(Kind::Counter)).collect();
    families.extend(SECONDS.iter().map(seconds));
    families.extend(GAUGES.iter().map(bare(Kind::Gauge)));
    families.extend(LABELLED_COUNTERS.iter().map(labelled));
    families
}
