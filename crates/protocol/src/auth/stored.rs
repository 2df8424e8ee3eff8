//! Reads passwords as `mysql_users` stores them, and checks proofs against them.

use std::fmt;

use crate::auth::crypt::Sha2Crypt;
use crate::auth::{CLEAR_TEXT_LEN_MAX, Credential, constant_time_eq, ed25519, native, sha2};
use crate::handshake::Scramble;

/// The method by which a client proved its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// The response of mysql_native_password.
    Native,
    /// The response of caching_sha2_password.
    Sha2Fast,
    /// The password itself, after caching_sha2_password's full authentication or by
    /// mysql_clear_password: over TLS, or taken out of RSA by the caller.
    ClearText,
}

/// A user's password as Weir knows it; the forms that ProxySQL's `mysql_users` takes.
///
/// | stored                | [`Native`](Method::Native) | [`Sha2Fast`](Method::Sha2Fast) | [`ClearText`](Method::ClearText) | credential for servers |
/// | --------------------- | ------ | --------------- | --------- | ---------------------- |
/// | clear text            | yes    | yes             | yes       | clear text             |
/// | `*` and 40 hex digits | yes    | no              | yes       | SHA-1, or clear text after `ClearText` |
/// | `$A$...`              | no     | from a cache    | yes       | SHA-256 after `Sha2Fast`, else clear text |
/// | ed25519's public key  | no     | from a cache    | yes       | clear text             |
/// | in no form that is known | no  | no              | no        | none                   |
///
/// "From a cache": after a first `ClearText` the caller may keep
/// [`sha2::HashStage2`] and check later responses with [`sha2::HashStage2::verify`].
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// The password itself; empty means that there is none.
    ClearText(Box<[u8]>),
    /// As mysql_native_password stores it.
    Native(native::HashStage2),
    /// As caching_sha2_password stores it.
    Sha2(Sha2Crypt),
    /// As MariaDB's ed25519 stores it.
    Ed25519(ed25519::PublicKey),
    /// In a form that nothing can be checked against: an account's plugin is none of these.
    Unknown,
}

impl StoredPassword {
    /// Tells the forms apart by their look; what is neither hash is clear text.
    pub fn parse(text: &[u8]) -> Self {
        if let Some(hash) = native::HashStage2::parse(text) {
            StoredPassword::Native(hash)
        } else if let Some(crypt) = Sha2Crypt::parse(text) {
            StoredPassword::Sha2(crypt)
        } else {
            StoredPassword::ClearText(text.into())
        }
    }

    /// Whether [`StoredPassword::verify`] can say yes for this method at all.
    pub fn allows(&self, method: Method) -> bool {
        match self {
            Self::ClearText(_) => true,
            Self::Native(_) => method != Method::Sha2Fast,
            Self::Sha2(_) | Self::Ed25519(_) => method == Method::ClearText,
            Self::Unknown => false,
        }
    }

    /// Checks what the client sent for `method` and returns what Weir can log in with at a server.
    ///
    /// `scramble` is the one that the client was sent. A clear text password may have its NUL
    /// behind it. [`Method::ClearText`] against `$A$...` takes time, see [`Sha2Crypt`].
    pub fn verify(&self, method: Method, sent: &[u8], scramble: &Scramble) -> Option<Credential> {
        match (method, self) {
            (Method::ClearText, _) => self.verify_clear_text(sent),
            (_, Self::ClearText(password)) if password.is_empty() => {
                sent.is_empty().then(|| Credential::clear_text(b""))
            }
            (Method::Native, Self::ClearText(password)) => {
                native::HashStage2::of(password).verify(sent, scramble)?;
                Some(Credential::ClearText(password.clone()))
            }
            (Method::Sha2Fast, Self::ClearText(password)) => {
                sha2::HashStage2::of(password).verify(sent, scramble)?;
                Some(Credential::ClearText(password.clone()))
            }
            (Method::Native, Self::Native(hash)) => hash.verify(sent, scramble).map(Credential::Sha1),
            (Method::Native | Method::Sha2Fast, _) => None,
        }
    }

