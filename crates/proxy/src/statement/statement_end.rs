//! Ends a statement: what it has left behind, what has to be asked for, and whether the lease may go.

use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::keys::{ConnectionKey, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::server::connection::DiscardReason;
use crate::session::execution::{Ending, Settle};
use crate::session::phase::Phase;
use crate::session::retained::Retained;
use crate::statement::completion_type::Closes;
use crate::work::Work;

impl Work<'_> {
    /// The reply to a session's command is complete.
    pub(crate) fn finish(&mut self, key: ConnectionKey) {
        // Its client may still be busy with the result, but whoever comes next is not to wait for that.
        let socket = self.pools.connections[key].socket;
        self.ctx.out.pause(socket, false);
        self.pools.connections[key].end_hurry(self.ctx);
        let session = &*self.session;
        let is_cut_short = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        if is_cut_short || session.input.infile.is_some() {
            // The server has answered before the command was complete, and there is no telling what it will do
            // with the rest.
            return self.close_session();
        }
        let rows = self.pools.connections[key].replies.rows;
        if self.commits_wrapped(key, rows) {
            return;
        }
        self.session.send_buffered_result(self.ctx);
        let session = &mut *self.session;
        session.execution.kill.deadline_passed = false;
        if let Some(refusal) = session.execution.reply.refusal.take() {
            return self.refused(key, refusal);
        }
        if session.execution.plan.kind() == CommandKind::Reset {
            return self.finish_reset_on(key);
        }
        self.pools.count_statement(self.ctx, self.session, key);
        let session = &mut *self.session;
        if session.execution.may_have_written {
            self.note_write(key);
        }
        self.note_seen(key);
        let session = &*self.session;
        let (kind, is_ok) =
            (session.execution.plan.kind(), matches!(session.execution.ending, Ending::Ok { .. }));
        if kind == CommandKind::Track && is_ok && !self.tracked(key) {
            return;
        }
        match kind {
            CommandKind::Execute => {
                self.session.note_data_beside_execution();
                self.pools.connections[key].note_executed(self.ctx, self.session);
            }
            CommandKind::LoginSchema => return self.schema_checked(),
            CommandKind::Fetch => self.pools.connections[key].note_fetched(self.ctx, self.session),
            CommandKind::StmtReset => {
                self.pools.connections[key].note_statement_reset(self.ctx, self.session)
            }
            _ => {}
        }
        let session = &mut *self.session;
        if session.execution.plan.statement().hidden_code && !session.execution.plan.kind().is_harmless() {
            self.pools.connections[key].traces.hidden_code_of.note(session.socket);
        }
        session.apply_multiplex();
        if !self.session.execution.reply.is_noted {
            self.note_ending(key, rows);
        }
        self.undo_wrapped(key);
        let closes = self.pools.connections[key].closes(self.session);
        if closes == Closes::Yes {
            self.pools.connections[key].discard_reason = Some(DiscardReason::ClientGone);
            return self.close_session();
        }
        let mut settle = self.pools.connections[key].what_to_settle(self.ctx, self.session);
        if closes == Closes::Perhaps && settle == Settle::Nothing {
            // A connection that answers is none that is being closed.
            settle = Settle::Status;
        }
        if settle == Settle::Nothing {
            return self.settle_down();
        }
        self.session.phase = Phase::Settling;
        if settle == Settle::Collation && self.session.diagnostics.retained.contains(Retained::FOUND_ROWS) {
            // The question is a query, and has a number of rows itself.
            self.pools.save_diagnostics(self.ctx, self.session, key);
        }
        self.pools.connections[key].ask(self.ctx, settle);
    }

    /// A statement has ended that may have written: whoever reads for its session has to see that.
    fn note_write(&mut self, key: ConnectionKey) {
        let session = &mut *self.session;
        let server = self.pools.connections[key].server;
        let covers_earlier = session.freshness.last_at == 0
            || session.freshness.last_server == server
            || self.pools.servers[server].server.shared.covers(session.freshness.last_at);
        // A writer that has just taken over may not have applied what this session wrote at the one before.
        session.freshness.last_server = if covers_earlier { server } else { ServerIndex::MAX };
        session.freshness.last_at = self.ctx.now;
        let shared = &self.pools.servers[server].server.shared;
        shared.note_write(self.ctx.now);
        if !self.pools.is_sole_writer(key) {
            shared.note_parted_write(self.ctx.now);
        }
        if !session.is_surely_uncommitted() {
            session.freshness.last_commit_at = self.ctx.now;
        }
    }

    /// How it ended, and what that leaves behind in the session and on the connection. `rows`: those of the last result.
    pub(crate) fn note_ending(&mut self, key: ConnectionKey, rows: u64) {
        let session = &mut *self.session;
        match session.execution.ending {
            // The answer is Weir's.
            Ending::Ok { .. } if session.execution.plan.kind() == CommandKind::Track => {}
            // A PREPARE leaves ROW_COUNT() and the rest alone (MariaDB 10.11).
            Ending::Ok { warnings, .. } if session.execution.plan.kind().is_harmless() => {
                if session.execution.plan.kind() == CommandKind::SetOption {
                    self.pools.take_option(self.session, key);
                }
                if warnings > 0 {
                    self.pools.connections[key].known.has_conditions = true;
                    self.pools.connections.retain_warnings(self.session);
                }
            }
            Ending::Ok { affected_rows, insert_id, warnings, has_rows, .. } => {
                let count = if has_rows { -1 } else { i64::try_from(affected_rows).unwrap_or(i64::MAX) };
                self.note_counts(key, count, warnings);
                self.pools.note_retained(self.ctx, self.session, insert_id, warnings, has_rows);
                let counted = self.pools.counted(self.ctx, self.session, has_rows.then_some(rows));
                self.pools.connections.note_found_rows(self.session, key, counted);
                self.session.apply_effects(self.pools.connections[key].access.greeted.is_mariadb);
                self.pools.connections[key].traces.check_tracking(self.session);
                self.pools.note_renewal(self.session);
                self.session.audit_schema(self.ctx);
            }
            Ending::Err(_) => {
                session.undo_tracking();
                if let (CommandKind::Execute, Some(prepared)) =
                    (session.execution.plan.kind(), &session.execution.text.prepared)
                {
                    self.pools.connections[key].statements.forget_types(prepared);
                }
                self.pools.note_error(self.ctx, self.session);
                self.pools.connections[key].known.row_count = Some(self.session.diagnostics.row_count);
                self.pools.connections[key].known.has_conditions = true;
            }
            Ending::None => {}
        }
    }

    /// ROW_COUNT() behind a statement that ended with an OK, and whether the connection has conditions.
    fn note_counts(&mut self, key: ConnectionKey, count: i64, warnings: u16) {
        let session = &mut *self.session;
        let statement = session.execution.plan.statement();
        session.diagnostics.row_count = match statement.kind {
            // It leaves the count alone, unless there is no such condition, of which the OK warns.
            Kind::GetDiagnostics if !statement.multi && warnings == 0 => session.diagnostics.row_count,
            Kind::GetDiagnostics if !statement.multi => -1,
            _ => count,
        };
        let known = &mut self.pools.connections[key].known;
        known.row_count = Some(session.diagnostics.row_count);
        let has_warned = warnings > 0 || session.execution.reply.has_warned;
        let changes_rows = statement.kind.may_run_triggers() && !statement.multi;
        // A statement that changes rows ends those of before, on either family.
        known.has_conditions = has_warned || (known.has_conditions && !changes_rows);
    }
}

