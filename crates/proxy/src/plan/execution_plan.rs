//! Collects what is decided of a command before it starts in one value: what it is, whether it surely reads, where
//! rules send it. The rest follows from that, by functions of nothing else: where it may run, what it needs there,
//! whether it may be repeated. Nothing changes a plan; where more is known, another one takes its place.

use weir_protocol::response::ReplyKind;
use weir_routing::Decision;
use weir_sql::{Access, Effects, Kind, Statement, Uses};

/// What kind of command it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommandKind {
    #[default]
    Query,
    InitDb,
    Prepare,
    Execute,
    /// COM_RESET_CONNECTION on the session's pinned lease.
    Reset,
    /// COM_FIELD_LIST
    FieldList,
    /// COM_SET_OPTION on the session's pinned lease.
    SetOption,
    /// COM_STMT_SEND_LONG_DATA of more than is kept. Not answered.
    LongData,
    /// Whether the schema of a login exists.
    LoginSchema,
    /// A question of Weir's for a `SET session_track_...`.
    Track,
    /// COM_STMT_FETCH
    Fetch,
    /// COM_STMT_RESET of a statement that has something at the server.
    StmtReset,
    /// Nothing of the client's: its transaction runs again while it is between two statements.
    Replay,
}

impl CommandKind {
    /// What the reply to the command looks like.
    pub(crate) fn reply(self) -> ReplyKind {
        match self {
            Self::Prepare => ReplyKind::Prepare,
            Self::LoginSchema
            | Self::InitDb
            | Self::Reset
            | Self::SetOption
            | Self::StmtReset
            | Self::Replay => ReplyKind::Simple,
            Self::FieldList | Self::Fetch => ReplyKind::Data,
            Self::Query | Self::Execute | Self::LongData | Self::Track => ReplyKind::Results,
        }
    }

    /// Whether the command surely changes nothing but its own session.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::LoginSchema
                | Self::Prepare
                | Self::FieldList
                | Self::SetOption
                | Self::LongData
                | Self::Fetch
                | Self::StmtReset
                | Self::Replay
        )
    }
}

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExecutionPlan {
    kind: CommandKind,
    statement: Statement,
    decision: Decision,
    is_read: bool,
    begins_read_only: bool,
}

