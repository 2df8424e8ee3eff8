//! Fills `stats_mysql_global`: ProxySQL's names for what means the same in Weir.

use weir_proxy::stats::{ReportPart, Totals, WorkerReport};
use weir_query_log::Counts;
use weir_sql::Kind;

use super::{Rows, text};
use crate::statistics::Statistics;
use crate::worker_sums::{command_sums, total_sums};

pub(super) fn global(statistics: &Statistics) -> Rows {
    let row = |(name, value): (&str, u64)| vec![text(name), text(value.to_string())];
    values(statistics).into_iter().map(row).collect()
}

/// All of them, by name.
pub(crate) fn values(statistics: &Statistics) -> Vec<(&'static str, u64)> {
    let collector = &statistics.collector;
    let totals = total_sums(&collector.report(ReportPart::Totals));
    let mut values = vec![
        ("ProxySQL_Uptime", statistics.started.elapsed().as_secs()),
        ("MySQL_Thread_Workers", collector.workers() as u64),
        ("Client_Connections_connected", u64::from(collector.clients())),
        // Weir locks no session to a hostgroup.
        ("hostgroup_locked_queries", 0),
        ("hostgroup_locked_set_cmds", 0),
        ("Weir_digests_dropped", collector.digests_dropped()),
    ];
    values.extend(of_totals(&totals));
    values.extend(of_servers(&totals));
    values.extend(of_commands(&collector.report(ReportPart::Commands)));
    values.extend(of_probes(statistics));
    values.extend(of_logs(statistics.query_logs.counts()));
    values.sort_unstable_by_key(|(name, _)| *name);
    values
}

