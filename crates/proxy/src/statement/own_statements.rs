//! Replies to statements of Weir's own: what they mean for the connection, and for the session that has it.

use weir_protocol::error::ServerError;
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::response::{BrokenReply, Control, Step};
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::pin::Pins;

use crate::pool::pools::Pools;
use crate::pool::turns::Turn;
use crate::server::connection::{DiscardReason, Expected, Stage};
use crate::server::defaults::DefaultsAnswer;
use crate::server::verify::must_report;
use crate::session::phase::Phase;
use crate::statement::recovery::rejected::is_wsrep_refusal;
use crate::statement::replies::OUTCOME_UNKNOWN;
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::ConnectionKey;

impl Worker {
    /// A piece of the reply to a statement of Weir's own.
    pub(crate) fn own_reply(
        &mut self,
        key: ConnectionKey,
        step: Step,
        bytes: &[u8],
    ) -> Result<(), BrokenReply> {
        let connection = &mut self.pools.connections[key];
        if let Some(Expected::Fetch(fetch)) = connection.replies.expected.front_mut() {
            fetch.take(step, bytes);
            if let Step::Control(Control::Err, _) = step {
                self.own_statement_failed(key, &bytes[HEADER_LEN..]);
            }
            return Ok(());
        }
        let Step::Control(control, _) = step else {
            if connection.replies.is_asked_for_row() && matches!(step, Step::Pass(_)) {
                connection.settling.settle_row(bytes);
            }
            return Ok(());
        };
        let payload = &bytes[HEADER_LEN..];
        match control {
            Control::Err => self.own_statement_failed(key, payload),
            Control::PrepareOk => connection.prepared_here(&mut self.ctx, payload),
            Control::Ok | Control::ResultEnd => {
                let ok =
                    OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
                match connection.holder {
                    Some(holder) => self.work(holder).own_statement_ok(key, &ok)?,
                    None => self.pools.own_statement_ok(&mut self.ctx, key, &ok)?,
                }
            }
            Control::ColumnCount => {}
            Control::LocalInfile => return Err(BrokenReply::UnexpectedPacket(0xFB)),
        }
        Ok(())
    }

    /// A server refuses a statement of Weir's own.
    fn own_statement_failed(&mut self, key: ConnectionKey, payload: &[u8]) {
        let Ok(err) = ErrPacket::parse(payload) else { return };
        let connection = &mut self.pools.connections[key];
        let text = connection.message_from(err.message);
        let error = ServerError { code: err.code, sqlstate: err.sqlstate.unwrap_or(*b"HY000") };
        (connection.known.row_count, connection.known.has_conditions) = (None, true);
        match connection.holder {
            Some(holder) => self.work(holder).own_statement_failed(key, error, &text),
            None => self.pools.own_statement_failed(&mut self.ctx, key, error, &text),
        }
    }
}

impl Work<'_> {
    /// An OK, on the session's connection.
    fn own_statement_ok(&mut self, key: ConnectionKey, ok: &OkPacket<'_>) -> Result<(), BrokenReply> {
        match self.pools.connections[key].replies.expected.front() {
            Some(Expected::Settle(settle)) => {
                let settle = *settle;
                self.settle_ok(key, settle, ok);
            }
            Some(Expected::Moving) => self.moving_ok(ok),
            _ => {
                self.pools.own_statement_ok(self.ctx, key, ok)?;
                self.leave_unfit(key);
            }
        }
        Ok(())
    }

    /// The server refuses a statement of Weir's own, on the session's connection.
    fn own_statement_failed(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let is_pinned = !self.session.pins.is_empty();
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
            let message =
                format!("{text} (in front of the statement, which may or may not have taken effect)");
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
            return self.fail_session(error, text);
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
                "{text} (carrying the session's state to {server}); with the session ends its {pins}"
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
            session.phase = Phase::Waiting(self.ctx.now);
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
            session.phase = Phase::Waiting(self.ctx.now);
            return self.acquire();
        }
        let message = if is_schema {
            text.to_owned()
        } else {
            format!("{text} (carrying the session's state to {server})")
        };
        self.pools.reply_error(self.ctx, self.session, error, &message);
        self.answered_here();
    }

    /// The session's work ends with an error that has been queued; its lease stays if it must.
    pub(crate) fn stop_running(&mut self) {
        let stays = !self.session.pins.is_empty();
        if !stays {
            self.pools.detach(self.ctx, self.session);
        }
        self.answered_here();
    }
}

