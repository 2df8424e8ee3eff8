//! Declares TLS towards servers: `mysql_servers.use_ssl`, `mysql_servers_ssl_params` and the `ssl_p2s_*` variables.

use std::path::PathBuf;

use weir_topology::Endpoint;

use crate::field::fields::Fields;
use crate::field::kind::{BOOLEAN, Declared, Group, Kind, PathName};
use crate::table::variable::{LOCAL_AND_RESTART, MYSQL, Marks, Variable};
use crate::value::suggest::{quotable, unknown_word};

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// The certificate and behind it the intermediate ones.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The encryption of connections to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerTlsParams {
    /// The authorities (PEM) of which one must have signed the server's certificate. None here and in `ca_dir`: any
    /// certificate will do, so that nobody can listen in, but somebody could pretend to be the server.
    pub ca: Option<PathBuf>,
    /// A directory with more of them.
    pub ca_dir: Option<PathBuf>,
    /// Lists (PEM) of certificates that their authorities have revoked.
    pub crl: Option<PathBuf>,
    /// A directory with more of them.
    pub crl_dir: Option<PathBuf>,
    /// The ciphers that may be used, of the versions of TLS for which one is named.
    pub ciphers: Vec<TlsCipher>,
    /// What Weir shows to a server that asks for a certificate.
    pub own: Option<TlsFiles>,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
    /// The certificate must name the server as `mysql_servers` does.
    pub verifies_identity: bool,
}

/// Why a server's identity can't be verified.
pub const NEEDS_AUTHORITY: &str = "ssl_p2s_verify_identity needs an authority for it: ssl_ca or ssl_capath in its row of \
     mysql_servers_ssl_params, or ssl_p2s_ca or ssl_p2s_capath";

impl ServerTlsParams {
    /// Whether some authority must have signed the server's certificate.
    pub fn has_authority(&self) -> bool {
        self.ca.is_some() || self.ca_dir.is_some()
    }
}

/// Versions of TLS; at least one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlsVersions {
    /// TLS 1.2
    pub v12: bool,
    /// TLS 1.3
    pub v13: bool,
}

impl Default for TlsVersions {
    fn default() -> Self {
        Self { v12: true, v13: true }
    }
}

/// A cipher of TLS that Weir speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlsCipher {
    /// OpenSSL's name.
    pub openssl: &'static str,
    /// IANA's name; for TLS 1.3 OpenSSL has the same.
    pub iana: &'static str,
    /// Of TLS 1.3, otherwise of 1.2.
    pub is_v13: bool,
}

