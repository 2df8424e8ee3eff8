//! Bytes from servers: logins, replies to Weir's own statements, and the end of a connection.

use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::ErrPacket;
use weir_protocol::response::{BrokenReply, Control, Step, WHOLE_PACKET_BYTES_MAX};
use weir_session::login::BackendStep;
use weir_session::pin::Pins;

use crate::outbox::{Order, SocketId};
use crate::pool::pools::Pools;
use crate::server::connection::{DiscardReason, Expected, Lost, Purpose, ServerConnection, Stage};
use crate::session::execution::Settle;
use crate::session::phase::Phase;
use crate::session::session::Session;
use crate::statement::work::Work;
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::keys::ConnectionKey;

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
            self.pools.connections[key].replies.inbox.extend_from_slice(&rest[used..]);
        }
    }

    /// The packet whose begin is kept gets what it lacks and is read; returns the bytes behind it. Only that packet is
    /// copied, not all that came with its end. The connection may be gone afterwards.
    fn complete_front<'b>(&mut self, key: ConnectionKey, bytes: &'b mut [u8]) -> &'b mut [u8] {
        let socket = self.pools.connections[key].socket;
        let mut inbox = std::mem::take(&mut self.pools.connections[key].replies.inbox);
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
            self.pools.connections[key].replies.inbox = inbox;
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
                matches!(self.pools.connections[key].replies.expected.front(), Some(Expected::LeaveRole));
            let used = if self.pools.connections[key].access.login.is_some() && !leaves_role {
                self.pools.login_bytes(&mut self.ctx, key, rest)
            } else if self.pools.connections[key].replies.expected.is_empty() {
                self.unasked(key, rest)
            } else {
                match self.reply_bytes(key, rest) {
                    Ok(used) => used,
                    Err(broken) => {
                        let connection = &mut self.pools.connections[key];
                        let server = &self.pools.servers[connection.server].server.endpoint;
                        tracing::error!(server, %broken, "server broke the protocol: closing the connection");
                        connection.discard_reason = Some(DiscardReason::BrokenReply);
                        self.server_gone(key);
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
}

impl Pools {
    /// One packet of a login; `None` when it is not there whole.
    fn login_bytes(&mut self, ctx: &mut Context, key: ConnectionKey, bytes: &[u8]) -> Option<usize> {
        let header = Header::parse(bytes)?;
        if header.len > LOGIN_PACKET_BYTES_MAX {
            self.dial_failed(ctx, key, None, "oversized packet during login");
            return Some(bytes.len());
        }
        let end = HEADER_LEN + header.len;
        let payload = bytes.get(HEADER_LEN..end)?;
        let connection = &mut self.connections[key];
        let mut out = Vec::new();
        let step = connection.access.login.as_mut()?.packet(
            header.seq,
            payload,
            &mut connection.access.greeted,
            &mut out,
        );
        let socket = connection.socket;
        ctx.out.send(socket, &out);
        match step {
            BackendStep::Wait => {}
            BackendStep::StartTls => {
                if let Some(tls) = self.connections[key].tls.clone() {
                    ctx.out.order(Order::StartServerTls(socket, tls));
                }
            }
            BackendStep::Ready { thread_id } => {
                let connection = &mut self.connections[key];
                connection.access.greeted.thread_id = thread_id;
                connection.access.login = None;
                let purpose = connection.purpose;
                if matches!(connection.replies.expected.front(), Some(Expected::ChangeUser)) {
                    connection.replies.expected.pop_front();
                }
                self.learn_reading(ctx, key);
                match purpose {
                    Purpose::Pool => self.set_up(ctx, key),
                    Purpose::Kill(kill) => self.connections[key].send_kill(ctx, kill),
                }
            }
            BackendStep::Refused { code, message } => self.dial_failed(ctx, key, code, &message),
            BackendStep::Lacks { missing } => self.break_agreement(ctx, key, missing),
        }
        Some(end)
    }
}

impl Worker {
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
            thread_id = self.pools.connections[key].access.greeted.thread_id,
            ?text,
            "server spoke unasked"
        );
        self.server_gone(key);
        Some(bytes.len())
    }

    /// The next piece of the reply at the front of the queue.
    fn reply_bytes(&mut self, key: ConnectionKey, bytes: &mut [u8]) -> Result<Option<usize>, BrokenReply> {
        let connection = &mut self.pools.connections[key];
        if connection.replies.reply.is_done() {
            self.reply_done(key)?;
            return Ok(Some(0));
        }
        let step = connection.replies.reply.next(bytes)?;
        let is_relay = matches!(connection.replies.expected.front(), Some(Expected::Relay(_)));
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
            match connection.holder {
                Some(holder) => self.work(holder).relay(key, step, &bytes[..used])?,
                // The client that would have the file is gone, and the server would wait for it.
                None if matches!(step, Step::Control(Control::LocalInfile, _)) => {
                    return Err(BrokenReply::UnexpectedPacket(0xFB));
                }
                // It is only read to its end.
                None => {}
            }
        } else {
            self.own_reply(key, step, &bytes[..used])?;
        }
        if self.pools.connections.get(key).is_some_and(|connection| {
            connection.replies.reply.is_done() && !connection.replies.expected.is_empty()
        }) {
            self.reply_done(key)?;
        }
        Ok(Some(used))
    }

    /// The reply at the front is complete.
    fn reply_done(&mut self, key: ConnectionKey) -> Result<(), BrokenReply> {
        let connection = &mut self.pools.connections[key];
        connection.replies.rows = connection.replies.reply.rows();
        let Some(expected) = connection.replies.expected.pop_front() else { return Ok(()) };
        self.pools.servers[connection.server].running -= u32::from(expected.is_statement());
        self.pools.connections[key].replies.restart_reply(self.ctx.now);
        match (expected, self.pools.connections[key].holder) {
            (Expected::Fetch(fetch), _) => self.fetched(key, fetch),
            (expected, Some(holder)) => self.work(holder).reply_complete(key, expected),
            (expected, None) => self.pools.reply_complete(&mut self.ctx, key, expected),
        }
        Ok(())
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
        match connection.holder {
            Some(holder) => self.work(holder).server_gone(key),
            None => {
                self.pools.lose(&mut self.ctx, key);
            }
        }
    }
}

