//! Holds what a login at a server needs: a password, or what was recovered of one.

use std::fmt;

use crate::auth::{ed25519, native, sha2};
use crate::handshake::{CACHING_SHA2_PASSWORD, CLIENT_ED25519, MYSQL_NATIVE_PASSWORD, Scramble};

/// A credential with which Weir can log in at a server: the password, or what was recovered of it.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// The password itself, empty for none; answers every plugin.
    ClearText(Box<[u8]>),
    /// Answers mysql_native_password only.
    Sha1(native::HashStage1),
    /// Answers caching_sha2_password only, and only while the server has the password in its
    /// cache.
    Sha256(sha2::HashStage1),
}

impl Credential {
    /// A password as it is.
    pub fn clear_text(password: &[u8]) -> Self {
        Credential::ClearText(password.into())
    }

    /// The first answer to a server's `scramble` for `plugin`; `None` if this credential can't
    /// answer that plugin, or the plugin is not a challenge and response over SHA-1 or SHA-256.
    ///
    /// Empty for the empty password.
    pub fn response(&self, plugin: &[u8], scramble: &Scramble) -> Option<Vec<u8>> {
        match (plugin, self) {
            (MYSQL_NATIVE_PASSWORD | CACHING_SHA2_PASSWORD, Self::ClearText(password))
                if password.is_empty() =>
            {
                Some(Vec::new())
            }
            (MYSQL_NATIVE_PASSWORD, Self::ClearText(password)) => {
                native::response(password, scramble).map(|response| response.to_vec())
            }
            (MYSQL_NATIVE_PASSWORD, Self::Sha1(stage1)) => Some(stage1.response(scramble).to_vec()),
            (CACHING_SHA2_PASSWORD, Self::ClearText(password)) => {
                sha2::response(password, scramble).map(|response| response.to_vec())
            }
            (CACHING_SHA2_PASSWORD, Self::Sha256(stage1)) => Some(stage1.response(scramble).to_vec()),
            _ => None,
        }
    }

    /// The answer to what a server sends in the request to switch to `plugin`, its data as they came; `None` as
    /// for [`Credential::response`], and if the data are not what the plugin sends.
    pub fn answer_switch(&self, plugin: &[u8], data: &[u8]) -> Option<Vec<u8>> {
        if plugin == CLIENT_ED25519 {
            return ed25519::response(self.password()?, data.try_into().ok()?).map(|signed| signed.to_vec());
        }
        let scramble = data.strip_suffix(&[0]).unwrap_or(data);
        self.response(plugin, scramble.try_into().ok()?)
    }

    /// The password, if it is known.
    pub fn password(&self) -> Option<&[u8]> {
        match self {
            Self::ClearText(password) => Some(password),
            Self::Sha1(_) | Self::Sha256(_) => None,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClearText(_) => "ClearText(..)",
            Self::Sha1(_) => "Sha1(..)",
            Self::Sha256(_) => "Sha256(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::MYSQL_CLEAR_PASSWORD;

    const SCRAMBLE: &Scramble = b"abcdefghijklmnopqrst";

    #[test]
    fn a_hash_answers_as_its_password_would_and_no_other_plugin() {
        let clear = Credential::clear_text(b"app");
        let sha1 = Credential::Sha1(native::HashStage1::of(b"app"));
        let sha256 = Credential::Sha256(sha2::HashStage1::of(b"app"));
        for (plugin, hash, other) in
            [(MYSQL_NATIVE_PASSWORD, &sha1, &sha256), (CACHING_SHA2_PASSWORD, &sha256, &sha1)]
        {
            assert!(clear.response(plugin, SCRAMBLE).is_some());
            assert_eq!(hash.response(plugin, SCRAMBLE), clear.response(plugin, SCRAMBLE));
            assert_eq!(other.response(plugin, SCRAMBLE), None);
            assert_eq!(Credential::clear_text(b"").response(plugin, SCRAMBLE), Some(vec![]));
        }
        assert_eq!(clear.response(MYSQL_CLEAR_PASSWORD, SCRAMBLE), None, "never in a first answer");
        assert_eq!(format!("{clear:?}{sha1:?}{sha256:?}"), "ClearText(..)Sha1(..)Sha256(..)");
    }
}