impl ExecutionPlan {
    /// A command without a statement of its own, that goes where the session is at home.
    pub(crate) fn of_command(kind: CommandKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The command has this statement.
    #[must_use]
    pub(crate) fn with_statement(self, kind: CommandKind, statement: Statement, is_read: bool) -> Self {
        Self { kind, statement, is_read, ..self }
    }

    /// Rules and hints say this of it.
    #[must_use]
    pub(crate) fn decided(self, decision: Decision) -> Self {
        Self { decision, ..self }
    }

    /// It is surely without effect, or not any more: what is not kept can't be sent again.
    #[must_use]
    pub(crate) fn reading(self, is_read: bool) -> Self {
        Self { is_read, ..self }
    }

    /// A statement like any other: what was special about it is over.
    #[must_use]
    pub(crate) fn as_query(self) -> Self {
        Self { kind: CommandKind::Query, ..self }
    }

    /// Its BEGIN stands for START TRANSACTION READ ONLY.
    #[must_use]
    pub(crate) fn as_read_only_begin(self) -> Self {
        let statement = Statement { kind: Kind::StartTransactionReadOnly, ..self.statement };
        Self { statement, ..self }
    }

    /// The transaction that it begins is one that a reader may have.
    #[must_use]
    pub(crate) fn beginning_on_reader(self) -> Self {
        Self { is_read: true, begins_read_only: true, ..self }
    }

    /// The server says that another result follows. Where the text seemed to be one statement, it has statements that the
    /// scan has taken for a part of something else, and nobody knows what they do.
    #[must_use]
    pub(crate) fn with_unseen_statements(self) -> Self {
        let mut statement = self.statement;
        let is_explained = statement.multi || statement.effects.contains(Effects::ROUTINE);
        if self.kind == CommandKind::Query && !is_explained {
            statement.multi = true;
            statement.effects |= Effects::ROUTINE;
            statement.effects -= Effects::ENDINGS;
        }
        Self { statement, ..self }
    }

    pub(crate) fn kind(&self) -> CommandKind {
        self.kind
    }

    pub(crate) fn statement(&self) -> Statement {
        self.statement
    }

    /// What the query rules and its hints say of it.
    pub(crate) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// It is surely without effect: it may run twice, and on a reader.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// It begins a read-only transaction, which a reader may have.
    pub(crate) fn begins_read_only(&self) -> bool {
        self.begins_read_only
    }

    /// Whether it reads what code that no text shows may have left on a connection and no server reports: user variables,
    /// LASTVAL(), locks by name.
    pub(crate) fn asks_for_hidden_state(&self) -> bool {
        const ASKS: Effects = Effects::SEQUENCE
            .union(Effects::LOCK_ACQUIRED)
            .union(Effects::LOCK_RELEASED)
            .union(Effects::ROUTINE);
        self.statement.uses.contains(Uses::USER_VARIABLE) || self.statement.effects.intersects(ASKS)
    }

    /// Whether LAST_INSERT_ID() must be the session's where it runs: it asks for it, or may leave it as it is; its
    /// triggers may ask for it, or those of the transaction that it begins.
    pub(crate) fn depends_on_insert_id(&self) -> bool {
        let Statement { kind, uses, effects, multi, .. } = self.statement;
        self.kind != CommandKind::Prepare
            && (uses.contains(Uses::LAST_INSERT_ID)
                || effects.intersects(Effects::LAST_INSERT_ID_SET | Effects::ROUTINE)
                || multi
                || kind.may_run_triggers()
                || matches!(kind, Kind::Begin | Kind::XaStart))
    }

    /// Whether it may change something on a server.
    pub(crate) fn may_have_effects(&self) -> bool {
        let only_undoes = self.statement.kind == Kind::Rollback && !self.statement.multi;
        !self.is_read && !self.kind.is_harmless() && !only_undoes
    }

    /// Whether it does nothing but change rows that it finds, which it locks for that.
    pub(crate) fn changes_rows(&self) -> bool {
        let Statement { kind, multi, effects, .. } = self.statement;
        matches!(self.kind, CommandKind::Query | CommandKind::Execute)
            && matches!(kind, Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete)
            && !multi
            && !effects.intersects(Effects::ROUTINE | Effects::UNKNOWN)
    }

    /// Whether it begins or ends a transaction. Where none is open, that begins one that is lost with the connection, or
    /// ends none.
    pub(crate) fn is_boundary(&self) -> bool {
        let kind = self.statement.kind;
        let begins_or_ends =
            matches!(kind, Kind::Begin | Kind::StartTransactionReadOnly | Kind::Commit | Kind::Rollback);
        begins_or_ends && !self.statement.multi
    }

    /// Whether its kind alone tells that it changes nothing but the connection on which it runs, if anything.
    pub(crate) fn leaves_with_connection(&self) -> bool {
        match self.kind {
            CommandKind::Prepare
            | CommandKind::InitDb
            | CommandKind::FieldList
            | CommandKind::LoginSchema
            | CommandKind::Replay => true,
            CommandKind::Query => self.is_read || self.is_boundary() || self.is_use(),
            CommandKind::Execute => self.is_read || self.is_boundary(),
            CommandKind::Track => self.statement.effects.is_empty(),
            CommandKind::Reset
            | CommandKind::SetOption
            | CommandKind::LongData
            | CommandKind::Fetch
            | CommandKind::StmtReset => false,
        }
    }

    /// Whether it ends a transaction without a trace, and begins none.
    pub(crate) fn is_plain_rollback(&self) -> bool {
        self.statement.kind == Kind::Rollback && !self.statement.multi && self.kind == CommandKind::Query
    }

    pub(crate) fn is_use(&self) -> bool {
        self.statement.kind == Kind::Use && !self.statement.multi
    }

    /// Whether it is a read but for its system variables, which may differ from server to server.
    pub(crate) fn asks_variables(&self) -> bool {
        let statement = &self.statement;
        statement.access == Access::Inspect
            && matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table)
            && Uses::SYSTEM_VARIABLE.union(Uses::USER_VARIABLE).contains(statement.uses)
    }

    /// Whether it surely has no effect and asks for nothing that only a connection knows.
    pub(crate) fn is_independent_read(&self) -> bool {
        const OF_CONNECTION: Uses =
            Uses::LAST_INSERT_ID.union(Uses::ROW_COUNT).union(Uses::FOUND_ROWS).union(Uses::DIAGNOSTICS);
        let Statement { multi, effects, uses, .. } = self.statement;
        self.is_read
            && !self.begins_read_only
            && !multi
            && effects.is_empty()
            && !uses.intersects(OF_CONNECTION)
    }

    /// Whether it may go out in one write with what brings its connection into the session's state: should that fail, its
    /// reply is thrown away.
    pub(crate) fn may_follow_prefix(&self) -> bool {
        self.is_read && self.kind == CommandKind::Query
    }

    /// Whether it leaves the schema behind, which may be gone.
    pub(crate) fn leaves_schema(&self) -> bool {
        matches!(self.kind, CommandKind::InitDb | CommandKind::LoginSchema)
            || (self.kind == CommandKind::Query && self.is_use())
    }

