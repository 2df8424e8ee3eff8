//! Lends a session at work what it needs, and ends its command, its lease and the session itself.

use crate::context::Context;
use crate::pool::pools::Pools;
use crate::session::Session;

pub(crate) mod ending;
pub(crate) mod lease;
pub(crate) mod logging;
pub(crate) mod moving;

/// A session at work, with what its work may touch: the connections of its worker, and what all parts share. There is no
/// way from here to another session. What becomes of others is left with [`Pools`], and what needs all sessions with
/// the worker, as turns: see [`crate::pool::turns`].
pub(crate) struct Work<'a> {
    pub ctx: &'a mut Context,
    pub pools: &'a mut Pools,
    pub session: &'a mut Session,
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
