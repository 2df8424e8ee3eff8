//! Computes MariaDB's ed25519: the client signs 32 bytes of the server's with a key made of its password.
//!
//! It is Ed25519 (RFC 8032) except that the secret is the password, of any length, where the
//! standard has a seed of 32 bytes: the secret scalar and the prefix are the SHA-512 of the password.
//! (MariaDB Knowledge Base, "Authentication Plugin - ed25519".)

use ::sha2::{Digest, Sha512};
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};

use crate::auth::CLEAR_TEXT_LEN_MAX;

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

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::Signature;

    /// MariaDB stores the public key: `SELECT ed25519_password('secret')`, from its documentation.
    #[test]
    fn the_key_is_the_one_that_mariadb_stores() {
        let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(b"secret").into());
        let public = VerifyingKey::from(&secret);
        let text = pem::encode(&pem::Pem::new("KEY", public.as_bytes().as_slice()));
        assert!(text.contains("ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY="), "{text}");
        let nonce = [7; NONCE_LEN];
        let signature = Signature::from_bytes(&response(b"secret", &nonce).unwrap());
        assert!(public.verify_strict(&nonce, &signature).is_ok());
        let other = Signature::from_bytes(&response(b"Secret", &nonce).unwrap());
        assert!(public.verify_strict(&nonce, &other).is_err());
        assert_eq!(response(&[b'x'; CLEAR_TEXT_LEN_MAX + 1], &nonce), None);
    }
}
