//! Finds out whether a transaction was committed whose COMMIT was sent and not answered.
//!
//! In front of its COMMIT it writes a number that nobody else has to a row of `weir.outcomes` which is its own for that time:
//! the number is there if, and only if, the transaction is. When the answer is lost, the next writer is asked, in one
//! transaction of Weir's:
//!
//! | step | what | so |
//! | --- | --- | --- |
//! | begin | | what is done late, on a connection that was given up, goes with it |
//! | bar | the row is set to another number, unless it holds this one | on the server itself this waits for a COMMIT that is under way; on another one a write set that comes later fails, because it has changed the same row: from here on nothing changes any more |
//! | read | the row is read | |
//! | commit | | refused (1213) where such a write set came first: once more |
//!
//! A write with autocommit gets a transaction for that: see [`crate::statement::wrapped_write`].
//!
//! The number itself: the client gets its OK. The other one: nothing was committed, and nothing will be; the transaction runs
//! again, or its client is told that it is rolled back. Until that is known, every end of the session says that nobody
//! knows (08007).

use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_protocol::status::StatusFlags;
use weir_routing::CommitOutcome;

use crate::keys::ConnectionKey;
use crate::pool::outcome_rows::{bar_of, draw_marker, put_row};
use crate::pool::pools::Pools;
use crate::server::connection::Expected;
use crate::server::errors::{OUTCOME_UNKNOWN, is_handing_over, is_read_only, is_wsrep_refusal};
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::phase::Phase;
use crate::session::transaction_log::{Inquiry, Rejected};
use crate::work::Work;

/// ER_CHECKREAD: the row has changed since the transaction's snapshot (MariaDB with innodb_snapshot_isolation); all of it is
/// undone.
pub(crate) const CHANGED_SINCE: u16 = 1020;
/// ER_TRANSACTION_ROLLBACK_DURING_COMMIT: a group has refused the later of two changes.
pub(crate) const ROLLED_BACK_BY_GROUP: u16 = 3101;
/// Those behind which the same question may be answered: a deadlock, a lock that is waited for, a row that has changed, and a
/// group that has refused the later of two changes.
const OF_MOMENT: [u16; 4] = [LOCK_DEADLOCK.code, 1205, CHANGED_SINCE, ROLLED_BACK_BY_GROUP];
/// Errors of a COMMIT, or of a statement, behind which nothing of the transaction is left, or will be.
pub(crate) const UNDONE: [u16; 3] = [LOCK_DEADLOCK.code, CHANGED_SINCE, ROLLED_BACK_BY_GROUP];
/// Errors that surely leave a transaction as it is: no such schema or table, no right to it.
const HARMLESS: [u16; 7] = [1044, 1049, 1142, 1143, 1146, 1227, 1054];

impl Pools {
    /// Whether transactions of a session's write a row of their own.
    pub(crate) fn marks_commits(&self, session: &Session) -> bool {
        if session.is_bound() || session.stay.detour.is_some() {
            return false;
        }
        // As was decided when the transaction began, whatever a rule says of its COMMIT.
        if let Some(log) = &session.transaction.log {
            return log.marks_commits;
        }
        let group = self.groups.get(&session.execution.hostgroup);
        let group = group.filter(|group| group.reader_hostgroup.is_some());
        group.is_some_and(|group| match session.said_of_transaction().commit_outcome {
            Some(outcome) => outcome == CommitOutcome::Marker,
            None => group.marks_commits,
        })
    }
}

