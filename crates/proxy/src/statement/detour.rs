//! Runs one sure read on another connection, while the session keeps the lease that it must come back to.
//!
//! That is how `transaction_persistent = 0` and hostgroups with `multiplex = 0` let a query rule send single statements
//! to another hostgroup. For the time of the read the session looks as if it had no lease and no pins, so that whatever
//! happens to the other connection happens as to any other read's; [`Work::end_detour`] undoes that at its end.
//!
//! ```text
//! Idle (lease A) ── step_aside ─► Waiting ─► Running (lease B; A aside) ─► Settling ── come_back ─► Idle (lease A)
//! ```

use weir_session::pin::Pins;

use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::errors::LEASE_LOST;
use crate::session::Session;
use crate::session::bonds::Detour;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// The connection that was put aside is gone, and with it what pinned the session to it.
    pub(crate) fn aside_lost(&mut self, endpoint: &str) {
        let session = &mut *self.session;
        let Some(detour) = &mut session.stay.detour else { return };
        detour.lease = None;
        let pins = detour.pins.pins();
        if pins.is_empty() {
            return;
        }
        if session.execution.reply.is_answering || matches!(session.phase, Phase::Settling) {
            // The read does not suffer from it, and a part of its result is out.
            let message = format!("Lost connection to {endpoint} while a read ran on another server");
            return self.session.fail_next(LEASE_LOST, message);
        }
        let message = format!(
            "Lost connection to {endpoint} while a read ran on another server, and with it: {}",
            pins.words()
        );
        self.fail_session(LEASE_LOST, &message);
    }
}

impl Session {
    /// Whether the lease can wait for its session: it has an open transaction, of which a user with
    /// `transaction_persistent = 0` wants single statements to run elsewhere, or is only kept.
    fn may_leave_lease(&self) -> bool {
        let account = self.account.as_ref();
        let pins = self.pins.pins();
        let is_let_go = if pins.is_empty() {
            self.stay.stays_in.is_some()
        } else {
            pins == Pins::TRANSACTION && account.is_some_and(|account| !account.user.transaction_persistent)
        };
        // With autocommit=0 the read would begin a transaction where it runs.
        is_let_go && !self.is_to_replay() && self.transaction.is_autocommit && self.stay.detour.is_none()
    }

    /// Whether the session's statement is surely without effect and asks for nothing that only a connection knows.
    fn is_independent_read(&self) -> bool {
        let execution = &self.execution;
        let has_own =
            || self.prepared.all.get(&execution.text.statement_id).is_some_and(|found| found.own.is_some());
        execution.plan.is_independent_read()
            && !execution.text.wants_cursor
            && match execution.plan.kind() {
                CommandKind::Query => true,
                CommandKind::Execute => !has_own(),
                _ => false,
            }
            && self.input.upload.is_none()
            && !self.transaction.is_next_read_only
            // The client would be shown the other connection's; and two connections may know the session's diagnostics.
            && self.track.is_none()
            && self.diagnostics.retained_on.is_none()
            && self.diagnostics.fetching == 0
    }
}

impl Pools {
    /// Puts the lease aside if the session's statement is a sure read that a rule or a hint sends to another hostgroup,
    /// and needs nothing that only the lease has. In doubt it stays.
    pub(crate) fn begin_detour(&self, session: &mut Session, lease: ConnectionKey) -> bool {
        let leads_away = session
            .execution
            .plan
            .decision()
            .hostgroup
            .is_some_and(|hostgroup| !self.is_member(lease, hostgroup));
        if !leads_away || !session.may_leave_lease() || !session.is_independent_read() {
            return false;
        }
        session.stay.detour = Some(Box::new(Detour {
            lease: session.lease.take(),
            pins: std::mem::take(&mut session.pins),
            retained: std::mem::take(&mut session.diagnostics.retained),
            state: session.tracked.state.clone(),
            stays_in: session.stay.stays_in.take(),
            has_own_insert_id: session.diagnostics.has_own_insert_id,
            is_read_only: session.transaction.is_read_only,
            transaction_since: session.transaction.since,
        }));
        true
    }
}
