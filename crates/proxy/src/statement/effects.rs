//! Applies what a statement has left in its session, by its text and by how it ended.

use weir_protocol::error::PARSE_ERROR;
use weir_protocol::frame;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind};

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::errors::REFUSED;
use crate::session::Session;
use crate::session::execution::{Ending, Execution};

/// Whether a statement may have changed its session before it failed: the code that it has run, the statements before the
/// one that failed, or the first items of a list of SET, of which the last ones (PASSWORD, say) may fail on their own.
fn may_have_changed_before_error(execution: &Execution, is_several: bool) -> bool {
    let statement = &execution.plan.statement();
    let is_certain = matches!(execution.ending, Ending::Err(code) if code == PARSE_ERROR.code)
        && !statement.effects.intersects(Effects::ROUTINE);
    let runs_code =
        statement.hidden_code || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
    is_several || (!is_certain && (runs_code || statement.kind == Kind::Set))
}

/// What a statement may have done to its session before it failed with this error: expressions are evaluated row
/// by row.
fn effects_before_error(execution: &Execution, is_several: bool) -> Effects {
    const BEGUN: Effects = Effects::USER_VARIABLE.union(Effects::LOCK_ACQUIRED).union(Effects::SEQUENCE);
    let Ending::Err(code) = execution.ending else { return Effects::empty() };
    let statement = &execution.plan.statement();
    if execution.plan.kind() == CommandKind::Prepare || (REFUSED.contains(&code) && !is_several) {
        return Effects::empty();
    }
    // SET assigns everything or nothing (MariaDB 10.11).
    let is_set = statement.kind == Kind::Set && !is_several;
    (statement.effects & BEGUN) - if is_set { Effects::USER_VARIABLE } else { Effects::empty() }
}

impl Session {
    /// Pins by the statement's text.
    pub(crate) fn apply_effects(&mut self, is_mariadb: bool) {
        let execution = &self.execution;
        let (statement, kind) = (execution.plan.statement(), execution.plan.kind());
        if self.input.upload.is_some() && kind == CommandKind::Query {
            self.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let ends_transaction = matches!(
            statement.kind,
            Kind::Commit | Kind::Rollback | Kind::Begin | Kind::StartTransactionReadOnly
        );
        if ends_transaction && kind != CommandKind::Prepare && !statement.multi {
            self.pins.remove(Pins::SAVEPOINT);
        }
        if kind == CommandKind::Prepare || statement.effects.is_empty() {
            return;
        }
        let state = self.tracked.state.clone();
        let dialect = self.tracked.dialect;
        let prepared = execution.text.prepared.clone();
        let inbox = &self.input.inbox;
        let text: &[u8] = match (&prepared, kind) {
            (Some(prepared), CommandKind::Execute) => prepared.text(),
            _ => inbox
                .get(frame::HEADER_LEN + 1..self.input.command_bytes.min(inbox.len()))
                .unwrap_or_default(),
        };
        let names = || if statement.multi { Vec::new() } else { weir_sql::named_effects(text, dialect) };
        self.pins.apply(statement.effects, state.schema(), names);
        if statement.effects.contains(Effects::USER_VARIABLE) {
            // A MariaDB is asked for them.
            if !is_mariadb {
                self.pins.note_variables(weir_session::user_variables::names_in(text, dialect));
            }
            self.forget_obstacle();
        }
        if statement.effects.contains(Effects::SAVEPOINT) && !self.transaction.is_autocommit {
            self.pins.insert(Pins::SAVEPOINT);
        }
    }
}

impl Pools {
    /// After an ERR the state of the lease is unknown until proven.
    pub(crate) fn note_error(&mut self, ctx: &Context, session: &mut Session) {
        session.diagnostics.row_count = -1;
        let (statement, is_several) = (session.execution.plan.statement(), session.runs_several());
        self.connections.retain_warnings(session);
        if is_several || statement.effects.intersects(Effects::LAST_INSERT_ID_SET | Effects::ROUTINE) {
            // A row before the one that failed has set it.
            self.connections.retain_insert_id(session);
        }
        if let Some(lease) = session.lease() {
            let counted = self.counted_before_error(ctx, session);
            self.connections.note_found_rows(session, lease, counted);
        }
        if session.input.upload.is_some() && session.execution.plan.kind() == CommandKind::Query {
            session.pins.insert(Pins::UNSCANNED_STATEMENT);
        }
        let happened = effects_before_error(&session.execution, is_several);
        session.pins.apply(happened, b"", Vec::new);
        if happened.contains(Effects::USER_VARIABLE) {
            session.pins.note_variables(None);
        }
        if session.execution.plan.kind() == CommandKind::Prepare {
            return;
        }
        if may_have_changed_before_error(&session.execution, is_several) {
            session.pins.insert(Pins::UNKNOWN_AFTER_ERROR);
            if let Some(lease) = session.lease()
                && !self.connections[lease].access.greeted.is_mariadb
            {
                self.connections[lease].traces.unproven = Some(session.socket);
            }
        }
        if is_several && statement.effects.contains(Effects::SAVEPOINT) {
            // Without autocommit it may stand; the status tells if it can't.
            session.pins.insert(Pins::SAVEPOINT);
        }
        if is_several || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN) {
            // What it may have created before it failed is taken to exist.
            let created = statement.effects
                - (Effects::TABLE_DROPPED
                    | Effects::TEXT_DEALLOCATE
                    | Effects::HANDLER_CLOSED
                    | Effects::LOCK_RELEASED
                    | Effects::TABLES_UNLOCKED);
            session.pins.apply(created, b"", Vec::new);
            if created.contains(Effects::USER_VARIABLE) {
                session.pins.note_variables(None);
            }
        }
    }
}
