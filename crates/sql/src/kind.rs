//! Lists the kinds of statements, by their verbs.

use crate::Access;

/// The verb of a statement, as finely as sessions and routing need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only spaces and comments.
    Empty,

    /// SELECT, also in parentheses.
    Select,
    /// WITH, whatever follows its common table expressions.
    With,
    /// VALUES (...), ...
    Values,
    /// TABLE name (MySQL 8.0.19).
    Table,

    /// INSERT
    Insert,
    /// REPLACE
    Replace,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// LOAD DATA, LOAD XML
    LoadData,
    /// CALL
    Call,
    /// DO
    Do,

    /// SET of variables, NAMES, CHARACTER SET.
    Set,
    /// SET TRANSACTION, with or without a scope.
    SetTransaction,
    /// SET ROLE
    SetRole,
    /// SET DEFAULT ROLE
    SetDefaultRole,
    /// SET PASSWORD
    SetPassword,
    /// SET RESOURCE GROUP (MySQL)
    SetResourceGroup,
    /// SET STATEMENT ... FOR statement (MariaDB)
    SetStatement,
    /// USE
    Use,

    /// BEGIN, BEGIN WORK, START TRANSACTION that may write.
    Begin,
    /// START TRANSACTION READ ONLY
    StartTransactionReadOnly,
    /// COMMIT
    Commit,
    /// ROLLBACK of the whole transaction.
    Rollback,
    /// ROLLBACK TO SAVEPOINT
    RollbackTo,
    /// SAVEPOINT
    Savepoint,
    /// RELEASE SAVEPOINT
    ReleaseSavepoint,
    /// XA START, XA BEGIN
    XaStart,
    /// XA END
    XaEnd,
    /// XA PREPARE
    XaPrepare,
    /// XA COMMIT
    XaCommit,
    /// XA ROLLBACK
    XaRollback,
    /// XA RECOVER
    XaRecover,
    /// LOCK TABLES
    LockTables,
    /// UNLOCK TABLES
    UnlockTables,
    /// LOCK INSTANCE or BINLOG FOR BACKUP (MySQL, Percona)
    LockInstance,
    /// UNLOCK INSTANCE or BINLOG (MySQL, Percona)
    UnlockInstance,

    /// PREPARE
    Prepare,
    /// EXECUTE
    Execute,
    /// EXECUTE IMMEDIATE
    ExecuteImmediate,
    /// DEALLOCATE PREPARE, DROP PREPARE
    Deallocate,
    /// HANDLER OPEN
    HandlerOpen,
    /// HANDLER READ
    HandlerRead,
    /// HANDLER CLOSE
    HandlerClose,

    /// SHOW other than the following.
    Show,
    /// SHOW WARNINGS
    ShowWarnings,
    /// SHOW ERRORS
    ShowErrors,
    /// SHOW COUNT(*) WARNINGS
    ShowCountWarnings,
    /// SHOW COUNT(*) ERRORS
    ShowCountErrors,
    /// GET DIAGNOSTICS
    GetDiagnostics,
    /// EXPLAIN or DESCRIBE, which do not run the statement.
    Explain,
    /// ANALYZE statement (MariaDB), EXPLAIN ANALYZE statement (MySQL), which run it.
    Analyze,
    /// HELP
    Help,

    /// CREATE TABLE
    CreateTable,
    /// CREATE TEMPORARY TABLE or SEQUENCE
    CreateTemporaryTable,
    /// CREATE VIEW
    CreateView,
    /// CREATE PROCEDURE, FUNCTION, PACKAGE, TRIGGER or EVENT, and ALTER EVENT: a body that is not run now.
    CreateRoutine,
    /// Any other CREATE.
    Create,
    /// ALTER TABLE
    AlterTable,
    /// Any other ALTER.
    Alter,
    /// DROP TABLE or SEQUENCE
    DropTable,
    /// DROP TEMPORARY TABLE or SEQUENCE
    DropTemporaryTable,
    /// Any other DROP.
    Drop,
    /// TRUNCATE
    Truncate,
    /// RENAME TABLE
    RenameTable,
    /// RENAME USER
    RenameUser,
    /// GRANT
    Grant,
    /// REVOKE
    Revoke,

    /// FLUSH other than the next.
    Flush,
    /// FLUSH TABLES ... WITH READ LOCK or FOR EXPORT
    FlushTablesWithReadLock,
    /// BACKUP STAGE (MariaDB)
    BackupStage,
    /// BACKUP LOCK (MariaDB)
    BackupLock,
    /// BACKUP UNLOCK (MariaDB)
    BackupUnlock,
    /// ANALYZE, CHECK, CHECKSUM, OPTIMIZE or REPAIR TABLE, CACHE INDEX, LOAD INDEX.
    Maintenance,
    /// CHANGE MASTER, START and STOP SLAVE, RESET, PURGE and the like.
    Replication,
    /// KILL
    Kill,
    /// SHUTDOWN, RESTART
    Shutdown,
    /// INSTALL, UNINSTALL, CLONE, IMPORT
    Install,
    /// BINLOG: applies events of a binary log.
    Binlog,
    /// SIGNAL
    Signal,
    /// RESIGNAL
    Resignal,
    /// BEGIN NOT ATOMIC, or IF, CASE, LOOP, WHILE, REPEAT, FOR outside of routines (MariaDB).
    Compound,
    /// A verb not listed here.
    Other,
}

