//! Sessions of listeners with mode primary or replicas, and of users with fast_forward: each keeps one connection, for
//! users who separate reads themselves. Nothing but the server's own place in its hostgroup, or its end, takes it away, and then the session
//! goes on at another one if it has left nothing behind that lives there. Sessions that have got a connection in a
//! hostgroup with multiplex = 0 keep it in the same way, as long as their statements belong there.

use weir_config::ListenerMode;

use super::Core;
use super::model::{BackendKey, ServerIndex, Session, SessionKey, WorkKind};

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

    /// Whether a session that keeps a connection without a pin should go on elsewhere: its server has left the
    /// hostgroup, or the statement does not belong there.
    pub(super) fn should_move(&self, key: SessionKey, lease: BackendKey) -> bool {
        let session = &self.sessions[key];
        if !session.pins.is_empty() {
            return false;
        }
        if session.is_bound() {
            return !self.is_member(lease, self.bound_hostgroup(key));
        }
        let Some(hostgroup) = session.stays_in else { return false };
        let work = &session.work;
        let is_sent_away = work.decision.hostgroup.is_some_and(|wanted| !self.is_member(lease, wanted));
        let is_write_on_reader = session.is_pinned_to_reader && !work.is_read && work.kind != WorkKind::Reset;
        !self.is_member(lease, hostgroup) || is_sent_away || is_write_on_reader
    }

    /// Whether a session keeps its lease between statements.
    pub(super) fn stays(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let is_kept = |hostgroup| self.groups.get(&hostgroup).is_some_and(|group| group.keeps_connections);
        !session.pins.is_empty() || session.is_bound() || session.stays_in.is_some_and(is_kept)
    }
}
