//! A lease that is put aside: while a session has a connection that it must come back to, one sure read runs elsewhere.
//!
//! That is how `transaction_persistent = 0` and hostgroups with `multiplex = 0` let a query rule send single statements
//! to another hostgroup. For the time of the read the session looks as if it had no lease and no pins, so that whatever
//! happens to the other connection happens as to any other read's; [`Core::come_back`] undoes that at its end.
//!
//! ```text
//! Idle (lease A) ── step_aside ─► Waiting ─► Running (lease B; A aside) ─► Settling ── come_back ─► Idle (lease A)
//! ```

use std::rc::Rc;

use weir_protocol::status::StatusFlags;
use weir_session::pin::{PinBoard, Pins};
use weir_session::state::State;
use weir_sql::{Effects, Kind, Uses};

use super::Core;
use super::backend::LEASE_LOST;
use super::model::{BackendKey, Ending, Keeps, Nanos, Phase, Session, SessionKey, WorkKind};

/// What belongs to the lease that is put aside.
pub(crate) struct Aside {
    /// None once the connection is lost; then nothing of the session was there.
    lease: Option<BackendKey>,
    pins: PinBoard,
    keeps: Keeps,
    state: Rc<State>,
    stays_in: Option<u32>,
    is_pinned_to_reader: bool,
    has_own_insert_id: bool,
    is_read_only: bool,
    transaction_since: Nanos,
}

impl Core {
    /// Puts the lease aside if the session's statement is a sure read that a rule or a hint sends to another hostgroup,
    /// and needs nothing that only the lease has. In doubt it stays.
    pub(super) fn step_aside(&mut self, key: SessionKey, lease: BackendKey) -> bool {
        let session = &self.sessions[key];
        let leads_away =
            session.work.decision.hostgroup.is_some_and(|hostgroup| !self.is_member(lease, hostgroup));
        if !leads_away || !session.may_leave_lease() || !session.is_independent_read() {
            return false;
        }
        let session = &mut self.sessions[key];
        session.lease = None;
        session.aside = Some(Box::new(Aside {
            lease: Some(lease),
            pins: std::mem::take(&mut session.pins),
            keeps: std::mem::take(&mut session.keeps),
            state: session.state.clone(),
            stays_in: session.stays_in.take(),
            is_pinned_to_reader: session.is_pinned_to_reader,
            has_own_insert_id: session.has_own_insert_id,
            is_read_only: session.is_read_only,
            transaction_since: session.transaction_since,
        }));
        true
    }

    /// The read is over, however it ended: its connection is given back, and the lease is the session's again.
    pub(super) fn come_back(&mut self, key: SessionKey) {
        let leaves_warnings = self.leaves_warnings(key);
        let session = &mut self.sessions[key];
        let Some(mut aside) = session.aside.take() else { return };
        let pins = session.pins.pins();
        if session.keeps.contains(Keeps::WARNINGS) || !leaves_warnings {
            aside.keeps -= Keeps::WARNINGS;
        }
        let has_rows = matches!(session.work.ending, Ending::Ok { has_rows: true, .. });
        if session.keeps.contains(Keeps::FOUND_ROWS) || has_rows {
            aside.keeps -= Keeps::FOUND_ROWS;
        }
        if let Some(other) = self.detach(key) {
            if pins.is_empty() {
                // The session asks the lease from now on: what the other connection knows is fetched at once.
                self.fetch_kept(other, SessionKey::MAX);
                self.offer(other);
            } else {
                // A read does not do that.
                tracing::warn!(
                    session = self.sessions[key].id,
                    pins = pins.words(),
                    "a read left state behind"
                );
                self.recycle(other, pins);
            }
        }
        self.take_back(key, *aside);
    }

    fn take_back(&mut self, key: SessionKey, aside: Aside) {
        let session = &mut self.sessions[key];
        session.lease = aside.lease;
        session.pins = aside.pins;
        session.keeps = aside.keeps;
        session.stays_in = aside.stays_in;
        session.is_pinned_to_reader = aside.is_pinned_to_reader;
        session.has_own_insert_id = aside.has_own_insert_id;
        session.is_read_only = aside.is_read_only;
        session.transaction_since = aside.transaction_since;
        session.is_autocommit = true; // else it would not have stepped aside
        // What was different on the other connection was a part of the state that it had there.
        session.suits = None;
        if !Rc::ptr_eq(&session.state, &aside.state) {
            self.set_state(key, aside.state);
        }
    }