impl Work<'_> {
    /// COM_RESET_CONNECTION on a lease: session and connection start anew.
    fn finish_reset_on(&mut self, key: ConnectionKey) {
        if matches!(self.session.execution.ending, Ending::Err(_)) {
            // Nothing was reset (Galera's 1213): the client has the error, the state is what it was.
            self.session.diagnostics.row_count = -1;
            return self.pools.connections[key].settle_after_error(self.ctx, self.session);
        }
        let left = self.session.pins.pins();
        let is_opaque = left.intersects(Pins::OPAQUE) || self.pools.connections[key].traces.is_suspect;
        self.pools.finish_reset(self.ctx, self.session);
        if is_opaque && !self.pools.connections[key].access.greeted.is_mariadb {
            return self.finish_reset_by_login(key);
        }
        let stays = is_opaque || !self.session.pins.is_empty();
        if !stays && self.pools.connections[key].forgets_its_sql_mode() {
            self.pools.connections[key].discard_reason = Some(DiscardReason::Stale);
        }
        if !stays {
            self.pools.detach(self.ctx, self.session);
        }
        self.pools.set_up_again(self.ctx, key, is_opaque);
        self.answered_here();
    }

    /// The same where a role may be left, for which MySQL can't be asked: a login gives those that the user should have.
    fn finish_reset_by_login(&mut self, key: ConnectionKey) {
        if !self.session.pins.is_empty() {
            // The connection is closed in the end.
            self.session.pins.insert(Pins::ROLE);
            self.pools.set_up_again(self.ctx, key, true);
        } else {
            self.pools.detach(self.ctx, self.session);
            self.pools.recycle(self.ctx, key, Pins::OPAQUE);
        }
        self.answered_here();
    }

    /// The session's command is over; its lease stays if a pin says so.
    pub(crate) fn settle_down(&mut self) {
        self.pools.log_in_transaction(self.session);
        let session = &*self.session;
        // A lease that was put aside takes the place of this one.
        let stays = session.stay.detour.is_some() || self.pools.stays(self.session);
        let ends = session.input.close_when_done;
        self.command_done();
        if ends {
            return self.close_session();
        }
        if !stays {
            self.pools.release(self.ctx, self.session);
            self.hear();
        } else if self.moves_away() {
            return;
        }
        let session = &*self.session;
        if !session.input.inbox.is_empty() || self.ctx.drain.until.is_some() {
            self.ctx.runnable.push_back((self.session.key, session.socket));
        }
    }
}