fn of_totals(totals: &Totals) -> [(&'static str, u64); 57] {
    [
        ("Active_Transactions", totals.transactions_now),
        ("Client_Connections_aborted", totals.clients_refused),
        ("Client_Connections_created", totals.clients_accepted),
        ("Client_Connections_non_idle", totals.busy_now),
        ("Access_Denied_Wrong_Password", totals.refused_password),
        ("Access_Denied_Max_Connections", totals.refused_max_connections),
        ("Access_Denied_Max_User_Connections", totals.refused_max_user_connections),
        ("Weir_proxy_headers", totals.proxy_headers),
        ("Weir_proxy_headers_refused", totals.refused_proxy_header),
        ("Questions", totals.questions),
        ("Slow_queries", totals.slow_queries),
        ("GTID_consistent_queries", totals.gtid_statements),
        ("Weir_min_gtid_malformed", totals.gtids_malformed),
        ("Weir_deadlocks_retried", totals.deadlocks_retried),
        ("Weir_deadlocks_told", totals.deadlocks_told),
        ("Weir_transactions_replayed", totals.transactions_replayed),
        ("Weir_transactions_replayed_us", totals.transactions_replayed_us),
        ("Weir_transactions_lost", totals.transactions_lost),
        ("Weir_transactions_lost_statement", totals.lost_statement),
        ("Weir_transactions_lost_non_transactional_table", totals.lost_non_transactional_table),
        ("Weir_transactions_lost_earlier_statement", totals.lost_earlier_statement),
        ("Weir_transactions_lost_several_ids", totals.lost_several_ids),
        ("Weir_transactions_lost_announced", totals.lost_announced),
        ("Weir_transactions_lost_too_long", totals.lost_too_long),
        ("Weir_transactions_lost_half_answered", totals.lost_half_answered),
        ("Weir_transactions_lost_too_many_attempts", totals.lost_too_many_attempts),
        ("Weir_transactions_lost_different", totals.lost_different),
        ("Weir_outcomes_asked", totals.outcomes_asked),
        ("Weir_outcomes_asked_us", totals.outcomes_asked_us),
        ("Weir_outcomes_committed", totals.outcomes_committed),
        ("Weir_outcome_markers_refused", totals.outcome_markers_refused),
        ("Queries_frontends_bytes_recv", totals.client_bytes_received),
        ("Queries_frontends_bytes_sent", totals.client_bytes_sent),
        ("Queries_backends_bytes_recv", totals.server_bytes_received),
        ("Queries_backends_bytes_sent", totals.server_bytes_sent),
        ("Backend_query_time_nsec", totals.server_time_ns),
        ("generated_error_packets", totals.errors_generated),
        ("max_connect_timeouts", totals.waits_timed_out),
        ("Com_frontend_init_db", totals.client_init_db),
        ("Com_frontend_stmt_prepare", totals.client_prepares),
        ("Com_frontend_stmt_execute", totals.client_executes),
        ("Com_frontend_stmt_close", totals.client_closes),
        ("Com_backend_stmt_prepare", totals.server_prepares),
        ("Com_backend_stmt_execute", totals.server_executes),
        ("Com_backend_stmt_close", totals.server_closes),
        ("Com_backend_change_user", totals.server_change_user),
        ("Com_backend_init_db", totals.server_init_db),
        ("Com_backend_set_names", totals.server_set),
        ("ConnPool_get_conn_immediate", totals.pool_gets_immediate),
        ("ConnPool_get_conn_success", totals.pool_lends),
        ("ConnPool_get_conn_failure", totals.waits_timed_out),
        ("Stmt_Client_Active_Total", totals.client_statements_now),
        ("Stmt_Client_Active_Unique", totals.statements_now),
        ("Stmt_Server_Active_Total", totals.server_statements_now),
        ("mysql_frontend_buffers_bytes", totals.client_buffer_bytes_now),
        ("mysql_backend_buffers_bytes", totals.server_buffer_bytes_now),
        ("mysql_session_internal_bytes", totals.session_bytes_now),
    ]
}

fn of_servers(totals: &Totals) -> [(&'static str, u64); 9] {
    [
        ("Server_Connections_connected", totals.server_connections_now),
        ("Server_Connections_created", totals.server_connections_opened),
        ("Server_Connections_aborted", totals.server_connections_failed),
        ("MyHGM_myconnpoll_get", totals.pool_gets),
        ("MyHGM_myconnpoll_get_ok", totals.pool_lends),
        ("MyHGM_myconnpoll_push", totals.pool_returns),
        ("MyHGM_myconnpoll_destroy", totals.pool_discards),
        ("mysql_killed_backend_connections", totals.killed_connections),
        ("mysql_killed_backend_queries", totals.killed_queries),
    ]
}

fn of_commands(workers: &[WorkerReport]) -> [(&'static str, u64); 3] {
    let commands = command_sums(workers);
    let count = |kind: Kind| commands.iter().find(|row| row.kind == kind).map_or(0, |row| row.count);
    [
        ("Com_commit", count(Kind::Commit)),
        ("Com_rollback", count(Kind::Rollback)),
        ("Com_frontend_use_db", count(Kind::Use)),
    ]
}

/// Weir's own: ProxySQL's logs hold up traffic instead of leaving something out.
fn of_logs([events, slow, audit]: [Counts; 3]) -> [(&'static str, u64); 6] {
    [
        ("Weir_eventslog_lines", events.written),
        ("Weir_eventslog_dropped", events.dropped),
        ("Weir_slowlog_lines", slow.written),
        ("Weir_slowlog_dropped", slow.dropped),
        ("Weir_auditlog_lines", audit.written),
        ("Weir_auditlog_dropped", audit.dropped),
    ]
}

fn of_probes(statistics: &Statistics) -> [(&'static str, u64); 8] {
    let counts = statistics.probes.counts();
    [
        ("MySQL_Monitor_connect_check_OK", counts.connects.0),
        ("MySQL_Monitor_connect_check_ERR", counts.connects.1),
        ("MySQL_Monitor_ping_check_OK", counts.pings.0),
        ("MySQL_Monitor_ping_check_ERR", counts.pings.1),
        ("MySQL_Monitor_read_only_check_OK", counts.read_only.0),
        ("MySQL_Monitor_read_only_check_ERR", counts.read_only.1),
        ("MySQL_Monitor_replication_lag_check_OK", counts.lags.0),
        ("MySQL_Monitor_replication_lag_check_ERR", counts.lags.1),
    ]
}
