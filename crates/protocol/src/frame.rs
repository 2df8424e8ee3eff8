//! Finds packet boundaries: a 3-byte little-endian payload length and a 1-byte sequence number in front of every
//! payload.
//!
//! A payload of [`PAYLOAD_MAX`] bytes or more travels as several packets: each but the last is
//! exactly full, and the last is shorter, empty if need be. (MySQL internals manual, "MySQL
//! Packets"; MariaDB, "0-packet".)

/// Bytes of a packet header.
pub const HEADER_LEN: usize = 4;

/// Payload bytes of a full packet; a full packet is always continued by another one.
pub const PAYLOAD_MAX: usize = 0xFF_FFFF;

/// The header in front of every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Payload bytes that follow, at most [`PAYLOAD_MAX`].
    pub len: usize,
    /// Position of the packet within its exchange, wrapping after 255.
    pub seq: u8,
}

impl Header {
    /// The header at the start of `bytes`, or `None` while fewer than [`HEADER_LEN`] are there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let &[a, b, c, seq, ..] = bytes else { return None };
        Some(Header { len: u32::from_le_bytes([a, b, c, 0]) as usize, seq })
    }

    /// The four bytes that go on the wire. Only the low 24 bits of `len` are sent.
    #[inline]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        debug_assert!(self.len <= PAYLOAD_MAX);
        [self.len as u8, (self.len >> 8) as u8, (self.len >> 16) as u8, self.seq]
    }

    /// Whether another packet continues this one's payload.
    #[inline]
    pub fn is_continued(self) -> bool {
        self.len == PAYLOAD_MAX
    }

    /// Header and payload together, in bytes.
    #[inline]
    pub fn packet_len(self) -> usize {
        HEADER_LEN + self.len
    }
}

/// Appends `payload` as one packet, or as several if it is too long for one, and moves `seq` to
/// the number the next packet must have.
pub fn write_packet(out: &mut Vec<u8>, seq: &mut u8, payload: &[u8]) {
    let mut rest = payload;
    loop {
        let (part, tail) = rest.split_at(rest.len().min(PAYLOAD_MAX));
        let header = Header { len: part.len(), seq: *seq };
        *seq = seq.wrapping_add(1);
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(part);
        if !header.is_continued() {
            return;
        }
        rest = tail;
    }
}

/// Appends one packet whose payload `fill` appends, and moves `seq` on like [`write_packet`].
pub fn packet(out: &mut Vec<u8>, seq: &mut u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(out);
    fill(out);
    finish(out, start, seq);
}

/// Leaves room for a header at the end of `out` and returns where it is, for [`finish`].
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    start
}

/// Makes everything appended since [`begin`] returned `start` the payload of a packet, and moves
/// `seq` on like [`write_packet`].
///
/// A payload that fits one packet stays where it is; a longer one is moved to make room for the
/// headers in between.
pub fn finish(out: &mut Vec<u8>, start: usize, seq: &mut u8) {
    let body = start + HEADER_LEN;
    debug_assert!(body <= out.len(), "finish() without begin()");
    let len = out.len().saturating_sub(body);
    if len >= PAYLOAD_MAX {
        let payload = out.split_off(body);
        out.truncate(start);
        write_packet(out, seq, &payload);
        return;
    }
    if let Some(room) = out.get_mut(start..body) {
        room.copy_from_slice(&Header { len, seq: *seq }.encode());
        *seq = seq.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reassemble(mut bytes: &[u8], first_seq: u8) -> (Vec<u8>, usize) {
        let (mut payload, mut packets, mut seq) = (Vec::new(), 0, first_seq);
        loop {
            let header = Header::parse(bytes).unwrap();
            assert_eq!(header.seq, seq);
            seq = seq.wrapping_add(1);
            packets += 1;
            payload.extend_from_slice(&bytes[HEADER_LEN..header.packet_len()]);
            bytes = &bytes[header.packet_len()..];
            if !header.is_continued() {
                assert!(bytes.is_empty(), "bytes behind the last packet");
                return (payload, packets);
            }
        }
    }

    #[test]
    fn a_header_needs_four_bytes() {
        assert_eq!(Header::parse(&[1, 0, 0]), None);
        assert_eq!(Header::parse(&[1, 2, 3, 4, 5]), Some(Header { len: 0x03_0201, seq: 4 }));
    }

    #[test]
    fn payloads_around_the_limit_split_as_the_protocol_says() {
        for (len, packets) in [
            (0, 1),
            (1, 1),
            (PAYLOAD_MAX - 1, 1),
            (PAYLOAD_MAX, 2),
            (PAYLOAD_MAX + 1, 2),
            (2 * PAYLOAD_MAX, 3),
        ] {
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let (mut whole, mut in_place) = (Vec::new(), Vec::new());
            let (mut seq_whole, mut seq_in_place) = (254, 254);
            write_packet(&mut whole, &mut seq_whole, &payload);
            packet(&mut in_place, &mut seq_in_place, |out| out.extend_from_slice(&payload));
            assert_eq!(seq_whole, 254u8.wrapping_add(packets as u8));
            assert_eq!(seq_in_place, seq_whole);
            assert!(whole == in_place, "{len} bytes: the two ways of building differ");
            let (back, count) = reassemble(&whole, 254);
            assert_eq!(count, packets, "{len} bytes");
            assert!(back == payload, "{len} bytes changed on the way");
        }
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(len in 0..=PAYLOAD_MAX, seq: u8) {
            let header = Header { len, seq };
            prop_assert_eq!(Header::parse(&header.encode()), Some(header));
        }
    }
}
