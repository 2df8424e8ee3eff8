//! Takes the replies to Weir's questions for a `SET session_track_...`: see [`crate::answers::session_track`].

use weir_protocol::error::ServerError;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::response::{BrokenReply, Control, Step};
use weir_protocol::resultset::TextRow;
use weir_session::login::BACKEND_CAPABILITIES;

use crate::answers::own_replies::Outcome;
use crate::answers::session_track::{NAMES_MAX, packets};
use crate::context::Context;
use crate::diagnostics::conditions::word;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::work::Work;

/// Answers to Weir's questions beyond this are not kept: no list is so long.
const ANSWER_BYTES_MAX: usize = 256 << 10;

impl Work<'_> {
    /// An answer is complete. True if the command is over.
    pub(crate) fn tracked(&mut self, key: ConnectionKey) -> bool {
        self.session.apply_effects(self.pools.connections[key].access.greeted.is_mariadb);
        // It was a query, which says nothing of the session's own.
        self.pools.connections[key].known.found_rows = None;
        (self.pools.connections[key].known.row_count, self.pools.connections[key].known.has_conditions) =
            (None, true);
        let capabilities = BACKEND_CAPABILITIES | self.pools.connections[key].capabilities;
        let encoding = self.pools.connections[key].results_on();
        let session = &mut *self.session;
        let Some(tracking) = &mut session.execution.tracking else { return true };
        let answer = std::mem::take(&mut tracking.answer);
        match &tracking.asked {
            None => tracking.take_values(&answer, capabilities, encoding),
            Some(asked) => {
                for row in packets(&answer).skip(tracking.columns) {
                    let name = TextRow::new(row).next().and_then(Result::ok).flatten().unwrap_or_default();
                    let name = String::from_utf8_lossy(&word(name)).to_ascii_lowercase();
                    if asked.contains(&name) && self.ctx.learnt.variable_names.len() < NAMES_MAX {
                        self.ctx.learnt.variable_names.insert(name.into());
                    }
                }
            }
        }
        match self.pools.track_on(self.ctx, self.session) {
            Outcome::Run => {
                self.session.phase = Phase::Running;
                self.prepare_connection(key);
                false
            }
            Outcome::Answered | Outcome::Asked => true,
        }
    }
}

impl Pools {
    /// A piece of the answer to one of the questions: nothing of it but an error is for the client.
    pub(crate) fn take_track_reply(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        step: Step,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let control = match step {
            Step::Pass(_) => {
                if let Some(tracking) = &mut session.execution.tracking
                    && tracking.answer.len() + bytes.len() <= ANSWER_BYTES_MAX
                {
                    tracking.answer.extend_from_slice(bytes);
                }
                return Ok(());
            }
            Step::Control(control, _) => control,
            Step::ColumnsEnd | Step::Done | Step::NeedMore => return Ok(()),
        };
        let payload = &bytes[HEADER_LEN..];
        match control {
            Control::Err => {
                if let Some(refusal) = self.refusal(ctx, session, key, payload) {
                    session.execution.reply.refusal = Some(refusal);
                    return Ok(());
                }
                self.connections[key].track_refused(ctx, session, payload)
            }
            Control::ColumnCount => {
                if let Some(tracking) = &mut session.execution.tracking {
                    tracking.columns = payload.first().copied().map_or(0, usize::from);
                    tracking.answer.clear();
                }
                Ok(())
            }
            Control::Ok | Control::ResultEnd => {
                let ok =
                    OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
                self.take_tracked(ctx, session, key, &ok)?;
                session.take_status(ok.status, ctx.now);
                session.execution.ending = Ending::Ok {
                    affected_rows: 0,
                    insert_id: 0,
                    warnings: 0,
                    has_rows: false,
                    has_info: false,
                };
                Ok(())
            }
            Control::PrepareOk | Control::LocalInfile => Err(BrokenReply::UnexpectedPacket(0xFB)),
        }
    }
}

impl ServerConnection {
    /// The server can't evaluate it. Its packet would have a sequence id that the client does not expect.
    fn track_refused(
        &self,
        ctx: &mut Context,
        session: &mut Session,
        payload: &[u8],
    ) -> Result<(), BrokenReply> {
        let err = ErrPacket::parse(payload).map_err(|_| BrokenReply::Malformed)?;
        let sqlstate = err.sqlstate.unwrap_or(*b"HY000");
        session.execution.ending = Ending::Err(err.code);
        session.diagnostics.last_error = Some(ServerError { code: err.code, sqlstate });
        if let Some(buffer) = ctx.out.buffer(session.socket) {
            frame::packet(buffer, &mut 1, |out| err.write(out));
        }
        self.count_error(ctx, session, err.code, err.message);
        Ok(())
    }
}
