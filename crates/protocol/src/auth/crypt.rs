//! Reads and checks stored passwords of caching_sha2_password: `$A$005$`, 20 bytes of salt, 43
//! characters of hash.
//!
//! The hash is SHA-crypt with SHA-256 (Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512",
//! 2007), with a longer salt and the rounds written as thousands in three hexadecimal digits.

use std::fmt;

use ::sha2::{Digest, Sha256};

use crate::auth::{CLEAR_TEXT_LEN_MAX, constant_time_eq};

/// Bytes of the salt.
pub const SALT_LEN: usize = 20;

/// Characters of the hash.
const TEXT_LEN: usize = 43;

/// A stored password that only the clear text can be checked against.
///
/// A check takes `rounds` times two SHA-256 blocks or so: milliseconds at the usual 5000 to 10 000,
/// seconds at the most a server takes, 4 095 000. That is not for a thread that serves other clients.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha2Crypt {
    rounds: u32,
    salt: [u8; SALT_LEN],
    hash: [u8; TEXT_LEN],
}

impl Sha2Crypt {
    /// Reads the text in mysql.user's `authentication_string`; `None` for anything else.
    ///
    /// The salt may be any bytes: a text that went through a character set conversion is lost.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (digits, rest) = text.strip_prefix(b"$A$")?.split_first_chunk::<3>()?;
        let (salt, hash) = rest.strip_prefix(b"$")?.split_first_chunk::<SALT_LEN>()?;
        let mut thousands = 0;
        for &digit in digits {
            thousands = thousands << 4 | char::from(digit).to_digit(16)?;
        }
        let hash = *<&[u8; TEXT_LEN]>::try_from(hash).ok()?;
        if thousands == 0 || !hash.iter().all(|character| ALPHABET.contains(character)) {
            return None;
        }
        Some(Sha2Crypt { rounds: thousands * 1000, salt: *salt, hash })
    }

    /// Hashes `password` with `thousands` (1 to 4095) of rounds; `None` outside of these limits or
    /// for a password of more than [`CLEAR_TEXT_LEN_MAX`] bytes.
    pub fn of(password: &[u8], salt: [u8; SALT_LEN], thousands: u32) -> Option<Self> {
        if !(1..=0xFFF).contains(&thousands) || password.len() > CLEAR_TEXT_LEN_MAX {
            return None;
        }
        let rounds = thousands * 1000;
        Some(Sha2Crypt { rounds, salt, hash: encode(&sha256_crypt(password, &salt, rounds)) })
    }

    /// Whether this is the password. Takes time, see [`Sha2Crypt`].
    pub fn verify(&self, password: &[u8]) -> bool {
        password.len() <= CLEAR_TEXT_LEN_MAX
            && constant_time_eq(&encode(&sha256_crypt(password, &self.salt, self.rounds)), &self.hash)
    }

    /// The text that [`Sha2Crypt::parse`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("$A${:03X}$", self.rounds / 1000).into_bytes();
        text.extend_from_slice(&self.salt);
        text.extend_from_slice(&self.hash);
        text
    }
}

impl fmt::Debug for Sha2Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sha2Crypt").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

/// SHA-crypt with SHA-256; the names of the digests are those of the published algorithm.
fn sha256_crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let a = initial_digest(password, salt);

    // P: as many bytes as the password has, of a digest of as many copies of it.
    let mut copies = Sha256::new();
    (0..password.len()).for_each(|_| copies.update(password));
    let p_digest: [u8; 32] = copies.finalize().into();
    let mut p_buffer = [0; CLEAR_TEXT_LEN_MAX];
    fill_repeating(&mut p_buffer, &p_digest);
    let p = p_buffer.get(..password.len()).unwrap_or(&p_buffer);

    // S: as many bytes as the salt has, of a digest of 16 copies of it and more.
    let mut copies = Sha256::new();
    (0..16 + usize::from(a[0])).for_each(|_| copies.update(salt));
    let s_digest: [u8; 32] = copies.finalize().into();
    let s = s_digest.get(..salt.len()).unwrap_or(&s_digest);

    let mut previous = a;
    for round in 0..rounds {
        let mut c = Sha256::new();
        let odd = round % 2 == 1;
        c.update(if odd { p } else { &previous });
        if round % 3 != 0 {
            c.update(s);
        }
        if round % 7 != 0 {
            c.update(p);
        }
        c.update(if odd { &previous } else { p });
        previous = c.finalize().into();
    }
    previous
}

/// The digest A that the rounds start from.
fn initial_digest(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let b: [u8; 32] =
        Sha256::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut a = Sha256::new().chain_update(password).chain_update(salt);
    for chunk in password.chunks(b.len()) {
        a.update(b.get(..chunk.len()).unwrap_or(&b));
    }
    let mut bits = password.len();
    while bits > 0 {
        a.update(if bits & 1 == 1 { &b[..] } else { password });
        bits >>= 1;
    }
    a.finalize().into()
}

