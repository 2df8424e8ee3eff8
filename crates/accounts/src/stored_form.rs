//! Reads a stored password by the plugin of its account.

use std::sync::Arc;

use weir_protocol::auth::crypt::Sha2Crypt;
use weir_protocol::auth::{StoredPassword, ed25519, native};
use weir_session::accounts::{CertificateNames, TlsRequirement};

/// The password that an account's plugin and `authentication_string` stand for. Nothing stored means no password for a
/// plugin that has passwords; what the plugin could not have stored fits no password.
pub(crate) fn stored_password(plugin: &str, text: &[u8]) -> StoredPassword {
    let form = match plugin {
        "mysql_native_password" => native::HashStage2::parse(text).map(StoredPassword::Native),
        "caching_sha2_password" => Sha2Crypt::parse(text).map(StoredPassword::Sha2),
        "ed25519" => ed25519::PublicKey::parse(text).map(StoredPassword::Ed25519),
        _ => return StoredPassword::Unknown,
    };
    match form {
        Some(form) => form,
        None if text.is_empty() && plugin != "ed25519" => StoredPassword::ClearText(Box::default()),
        None => StoredPassword::Unknown,
    }
}

/// What an account with REQUIRE X509 or more wants of a client; empty texts want nothing.
pub(crate) fn required(cipher: &str, subject: &str, issuer: &str) -> TlsRequirement {
    let name = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Into::into);
    match cipher {
        "" => {
            let names = CertificateNames { subject: name(subject), issuer: name(issuer) };
            TlsRequirement::Certificate(Arc::new(names))
        }
        _ => TlsRequirement::Cipher,
    }
}

/// Whether a password is as old as it may become: `changed` and `now` in seconds since 1970, lifetimes in days; 0 means
/// for ever.
pub(crate) fn is_too_old(changed: i64, lifetime_days: i64, now: i64) -> bool {
    lifetime_days > 0 && now.saturating_sub(changed) >= lifetime_days.saturating_mul(86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_its_plugin_has_stored() {
        let hash = native::HashStage2::of(b"secret").to_string();
        let cases = [
            ("mysql_native_password", hash.as_str(), "Native(..)"),
            ("", &hash, "Unknown"),
            ("", "", "Unknown"),
            ("mysql_native_password", "", "ClearText(..)"),
            ("mysql_native_password", "invalid", "Unknown"),
            ("caching_sha2_password", &hash, "Unknown"),
            ("caching_sha2_password", "", "ClearText(..)"),
            ("ed25519", "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY", "Ed25519(..)"),
            ("ed25519", "invalid", "Unknown"),
            ("ed25519", "", "Unknown"),
            ("unix_socket", "", "Unknown"),
            ("pam", "mariadb", "Unknown"),
        ];
        for (plugin, text, expected) in cases {
            let stored = stored_password(plugin, text.as_bytes());
            assert_eq!(format!("{stored:?}"), expected, "{plugin} {text}");
        }
        let salted = Sha2Crypt::of(b"secret", [b's'; 20], 5).unwrap().to_bytes();
        assert_eq!(format!("{:?}", stored_password("caching_sha2_password", &salted)), "Sha2(..)");
    }

    #[test]
    fn passwords_grow_old() {
        assert!(!is_too_old(0, 0, i64::MAX));
        assert!(!is_too_old(1000, 1, 1000 + 86_399));
        assert!(is_too_old(1000, 1, 1000 + 86_400));
        assert!(!is_too_old(2000, 1, 1000), "a clock that went back");
        assert!(!is_too_old(0, i64::MAX, 1 << 40));
    }
}
