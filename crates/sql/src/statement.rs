//! Holds the result of a statement's scan.

use bitflags::bitflags;

pub use crate::kind::Kind;

/// The answer of [`scan`](crate::scan).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The verb; of several statements in one text, that of the first.
    pub kind: Kind,
    /// Where the statement may run.
    pub access: Access,
    /// What it may do to its session that the server does not report; of several statements, all together.
    pub effects: Effects,
    /// What of the session's past it reads; of several statements, all together.
    pub uses: Uses,
    /// A `;` is followed by more than spaces and `;`, so that the server may send more than one reply (to a
    /// client with CLIENT_MULTI_STATEMENTS). A comment is enough: the server answers it with ER_EMPTY_QUERY.
    /// False for the semicolons inside the body of a routine, trigger or event that is being created.
    pub multi: bool,
    /// It may run code that its text does not show: triggers, functions behind a view. Of several statements, one of
    /// them may.
    pub hidden_code: bool,
    /// `LAST_INSERT_ID(expr)` stands in it: its OK does not tell what LAST_INSERT_ID() is afterwards.
    pub assigns_insert_id: bool,
    /// What its text tells about FOUND_ROWS() afterwards; of several statements, all together.
    pub counts: Counts,
}

/// The servers on which a statement may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Surely a read: any server with the data may answer it, and any number of times. The only effects a
    /// read may have are [`Effects::FOUND_ROWS_CALC`].
    Read,
    /// Changes data, definitions or accounts, takes locks, or is not known to do nothing.
    Write,
    /// Steers the session, its transaction or the server: SET, USE, BEGIN, LOCK TABLES, FLUSH, KILL.
    Control,
    /// Reports about one server, one session or a plan: SHOW, EXPLAIN, HELP, and a query that is a read but for its
    /// system variables.
    Inspect,
}

bitflags! {
    /// Effects of a statement on its session that the server does not report (or not with their values).
    ///
    /// "May": a statement that fails has none of these effects, or some.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Effects: u32 {
        /// Assigns a user variable: `SET @x =`, `@x :=`, `SELECT ... INTO @x`.
        const USER_VARIABLE = 1 << 0;
        /// CREATE TEMPORARY TABLE or SEQUENCE.
        const TEMPORARY_TABLE_CREATED = 1 << 1;
        /// DROP TABLE or SEQUENCE, which takes a temporary one first where there is one.
        const TABLE_DROPPED = 1 << 2;
        /// ALTER TABLE ... RENAME and RENAME TABLE, which may give a temporary table another name.
        const TABLE_RENAMED = 1 << 3;
        /// GET_LOCK().
        const LOCK_ACQUIRED = 1 << 4;
        /// RELEASE_LOCK() or RELEASE_ALL_LOCKS().
        const LOCK_RELEASED = 1 << 5;
        /// LOCK TABLES, FLUSH TABLES ... WITH READ LOCK or FOR EXPORT.
        const TABLES_LOCKED = 1 << 6;
        /// UNLOCK TABLES.
        const TABLES_UNLOCKED = 1 << 7;
        /// BACKUP STAGE other than END.
        const BACKUP_STAGE = 1 << 8;
        /// BACKUP STAGE END.
        const BACKUP_ENDED = 1 << 9;
        /// BACKUP LOCK, LOCK INSTANCE FOR BACKUP, LOCK BINLOG FOR BACKUP.
        const BACKUP_LOCKED = 1 << 10;
        /// BACKUP UNLOCK, UNLOCK INSTANCE, UNLOCK BINLOG.
        const BACKUP_UNLOCKED = 1 << 11;
        /// PREPARE name FROM ...
        const TEXT_PREPARE = 1 << 12;
        /// DEALLOCATE or DROP PREPARE name.
        const TEXT_DEALLOCATE = 1 << 13;
        /// HANDLER name OPEN.
        const HANDLER_OPENED = 1 << 14;
        /// HANDLER name CLOSE.
        const HANDLER_CLOSED = 1 << 15;
        /// SET ROLE.
        const ROLE_CHANGED = 1 << 16;
        /// Settings for the next transaction only: SET TRANSACTION without a scope, `SET @@tx_isolation =`.
        const NEXT_TRANSACTION = 1 << 17;
        /// Reads or moves a sequence: LASTVAL of this session changes.
        const SEQUENCE = 1 << 18;
        /// Runs code that the text does not show: a stored routine, a prepared statement, or a compound
        /// statement that may or may not run its parts. Or it goes on behind the body of a routine, which may end
        /// elsewhere than it seems. Anything may have happened to the session.
        const ROUTINE = 1 << 19;
        /// LAST_INSERT_ID() may change: INSERT, REPLACE, LOAD DATA, LAST_INSERT_ID(expr), SET last_insert_id.
        const LAST_INSERT_ID_SET = 1 << 20;
        /// SQL_CALC_FOUND_ROWS: FOUND_ROWS() afterwards is more than the number of rows sent.
        const FOUND_ROWS_CALC = 1 << 21;
        /// SET profiling, or optimizer_trace.
        const PROFILING = 1 << 22;
        /// An XA statement other than RECOVER.
        const XA = 1 << 23;
        /// Sets a variable that the next suitable statement uses up: insert_id, gtid_seq_no.
        const ONE_SHOT = 1 << 24;
        /// Assigns a variable that is not the server's but a proxy's: `session_track_*`, or one of
        /// [`OWN_VARIABLES`](crate::OWN_VARIABLES) with whatever scope.
        const VIRTUAL_VARIABLE = 1 << 25;
        /// Sets session state whose value cannot be read back: rand_seed1, debug, a resource group.
        const UNREADABLE_VARIABLE = 1 << 26;
        /// COMMIT or ROLLBACK with RELEASE: the server closes the connection after its reply.
        const DISCONNECT = 1 << 27;
        /// `SET @@name =` without a scope: the session's variable changes, and MariaDB 10.11 does not report it.
        /// See [`scoped_assignments`](crate::scoped_assignments).
        const UNTRACKED = 1 << 28;
        /// KILL, as one of several statements.
        const KILL = 1 << 29;
        /// SAVEPOINT: without autocommit it begins a transaction that the server's status does not show.
        const SAVEPOINT = 1 << 30;
        /// Nothing is known: an unknown verb, or text that cannot be read with certainty.
        const UNKNOWN = 1 << 31;
    }
}

