//! Lists the reasons for which a login is refused, for those who run Weir. Clients are told no more than a server
//! would tell them.

/// A reason, which is also the words in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Nobody has this name.
    NoSuchUser,
    /// `mysql_users.active` is 0.
    UserNotActive,
    /// The proof is that of another password.
    WrongPassword,
    /// No proof was given, and the user has a password.
    NoPassword,
    /// The proof was right when it came; the password is another one now.
    PasswordChanged,
    /// An account without a name, and a more specific host, counts for the client.
    AnonymousAccount,
    /// The servers' accounts are not known yet.
    AccountsUnknown,
    /// The account's plugin is none that Weir speaks.
    AuthenticationUnknown,
    /// `ACCOUNT LOCK`
    AccountLocked,
    /// `PASSWORD EXPIRE`
    PasswordExpired,
    /// `mysql_users.use_ssl`, or the account's REQUIRE SSL.
    TlsRequired,
    /// The account's REQUIRE X509, or more, and the client has shown no certificate.
    CertificateRequired,
    /// The account's REQUIRE SUBJECT or REQUIRE ISSUER.
    OtherCertificate,
    /// The account's REQUIRE CIPHER.
    CipherRequired,
    /// Only a hash of the password is known, with which nothing can be proven over an open connection.
    TlsForFirstLogin,
    /// The plugin in which the user could prove the password is unknown to the client.
    PluginNotSpoken,
    /// What the client has sent is no login.
    BadHandshake,
    /// Sequence ids do not follow each other.
    OutOfOrder,
    /// A header of the PROXY protocol that is none, or too long.
    BrokenProxyHeader,
    /// `mysql-proxy_protocol_networks`
    ProxyHeaderNotAllowed,
    /// The client goes on in compressed packets.
    Compressed,
    /// The client's character set is none that statements can be written in.
    CharacterSet,
    /// `mysql-max_connections`
    MaxConnections,
    /// `mysql_users.max_connections`
    MaxUserConnections,
    /// Too many passwords wait for their check.
    TooManyChecks,
    /// `mysql-connect_timeout_client`
    TimedOut,
    /// A server has refused the user, or the schema of the login.
    Server,
}

impl Refusal {
    /// The words.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoSuchUser => "no such user",
            Self::UserNotActive => "the user is not active",
            Self::WrongPassword => "wrong password",
            Self::NoPassword => "no password was given",
            Self::PasswordChanged => "the password was changed during the login",
            Self::AnonymousAccount => "an account without a name has a more specific host",
            Self::AccountsUnknown => "the accounts of the servers are not known yet",
            Self::AuthenticationUnknown => "the account's authentication plugin is not supported",
            Self::AccountLocked => "the account is locked",
            Self::PasswordExpired => "the password has expired",
            Self::TlsRequired => "the user may log in over TLS only (use_ssl, REQUIRE SSL)",
            Self::CertificateRequired => "the account requires a client certificate (tls_client_ca_file)",
            Self::OtherCertificate => "the client's certificate has another subject or issuer",
            Self::CipherRequired => "the account requires a cipher, which is not supported",
            Self::TlsForFirstLogin => {
                "only a hash of the password is known: the first login must come over TLS"
            }
            Self::PluginNotSpoken => "the client does not speak the authentication plugin that is needed",
            Self::BadHandshake => "bad handshake",
            Self::OutOfOrder => "packets out of order",
            Self::BrokenProxyHeader => "a broken header of the PROXY protocol",
            Self::ProxyHeaderNotAllowed => {
                "a header of the PROXY protocol, and the network is not in mysql-proxy_protocol_networks"
            }
            Self::Compressed => "the client compresses the connection",
            Self::CharacterSet => "no statement can be written in the character set of the client",
            Self::MaxConnections => "mysql-max_connections is reached",
            Self::MaxUserConnections => "max_connections of the user is reached",
            Self::TooManyChecks => "too many passwords wait to be checked",
            Self::TimedOut => "mysql-connect_timeout_client is over",
            Self::Server => "a server refuses it",
        }
    }
}
