//! Reads a row of MariaDB's `mysql.global_priv`: host, user, and the rest as JSON (MariaDB Knowledge Base,
//! "mysql.global_priv Table").

use serde::Deserialize;
use weir_protocol::auth::StoredPassword;
use weir_session::accounts::{AccountState, HostPattern, LoginTerms, Rules, ServerAccount, TlsRequirement};

use crate::stored_form::{is_too_old, required, stored_password};

/// One row each; the fingerprint covers the same columns.
pub(crate) const ROWS: &str = "SELECT Host, User, Priv FROM mysql.global_priv";
/// What changes when a row does, the default lifetime of passwords, and the server's clock.
pub(crate) const FINGERPRINT: &str = "SELECT COUNT(*), \
    BIT_XOR(CAST(CONV(LEFT(SHA2(CONCAT_WS('\\0', Host, User, Priv), 256), 16), 16, 10) AS UNSIGNED)), \
    @@GLOBAL.default_password_lifetime, UNIX_TIMESTAMP() FROM mysql.global_priv";

/// The part of `Priv` that a login needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Priv {
    plugin: String,
    authentication_string: String,
    /// Further plugins that will do; the place of the first one is empty.
    auth_or: Vec<Plugin>,
    /// 0 after PASSWORD EXPIRE.
    password_last_changed: Option<i64>,
    /// In days; -1: as `default_password_lifetime` says.
    password_lifetime: Option<i64>,
    account_locked: bool,
    /// 0 none, 1 any, 2 X509, 3 specified.
    ssl_type: i64,
    ssl_cipher: String,
    x509_subject: String,
    x509_issuer: String,
    max_user_connections: i64,
    is_role: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Plugin {
    plugin: Option<String>,
    authentication_string: String,
}

/// The account of a row; none for a role. A row that can't be read is an account that nobody can use.
pub(crate) fn account(
    host: &str,
    user: &[u8],
    text: &[u8],
    default_lifetime_days: i64,
    now: i64,
) -> Option<ServerAccount> {
    let read: Result<Priv, _> = serde_json::from_slice(text);
    let is_unreadable = read.is_err();
    let row = read.unwrap_or_default();
    if row.is_role {
        return None;
    }
    let stored = if is_unreadable { StoredPassword::Unknown } else { row.stored() };
    let lifetime = row.password_lifetime.filter(|days| *days >= 0).unwrap_or(default_lifetime_days);
    let is_expired = row.password_last_changed == Some(0)
        || is_too_old(row.password_last_changed.unwrap_or(0), lifetime, now);
    let mut terms = LoginTerms::with_password(stored);
    terms.state = match (row.account_locked, is_expired) {
        (true, _) => AccountState::Locked,
        (false, true) => AccountState::Expired,
        (false, false) => AccountState::Open,
    };
    terms.tls = match row.ssl_type {
        0 => TlsRequirement::None,
        1 => TlsRequirement::Tls,
        _ => required(&row.ssl_cipher, &row.x509_subject, &row.x509_issuer),
    };
    // Less than none: nobody may log in.
    terms.clients_max = (row.max_user_connections != 0)
        .then(|| u32::try_from(row.max_user_connections.max(0)).unwrap_or(u32::MAX));
    Some(ServerAccount { user: user.into(), host: HostPattern::parse(host, Rules::Mariadb), terms })
}

