//! Names the server's status flags, sent with every OK and EOF packet but never with ERR.

use bitflags::bitflags;

bitflags! {
    /// Status flags (`SERVER_STATUS_*` in the MySQL manual); unknown bits are kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct StatusFlags: u16 {
        /// A transaction is open.
        const IN_TRANS = 1;
        /// autocommit is on.
        const AUTOCOMMIT = 1 << 1;
        /// Another result follows this one.
        const MORE_RESULTS_EXISTS = 1 << 3;
        /// No good index was used.
        const NO_GOOD_INDEX_USED = 1 << 4;
        /// No index was used.
        const NO_INDEX_USED = 1 << 5;
        /// COM_STMT_EXECUTE opened a cursor: its rows come by COM_STMT_FETCH.
        const CURSOR_EXISTS = 1 << 6;
        /// The cursor has no more rows.
        const LAST_ROW_SENT = 1 << 7;
        /// The current database was dropped.
        const DB_DROPPED = 1 << 8;
        /// A backslash is no escape character in string literals (sql_mode).
        const NO_BACKSLASH_ESCAPES = 1 << 9;
        /// A prepared statement was prepared again and its columns changed.
        const METADATA_CHANGED = 1 << 10;
        /// The statement took longer than long_query_time.
        const QUERY_WAS_SLOW = 1 << 11;
        /// This result set holds the OUT parameters of a procedure.
        const PS_OUT_PARAMS = 1 << 12;
        /// The open transaction is read-only.
        const IN_TRANS_READONLY = 1 << 13;
        /// The OK packet carries session state information.
        const SESSION_STATE_CHANGED = 1 << 14;
        /// `"` quotes identifiers (sql_mode; MariaDB).
        const ANSI_QUOTES = 1 << 15;

        const _ = !0;
    }
}
