//! Relays LOAD DATA LOCAL: the server asks for a file, and the client's packets go to it as they come.
//!
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_local_infile_request.html>)
//! The file is as many packets as the client likes, and an empty one is its end, also where the client has no file.

use weir_protocol::error;
use weir_protocol::frame::PAYLOAD_MAX;
use weir_protocol::response::BrokenReply;

use crate::context::keys::ConnectionKey;
use crate::outbox::BACKLOG_HIGH_BYTES;
use crate::session::Session;
use crate::statement::work::Work;

/// A file on its way from a client to its server.
#[derive(Debug)]
pub(crate) struct Infile {
    /// Payload bytes of the current packet still to come.
    packet_left: usize,
    /// The current packet had the greatest length, so that the next one continues it.
    continues: bool,
    /// Bytes of the next packet's header that have come.
    header_bytes: u8,
    /// The length that they tell.
    len: usize,
    /// Sequence id that the client's next packet must have.
    sequence: u8,
    /// By how much the server's sequence ids are behind the client's.
    shift: u8,
}

/// A packet out of order.
#[derive(Debug, PartialEq, Eq)]
struct OutOfOrder;

impl Infile {
    /// A file whose first packet has this sequence id, at the client and at the server.
    fn new(client_sequence: u8, server_sequence: u8) -> Self {
        Self {
            packet_left: 0,
            continues: false,
            header_bytes: 0,
            len: 0,
            sequence: client_sequence,
            shift: client_sequence.wrapping_sub(server_sequence),
        }
    }