impl Kind {
    /// Whether a statement of this kind may run code that its text does not show: triggers, functions behind a view.
    /// Any other may do so by a query from tables or views.
    pub(crate) fn may_run_hidden_code(self) -> bool {
        matches!(
            self,
            Self::Table
                | Self::Insert
                | Self::Replace
                | Self::Update
                | Self::Delete
                | Self::LoadData
                | Self::Call
                | Self::SetStatement
                | Self::Execute
                | Self::ExecuteImmediate
                | Self::HandlerRead
                | Self::Analyze
                | Self::Compound
                | Self::Binlog
                | Self::Other
        )
    }

    /// Whether a statement of this kind changes rows itself, which runs the triggers of their table.
    pub fn may_run_triggers(self) -> bool {
        matches!(self, Self::Insert | Self::Replace | Self::Update | Self::Delete | Self::LoadData)
    }

    /// The access of a statement of this kind; for the four query kinds, if it proves to be a sure read. Whatever is named
    /// nowhere may write.
    pub(crate) fn access(self) -> Access {
        match self {
            Self::Select | Self::With | Self::Values | Self::Table => Access::Read,
            kind if kind.controls() => Access::Control,
            kind if kind.inspects() => Access::Inspect,
            _ => Access::Write,
        }
    }

    /// Whether it is about the session, its transaction or the server, and not about data.
    fn controls(self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::Set
                | Self::SetTransaction
                | Self::SetRole
                | Self::SetResourceGroup
                | Self::Use
                | Self::Begin
                | Self::StartTransactionReadOnly
                | Self::Commit
                | Self::Rollback
                | Self::RollbackTo
                | Self::Savepoint
                | Self::ReleaseSavepoint
                | Self::XaStart
                | Self::XaEnd
                | Self::XaPrepare
                | Self::XaCommit
                | Self::XaRollback
                | Self::LockTables
                | Self::UnlockTables
                | Self::LockInstance
                | Self::UnlockInstance
                | Self::Prepare
                | Self::Deallocate
                | Self::HandlerOpen
                | Self::HandlerRead
                | Self::HandlerClose
                | Self::Flush
                | Self::FlushTablesWithReadLock
                | Self::BackupStage
                | Self::BackupLock
                | Self::BackupUnlock
                | Self::Replication
                | Self::Kill
                | Self::Shutdown
                | Self::Signal
                | Self::Resignal
        )
    }

    /// Whether it shows what is there, and nothing that Weir could read elsewhere.
    fn inspects(self) -> bool {
        matches!(
            self,
            Self::Show
                | Self::ShowWarnings
                | Self::ShowErrors
                | Self::ShowCountWarnings
                | Self::ShowCountErrors
                | Self::GetDiagnostics
                | Self::Explain
                | Self::Help
                | Self::XaRecover
        )
    }
}
