//! Proves and checks passwords, at both ends of a connection.
//!
//! Towards clients Weir is the server: [`StoredPassword`] is what it knows about a user, and
//! [`StoredPassword::verify`] checks what the client sent. Towards servers Weir is the client: the
//! [`Credential`] that came out of the check answers the server's scramble.
//!
//! Secrets have a `Debug` that does not show them, and are compared in constant time.

pub mod crypt;
pub mod double_hash;
pub mod ed25519;
pub mod native;
pub mod rsa;
pub mod sha2;

mod credential;
mod stored;

pub use credential::Credential;
pub use stored::{Method, StoredPassword};

/// Longest clear text password that is looked at, in bytes (`MAX_PLAINTEXT_LENGTH` in MySQL);
/// hashing takes time quadratic in it.
pub const CLEAR_TEXT_LEN_MAX: usize = 256;

/// Whether two byte strings are equal, in a time that depends on their lengths only.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// `a XOR b`, byte by byte.
fn xor<const N: usize>(a: &[u8; N], b: &[u8; N]) -> [u8; N] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_sees_every_byte() {
        assert!(constant_time_eq(b"", b""));
        assert!(constant_time_eq(b"abc", b"abc"));
        assert!(!constant_time_eq(b"abc", b"abcd"));
        for i in 0..3 {
            let mut other = *b"abc";
            other[i] ^= 0x80;
            assert!(!constant_time_eq(b"abc", &other));
        }
    }
}
