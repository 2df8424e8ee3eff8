//! Relays LOAD DATA LOCAL: the server asks for a file, and the client's packets go to it as they come.
//!
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_local_infile_request.html>)
//! The file is as many packets as the client likes, and an empty one is its end, also where the client has no file.

use weir_protocol::error;
use weir_protocol::response::BrokenReply;

use crate::keys::ConnectionKey;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::session::Session;
use crate::session::infile::Infile;
use crate::work::Work;

impl Work<'_> {
    /// The server asks for a file. It gets one only if the client's own statement names it: a server that asks for
    /// another is after the client's files.
    pub(crate) fn file_wanted(&mut self, key: ConnectionKey, bytes: &[u8]) -> Result<(), BrokenReply> {
        let &[_, _, _, sequence, 0xFB, ref name @ ..] = bytes else { return Err(BrokenReply::Malformed) };
        if !self.session.names_file(name) {
            let server = &self.pools.servers[self.pools.connections[key].server].server.endpoint;
            let session = self.session.id;
            tracing::error!(server, session, "server asks for a file that the statement does not name");
            return Err(BrokenReply::UnexpectedPacket(0xFB));
        }
        let session = &mut *self.session;
        session.execution.reply.is_answering = true;
        let socket = session.socket;
        self.ctx.out.send(socket, bytes);
        let server_sequence = self.pools.connections[key].replies.reply.server_sequence();
        session.input.infile = Some(Box::new(Infile::new(sequence.wrapping_add(1), server_sequence)));
        // A client that does not wait for the question has sent the beginning already.
        let mut ahead =
            session.input.inbox.split_off(session.input.command_bytes.min(session.input.inbox.len()));
        self.ctx.out.pause(socket, false);
        if !ahead.is_empty() {
            self.send_file(&mut ahead);
        }
        Ok(())
    }

    /// Bytes of a file on their way from the client to the server.
    pub(crate) fn send_file(&mut self, bytes: &mut [u8]) {
        let Some(lease) = self.session.lease() else { return };
        if !self.may_flow(lease) {
            return;
        }
        let session = &mut *self.session;
        let Some(infile) = &mut session.input.infile else { return };
        let Ok((used, is_complete)) = infile.pass(bytes) else {
            return self.fail_session(error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order");
        };
        let (file, rest) = bytes.split_at(used);
        let connection = self.pools.connections[lease].socket;
        self.ctx.out.send(connection, file);
        if is_complete {
            self.pools.connections[lease].replies.reply.local_infile_sent(infile.sent_sequence());
            session.input.infile = None;
            // What follows is the next command.
            session.input.inbox.extend_from_slice(rest);
        } else if self.ctx.out.backlog_bytes(connection) > BACKLOG_HIGH_BYTES {
            self.ctx.out.pause(session.socket, true);
            self.ctx.out.notify_drained(connection);
        }
    }
}

impl Session {
    /// Whether the session's statement is a LOAD DATA LOCAL or LOAD XML LOCAL of this file.
    fn names_file(&self, name: &[u8]) -> bool {
        let text = match (&self.execution.text.prepared, &self.execution.text.rewritten) {
            (Some(prepared), _) => prepared.text(),
            (None, Some(rewritten)) => rewritten,
            (None, None) => self.command_text(),
        };
        weir_sql::names_local_file(text, self.tracked.dialect, name)
    }
}
