//! Takes replies to Weir's own statements: what they mean for the connection, and for the session that has it.

use weir_protocol::error::{self, LOCK_DEADLOCK, ServerError};
use weir_protocol::ok::OkPacket;
use weir_protocol::response::BrokenReply;
use weir_session::pin::Pins;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::defaults::DefaultsAnswer;
use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::recovery::replay::REPEATED;
use crate::server::connection::{DiscardReason, Expected};
use crate::server::errors::OUTCOME_UNKNOWN;
use crate::server::errors::is_wsrep_refusal;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// An OK, on the session's connection.
    pub(crate) fn own_statement_ok(
        &mut self,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<(), BrokenReply> {
        match self.pools.connections[key].replies.expected.front() {
            Some(Expected::Settle(settle)) => {
                let settle = *settle;
                self.settle_ok(key, settle, ok);
            }
            Some(Expected::Moving) => self.moving_ok(ok),
            Some(Expected::Wrap) => self.session.take_status(ok.status, self.ctx.now),
            Some(Expected::Marker) => self.marker_written(ok.status),
            Some(Expected::CommitWrapped) => return self.wrapped_committed(key, ok),
            Some(Expected::IsOpen) => self.take_is_open(ok.status),
            _ => {
                self.pools.own_statement_ok(self.ctx, key, ok)?;
                self.leave_unfit(key);
            }
        }
        Ok(())
    }

    /// The server refuses a statement of Weir's own, on the session's connection.
    pub(crate) fn own_statement_failed(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let is_pinned = !self.session.pins.is_empty();
        let front = self.pools.connections[key].replies.expected.front();
        match front {
            Some(Expected::Marker) => return self.marker_refused(key, error, text),
            Some(Expected::Wrap) => return self.wrap_refused(key, error, text),
            Some(Expected::CommitWrapped) => return self.commit_refused(key, error, text),
            Some(Expected::UndoWrapped) => {
                self.pools.connections[key].discard_reason = Some(DiscardReason::Stale);
                return;
            }
            Some(Expected::Fetch(fetch))
                if self.session.is_wrapped() && fetch.socket == self.session.socket =>
            {
                return self.fetch_from_wrapped_refused(key, error, text);
            }
            _ => {}
        }
        if self.session.awaits_outcome() && matches!(front, Some(Expected::Sync(_) | Expected::Number)) {
            return self.inquiry_refused(key, error, text);
        }
        let is_refused_in_replay = self.session.is_to_replay()
            && matches!(
                self.pools.connections[key].replies.expected.front(),
                Some(Expected::Sync(_) | Expected::Prepare(_) | Expected::IsOpen | Expected::Number)
            );
        if is_refused_in_replay {
            let connection = &mut self.pools.connections[key];
            if matches!(connection.replies.expected.front(), Some(Expected::Prepare(_)))
                && connection.can_make_room(error.code)
            {
                // It is prepared once more as soon as this answer is dealt with.
                return connection.make_room(self.ctx);
            }
            return self.replay_refused(key, error.code, text);
        }
        match self.pools.connections[key].replies.expected.front() {
            Some(Expected::Sync(_)) if is_pinned => self.sync_failed_on_lease(key, error, text),
            Some(Expected::Sync(_)) => self.sync_failed(key, error, text),
            Some(Expected::Prepare(_)) => self.prepare_refused(key, error, text),
            Some(Expected::Settle(_)) => self.settle_refused(key, error, text),
            Some(Expected::Moving) => self.moving_refused(error.code, text),
            Some(Expected::Carried) => self.carried_refused(key, error, text),
            Some(Expected::Fetch(_)) => self.fetch_refused(key, error, text),
            Some(Expected::FoundRows) => self.found_rows_refused(key, error, text),
            Some(Expected::InsertId) => self.insert_id_refused(key, error, text),
            _ => {
                self.pools.own_statement_failed(self.ctx, key, error, text);
                self.leave_unfit(key);
            }
        }
    }

    /// A reply to a statement of Weir's own, or to the session's, is complete.
    pub(crate) fn reply_complete(&mut self, key: ConnectionKey, expected: Expected) {
        match expected {
            Expected::Relay(_) => self.finish(key),
            Expected::Replay => self.replayed(key),
            Expected::Number => self.number_read(key),
            Expected::CommitWrapped if self.session.execution.reply.is_noted => self.finish(key),
            Expected::Settle(settle) => self.settled(key, settle),
            Expected::Moving => self.moving_answered(key),
            Expected::Carried => self.carried_set(key),
            Expected::Leave => self.left_reader(key),
            Expected::Verify => self.verified(key),
            Expected::Tracks => self.tracks_answered(key),
            Expected::Defaults(variables) => {
                if let DefaultsAnswer::Known = self.pools.defaults_answered(self.ctx, key, &variables) {
                    self.begin_with_defaults_of(key);
                }
                self.go_on(key);
            }
            Expected::Sync(state) => {
                if let Some(state) = state {
                    self.pools.connections[key].state = state;
                }
                self.go_on(key);
            }
            _ => self.go_on(key),
        }
    }

    /// A reply to a statement of Weir's own is in: the session's work goes on, unless it has left the connection.
    pub(crate) fn go_on(&mut self, key: ConnectionKey) {
        let connection = &self.pools.connections[key];
        match connection.holder {
            Some(holder) if holder == self.session.key => self.prepare_connection(key),
            Some(_) => {
                let (connection, socket) = (key, connection.socket);
                self.pools.turns.push_back(Turn::GoOn { connection, socket });
            }
            None => self.pools.go_on(self.ctx, key),
        }
    }

    /// A connection that could not be made fit again for the session: it must not go on there unseen.
    fn leave_unfit(&mut self, key: ConnectionKey) {
        let reason = self.pools.connections.get(key).and_then(|connection| connection.discard_reason);
        if reason == Some(DiscardReason::BrokenReply) {
            self.server_gone(key);
        }
    }

    /// SET last_insert_id in front of a statement was refused. If the statement has not been sent, it gets the error:
    /// inside a transaction it is Galera's 1213, which was meant for the client's next command.
    pub(crate) fn insert_id_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        self.pools.connections[key].known.insert_id = None;
        let session = &mut *self.session;
        session.diagnostics.has_own_insert_id = false;
        if session.execution.tries.is_sent {
            // It runs behind the refused SET: what it does with another session's id is not to be told as a success.
            let message = format!(
                "{text} (preparing the connection for the statement, which may or may not have taken effect)"
            );
            return self.fail_session(OUTCOME_UNKNOWN, &message);
        }
        self.pools.refused_in_front(self.ctx, self.session, key, error, text);
    }

    /// What was to make a statement ready is refused on a lease that can't be left: the lease is as it was, but for a SET
    /// in front of a USE that is refused, and the client gets the server's error for its statement.
    fn sync_failed_on_lease(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        if let Some(Expected::Sync(Some(wanted))) = connection.replies.expected.front()
            && wanted.schema() != connection.state.schema()
        {
            let state = wanted.with_schema(connection.state.schema());
            connection.state = self.ctx.interner.intern(state);
        }
        let mut is_half_done = false;
        for (at, expected) in connection.replies.expected.iter_mut().enumerate() {
            match expected {
                Expected::Relay(_) => expected.discard(),
                Expected::Sync(state) => {
                    *state = None;
                    is_half_done |= at > 0;
                }
                _ => {}
            }
        }
        if is_half_done {
            // The other half may succeed: then nobody knows the connection's state.
            let is_over = error.code == LOCK_DEADLOCK.code
                && (self.session.pins.pins() - REPEATED) == Pins::TRANSACTION
                && self.session.stay.detour.is_none()
                && self.session.input.upload.is_none();
            if !is_over {
                return self.fail_session(error, text);
            }
            // Nothing but the transaction was there, and that is undone.
            self.discard_lease(key);
            self.forget_transaction();
            return self.answer_error(error, text);
        }
        self.pools.reply_error(self.ctx, self.session, error, text);
        self.stop_refused(key);
    }

    /// The same as [`Work::stop_running`] behind an error of the server.
    pub(crate) fn stop_refused(&mut self, key: ConnectionKey) {
        if self.session.pins.pins().contains(Pins::TRANSACTION) {
            return self.pools.connections[key].settle_after_error(self.ctx, self.session);
        }
        self.stop_running();
    }

    /// The session's state could not be brought to a connection: a schema that is gone, a variable that this
    /// server does not take.
    fn sync_failed(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        connection.discard_reason = Some(DiscardReason::SyncFailed);
        let server = self.pools.servers[connection.server].server.endpoint.clone();
        // Whatever was sent behind it is none of the client's business any more, and nothing else may run.
        for expected in self.pools.connections[key].replies.expected.iter_mut().skip(1) {
            expected.discard();
        }
        let session = &mut *self.session;
        if !session.pins.is_empty() {
            // What the session has here can't go elsewhere, and how far its state got here is not known.
            let pins = session.pins.pins().words();
            let message = format!(
                "{text} (restoring the session's state on {server}); the session is closed, and its {pins} is lost"
            );
            return self.fail_session(error, &message);
        }
        let retries = self.ctx.snapshot.variables.connect_retries_on_failure;
        if is_wsrep_refusal(error.code, text.as_bytes())
            && session.input.upload.is_none()
            && session.execution.tries.attempts <= retries
        {
            let server = self.pools.connections[key].server;
            self.pools.suspect(self.ctx, server);
            self.session.lose_lease();
            let session = &mut *self.session;
            session.execution.tries.attempts += 1;
            session.phase = Phase::waiting(self.ctx.now);
            self.pools.connections[key].holder = None;
            return self.acquire();
        }
        let session = &mut *self.session;
        let goes_to_writer = session.execution.plan.is_read() && !session.execution.writer_only;
        let is_schema = matches!(error.code, 1044 | 1049);
        tracing::info!(
            session = session.id,
            server,
            code = error.code,
            text,
            "a server rejected a session's state"
        );
        self.session.lose_lease();
        self.pools.connections[key].holder = None;
        if goes_to_writer && !is_schema {
            let session = &mut *self.session;
            session.execution.writer_only = true;
            session.execution.tries.attempts += 1;
            session.phase = Phase::waiting(self.ctx.now);
            return self.acquire();
        }
        let message = if is_schema {
            text.to_owned()
        } else {
            format!("{text} (restoring the session's state on {server})")
        };
        self.answer_error(error, &message);
    }

    /// The session's work ends with an error that has been queued; its lease stays if it must.
    pub(crate) fn stop_running(&mut self) {
        let stays = !self.session.pins.is_empty();
        if !stays {
            self.pools.detach(self.ctx, self.session);
        }
        self.answered_here();
    }

    /// The query in front was refused: the number is not known behind the statement. Inside a transaction the error is
    /// the transaction's, and then it is the statement's, which has not been sent.
    pub(crate) fn found_rows_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        self.pools.connections[key].known.found_rows = None;
        if self.session.execution.tries.is_sent {
            return;
        }
        if error.code == LOCK_DEADLOCK.code {
            return self.pools.refused_in_front(self.ctx, self.session, key, error, text);
        }
        // Else it would be sent again.
        self.session.diagnostics.found_rows = None;
    }

    /// The question was refused. What was to give the taker its id has not done so, and it is given on its own, unless
    /// the statement that needs it is under way already.
    pub(crate) fn fetch_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        let Some(Expected::Fetch(fetch)) = connection.replies.expected.front() else { return };
        let (owner, gives_id) = (fetch.socket, fetch.gives_id);
        if owner == self.session.socket {
            return self.pools.saving_refused(self.ctx, self.session, key, error, text);
        }
        if !gives_id {
            return;
        }
        connection.known.insert_id = None;
        self.session.diagnostics.has_own_insert_id = false;
        if self.session.execution.tries.is_sent {
            self.insert_id_refused(key, error, text);
        }
    }
}