fn fill_repeating(buffer: &mut [u8], pattern: &[u8]) {
    for (byte, from) in buffer.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *from;
    }
}

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The order in which the algorithm takes the digest's bytes, three for four characters; the last
/// group has two bytes, and a third one that is zero.
const GROUPS: [[usize; 3]; 11] = [
    [0, 10, 20],
    [21, 1, 11],
    [12, 22, 2],
    [3, 13, 23],
    [24, 4, 14],
    [15, 25, 5],
    [6, 16, 26],
    [27, 7, 17],
    [18, 28, 8],
    [9, 19, 29],
    [32, 31, 30],
];

fn encode(digest: &[u8; 32]) -> [u8; TEXT_LEN] {
    let byte = |at: usize| u32::from(digest.get(at).copied().unwrap_or(0));
    let mut text = [0; TEXT_LEN];
    for (characters, [high, middle, low]) in text.chunks_mut(4).zip(GROUPS) {
        let mut bits = byte(high) << 16 | byte(middle) << 8 | byte(low);
        for character in characters {
            *character = ALPHABET[bits as usize & 0x3F];
            bits >>= 6;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CREATE USER 'foo'@'%' IDENTIFIED BY 'foobar'` on MySQL 8; the text is public.
    fn foobar() -> Vec<u8> {
        let salt = b"\x03\x1A\x69\x25\x1C\x34\x29\x5C\x4B\x35\x16\x7C\x7F\x1E\x5A\x7B\x63\x09\x13\x49";
        [b"$A$005$", &salt[..], b"P9tbM4PKZBFy5HV3hhhoRHZsnJs3hxnBuuQlsDdiIe7"].concat()
    }

    #[test]
    fn a_password_stored_by_mysql_is_verified() {
        let stored = Sha2Crypt::parse(&foobar()).unwrap();
        assert_eq!(stored.rounds, 5000);
        assert!(stored.verify(b"foobar"));
        assert!(!stored.verify(b"foobaz"));
        assert!(!stored.verify(b""));
        assert_eq!(stored.to_bytes(), foobar());
        assert_eq!(Sha2Crypt::of(b"foobar", stored.salt, 5), Some(stored));
    }

    /// `CREATE USER ... IDENTIFIED BY 'app'` on MySQL 9.7: ten thousand rounds by default, in
    /// hexadecimal digits.
    #[test]
    fn rounds_are_hexadecimal_thousands() {
        let salt = b"\x5C\x0D\x5B\x72\x68\x1A\x45\x5B\x64\x38\x16\x1D\x60\x4E\x78\x6B\x09\x59\x5B\x75";
        let text = [b"$A$00A$", &salt[..], b"csnostjALJBSxEr8u7o4jVDNbEig4MjG3AlC6lNDkp9"].concat();
        let stored = Sha2Crypt::parse(&text).unwrap();
        assert_eq!(stored.rounds, 10_000);
        assert!(stored.verify(b"app"));
        assert_eq!(stored.to_bytes(), text);
    }

    /// `openssl passwd -5 -salt 'rounds=...'`.
    #[test]
    fn sha_crypt_agrees_with_openssl() {
        let long =
            b"a much longer password than one digest of SHA-256 is, in fact longer than two of them together";
        for (salt, password, rounds, expected) in [
            (&b"saltstring"[..], &b"Hello world!"[..], 5000, b"5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
            (b"x", b"p", 1000, b"jnKCgcvzlaMhCD94abAnGe/tPzJ3hT7XsUaiRSiWn27"),
            (b"saltstringsaltst", long, 1400, b"rHthtUHscbWdUShWxj9MevNOGAkaidfiYck15Y3XtjA"),
        ] {
            let text = encode(&sha256_crypt(password, salt, rounds));
            assert_eq!(std::str::from_utf8(&text), std::str::from_utf8(expected));
        }
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(Sha2Crypt::of(&[b'x'; 257], [b's'; 20], 5), None);
        assert_eq!(Sha2Crypt::of(b"x", [b's'; 20], 0), None);
        assert_eq!(Sha2Crypt::of(b"x", [b's'; 20], 0x1000), None);
        let longest = Sha2Crypt::of(&[b'x'; 256], [b's'; 20], 1).unwrap();
        assert!(longest.verify(&[b'x'; 256]) && !longest.verify(&[b'x'; 257]));
    }

    #[test]
    fn anything_else_is_no_stored_password() {
        let good = foobar();
        let mut no_rounds = good.clone();
        no_rounds[3..6].copy_from_slice(b"000");
        let mut no_digits = good.clone();
        no_digits[4] = b'g';
        let mut not_base64 = good.clone();
        not_base64[69] = b'!';
        for wrong in
            [&good[..69], &[&good[..], b"x"].concat(), &no_rounds, &no_digits, &not_base64, b"$A$005$", b""]
        {
            assert_eq!(Sha2Crypt::parse(wrong), None);
        }
    }
}
