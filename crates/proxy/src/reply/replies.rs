//! Sends OKs and errors of Weir's own.

use weir_protocol::error::{self, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::errors::OUTCOME_UNKNOWN;
use crate::session::Session;

const UNKNOWN_COMMIT: &str = "The transaction may or may not have been committed";

impl Session {
    /// A packet that Weir answers with an OK of its own.
    pub(crate) fn reply_ok(&self, ctx: &mut Context) {
        self.reply_ok_with(ctx, b"");
    }

    /// The same with a number of affected rows.
    pub(crate) fn reply_affected(&mut self, ctx: &mut Context, affected_rows: u64) {
        self.diagnostics.row_count = i64::try_from(affected_rows).unwrap_or(i64::MAX);
        let capabilities = self.capabilities;
        let ok = OkPacket { affected_rows, ..OkPacket::new(OK_HEADER, self.status()) };
        let mut sequence = 1;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
    }

    /// The same with changes of the session's state, encoded.
    pub(crate) fn reply_ok_with(&self, ctx: &mut Context, session_state: &[u8]) {
        let capabilities = self.capabilities;
        let ok = OkPacket { session_state, ..OkPacket::new(OK_HEADER, self.status()) };
        let mut sequence = 1;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
    }
}

impl Pools {
    /// An error of Weir's own as the answer to a command.
    pub(crate) fn reply_error(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        error: ServerError,
        message: &str,
    ) {
        match session.execution.plan.kind() {
            CommandKind::LongData => return session.long_data_refused(error, message),
            CommandKind::LoginSchema => {
                return session.schema_unchecked(ctx, error, message);
            }
            CommandKind::Replay => return session.not_replayed(error, message),
            _ => {}
        }
        let unknown;
        let (error, message) = if session.awaits_outcome() {
            // Whatever it is: nobody may take it for the end of the transaction.
            session.input.close_when_done = true;
            unknown = format!("{UNKNOWN_COMMIT}: {message}");
            (OUTCOME_UNKNOWN, &*unknown)
        } else {
            (error, message)
        };
        ctx.statistics.totals.errors_generated += 1;
        session.execution.note_error_text(ctx, message.as_bytes());
        self.keep_own_error(session, error, message);
        let message = session.tracked.message_to(message);
        session.diagnostics.row_count = -1;
        session.execution.record.own_errno = error.code;
        // A long command may have taken several packets.
        let mut sequence = session.input.upload.as_ref().map_or(0, |upload| upload.sequence).wrapping_add(1);
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| ErrPacket::new(error, &message).write(out));
        }
    }

    /// 1105 with a text, for refusals of Weir's own.
    pub(crate) fn refuse(&mut self, ctx: &mut Context, session: &mut Session, message: &str) {
        self.reply_error(ctx, session, error::UNKNOWN_ERROR, message);
    }
}
