//! Takes replies to Weir's own statements on connections that no session holds.

use weir_protocol::error::ServerError;
use weir_protocol::ok::OkPacket;
use weir_protocol::response::BrokenReply;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::defaults::DefaultsAnswer;
use crate::pool::pools::Pools;
use crate::server::connection::{DiscardReason, Expected, Stage};
use crate::server::errors::is_wsrep_refusal;
use crate::server::verify::must_report;

impl Pools {
    /// An OK, on a connection of which it says something.
    pub(crate) fn own_statement_ok(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<(), BrokenReply> {
        let connection = &self.connections[key];
        match connection.replies.expected.front() {
            // Behind a reset that was refused all is the last session's, and nothing to be learned from.
            Some(Expected::Setup | Expected::Init) if connection.discard_reason.is_some() => {}
            Some(Expected::Setup) => self.take_defaults(ctx, key, ok),
            Some(Expected::Init) => self.take_init(ctx, key, ok),
            Some(Expected::Sync(Some(_))) if connection.traces.is_tracked => must_report(ok)?,
            _ => {}
        }
        Ok(())
    }

    /// A server refuses a statement of Weir's own, of which no session has to know.
    pub(crate) fn own_statement_failed(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        error: ServerError,
        text: &str,
    ) {
        let code = error.code;
        let connection = &mut self.connections[key];
        match connection.replies.expected.front_mut() {
            Some(Expected::Setup) => {
                let message = format!("session tracking: error {code}: {text}");
                self.set_up_failed(ctx, key, Some(code), &message);
            }
            Some(Expected::Init) => {
                self.set_up_failed(ctx, key, None, &format!("init_connect: error {code}: {text}"));
            }
            Some(
                Expected::Reset | Expected::Leave | Expected::Verify | Expected::Sync(_) | Expected::Carried,
            ) => {
                connection.discard_reason = Some(DiscardReason::SyncFailed);
            }
            // The role of before would be the next user's.
            Some(Expected::LeaveRole) => self.dial_instead(ctx, key),
            Some(Expected::Kill) => {
                let server = &self.servers[connection.server].server.endpoint;
                tracing::info!(server, code, text, "KILL was refused");
            }
            Some(Expected::Settle(_)) => {
                connection.settling.again = true;
                connection.settling.is_rejected |= is_wsrep_refusal(code, text.as_bytes());
            }
            Some(Expected::Fetch(fetch)) if fetch.gives_id => connection.known.insert_id = None,
            Some(Expected::FoundRows) => connection.known.found_rows = None,
            Some(Expected::InsertId) => connection.known.insert_id = None,
            _ => {}
        }
    }

    /// The reply of a connection is complete that nobody has.
    pub(crate) fn reply_complete(&mut self, ctx: &mut Context, key: ConnectionKey, expected: Expected) {
        match expected {
            Expected::Relay(_) => {
                let socket = self.connections[key].socket;
                ctx.out.pause(socket, false);
                self.connections[key].end_hurry(ctx);
                self.finish_abandoned(ctx, key);
            }
            Expected::Settle(_) => self.finish_abandoned(ctx, key),
            Expected::Defaults(variables) => match self.defaults_answered(ctx, key, &variables) {
                DefaultsAnswer::Known | DefaultsAnswer::Unknown => self.set_up_further(ctx, key),
                DefaultsAnswer::Gone => {}
            },
            Expected::Setup | Expected::Init => self.set_up_further(ctx, key),
            Expected::Sync(Some(state)) => {
                self.connections[key].state = state;
                self.go_on(ctx, key);
            }
            Expected::Moving => {
                self.connections[key].settling.bytes.clear();
                self.go_on(ctx, key);
            }
            Expected::Kill => self.kill_sent(ctx, key),
            // The login comes behind it.
            Expected::LeaveRole => {}
            Expected::Verify => self.verified(ctx, key),
            Expected::Tracks => {
                self.connections.proves_tracking(key);
                self.go_on(ctx, key);
            }
            _ => self.go_on(ctx, key),
        }
    }

    /// A part of a set-up is done.
    fn set_up_further(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        if connection.stage == Stage::Ready {
            return self.go_on(ctx, key);
        }
        if connection.replies.expected.is_empty() {
            let socket = connection.socket;
            self.now_ready(ctx, key, socket);
        }
    }

    /// A reply to a statement of Weir's own is in, on a connection that nobody has: it goes to the next.
    pub(crate) fn go_on(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        if connection.replies.expected.is_empty() && !self.servers[connection.server].idle.contains(&key) {
            self.offer(ctx, key);
        }
    }
}