    fn verify_clear_text(&self, sent: &[u8]) -> Option<Credential> {
        let password = sent.strip_suffix(&[0]).unwrap_or(sent);
        let matches = match self {
            // Hashed, so that not even the length shows in the time taken.
            Self::ClearText(stored) => {
                let [sent, stored] = [password, stored].map(native::HashStage2::of);
                constant_time_eq(sent.as_bytes(), stored.as_bytes())
            }
            Self::Native(hash) => {
                let sent = native::HashStage2::of(password);
                constant_time_eq(sent.as_bytes(), hash.as_bytes())
            }
            Self::Sha2(crypt) => crypt.verify(password),
            Self::Ed25519(key) => key.is_of(password),
            Self::Unknown => false,
        };
        (matches && password.len() <= CLEAR_TEXT_LEN_MAX).then(|| Credential::clear_text(password))
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClearText(_) => "ClearText(..)",
            Self::Native(_) => "Native(..)",
            Self::Sha2(_) => "Sha2(..)",
            Self::Ed25519(_) => "Ed25519(..)",
            Self::Unknown => "Unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAMBLE: &Scramble = b"abcdefghijklmnopqrst";
    const METHODS: [Method; 3] = [Method::Native, Method::Sha2Fast, Method::ClearText];

    fn stored_forms(password: &[u8]) -> [StoredPassword; 5] {
        let crypt = Sha2Crypt::of(password, [b's'; 20], 1).unwrap();
        [
            StoredPassword::parse(password),
            StoredPassword::parse(native::HashStage2::of(password).to_string().as_bytes()),
            StoredPassword::parse(&crypt.to_bytes()),
            StoredPassword::Ed25519(ed25519::PublicKey::of(password).unwrap()),
            StoredPassword::Unknown,
        ]
    }

    fn proof(method: Method, password: &[u8]) -> Vec<u8> {
        match method {
            Method::Native => native::response(password, SCRAMBLE).map_or(vec![], |r| r.to_vec()),
            Method::Sha2Fast => sha2::response(password, SCRAMBLE).map_or(vec![], |r| r.to_vec()),
            Method::ClearText => [password, b"\0"].concat(),
        }
    }

    #[test]
    fn the_forms_are_told_apart() {
        let looks: Vec<_> = stored_forms(b"app").iter().map(|stored| format!("{stored:?}")).collect();
        assert_eq!(looks, ["ClearText(..)", "Native(..)", "Sha2(..)", "Ed25519(..)", "Unknown"]);
    }

    #[test]
    fn the_right_password_passes_where_the_table_says_and_a_wrong_one_nowhere() {
        for stored in stored_forms(b"app") {
            for method in METHODS {
                let passed = stored.verify(method, &proof(method, b"app"), SCRAMBLE);
                assert_eq!(passed.is_some(), stored.allows(method), "{stored:?} {method:?}");
                for wrong in [&b"App"[..], b"", b"ap"] {
                    assert_eq!(stored.verify(method, &proof(method, wrong), SCRAMBLE), None);
                }
            }
        }
    }

    #[test]
    fn the_credential_is_what_could_be_learned() {
        let [clear, native_hash, crypt, ed25519, _] = stored_forms(b"app");
        let verify =
            |stored: &StoredPassword, method| stored.verify(method, &proof(method, b"app"), SCRAMBLE);
        let password = Some(Credential::clear_text(b"app"));
        assert!(METHODS.iter().all(|&method| verify(&clear, method) == password));
        let sha1 = Credential::Sha1(native::HashStage1::of(b"app"));
        assert_eq!(verify(&native_hash, Method::Native), Some(sha1));
        assert_eq!(verify(&native_hash, Method::ClearText), password);
        assert_eq!(verify(&crypt, Method::ClearText), password);
        assert_eq!(verify(&ed25519, Method::ClearText), password);
    }

    #[test]
    fn no_password_is_proven_by_no_bytes_only() {
        let none = StoredPassword::parse(b"");
        for method in METHODS {
            assert!(none.verify(method, b"", SCRAMBLE).is_some(), "{method:?}");
            assert!(none.verify(method, &proof(method, b"app"), SCRAMBLE).is_none(), "{method:?}");
        }
    }
}