impl Pools {
    /// An OK, on a connection of which it says something.
    fn own_statement_ok(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) -> Result<(), BrokenReply> {
        let connection = &self.connections[key];
        match connection.replies.expected.front() {
            // Behind a reset that was refused all is the last session's, and nothing to be learned from.
            Some(Expected::Setup | Expected::Init) if connection.discard_reason.is_some() => {}
            Some(Expected::Setup) => self.take_defaults(ctx, key, ok),
            Some(Expected::Init) => self.take_init(ctx, key, ok),
            Some(Expected::Sync(Some(_))) if connection.traces.is_tracked => must_report(ok)?,
            _ => {}
        }
        Ok(())
    }

    /// A server refuses a statement of Weir's own, of which no session has to know.
    fn own_statement_failed(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        error: ServerError,
        text: &str,
    ) {
        let code = error.code;
        let connection = &mut self.connections[key];
        match connection.replies.expected.front_mut() {
            Some(Expected::Setup) => {
                let message = format!("session tracking: error {code}: {text}");
                self.set_up_failed(ctx, key, Some(code), &message);
            }
            Some(Expected::Init) => {
                self.set_up_failed(ctx, key, None, &format!("init_connect: error {code}: {text}"));
            }
            Some(
                Expected::Reset | Expected::Leave | Expected::Verify | Expected::Sync(_) | Expected::Carried,
            ) => {
                connection.discard_reason = Some(DiscardReason::SyncFailed);
            }
            // The role of before would be the next user's.
            Some(Expected::LeaveRole) => self.dial_instead(ctx, key),
            Some(Expected::Kill) => {
                let server = &self.servers[connection.server].server.endpoint;
                tracing::info!(server, code, text, "KILL was refused");
            }
            Some(Expected::Settle(_)) => {
                connection.settling.again = true;
                connection.settling.is_rejected |= is_wsrep_refusal(code, text.as_bytes());
            }
            Some(Expected::Fetch(fetch)) if fetch.gives_id => connection.known.insert_id = None,
            Some(Expected::FoundRows) => connection.known.found_rows = None,
            Some(Expected::InsertId) => connection.known.insert_id = None,
            _ => {}
        }
    }

    /// The reply of a connection is complete that nobody has.
    pub(crate) fn reply_complete(&mut self, ctx: &mut Context, key: ConnectionKey, expected: Expected) {
        match expected {
            Expected::Relay(_) => {
                let socket = self.connections[key].socket;
                ctx.out.pause(socket, false);
                self.connections[key].end_hurry(ctx);
                self.finish_abandoned(ctx, key);
            }
            Expected::Settle(_) => self.finish_abandoned(ctx, key),
            Expected::Defaults(variables) => match self.defaults_answered(ctx, key, &variables) {
                DefaultsAnswer::Known | DefaultsAnswer::Unknown => self.set_up_further(ctx, key),
                DefaultsAnswer::Gone => {}
            },
            Expected::Setup | Expected::Init => self.set_up_further(ctx, key),
            Expected::Sync(Some(state)) => {
                self.connections[key].state = state;
                self.go_on(ctx, key);
            }
            Expected::Moving => {
                self.connections[key].settling.bytes.clear();
                self.go_on(ctx, key);
            }
            Expected::Kill => self.kill_sent(ctx, key),
            // The login comes behind it.
            Expected::LeaveRole => {}
            Expected::Verify => self.verified(ctx, key),
            Expected::Tracks => {
                self.proves_tracking(key);
                self.go_on(ctx, key);
            }
            _ => self.go_on(ctx, key),
        }
    }

    /// A part of a set-up is done.
    fn set_up_further(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        if connection.stage == Stage::Ready {
            return self.go_on(ctx, key);
        }
        if connection.replies.expected.is_empty() {
            let socket = connection.socket;
            self.now_ready(ctx, key, socket);
        }
    }

    /// A reply to a statement of Weir's own is in, on a connection that nobody has: it goes to the next.
    pub(crate) fn go_on(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let connection = &self.connections[key];
        if connection.replies.expected.is_empty() && !self.servers[connection.server].idle.contains(&key) {
            self.offer(ctx, key);
        }
    }
}