impl Priv {
    /// That of the first plugin that is known; the server asks for it before those that follow.
    fn stored(&self) -> StoredPassword {
        let first = (self.plugin.as_str(), self.authentication_string.as_str());
        let in_order = self.auth_or.iter().map(|other| match &other.plugin {
            Some(plugin) => (plugin.as_str(), other.authentication_string.as_str()),
            None => first,
        });
        let plugins: Vec<(&str, &str)> =
            if self.auth_or.is_empty() { vec![first] } else { in_order.collect() };
        let forms = plugins.into_iter().map(|(plugin, text)| stored_password(plugin, text.as_bytes()));
        forms.into_iter().find(|form| *form != StoredPassword::Unknown).unwrap_or(StoredPassword::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weir_session::accounts::CertificateNames;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const HASH: &str = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19";

    fn read(text: &str) -> Option<ServerAccount> {
        account("%", b"app", text.as_bytes(), 0, NOW)
    }

    fn with(more: &str) -> LoginTerms {
        let text = format!(
            r#"{{"access":0,"version_id":101119,"plugin":"mysql_native_password","authentication_string":"{HASH}"{more}}}"#
        );
        read(&text).unwrap().terms
    }

    #[test]
    fn a_row_tells_how_to_log_in() {
        let plain = with("");
        assert_eq!(format!("{:?}", plain.stored), "Native(..)");
        assert_eq!(
            (plain.state, plain.tls, plain.clients_max),
            (AccountState::Open, TlsRequirement::None, None)
        );
        assert_eq!(with(r#","account_locked":true"#).state, AccountState::Locked);
        assert_eq!(with(r#","password_last_changed":0"#).state, AccountState::Expired);
        assert_eq!(with(r#","account_locked":true,"password_last_changed":0"#).state, AccountState::Locked);
        assert_eq!(with(r#","ssl_type":1"#).tls, TlsRequirement::Tls);
        assert_eq!(with(r#","ssl_type":2"#).tls, TlsRequirement::Certificate(Arc::default()));
        let names = CertificateNames { subject: Some("/CN=app".into()), issuer: Some("/CN=ca".into()) };
        let specified = with(r#","ssl_type":3,"x509_subject":"/CN=app","x509_issuer":"/CN=ca""#);
        assert_eq!(specified.tls, TlsRequirement::Certificate(Arc::new(names)));
        assert_eq!(with(r#","ssl_type":3,"ssl_cipher":"A""#).tls, TlsRequirement::Cipher);
        assert_eq!(with(r#","max_user_connections":7"#).clients_max, Some(7));
        assert_eq!(with(r#","max_user_connections":0"#).clients_max, None);
        assert_eq!(with(r#","max_user_connections":-1"#).clients_max, Some(0));
    }

    #[test]
    fn passwords_expire_by_the_accounts_lifetime_or_the_default() {
        let changed = NOW - 10 * 86_400;
        let state = |lifetime: &str, default: i64| {
            let text = format!(
                r#"{{"plugin":"mysql_native_password","password_last_changed":{changed}{lifetime}}}"#
            );
            account("%", b"app", text.as_bytes(), default, NOW).unwrap().terms.state
        };
        assert_eq!(state("", 0), AccountState::Open);
        assert_eq!(state("", 10), AccountState::Expired);
        assert_eq!(state(r#","password_lifetime":-1"#, 10), AccountState::Expired);
        assert_eq!(state(r#","password_lifetime":0"#, 10), AccountState::Open);
        assert_eq!(state(r#","password_lifetime":11"#, 10), AccountState::Open);
        assert_eq!(state(r#","password_lifetime":10"#, 0), AccountState::Expired);
    }

    #[test]
    fn of_several_plugins_the_first_that_is_known_counts() {
        let text = format!(
            r#"{{"plugin":"mysql_native_password","authentication_string":"{HASH}","auth_or":[{{"plugin":"unix_socket"}},{{}}]}}"#
        );
        assert_eq!(format!("{:?}", read(&text).unwrap().terms.stored), "Native(..)");
        let text = format!(
            r#"{{"plugin":"mysql_native_password","authentication_string":"{HASH}","auth_or":[{{"plugin":"ed25519","authentication_string":"ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY"}},{{}}]}}"#
        );
        assert_eq!(format!("{:?}", read(&text).unwrap().terms.stored), "Ed25519(..)");
        let text = r#"{"plugin":"unix_socket"}"#;
        assert_eq!(format!("{:?}", read(text).unwrap().terms.stored), "Unknown");
    }

    #[test]
    fn roles_are_no_accounts_and_what_is_unreadable_lets_nobody_in() {
        assert_eq!(read(r#"{"access":0,"is_role":true}"#), None);
        for text in ["", "{", "[]", "null", r#"{"plugin":5}"#] {
            assert_eq!(*read(text).unwrap().terms.stored, StoredPassword::Unknown, "{text}");
        }
    }

    proptest! {
        /// Whatever is in the column, nobody gets in who would not have shown a password to the server.
        #[test]
        fn nothing_unreadable_stands_for_no_password(text in any::<Vec<u8>>(), plugin in "[a-z_0-9]{0,12}") {
            let of_plugin = serde_json::json!({ "plugin": plugin }).to_string().into_bytes();
            for text in [text, of_plugin] {
                if let Some(account) = account("%", b"app", &text, 0, NOW) {
                    prop_assert_eq!(&*account.terms.stored, &StoredPassword::Unknown);
                }
            }
        }
    }
}