    /// Gives a session that ends its other lease back, so that both can be abandoned. False if it has none.
    pub(super) fn recall_lease(&mut self, key: SessionKey) -> bool {
        let Some(aside) = self.sessions[key].aside.take() else { return false };
        self.take_back(key, *aside);
        self.sessions[key].lease.is_some()
    }

    /// The connection that was put aside is gone, and with it what pinned the session to it.
    pub(super) fn aside_lost(&mut self, key: SessionKey, endpoint: &str) {
        let session = &mut self.sessions[key];
        let Some(aside) = &mut session.aside else { return };
        aside.lease = None;
        let pins = aside.pins.pins();
        if pins.is_empty() {
            return;
        }
        if session.work.is_answering || matches!(session.phase, Phase::Settling) {
            // The read does not suffer from it, and a part of its result is out.
            let message = format!("Lost connection to {endpoint} while a read ran on another server");
            return self.fail_next(key, LEASE_LOST, message);
        }
        let message = format!(
            "Lost connection to {endpoint} while a read ran on another server, and with it: {}",
            pins.words()
        );
        self.fail_session(key, LEASE_LOST, &message);
    }
}

impl Session {
    /// The pins of its own lease, which may be put aside.
    pub(super) fn pins_on_lease(&mut self) -> &mut PinBoard {
        self.aside.as_mut().map_or(&mut self.pins, |aside| &mut aside.pins)
    }

    /// Whether the lease can wait for its session: it has an open transaction, of which a user with
    /// `transaction_persistent = 0` wants single statements to run elsewhere, or is only kept.
    fn may_leave_lease(&self) -> bool {
        let account = self.account.as_ref();
        let pins = self.pins.pins();
        let is_let_go = if pins.is_empty() {
            self.stays_in.is_some()
        } else {
            pins == Pins::TRANSACTION && account.is_some_and(|account| !account.user.transaction_persistent)
        };
        // With autocommit=0 the read would begin a transaction where it runs.
        is_let_go && self.is_autocommit && self.aside.is_none()
    }

    /// Whether the session's statement is surely without effect and asks for nothing that only a connection knows.
    fn is_independent_read(&self) -> bool {
        const OF_CONNECTION: Uses =
            Uses::LAST_INSERT_ID.union(Uses::ROW_COUNT).union(Uses::FOUND_ROWS).union(Uses::DIAGNOSTICS);
        let work = &self.work;
        let has_own = || self.statements.get(&work.statement_id).is_some_and(|found| found.own.is_some());
        work.is_read
            && !work.begins_read_only
            && !work.wants_cursor
            && !work.statement.multi
            && work.statement.effects.is_empty()
            && !work.statement.uses.intersects(OF_CONNECTION)
            && match work.kind {
                WorkKind::Query => true,
                WorkKind::Execute => !has_own(),
                _ => false,
            }
            && self.upload.is_none()
            && !self.is_next_read_only
            // The client would be shown the other connection's; and two connections may know the session's diagnostics.
            && self.track.is_none()
            && self.kept.is_none()
            && self.fetching == 0
    }

    /// The flags of the transaction that is put aside, for the replies meanwhile.
    pub(super) fn flags_aside(&self) -> StatusFlags {
        let Some(aside) = &self.aside else { return StatusFlags::empty() };
        let mut flags = StatusFlags::empty();
        flags.set(StatusFlags::IN_TRANS, aside.pins.pins().contains(Pins::TRANSACTION));
        flags.set(StatusFlags::IN_TRANS_READONLY, aside.is_read_only);
        flags
    }

    /// What holds the session, on the lease that it has and on the one put aside.
    pub(super) fn all_pins(&self) -> Pins {
        self.aside.as_ref().map_or(Pins::empty(), |aside| aside.pins.pins()) | self.pins.pins()
    }

    /// The moment that a server has to cover for the session's statement: its last write, but what its transaction has
    /// written is not committed, and can't be seen elsewhere.
    pub(super) fn must_see(&self) -> Nanos {
        if self.aside.is_some() { self.last_commit_at } else { self.last_write_at }
    }

    /// Whether a statement that was answered in a transaction is one that can't have committed anything.
    pub(super) fn is_surely_uncommitted(&self) -> bool {
        let statement = self.work.statement;
        let is_plain = matches!(
            statement.kind,
            Kind::Select | Kind::With | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete
        );
        is_plain
            && !statement.multi
            && self.upload.is_none()
            && !statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN)
            && self.pins.pins().contains(Pins::TRANSACTION)
    }
}