    /// Goes over bytes of the client and changes sequence ids in place. Returns how many of them belong to the
    /// file, and whether that was its end.
    fn pass(&mut self, bytes: &mut [u8]) -> Result<(usize, bool), OutOfOrder> {
        let mut at = 0;
        while let Some(byte) = bytes.get_mut(at) {
            if self.packet_left > 0 {
                let part = self.packet_left.min(bytes.len() - at);
                self.packet_left -= part;
                at += part;
                continue;
            }
            at += 1;
            if self.header_bytes < 3 {
                self.len |= usize::from(*byte) << (8 * self.header_bytes);
                self.header_bytes += 1;
                continue;
            }
            if *byte != self.sequence {
                return Err(OutOfOrder);
            }
            *byte = byte.wrapping_sub(self.shift);
            self.sequence = self.sequence.wrapping_add(1);
            self.header_bytes = 0;
            self.packet_left = std::mem::take(&mut self.len);
            let continued = std::mem::replace(&mut self.continues, self.packet_left == PAYLOAD_MAX);
            if self.packet_left == 0 && !continued {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Sequence id of the client's next packet.
    pub(crate) fn next_sequence(&self) -> u8 {
        self.sequence
    }

    /// The server's sequence id of the last packet.
    fn sent_sequence(&self) -> u8 {
        self.sequence.wrapping_sub(1).wrapping_sub(self.shift)
    }
}

impl Work<'_> {
    /// The server asks for a file. It gets one only if the client's own statement names it: a server that asks for
    /// another is after the client's files.
    pub(crate) fn file_wanted(&mut self, key: ConnectionKey, bytes: &[u8]) -> Result<(), BrokenReply> {
        let &[_, _, _, sequence, 0xFB, ref name @ ..] = bytes else { return Err(BrokenReply::Malformed) };
        if !self.session.names_file(name) {
            let server = &self.pools.servers[self.pools.connections[key].server].server.endpoint;
            let session = self.session.id;
            tracing::error!(server, session, "server asks for a file that the statement does not name");
            return Err(BrokenReply::UnexpectedPacket(0xFB));
        }
        let session = &mut *self.session;
        session.execution.reply.is_answering = true;
        let socket = session.socket;
        self.ctx.out.send(socket, bytes);
        let server_sequence = self.pools.connections[key].replies.reply.server_sequence();
        session.input.infile = Some(Box::new(Infile::new(sequence.wrapping_add(1), server_sequence)));
        // A client that does not wait for the question has sent the beginning already.
        let mut ahead =
            session.input.inbox.split_off(session.input.command_bytes.min(session.input.inbox.len()));
        self.ctx.out.pause(socket, false);
        if !ahead.is_empty() {
            self.send_file(&mut ahead);
        }
        Ok(())
    }

    /// Bytes of a file on their way from the client to the server.
    pub(crate) fn send_file(&mut self, bytes: &mut [u8]) {
        let Some(lease) = self.session.lease else { return };
        if !self.may_flow(lease) {
            return;
        }
        let session = &mut *self.session;
        let Some(infile) = &mut session.input.infile else { return };
        let Ok((used, is_complete)) = infile.pass(bytes) else {
            return self.fail_session(error::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order");
        };
        let (file, rest) = bytes.split_at(used);
        let connection = self.pools.connections[lease].socket;
        self.ctx.out.send(connection, file);
        if is_complete {
            self.pools.connections[lease].replies.reply.local_infile_sent(infile.sent_sequence());
            session.input.infile = None;
            // What follows is the next command.
            session.input.inbox.extend_from_slice(rest);
        } else if self.ctx.out.backlog_bytes(connection) > BACKLOG_HIGH_BYTES {
            self.ctx.out.pause(session.socket, true);
            self.ctx.out.notify_drained(connection);
        }
    }
}

impl Session {
    /// Whether the session's statement is a LOAD DATA LOCAL or LOAD XML LOCAL of this file.
    fn names_file(&self, name: &[u8]) -> bool {
        let text = match (&self.execution.text.prepared, &self.execution.text.rewritten) {
            (Some(prepared), _) => prepared.text(),
            (None, Some(rewritten)) => rewritten,
            (None, None) => self.command_text(),
        };
        weir_sql::names_local_file(text, self.tracked.dialect, name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_protocol::frame::{self, Header};

    use super::*;

    /// The packets of a file in pieces of any size: what goes on, and whether the end was seen where it is.
    fn passed(lens: &[usize], piece: usize, first: u8, server_first: u8) -> (Vec<u8>, bool) {
        let mut sent = Vec::new();
        let mut sequence = first;
        for len in lens {
            frame::write_packet(&mut sent, &mut sequence, &vec![b'x'; *len]);
        }
        let file_bytes = sent.len() + 4;
        frame::write_packet(&mut sent, &mut sequence, b"");
        sent.extend_from_slice(b"\x01\0\0\0\x0e");
        let mut infile = Infile::new(first, server_first);
        let mut out = Vec::new();
        for chunk in sent.chunks_mut(piece) {
            let (used, is_complete) = infile.pass(chunk).unwrap();
            out.extend_from_slice(&chunk[..used]);
            if is_complete {
                let ends_there = out.len() == file_bytes;
                return (
                    out,
                    ends_there
                        && infile.sent_sequence()
                            == sequence.wrapping_sub(1).wrapping_sub(first).wrapping_add(server_first),
                );
            }
        }
        (out, false)
    }

    proptest! {
        #[test]
        fn a_file_passes_whole_and_in_order(
            lens in prop::collection::vec(1..2000_usize, 0..300),
            piece in 1..5000_usize,
            first: u8,
            server_first: u8,
        ) {
            let (out, is_right) = passed(&lens, piece, first, server_first);
            prop_assert!(is_right);
            let (mut rest, mut expected) = (&out[..], server_first);
            for len in lens.iter().chain([&0]) {
                let header = Header::parse(rest).unwrap();
                prop_assert_eq!(header, Header { len: *len, seq: expected });
                expected = expected.wrapping_add(1);
                rest = &rest[header.packet_len()..];
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn an_empty_packet_behind_a_full_one_is_not_the_end() {
        for piece in [1 << 20, PAYLOAD_MAX + 2, 100_000_000] {
            // It is split: a full packet, and an empty one that ends its payload.
            assert!(passed(&[PAYLOAD_MAX, 5], piece, 2, 2).1, "in pieces of {piece}");
            assert!(passed(&[PAYLOAD_MAX], piece, 2, 1).1, "in pieces of {piece}");
        }
    }

    #[test]
    fn packets_out_of_order_are_refused() {
        let mut infile = Infile::new(2, 2);
        assert_eq!(infile.pass(&mut [1, 0, 0, 2, b'x', 0, 0, 0, 2]), Err(OutOfOrder));
    }
}
