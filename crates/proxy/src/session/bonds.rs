//! Records what holds a session to its servers, and which writes it has to see there.

use std::rc::Rc;

use weir_config::ListenerMode;
use weir_protocol::status::StatusFlags;
use weir_session::pin::{PinBoard, Pins};
use weir_session::state::State;
use weir_sql::{Effects, Kind};

use crate::context::{Context, Draining};
use crate::keys::{ConnectionKey, Nanos};
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session::retained::Retained;

impl Session {
    /// The pins of its own lease, which may be put aside.
    pub(crate) fn pins_on_lease(&mut self) -> &mut PinBoard {
        self.stay.detour.as_mut().map_or(&mut self.pins, |detour| &mut detour.pins)
    }

    /// What holds the session, on the lease that it has and on the one put aside.
    pub(crate) fn all_pins(&self) -> Pins {
        self.stay.detour.as_ref().map_or(Pins::empty(), |detour| detour.pins.pins()) | self.pins.pins()
    }

    /// The flags of the transaction that is put aside, for the replies meanwhile.
    pub(crate) fn flags_aside(&self) -> StatusFlags {
        let Some(detour) = &self.stay.detour else { return StatusFlags::empty() };
        let mut flags = StatusFlags::empty();
        flags.set(StatusFlags::IN_TRANS, detour.pins.pins().contains(Pins::TRANSACTION));
        flags.set(StatusFlags::IN_TRANS_READONLY, detour.is_read_only);
        flags
    }

    /// The moment that a server has to cover for the session's statement: its last write, but what its transaction has
    /// written is not committed, and can't be seen elsewhere.
    pub(crate) fn must_see(&self) -> Nanos {
        if self.stay.detour.is_some() { self.freshness.last_commit_at } else { self.freshness.last_at }
    }

    /// Since when its statement has waited for a server to be fresh enough, if it has.
    pub(crate) fn awaits_check_since(&self) -> Option<Nanos> {
        if let Phase::Waiting(wait) = &self.phase { wait.awaits_check_since } else { None }
    }

    /// From which moment on what is known of servers counts for its statement; 0: from ever.
    pub(crate) fn proven_after(&self) -> Nanos {
        if let Phase::Waiting(wait) = &self.phase { wait.proven_after } else { 0 }
    }

    /// Whether a statement that was answered in a transaction is one that can't have committed anything.
    pub(crate) fn is_surely_uncommitted(&self) -> bool {
        let statement = self.execution.plan.statement();
        let is_plain = matches!(
            statement.kind,
            Kind::Select | Kind::With | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete
        );
        is_plain
            && !statement.multi
            && self.input.upload.is_none()
            && !statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN)
            && self.pins.pins().contains(Pins::TRANSACTION)
    }
}

impl Session {
    /// Whether it keeps its connection between statements.
    pub(crate) fn is_bound(&self) -> bool {
        self.listener.mode != ListenerMode::Split
            || self.account.as_ref().is_some_and(|account| account.user.fast_forward)
    }
}

impl Session {
    /// The hostgroup of statements of which no rule and no hint says anything.
    pub(crate) fn home_hostgroup(&self) -> u32 {
        let default = self.account.as_ref().map_or(0, |account| account.user.default_hostgroup);
        self.listener.hostgroup.unwrap_or(default)
    }
}

impl Session {
    /// Whether it has to stay in the schema of its login.
    pub(crate) fn is_schema_locked(&self) -> bool {
        self.account.as_ref().is_some_and(|account| account.user.schema_locked)
    }
}

/// A connection that is lent to a session, and what holds as long as it is. It lasts through the session's phases: a pinned
/// session has one between its commands, and while its next one is held or waits. Only a command that runs always has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub on: ConnectionKey,
    /// It was taken for a read, on a server that takes no writes now.
    pub is_on_reader: bool,
}

impl Session {
    /// The connection that is lent to it.
    pub(crate) fn lease(&self) -> Option<ConnectionKey> {
        self.lease.map(|lease| lease.on)
    }

    /// Whether its lease was taken for a read, on a server that takes no writes now.
    pub(crate) fn is_pinned_to_reader(&self) -> bool {
        self.lease.is_some_and(|lease| lease.is_on_reader)
    }
}

/// What belongs to the lease that is put aside.
pub(crate) struct Detour {
    /// None once the connection is lost; then nothing of the session was there.
    pub lease: Option<Lease>,
    pub pins: PinBoard,
    pub retained: Retained,
    pub state: Rc<State>,
    pub stays_in: Option<u32>,
    pub has_own_insert_id: bool,
    pub is_read_only: bool,
    pub transaction_since: Nanos,
}

impl Session {
    /// Who logs in, or is logged in.
    pub(crate) fn login_user(&self) -> &[u8] {
        match &self.phase {
            Phase::Login(login) => login.user(),
            _ => self.username(),
        }
    }
}

impl Session {
    pub(crate) fn username(&self) -> &[u8] {
        self.account.as_ref().map_or(b"", |account| account.user.username.as_bytes())
    }
}

impl Draining {
    /// Whether an idle session has to go.
    pub(crate) fn ends(self, session: &Session) -> bool {
        let is_new = session.execution.record.begun_at == 0 && self.newcomers_until != 0;
        !is_new && !session.pins.pins().contains(Pins::TRANSACTION)
    }
}

impl Session {
    pub(crate) fn take_back(&mut self, ctx: &mut Context, detour: Detour) {
        self.lease = detour.lease;
        self.pins = detour.pins;
        self.diagnostics.retained = detour.retained;
        self.stay.stays_in = detour.stays_in;
        self.diagnostics.has_own_insert_id = detour.has_own_insert_id;
        self.transaction.is_read_only = detour.is_read_only;
        self.transaction.since = detour.transaction_since;
        self.transaction.is_autocommit = true; // else it would not have stepped aside
        // What was different on the other connection was a part of the state that it had there.
        self.tracked.suits = None;
        if !Rc::ptr_eq(&self.tracked.state, &detour.state) {
            self.set_state(ctx, detour.state);
        }
    }

    /// Gives a session that ends its other lease back, so that both can be abandoned. False if it has none.
    pub(crate) fn recall_lease(&mut self, ctx: &mut Context) -> bool {
        let Some(detour) = self.stay.detour.take() else { return false };
        self.take_back(ctx, *detour);
        self.lease().is_some()
    }
}
