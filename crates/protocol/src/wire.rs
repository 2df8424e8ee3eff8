//! Reads the protocol's basic data types from a payload, and appends them to one.
//!
//! Integers are little-endian. A *length-encoded* integer takes 1, 3, 4 or 9 bytes, told by its
//! first byte; `0xFB` in its place means NULL in a row. (MySQL internals manual, "Basic Data
//! Types".)

use thiserror::Error;

/// A payload that breaks the protocol's grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// A field reaches beyond the end of the payload.
    #[error("the packet ends in the middle of a field")]
    Truncated,
    /// A NUL-terminated string has no NUL.
    #[error("a string in the packet has no end")]
    Unterminated,
    /// The first byte of a length-encoded integer is `0xFF`, or `0xFB` where NULL can't be.
    #[error("0x{0:02X} does not start a length-encoded integer")]
    LengthPrefix(u8),
    /// The payload starts with another byte than this kind of packet does.
    #[error("a packet starting with 0x{0:02X} is not expected here")]
    UnexpectedHeader(u8),
    /// The peer speaks a version of the protocol from before MySQL 4.1.
    #[error("the protocol from before MySQL 4.1 is not supported")]
    Ancient,
}

/// Reads fields off the front of a payload.
///
/// A failed read leaves the position where it was.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `payload`.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Reader { rest: payload }
    }

    /// Whether all has been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next byte, without reading it.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A 2-byte integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// A 3-byte integer.
    #[inline]
    pub fn u24(&mut self) -> Result<u32, Malformed> {
        self.array().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    /// A 4-byte integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// An 8-byte integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Exactly `N` bytes, as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Exactly `len` bytes.
    #[inline]
    pub fn fixed(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Passes over exactly `len` bytes.
    #[inline]
    pub fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.fixed(len).map(drop)
    }

    /// A length-encoded integer; NULL is an error.
    #[inline]
    pub fn lenenc_int(&mut self) -> Result<u64, Malformed> {
        let mut ahead = *self;
        let value = match ahead.u8()? {
            short @ 0..=0xFA => u64::from(short),
            0xFC => u64::from(ahead.u16()?),
            0xFD => u64::from(ahead.u24()?),
            0xFE => ahead.u64()?,
            other @ (0xFB | 0xFF) => return Err(Malformed::LengthPrefix(other)),
        };
        *self = ahead;
        Ok(value)
    }

    /// Bytes with a length-encoded length in front; NULL is an error.
    #[inline]
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let mut ahead = *self;
        let len = usize::try_from(ahead.lenenc_int()?).map_err(|_| Malformed::Truncated)?;
        let bytes = ahead.fixed(len)?;
        *self = ahead;
        Ok(bytes)
    }

    /// Bytes with a length-encoded length in front, or `None` for NULL, as in a text row.
    #[inline]
    pub fn lenenc_bytes_or_null(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() == Some(0xFB) {
            self.skip(1)?;
            return Ok(None);
        }
        self.lenenc_bytes().map(Some)
    }

    /// Bytes up to a NUL, which is read but not returned.
    #[inline]
    pub fn nul_terminated(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Malformed::Unterminated)?;
        let bytes = self.fixed(end)?;
        self.skip(1)?;
        Ok(bytes)
    }

    /// Bytes up to a NUL or, if there is none, to the end: some peers leave the NUL out of the
    /// last string of a packet.
    #[inline]
    pub fn nul_terminated_or_rest(&mut self) -> &'a [u8] {
        self.nul_terminated().unwrap_or_else(|_| self.rest())
    }

    /// Everything not read yet; the reader is empty afterwards.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

/// Appends a 2-byte integer.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a 3-byte integer: the low 24 bits of `value`.
#[inline]
pub fn put_u24(out: &mut Vec<u8>, value: u32) {
    let [a, b, c, _] = value.to_le_bytes();
    out.extend_from_slice(&[a, b, c]);
}

/// Appends a 4-byte integer.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends an 8-byte integer.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a length-encoded integer in its shortest form.
#[inline]
pub fn put_lenenc_int(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0xFA => out.push(value as u8),
        0xFB..=0xFFFF => {
            out.push(0xFC);
            put_u16(out, value as u16);
        }
        0x1_0000..=0xFF_FFFF => {
            out.push(0xFD);
            put_u24(out, value as u32);
        }
        _ => {
            out.push(0xFE);
            put_u64(out, value);
        }
    }
}