impl Work<'_> {
    /// Has the transaction that is about to be committed write its row. False if it has, or need not.
    pub(crate) fn puts_marker(&mut self, key: ConnectionKey) -> bool {
        let is_due = self.session.transaction.log.as_ref().is_some_and(|log| {
            // A server tells of a change only if it has not told the same of the transaction before.
            (log.has_written || log.may_have_written)
                && log.marker.is_none()
                && !log.is_marker_refused
                && log.replay.is_none()
        });
        if !is_due || !self.session.only_commits() || !self.pools.marks_commits(self.session) {
            return false;
        }
        self.put_marker(key);
        true
    }

    /// Writes the row of the session's transaction; the answer leads on.
    pub(crate) fn put_marker(&mut self, key: ConnectionKey) {
        let marker = draw_marker(self.ctx);
        let owner = self.pools.outcomes.owner(self.ctx);
        let Some(log) = &mut self.session.transaction.log else { return };
        let slot = *log.outcome_slot.get_or_insert_with(|| self.pools.outcomes.take());
        log.marker = Some(marker);
        let text = put_row(owner, slot, marker, &marker.to_string());
        let connection = &mut self.pools.connections[key];
        connection.send_query(self.ctx, text.as_bytes());
        connection.known.row_count = None;
        connection.expect(self.ctx, Expected::Marker);
        self.watch_own();
    }

    /// The row is written.
    pub(crate) fn marker_written(&mut self, status: StatusFlags) {
        if !status.contains(StatusFlags::IN_TRANS) {
            // It is there alone, and says what is not true.
            if let Some(log) = &mut self.session.transaction.log {
                (log.marker, log.outcome_slot) = (None, None);
            }
            self.fail_session(OUTCOME_UNKNOWN, "Its transaction was gone before its COMMIT");
        }
    }

    /// The server does not let the transaction write its row. Where that surely leaves the transaction as it is, it is committed
    /// without; else the error is the COMMIT's.
    pub(crate) fn marker_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        if let Some(log) = &mut self.session.transaction.log {
            log.marker = None;
        }
        if self.session.is_wrapped() && !HARMLESS.contains(&error.code) {
            return self.write_undone(key, error, text);
        }
        if [LOCK_DEADLOCK.code, CHANGED_SINCE].contains(&error.code) {
            return match self.may_repeat_transaction() {
                true => self.repeat_after_pause(),
                false => self.pools.refused_in_front(self.ctx, self.session, key, error, text),
            };
        }
        let message = text.as_bytes();
        let is_of_server = is_wsrep_refusal(error.code, message)
            || is_read_only(error.code, message)
            || is_handing_over(error.code, message);
        if is_of_server && self.session.can_replay(self.ctx) {
            return self.replay_elsewhere(key, Rejected::ByServer);
        }
        if is_of_server {
            // Its COMMIT was not sent, nor will the server take it.
            let server = self.pools.connections[key].server;
            self.pools.suspect(self.ctx, server);
            let obstacle = self.session.why_lost();
            return self.lose_transaction(Some(key), obstacle);
        }
        if !HARMLESS.contains(&error.code) {
            // It may have undone the transaction: a COMMIT would succeed, and commit nothing.
            return self.pools.refused_in_front(self.ctx, self.session, key, error, text);
        }
        if let Some(log) = &mut self.session.transaction.log {
            log.is_marker_refused = true;
        }
        self.ctx.statistics.totals.outcome_markers_refused += 1;
        if self.pools.outcomes.is_to_warn(self.ctx.now) {
            let server = &self.pools.servers[self.pools.connections[key].server].server.endpoint;
            let user = self.session.program();
            tracing::warn!(
                server,
                code = error.code,
                text,
                user,
                "a transaction can't write to weir.outcomes: nobody will know whether it was committed if its server is lost (commit_outcome = 'marker' needs the table, and INSERT, UPDATE and SELECT on it for each user)"
            );
        }
    }

    /// The server that has the session's COMMIT is gone, or does not say what has become of it.
    pub(crate) fn begin_inquiry(&mut self) {
        if !self.session.awaits_outcome() {
            self.ctx.statistics.totals.outcomes_asked += 1;
        }
        self.session.begin_inquiry(self.ctx.now);
    }

    /// Brings a lease one step nearer to knowing whether the session's transaction was committed.
    pub(crate) fn ask_for_outcome(&mut self, key: ConnectionKey) {
        let state = self.session.tracked.state.clone();
        if !std::rc::Rc::ptr_eq(&self.pools.connections[key].state, &state) {
            self.replay_in(key, &state);
            return;
        }
        let Some(log) = &self.session.transaction.log else { return };
        let (Some(replay), Some(slot), Some(marker)) = (log.replay, log.outcome_slot, log.marker) else {
            return self.fail_session(OUTCOME_UNKNOWN, "its row of weir.outcomes is not known");
        };
        let owner = self.pools.outcomes.owner(self.ctx);
        let bar = bar_of(marker);
        match replay.inquiry {
            Inquiry::None => {}
            Inquiry::Begin => {
                self.note_replay(|replay| replay.inquiry = Inquiry::Bar);
                self.put_in_front(key, "START TRANSACTION READ WRITE");
            }
            Inquiry::Bar => {
                self.note_replay(|replay| replay.inquiry = Inquiry::Read);
                let update = format!("IF(number = {marker}, number, {bar})");
                let text = put_row(owner, slot, bar, &update);
                self.put_in_front(key, &text);
            }
            Inquiry::Read => {
                let text = format!(
                    "SELECT number FROM weir.outcomes WHERE owner = {owner} AND slot = {slot} LIMIT 1 FOR UPDATE"
                );
                self.ask_number(key, &text);
            }
            Inquiry::Commit => {
                self.note_replay(|replay| replay.inquiry = Inquiry::Told);
                self.put_in_front(key, "COMMIT AND NO CHAIN NO RELEASE");
            }
            Inquiry::Told if replay.number == Some(marker) => {
                self.note_inquiry_over();
                self.was_committed(key);
            }
            Inquiry::Told if replay.number == Some(bar) => {
                self.note_inquiry_over();
                self.was_not_committed(key);
            }
            Inquiry::Told => {
                self.fail_session(OUTCOME_UNKNOWN, "its row of weir.outcomes holds what nobody has written");
            }
        }
    }
}

