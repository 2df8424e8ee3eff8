//! Slows servers down for clients that read more slowly than they send.

use crate::context::Context;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// Everything queued for a client has been sent: its server may go on, and so may its next command.
    pub(crate) fn client_drained(&mut self) {
        let session = &*self.session;
        if matches!(session.phase, Phase::Closing) {
            return self.forget();
        }
        if let Some(lease) = session.lease() {
            let socket = self.pools.connections[lease].socket;
            self.ctx.out.pause(socket, false);
        }
        if matches!(session.phase, Phase::Idle) {
            let socket = session.socket;
            self.ctx.out.pause(socket, false);
            self.ctx.runnable.push_back((self.session.key, socket));
        }
    }
}

impl Session {
    /// Whether a client has so much to take that nothing more is done for it until it has.
    pub(crate) fn must_read_first(&self, ctx: &mut Context) -> bool {
        let socket = self.socket;
        let is_behind = ctx.out.backlog_bytes(socket) > BACKLOG_HIGH_BYTES;
        if is_behind {
            ctx.out.notify_drained(socket);
        }
        is_behind
    }
}

impl Work<'_> {
    /// Everything queued for its server has been sent: the client may go on sending.
    pub(crate) fn server_drained(&mut self) {
        let (key, socket) = (self.session.key, self.session.socket);
        self.ctx.out.pause(socket, false);
        if matches!(self.session.phase, Phase::Idle) {
            self.ctx.runnable.push_back((key, socket));
        }
    }
}
