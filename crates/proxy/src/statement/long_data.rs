//! Sends long data of a session's statements to the server.

use weir_protocol::command::StmtExecute;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::pin::Pins;
use weir_session::prepared::LongData;

use crate::keys::ConnectionKey;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::session::phase::Phase;
use crate::session::upload::Upload;
use crate::work::Work;

impl Work<'_> {
    /// Sends the session's long data on a connection where its statement is prepared: what was kept, and the command
    /// that is too much.
    pub(crate) fn send_long_data(&mut self, key: ConnectionKey) {
        let session = &mut *self.session;
        let connection = &mut self.pools.connections[key];
        let (Some(statement), Some(buffer)) = (
            session.prepared.all.get_mut(&session.execution.text.statement_id),
            self.ctx.out.buffer(connection.socket),
        ) else {
            return;
        };
        if statement.own.is_none() {
            statement.own = connection.statements.take(&statement.prepared);
        }
        let Some(own) = &statement.own else { return };
        session.prepared.long_data_bytes -= statement.long_data_bytes();
        if let LongData::Kept(packets) = std::mem::replace(&mut statement.long_data, LongData::Sent) {
            put_packets(&packets, own.id, buffer);
        }
        put_packets(&session.input.inbox[..session.input.command_bytes], own.id, buffer);
        session.pins.insert(Pins::LONG_DATA);
        session.execution.tries.is_sent = true;
        if session.input.upload.is_none() {
            return self.long_data_sent();
        }
        self.start_flow();
        // What follows may have ended it.
        let is_over = matches!(self.session.phase, Phase::Closing);
        if !is_over && self.session.input.upload.as_deref().is_some_and(Upload::is_complete) {
            self.long_data_sent();
        }
    }

    /// All of a COM_STMT_SEND_LONG_DATA is on its way. Nothing answers it, so the server's pace is kept here.
    pub(crate) fn long_data_sent(&mut self) {
        self.command_done();
        let session = &*self.session;
        let socket = session.socket;
        if let Some(lease) = session.lease() {
            let connection = self.pools.connections[lease].socket;
            if self.ctx.out.backlog_bytes(connection) > BACKLOG_HIGH_BYTES {
                self.ctx.out.pause(socket, true);
                self.ctx.out.notify_drained(connection);
            }
        }
        self.ctx.runnable.push_back((self.session.key, socket));
    }
}

/// Appends packets of COM_STMT_SEND_LONG_DATA with the server's id of the statement. The last one may be there in
/// part.
pub(crate) fn put_packets(packets: &[u8], id: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(packets);
    let mut rest = &mut out[start..];
    while let Some(header) = Header::parse(rest) {
        // All of these commands begin in the same way.
        if let Some(place) =
            rest.get_mut(HEADER_LEN..).and_then(|payload| payload.get_mut(StmtExecute::STMT_ID))
        {
            place.copy_from_slice(&id.to_le_bytes());
        }
        rest = rest.get_mut(header.packet_len()..).unwrap_or_default();
    }
}