/// Those of AES-GCM and ChaCha20-Poly1305 with forward secrecy (RFC 5289, 7905, 8446).
const CIPHERS: [TlsCipher; 9] = [
    v13("TLS_AES_256_GCM_SHA384"),
    v13("TLS_AES_128_GCM_SHA256"),
    v13("TLS_CHACHA20_POLY1305_SHA256"),
    v12("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    v12("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    v12("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    v12("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    v12("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    v12("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

const fn v12(openssl: &'static str, iana: &'static str) -> TlsCipher {
    TlsCipher { openssl, iana, is_v13: false }
}

const fn v13(name: &'static str) -> TlsCipher {
    TlsCipher { openssl: name, iana: name, is_v13: true }
}

/// The names of a table's columns, or of the variables that stand for them.
pub(crate) struct Names {
    ca: &'static str,
    ca_dir: &'static str,
    crl: &'static str,
    crl_dir: &'static str,
    cert: &'static str,
    key: &'static str,
    ciphers: &'static str,
    versions: Option<&'static str>,
}

pub(crate) const COLUMNS: Names = Names {
    ca: "ssl_ca",
    ca_dir: "ssl_capath",
    crl: "ssl_crl",
    crl_dir: "ssl_crlpath",
    cert: "ssl_cert",
    key: "ssl_key",
    ciphers: "ssl_cipher",
    versions: Some("tls_version"),
};

const VARIABLES: Names = Names {
    ca: "ssl_p2s_ca",
    ca_dir: "ssl_p2s_capath",
    crl: "ssl_p2s_crl",
    crl_dir: "ssl_p2s_crlpath",
    cert: "ssl_p2s_cert",
    key: "ssl_p2s_key",
    ciphers: "ssl_p2s_cipher",
    versions: None,
};

/// A row of `mysql_servers_ssl_params`. Key: (hostname, port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSslParams {
    /// The server, as in `mysql_servers`.
    pub endpoint: Endpoint,
    /// How its connections are encrypted.
    pub params: ServerTlsParams,
    /// For humans.
    pub comment: String,
}

/// `ssl_p2s_ca` and so on: for servers without a row.
impl Group for ServerTlsParams {
    fn declare(list: &mut Vec<Variable>) {
        let of = |name, field, doc| Declared { module: MYSQL, name, field, doc, marks: Marks::default() };
        let identity = "Weir's own: a server's certificate must contain [its name](tls.md#towards-servers).";
        BOOLEAN.declare(of("ssl_p2s_verify_identity", "verifies_identity", identity), &false, list);
        for (name, field, doc) in [
            (
                VARIABLES.ca,
                "ca",
                "PEM file of certificate authorities for [servers](tls.md#towards-servers) without a row in `mysql_servers_ssl_params`.",
            ),
            (
                VARIABLES.ca_dir,
                "ca_dir",
                "Directory of such files. Without both, any certificate is accepted.",
            ),
            (VARIABLES.crl, "crl", "PEM file of certificate revocation lists; requires authorities."),
            (VARIABLES.crl_dir, "crl_dir", "Directory of such files."),
            (
                VARIABLES.cert,
                "own",
                "PEM file of the certificate that Weir presents to servers; requires `ssl_p2s_key`.",
            ),
            (VARIABLES.key, "own", "PEM file of that certificate's key."),
            (
                VARIABLES.ciphers,
                "ciphers",
                "Ciphers, separated by colons, with OpenSSL's names or IANA's; empty: all.",
            ),
        ] {
            PathName.declare(of(name, field, doc), &None, list);
        }
    }

    fn read(f: &mut Fields<'_, '_>) -> Self {
        let verifies_identity = f.boolean("ssl_p2s_verify_identity", false);
        ServerTlsParams { verifies_identity, ..params(f, &VARIABLES) }
    }
}

/// `tls_cert_file` and `tls_key_file`.
impl Group for Option<TlsFiles> {
    fn declare(list: &mut Vec<Variable>) {
        let field = "tls_files";
        let of = |name, doc| Declared { module: MYSQL, name, field, doc, marks: LOCAL_AND_RESTART };
        let cert = "Weir's own: PEM file of the certificate for clients; requires `tls_key_file`. Empty: a \
                    self-signed certificate in `datadir` ([TLS](tls.md)).";
        PathName.declare(of("tls_cert_file", cert), &None, list);
        PathName.declare(of("tls_key_file", "Weir's own: PEM file of that certificate's key."), &None, list);
    }

    fn read(f: &mut Fields<'_, '_>) -> Self {
        cert_and_key(f, "tls_cert_file", "tls_key_file")
    }
}

/// Both or none.
fn cert_and_key(f: &mut Fields<'_, '_>, cert_name: &'static str, key_name: &'static str) -> Option<TlsFiles> {
    let (cert, key) = (f.path(cert_name, 4096), f.path(key_name, 4096));
    let (given, missing) = match (cert, key) {
        (Some(cert), Some(key)) => return Some(TlsFiles { cert, key }),
        (None, None) => return None,
        (Some(_), None) => (cert_name, key_name),
        (None, Some(_)) => (key_name, cert_name),
    };
    f.refuse(given, format!("needs {missing} too"));
    None
}

pub(crate) fn params(f: &mut Fields<'_, '_>, names: &Names) -> ServerTlsParams {
    let mut path = |name| f.path(name, 4096);
    let (ca, ca_dir) = (path(names.ca), path(names.ca_dir));
    let (crl, crl_dir) = (path(names.crl), path(names.crl_dir));
    let own = cert_and_key(f, names.cert, names.key);
    if ca.is_none() && ca_dir.is_none() {
        for (name, _) in
            [(names.crl, &crl), (names.crl_dir, &crl_dir)].iter().filter(|(_, path)| path.is_some())
        {
            f.refuse(
                name,
                format!(
                    "needs {} or {}: without authorities any certificate is accepted",
                    names.ca, names.ca_dir
                ),
            );
        }
    }
    let versions = names.versions.and_then(|name| tls_versions(f, name)).unwrap_or_default();
    let ciphers = ciphers(f, names.ciphers, versions);
    ServerTlsParams { ca, ca_dir, crl, crl_dir, ciphers, own, versions, verifies_identity: false }
}

/// A list with colons such as OpenSSL's, of ciphers and not of groups of them.
fn ciphers(f: &mut Fields<'_, '_>, name: &'static str, versions: TlsVersions) -> Vec<TlsCipher> {
    let Some(text) = f.optional_text(name, 4096) else { return Vec::new() };
    let mut ciphers = Vec::new();
    for word in text.split(':').map(str::trim).filter(|word| !word.is_empty()) {
        let is_it = |cipher: &&TlsCipher| word == cipher.openssl || word == cipher.iana;
        let Some(cipher) = CIPHERS.iter().find(is_it) else {
            let known = CIPHERS.map(|cipher| cipher.openssl);
            f.refuse(name, unknown_word(&quotable(word), &known));
            return Vec::new();
        };
        if !(if cipher.is_v13 { versions.v13 } else { versions.v12 }) {
            let version = if cipher.is_v13 { "TLSv1.3" } else { "TLSv1.2" };
            f.refuse(name, format!("{word} is of {version}, which tls_version excludes"));
            return Vec::new();
        }
        ciphers.push(*cipher);
    }
    ciphers
}

/// A list such as `TLSv1.2,TLSv1.3`; none if it is empty or faulty.
fn tls_versions(f: &mut Fields<'_, '_>, name: &'static str) -> Option<TlsVersions> {
    let text = f.optional_text(name, 256)?;
    let mut versions = TlsVersions { v12: false, v13: false };
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "TLSv1.2" => versions.v12 = true,
            "TLSv1.3" => versions.v13 = true,
            "TLSv1" | "TLSv1.0" | "TLSv1.1" => {
                f.refuse(name, format!("{word} is insecure and not supported (TLSv1.2, TLSv1.3)"));
                return None;
            }
            word => {
                let fault = unknown_word(&quotable(word), &["TLSv1.2", "TLSv1.3"]);
                f.refuse(name, fault);
                return None;
            }
        }
    }
    (versions.v12 || versions.v13).then_some(versions)
}
