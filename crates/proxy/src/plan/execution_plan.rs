//! What is decided of a command before it starts, in one value: what it is, whether it surely reads, where rules send it.
//! The rest follows from that, by functions of nothing else: where it may run, what it needs there, whether it may be
//! repeated. Nothing changes a plan; where more is known, another one takes its place.

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
}

impl CommandKind {
    /// What the reply to the command looks like.
    pub(crate) fn reply(self) -> ReplyKind {
        match self {
            Self::Prepare => ReplyKind::Prepare,
            Self::LoginSchema | Self::InitDb | Self::Reset | Self::SetOption | Self::StmtReset => {
                ReplyKind::Simple
            }
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
            | CommandKind::LoginSchema => true,
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
