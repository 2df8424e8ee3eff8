//! Buffers small results of reads until they are complete: when their server dies in the middle, the client has not
//! seen a byte, and the read is run again on another server.
//!
//! The bytes wait where they would have waited anyway, in the client's output buffer: nothing is copied, and a result
//! that comes in one piece leaves with the same write as without.

use crate::context::Context;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connections::Connections;
use crate::session::Session;

impl Session {
    /// Lets a result go that has become too large.
    pub(crate) fn limit_withheld(&mut self, ctx: &mut Context) {
        let limit = self.execution.reply.buffered_bytes_max;
        if limit > 0 && ctx.out.held_bytes(self.socket) > limit as usize {
            self.send_buffered_result(ctx);
        }
    }

    /// Lets a result go.
    pub(crate) fn send_buffered_result(&mut self, ctx: &mut Context) {
        self.execution.reply.buffered_bytes_max = 0;
        self.execution.reply.open_eof = None;
        ctx.out.release(self.socket);
    }

    /// Forgets the begin of a result whose server is gone: the client has got nothing of it.
    pub(crate) fn take_withheld_back(&mut self, ctx: &mut Context) {
        if std::mem::take(&mut self.execution.reply.buffered_bytes_max) > 0 {
            self.execution.reply.is_answering = false;
            self.execution.reply.owed_eof = None;
            self.execution.reply.open_eof = None;
            self.execution.reply.results = 0;
            ctx.out.take_back(self.socket);
        } else {
            self.close_eof(ctx, None);
        }
    }
}

impl Pools {
    /// Holds the result back that begins now, if the read could be run again, or may have been for the last time: then
    /// the client is told so, which would be too late within a result.
    pub(crate) fn withhold(&self, ctx: &mut Context, session: &mut Session) {
        let execution = &session.execution;
        let limit = self.groups.get(&execution.hostgroup).map_or(0, |group| group.retry_buffer_bytes);
        let could_run_again = execution.plan.is_read()
            && matches!(execution.plan.kind(), CommandKind::Query | CommandKind::Execute)
            && !execution.text.wants_cursor
            && session.input.upload.is_none()
            && session.stay.detour.is_none()
            && session.pins.is_empty();
        if limit == 0 || !could_run_again {
            return;
        }
        let socket = session.socket;
        session.execution.reply.buffered_bytes_max = limit;
        ctx.out.hold(socket);
    }
}

impl Connections {
    /// Stops reading from the server of a client that does not take its result.
    pub(crate) fn hold_back(&self, ctx: &mut Context, session: &mut Session) {
        let Some(lease) = session.lease() else { return };
        let socket = session.socket;
        if ctx.out.backlog_bytes(socket) <= BACKLOG_HIGH_BYTES {
            return;
        }
        if ctx.out.held_bytes(socket) > BACKLOG_HIGH_BYTES {
            session.send_buffered_result(ctx);
        }
        if ctx.out.backlog_bytes(socket) - ctx.out.held_bytes(socket) > BACKLOG_HIGH_BYTES {
            ctx.out.pause(self[lease].socket, true);
            ctx.out.notify_drained(socket);
        }
    }
}
