//! Closes sessions whose clients have been silent for too long.

use weir_protocol::error::ServerError;
use weir_protocol::frame;
use weir_protocol::ok::ErrPacket;

use crate::keys::Nanos;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session::tracked::{SECOND_NS, WATCHED_UP_TO_S};
use crate::work::Work;
use crate::worker::Worker;

/// What MySQL says before it closes the connection (seen on 9.7). MariaDB says nothing (10.11).
const DISCONNECTED: ServerError = ServerError { code: 4031, sqlstate: *b"HY000" };
const DISCONNECTED_TEXT: &[u8] =
    b"The client was disconnected by the server because of inactivity. See wait_timeout and \
    interactive_timeout for configuring this behavior.";

impl Session {
    /// When it has been silent for too long, if nothing comes.
    fn silent_at(&self, limit: Nanos) -> Option<Nanos> {
        // A COM_CHANGE_USER has no other time limit.
        let is_waited_for = matches!(self.phase, Phase::Idle)
            || (matches!(self.phase, Phase::Login(_)) && self.identity != usize::MAX);
        let limit = self.times.own_wait().map_or(limit, |own| own.min(limit));
        is_waited_for.then(|| self.times.last_active_at.saturating_add(limit))
    }
}

impl Worker {
    /// All of them, every few seconds.
    pub(crate) fn close_silent_sessions(&mut self) {
        let limit = self.ctx.snapshot.variables.wait_timeout.as_nanos() as Nanos;
        let is_silent = |session: &Session| session.silent_at(limit).is_some_and(|at| at < self.ctx.now);
        for key in self.sessions.keys_of(is_silent) {
            self.work(key).close_silent();
        }
    }
}

impl Work<'_> {
    /// A session with a short `wait_timeout` may have been silent for so long.
    pub(crate) fn look_at_silent(&mut self) {
        let session = &*self.session;
        if !(1..=WATCHED_UP_TO_S).contains(&session.times.own_wait_s) {
            return;
        }
        let own = session.times.own_wait_s * SECOND_NS;
        match session.silent_at(Nanos::MAX) {
            Some(at) if at <= self.ctx.now => self.close_silent(),
            at => self.ctx.timers.wait(session.key, session.socket, at.unwrap_or(self.ctx.now + own)),
        }
    }

    fn close_silent(&mut self) {
        let session = &*self.session;
        tracing::info!(
            session = session.id,
            program = session.program(),
            "session closed: silent longer than wait_timeout"
        );
        if !self.pools.speaks_mariadb(self.ctx, self.session)
            && matches!(session.phase, Phase::Idle)
            && let Some(buffer) = self.ctx.out.buffer(session.socket)
        {
            frame::packet(buffer, &mut 0, |out| ErrPacket::new(DISCONNECTED, DISCONNECTED_TEXT).write(out));
        }
        self.close_session();
    }
}
