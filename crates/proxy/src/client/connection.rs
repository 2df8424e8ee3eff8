//! Clients: greeting, login, bytes in, replies that Weir gives itself, and going away.

use weir_protocol::error::{self, ServerError};
use weir_query_log::AuditKind;
use weir_session::pin::Pins;

use crate::plan::execution_plan::CommandKind;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::statement::work::Work;

/// What a client may send ahead while its command runs, before Weir stops reading from it.
pub(crate) const INBOX_BYTES_MAX: usize = 64 << 10;
/// An idle session keeps no larger buffer than this.
const INBOX_BYTES_KEPT: usize = 4 << 10;

impl Work<'_> {
    pub(crate) fn client_data(&mut self, bytes: &mut [u8]) {
        self.ctx.statistics.totals.client_bytes_received += bytes.len() as u64;
        let session = &*self.session;
        match &session.phase {
            Phase::Closing => return,
            Phase::Running if session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing) => {
                return self.flow(bytes);
            }
            Phase::Running if session.input.infile.is_some() => return self.send_file(bytes),
            // A batch of events may hold the request for TLS and what follows it.
            Phase::Login(_) if session.client.is_tls && self.ctx.out.add_to_tls(session.socket, bytes) => {
                return;
            }
            _ => {}
        }
        let session = &mut *self.session;
        session.input.inbox.extend_from_slice(bytes);
        // Resumed with the end of the command, if not when what is fetched has come, or when replies are taken.
        let is_busy = match &session.phase {
            Phase::Idle => session.diagnostics.fetching > 0,
            Phase::Login(login) => login.is_checking(),
            _ => true,
        };
        let waits = is_busy || self.session.must_read_first(self.ctx);
        let session = &*self.session;
        if waits && session.input.inbox.len() - session.input.command_bytes > INBOX_BYTES_MAX {
            let socket = session.socket;
            self.ctx.out.pause(socket, true);
        }
        if !waits {
            self.advance();
        }
    }

    /// Takes up whatever a session can do now.
    pub(crate) fn advance(&mut self) {
        loop {
            let session = &*self.session;
            let goes_on = match session.phase {
                Phase::Login(_) => self.login_packet(),
                Phase::Idle => self.next_command(),
                Phase::Running => {
                    // It may have waited for diagnostics from another connection.
                    if let Some(lease) = session.lease {
                        self.prepare_connection(lease);
                    }
                    false
                }
                _ => false,
            };
            if !goes_on {
                return;
            }
        }
    }
}

impl Work<'_> {
    /// An error after which the connection ends.
    pub(crate) fn fail_session(&mut self, error: ServerError, message: &str) {
        self.session.take_withheld_back(self.ctx);
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
}

impl Work<'_> {
    /// The running command is answered: its bytes go.
    pub(crate) fn command_done(&mut self) {
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
        if matches!(session.execution.plan.kind(), CommandKind::LoginSchema | CommandKind::LongData) {
            session.execution.plan = session.execution.plan.as_query();
        }
        session.phase = Phase::Idle;
        session.times.last_active_at = self.ctx.now;
        let socket = session.socket;
        self.ctx.out.pause(socket, false);
    }
}

impl Work<'_> {
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
}

impl Work<'_> {
    /// The session's user is no longer configured.
    pub(crate) fn refuse_without_account(&mut self) {
        self.fail_session(error::ACCESS_DENIED, "The user of this session is no longer configured");
    }
}
