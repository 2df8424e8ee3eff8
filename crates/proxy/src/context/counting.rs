//! Counts what clients send, and makes digests as the configuration has it.

use weir_protocol::command::Command;
use weir_protocol::error::{self, ServerError};
use weir_sql::DigestOptions;

use crate::context::Context;
use crate::snapshot::Snapshot;

/// mysql_users.max_connections is reached (ER_USER_LIMIT_REACHED), as ProxySQL says it.
pub(crate) const USER_LIMIT_REACHED: ServerError = ServerError { code: 1226, sqlstate: *b"42000" };

impl Context {
    /// New options: digests that are made from now on follow them. False if they are the same.
    pub(crate) fn take_digest_options(&mut self, snapshot: &Snapshot) -> bool {
        let options = digest_options(snapshot);
        if *self.digester.options() == options {
            return false;
        }
        self.digester = weir_sql::Digester::new(options);
        true
    }
}

/// The `mysql-query_digests_*` variables.
pub(crate) fn digest_options(snapshot: &Snapshot) -> DigestOptions {
    let variables = &snapshot.variables;
    DigestOptions {
        lowercase: variables.query_digests_lowercase,
        replace_null: variables.query_digests_replace_null,
        no_digits: variables.query_digests_no_digits,
        keep_comment: variables.query_digests_keep_comment,
        max_digest_length: variables.query_digests_max_digest_length as usize,
        max_query_length: variables.query_digests_max_query_length as usize,
        grouping_limit: variables.query_digests_grouping_limit as usize,
        groups_grouping_limit: variables.query_digests_groups_grouping_limit as usize,
    }
}

impl Context {
    /// A client has sent a command.
    pub(crate) fn count_command(&mut self, command: Option<Command>) {
        let totals = &mut self.statistics.totals;
        totals.questions += 1;
        match command {
            Some(Command::InitDb) => totals.client_init_db += 1,
            Some(Command::StmtPrepare) => totals.client_prepares += 1,
            Some(Command::StmtExecute) => totals.client_executes += 1,
            Some(Command::StmtClose) => totals.client_closes += 1,
            _ => {}
        }
    }

    /// A client is turned away.
    pub(crate) fn count_refused(&mut self, error: ServerError) {
        let totals = &mut self.statistics.totals;
        totals.clients_refused += 1;
        match error {
            error::ACCESS_DENIED => totals.refused_password += 1,
            error::CON_COUNT_ERROR => totals.refused_max_connections += 1,
            USER_LIMIT_REACHED => totals.refused_max_user_connections += 1,
            _ => {}
        }
    }
}
