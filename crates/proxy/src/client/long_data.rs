//! Takes COM_STMT_SEND_LONG_DATA: values of parameters that come ahead of the execution that uses them.
//!
//! The command is not answered, whatever becomes of it: errors appear at the execution. What comes is kept, and sent
//! in front of the execution to whichever connection runs it. What is too much to be kept goes to a connection as it
//! comes, and the session stays with that connection until the execution is over ([`Pins::LONG_DATA`]).

use weir_protocol::command::StmtLongData;
use weir_protocol::error;
use weir_protocol::frame::HEADER_LEN;
use weir_session::pin::Pins;
use weir_session::prepared::LongData;

use crate::context::Context;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::server::connections::Connections;
use crate::session::Session;
use crate::session::text::COMMAND_BYTES_KEPT;
use crate::work::Work;

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
                session.execution.plan = session.execution.plan.reading(session.lease().is_some());
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
}

impl Connections {
    /// Whether so much of a session's long data waits for its server that the next command has to wait, too.
    pub(crate) fn must_send_first(&self, ctx: &mut Context, session: &Session) -> bool {
        let Some(lease) = session.lease().filter(|_| session.pins.pins().contains(Pins::LONG_DATA)) else {
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
