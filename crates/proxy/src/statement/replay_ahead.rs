//! Runs interrupted transactions again at once, and before others write.
//!
//! A transaction that has been lost had locked rows, and its client knows the AUTO_INCREMENT values that it was given. At the
//! next writer nobody knows of either: whoever writes there first may change the rows, or be given the same values, and then the
//! transaction can't have the same answers again. So it does not wait for its client's next statement, and what else is to be
//! written waits until it is done, for half a second at most. Other Weirs don't wait.
//!
//! Where only the connection was lost, the next statement is waited for: somebody may have ended it for its locks. So it is
//! where the transaction was on a reader.

use foldhash::HashMap;
use weir_protocol::command::{Command, query_attributes_len};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::keys::{ConnectionKey, Nanos, ServerIndex};
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::pool::pools::{Group, Pools};
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::snapshot::{Health, ReplayTurn};
use crate::work::Work;

/// How often those who wait look whether the transactions of other workers are done.
const LOOK_EVERY_NS: Nanos = 2_000_000;
const LOOK_EVERY_MAX_NS: Nanos = 20_000_000;
/// Ten times as long as it takes to look for one of them.
const NS_PER_WAITER: Nanos = 5_000;
/// Who has waited for a server before has this left of its time for a connection there.
const FOR_CONNECTION_NS: Nanos = 50_000_000;

impl Group {
    /// Whether interrupted transactions are to run again here before anything else is written. Where nobody can write, others
    /// wait as ever.
    pub(crate) fn lets_replays_first(&self, now: Nanos) -> bool {
        let can_write = || self.members.iter().any(|member| member.health != Health::Shunned);
        let is_written_to = self.reader_hostgroup.is_some();
        let holding = self.holding.as_ref().filter(|holding| is_written_to && holding.has_replays());
        holding.is_some_and(|holding| can_write() && holding.lets_replays_first(now))
    }
}

impl Pools {
    /// Where others write from now on, whoever waits for interrupted transactions does so from now on.
    pub(crate) fn begin_replays_anew(&self, next: &HashMap<u32, Group>) {
        let servers = |group: &Group| group.members.iter().map(|member| member.server).collect::<Vec<_>>();
        for (id, group) in next {
            let known = self.groups.get(id).filter(|known| servers(known) != servers(group));
            if let Some(holding) =
                group.holding.as_ref().filter(|_| known.is_some() && group.reader_hostgroup.is_some())
            {
                holding.begin_replays_anew();
            }
        }
    }

    /// Whoever writes to a cluster looks at these first.
    pub(crate) fn note_holdings(&mut self) {
        let writers = self.groups.values().filter(|group| group.reader_hostgroup.is_some());
        self.holdings = writers.filter_map(|group| group.holding.clone()).collect();
    }

    /// Whether interrupted transactions are to run again anywhere.
    fn has_replays(&self) -> bool {
        self.holdings.iter().any(|holding| holding.has_replays())
    }

    /// The session's transaction is interrupted: others let it go first.
    pub(crate) fn take_turn_for_replay(&self, session: &mut Session) {
        if !session.pins.pins().contains(Pins::TRANSACTION) {
            return;
        }
        let log = session.transaction.log.as_mut();
        let Some(log) = log.filter(|log| log.turn.is_none() && !log.is_on_reader) else { return };
        let holding = self.groups.get(&log.hostgroup).and_then(|group| group.holding.as_ref());
        let is_first = !std::mem::replace(&mut log.has_had_turn, true);
        log.turn = holding.map(|holding| holding.replay_turn(is_first));
    }
}

