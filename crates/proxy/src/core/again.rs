//! Statements that are run again because their connection to a server is lost: which may be, how often, and where.
//!
//! A server that dies loses its connections one after the other. A statement that is begun again on another one of
//! them, and loses that as well, has seen one server fail, not two: `query_retries_on_failure` counts servers. How often
//! it is sent in all is limited by `connect_retries_on_failure`. A connection that was opened after the last loss shows
//! that the server lived then; a statement that makes servers crash does not get past that.

use weir_sql::{Access, Kind, Uses};

use super::Core;
use super::model::{BackendKey, Nanos, Phase, ServerIndex, SessionKey, Work, WorkKind};

/// By then the worker has heard of all connections that were lost at the same time.
const AGAIN_AFTER_NS: Nanos = 1_000_000;
/// The same where only the server is left on which its connection was lost: if that has died, its other connections have
/// broken, too, and the worker will have heard of it by then. So long again with each time that it was sent.
const AGAIN_THERE_AFTER_NS: Nanos = 10_000_000;
/// For so long after it has lost a connection a server may still be losing the others. Who ends single connections of a
/// server that lives, one query after the other, takes longer.
const DYING_NS: Nanos = 2_000_000_000;

/// A connection that is lost to the session that had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub server: ServerIndex,
    pub opened_at: Nanos,
}

impl Work {
    /// How many failures of servers it has seen, this loss included.
    fn failures_with(&self, lost: Lost, now: Nanos) -> u32 {
        let is_same_failure = self.lost_on == Some(lost.server)
            && lost.opened_at < self.lost_at
            && now < self.lost_at + DYING_NS;
        // Losses before it was sent are no failures.
        (self.failures + u32::from(!is_same_failure)).max(1)
    }

    /// The server on which its connection was lost, if it is to look for another one.
    pub(super) fn avoided(&self, is_last_resort: bool, now: Nanos) -> Option<ServerIndex> {
        let pause = AGAIN_THERE_AFTER_NS * Nanos::from(self.times_sent.max(1));
        self.lost_on.filter(|_| !is_last_resort || now < self.lost_at + pause)
    }

    /// Whether its kind alone tells that it changes nothing but the connection on which it runs, if anything.
    fn leaves_with_connection(&self) -> bool {
        match self.kind {
            WorkKind::Prepare | WorkKind::InitDb | WorkKind::FieldList | WorkKind::LoginSchema => true,
            WorkKind::Query => self.is_read || self.is_boundary() || self.is_use(),
            WorkKind::Execute => self.is_read || self.is_boundary(),
            WorkKind::Track => self.statement.effects.is_empty(),
            WorkKind::Reset
            | WorkKind::SetOption
            | WorkKind::LongData
            | WorkKind::Fetch
            | WorkKind::StmtReset => false,
        }
    }

    fn is_use(&self) -> bool {
        self.statement.kind == Kind::Use && !self.statement.multi
    }

    /// Whether it is a read but for its system variables, which may differ from server to server.
    fn asks_variables(&self) -> bool {
        let statement = &self.statement;
        statement.access == Access::Inspect
            && matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table)
            && Uses::SYSTEM_VARIABLE.union(Uses::USER_VARIABLE).contains(statement.uses)
    }
}

impl Core {
    /// What is to be remembered of a connection when it is lost.
    pub(super) fn loss_of(&self, backend: BackendKey) -> Lost {
        let backend = &self.backends[backend];
        Lost { server: backend.server, opened_at: backend.opened_at }
    }

    /// Whether the work of a session without pins that loses its connection may simply be started again: nothing of it
    /// can have had an effect, and the client has seen nothing.
    pub(super) fn may_retry(&self, key: SessionKey, lost: Lost) -> bool {
        let session = &self.sessions[key];
        let work = &session.work;
        let variables = &self.snapshot.variables;
        let in_all = variables.connect_retries_on_failure;
        let has_seen_nothing = !work.is_answering || work.withheld_bytes_max > 0;
        if !work.is_sent {
            // It is not run again, but for the first time.
            return has_seen_nothing && work.attempts <= in_all;
        }
        let usual = match work.is_boundary() {
            // It does nothing by itself, so no server dies of it.
            true => in_all,
            false => variables.query_retries_on_failure,
        };
        let retries = work.decision.retries.unwrap_or(usual);
        has_seen_nothing
            && work.failures_with(lost, self.now) <= retries
            && work.times_sent <= retries.max(in_all)
            && session.upload.is_none()
            && (work.leaves_with_connection() || self.text_leaves_with_connection(key))
    }

    /// The same by the text of a statement.
    fn text_leaves_with_connection(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let statement = session.work.statement;
        let is_certain = session.work.kind == WorkKind::Query && self.is_surely_read(key);
        if !is_certain || statement.multi || !statement.effects.is_empty() {
            return false;
        }
        match statement.kind {
            Kind::Set | Kind::SetTransaction | Kind::Show => {
                weir_sql::stays_in_session(self.text(key), session.dialect)
            }
            _ => session.work.asks_variables(),
        }
    }

    /// Starts a statement again whose connection to a server is lost. Where it was sent, only after a moment: the
    /// other connections to that server may be lost as well, and it is not to be sent on one of them.
    pub(super) fn run_again(&mut self, key: SessionKey, lost: Lost) {
        let session = &mut self.sessions[key];
        session.phase = Phase::Waiting(self.now);
        let work = &mut session.work;
        work.attempts += 1;
        if work.is_sent {
            work.failures = work.failures_with(lost, self.now);
        }
        work.lost_on = Some(lost.server);
        work.lost_at = self.now;
        if !work.is_sent {
            return self.acquire(key);
        }
        self.parked.push_back((key, session.socket));
        self.timers.unpark(self.now + AGAIN_AFTER_NS);
    }
}
