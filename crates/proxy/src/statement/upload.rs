//! Passes the rest of a command that is too long to be kept on to its server, as it comes.

use weir_protocol::error;

use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::plan::execution_plan::CommandKind;
use crate::work::Work;

impl Work<'_> {
    /// The kept part of a long command is on its way: what has come meanwhile follows.
    pub(crate) fn start_flow(&mut self) {
        self.session.note_long_text(self.ctx);
        let session = &mut *self.session;
        let Some(upload) = &mut session.input.upload else { return };
        upload.is_flowing = !upload.is_complete();
        // From here on nothing of the command is kept: it can't be sent again.
        session.execution.plan = session.execution.plan.reading(false);
        let rest = session.input.inbox.split_off(session.input.command_bytes.min(session.input.inbox.len()));
        session.input.inbox = Vec::new();
        session.input.command_bytes = 0;
        let socket = session.socket;
        self.ctx.out.pause(socket, false);
        if !rest.is_empty() {
            self.flow(&rest);
        }
    }

    /// Bytes of a long command on their way from the client to the server.
    pub(crate) fn flow(&mut self, bytes: &[u8]) {
        let limit = self.ctx.snapshot.variables.max_allowed_packet as usize;
        let Some(lease) = self.session.lease() else { return };
        if !self.may_flow(lease) {
            return;
        }
        let session = &mut *self.session;
        let Some(upload) = &mut session.input.upload else { return };
        // A header may come in pieces: it waits in the inbox.
        session.input.inbox.extend_from_slice(bytes);
        let connection = self.pools.connections[lease].socket;
        let passed = match self.ctx.out.buffer(connection) {
            Some(buffer) => upload.pass(&session.input.inbox, buffer, limit),
            None => Ok(session.input.inbox.len()),
        };
        self.pools.connections[lease].replies.command_continued(upload.sent_sequence, upload.sequence);
        session.input.inbox.drain(..*passed.as_ref().unwrap_or(&0));
        let is_complete = upload.is_complete();
        let socket = session.socket;
        if passed.is_err() {
            let message =
                format!("Got a packet bigger than 'max_allowed_packet' bytes ({limit}), or out of order");
            return self.fail_session(error::NET_PACKET_TOO_LARGE, &message);
        }
        if is_complete {
            // What follows is the next command: it stays in the inbox.
            upload.is_flowing = false;
            if session.execution.plan.kind() == CommandKind::LongData {
                self.long_data_sent();
            }
            return;
        }
        if self.ctx.out.backlog_bytes(connection) > BACKLOG_HIGH_BYTES {
            self.ctx.out.pause(socket, true);
            self.ctx.out.notify_drained(connection);
        }
    }
}
