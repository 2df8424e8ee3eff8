//! Tells a client how its login has ended.

use weir_protocol::capability::Capabilities;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};
use weir_session::login::Refusal;

use crate::context::Context;
use crate::pool::relogin::is_about_user;
use crate::session::Session;

/// What servers say of a schema that there can't be or that is not there: without the right to it, unknown, too long
/// (MySQL), a wrong name, or no characters (MariaDB).
const NO_SUCH_SCHEMA: [u16; 5] = [error::DB_ACCESS_DENIED.code, error::BAD_DB.code, 1059, 1102, 1300];
/// No database selected.
const NO_SCHEMA: u16 = 1046;

impl Session {
    /// The OK at the end of a login.
    pub(crate) fn login_done(&mut self, ctx: &mut Context) {
        self.audit_login(ctx);
        let schema = self.tracked.state.schema();
        let mut tracked = Vec::new();
        if !schema.is_empty() {
            weir_protocol::ok::SessionTrack::Schema(schema).write(&mut tracked);
        }
        let mut ok = OkPacket::new(OK_HEADER, self.status());
        if self.capabilities.contains(Capabilities::SESSION_TRACK) {
            ok.session_state = &tracked;
        }
        let mut sequence = self.execution.text.login_sequence;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ok.write(self.capabilities, out));
        }
    }

    /// An error in place of the server's word on the schema, or that word itself. A login that can't be checked is
    /// good: if no server can be had, its first statement will say why.
    pub(crate) fn schema_unchecked(&mut self, ctx: &mut Context, error: ServerError, message: &str) {
        if error.code == NO_SCHEMA && self.execution.tries.is_sent {
            // MySQL (9.7) reads nothing but characters that it can't, and leaves the client without a schema.
            let state = self.tracked.state.with_schema(b"");
            let state = ctx.interner.intern(state);
            self.set_state(ctx, state);
            return self.login_done(ctx);
        }
        if !NO_SUCH_SCHEMA.contains(&error.code) && !is_about_user(error.code) {
            return self.login_done(ctx);
        }
        self.input.close_when_done = true;
        self.put_login_error(ctx, error, message);
    }

    /// The error at the end of a login whose password was right.
    pub(crate) fn put_login_error(&self, ctx: &mut Context, error: ServerError, message: &str) {
        let mut sequence = self.execution.text.login_sequence;
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            frame::packet(buffer, &mut sequence, |out| ErrPacket::new(error, message.as_bytes()).write(out));
        }
        self.note_refusal(ctx, error, message, Refusal::Server);
    }
}
