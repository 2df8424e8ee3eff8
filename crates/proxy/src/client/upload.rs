//! Streams commands too long to be kept: their first part is looked at and kept until a server takes them, the rest
//! flows through as it comes.

use weir_protocol::command::Command;
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};

use crate::session::text::COMMAND_BYTES_KEPT;
use crate::session::upload::{Refused, Upload};
use crate::work::Work;

impl Work<'_> {
    /// A long command begins. False while too little of it is there to tell what it is.
    pub(crate) fn begin_upload(&mut self, header: Header) -> bool {
        let limit = self.ctx.snapshot.variables.max_allowed_packet as usize;
        let session = &mut *self.session;
        if header.len > limit {
            let message = format!("Got a packet bigger than 'max_allowed_packet' bytes ({limit})");
            self.fail_session(error::NET_PACKET_TOO_LARGE, &message);
            return false;
        }
        let Some(code) = session.input.inbox.get(HEADER_LEN) else { return false };
        let may_be_long = matches!(
            Command::parse(*code),
            Some(Command::Query | Command::StmtExecute | Command::StmtSendLongData)
        );
        let is_prepare = Command::parse(*code) == Some(Command::StmtPrepare);
        if !may_be_long && !is_prepare {
            self.fail_session(error::NET_PACKET_TOO_LARGE, "Got a packet too long for its command");
            return false;
        }
        if may_be_long && session.input.inbox.len() < COMMAND_BYTES_KEPT {
            return false;
        }
        let here = session.input.inbox.len() - HEADER_LEN;
        let taken = here.min(header.len);
        session.input.command_bytes = HEADER_LEN + taken;
        session.input.upload = Some(Box::new(Upload {
            packet_left: header.len - taken,
            continues: header.is_continued(),
            is_flowing: false,
            sequence: 0,
            room: header.len - taken,
            is_full: header.is_continued(),
            sent_sequence: 0,
            total_bytes: header.len,
        }));
        session.times.last_active_at = self.ctx.now;
        if is_prepare {
            // A text to prepare has to be kept: connections that lack it get it again.
            session.execution.reset(self.ctx.now);
            session.prepared.last_prepared = 0;
            let message = format!(
                "Got a packet bigger than {COMMAND_BYTES_KEPT} bytes, which a text to prepare may not be"
            );
            self.pools.reply_error(self.ctx, self.session, error::NET_PACKET_TOO_LARGE, &message);
            self.command_done();
            return true;
        }
        let socket = session.socket;
        self.ctx.out.pause(socket, true);
        self.dispatch()
    }

    /// Throws away what is still to come of a command that is over. False until it has come, and if the session ends with
    /// it.
    pub(crate) fn skips_rest(&mut self) -> bool {
        let limit = self.ctx.snapshot.variables.max_allowed_packet as usize;
        let session = &mut *self.session;
        let skipped = match &mut session.input.upload {
            _ if session.input.is_cut_short => Err(Refused),
            None => return true,
            Some(upload) => upload.skip(&session.input.inbox, limit),
        };
        let Ok(count) = skipped else {
            self.close_session();
            return false;
        };
        session.input.inbox.drain(..count);
        let is_complete = session.input.upload.as_deref().is_none_or(Upload::is_complete);
        if is_complete {
            session.input.upload = None;
        }
        is_complete
    }
}
