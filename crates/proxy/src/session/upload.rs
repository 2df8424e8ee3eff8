//! Follows the packets of a command that is too long to be kept.

use weir_protocol::frame::{HEADER_LEN, Header, PAYLOAD_MAX};

use crate::plan::execution_plan::CommandKind;
use crate::session::Session;

/// The rest of a command that is too long to be kept.
pub(crate) struct Upload {
    /// Payload bytes of the client's current packet still to come.
    pub packet_left: usize,
    /// Another packet of the same command follows.
    pub continues: bool,
    /// The command has begun to flow to the backend.
    pub is_flowing: bool,
    /// Sequence id of the client's last packet header.
    pub sequence: u8,
    /// Payload bytes that the packet on its way to the server still takes. Packets differ from the client's where
    /// Weir has put something in.
    pub room: usize,
    /// The packet on its way to the server has the greatest length, so that another one follows it.
    pub is_full: bool,
    /// Sequence id of the last packet header sent to the server.
    pub sent_sequence: u8,
    /// All payload bytes of the command so far.
    pub total_bytes: usize,
}

impl Upload {
    /// Whether all of the command has come.
    pub(crate) fn is_complete(&self) -> bool {
        self.packet_left == 0 && !self.continues
    }
}

/// A packet of a long command is out of order, or one too many.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Upload {
    /// So many bytes were put into the first packet, before any of it was passed on: it has less room for the
    /// client's.
    pub(crate) fn make_room(&mut self, added: usize) {
        let (announced, kept) = (self.total_bytes, self.total_bytes - self.packet_left);
        let len = (announced + added).min(PAYLOAD_MAX);
        // The kept part is a small part of a packet, and what is added (types) smaller still.
        self.room = len.saturating_sub(kept + added);
        self.is_full = len == PAYLOAD_MAX;
    }

    /// Takes the client's packets from `bytes` and puts the server's on `out`, as far as they are known. Returns
    /// how many bytes it has used.
    pub(crate) fn pass(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        total_bytes_max: usize,
    ) -> Result<usize, Refused> {
        let mut at = 0;
        loop {
            let part = self.packet_left.min(self.room).min(bytes.len() - at);
            out.extend_from_slice(&bytes[at..at + part]);
            at += part;
            self.packet_left -= part;
            self.room -= part;
            if self.packet_left == 0 && self.continues {
                let Some(header) = Header::parse(&bytes[at..]) else { return Ok(at) };
                self.take_header(header, total_bytes_max)?;
                at += HEADER_LEN;
            } else if self.room == 0 && self.is_full {
                let Some(len) = self.next_len(&bytes[at..]) else { return Ok(at) };
                self.sent_sequence = self.sent_sequence.wrapping_add(1);
                out.extend_from_slice(&Header { len, seq: self.sent_sequence }.encode());
                self.room = len;
                self.is_full = len == PAYLOAD_MAX;
            } else {
                return Ok(at);
            }
        }
    }

    /// Goes over the client's packets in `bytes`, which nobody gets. Returns how many bytes belong to the command.
    pub(crate) fn skip(&mut self, bytes: &[u8], total_bytes_max: usize) -> Result<usize, Refused> {
        let mut at = 0;
        loop {
            let part = self.packet_left.min(bytes.len() - at);
            at += part;
            self.packet_left -= part;
            if self.packet_left > 0 || !self.continues {
                return Ok(at);
            }
            let Some(header) = Header::parse(&bytes[at..]) else { return Ok(at) };
            self.take_header(header, total_bytes_max)?;
            at += HEADER_LEN;
        }
    }

    fn take_header(&mut self, header: Header, total_bytes_max: usize) -> Result<(), Refused> {
        self.sequence = self.sequence.wrapping_add(1);
        self.total_bytes += header.len;
        if header.seq != self.sequence || self.total_bytes > total_bytes_max {
            return Err(Refused);
        }
        self.packet_left = header.len;
        self.continues = header.is_continued();
        Ok(())
    }

    /// How long the next packet to the server is, once that is known: at the end of a client's packet its next
    /// header has to be there.
    fn next_len(&self, bytes: &[u8]) -> Option<usize> {
        let mut rest = self.packet_left;
        if rest < PAYLOAD_MAX && self.continues {
            rest += Header::parse(bytes.get(self.packet_left..)?)?.len;
        }
        Some(rest.min(PAYLOAD_MAX))
    }
}

