//! Reads and writes connection attributes.

use crate::wire::{Malformed, Reader, put_lenenc_bytes};

/// Connection attributes: what a driver tells about itself, as pairs of strings
/// (`_client_name`, `program_name`, ...).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectAttributes<'a> {
    encoded: &'a [u8],
}

impl<'a> ConnectAttributes<'a> {
    /// Checks that `encoded`, the content of the length-encoded attribute string, is made of
    /// whole pairs.
    pub fn parse(encoded: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(encoded);
        while !reader.is_empty() {
            reader.lenenc_bytes()?;
            reader.lenenc_bytes()?;
        }
        Ok(ConnectAttributes { encoded })
    }

    /// Appends a pair to a buffer that [`ConnectAttributes::parse`] takes.
    pub fn put(encoded: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        put_lenenc_bytes(encoded, key);
        put_lenenc_bytes(encoded, value);
    }

    /// The pairs as they are on the wire, without the length in front.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.encoded
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// Keys and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || Some((reader.lenenc_bytes().ok()?, reader.lenenc_bytes().ok()?)))
    }

    /// The value of `key`, the first if it comes twice.
    pub fn value(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.iter().find_map(|(name, value)| (name == key).then_some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_survive_the_wire() {
        let mut encoded = Vec::new();
        ConnectAttributes::put(&mut encoded, b"_os", b"Linux");
        ConnectAttributes::put(&mut encoded, b"program_name", b"");
        let attributes = ConnectAttributes::parse(&encoded).unwrap();
        assert_eq!(attributes.value(b"_os"), Some(&b"Linux"[..]));
        assert_eq!(attributes.value(b"program_name"), Some(&b""[..]));
        assert_eq!(attributes.value(b"_pid"), None);
        assert_eq!(attributes.iter().count(), 2);
    }

    #[test]
    fn half_a_pair_is_an_error() {
        assert_eq!(ConnectAttributes::parse(b"\x03_os"), Err(Malformed::Truncated));
    }
}
