//! Decides which statements of a transaction may run again on another server, as part of it: those that a rollback undoes
//! wholly, and of which the text tells all.

use weir_sql::{Access, Effects, Kind, Uses};

use crate::plan::execution_plan::{CommandKind, ExecutionPlan};

/// What a statement means for running its transaction again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// It is to run again.
    Again,
    /// It begins the transaction that is to run again.
    Begins,
    /// It is none of the transaction's business: what it sets in its session is restored anyway, and what it shows is of its
    /// moment.
    Apart,
    /// The transaction must not run again.
    Never,
}

/// What the rollback of its transaction undoes, or what the repetition sets again.
const UNDONE: Effects = Effects::LAST_INSERT_ID_SET.union(Effects::FOUND_ROWS_CALC).union(Effects::SAVEPOINT);
/// What only the statement before knows, which may have been one that does not run again.
const OF_STATEMENT_BEFORE: Uses =
    Uses::ROW_COUNT.union(Uses::FOUND_ROWS).union(Uses::DIAGNOSTICS).union(Uses::USER_VARIABLE);

impl ExecutionPlan {
    /// Whether it is undone with its transaction, so that it may run again behind that after it was sent. A SET is not: one of
    /// autocommit commits.
    pub(crate) fn is_undone_with_transaction(&self, is_text_certain: bool) -> bool {
        match self.repetition(is_text_certain) {
            Repetition::Again => true,
            Repetition::Apart => self.statement().kind != Kind::Set,
            Repetition::Begins | Repetition::Never => false,
        }
    }

    /// Whether it changes rows, of tables that may have no transactions.
    pub(crate) fn may_write_rows(&self) -> bool {
        !matches!(self.repetition(true), Repetition::Apart | Repetition::Begins) && !self.is_read()
    }

    /// See [`Repetition`]. `is_text_certain`: the text is in a character set in which SQL can be read.
    pub(crate) fn repetition(&self, is_text_certain: bool) -> Repetition {
        match self.kind() {
            CommandKind::Query | CommandKind::Execute => self.repetition_of_statement(is_text_certain),
            CommandKind::InitDb
            | CommandKind::Prepare
            | CommandKind::FieldList
            | CommandKind::LoginSchema
            | CommandKind::Track
            | CommandKind::StmtReset
            | CommandKind::Replay => Repetition::Apart,
            CommandKind::Reset | CommandKind::SetOption | CommandKind::LongData | CommandKind::Fetch => {
                Repetition::Never
            }
        }
    }

    fn repetition_of_statement(&self, is_text_certain: bool) -> Repetition {
        let statement = self.statement();
        if statement.multi || self.runs_others(is_text_certain) || !UNDONE.contains(statement.effects) {
            return Repetition::Never;
        }
        match statement.kind {
            Kind::Begin | Kind::StartTransactionReadOnly => Repetition::Begins,
            Kind::Empty | Kind::Use | Kind::Show | Kind::Explain => Repetition::Apart,
            // LAST_INSERT_ID() is no part of a state.
            Kind::Set
                if !statement.hidden_code && !statement.effects.contains(Effects::LAST_INSERT_ID_SET) =>
            {
                Repetition::Apart
            }
            _ if self.asks_variables() && !statement.hidden_code => Repetition::Apart,
            _ if statement.uses.intersects(OF_STATEMENT_BEFORE) => Repetition::Never,
            Kind::Select | Kind::With | Kind::Values | Kind::Table => match statement.access {
                Access::Read | Access::Write | Access::Inspect => Repetition::Again,
                Access::Control => Repetition::Never,
            },
            Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete => Repetition::Again,
            Kind::Savepoint | Kind::RollbackTo | Kind::ReleaseSavepoint => Repetition::Again,
            _ => Repetition::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Repetition {
        let statement = weir_sql::scan(text.as_bytes(), weir_sql::Dialect::default());
        let is_read = statement.access == Access::Read;
        ExecutionPlan::default().with_statement(CommandKind::Query, statement, is_read).repetition(true)
    }

    #[test]
    fn what_a_rollback_undoes_runs_again() {
        for text in [
            "SELECT a FROM t WHERE id = 1",
            "SELECT a FROM t FOR UPDATE",
            "SELECT NOW(), a FROM t",
            "INSERT INTO t VALUES (1), (2)",
            "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1",
            "REPLACE INTO t VALUES (1)",
            "UPDATE t SET a = a + 1",
            "DELETE FROM t",
            "WITH c AS (SELECT 1) SELECT * FROM c",
            "SAVEPOINT s",
            "ROLLBACK TO s",
            "INSERT INTO u VALUES (LAST_INSERT_ID())",
        ] {
            assert_eq!(of(text), Repetition::Again, "{text}");
        }
        for text in ["BEGIN", "START TRANSACTION", "START TRANSACTION READ ONLY"] {
            assert_eq!(of(text), Repetition::Begins, "{text}");
        }
    }

    #[test]
    fn what_is_not_of_the_transaction_stays_apart() {
        for text in
            ["SHOW TABLES", "SET sql_mode = ''", "USE shop", "EXPLAIN SELECT a FROM t", "SELECT @@version"]
        {
            assert_eq!(of(text), Repetition::Apart, "{text}");
        }
    }

    #[test]
    fn what_may_be_done_for_good_never_runs_again() {
        for text in [
            "CALL p()",
            "SELECT f(a) FROM t",
            "SELECT GET_LOCK('a', 1)",
            "SELECT NEXT VALUE FOR s",
            "SELECT a FROM t INTO @x",
            "SELECT @x := a FROM t",
            "INSERT INTO t VALUES (ROW_COUNT())",
            "INSERT INTO t VALUES (@x)",
            "LOAD DATA INFILE 'f' INTO TABLE t",
            "CREATE TABLE u (a INT)",
            "CREATE TEMPORARY TABLE u (a INT)",
            "DROP TEMPORARY TABLE u",
            "XA START 'x'",
            "LOCK TABLES t WRITE",
            "UPDATE t SET a = 1; DELETE FROM t",
            "HANDLER t OPEN",
            "DO SLEEP(1)",
            "COMMIT",
            "FLUSH TABLES",
            "SET last_insert_id = 5",
            "SET @@identity = 5",
            "SHOW WARNINGS",
            "SHOW ERRORS",
            "SHOW COUNT(*) WARNINGS",
        ] {
            assert_eq!(of(text), Repetition::Never, "{text}");
        }
    }
}
