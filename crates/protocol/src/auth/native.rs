//! Computes mysql_native_password: challenge and response with SHA-1.
//!
//! The server stores `SHA1(SHA1(password))` (stage 2). The client answers a scramble with
//! `SHA1(password) XOR SHA1(scramble + SHA1(SHA1(password)))`, from which whoever knows stage 2
//! gets stage 1, and with it the means to answer another server's scramble. (MySQL manual,
//! "Native Authentication".)

use std::fmt;

use sha1::{Digest, Sha1};

use crate::auth::{constant_time_eq, xor};
use crate::handshake::Scramble;

/// Bytes of a SHA-1 hash, and of the response.
pub const HASH_LEN: usize = 20;

/// The answer to `scramble`, or `None` for the empty password, whose answer is no bytes at all.
pub fn response(password: &[u8], scramble: &Scramble) -> Option<[u8; HASH_LEN]> {
    (!password.is_empty()).then(|| HashStage1::of(password).response(scramble))
}

/// `SHA1(password)`: enough to log in, never stored by a server.
#[derive(Clone, PartialEq, Eq)]
pub struct HashStage1([u8; HASH_LEN]);

impl HashStage1 {
    /// Hashes a password once.
    pub fn of(password: &[u8]) -> Self {
        HashStage1(Sha1::digest(password).into())
    }

    /// What a server stores.
    pub fn stage2(&self) -> HashStage2 {
        HashStage2(Sha1::digest(self.0).into())
    }

    /// The answer to `scramble`.
    pub fn response(&self, scramble: &Scramble) -> [u8; HASH_LEN] {
        xor(&self.0, &self.stage2().mask(scramble))
    }
}

impl fmt::Debug for HashStage1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashStage1(..)")
    }
}

/// `SHA1(SHA1(password))`: what a server stores, written as `*` and 40 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct HashStage2([u8; HASH_LEN]);

impl HashStage2 {
    /// Hashes a password twice.
    pub fn of(password: &[u8]) -> Self {
        HashStage1::of(password).stage2()
    }

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
        Some(HashStage2(hash))
    }

    /// Checks a client's answer to `scramble`, and takes the password's stage 1 out of it.
    pub fn verify(&self, response: &[u8], scramble: &Scramble) -> Option<HashStage1> {
        let response: &[u8; HASH_LEN] = response.try_into().ok()?;
        let stage1 = HashStage1(xor(response, &self.mask(scramble)));
        constant_time_eq(&stage1.stage2().0, &self.0).then_some(stage1)
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; HASH_LEN] {
        &self.0
    }

    fn mask(&self, scramble: &Scramble) -> [u8; HASH_LEN] {
        Sha1::new().chain_update(scramble).chain_update(self.0).finalize().into()
    }
}

/// `*` and 40 upper-case hexadecimal digits.
impl fmt::Display for HashStage2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for HashStage2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashStage2(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn the_response_gives_stage_1_to_who_knows_stage_2(password: Vec<u8>, scramble: Scramble,
                                                           other: Scramble, flip in 0..160usize) {
            prop_assume!(!password.is_empty() && other != scramble);
            let stored = HashStage2::of(&password);
            let mut answer = response(&password, &scramble).unwrap();
            let stage1 = stored.verify(&answer, &scramble).unwrap();
            prop_assert_eq!(stage1.response(&other), response(&password, &other).unwrap());
            prop_assert!(stored.verify(&answer, &other).is_none());
            answer[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(stored.verify(&answer, &scramble).is_none());
        }
    }
}
