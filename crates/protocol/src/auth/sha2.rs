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

use ::sha2::{Digest, Sha256};

use crate::auth::double_hash::{self, Hash, Stage1, Stage2};
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
    double_hash::response::<Sha256Hash, HASH_LEN>(password, scramble)
}

/// XORs a password and the NUL behind it with the scramble, over and over: what is encrypted with
/// the server's RSA key (OAEP). The same again undoes it.
pub fn obfuscate(password: &mut [u8], scramble: &Scramble) {
    for (byte, mask) in password.iter_mut().zip(scramble.iter().cycle()) {
        *byte ^= mask;
    }
}

/// SHA-256, with stage 2 in front of the scramble.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha256Hash;

impl Hash<HASH_LEN> for Sha256Hash {
    fn of(bytes: &[u8]) -> [u8; HASH_LEN] {
        Sha256::digest(bytes).into()
    }

    fn mask(stage2: &[u8; HASH_LEN], scramble: &Scramble) -> [u8; HASH_LEN] {
        Sha256::new().chain_update(stage2).chain_update(scramble).finalize().into()
    }
}

/// `SHA256(password)`: enough to log in where the password is cached.
pub type HashStage1 = Stage1<Sha256Hash, HASH_LEN>;

/// `SHA256(SHA256(password))`: what a server keeps in its cache.
pub type HashStage2 = Stage2<Sha256Hash, HASH_LEN>;

#[cfg(test)]
mod tests {
    use super::*;

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
}
