//! Recognises errors of servers that mean more than a statement's failure.

use weir_protocol::error::{self, ServerError};

/// The number with which servers say goodbye (`ER_SERVER_SHUTDOWN`). Not 2013, which client libraries give to lost
/// connections themselves: MariaDB's takes a packet with a number of its own range (2000 to 2999) for a broken one, and
/// its application would see neither the SQLSTATE nor the cause.
pub(crate) const GOODBYE: u16 = error::SERVER_SHUTDOWN.code;

/// "Transaction resolution unknown" in the SQL standard: the statement may or may not have taken effect.
pub(crate) const OUTCOME_UNKNOWN: ServerError = ServerError { code: GOODBYE, sqlstate: *b"08007" };

/// The connection that held a session's state is gone, between statements.
pub(crate) const LEASE_LOST: ServerError = ServerError { code: GOODBYE, sqlstate: *b"08S01" };

/// Errors before anything has run: syntax, no schema, rights, unknown schemas, columns, tables, functions, variables.
pub(crate) const REFUSED: [u16; 10] = [1044, 1046, 1049, 1054, 1064, 1142, 1143, 1146, 1193, 1305];

/// ER_OPTION_PREVENTS_STATEMENT; the text names the option.
const OPTION_PREVENTS: u16 = 1290;

/// All queries are blocked while group_replication_set_as_primary() is executing.
const BLOCKED: u16 = 4094;

/// ER_ERROR_DURING_COMMIT; the text names what Galera has said.
const DURING_COMMIT: u16 = 1180;

/// ER_RUN_HOOK_ERROR; the text names the hook.
const RUN_HOOK: u16 = 3100;

/// Whether an error says that a Galera node takes no statements.
pub(crate) fn is_wsrep_refusal(code: u16, message: &[u8]) -> bool {
    code == error::UNKNOWN_COM_ERROR.code && contains(message, b"WSREP")
}

/// Whether an error says that a server is read_only or super_read_only.
pub(crate) fn is_read_only(code: u16, message: &[u8]) -> bool {
    code == OPTION_PREVENTS && contains(message, b"read-only")
}

/// Whether an error says that a server has left its cluster in the middle of a commit.
pub(crate) fn is_cut_off(code: u16, message: &[u8]) -> bool {
    (code == RUN_HOOK && contains(message, b"before_commit"))
        || (code == DURING_COMMIT && contains(message, b"Not connected to Primary Component"))
}

/// Whether an error says that a primary takes no statements while it hands over.
pub(crate) fn is_handing_over(code: u16, message: &[u8]) -> bool {
    code == BLOCKED && contains(message, b"group_replication_set_as_primary")
}

pub(crate) fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_errors_say_read_only() {
        // As MySQL 9.7 and MariaDB 10.11 put it.
        let mysql = "The MySQL server is running with the --super-read-only option so it cannot execute this statement";
        let mariadb =
            "The MariaDB server is running with the --read-only option so it cannot execute this statement";
        let outfile = "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement";
        assert!(is_read_only(1290, mysql.as_bytes()) && is_read_only(1290, mariadb.as_bytes()));
        assert!(!is_read_only(1290, outfile.as_bytes()) && !is_read_only(1792, mysql.as_bytes()));
        assert!(is_handing_over(
            4094,
            b"All queries have been blocked while function 'group_replication_set_as_primary()' is executing."
        ));
        let galera = b"Error while appending streaming replication fragment(provider status: Not connected to Primary Component)";
        assert!(is_cut_off(1180, galera) && !is_cut_off(1180, b"Got error 5 during COMMIT"));
        assert!(is_cut_off(3100, b"Error on observer while running replication hook 'before_commit'."));
        assert!(is_wsrep_refusal(1047, b"WSREP has not yet prepared node for application use"));
        assert!(!is_wsrep_refusal(1047, b"Unknown command"));
    }
}
