//! Sessions of listeners with mode primary or replicas, and of users with fast_forward: each keeps one connection, for
//! users who separate reads themselves. Nothing but the server's own place in its hostgroup, or its end, takes it away, and then the session
//! goes on at another one if it has left nothing behind that lives there.

use weir_config::ListenerMode;

use super::Core;
use super::model::{BackendKey, ServerIndex, Session, SessionKey};

impl Session {
    /// Whether it keeps its connection between statements.
    pub(super) fn is_bound(&self) -> bool {
        self.listener.mode != ListenerMode::Split
            || self.account.as_ref().is_some_and(|account| account.user.fast_forward)
    }
}

impl Core {
    /// The hostgroup whose servers a bound session may have. Replicas of a cluster without a reader hostgroup are
    /// the servers of its only one.
    fn bound_hostgroup(&self, key: SessionKey) -> u32 {
        let session = &self.sessions[key];
        let home = session.work.hostgroup;
        if session.listener.mode != ListenerMode::Replicas || session.listener.hostgroup.is_some() {
            return home;
        }
        self.groups.get(&home).and_then(|group| group.reader_hostgroup).unwrap_or(home)
    }

    /// A server for a bound session: one of its hostgroup, or where that has none, one that may write.
    pub(super) fn pick_bound(&mut self, key: SessionKey) -> Option<ServerIndex> {
        let (bound, home) = (self.bound_hostgroup(key), self.sessions[key].work.hostgroup);
        [false, true].into_iter().find_map(|last_resort| {
            self.pick(bound, key, last_resort).or_else(|| self.pick(home, key, last_resort))
        })
    }

    /// Whether a bound session should go on elsewhere: its server has left the hostgroup, and nothing of the session
    /// lives there.
    pub(super) fn should_move(&self, key: SessionKey, lease: BackendKey) -> bool {
        let session = &self.sessions[key];
        if !session.is_bound() || !session.pins.is_empty() {
            return false;
        }
        let server = self.backends[lease].server;
        let serves = |hostgroup: u32| {
            let group = self.groups.get(&hostgroup);
            group.is_some_and(|group| group.members.iter().any(|member| member.server == server))
        };
        !serves(self.bound_hostgroup(key))
    }
}
