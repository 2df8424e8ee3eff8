//! Counts a worker's overall figures.

/// Declares the counters once: as fields, and as something that adds up.
macro_rules! totals {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Counters of a worker since it was started, and a few that tell how things are now (`..._now`). They never begin
        /// again.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl std::ops::AddAssign<&Self> for Totals {
            fn add_assign(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }
    };
}

totals! {
    /// Clients that have connected.
    clients_accepted,
    /// Clients that were refused: a login that failed, or too many.
    clients_refused,
    /// Of these: a wrong user or password.
    refused_password,
    /// Of these: more than mysql-max_connections.
    refused_max_connections,
    /// Of these: more than the user's max_connections.
    refused_max_user_connections,
    /// Of these: a header of the PROXY protocol that is broken, or comes from a network that may not send one.
    refused_proxy_header,
    /// Clients of whom a header of the PROXY protocol has come.
    proxy_headers,
    /// Commands that clients have sent.
    questions,
    /// Bytes that clients have sent.
    client_bytes_received,
    /// Bytes sent to clients.
    client_bytes_sent,
    /// Bytes that servers have sent.
    server_bytes_received,
    /// Bytes sent to servers.
    server_bytes_sent,
    /// Errors that Weir has answered with itself.
    errors_generated,
    /// Statements that were answered with an error because they found no connection in time.
    waits_timed_out,
    /// Statements that took longer than mysql-long_query_time.
    slow_queries,
    /// Statements that were sent to a server that has a certain transaction: that of their `min_gtid`, or what their session has
    /// written (`gtid_from_hostgroup`).
    gtid_statements,
    /// Comments with a `min_gtid` that is no transaction's id, and was ignored.
    gtids_malformed,
    /// Statements that were run again after their server had undone them (1213).
    deadlocks_retried,
    /// Times that a server said so of a statement that may be run again, and its client was told all the same.
    deadlocks_told,
    /// Transactions that were run again on another server, or on their own that had undone them.
    transactions_replayed,
    /// From when they had lost their servers until they had run again, in microseconds, all together.
    transactions_replayed_us,
    /// Transactions whose server was lost, and that could not be run again.
    transactions_lost,
    /// Of these: because of a statement that must not run twice.
    lost_statement,
    /// Of these: because of a table without transactions.
    lost_non_transactional_table,
    /// Of these: because of what an earlier statement had left.
    lost_earlier_statement,
    /// Of these: because of several AUTO_INCREMENT values of one statement.
    lost_several_ids,
    /// Of these: because of SET TRANSACTION in front.
    lost_announced,
    /// Of these: because of its length.
    lost_too_long,
    /// Of these: because of a part of an answer.
    lost_half_answered,
    /// Of these: because of too many attempts.
    lost_too_many_attempts,
    /// Of these: because of another answer.
    lost_different,
    /// Times that a server was asked whether a transaction had been committed.
    outcomes_asked,
    /// From when their answers were lost until it was known, in microseconds, all together.
    outcomes_asked_us,
    /// Times that it was.
    outcomes_committed,
    /// Times that a server did not let a transaction write its row of `weir.outcomes`.
    outcome_markers_refused,
    /// COM_INIT_DB of clients.
    client_init_db,
    /// COM_STMT_PREPARE of clients.
    client_prepares,
    /// COM_STMT_EXECUTE of clients.
    client_executes,
    /// COM_STMT_CLOSE of clients.
    client_closes,
    /// COM_STMT_PREPARE that Weir has sent.
    server_prepares,
    /// COM_STMT_EXECUTE that Weir has sent.
    server_executes,
    /// COM_STMT_CLOSE that Weir has sent.
    server_closes,
    /// COM_CHANGE_USER that Weir has sent.
    server_change_user,
    /// COM_INIT_DB that Weir has sent to bring a session's schema to a connection.
    server_init_db,
    /// SET that Weir has sent to bring a session's variables to a connection.
    server_set,
    /// Connections to servers opened so far.
    server_connections_opened,
    /// Attempts to open one that failed.
    server_connections_failed,
    /// Times that a statement needed a connection that its session did not have.
    pool_gets,
    /// Times that one was idle, and ready at once.
    pool_gets_immediate,
    /// Times that a connection was lent.
    pool_lends,
    /// Times that a session gave one back.
    pool_returns,
    /// Connections closed for reasons other than the pool's size.
    pool_discards,
    /// Moves of a session with its user variables to another server.
    sessions_moved,
    /// Times that one was to, and could not.
    sessions_not_moved,
    /// Statements that Weir has killed at a server.
    killed_queries,
    /// Connections that Weir has killed at a server.
    killed_connections,
    /// Nanoseconds in which servers were at work on statements, all statements together.
    server_time_ns,
    /// Sessions with an open transaction.
    transactions_now,
    /// Sessions that do or wait for something.
    busy_now,
    /// Clients connected.
    clients_now,
    /// Connections to servers, in use or not.
    server_connections_now,
    /// Prepared statements that clients have.
    client_statements_now,
    /// Prepared statements that connections have.
    server_statements_now,
    /// Different prepared statements that clients have.
    statements_now,
    /// Bytes that sessions keep of what their clients have sent.
    client_buffer_bytes_now,
    /// Bytes that connections keep of what servers have sent.
    server_buffer_bytes_now,
    /// Bytes of memory of sessions and connections themselves.
    session_bytes_now,
}
