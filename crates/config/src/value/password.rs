//! Holds secrets, and the three forms in which `mysql_users.password` may be written.

use std::fmt;

/// Length of a `$A$` password: `$A$`, three hex digits of iterations, `$`, 20 bytes of salt, 43 of hash.
const SHA2_BYTES: usize = 3 + 3 + 1 + 20 + 43;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself; not for logs or messages.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A password of `mysql_users`, in the forms that ProxySQL takes.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// Clear text (possibly empty): serves every authentication plugin of clients and servers.
    Clear(Secret),
    /// `*` + 40 hex digits: SHA1(SHA1(password)), as `mysql_native_password` stores it.
    NativeHash([u8; 20]),
    /// `$A$...`, as `caching_sha2_password` stores it.
    Sha2Hash(Secret),
}

impl Password {
    /// Recognises the form by its shape.
    ///
    /// # Errors
    /// What is wrong with a text that looks like a damaged hash; the text itself is not repeated.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(hex) = text.strip_prefix('*') {
            match native_hash(hex) {
                Some(hash) => return Ok(Self::NativeHash(hash)),
                None if looks_cut(hex) => return Err("a native hash is * and 40 hex digits"),
                None => {}
            }
        }
        if text.starts_with("$A$") {
            // Nothing that looks like a hash may become a password in clear: whoever knows the hash would know it.
            if !is_sha2_hash(text.as_bytes()) {
                return Err(
                    "a caching_sha2 hash is $A$, 3 hex digits (not 000), $, 20 bytes of salt and 43 of hash",
                );
            }
            return Ok(Self::Sha2Hash(Secret::new(text)));
        }
        Ok(Self::Clear(Secret::new(text)))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(..)",
            Self::NativeHash(_) => "NativeHash(..)",
            Self::Sha2Hash(_) => "Sha2Hash(..)",
        })
    }
}

fn native_hash(hex: &str) -> Option<[u8; 20]> {
    let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | digit)).collect();
    if digits.len() == 40 { bytes.try_into().ok() } else { None }
}

/// `$A$005$`, a salt of any bytes, and the characters of the hash.
fn is_sha2_hash(text: &[u8]) -> bool {
    let is_of_hash = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    text.len() == SHA2_BYTES
        && text.get(3..6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit) && digits != b"000")
        && text.get(6) == Some(&b'$')
        && text.get(27..).is_some_and(|hash| hash.iter().all(is_of_hash))
}

/// Long, and nothing but hex digits or as long as a hash: more likely a damaged hash than a password.
fn looks_cut(hex: &str) -> bool {
    hex.len() == 40 || (hex.len() >= 30 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}