impl Session {
    /// The command is over. What is still to come of it, or of its file, must never be taken for the next command.
    pub(crate) fn leave_upload(&mut self) {
        self.input.is_cut_short |= self.input.infile.take().is_some();
        self.input.upload = self.input.upload.take().filter(|upload| !upload.is_complete());
        let Some(upload) = &self.input.upload else { return };
        // The server has a part; or the client waits for an answer behind its last packet, whose number is not known yet.
        let is_answered = self.execution.plan.kind() != CommandKind::LongData;
        self.input.is_cut_short |= upload.is_flowing || (upload.continues && is_answered);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_protocol::frame;

    use super::*;

    /// Passes a command of `len` bytes on, of which `kept` have been sent with `added` put in front of them, in
    /// pieces of `piece` bytes; returns the payload and sequence ids as the server sees them.
    fn passed(len: usize, kept: usize, added: usize, piece: usize) -> (usize, Vec<u8>, Upload) {
        let mut stream = Vec::new();
        frame::write_packet(&mut stream, &mut 0, &vec![b'p'; len]);
        let first = Header::parse(&stream).unwrap();
        let kept = kept.min(first.len);
        let mut upload = Upload {
            packet_left: first.len - kept,
            continues: first.is_continued(),
            is_flowing: true,
            sequence: 0,
            room: first.len - kept,
            is_full: first.is_continued(),
            sent_sequence: 0,
            total_bytes: first.len,
        };
        upload.make_room(added);
        let first_len = (first.len + added).min(PAYLOAD_MAX);
        let mut out = Header { len: first_len, seq: 0 }.encode().to_vec();
        out.resize(HEADER_LEN + added, b'a');
        out.extend_from_slice(&stream[HEADER_LEN..HEADER_LEN + kept]);
        let mut inbox = Vec::new();
        for bytes in stream[HEADER_LEN + kept..].chunks(piece) {
            inbox.extend_from_slice(bytes);
            let used = upload.pass(&inbox, &mut out, usize::MAX).unwrap();
            inbox.drain(..used);
        }
        // Nothing may be left to pass, not even an empty packet.
        assert_eq!(upload.pass(&inbox, &mut out, usize::MAX), Ok(0));
        assert!(inbox.is_empty() && upload.is_complete());
        let (mut payload, mut sequences, mut rest) = (0, Vec::new(), out.as_slice());
        loop {
            let header = Header::parse(rest).expect("a packet is missing");
            payload += header.len;
            sequences.push(header.seq);
            rest = &rest[header.packet_len()..];
            if !header.is_continued() {
                break;
            }
        }
        assert!(rest.is_empty(), "{} bytes behind the command", rest.len());
        (payload, sequences, upload)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn what_is_put_in_never_breaks_the_packets(
            packets in 1..=2_usize,
            off in -40_isize..=40,
            added in 0..30_usize,
            piece in prop::sample::select(vec![PAYLOAD_MAX / 3, 1 << 20, PAYLOAD_MAX + 7, 40_000_001]),
        ) {
            let len = (packets * PAYLOAD_MAX).checked_add_signed(off).unwrap();
            let (payload, sequences, upload) = passed(len, 1 << 20, added, piece);
            prop_assert_eq!(payload, len + added);
            let wanted: Vec<u8> = (0..sequences.len() as u8).collect();
            prop_assert_eq!(&sequences, &wanted);
            prop_assert_eq!(Some(&upload.sent_sequence), sequences.last());
        }
    }

    #[test]
    fn what_is_skipped_ends_where_the_command_ends() {
        let kept = 1 << 20;
        for (len, piece) in
            [(kept + 5, 1 << 16), (PAYLOAD_MAX, PAYLOAD_MAX), (2 * PAYLOAD_MAX + 7, 40_000_001)]
        {
            let mut stream = Vec::new();
            frame::write_packet(&mut stream, &mut 0, &vec![b'p'; len]);
            let command_bytes = stream.len();
            stream.extend_from_slice(b"\x01\0\0\0\x0e");
            let first = Header::parse(&stream).unwrap();
            let mut upload = Upload {
                packet_left: first.len - kept,
                continues: first.is_continued(),
                is_flowing: false,
                sequence: 0,
                room: first.len - kept,
                is_full: first.is_continued(),
                sent_sequence: 0,
                total_bytes: first.len,
            };
            let (mut inbox, mut at) = (Vec::new(), HEADER_LEN + kept);
            for bytes in stream[HEADER_LEN + kept..].chunks(piece) {
                inbox.extend_from_slice(bytes);
                let used = upload.skip(&inbox, usize::MAX).unwrap();
                inbox.drain(..used);
                at += used;
            }
            assert!(upload.is_complete());
            assert_eq!(
                (at, &inbox[..]),
                (command_bytes, &b"\x01\0\0\0\x0e"[..]),
                "{len} in pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_header_in_pieces_waits() {
        let (payload, sequences, _) = passed(PAYLOAD_MAX + 5, PAYLOAD_MAX - 3, 2, 1);
        assert_eq!((payload, sequences), (PAYLOAD_MAX + 7, vec![0, 1]));
    }
}