impl Work<'_> {
    /// Has a session that looks for a server of this hostgroup wait while others' transactions go first. False if it may go on.
    pub(crate) fn waits_for_replays(&mut self, hostgroup: u32) -> bool {
        if !self.pools.has_replays()
            || self.session.is_to_replay()
            || !self.session.execution.plan.may_have_effects()
        {
            return false;
        }
        let group = self.pools.groups.get(&hostgroup);
        group.is_some_and(|group| group.lets_replays_first(self.ctx.now)) && self.may_look_again()
    }

    /// Has a waiting session look again soon; the more wait, the less often. False if its time would be over then: nobody is told
    /// that there is no server where there is one.
    fn may_look_again(&mut self) -> bool {
        let Some(waiter) = self.session.waiter() else { return false };
        let pause = LOOK_EVERY_NS + NS_PER_WAITER * self.pools.parked.len() as Nanos;
        let at = self.ctx.now + pause.min(LOOK_EVERY_MAX_NS);
        if self.pools.wait_deadline(&waiter) <= at + FOR_CONNECTION_NS {
            return false;
        }
        self.pools.parked.push_back(waiter);
        self.ctx.timers.unpark(at);
        true
    }

    /// The same for a session that keeps its connection: for its transaction, which may have run again itself, for something
    /// else, or always. False also for what ends that: it gives its locks back.
    pub(crate) fn waits_for_replays_on_lease(&mut self, lease: ConnectionKey) -> bool {
        if !self.pools.has_replays() {
            return false;
        }
        let session = &*self.session;
        let plan = &session.execution.plan;
        let is_end = plan.is_boundary() || plan.kind() == CommandKind::Reset;
        // Others have waited before they were given it.
        let keeps_it = session.transaction.log.is_some() || self.pools.stays(session);
        if is_end || !plan.may_have_effects() || session.input.upload.is_some() || !keeps_it {
            return false;
        }
        let group = self.pools.groups.get(&self.pools.connections[lease].hostgroup);
        if !group.is_some_and(|group| group.lets_replays_first(self.ctx.now)) {
            return false;
        }
        self.session.phase = Phase::waiting(self.ctx.now);
        let waits = self.may_look_again();
        if !waits {
            self.session.phase = Phase::Running;
        }
        waits
    }

    /// The session's transaction does not go first any more: it has run again, or will not now.
    pub(crate) fn leave_turn(&mut self) {
        let turn = self.session.transaction.log.as_mut().and_then(|log| log.turn.take());
        if turn.is_some_and(ReplayTurn::give_back) {
            self.ctx.timers.unpark(self.ctx.now);
        }
    }

    /// Its server writes on: nobody waits for it, and if its client is between two statements the next one is waited for.
    pub(crate) fn replay_behind_others(&mut self) {
        self.leave_turn();
        if let Some(log) = &mut self.session.transaction.log {
            log.is_lost_in_hold = false;
        }
        if self.session.is_replaying_ahead() && matches!(self.session.phase, Phase::Waiting(_)) {
            self.pools.leave_queues(self.session);
            self.session.end_replay_ahead();
        }
    }

    /// Runs the transaction again of a session that is between two statements. If that can't be now, the next statement tries it
    /// again.
    pub(crate) fn replay_ahead(&mut self) {
        let session = &*self.session;
        let has_farewell = session.farewell.owed_error.is_some() || session.farewell.pending_error.is_some();
        if !session.is_interrupted_between_statements() || session.account.is_none() || has_farewell {
            return;
        }
        if let Some(lease) = self.session.lease() {
            // A part of it has run again there, and was interrupted.
            self.discard_lease(lease);
            self.session.begin_replay(self.ctx.now);
        }
        self.pools.take_turn_for_replay(self.session);
        let session = &mut *self.session;
        session.execution.reset(self.ctx.now);
        session.execution.plan = ExecutionPlan::of_command(CommandKind::Replay);
        session.execution.tries.attempts = 1;
        session.go_where_transaction_was();
        session.phase = Phase::waiting(self.ctx.now);
        self.acquire();
    }

    /// Whether its transaction has run again, and its client has not asked for anything yet.
    pub(crate) fn ends_with_replay(&mut self) -> bool {
        if !self.session.is_replaying_ahead() {
            return false;
        }
        self.session.execution.ending =
            Ending::Ok { affected_rows: 0, insert_id: 0, warnings: 0, has_rows: false, has_info: false };
        self.settle_down();
        true
    }

    /// A session that must leave its server takes its transaction along, which runs again elsewhere: at once, if its client is
    /// between two statements and it was at a writer. False if that can't be.
    pub(crate) fn take_transaction_along(&mut self) -> bool {
        if !self.leave_with_transaction() {
            return false;
        }
        if !self.session.transaction.log.as_ref().is_some_and(|log| log.is_on_reader) {
            self.replay_first();
        }
        true
    }

    /// The session's transaction has lost, or left, its server: it goes first, at once if its client is between two statements.
    pub(crate) fn replay_first(&mut self) {
        match self.session.phase {
            Phase::Idle => self.replay_ahead(),
            Phase::Running | Phase::Waiting(_) | Phase::Held => self.pools.take_turn_for_replay(self.session),
            // Nothing runs of which others would have to wait for the end.
            Phase::Login(_) | Phase::Settling | Phase::Asking(_) | Phase::Closing => {}
        }
    }

    /// The client asks for something while its transaction waits for a server: that decides what becomes of it. One that runs
    /// again gives way only to what ends it.
    pub(crate) fn replay_gives_way(&mut self) {
        match self.session.phase {
            Phase::Waiting(_) if self.session.lease().is_none() => self.pools.leave_queues(self.session),
            Phase::Running if self.session.ends_transaction_next() => self.undo_on_lease(),
            _ => return,
        }
        self.session.end_replay_ahead();
    }

    /// What the client has asked for meanwhile has begun, or is answered: then its transaction runs again, unless there is more
    /// to come of the client's. Others wait only for what runs.
    pub(crate) fn replay_goes_on(&mut self) {
        let session = &*self.session;
        let is_idle = matches!(session.phase, Phase::Idle) && session.input.inbox.is_empty();
        if is_idle && session.is_to_replay() && self.pools.has_lost_writer(session) {
            self.replay_ahead();
        }
        if !matches!(self.session.phase, Phase::Running | Phase::Waiting(_) | Phase::Held) {
            self.leave_turn();
        }
    }
}

