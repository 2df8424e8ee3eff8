//! A session at work.

use crate::outbox::SocketId;
use crate::pool::pools::Pools;
use crate::session::session::Session;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::SessionKey;

/// A session at work, with what its work may touch: the connections of its worker, and what all parts share. There is no
/// way from here to another session. What becomes of others is left with [`Pools`], and what needs all sessions with
/// the worker, as turns: see [`crate::pool::turns`].
pub(crate) struct Work<'a> {
    pub ctx: &'a mut Context,
    pub pools: &'a mut Pools,
    pub session: &'a mut Session,
}

impl Worker {
    /// This session at work.
    pub(crate) fn work(&mut self, key: SessionKey) -> Work<'_> {
        self.hear();
        Work { ctx: &mut self.ctx, pools: &mut self.pools, session: &mut self.sessions[key] }
    }

    /// The same, if the key still means the session with this socket.
    pub(crate) fn work_of(&mut self, key: SessionKey, socket: SocketId) -> Option<Work<'_>> {
        self.sessions.is(key, socket).then(|| self.work(key))
    }
}

impl Work<'_> {
    /// What has become of the session's diagnostics with connections that it or others have left meanwhile.
    pub(crate) fn hear(&mut self) {
        for _ in 0..self.pools.news.len() {
            let Some(news) = self.pools.news.pop_front() else { break };
            if news.socket() == self.session.socket {
                self.session.hear(self.ctx, news);
            } else {
                self.pools.news.push_back(news);
            }
        }
    }
}
