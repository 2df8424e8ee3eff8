//! Writes the two EOF packets of a result, for clients without DEPRECATE_EOF.
//!
//! Servers are always spoken to with it: only so does the end of a result report what the statement has changed. (In an
//! EOF MySQL 9.7 does not even say that something has changed, and the next OK reports it, which may be another session's;
//! MariaDB 10.11 says that, but not what.) So the flags of the EOF behind the column definitions, by which clients decide
//! how to go on, are known when the result is over. Till then it stands there with the flags that it will probably have,
//! and is kept back with the rows behind it as long as they are few; then it gets those of the end. Seen on both servers: they
//! are the same but for MySQL's OUT parameters, and for the count of warnings: servers give there those from before the first
//! row. Which these are nobody can tell at the end, so all are counted: clients that ask before they read the rows miss none.

use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{EofPacket, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_sql::Kind;

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::execution::{Ending, OpenEof, Results};

/// So much of a result waits for its end where only flags of little meaning are in doubt (indexes not used). Servers gather
/// as much before they send.
const SURE_BYTES: usize = 16 << 10;
/// And so much where the text does not tell whether another result follows, or these are OUT parameters.
const UNSURE_BYTES: usize = 192 << 10;
/// Where the count of warnings stands in the packet, and the flags behind it.
const WARNINGS_AT: usize = HEADER_LEN + 1;
const STATUS_AT: usize = WARNINGS_AT + 2;

impl OpenEof {
    fn at(self) -> usize {
        self.at as usize
    }

    /// When more than this has come behind it, it goes as it is.
    fn bytes_max(self) -> usize {
        if self.is_sure { SURE_BYTES } else { UNSURE_BYTES }
    }
}

/// Whether a statement of this kind is surely answered by one result.
fn gives_one_result(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Call
            | Kind::Compound
            | Kind::Execute
            | Kind::ExecuteImmediate
            | Kind::SetStatement
            | Kind::Empty
            | Kind::Other
    )
}

impl Session {
    /// Lets an EOF go as it is, when too much has come behind it.
    pub(crate) fn limit_open_eof(&mut self, ctx: &mut Context) {
        if let Some(open) = self.execution.reply.open_eof
            && ctx.out.held_bytes(self.socket) > open.at() + open.bytes_max()
        {
            self.close_eof(ctx, None);
        }
    }

    /// Lets an EOF go, with these flags and warnings if they are known.
    pub(crate) fn close_eof(&mut self, ctx: &mut Context, known: Option<EofPacket>) {
        let Some(open) = self.execution.reply.open_eof.take() else { return };
        let place = open.at() + WARNINGS_AT..open.at() + STATUS_AT + 2;
        if let (Some(known), Some(bytes)) = (known, ctx.out.held(self.socket).get_mut(place))
            && let Some((warnings, status)) = bytes.split_first_chunk_mut::<2>()
        {
            *warnings = known.warnings.to_le_bytes();
            status.copy_from_slice(&known.status.bits().to_le_bytes());
        }
        if self.execution.reply.buffered_bytes_max == 0 {
            ctx.out.release(self.socket);
        }
    }
}

impl Session {
    /// The EOF between definitions and rows, where it was not clear yet whether rows would follow.
    pub(crate) fn put_owed_eof(&mut self, ctx: &mut Context) {
        if let Some(sequence) = self.execution.reply.owed_eof.take() {
            self.put_open_eof(ctx, sequence);
        }
    }

    fn put_open_eof(&mut self, ctx: &mut Context, mut sequence: u8) {
        let (follows, is_sure) = self.another_result_follows();
        let mut status = self.status();
        status.set(StatusFlags::MORE_RESULTS_EXISTS, follows);
        ctx.out.hold(self.socket);
        let at = u32::try_from(ctx.out.held_bytes(self.socket)).unwrap_or(u32::MAX);
        self.execution.reply.open_eof = Some(OpenEof { at, is_sure });
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            let eof = EofPacket { warnings: 0, status };
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }

    /// Whether another result follows the one whose columns have come, and whether that and the other flags that matter
    /// are certain.
    fn another_result_follows(&mut self) -> (bool, bool) {
        if self.input.upload.is_some() {
            return (false, false);
        }
        if self.execution.plan.kind() == CommandKind::Query && self.runs_several() {
            let results = self.results_of_text();
            let so_far = self.execution.reply.results;
            return (so_far + 1 < results.count, so_far < results.sure);
        }
        let execution = &self.execution;
        match execution.plan.statement().kind {
            // Behind the results of a CALL comes its OK. One of them may be that of the OUT parameters.
            Kind::Call | Kind::Compound => (true, execution.plan.kind() == CommandKind::Query),
            kind => (false, gives_one_result(kind)),
        }
    }

    /// How many results a text of several statements has; it is looked through once for all of them.
    fn results_of_text(&mut self) -> Results {
        if let Some(known) = self.execution.reply.results_of_text {
            return known;
        }
        let kinds = weir_sql::kinds(self.command_text(), self.tracked.dialect);
        let sure = kinds.iter().take_while(|kind| gives_one_result(**kind)).count();
        let results = Results { count: kinds.len() as u32, sure: sure as u32 };
        self.execution.reply.results_of_text = Some(results);
        results
    }
}

impl ServerConnection {
    /// All definitions of a result, or of a prepared statement's parameters or columns, have passed.
    pub(crate) fn columns_end(&mut self, ctx: &mut Context, session: &mut Session) {
        if session.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            return;
        }
        let reply = &mut self.replies.reply;
        let mut sequence = reply.next_sequence();
        reply.shift_sequence();
        if session.execution.text.wants_cursor {
            // Where the server has opened a cursor, the end of the definitions is the end of the reply.
            session.execution.reply.owed_eof = Some(sequence);
            return;
        }
        if session.execution.plan.kind() != CommandKind::Prepare {
            return session.put_open_eof(ctx, sequence);
        }
        let warnings = match session.execution.ending {
            Ending::Ok { warnings, .. } => warnings,
            _ => 0,
        };
        let eof = EofPacket { warnings, status: session.status() };
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }

    /// The same of a reply that the client does not get: it is to be as the one that it got, whose packets were numbered with
    /// the EOF that Weir put in.
    pub(crate) fn columns_end_unseen(&mut self, session: &Session) {
        if !session.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.replies.reply.shift_sequence();
        }
    }

    /// The end of a result: the EOF in front of its rows can be set right, and another one ends them.
    pub(crate) fn result_end(
        &self,
        ctx: &mut Context,
        session: &mut Session,
        ok: &OkPacket<'_>,
        mut sequence: u8,
    ) {
        let mut status = ok.status;
        status.remove(StatusFlags::SESSION_STATE_CHANGED);
        session.close_eof(ctx, Some(EofPacket { warnings: ok.warnings, status }));
        if status.contains(StatusFlags::PS_OUT_PARAMS) && !self.access.greeted.is_mariadb {
            // As MySQL (9.7) ends OUT parameters, although the CALL's OK follows: clients go by the EOF before.
            status.remove(StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS_EXISTS);
        }
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            let eof = EofPacket { warnings: ok.warnings, status };
            frame::packet(buffer, &mut sequence, |out| eof.write(out));
        }
    }
}