    /// Whether later reads of its session must see what it may have done. `is_long`: only its beginning was looked at.
    /// Whatever ends a transaction may commit it.
    pub(crate) fn may_write(&self, is_long: bool, in_transaction: bool) -> bool {
        !self.kind.is_harmless()
            && !self.begins_read_only
            && (is_long
                || in_transaction
                || self.statement.access == Access::Write
                // Of whatever session's transaction.
                || self.statement.kind == Kind::XaCommit)
    }

    /// Whether it asks for something of the past, by itself: of several statements only the server knows.
    pub(crate) fn asks_for(&self, uses: Uses) -> bool {
        self.statement.uses.contains(uses) && !self.statement.multi && self.kind != CommandKind::Prepare
    }

    /// Whether it asks for `@@warning_count` or `@@error_count` in a statement other than those that show conditions.
    pub(crate) fn asks_without_showing(&self) -> bool {
        self.statement.uses.contains(Uses::DIAGNOSTICS)
            && self.is_statement()
            && !matches!(
                self.statement.kind,
                Kind::ShowWarnings
                    | Kind::ShowErrors
                    | Kind::ShowCountWarnings
                    | Kind::ShowCountErrors
                    | Kind::GetDiagnostics
            )
    }

    /// Whether it may end older conditions or not, which nobody can tell: `is_several` statements do, and code.
    pub(crate) fn may_end_conditions(&self, is_several: bool) -> bool {
        let runs_code = matches!(
            self.statement.kind,
            Kind::Call | Kind::Execute | Kind::ExecuteImmediate | Kind::Compound
        );
        self.kind != CommandKind::Prepare && (is_several || runs_code)
    }

    /// Whether it runs a statement of the client's, prepared or not.
    fn is_statement(&self) -> bool {
        matches!(self.kind, CommandKind::Query | CommandKind::Execute)
    }

    /// Whether it is a single statement that runs no others, so that an error at its begin is one before anything.
    pub(crate) fn is_one_statement(&self) -> bool {
        let Statement { kind, effects, .. } = self.statement;
        self.is_statement()
            && !effects.intersects(Effects::ROUTINE | Effects::UNKNOWN)
            && !matches!(kind, Kind::Call | Kind::Compound | Kind::Execute | Kind::ExecuteImmediate)
    }

    /// Whether it runs other statements, so that some of them may have run, and may have committed, before the one that a
    /// server refuses.
    pub(crate) fn runs_others(&self, is_text_certain: bool) -> bool {
        let may_run_others = matches!(
            self.statement.kind,
            Kind::Call
                | Kind::Compound
                | Kind::Execute
                | Kind::ExecuteImmediate
                | Kind::SetStatement
                | Kind::Other
        );
        let is_uncertain = !is_text_certain || self.statement.effects.contains(Effects::UNKNOWN);
        self.is_statement() && (may_run_others || (is_uncertain && !self.is_read))
    }

    /// Whether it, of those that are undone as a whole, commits the transaction in which it is begun.
    pub(crate) fn commits_first(&self) -> bool {
        matches!(
            self.statement.kind,
            Kind::CreateTable
                | Kind::CreateView
                | Kind::AlterTable
                | Kind::DropTable
                | Kind::Truncate
                | Kind::RenameTable
        )
    }

    /// Whether it leaves nothing behind when it fails, neither in tables nor in its session.
    pub(crate) fn is_undone_as_a_whole(&self) -> bool {
        let is_whole = self.commits_first()
            || matches!(
                self.statement.kind,
                Kind::Insert
                    | Kind::Replace
                    | Kind::Update
                    | Kind::Delete
                    | Kind::With
                    // Refused before it has begun.
                    | Kind::Commit
            );
        let leaves = Effects::LAST_INSERT_ID_SET | Effects::TABLE_DROPPED;
        is_whole && self.is_statement() && (self.statement.effects - leaves).is_empty()
    }

