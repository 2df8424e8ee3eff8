//! Follows the packets of a file that a client sends for LOAD DATA LOCAL.

use weir_protocol::frame::PAYLOAD_MAX;

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
pub(crate) struct OutOfOrder;

impl Infile {
    /// A file whose first packet has this sequence id, at the client and at the server.
    pub(crate) fn new(client_sequence: u8, server_sequence: u8) -> Self {
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
    pub(crate) fn pass(&mut self, bytes: &mut [u8]) -> Result<(usize, bool), OutOfOrder> {
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
    pub(crate) fn sent_sequence(&self) -> u8 {
        self.sequence.wrapping_sub(1).wrapping_sub(self.shift)
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
