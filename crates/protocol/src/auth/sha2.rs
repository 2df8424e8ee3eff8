//! Computes caching_sha2_password: challenge and response with SHA-256, if the server has the password's hash in its
//! cache; otherwise the password itself, over TLS or encrypted with the server's RSA key.
//!
//! The client answers a scramble with
//! `SHA256(password) XOR SHA256(SHA256(SHA256(password)) + scramble)`. The server says in
//! AuthMoreData whether that was enough. (MySQL manual, "Caching_sha2_password information".)
//!
//! ```text
//! client                               server
//! response                      ->
//!                               <-     FAST_AUTH_OK, then OK              (in the cache)
//!                               <-     PERFORM_FULL_AUTHENTICATION        (not in the cache)
//! over TLS: password and NUL    ->
//! else: REQUEST_PUBLIC_KEY      ->
//!                               <-     the key, PEM
//!       RSA-OAEP of obfuscated  ->
//!                               <-     OK or ERR
//! ```

use std::fmt;

use ::sha2::{Digest, Sha256};

use crate::auth::{constant_time_eq, xor};
use crate::handshake::Scramble;

/// Bytes of a SHA-256 hash, and of the response.
pub const HASH_LEN: usize = 32;

/// The client asks for the server's RSA public key: the whole payload of its packet.
pub const REQUEST_PUBLIC_KEY: u8 = 2;
/// The response was right; OK follows. Content of AuthMoreData.
pub const FAST_AUTH_OK: u8 = 3;
/// The server wants the password itself. Content of AuthMoreData.
pub const PERFORM_FULL_AUTHENTICATION: u8 = 4;

/// The answer to `scramble`, or `None` for the empty password, whose answer is no bytes at all.
pub fn response(password: &[u8], scramble: &Scramble) -> Option<[u8; HASH_LEN]> {
    (!password.is_empty()).then(|| HashStage1::of(password).response(scramble))
}

/// XORs a password and the NUL behind it with the scramble, over and over: what is encrypted with
/// the server's RSA key (OAEP). The same again undoes it.
pub fn obfuscate(password: &mut [u8], scramble: &Scramble) {
    for (byte, mask) in password.iter_mut().zip(scramble.iter().cycle()) {
        *byte ^= mask;
    }
}

/// `SHA256(password)`: enough to log in where the password is cached.
#[derive(Clone, PartialEq, Eq)]
pub struct HashStage1([u8; HASH_LEN]);

impl HashStage1 {
    /// Hashes a password once.
    pub fn of(password: &[u8]) -> Self {
        HashStage1(Sha256::digest(password).into())
    }

    /// What a server keeps in its cache.
    pub fn stage2(&self) -> HashStage2 {
        HashStage2(Sha256::digest(self.0).into())
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

/// `SHA256(SHA256(password))`: what a server keeps in its cache.
#[derive(Clone, PartialEq, Eq)]
pub struct HashStage2([u8; HASH_LEN]);

impl HashStage2 {
    /// Hashes a password twice.
    pub fn of(password: &[u8]) -> Self {
        HashStage1::of(password).stage2()
    }

    /// Checks a client's answer to `scramble`, and takes the password's stage 1 out of it.
    pub fn verify(&self, response: &[u8], scramble: &Scramble) -> Option<HashStage1> {
        let response: &[u8; HASH_LEN] = response.try_into().ok()?;
        let stage1 = HashStage1(xor(response, &self.mask(scramble)));
        constant_time_eq(&stage1.stage2().0, &self.0).then_some(stage1)
    }

    fn mask(&self, scramble: &Scramble) -> [u8; HASH_LEN] {
        Sha256::new().chain_update(self.0).chain_update(scramble).finalize().into()
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
    fn known_response() {
        // From Python's hashlib.
        assert_eq!(
            response(b"app", SCRAMBLE).unwrap(),
            [
                0xCC, 0x0B, 0x57, 0xCF, 0x8F, 0xC9, 0x73, 0xF7, 0x19, 0x33, 0xFC, 0x35, 0x85, 0x6F, 0xE7,
                0xA0, 0xD8, 0x11, 0x7E, 0x7E, 0xF1, 0xD6, 0x78, 0xAE, 0x1C, 0xC8, 0x46, 0x2C, 0x1E, 0x56,
                0xEF, 0x9F
            ]
        );
        assert_eq!(response(b"", SCRAMBLE), None);
    }

    #[test]
    fn obfuscation_undoes_itself() {
        let mut password = *b"longer than the twenty bytes of a scramble\0";
        obfuscate(&mut password, SCRAMBLE);
        assert_eq!(password[..2], [b'l' ^ b'a', b'o' ^ b'b']);
        assert_eq!(password[20], b't' ^ b'a', "the scramble starts again");
        obfuscate(&mut password, SCRAMBLE);
        assert_eq!(&password, b"longer than the twenty bytes of a scramble\0");
    }

    proptest! {
        #[test]
        fn the_response_gives_stage_1_to_who_knows_stage_2(password: Vec<u8>, scramble: Scramble,
                                                           other: Scramble, flip in 0..256usize) {
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