impl Effects {
    /// What ends something that held the session: not to be believed of a text that the server may read differently.
    pub const ENDINGS: Self = Self::TABLE_DROPPED
        .union(Self::LOCK_RELEASED)
        .union(Self::TABLES_UNLOCKED)
        .union(Self::BACKUP_ENDED)
        .union(Self::BACKUP_UNLOCKED)
        .union(Self::TEXT_DEALLOCATE)
        .union(Self::HANDLER_CLOSED);
}

bitflags! {
    /// The parts of its session's past, or of its connection, that a statement reads.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Uses: u32 {
        /// LAST_INSERT_ID(), @@last_insert_id, @@identity.
        const LAST_INSERT_ID = 1 << 0;
        /// ROW_COUNT().
        const ROW_COUNT = 1 << 1;
        /// FOUND_ROWS().
        const FOUND_ROWS = 1 << 2;
        /// CONNECTION_ID(), @@pseudo_thread_id.
        const CONNECTION_ID = 1 << 3;
        /// The diagnostics area: SHOW WARNINGS, SHOW ERRORS, GET DIAGNOSTICS, @@warning_count, @@error_count.
        const DIAGNOSTICS = 1 << 4;
        /// Reads `@@session_track_*`, or one of [`OWN_VARIABLES`](crate::OWN_VARIABLES).
        const VIRTUAL_VARIABLE = 1 << 5;
        /// Mentions a user variable.
        const USER_VARIABLE = 1 << 6;
        /// Reads a system variable (`@@x`), whose value may differ from server to server.
        const SYSTEM_VARIABLE = 1 << 7;
        /// Reads `@@last_gtid` (MariaDB).
        const LAST_GTID = 1 << 8;
    }
}

bitflags! {
    /// The parts of a statement's text that matter to FOUND_ROWS() behind it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Counts: u8 {
        /// A query stands in it, or what may be one: SELECT, TABLE, UNION and the like.
        const QUERY = 1 << 0;
        /// A LIMIT may skip rows, which are counted with those that are sent.
        const OFFSET = 1 << 1;
    }
}

impl Default for Statement {
    /// What stands for a command that has no SQL text: nothing is known of it.
    fn default() -> Self {
        Self {
            kind: Kind::Other,
            access: Access::Control,
            effects: Effects::empty(),
            uses: Uses::empty(),
            multi: false,
            hidden_code: false,
            assigns_insert_id: false,
            counts: Counts::empty(),
        }
    }
}

impl Statement {
    /// Whether the statement is surely a read: [`Access::Read`].
    pub fn is_read(&self) -> bool {
        self.access == Access::Read
    }
}
