//! Ends a session's command, or the session.

use weir_protocol::error::{self, ServerError};
use weir_query_log::AuditKind;
use weir_session::pin::Pins;
use weir_session::prepared::LongData;

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::work::Work;

/// An idle session keeps no larger buffer than this.
const INBOX_BYTES_KEPT: usize = 4 << 10;

impl Work<'_> {
    /// An error after which the connection ends.
    pub(crate) fn fail_session(&mut self, error: ServerError, message: &str) {
        self.session.take_withheld_back(self.ctx);
        if self.session.is_replaying_ahead() {
            // Its client reads that as the answer to its next command.
            self.session.execution.plan = self.session.execution.plan.as_query();
        }
        self.pools.reply_error(self.ctx, self.session, error, message);
        let session = &*self.session;
        let (program, code) = (session.program(), error.code);
        tracing::info!(session = session.id, peer = %session.client.peer, program, code, told = message, "session closed");
        self.session.count_own_answer(self.ctx);
        self.close_session();
    }

    /// Closes a session once what is queued for it has been sent. Its lease is freed at once.
    pub(crate) fn close_session(&mut self) {
        self.session.take_withheld_back(self.ctx);
        self.log_statement();
        self.abandon();
        let session = &mut *self.session;
        session.phase = Phase::Closing;
        session.input.inbox = Vec::new();
        session.input.command_bytes = 0;
        let socket = session.socket;
        if self.ctx.out.backlog_bytes(socket) == 0 {
            self.forget();
        } else {
            self.ctx.out.notify_drained(socket);
            self.ctx.timers.closing(socket, self.ctx.now);
        }
    }

    /// The session has ended, and is removed once the current event is dealt with.
    pub(crate) fn forget(&mut self) {
        self.log_unanswered();
        let session = &mut *self.session;
        if std::mem::take(&mut session.client.has_logged_in) {
            session.audit(self.ctx, AuditKind::Close, "");
        }
        session.phase = Phase::Closing;
        self.ctx.ended.push((session.key, session.socket));
    }

    /// The client's socket is gone.
    pub(crate) fn client_gone(&mut self) {
        self.log_unanswered();
        self.abandon();
        self.forget();
    }

    /// The running command is answered: its bytes go.
    pub(crate) fn command_done(&mut self) {
        self.leave_wrapped();
        self.session.count_own_answer(self.ctx);
        self.log_statement();
        if self.session.stay.detour.is_some() {
            self.end_detour();
        }
        let session = &mut *self.session;
        if !matches!(session.execution.ending, Ending::Ok { .. }) {
            session.undo_tracking();
        }
        let has_long_data =
            session.prepared.long_data_bytes > 0 || session.pins.pins().contains(Pins::LONG_DATA);
        if has_long_data && session.execution.plan.kind() == CommandKind::Execute {
            let id = session.execution.text.statement_id;
            self.pools.drop_long_data(self.ctx, self.session, id);
        }
        let session = &mut *self.session;
        let done = std::mem::take(&mut session.input.command_bytes);
        if done >= session.input.inbox.len() {
            session.input.inbox.clear();
            if session.input.inbox.capacity() > INBOX_BYTES_KEPT {
                session.input.inbox = Vec::new();
            }
        } else {
            session.input.inbox.drain(..done);
        }
        self.session.leave_upload();
        let session = &mut *self.session;
        // Errors from here on are not a login's or of what is not answered.
        if matches!(
            session.execution.plan.kind(),
            CommandKind::LoginSchema | CommandKind::LongData | CommandKind::Replay
        ) {
            session.execution.plan = session.execution.plan.as_query();
        }
        if let Some(log) = &mut session.transaction.log {
            log.turn = None;
        }
        session.phase = Phase::Idle;
        session.times.last_active_at = self.ctx.now;
        let socket = session.socket;
        self.ctx.out.pause(socket, false);
    }

    /// The work of a session ends with an error of Weir's own; the session goes on with the next command.
    pub(crate) fn answer_error(&mut self, error: ServerError, message: &str) {
        self.pools.reply_error(self.ctx, self.session, error, message);
        self.answered_here();
    }

    /// The work of a session ended with a reply of Weir's own; the session goes on with the next command.
    pub(crate) fn answered_here(&mut self) {
        self.command_done();
        if self.session.input.close_when_done || self.session.input.is_cut_short {
            return self.close_session();
        }
        if self.moves_away() {
            return;
        }
        let socket = self.session.socket;
        self.ctx.runnable.push_back((self.session.key, socket));
    }

    /// The session's user is no longer configured.
    pub(crate) fn refuse_without_account(&mut self) {
        self.fail_session(error::ACCESS_DENIED, "The user of this session is no longer configured");
    }
}

impl Pools {
    /// An execution is over without having reached a server: its long data goes with it, as on a server.
    pub(crate) fn drop_long_data(&self, ctx: &mut Context, session: &mut Session, id: u32) {
        let Some(statement) = session.prepared.all.get_mut(&id) else { return };
        session.prepared.long_data_bytes -= statement.long_data_bytes();
        if matches!(statement.long_data, LongData::Refused(..)) {
            return;
        }
        let was_sent = std::mem::take(&mut statement.long_data) == LongData::Sent;
        if !was_sent {
            return;
        }
        let own = statement.own.take();
        statement.has_cursor = false;
        if let (Some(own), Some(lease)) = (own, session.lease()) {
            self.connections[lease].close_on(ctx, own.id);
        }
        session.update_statement_pins();
    }
}
