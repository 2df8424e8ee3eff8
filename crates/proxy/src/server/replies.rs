//! Bytes from servers: logins, replies to Weir's own statements, and the end of a connection.

use crate::client::session::Session;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::worker::context::Context;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::response::{BrokenReply, Control, Step, WHOLE_PACKET_BYTES_MAX};
use weir_session::login::{BACKEND_CAPABILITIES, BackendStep};
use weir_session::pin::Pins;

use crate::client::session::Phase;
use crate::client::session::Settle;
use crate::outbox::{Order, SocketId};
use crate::recovery::rejected::is_wsrep_refusal;
use crate::server::connection::DiscardReason;
use crate::server::connection::Expected;
use crate::server::connection::Purpose;
use crate::server::connection::Stage;
use crate::server::verify::must_report;
use crate::worker::Worker;
use crate::worker::keys::ConnectionKey;
use crate::worker::keys::SessionKey;

/// A buffer for the begin of a packet stays with its connection up to this size.
const INBOX_BYTES_KEPT: usize = 4 << 10;
/// A login packet of a server larger than this is refused.
const LOGIN_PACKET_BYTES_MAX: usize = 64 << 10;

/// The number with which servers say goodbye (`ER_SERVER_SHUTDOWN`). Not 2013, which client libraries give to lost
/// connections themselves: MariaDB's takes a packet with a number of its own range (2000 to 2999) for a broken one, and
/// its application would see neither the SQLSTATE nor the cause.
const GOODBYE: u16 = error::SERVER_SHUTDOWN.code;
/// "Transaction resolution unknown" in the SQL standard: the statement may or may not have taken effect.
pub(crate) const OUTCOME_UNKNOWN: ServerError = ServerError { code: GOODBYE, sqlstate: *b"08007" };
/// The connection that held a session's state is gone, between statements.
pub(crate) const LEASE_LOST: ServerError = ServerError { code: GOODBYE, sqlstate: *b"08S01" };

impl Worker {
    pub(crate) fn server_data(&mut self, key: ConnectionKey, bytes: &mut [u8]) {
        let socket = self.pools.connections[key].socket;
        let (server, hostgroup) = (self.pools.connections[key].server, self.pools.connections[key].hostgroup);
        self.pools.servers[server].counts.of(hostgroup).bytes_received += bytes.len() as u64;
        self.ctx.statistics.totals.server_bytes_received += bytes.len() as u64;
        let rest = self.complete_front(key, bytes);
        if rest.is_empty() || !self.pools.connection_is(key, socket) {
            return;
        }
        let used = self.read_server(key, rest);
        if used < rest.len() && self.pools.connection_is(key, socket) {
            self.pools.connections[key].inbox.extend_from_slice(&rest[used..]);
        }
    }

