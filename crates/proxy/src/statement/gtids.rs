//! Lets a statement wait for a server to have executed the transaction that its comment names: `min_gtid`.

use crate::keys::ConnectionKey;
use crate::plan::requirements::Requirements;
use crate::pool::gtids::READERS_WAIT_NS;
use crate::session::phase::Phase;
use crate::statement::waiting::HOSTGROUP_UNREACHABLE;
use crate::work::Work;

impl Work<'_> {
    /// Whether a statement that a reader may have waits a moment because no reader has its transaction yet.
    pub(crate) fn waits_for_gtid_at_readers(&mut self, wanted: &Requirements, readers: Option<u32>) -> bool {
        let Some(readers) = readers.filter(|_| wanted.min_gtid().is_some()) else { return false };
        let Phase::Waiting(wait) = &self.session.phase else { return false };
        let until = wait.since + READERS_WAIT_NS;
        if until <= self.ctx.now || !self.pools.may_have_gtid_soon(self.ctx.now, wanted, readers) {
            return false;
        }
        let Some(waiter) = self.session.waiter() else { return false };
        self.pools.want_gtid(self.ctx.worker, wanted, [Some(readers), Some(wanted.hostgroup())]);
        self.pools.parked.push_back(waiter);
        self.ctx.timers.unpark(until);
        true
    }

    /// Whether a statement that has to run on its session's own lease waits until that server has its transaction, or is
    /// refused because it does not get it in time.
    pub(crate) fn waits_for_gtid_on_lease(&mut self, lease: ConnectionKey, wanted: &Requirements) -> bool {
        let connection = &self.pools.connections[lease];
        let pool = &self.pools.servers[connection.server];
        let Some(why) = pool.why_no_gtid(wanted) else { return false };
        let hostgroup = connection.hostgroup;
        if wanted.waits_until() <= self.ctx.now {
            self.session.phase = Phase::Running;
            let message = format!("{why}, and the session is held there (consistency_timeout_ms)");
            self.answer_error(HOSTGROUP_UNREACHABLE, &message);
            return true;
        }
        if !matches!(self.session.phase, Phase::Waiting(_)) {
            self.session.phase = Phase::waiting(self.ctx.now);
        }
        let Some(waiter) = self.session.waiter() else { return false };
        if let Phase::Waiting(wait) = &mut self.session.phase {
            wait.awaits_check_since.get_or_insert(self.ctx.now);
        }
        self.pools.want_gtid(self.ctx.worker, wanted, [Some(hostgroup), None]);
        self.pools.parked.push_back(waiter);
        self.ctx.timers.unpark(self.session.waits_until(self.pools).min(self.ctx.now + READERS_WAIT_NS));
        true
    }
}