impl Work<'_> {
    /// The answer is in, on the session's connection: behind its own COM_RESET_CONNECTION the role stays, as it does at a
    /// server.
    pub(crate) fn verified(&mut self, key: ConnectionKey) {
        let verified = self.pools.connections.take_verified(self.ctx, key);
        if let Some(verified) = &verified {
            let state = self.session.tracked.state.with_schema(&verified.schema);
            let state = self.ctx.interner.intern(state);
            self.session.set_state(self.ctx, state);
        }
        if verified.is_some_and(|verified| verified.has_role_of_login) {
            self.release_when_idle(key);
        } else {
            self.session.pins.insert(Pins::ROLE);
        }
        self.go_on(key);
    }

    /// The answer is in. What does not track may have hidden anything: the connection goes.
    pub(crate) fn tracks_answered(&mut self, key: ConnectionKey) {
        if !self.pools.connections.proves_tracking(key) {
            self.pools.connections[key].holder = None;
            self.session.lose_lease();
            self.session.phase = Phase::waiting(self.ctx.now);
            self.acquire();
        }
        self.go_on(key);
    }

    /// A session that was kept on its connection only until this was proven leaves it, unless it goes on there.
    fn release_when_idle(&mut self, key: ConnectionKey) {
        let is_idle = matches!(self.session.phase, Phase::Idle);
        if is_idle && self.session.lease() == Some(key) && !self.pools.stays(self.session) {
            self.pools.detach(self.ctx, self.session);
        }
    }
}

impl Pools {
    /// The holder's statement, which has not been sent, gets the error of what was sent in front of it.
    pub(crate) fn refused_in_front(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        error: ServerError,
        text: &str,
    ) {
        self.reply_error(ctx, session, error, text);
        self.connections[key].settle_after_error(ctx, session);
    }

    /// The same on the holder's own lease. In a transaction it may be Galera's 1213, which was meant for the client: for
    /// the statement that is about to be sent, else for the next one.
    fn saving_refused(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        error: ServerError,
        text: &str,
    ) {
        if error.code != error::LOCK_DEADLOCK.code || !session.pins.pins().contains(Pins::TRANSACTION) {
            return;
        }
        if matches!(session.phase, Phase::Running) && !session.execution.tries.is_sent {
            return self.refused_in_front(ctx, session, key, error, text);
        }
        self.end_log(session);
        session.farewell.owed_error = Some(Box::new((error, text.into())));
    }
}