impl Work<'_> {
    /// Everything queued for its server has been sent: the client may go on sending.
    pub(crate) fn server_drained(&mut self) {
        let (key, socket) = (self.session.key, self.session.socket);
        self.ctx.out.pause(socket, false);
        if matches!(self.session.phase, Phase::Idle) {
            self.ctx.runnable.push_back((key, socket));
        }
    }

    /// A connection of the session's is gone.
    pub(crate) fn server_gone(&mut self, key: ConnectionKey) {
        let server = self.pools.connections[key].server;
        let breaks_off = self.pools.connections[key].replies.breaks_off();
        let lost = self.pools.lose(self.ctx, key);
        self.hear();
        let endpoint = self.pools.servers[server].server.endpoint.clone();
        if self.session.lease != Some(key) {
            return self.aside_lost(&endpoint);
        }
        self.lease_lost(lost, &endpoint, breaks_off);
    }

    /// The client is gone, or has to go: its lease is rolled back, its statement killed.
    pub(crate) fn abandon(&mut self) {
        self.pools.leave_queues(self.session);
        self.pools.forget_retained(self.session);
        self.abandon_lease();
        if self.session.recall_lease(self.ctx) {
            self.abandon_lease();
        }
    }

    /// The same for the lease alone.
    pub(crate) fn abandon_lease(&mut self) {
        let session = &mut *self.session;
        let Some(lease) = session.lease.take() else { return };
        let pins = session.pins.pins();
        let is_running = matches!(session.phase, Phase::Running);
        let is_flowing = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        let is_uploading = is_running && (is_flowing || session.input.infile.is_some());
        self.pools.connections[lease].holder = None;
        if is_uploading {
            // The server waits for the rest of a command, or of a file, that will never come.
            return self.pools.discard(self.ctx, lease, Some(DiscardReason::ClientGone));
        }
        // However it is given back: what it may have is to be proven gone.
        self.pools.connections[lease].traces.is_suspect |= pins.intersects(Pins::OPAQUE);
        let expected = &self.pools.connections[lease].replies.expected;
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
                self.pools.kill_backend(self.ctx, lease, false);
            }
        } else if pins.is_empty() && self.pools.connections[lease].replies.expected.is_empty() {
            self.pools.offer(self.ctx, lease);
            self.hear();
        } else if self.pools.connections[lease].replies.expected.is_empty() {
            self.pools.recycle(self.ctx, lease, pins);
            self.hear();
        } else {
            self.pools.connections[lease].discard_reason = Some(DiscardReason::ClientGone);
        }
    }
}

impl Pools {
    pub(crate) fn dial_timed_out(&mut self, ctx: &mut Context, socket: SocketId) {
        if let Some(crate::outbox::Owner::Server(key)) = ctx.out.owner(socket) {
            if self.connections[key].stage == Stage::HandingOver {
                // MariaDB takes a second to refuse a COM_CHANGE_USER, and says no to a new connection at once.
                return self.dial_instead(ctx, key);
            }
            let timeout = ctx.snapshot.variables.connect_timeout_server.as_millis();
            self.dial_failed(
                ctx,
                key,
                None,
                &format!("no connection within {timeout} ms (connect_timeout_server)"),
            );
        }
    }
}

impl Pools {
    /// A connection is gone: the monitor is to look at its server at once.
    fn lose(&mut self, ctx: &mut Context, key: ConnectionKey) -> Lost {
        let connection = &self.connections[key];
        if connection.discard_reason.is_none() && connection.kills_pending == 0 {
            ctx.shared.suspect(&self.servers[connection.server].server.endpoint);
        }
        let lost = connection.loss_of();
        self.discard(ctx, key, None);
        lost
    }
}

impl ServerConnection {
    /// TLS stands: the login goes on in it.
    pub(crate) fn server_encrypted(&mut self, ctx: &mut Context) {
        let Some(login) = &mut self.access.login else { return };
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