impl Work<'_> {
    /// It is known.
    fn note_inquiry_over(&mut self) {
        let waited_us = self.session.waited_for_loss_us(self.ctx.now);
        self.ctx.statistics.totals.outcomes_asked_us += waited_us;
    }

    /// A server refuses to answer: another one is asked, or the same one again where that may help.
    pub(crate) fn inquiry_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let is_of_moment = OF_MOMENT.contains(&error.code);
        let message = text.as_bytes();
        let is_elsewhere = is_wsrep_refusal(error.code, message)
            || is_read_only(error.code, message)
            || is_handing_over(error.code, message);
        let attempts_max = self.ctx.snapshot.variables.connect_retries_on_failure;
        if !(is_of_moment || is_elsewhere) || self.session.execution.tries.attempts > attempts_max {
            return self.fail_session(OUTCOME_UNKNOWN, text);
        }
        if is_elsewhere {
            let server = self.pools.connections[key].server;
            self.pools.suspect(self.ctx, server);
        }
        self.discard_lease(key);
        self.begin_inquiry();
        self.look_elsewhere();
    }

    /// Finds another connection for what is to be asked, or to run again.
    pub(crate) fn look_elsewhere(&mut self) {
        self.session.execution.tries.attempts += 1;
        self.session.phase = Phase::waiting(self.ctx.now);
        self.acquire();
    }

    /// Its client gets the OK that was lost.
    fn was_committed(&mut self, key: ConnectionKey) {
        self.ctx.statistics.totals.outcomes_committed += 1;
        tracing::debug!(session = self.session.id, "a COMMIT whose answer was lost had been carried out");
        // It was in the answer; an older one is not its own.
        self.session.diagnostics.last_gtid.clear();
        if self.session.is_wrapped() {
            return match self.tell_of_write(&[]) {
                Ok(()) => self.finish(key),
                Err(_) => self.close_session(),
            };
        }
        self.session.free_outcome_row();
        self.forget_transaction();
        let session = &mut *self.session;
        session.execution.reply.is_answering = true;
        session.execution.ending =
            Ending::Ok { affected_rows: 0, insert_id: 0, warnings: 0, has_rows: false, has_info: false };
        session.reply_ok(self.ctx);
        self.finish(key);
    }

    /// Nothing of it was committed, nor will be: it may run again, and its COMMIT behind it.
    fn was_not_committed(&mut self, key: ConnectionKey) {
        if let Some(log) = &mut self.session.transaction.log {
            // Its row is left to whatever may still come for it.
            (log.marker, log.outcome_slot) = (None, None);
        }
        self.note_replay(|replay| replay.inquiry = Inquiry::None);
        self.session.execution.tries.is_sent = false;
        if self.session.is_wrapped() {
            // What a table without transactions has got of it is still there.
            let obstacle = self.session.transaction.log.as_ref().and_then(|log| log.obstacle());
            if let Some(obstacle) = obstacle {
                return self.fail_session(
                    OUTCOME_UNKNOWN,
                    &format!("Not all of it took effect: {}", obstacle.words()),
                );
            }
            self.unwrap_write();
            return self.prepare_connection(key);
        }
        if !self.session.can_replay(self.ctx) {
            let obstacle = self.session.why_lost();
            return self.lose_transaction(Some(key), obstacle);
        }
        self.prepare_connection(key);
    }
}
