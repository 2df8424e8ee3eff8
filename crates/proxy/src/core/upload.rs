//! Commands too long to be kept: their first part is looked at and kept until a server takes them, the rest
//! flows through as it comes.

use weir_protocol::command::Command;
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};

use super::Core;
use super::command::COMMAND_BYTES_KEPT;
use super::model::{Expected, SessionKey, Upload};
use crate::outbox::BACKLOG_HIGH_BYTES;

impl Core {
    /// A long command begins. False while too little of it is there to tell what it is.
    pub(super) fn begin_upload(&mut self, key: SessionKey, header: Header) -> bool {
        let limit = self.snapshot.variables.max_allowed_packet as usize;
        let session = &mut self.sessions[key];
        if header.len > limit {
            let message = format!("Got a packet bigger than 'max_allowed_packet' bytes ({limit})");
            self.fail_session(key, error::NET_PACKET_TOO_LARGE, &message);
            return false;
        }
        let Some(code) = session.inbox.get(HEADER_LEN) else { return false };
        if !matches!(Command::parse(*code), Some(Command::Query | Command::StmtExecute)) {
            self.fail_session(key, error::NET_PACKET_TOO_LARGE, "Got a packet too long for its command");
            return false;
        }
        if session.inbox.len() < COMMAND_BYTES_KEPT {
            return false;
        }
        let here = session.inbox.len() - HEADER_LEN;
        let taken = here.min(header.len);
        session.command_bytes = HEADER_LEN + taken;
        session.upload = Some(Upload {
            packet_left: header.len - taken,
            continues: header.is_continued(),
            is_flowing: false,
            sequence: 0,
            total_bytes: header.len,
        });
        session.last_active_at = self.now;
        let socket = session.socket;
        self.out.pause(socket, true);
        self.dispatch(key)
    }

    /// The kept part of a long command is on its way: what has come meanwhile follows.
    pub(super) fn start_flow(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let Some(upload) = &mut session.upload else { return };
        upload.is_flowing = !upload.is_complete();
        // From here on nothing of the command is kept: it can't be sent again.
        session.work.is_read = false;
        let rest = session.inbox.split_off(session.command_bytes.min(session.inbox.len()));
        session.inbox = Vec::new();
        session.command_bytes = 0;
        let socket = session.socket;
        self.out.pause(socket, false);
        if !rest.is_empty() {
            self.flow(key, &rest);
        }
    }

    /// Bytes of a long command on their way from the client to the server.
    pub(super) fn flow(&mut self, key: SessionKey, bytes: &[u8]) {
        let limit = self.snapshot.variables.max_allowed_packet as usize;
        let session = &mut self.sessions[key];
        let Some(lease) = session.lease else { return };
        let Some(upload) = &mut session.upload else { return };
        // A header may come in pieces: it waits in the inbox.
        session.inbox.extend_from_slice(bytes);
        let mut at = 0;
        let mut too_long = false;
        loop {
            let part = upload.packet_left.min(session.inbox.len() - at);
            at += part;
            upload.packet_left -= part;
            if upload.packet_left > 0 || !upload.continues {
                break;
            }
            let Some(header) = Header::parse(&session.inbox[at..]) else { break };
            upload.sequence = upload.sequence.wrapping_add(1);
            upload.total_bytes += header.len;
            if header.seq != upload.sequence || upload.total_bytes > limit {
                too_long = true;
                break;
            }
            upload.packet_left = header.len;
            upload.continues = header.is_continued();
            at += HEADER_LEN;
        }
        if matches!(self.backends[lease].expected.front(), Some(Expected::Relay)) {
            self.backends[lease].reply.command_continued(upload.sequence);
        }
        let backend = self.backends[lease].socket;
        if let Some(buffer) = self.out.buffer(backend) {
            buffer.extend_from_slice(&session.inbox[..at]);
        }
        session.inbox.drain(..at);
        let is_complete = upload.is_complete();
        let socket = session.socket;
        if too_long {
            let message =
                format!("Got a packet bigger than 'max_allowed_packet' bytes ({limit}), or out of order");
            return self.fail_session(key, error::NET_PACKET_TOO_LARGE, &message);
        }
        if is_complete {
            // What follows is the next command: it stays in the inbox.
            upload.is_flowing = false;
            return;
        }
        if self.out.backlog_bytes(backend) > BACKLOG_HIGH_BYTES {
            self.out.pause(socket, true);
            self.out.notify_drained(backend);
        }
    }
}
