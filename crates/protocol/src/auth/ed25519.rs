//! Computes MariaDB's ed25519: the client signs 32 bytes of the server's with a key made of its password.
//!
//! It is Ed25519 (RFC 8032) except that the secret is the password, of any length, where the
//! standard has a seed of 32 bytes: the secret scalar and the prefix are the SHA-512 of the password.
//! (MariaDB Knowledge Base, "Authentication Plugin - ed25519".)

use std::fmt;

use ::sha2::{Digest, Sha512};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};

use crate::auth::{CLEAR_TEXT_LEN_MAX, constant_time_eq};

/// Bytes that the server sends to be signed.
pub const NONCE_LEN: usize = 32;

/// The signature of `nonce`; `None` for a password of more than [`CLEAR_TEXT_LEN_MAX`] bytes.
pub fn response(password: &[u8], nonce: &[u8; NONCE_LEN]) -> Option<[u8; 64]> {
    if password.len() > CLEAR_TEXT_LEN_MAX {
        return None;
    }
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
    let public = VerifyingKey::from(&secret);
    Some(raw_sign::<Sha512>(&secret, nonce, &public).to_bytes())
}

/// A public key, as MariaDB stores it for an account: 43 characters of Base64, without the `=` that would follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads the text in `authentication_string`; none for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let bytes = STANDARD_NO_PAD.decode(text).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// That of a password; none for one of more than [`CLEAR_TEXT_LEN_MAX`] bytes.
    pub fn of(password: &[u8]) -> Option<Self> {
        if password.len() > CLEAR_TEXT_LEN_MAX {
            return None;
        }
        let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
        Some(Self(VerifyingKey::from(&secret).to_bytes()))
    }

    /// Whether it is that of this password.
    pub fn is_of(&self, password: &[u8]) -> bool {
        Self::of(password).is_some_and(|key| constant_time_eq(&key.0, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::Signature;

    /// MariaDB stores the public key: `SELECT ed25519_password('secret')`, from its documentation.
    #[test]
    fn the_key_is_the_one_that_mariadb_stores() {
        let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(b"secret").into());
        let public = VerifyingKey::from(&secret);
        let stored = PublicKey::parse(b"ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY").unwrap();
        assert_eq!(stored, PublicKey::of(b"secret").unwrap());
        assert!(stored.is_of(b"secret") && !stored.is_of(b"Secret"));
        for other in [&b""[..], b"secret", b"ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY="] {
            assert_eq!(PublicKey::parse(other), None);
        }
        let nonce = [7; NONCE_LEN];
        let signature = Signature::from_bytes(&response(b"secret", &nonce).unwrap());
        assert!(public.verify_strict(&nonce, &signature).is_ok());
        let other = Signature::from_bytes(&response(b"Secret", &nonce).unwrap());
        assert!(public.verify_strict(&nonce, &other).is_err());
        assert_eq!(response(&[b'x'; CLEAR_TEXT_LEN_MAX + 1], &nonce), None);
    }
}