/// Bytes that [`put_lenenc_int`] appends for `value`.
#[inline]
pub fn lenenc_int_len(value: u64) -> usize {
    match value {
        0..=0xFA => 1,
        0xFB..=0xFFFF => 3,
        0x1_0000..=0xFF_FFFF => 4,
        _ => 9,
    }
}

/// Appends `bytes` with their length-encoded length in front.
#[inline]
pub fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc_int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that [`put_lenenc_bytes`] appends for a string of `len` bytes.
#[inline]
pub fn lenenc_bytes_len(len: usize) -> usize {
    lenenc_int_len(len as u64) + len
}

/// Appends `bytes` and a NUL.
///
/// What follows a NUL inside `bytes` is left out: the receiver would take it for the next field.
#[inline]
pub fn put_nul_terminated(out: &mut Vec<u8>, bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    out.extend_from_slice(bytes.split_at(end).0);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lenenc_integers_take_the_documented_forms() {
        for (value, bytes) in [
            (0, &[0][..]),
            (0xFA, &[0xFA]),
            (0xFB, &[0xFC, 0xFB, 0]),
            (0xFFFF, &[0xFC, 0xFF, 0xFF]),
            (0x1_0000, &[0xFD, 0, 0, 1]),
            (0xFF_FFFF, &[0xFD, 0xFF, 0xFF, 0xFF]),
            (0x100_0000, &[0xFE, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            put_lenenc_int(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(lenenc_int_len(value), bytes.len());
            assert_eq!(Reader::new(bytes).lenenc_int(), Ok(value));
        }
    }

    #[test]
    fn null_is_a_value_only_where_rows_have_it() {
        assert_eq!(Reader::new(&[0xFB]).lenenc_int(), Err(Malformed::LengthPrefix(0xFB)));
        assert_eq!(Reader::new(&[0xFF]).lenenc_bytes(), Err(Malformed::LengthPrefix(0xFF)));
        assert_eq!(Reader::new(&[0xFB]).lenenc_bytes_or_null(), Ok(None));
        assert_eq!(Reader::new(&[0]).lenenc_bytes_or_null(), Ok(Some(&[][..])));
    }

    #[test]
    fn a_huge_length_is_an_error_and_not_an_allocation() {
        let bytes = [0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, b'x'];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.lenenc_bytes(), Err(Malformed::Truncated));
        assert_eq!(reader.remaining(), bytes.len(), "a failed read must not move");
    }

    #[test]
    fn strings_end_at_nul_or_at_the_end_where_that_is_allowed() {
        let mut reader = Reader::new(b"ab\0cd");
        assert_eq!(reader.nul_terminated(), Ok(&b"ab"[..]));
        assert_eq!(reader.nul_terminated(), Err(Malformed::Unterminated));
        assert_eq!(reader.nul_terminated_or_rest(), b"cd");
        assert!(reader.is_empty());
        let mut out = Vec::new();
        put_nul_terminated(&mut out, b"user\0evil");
        assert_eq!(out, b"user\0");
    }

    proptest! {
        #[test]
        fn fields_survive_the_wire(a: u8, b: u16, c in 0u32..0x100_0000, d: u32, e: u64, f: u64,
                                   g in proptest::collection::vec(any::<u8>(), 0..400),
                                   h in "[a-z]{0,20}") {
            let mut out = vec![a];
            put_u16(&mut out, b);
            put_u24(&mut out, c);
            put_u32(&mut out, d);
            put_u64(&mut out, e);
            put_lenenc_int(&mut out, f);
            put_lenenc_bytes(&mut out, &g);
            put_nul_terminated(&mut out, h.as_bytes());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.u8(), Ok(a));
            prop_assert_eq!(reader.u16(), Ok(b));
            prop_assert_eq!(reader.u24(), Ok(c));
            prop_assert_eq!(reader.u32(), Ok(d));
            prop_assert_eq!(reader.u64(), Ok(e));
            prop_assert_eq!(reader.lenenc_int(), Ok(f));
            prop_assert_eq!(reader.lenenc_bytes(), Ok(&g[..]));
            prop_assert_eq!(reader.nul_terminated(), Ok(h.as_bytes()));
            prop_assert!(reader.is_empty());
            prop_assert_eq!(lenenc_bytes_len(g.len()), lenenc_int_len(g.len() as u64) + g.len());
        }
    }
}