    /// The packet whose begin is kept gets what it lacks and is read; returns the bytes behind it. Only that packet is
    /// copied, not all that came with its end. The connection may be gone afterwards.
    fn complete_front<'b>(&mut self, key: ConnectionKey, bytes: &'b mut [u8]) -> &'b mut [u8] {
        let socket = self.pools.connections[key].socket;
        let mut inbox = std::mem::take(&mut self.pools.connections[key].inbox);
        let mut rest = bytes;
        while !inbox.is_empty() && !rest.is_empty() {
            let wanted = match Header::parse(&inbox) {
                Some(header) => HEADER_LEN + header.len.min(WHOLE_PACKET_BYTES_MAX),
                None => HEADER_LEN,
            };
            // A large control packet comes in several parts.
            let lacking = wanted.checked_sub(inbox.len()).filter(|lacking| *lacking > 0);
            let (part, behind) = rest.split_at_mut(lacking.unwrap_or(WHOLE_PACKET_BYTES_MAX).min(rest.len()));
            inbox.extend_from_slice(part);
            rest = behind;
            let used = self.read_server(key, &mut inbox);
            if !self.pools.connection_is(key, socket) {
                return &mut [];
            }
            inbox.drain(..used);
        }
        if !inbox.is_empty() || inbox.capacity() <= INBOX_BYTES_KEPT {
            self.pools.connections[key].inbox = inbox;
        }
        rest
    }

    /// Reads as many packets as there are; returns the bytes used. The connection may be gone afterwards.
    fn read_server(&mut self, key: ConnectionKey, bytes: &mut [u8]) -> usize {
        let socket = self.pools.connections[key].socket;
        let mut at = 0;
        while self.pools.connection_is(key, socket) {
            let rest = &mut bytes[at..];
            let leaves_role =
                matches!(self.pools.connections[key].expected.front(), Some(Expected::LeaveRole));
            let used = if self.pools.connections[key].login.is_some() && !leaves_role {
                self.login_bytes(key, rest)
            } else if self.pools.connections[key].expected.is_empty() {
                self.unasked(key, rest)
            } else {
                match self.reply_bytes(key, rest) {
                    Ok(used) => used,
                    Err(broken) => {
                        self.reply_broken(key, broken);
                        return bytes.len();
                    }
                }
            };
            match used {
                Some(used) => at += used,
                None => break,
            }
        }
        at
    }

    /// One packet of a login; `None` when it is not there whole.
    fn login_bytes(&mut self, key: ConnectionKey, bytes: &[u8]) -> Option<usize> {
        let header = Header::parse(bytes)?;
        if header.len > LOGIN_PACKET_BYTES_MAX {
            self.pools.dial_failed(&mut self.ctx, key, None, "oversized packet during login");
            return Some(bytes.len());
        }
        let end = HEADER_LEN + header.len;
        let payload = bytes.get(HEADER_LEN..end)?;
        let connection = &mut self.pools.connections[key];
        let mut out = Vec::new();
        let step = connection.login.as_mut()?.packet(header.seq, payload, &mut connection.greeted, &mut out);
        let socket = connection.socket;
        self.ctx.out.send(socket, &out);
        match step {
            BackendStep::Wait => {}
            BackendStep::StartTls => {
                if let Some(tls) = self.pools.connections[key].tls.clone() {
                    self.ctx.out.order(Order::StartServerTls(socket, tls));
                }
            }
            BackendStep::Ready { thread_id } => {
                let connection = &mut self.pools.connections[key];
                connection.greeted.thread_id = thread_id;
                connection.login = None;
                let purpose = connection.purpose;
                if matches!(connection.expected.front(), Some(Expected::ChangeUser)) {
                    connection.expected.pop_front();
                }
                self.pools.learn_reading(&mut self.ctx, key);
                match purpose {
                    Purpose::Pool => self.pools.set_up(&mut self.ctx, key),
                    Purpose::Kill(kill) => self.pools.connections[key].send_kill(&mut self.ctx, kill),
                }
            }
            BackendStep::Refused { code, message } => {
                self.pools.dial_failed(&mut self.ctx, key, code, &message)
            }
            BackendStep::Lacks { missing } => self.pools.break_agreement(&mut self.ctx, key, missing),
        }
        Some(end)
    }

    /// Bytes that nobody asked for: a server says so when it ends a connection.
    fn unasked(&mut self, key: ConnectionKey, bytes: &[u8]) -> Option<usize> {
        if bytes.is_empty() {
            return None;
        }
        let said = bytes.get(HEADER_LEN..).and_then(|payload| ErrPacket::parse(payload).ok());
        let text = said.map(|err| String::from_utf8_lossy(err.message).into_owned());
        let server = &self.pools.servers[self.pools.connections[key].server].server.endpoint;
        tracing::debug!(
            server,
            thread_id = self.pools.connections[key].greeted.thread_id,
            ?text,
            "server spoke unasked"
        );
        self.server_gone(key);
        Some(bytes.len())
    }

    /// The next piece of the reply at the front of the queue.
    fn reply_bytes(&mut self, key: ConnectionKey, bytes: &mut [u8]) -> Result<Option<usize>, BrokenReply> {
        let connection = &mut self.pools.connections[key];
        if connection.reply.is_done() {
            self.reply_done(key)?;
            return Ok(Some(0));
        }
        let step = connection.reply.next(bytes)?;
        let is_relay = matches!(connection.expected.front(), Some(Expected::Relay(_)));
        let used = match step {
            Step::NeedMore => return Ok(None),
            Step::Control(Control::LocalInfile, _) if !is_relay => {
                return Err(BrokenReply::UnexpectedPacket(0xFB));
            }
            Step::Done => 0,
            Step::Pass(count) | Step::Control(_, count) => count,
            Step::ColumnsEnd => 0,
        };
        if is_relay {
            self.relay(key, step, &bytes[..used])?;
        } else {
            self.own_reply(key, step, &bytes[..used])?;
        }
        if self
            .pools
            .connections
            .get(key)
            .is_some_and(|connection| connection.reply.is_done() && !connection.expected.is_empty())
        {
            self.reply_done(key)?;
        }
        Ok(Some(used))
    }

    /// The reply at the front is complete.
    fn reply_done(&mut self, key: ConnectionKey) -> Result<(), BrokenReply> {
        let connection = &mut self.pools.connections[key];
        connection.reply_rows = connection.reply.rows();
        let Some(expected) = connection.expected.pop_front() else { return Ok(()) };
        self.pools.servers[connection.server].running -= u32::from(expected.is_statement());
        self.pools.connections[key].restart_reply(self.ctx.now);
        match expected {
            Expected::Relay(_) => self.finish(key),
            Expected::Defaults(variables) if !self.defaults_answered(key, &variables) => {}
            Expected::Setup | Expected::Init | Expected::Defaults(_)
                if self.pools.connections[key].stage != Stage::Ready =>
            {
                let socket = self.pools.connections[key].socket;
                if self.pools.connections[key].expected.is_empty() {
                    self.pools.now_ready(&mut self.ctx, key, socket);
                }
            }
            Expected::Sync(state) => {
                if let Some(state) = state {
                    self.pools.connections[key].state = state;
                }
                self.go_on(key);
            }
            Expected::Settle(settle) => self.settled(key, settle),
            Expected::Moving => self.moving_answered(key),
            Expected::Carried => self.carried_set(key),
            Expected::Fetch(fetch) => self.fetched(key, fetch),
            Expected::Kill => self.pools.kill_sent(&mut self.ctx, key),
            Expected::Leave => self.left_reader(key),
            // The login comes behind it.
            Expected::LeaveRole => {}
            Expected::Verify => self.verified(key),
            Expected::Tracks => self.tracks_answered(key),
            Expected::Setup
            | Expected::Init
            | Expected::Defaults(_)
            | Expected::Prepare(_)
            | Expected::InsertId
            | Expected::FoundRows
            | Expected::Discard(_)
            | Expected::Reset
            | Expected::ChangeUser
            | Expected::Ping => self.go_on(key),
        }
        Ok(())
    }

    /// A reply to a statement of Weir's own is in: the holder's work goes on, or a connection without a holder
    /// goes to the next.
    pub(crate) fn go_on(&mut self, key: ConnectionKey) {
        let connection = &self.pools.connections[key];
        if connection.holder.is_some() {
            self.prepare_connection(key);
        } else if connection.expected.is_empty() && !self.pools.servers[connection.server].idle.contains(&key)
        {
            self.pools.offer(&mut self.ctx, key);
        }
    }

    /// A piece of the reply to a statement of Weir's own.
    fn own_reply(&mut self, key: ConnectionKey, step: Step, bytes: &[u8]) -> Result<(), BrokenReply> {
        let connection = &mut self.pools.connections[key];
        if let Some(Expected::Fetch(fetch)) = connection.expected.front_mut() {
            fetch.take(step, bytes);
            if let Step::Control(Control::Err, _) = step {
                self.own_statement_failed(key, &bytes[HEADER_LEN..]);
            }
            return Ok(());
        }
        let Step::Control(control, _) = step else {
            let asks = matches!(
                connection.expected.front(),
                Some(
                    Expected::Settle(_)
                        | Expected::Moving
                        | Expected::Verify
                        | Expected::Tracks
                        | Expected::Defaults(_)
                )
            );
            if asks && matches!(step, Step::Pass(_)) {
                self.pools.connections[key].settle_row(bytes);
            }
            return Ok(());
        };
        let payload = &bytes[HEADER_LEN..];
        match control {
            Control::Err => self.own_statement_failed(key, payload),
            Control::PrepareOk => self.pools.connections[key].prepared_here(&mut self.ctx, payload),
            Control::Ok | Control::ResultEnd => {
                let ok =
                    OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
                match connection.expected.front() {
                    Some(Expected::Settle(settle)) => {
                        let settle = *settle;
                        self.settle_ok(key, settle, &ok);
                    }
                    Some(Expected::Moving) => self.moving_ok(key, &ok),
                    // Behind a reset that was refused all is the last session's, and nothing to be learned from.
                    Some(Expected::Setup | Expected::Init) if connection.discard_reason.is_some() => {}
                    Some(Expected::Setup) => self.pools.take_defaults(&mut self.ctx, key, &ok),
                    Some(Expected::Init) => self.take_init(key, &ok),
                    Some(Expected::Sync(Some(_))) if connection.is_tracked => {
                        must_report(&ok)?;
                    }
                    _ => {}
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
        let text = self.pools.connections[key].message_from(err.message);
        let (code, sqlstate) = (err.code, err.sqlstate.unwrap_or(*b"HY000"));
        let connection = &mut self.pools.connections[key];
        (connection.row_count, connection.has_conditions) = (None, true);
        let server = self.pools.servers[connection.server].server.endpoint.clone();
        let is_pinned = connection.holder.is_some_and(|holder| !self.sessions[holder].pins.is_empty());
        match connection.expected.front() {
            Some(Expected::Sync(_)) if is_pinned => {
                self.sync_failed_on_lease(key, ServerError { code, sqlstate }, &text);
            }
            Some(Expected::Sync(_)) => self.sync_failed(key, ServerError { code, sqlstate }, &text),
            Some(Expected::Prepare(_)) => {
                if let Some(holder) = connection.holder {
                    self.prepare_refused(key, holder, ServerError { code, sqlstate }, &text);
                }
            }
            Some(Expected::Setup) => {
                self.set_up_failed(key, Some(code), &format!("session tracking: error {code}: {text}"));
            }
            Some(Expected::Init) => {
                self.set_up_failed(key, None, &format!("init_connect: error {code}: {text}"));
            }
            Some(Expected::Reset | Expected::Leave | Expected::Verify) => {
                connection.discard_reason = Some(DiscardReason::SyncFailed);
            }
            // The role of before would be the next user's.
            Some(Expected::LeaveRole) => self.pools.dial_instead(&mut self.ctx, key),
            Some(Expected::Kill) => tracing::info!(server, code, text, "KILL was refused"),
            Some(Expected::Settle(_)) => self.settle_refused(key, ServerError { code, sqlstate }, &text),
            Some(Expected::Moving) => self.moving_refused(key, code, &text),
            Some(Expected::Carried) => self.carried_refused(key, ServerError { code, sqlstate }, &text),
            Some(Expected::Fetch(_)) => self.fetch_refused(key, ServerError { code, sqlstate }, &text),
            Some(Expected::FoundRows) => self.found_rows_refused(key, ServerError { code, sqlstate }, &text),
            Some(Expected::InsertId) => self.insert_id_refused(key, ServerError { code, sqlstate }, &text),
            _ => {}
        }
    }

    /// SET last_insert_id in front of a statement was refused. If the statement has not been sent, it gets the error:
    /// inside a transaction it is Galera's 1213, which was meant for the client's next command.
    pub(crate) fn insert_id_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        self.pools.connections[key].insert_id = None;
        let Some(holder) = self.pools.connections[key].holder else { return };
        let session = &mut self.sessions[holder];
        session.has_own_insert_id = false;
        if session.execution.is_sent {
            // It runs behind the refused SET: what it does with another session's id is not to be told as a success.
            let message =
                format!("{text} (in front of the statement, which may or may not have taken effect)");
            return self.fail_session(holder, OUTCOME_UNKNOWN, &message);
        }
        self.pools.refused_in_front(&mut self.ctx, &mut self.sessions[holder], key, error, text);
    }

    /// What was to make a statement ready is refused on a lease that can't be left: the lease is as it was, but for a SET
    /// in front of a USE that is refused, and the client gets the server's error for its statement.
    fn sync_failed_on_lease(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        let Some(holder) = connection.holder else { return };
        if let Some(Expected::Sync(Some(wanted))) = connection.expected.front()
            && wanted.schema() != connection.state.schema()
        {
            let state = wanted.with_schema(connection.state.schema());
            connection.state = self.ctx.interner.intern(state);
        }
        let mut is_half_done = false;
        for (at, expected) in connection.expected.iter_mut().enumerate() {
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
            return self.fail_session(holder, error, text);
        }
        self.pools.reply_error(&mut self.ctx, &mut self.sessions[holder], error, text);
        self.stop_refused(key, holder);
    }

    /// The same as [`Worker::stop_running`] behind an error of the server.
    pub(crate) fn stop_refused(&mut self, key: ConnectionKey, holder: SessionKey) {
        if self.sessions[holder].pins.pins().contains(Pins::TRANSACTION) {
            return self.pools.connections[key].settle_after_error(&mut self.ctx, &mut self.sessions[holder]);
        }
        self.stop_running(holder);
    }

    /// The session's state could not be brought to a connection: a schema that is gone, a variable that this
    /// server does not take.
    fn sync_failed(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        connection.discard_reason = Some(DiscardReason::SyncFailed);
        let Some(holder) = connection.holder else { return };
        let server = self.pools.servers[connection.server].server.endpoint.clone();
        // Whatever was sent behind it is none of the client's business any more, and nothing else may run.
        for expected in self.pools.connections[key].expected.iter_mut().skip(1) {
            expected.discard();
        }
        let session = &mut self.sessions[holder];
        if !session.pins.is_empty() {
            // What the session has here can't go elsewhere, and how far its state got here is not known.
            let pins = session.pins.pins().words();
            let message = format!(
                "{text} (carrying the session's state to {server}); with the session ends its {pins}"
            );
            return self.fail_session(holder, error, &message);
        }
        let retries = self.ctx.snapshot.variables.connect_retries_on_failure;
        if is_wsrep_refusal(error.code, text.as_bytes())
            && session.upload.is_none()
            && session.execution.attempts <= retries
        {
            let server = self.pools.connections[key].server;
            self.pools.suspect(&self.ctx, server);
            self.sessions[holder].lose_lease();
            let session = &mut self.sessions[holder];
            session.execution.attempts += 1;
            session.phase = Phase::Waiting(self.ctx.now);
            self.pools.connections[key].holder = None;
            return self.acquire(holder);
        }
        let session = &mut self.sessions[holder];
        let goes_to_writer = session.execution.is_read && !session.execution.writer_only;
        let is_schema = matches!(error.code, 1044 | 1049);
        tracing::info!(
            session = session.id,
            server,
            code = error.code,
            text,
            "a server rejected a session's state"
        );
        self.sessions[holder].lose_lease();
        self.pools.connections[key].holder = None;
        if goes_to_writer && !is_schema {
            let session = &mut self.sessions[holder];
            session.execution.writer_only = true;
            session.execution.attempts += 1;
            session.phase = Phase::Waiting(self.ctx.now);
            return self.acquire(holder);
        }
        let message = if is_schema {
            text.to_owned()
        } else {
            format!("{text} (carrying the session's state to {server})")
        };
        self.pools.reply_error(&mut self.ctx, &mut self.sessions[holder], error, &message);
        self.answered_here(holder);
    }

    /// The session's work ends with an error that has been queued; its lease stays if it must.
    pub(crate) fn stop_running(&mut self, holder: SessionKey) {
        let stays = !self.sessions[holder].pins.is_empty();
        if !stays {
            self.pools.detach(&mut self.ctx, &mut self.sessions[holder]);
        }
        self.answered_here(holder);
    }

    fn reply_broken(&mut self, key: ConnectionKey, broken: BrokenReply) {
        let server = &self.pools.servers[self.pools.connections[key].server].server.endpoint;
        tracing::error!(server, %broken, "server broke the protocol: closing the connection");
        self.pools.connections[key].discard_reason = Some(DiscardReason::BrokenReply);
        self.server_gone(key);
    }

    /// A connection is gone: what ran there is retried, or its client is told.
    pub(crate) fn server_gone(&mut self, key: ConnectionKey) {
        let connection = &mut self.pools.connections[key];
        if connection.stage != Stage::Ready || matches!(connection.purpose, Purpose::Kill(_)) {
            return self.pools.dial_failed(
                &mut self.ctx,
                key,
                None,
                "the server closed the connection during the login",
            );
        }
        let holder = connection.holder.take();
        let server = connection.server;
        if connection.discard_reason.is_none() && connection.kills_pending == 0 {
            self.pools.suspect_briefly(&self.ctx, server);
        }
        let lost = self.pools.connections[key].loss_of();
        let breaks_off = self.pools.connections[key].breaks_off();
        let endpoint = self.pools.servers[server].server.endpoint.clone();
        self.pools.discard(&mut self.ctx, key, None);
        self.hear();
        let Some(holder) = holder else { return };
        if self.sessions[holder].lease != Some(key) {
            return self.aside_lost(holder, &endpoint);
        }
        self.lease_lost(holder, lost, &endpoint, breaks_off);
    }

    /// Everything queued for a server has been sent: its client may go on sending.
    pub(crate) fn server_drained(&mut self, key: ConnectionKey) {
        if let Some(holder) = self.pools.connections[key].holder {
            let session = &self.sessions[holder];
            let socket = session.socket;
            self.ctx.out.pause(socket, false);
            if matches!(session.phase, Phase::Idle) {
                self.ctx.runnable.push_back((holder, socket));
            }
        }
    }

    /// The client is gone, or has to go: its lease is rolled back, its statement killed.
    pub(crate) fn abandon(&mut self, key: SessionKey) {
        self.pools.leave_queues(&self.sessions[key]);
        self.pools.forget_retained(&mut self.sessions[key]);
        self.abandon_lease(key);
        if self.sessions[key].recall_lease(&mut self.ctx) {
            self.abandon_lease(key);
        }
    }

    /// The same for the lease alone.
    pub(crate) fn abandon_lease(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let Some(lease) = session.lease.take() else { return };
        let pins = session.pins.pins();
        let is_running = matches!(session.phase, Phase::Running);
        let is_flowing = session.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        let is_uploading = is_running && (is_flowing || session.infile.is_some());
        self.pools.connections[lease].holder = None;
        if is_uploading {
            // The server waits for the rest of a command, or of a file, that will never come.
            return self.pools.discard(&mut self.ctx, lease, Some(DiscardReason::ClientGone));
        }
        // However it is given back: what it may have is to be proven gone.
        self.pools.connections[lease].is_suspect |= pins.intersects(Pins::OPAQUE);
        let expected = &self.pools.connections[lease].expected;
        let owes_answer = expected.iter().any(|e| matches!(e, Expected::Relay(_) | Expected::Prepare(_)));
        let outlives_reset = pins.intersects(Pins::OUTLIVE_RESET);
        let is_asked_for_collation = matches!(expected.back(), Some(Expected::Settle(Settle::Collation)));
        if is_asked_for_collation && expected.len() == 1 && !outlives_reset {
            // The client has its answer, and Weir will have its own in a moment: see `finish_abandoned`. After an
            // error nothing of the kind: then not even the connection's schema is known.
        } else if owes_answer {
            self.pools.connections[lease].discard_reason = Some(DiscardReason::ClientGone);
            let socket = self.pools.connections[lease].socket;
            self.ctx.out.pause(socket, false);
            if self.ctx.snapshot.variables.kill_backend_connection_when_disconnect {
                self.pools.kill_backend(&mut self.ctx, lease, false);
            }
        } else if pins.is_empty() && self.pools.connections[lease].expected.is_empty() {
            self.pools.offer(&mut self.ctx, lease);
            self.hear();
        } else if self.pools.connections[lease].expected.is_empty() {
            self.pools.recycle(&mut self.ctx, lease, pins);
            self.hear();
        } else {
            self.pools.connections[lease].discard_reason = Some(DiscardReason::ClientGone);
        }
    }

    pub(crate) fn dial_timed_out(&mut self, socket: SocketId) {
        if let Some(crate::outbox::Owner::Server(key)) = self.ctx.out.owner(socket) {
            if self.pools.connections[key].stage == Stage::HandingOver {
                // MariaDB takes a second to refuse a COM_CHANGE_USER, and says no to a new connection at once.
                return self.pools.dial_instead(&mut self.ctx, key);
            }
            let timeout = self.ctx.snapshot.variables.connect_timeout_server.as_millis();
            self.pools.dial_failed(
                &mut self.ctx,
                key,
                None,
                &format!("no connection within {timeout} ms (connect_timeout_server)"),
            );
        }
    }
}

impl Pools {
    /// A connection broke: the monitor is to look at the server at once.
    fn suspect_briefly(&self, ctx: &Context, server: crate::worker::keys::ServerIndex) {
        let endpoint = &self.servers[server].server.endpoint;
        ctx.shared.suspect(endpoint);
    }
}

impl ServerConnection {
    /// TLS stands: the login goes on in it.
    pub(crate) fn server_encrypted(&mut self, ctx: &mut Context) {
        let Some(login) = &mut self.login else { return };
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            login.encrypted(buffer);
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

    /// 1105 with a text, for refusals of Weir's own.
    pub(crate) fn refuse(&mut self, ctx: &mut Context, session: &mut Session, message: &str) {
        self.reply_error(ctx, session, error::UNKNOWN_ERROR, message);
    }
}
