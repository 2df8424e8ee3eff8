//! Keeps one connection for each session of a listener with mode primary or replicas, and of users with fast_forward,
//! who separate reads themselves. Only the server's place in its hostgroup, or its end, takes the connection away, and
//! then the session goes on at another one if it has left nothing behind that lives there. Sessions that have got a
//! connection in a hostgroup with multiplex = 0 keep it in the same way, as long as their statements belong there.

use weir_config::ListenerMode;

use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;

impl Pools {
    /// The hostgroup whose servers a bound session may have. Replicas of a cluster without a reader hostgroup are
    /// the servers of its only one. Where it has none, one that may write serves it.
    pub(crate) fn bound_hostgroup(&self, session: &Session) -> u32 {
        let home = session.execution.hostgroup;
        if session.listener.mode != ListenerMode::Replicas || session.listener.hostgroup.is_some() {
            return home;
        }
        self.groups.get(&home).and_then(|group| group.reader_hostgroup).unwrap_or(home)
    }

    /// Whether a session that keeps a connection without a pin should go on elsewhere: its server has left the
    /// hostgroup, or the statement does not belong there.
    pub(crate) fn should_move(&self, session: &Session, lease: ConnectionKey) -> bool {
        if !session.pins.is_empty() {
            return false;
        }
        if session.is_bound() {
            return !self.is_member(lease, self.bound_hostgroup(session));
        }
        let Some(hostgroup) = session.stay.stays_in else { return false };
        let execution = &session.execution;
        let is_sent_away =
            execution.plan.decision().hostgroup.is_some_and(|wanted| !self.is_member(lease, wanted));
        let is_write_on_reader = session.is_pinned_to_reader()
            && !execution.plan.is_read()
            && execution.plan.kind() != CommandKind::Reset;
        !self.is_member(lease, hostgroup) || is_sent_away || is_write_on_reader
    }

    /// Whether a session keeps its lease between statements.
    pub(crate) fn stays(&self, session: &Session) -> bool {
        let is_kept = |hostgroup| self.groups.get(&hostgroup).is_some_and(|group| group.keeps_connections);
        !session.pins.is_empty() || session.is_bound() || session.stay.stays_in.is_some_and(is_kept)
    }
}
