//! Takes bytes from servers to what they answer: a session's statement, or one of Weir's own.

use weir_protocol::error::ServerError;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::response::{BrokenReply, Control, Step, WHOLE_PACKET_BYTES_MAX};
use weir_session::login::BACKEND_CAPABILITIES;

use crate::keys::ConnectionKey;
use crate::server::connection::{DiscardReason, Expected, Fetch, Purpose, Stage};
use crate::server::fetch::last_numbers;
use crate::session::SavedWarnings;
use crate::session::retained::Retained;
use crate::worker::Worker;

/// A buffer for the begin of a packet stays with its connection up to this size.
pub(crate) const INBOX_BYTES_KEPT: usize = 4 << 10;

impl Worker {
    pub(crate) fn server_data(&mut self, key: ConnectionKey, bytes: &mut [u8]) {
        let socket = self.pools.connections[key].socket;
        let (server, hostgroup) = (self.pools.connections[key].server, self.pools.connections[key].hostgroup);
        self.pools.servers[server].counts.of(hostgroup).bytes_received += bytes.len() as u64;
        self.ctx.statistics.totals.server_bytes_received += bytes.len() as u64;
        let rest = self.complete_front(key, bytes);
        if rest.is_empty() || !self.pools.connections.is(key, socket) {
            return;
        }
        let used = self.read_server(key, rest);
        if used < rest.len() && self.pools.connections.is(key, socket) {
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
            if !self.pools.connections.is(key, socket) {
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
        while self.pools.connections.is(key, socket) {
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

    /// Bytes that nobody asked for: a server says so when it ends a connection.
    pub(crate) fn unasked(&mut self, key: ConnectionKey, bytes: &[u8]) -> Option<usize> {
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
            "the server sent data although no reply was due"
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
        if expected.is_statement() {
            self.pools.servers[connection.server].statement_ends(self.ctx.now);
        }
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
        if let (Some(Expected::Replay), Some(holder)) =
            (connection.replies.expected.front(), connection.holder)
        {
            return self.work(holder).replay_piece(key, step, bytes);
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
    pub(crate) fn own_statement_failed(&mut self, key: ConnectionKey, payload: &[u8]) {
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

impl Worker {
    /// Fetched diagnostics have come.
    pub(crate) fn fetched(&mut self, key: ConnectionKey, fetch: Fetch) {
        if self.sessions.is(fetch.session, fetch.socket) {
            self.ctx.out.pause(fetch.socket, false);
            let session = &mut self.sessions[fetch.session];
            session.diagnostics.fetching -= 1;
            if fetch.what.contains(Retained::WARNINGS) {
                let mut packets = if fetch.has_rows() { fetch.bytes } else { Vec::new() };
                packets.shrink_to_fit();
                session.diagnostics.saved_warnings =
                    Some(Box::new(SavedWarnings { packets, encoding: fetch.encoding }));
            } else if let Some((insert_id, found_rows)) = last_numbers(&fetch.bytes) {
                if fetch.what.contains(Retained::INSERT_ID) {
                    session.diagnostics.last_insert_id = insert_id;
                    session.diagnostics.is_insert_id_lost = false;
                    if let Some(lease) = session.lease() {
                        session.diagnostics.has_own_insert_id =
                            self.pools.connections[lease].known.insert_id == Some(insert_id);
                    }
                    // The taker's own id may have been set behind the question already.
                    self.pools.connections[key].known.insert_id.get_or_insert(insert_id);
                }
                if fetch.what.contains(Retained::FOUND_ROWS) {
                    session.diagnostics.found_rows = Some(found_rows);
                }
            } else {
                session.diagnostics.is_insert_id_lost |= fetch.what.contains(Retained::INSERT_ID);
                if fetch.what.contains(Retained::FOUND_ROWS) {
                    session.diagnostics.found_rows = None;
                }
            }
            self.ctx.runnable.push_back((fetch.session, fetch.socket));
        }
        self.go_on(key);
    }
}