    /// Whether its statement runs code of which the text is not seen, and which may ask for anything.
    pub(crate) fn runs_code(&self) -> bool {
        matches!(self.kind, CommandKind::Query | CommandKind::Execute)
            && self.statement.effects.contains(Effects::ROUTINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: CommandKind, text: &str) -> ExecutionPlan {
        let statement = weir_sql::scan(text.as_bytes(), weir_sql::Dialect::default());
        ExecutionPlan::default().with_statement(kind, statement, statement.access == Access::Read)
    }

    #[test]
    fn what_may_have_effects_is_not_taken_for_a_read() {
        for text in
            ["UPDATE t SET a = 1", "COMMIT", "CALL p()", "SELECT a INTO @b FROM t", "ROLLBACK; DROP TABLE t"]
        {
            assert!(plan(CommandKind::Query, text).may_have_effects(), "{text}");
            assert!(!plan(CommandKind::Prepare, text).may_have_effects(), "{text}");
        }
        for text in ["SELECT a FROM t", "ROLLBACK"] {
            assert!(!plan(CommandKind::Query, text).may_have_effects(), "{text}");
        }
    }

    #[test]
    fn what_leaves_nothing_behind_may_be_repeated() {
        for text in ["SELECT a FROM t", "BEGIN", "COMMIT", "USE shop"] {
            assert!(plan(CommandKind::Query, text).leaves_with_connection(), "{text}");
        }
        for text in ["INSERT INTO t VALUES (1)", "BEGIN; COMMIT", "CALL p()"] {
            assert!(!plan(CommandKind::Query, text).leaves_with_connection(), "{text}");
        }
        assert!(!plan(CommandKind::Execute, "USE shop").leaves_with_connection());
        assert!(ExecutionPlan::of_command(CommandKind::InitDb).leaves_with_connection());
        assert!(!ExecutionPlan::of_command(CommandKind::Fetch).reading(true).leaves_with_connection());
    }

    #[test]
    fn statements_that_nobody_saw_may_do_anything() {
        let seen = plan(CommandKind::Query, "SELECT a FROM t");
        assert!(!seen.depends_on_insert_id() && !seen.asks_for_hidden_state());
        let unseen = seen.with_unseen_statements();
        assert!(unseen.depends_on_insert_id() && unseen.asks_for_hidden_state() && unseen.runs_code());
        // A CALL has several results anyway, and of an execution the server has read the text.
        let call = plan(CommandKind::Query, "CALL p()");
        assert_eq!(call.with_unseen_statements().statement(), call.statement());
        let executed = plan(CommandKind::Execute, "SELECT a FROM t");
        assert_eq!(executed.with_unseen_statements().statement(), executed.statement());
    }

    #[test]
    fn what_fails_as_a_whole_may_be_run_elsewhere() {
        for text in ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "COMMIT", "DROP TABLE t"] {
            assert!(plan(CommandKind::Query, text).is_undone_as_a_whole(), "{text}");
            assert!(!plan(CommandKind::Prepare, text).is_undone_as_a_whole(), "{text}");
        }
        let call = plan(CommandKind::Query, "CALL p()");
        assert!(!call.is_undone_as_a_whole() && !call.is_one_statement() && call.runs_others(true));
        let update = plan(CommandKind::Execute, "UPDATE t SET a = 1");
        assert!(update.is_one_statement() && !update.runs_others(true) && update.runs_others(false));
        assert!(plan(CommandKind::Query, "DROP TABLE t").commits_first() && !update.commits_first());
    }

    #[test]
    fn what_reads_see_of_their_session_is_what_it_may_have_written() {
        let read = plan(CommandKind::Query, "SELECT a FROM t");
        assert!(!read.may_write(false, false) && read.may_write(true, false) && read.may_write(false, true));
        assert!(plan(CommandKind::Query, "DELETE FROM t").may_write(false, false));
        assert!(!plan(CommandKind::Prepare, "DELETE FROM t").may_write(false, true));
    }

    #[test]
    fn who_asks_for_the_past_is_known_by_the_plan() {
        let count = plan(CommandKind::Query, "SELECT @@warning_count");
        assert!(count.asks_without_showing() && !count.is_independent_read());
        assert!(!plan(CommandKind::Query, "SHOW WARNINGS").asks_without_showing());
        let id = |kind| plan(kind, "SELECT LAST_INSERT_ID()").asks_for(Uses::LAST_INSERT_ID);
        assert!(id(CommandKind::Query) && !id(CommandKind::Prepare));
        assert!(plan(CommandKind::Query, "SELECT a FROM t").is_independent_read());
        assert!(plan(CommandKind::Query, "CALL p()").may_end_conditions(false));
        assert!(!plan(CommandKind::Query, "SELECT 1").may_end_conditions(false));
    }

    #[test]
    fn a_plan_goes_on_from_the_one_before() {
        let decision = Decision { hostgroup: Some(7), ..Decision::default() };
        let decided = ExecutionPlan::default().decided(decision);
        let begin = weir_sql::scan(b"BEGIN", weir_sql::Dialect::default());
        let begun = decided.with_statement(CommandKind::Query, begin, false).as_read_only_begin();
        assert_eq!(begun.statement().kind, Kind::StartTransactionReadOnly);
        assert!(!begun.is_read() && !begun.begins_read_only());
        let on_reader = begun.beginning_on_reader();
        assert!(on_reader.is_read() && on_reader.begins_read_only() && on_reader.is_boundary());
        assert_eq!(on_reader.decision().hostgroup, Some(7));
    }
}
