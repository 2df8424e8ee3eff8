//! COM_STMT_SEND_LONG_DATA: values of parameters that come ahead of the execution that uses them.
//!
//! The command is not answered, whatever becomes of it: errors appear at the execution. What comes is kept, and sent
//! in front of the execution to whichever connection runs it. What is too much to be kept goes to a connection as it
//! comes, and the session stays with that connection until the execution is over ([`Pins::LONG_DATA`]).

use weir_protocol::command::{StmtExecute, StmtLongData};
use weir_protocol::error::{self};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::pin::Pins;
use weir_session::prepared::LongData;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::pool::pools::Pools;
use crate::server::connections::Connections;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session::text::COMMAND_BYTES_KEPT;
use crate::session::upload::Upload;
use crate::statement::work::Work;

/// Long data that one session keeps in memory, of all its statements.
const LONG_DATA_BYTES_KEPT: usize = COMMAND_BYTES_KEPT;

impl Work<'_> {
    /// COM_STMT_SEND_LONG_DATA. True when it is done with.
    pub(crate) fn long_data(&mut self) -> bool {
        let session = &mut *self.session;
        let packet = &session.input.inbox[..session.input.command_bytes];
        let is_whole = session.input.upload.is_none();
        let Ok(command) = StmtLongData::parse(&packet[HEADER_LEN..]) else { return self.drop_command() };
        let Some(statement) = session.prepared.all.get_mut(&command.stmt_id) else {
            return self.drop_command();
        };
        session.execution.plan = ExecutionPlan::of_command(CommandKind::LongData);
        session.execution.text.statement_id = command.stmt_id;
        if command.param >= statement.params {
            let message = "Incorrect arguments to mysqld_stmt_send_long_data";
            self.session.long_data_refused(error::WRONG_ARGUMENTS, message);
            return self.drop_command();
        }
        let kept_bytes = session.prepared.long_data_bytes + packet.len();
        match &mut statement.long_data {
            LongData::Refused(..) => return self.drop_command(),
            kept @ LongData::None if is_whole && kept_bytes <= LONG_DATA_BYTES_KEPT => {
                *kept = LongData::Kept(packet.to_vec());
            }
            LongData::Kept(packets) if is_whole && kept_bytes <= LONG_DATA_BYTES_KEPT => {
                packets.extend_from_slice(packet);
            }
            LongData::None | LongData::Kept(_) | LongData::Sent => {
                session.execution.text.prepared = Some(statement.prepared.clone());
                // On the lease, wherever it is; without one where statements of any kind may run.
                session.execution.plan = session.execution.plan.reading(session.lease.is_some());
                return self.start();
            }
        }
        session.prepared.long_data_bytes = kept_bytes;
        self.command_done();
        true
    }

    /// A command that is not answered and has no effect is over.
    pub(crate) fn drop_command(&mut self) -> bool {
        self.session.execution.plan = ExecutionPlan::of_command(CommandKind::LongData);
        self.command_done();
        true
    }

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
        if let Some(lease) = session.lease {
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
        if let (Some(own), Some(lease)) = (own, session.lease) {
            self.connections[lease].close_on(ctx, own.id);
        }
        session.update_statement_pins();
    }
}

impl Connections {
    /// Whether so much of a session's long data waits for its server that the next command has to wait, too.
    pub(crate) fn must_send_first(&self, ctx: &mut Context, session: &Session) -> bool {
        let Some(lease) = session.lease.filter(|_| session.pins.pins().contains(Pins::LONG_DATA)) else {
            return false;
        };
        let connection = self[lease].socket;
        let is_behind = ctx.out.backlog_bytes(connection) > BACKLOG_HIGH_BYTES;
        if is_behind {
            ctx.out.notify_drained(connection);
        }
        is_behind
    }
}