impl Session {
    /// Whether its transaction is to run again, and its client has not asked for anything.
    pub(crate) fn is_interrupted_between_statements(&self) -> bool {
        let is_idle = matches!(self.phase, Phase::Idle) && self.input.upload.is_none();
        is_idle && self.is_to_replay() && !self.awaits_outcome()
    }

    /// Whether its client has sent, whole, what ends its transaction without a trace.
    fn ends_transaction_next(&self) -> bool {
        let inbox = &self.input.inbox;
        let len = Header::parse(inbox).map_or(0, |header| header.len);
        let Some((code, text)) = inbox.get(HEADER_LEN..HEADER_LEN + len).and_then(<[u8]>::split_first) else {
            return false;
        };
        match Command::parse(*code) {
            Some(Command::Quit | Command::ResetConnection | Command::ChangeUser) => true,
            Some(Command::Query) => {
                let attributes = if self.has_query_attributes() { query_attributes_len(text) } else { Ok(0) };
                let text = attributes.ok().and_then(|len| text.get(len..)).unwrap_or_default();
                let statement = weir_sql::scan(text, self.tracked.dialect);
                statement.kind == Kind::Rollback && !statement.multi
            }
            _ => false,
        }
    }
}

impl Pools {
    /// Whether the server with which its transaction was lost wrote, and writes no more.
    pub(crate) fn has_lost_writer(&self, session: &Session) -> bool {
        let log = session.transaction.log.as_ref().filter(|log| !log.is_on_reader);
        let Some(log) = log else { return false };
        let group = self.groups.get(&log.hostgroup);
        let writes = |server: ServerIndex| {
            group.is_some_and(|group| group.members.iter().any(|member| member.server == server))
        };
        log.lost_on.is_some_and(|server| !writes(server))
    }

    /// The session's transaction has lost its connection: where a hostgroup is held, nobody knows yet whether that is all.
    pub(crate) fn note_hold(&self, session: &mut Session) {
        let Some(log) = &mut session.transaction.log else { return };
        log.is_lost_in_hold = self.groups.get(&log.hostgroup).is_some_and(|group| group.is_held);
    }

    /// Whether it turns out, now that its hostgroup is held no more, that only its connection was lost.
    pub(crate) fn has_writer_back(&self, session: &Session) -> bool {
        let log = session.transaction.log.as_ref().filter(|log| log.is_lost_in_hold);
        let group = log.and_then(|log| self.groups.get(&log.hostgroup));
        group.is_some_and(|group| !group.members.is_empty())
            && session.is_to_replay()
            && !self.has_lost_writer(session)
    }
}
