//! Encrypts a password with RSA: caching_sha2_password's full authentication on a connection without TLS.
//!
//! The client XORs its password and the NUL behind it with the scramble and encrypts that with the
//! server's public key, RSA-OAEP with SHA-1 (`RSA_PKCS1_OAEP_PADDING` of OpenSSL, which MySQL's
//! client and server use). The key travels as PEM, SubjectPublicKeyInfo.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey,
    PublicEncryptingKey,
};
use pem::{EncodeConfig, LineEnding, Pem};

use crate::auth::{CLEAR_TEXT_LEN_MAX, sha2};
use crate::handshake::Scramble;

/// Longest PEM of a public key that is looked at, in bytes; one of 4096 bits has 800.
const PEM_LEN_MAX: usize = 4096;

/// Why a key can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not PEM, or something else in it.
    #[error(
        "not a private RSA key in PEM with the words BEGIN PRIVATE KEY (`openssl pkcs8 -topk8 -nocrypt` converts others)"
    )]
    Form,
    /// Not RSA, or not between 2048 and 8192 bits.
    #[error("not an RSA key of at least 2048 bits")]
    Kind,
    /// Randomness or memory ran out.
    #[error("an RSA key can't be made")]
    Make,
}

/// A server's RSA key.
pub struct RsaKey {
    key: OaepPrivateDecryptingKey,
    public_pem: String,
}

impl RsaKey {
    /// Makes a key of 2048 bits, which takes a good part of a second; the text is its PEM, for
    /// [`RsaKey::from_pem`].
    pub fn generate() -> Result<(Self, String), KeyError> {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).map_err(|_| KeyError::Make)?;
        let der = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&key).map_err(|_| KeyError::Make)?;
        let text = encode("PRIVATE KEY", der.as_ref());
        Ok((Self::new(key)?, text))
    }

    /// Reads a private key: PKCS #8 in PEM.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let pem = pem::parse(text).map_err(|_| KeyError::Form)?;
        if pem.tag() != "PRIVATE KEY" {
            return Err(KeyError::Form);
        }
        Self::new(PrivateDecryptingKey::from_pkcs8(pem.contents()).map_err(|_| KeyError::Kind)?)
    }

    fn new(key: PrivateDecryptingKey) -> Result<Self, KeyError> {
        let der = key.public_key().as_der().map_err(|_| KeyError::Kind)?;
        let public_pem = encode("PUBLIC KEY", der.as_ref());
        let key = OaepPrivateDecryptingKey::new(key).map_err(|_| KeyError::Kind)?;
        Ok(Self { key, public_pem })
    }

    /// The public key as it is sent to clients.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// Bytes of what [`seal`] makes with the public key.
    pub fn sealed_len(&self) -> usize {
        self.key.key_size_bytes()
    }

    /// Takes out a password, with the NUL behind it. A millisecond's work: not for a thread that
    /// serves other clients.
    pub fn open(&self, sealed: &[u8], scramble: &Scramble) -> Option<Vec<u8>> {
        let mut password = vec![0; self.key.min_output_size()];
        let len = self.key.decrypt(&OAEP_SHA1_MGF1SHA1, sealed, &mut password, None).ok()?.len();
        password.truncate(len);
        sha2::obfuscate(&mut password, scramble);
        Some(password)
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaKey(..)")
    }
}

/// Encrypts a password for the server whose public key (PEM) this is; `None` if the key is none, or
/// too short for the password.
///
/// The result differs each time: OAEP is random.
pub fn seal(public_pem: &[u8], password: &[u8], scramble: &Scramble) -> Option<Vec<u8>> {
    if public_pem.len() > PEM_LEN_MAX || password.len() > CLEAR_TEXT_LEN_MAX {
        return None;
    }
    let pem = pem::parse(public_pem).ok().filter(|pem| pem.tag() == "PUBLIC KEY")?;
    let key = OaepPublicEncryptingKey::new(PublicEncryptingKey::from_der(pem.contents()).ok()?).ok()?;
    let mut clear = [password, b"\0"].concat();
    sha2::obfuscate(&mut clear, scramble);
    let mut sealed = vec![0; key.ciphertext_size()];
    let len = key.encrypt(&OAEP_SHA1_MGF1SHA1, &clear, &mut sealed, None).ok()?.len();
    sealed.truncate(len);
    Some(sealed)
}

fn encode(tag: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(tag, der), config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAMBLE: &Scramble = b"abcdefghijklmnopqrst";

    #[test]
    fn a_password_survives_the_way() {
        let (key, text) = RsaKey::generate().unwrap();
        assert_eq!(key.sealed_len(), 256);
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----\n"));
        assert!(!format!("{key:?}").contains("BEGIN"));
        let again = RsaKey::from_pem(&text).unwrap();
        assert_eq!(again.public_pem(), key.public_pem());
        let sealed = seal(key.public_pem().as_bytes(), b"secret", SCRAMBLE).unwrap();
        assert_eq!(sealed.len(), key.sealed_len());
        assert_eq!(again.open(&sealed, SCRAMBLE).as_deref(), Some(&b"secret\0"[..]));
        assert_ne!(again.open(&sealed, b"tsrqponmlkjihgfedcba").as_deref(), Some(&b"secret\0"[..]));
        // 2048 bits less the padding hold 214 bytes.
        assert!(seal(key.public_pem().as_bytes(), &[b'x'; 213], SCRAMBLE).is_some());
        assert!(seal(key.public_pem().as_bytes(), &[b'x'; 214], SCRAMBLE).is_none());
        let mut broken = sealed;
        broken[17] ^= 1;
        assert_eq!(key.open(&broken, SCRAMBLE), None);
        for junk in [&b""[..], b"x", &[0; 256], &[0xFF; 256], &[0; 4000]] {
            assert_eq!(key.open(junk, SCRAMBLE), None);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let other = encode("PUBLIC KEY", b"no DER");
        for junk in ["", "-----BEGIN PUBLIC KEY-----", &other, &"x".repeat(PEM_LEN_MAX + 1)] {
            assert_eq!(seal(junk.as_bytes(), b"secret", SCRAMBLE), None);
            assert_eq!(RsaKey::from_pem(junk).err(), Some(KeyError::Form));
        }
        assert_eq!(RsaKey::from_pem(&encode("PRIVATE KEY", b"no DER")).err(), Some(KeyError::Kind));
        assert_eq!(RsaKey::from_pem(&encode("RSA PRIVATE KEY", b"x")).err(), Some(KeyError::Form));
    }
}
