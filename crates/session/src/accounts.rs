//! Models the accounts of the servers: who may log in from where, how, and whether at all.
//!
//! A server chooses the account of a client by name and host: of all that match, the one with the most specific host
//! counts, whatever its password is (MariaDB Knowledge Base, "CREATE USER", account names; MySQL manual, 8.2.6).

mod certificate;
mod host_pattern;
mod list;

pub use certificate::ClientCertificate;
pub use host_pattern::{ClientHost, HostPattern, Rules};
pub use list::{AccountList, Chosen};

use std::sync::Arc;

use weir_protocol::auth::StoredPassword;

/// An account of the servers, as far as a login is concerned. Its privileges are the servers' business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAccount {
    /// Its name; empty for everybody who has no other.
    pub user: Box<[u8]>,
    /// Where its clients come from.
    pub host: HostPattern,
    /// What a login needs.
    pub terms: LoginTerms,
}

/// What a login needs, and what it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginTerms {
    /// The password in one of its stored forms.
    pub stored: Arc<StoredPassword>,
    /// Another password that will do.
    pub additional: Option<Arc<StoredPassword>>,
    /// How the client's connection has to be encrypted.
    pub tls: TlsRequirement,
    /// Whether the account is open.
    pub state: AccountState,
    /// The most clients at a time; none: as many as the listener takes.
    pub clients_max: Option<u32>,
}

impl LoginTerms {
    /// Those of an account that is open and has this password, and no more.
    pub fn with_password(stored: StoredPassword) -> Self {
        Self {
            stored: Arc::new(stored),
            additional: None,
            tls: TlsRequirement::None,
            state: AccountState::Open,
            clients_max: None,
        }
    }
}

/// How a client's connection has to be encrypted (REQUIRE).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsRequirement {
    /// Not at all.
    #[default]
    None,
    /// `REQUIRE SSL`, or `mysql_users.use_ssl`.
    Tls,
    /// `REQUIRE X509`, or more: the client has to show a certificate.
    Certificate(Arc<CertificateNames>),
    /// `REQUIRE CIPHER`, which is not supported.
    Cipher,
}

/// What a client's certificate has to say; nothing: any will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// `REQUIRE SUBJECT`
    pub subject: Option<Box<str>>,
    /// `REQUIRE ISSUER`
    pub issuer: Option<Box<str>>,
}

impl CertificateNames {
    /// Whether a certificate says it.
    pub fn are_in(&self, certificate: &ClientCertificate) -> bool {
        let is_like =
            |wanted: &Option<Box<str>>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        is_like(&self.subject, &certificate.subject) && is_like(&self.issuer, &certificate.issuer)
    }
}

/// Whether an account may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccountState {
    /// It may.
    #[default]
    Open,
    /// `ACCOUNT LOCK`
    Locked,
    /// `PASSWORD EXPIRE`, or its password is older than it may become.
    Expired,
}
