//! Reads a row of MySQL's `mysql.user` (MySQL manual, 8.2.3 "Grant Tables").

use std::sync::Arc;

use weir_client::QueryResult;
use weir_protocol::auth::StoredPassword;
use weir_session::accounts::{AccountState, HostPattern, LoginTerms, Rules, ServerAccount, TlsRequirement};

use crate::stored_form::{is_too_old, required, stored_password};

/// One row each. Hashes of caching_sha2_password have bytes that are no text.
pub(crate) const ROWS: &str = "SELECT Host, User, plugin, CAST(authentication_string AS BINARY), account_locked, \
    password_expired, UNIX_TIMESTAMP(password_last_changed), password_lifetime, ssl_type, max_user_connections, \
    CAST(JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.additional_password')) AS BINARY), \
    CAST(ssl_cipher AS CHAR), CAST(x509_subject AS CHAR), CAST(x509_issuer AS CHAR), \
    IFNULL(JSON_CONTAINS_PATH(User_attributes, 'one', '$.multi_factor_authentication'), 0) FROM mysql.user";
/// What changes when a row does, the default lifetime of passwords, and the server's clock.
pub(crate) const FINGERPRINT: &str = "SELECT COUNT(*), \
    BIT_XOR(CAST(CONV(LEFT(SHA2(CONCAT_WS('\\0', Host, User, plugin, HEX(authentication_string), account_locked, \
    password_expired, password_last_changed, IFNULL(password_lifetime, -1), ssl_type, HEX(ssl_cipher), \
    HEX(x509_subject), HEX(x509_issuer), max_user_connections, IFNULL(User_attributes, '')), 256), 16), 16, 10) AS UNSIGNED)), \
    @@GLOBAL.default_password_lifetime, UNIX_TIMESTAMP() FROM mysql.user";

/// The account of a row; none if it has no name of a host. A role is a locked account.
pub(crate) fn account(
    rows: &QueryResult,
    row: usize,
    default_lifetime_days: i64,
    now: i64,
) -> Option<ServerAccount> {
    let bytes = |column: usize| rows.rows.get(row)?.get(column)?.as_deref();
    let text = |column: usize| rows.text(row, column);
    let number = |column: usize| text(column).and_then(|text| text.parse::<i64>().ok());
    let plugin = text(2).unwrap_or_default();
    // A second factor is none that Weir could ask for.
    let stored = match text(14) {
        Some("0") => stored_password(plugin, bytes(3).unwrap_or_default()),
        _ => StoredPassword::Unknown,
    };
    let mut terms = LoginTerms::with_password(stored);
    terms.additional =
        bytes(10).filter(|hash| !hash.is_empty()).map(|hash| Arc::new(stored_password(plugin, hash)));
    let lifetime = number(7).unwrap_or(default_lifetime_days);
    let is_expired = text(5) == Some("Y") || number(6).is_some_and(|at| is_too_old(at, lifetime, now));
    terms.state = match (text(4), is_expired) {
        (Some("N"), false) => AccountState::Open,
        (Some("N"), true) => AccountState::Expired,
        _ => AccountState::Locked,
    };
    terms.tls = match text(8) {
        Some("") => TlsRequirement::None,
        Some("ANY") => TlsRequirement::Tls,
        _ => {
            let name = |column| text(column).unwrap_or_default();
            required(name(11), name(12), name(13))
        }
    };
    terms.clients_max = number(9).and_then(|max| u32::try_from(max).ok()).filter(|max| *max > 0);
    Some(ServerAccount { user: bytes(1)?.into(), host: HostPattern::parse(text(0)?, Rules::Mysql), terms })
}

#[cfg(test)]
mod tests {
    use weir_session::accounts::CertificateNames;

    use super::*;

    const HASH: &str = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19";
    const PLAIN: [Option<&str>; 15] = [
        Some("10.%"),
        Some("app"),
        Some("mysql_native_password"),
        Some(HASH),
        Some("N"),
        Some("N"),
        Some("1000"),
        None,
        Some(""),
        Some("0"),
        None,
        Some(""),
        Some(""),
        Some(""),
        Some("0"),
    ];

    fn read(changes: &[(usize, Option<&str>)], default_lifetime_days: i64) -> Option<ServerAccount> {
        let mut row = PLAIN;
        changes.iter().for_each(|(column, value)| row[*column] = *value);
        let row = row.map(|field| field.map(|text| text.as_bytes().to_vec())).to_vec();
        let result = QueryResult { rows: vec![row], ..QueryResult::default() };
        account(&result, 0, default_lifetime_days, 1000 + 5 * 86_400)
    }

    #[test]
    fn a_row_tells_how_to_log_in() {
        let plain = read(&[], 0).unwrap();
        assert_eq!((&*plain.user, plain.host.as_str()), (&b"app"[..], "10.%"));
        assert_eq!(format!("{:?}", plain.terms.stored), "Native(..)");
        assert_eq!(plain.terms.state, AccountState::Open);
        let state = |changes: &[(usize, Option<&str>)], default| read(changes, default).unwrap().terms.state;
        assert_eq!(state(&[(4, Some("Y"))], 0), AccountState::Locked);
        assert_eq!(state(&[(4, None)], 0), AccountState::Locked, "what can't be read is not open");
        assert_eq!(state(&[(5, Some("Y"))], 0), AccountState::Expired);
        assert_eq!(state(&[], 5), AccountState::Expired);
        assert_eq!(state(&[(7, Some("0"))], 5), AccountState::Open);
        assert_eq!(state(&[(7, Some("6"))], 5), AccountState::Open);
        let tls = |word| read(&[(8, word)], 0).unwrap().terms.tls;
        assert_eq!(tls(Some("ANY")), TlsRequirement::Tls);
        assert_eq!(tls(Some("X509")), TlsRequirement::Certificate(Arc::default()));
        assert_eq!(tls(None), TlsRequirement::Certificate(Arc::default()), "what can't be read is not open");
        let specified = read(&[(8, Some("SPECIFIED")), (12, Some("/CN=app"))], 0).unwrap().terms.tls;
        let names = CertificateNames { subject: Some("/CN=app".into()), issuer: None };
        assert_eq!(specified, TlsRequirement::Certificate(Arc::new(names)));
        assert_eq!(read(&[(9, Some("3"))], 0).unwrap().terms.clients_max, Some(3));
        let dual = read(&[(10, Some(HASH))], 0).unwrap().terms.additional;
        assert_eq!(dual.map(|stored| format!("{stored:?}")), Some("Native(..)".into()));
        let with_factors = read(&[(14, Some("1"))], 0).unwrap().terms.stored;
        assert_eq!(*with_factors, StoredPassword::Unknown, "one of two factors is not enough");
        assert_eq!(read(&[(1, None)], 0), None);
        assert_eq!(read(&[(0, None)], 0), None);
    }
}
