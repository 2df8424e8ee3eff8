//! Computes mysql_native_password: challenge and response with SHA-1.
//!
//! The server stores `SHA1(SHA1(password))` (stage 2). The client answers a scramble with
//! `SHA1(password) XOR SHA1(scramble + SHA1(SHA1(password)))`, from which whoever knows stage 2
//! gets stage 1, and with it the means to answer another server's scramble. (MySQL manual,
//! "Native Authentication".)

use std::fmt;

use sha1::{Digest, Sha1};

use crate::auth::double_hash::{self, Hash, Stage1, Stage2};
use crate::handshake::Scramble;

/// Bytes of a SHA-1 hash, and of the response.
pub const HASH_LEN: usize = 20;

/// The answer to `scramble`, or `None` for the empty password, whose answer is no bytes at all.
pub fn response(password: &[u8], scramble: &Scramble) -> Option<[u8; HASH_LEN]> {
    double_hash::response::<Sha1Hash, HASH_LEN>(password, scramble)
}

/// SHA-1, with the scramble in front of stage 2.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha1Hash;

impl Hash<HASH_LEN> for Sha1Hash {
    fn of(bytes: &[u8]) -> [u8; HASH_LEN] {
        Sha1::digest(bytes).into()
    }

    fn mask(stage2: &[u8; HASH_LEN], scramble: &Scramble) -> [u8; HASH_LEN] {
        Sha1::new().chain_update(scramble).chain_update(stage2).finalize().into()
    }
}

/// `SHA1(password)`: enough to log in, never stored by a server.
pub type HashStage1 = Stage1<Sha1Hash, HASH_LEN>;

/// `SHA1(SHA1(password))`: what a server stores, written as `*` and 40 hexadecimal digits.
pub type HashStage2 = Stage2<Sha1Hash, HASH_LEN>;

impl HashStage2 {
    /// Reads `*` and 40 hexadecimal digits of either case, as `PASSWORD()` gives them; `None` for
    /// anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(b"*").filter(|digits| digits.len() == 2 * HASH_LEN)?;
        let mut hash = [0; HASH_LEN];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            for &digit in pair {
                *byte = *byte << 4 | char::from(digit).to_digit(16)? as u8;
            }
        }
        Some(Self::from_bytes(hash))
    }
}

/// `*` and 40 upper-case hexadecimal digits.
impl fmt::Display for HashStage2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAMBLE: &Scramble = b"abcdefghijklmnopqrst";

    #[test]
    fn known_hash_and_response() {
        // SELECT PASSWORD('app') on MariaDB 10.11; the response from Python's hashlib.
        assert_eq!(HashStage2::of(b"app").to_string(), "*5BCB3E6AC345B435C7C2E6B7949A04CE6F6563D3");
        assert_eq!(
            response(b"app", SCRAMBLE).unwrap(),
            [
                0x9B, 0x7D, 0x58, 0x72, 0xD8, 0x4E, 0x55, 0xF2, 0xA3, 0xC7, 0xAB, 0x9D, 0xFC, 0x24, 0x40,
                0x2D, 0x68, 0xA5, 0x10, 0x40
            ]
        );
        assert_eq!(response(b"", SCRAMBLE), None);
    }

    /// Scramble and response of a login to MariaDB 10.11 as `app` with password `app`.
    #[test]
    fn a_captured_login_is_verified() {
        let scramble = b".Q1?(Hr)nstoO|D}k~[+";
        let response = b"\xfb\xf4\x98J\x87\xa5\x06\xa6\x7fN6\x96\x1b\x15\x84\xb8\xed\xa6n$";
        assert_eq!(HashStage2::of(b"app").verify(response, scramble), Some(HashStage1::of(b"app")));
        assert_eq!(HashStage2::of(b"App").verify(response, scramble), None);
    }

    #[test]
    fn only_the_documented_text_is_a_hash() {
        let text = HashStage2::of(b"app").to_string();
        assert_eq!(HashStage2::parse(text.as_bytes()), Some(HashStage2::of(b"app")));
        assert_eq!(HashStage2::parse(text.to_lowercase().as_bytes()), Some(HashStage2::of(b"app")));
        for wrong in [&text[1..], &text[..40], "*", "", "*5BCB3E6AC345B435C7C2E6B7949A04CE6F6563D+"] {
            assert_eq!(HashStage2::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", HashStage1::of(b"app")), "HashStage1(..)");
    }
}
