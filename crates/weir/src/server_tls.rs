//! Sets up TLS towards servers: from the configuration to what connections are made with.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ProtocolVersion, RootCertStore, SignatureScheme,
};
use weir_config::{ClusterSslMode, ClusterVariables, Config, NEEDS_AUTHORITY, ServerTlsParams, TlsCipher};
use weir_proxy::snapshot::ServerTls;
use weir_topology::Endpoint;

/// More files in a directory of authorities or of lists of revoked certificates are taken for the wrong directory.
const FILES_MAX: usize = 4096;

/// The encryption of connections to servers; servers that are missing are spoken to in clear. A server has the same
/// object as long as nothing about it changes, the content of its files included.
#[derive(Debug, Default)]
pub(crate) struct ServersTls {
    servers: BTreeMap<Endpoint, Known>,
}

#[derive(Debug)]
struct Known {
    params: ServerTlsParams,
    files: Files,
    tls: Arc<ServerTls>,
}

/// Why connections to a server can't be encrypted as configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerTlsError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{path} lacks the PEM section that is needed: {error}")]
    Pem { path: PathBuf, error: rustls::pki_types::pem::Error },
    #[error("{path} has no certificate that can be trusted: {error}")]
    Authority { path: PathBuf, error: rustls::Error },
    #[error("{path} has no list of revoked certificates that can be read: {error}")]
    Revoked { path: PathBuf, error: Box<dyn std::error::Error + Send + Sync> },
    #[error("{path}: more than {FILES_MAX} files")]
    TooMany { path: PathBuf },
    #[error("certificate {cert} and its key can't be used: {error}")]
    Unusable { cert: PathBuf, error: rustls::Error },
    #[error("{0} can't be checked by TLS: use an address, or a name of letters, digits and hyphens")]
    Name(Endpoint),
    #[error("mysql_servers: {0}: {NEEDS_AUTHORITY}")]
    NoAuthority(Endpoint),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// A file's path and content.
type File = (PathBuf, Vec<u8>);

/// The files that the servers of a configuration need, read.
#[derive(Debug)]
pub(crate) struct Contents(BTreeMap<Endpoint, (ServerTlsParams, Files)>);

/// The contents of the files of a server's parameters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    authorities: Vec<File>,
    revoked: Vec<File>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Contents {
    /// Reads all that the configuration asks for, which takes as long as the disk does.
    ///
    /// # Errors
    /// The first file that can't be read.
    pub(crate) fn read(config: &Config) -> Result<Self, ServerTlsError> {
        let mut contents = BTreeMap::new();
        for row in config.servers.iter().filter(|row| row.use_ssl) {
            let endpoint = row.endpoint();
            let Some(params) = config.server_tls(&endpoint) else { continue };
            // It may be in several hostgroups.
            if let Entry::Vacant(place) = contents.entry(endpoint) {
                let files = Files::read(&params)?;
                place.insert((params, files));
            }
        }
        Ok(Self(contents))
    }
}

impl ServersTls {
    /// What is made of these files; what is as before stays the same object.
    ///
    /// # Errors
    /// The first file or server with which something is wrong.
    pub(crate) fn with(&self, contents: Contents) -> Result<Self, ServerTlsError> {
        let mut servers = BTreeMap::new();
        for (endpoint, (params, files)) in contents.0 {
            let known = self.servers.get(&endpoint);
            let tls = match known.filter(|known| known.params == params && known.files == files) {
                Some(known) => known.tls.clone(),
                None => Arc::new(server_tls(&endpoint, &params, &files)?),
            };
            servers.insert(endpoint, Known { params, files, tls });
        }
        Ok(Self { servers })
    }

    /// Reads the files, too.
    ///
    /// # Errors
    /// As [`Contents::read`] and [`ServersTls::with`].
    pub(crate) fn read(&self, config: &Config) -> Result<Self, ServerTlsError> {
        self.with(Contents::read(config)?)
    }

    /// What is spoken with a server.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> Option<&Arc<ServerTls>> {
        self.servers.get(endpoint).map(|known| &known.tls)
    }

    /// The same for the monitor.
    pub(crate) fn for_monitor(&self) -> BTreeMap<Endpoint, weir_client::Tls> {
        let tls = |known: &Known| weir_client::Tls::new(known.tls.config.clone(), known.tls.name.clone());
        self.servers.iter().map(|(endpoint, known)| (endpoint.clone(), tls(known))).collect()
    }
}

/// TLS towards another proxy's admin port, by `admin-cluster_ssl_mode`; none: in clear.
///
/// # Errors
/// What is wrong with its files or its name, in words.
pub(crate) fn towards_proxy(
    endpoint: &Endpoint,
    variables: &ClusterVariables,
) -> Result<Option<weir_client::Tls>, String> {
    let (ca, verifies_identity) = match variables.ssl_mode {
        ClusterSslMode::Disabled => return Ok(None),
        ClusterSslMode::Required => (None, false),
        ClusterSslMode::VerifyCa => (variables.ssl_ca.clone(), false),
        ClusterSslMode::VerifyIdentity => (variables.ssl_ca.clone(), true),
    };
    let made = towards_server(endpoint, ca, verifies_identity);
    made.map(Some).map_err(|error| format!("admin-cluster_ssl_mode: {error}"))
}

/// TLS towards a server that is in no configuration yet, signed by the authorities of a file if there is one.
///
/// # Errors
/// What is wrong with the file or the name.
pub(crate) fn towards_server(
    endpoint: &Endpoint,
    ca: Option<PathBuf>,
    verifies_identity: bool,
) -> Result<weir_client::Tls, ServerTlsError> {
    let params = ServerTlsParams { ca, verifies_identity, ..ServerTlsParams::default() };
    let tls = server_tls(endpoint, &params, &Files::read(&params)?)?;
    Ok(weir_client::Tls::new(tls.config, tls.name))
}

impl Files {
    fn read(params: &ServerTlsParams) -> Result<Self, ServerTlsError> {
        let own = match &params.own {
            Some(files) => Some((content(&files.cert)?, content(&files.key)?)),
            None => None,
        };
        let authorities = file_and_directory(params.ca.as_deref(), params.ca_dir.as_deref())?;
        let revoked = file_and_directory(params.crl.as_deref(), params.crl_dir.as_deref())?;
        Ok(Self { authorities, revoked, own })
    }
}

fn content(path: &Path) -> Result<Vec<u8>, ServerTlsError> {
    std::fs::read(path).map_err(|error| ServerTlsError::File { path: path.into(), error })
}

/// A file, and all files of a directory in the order of their names, links to files included.
fn file_and_directory(file: Option<&Path>, directory: Option<&Path>) -> Result<Vec<File>, ServerTlsError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(directory) = directory {
        let unreadable = |error| ServerTlsError::File { path: directory.into(), error };
        for entry in std::fs::read_dir(directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_file() {
                paths.push(path);
            }
            if paths.len() > FILES_MAX {
                return Err(ServerTlsError::TooMany { path: directory.into() });
            }
        }
        paths.sort();
    }
    paths.extend(file.map(Path::to_path_buf));
    paths.into_iter().map(|path| content(&path).map(|bytes| (path, bytes))).collect()
}

fn server_tls(
    endpoint: &Endpoint,
    params: &ServerTlsParams,
    files: &Files,
) -> Result<ServerTls, ServerTlsError> {
    let name = ServerName::try_from(endpoint.host.to_string())
        .map_err(|_| ServerTlsError::Name(endpoint.clone()))?;
    if params.verifies_identity && !params.has_authority() {
        return Err(ServerTlsError::NoAuthority(endpoint.clone()));
    }
    let provider = Arc::new(provider(&params.ciphers));
    let mut versions = Vec::new();
    if params.versions.v13 {
        versions.push(&TLS13);
    }
    if params.versions.v12 {
        versions.push(&TLS12);
    }
    let authorities = match (&params.ca, &params.ca_dir) {
        (None, None) => None,
        (file, directory) => {
            // The directory's fault unless there is only the file.
            let named = directory.as_ref().or(file.as_ref()).cloned().unwrap_or_default();
            Some(verifier(&named, params, files, &provider)?)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust {
            authorities,
            checks_name: params.verifies_identity,
            provider,
        }));
    let config = match (&params.own, &files.own) {
        (Some(paths), Some((cert, key))) => {
            let pem = |path: &Path| {
                let path = path.to_path_buf();
                move |error| ServerTlsError::Pem { path, error }
            };
            let certs = CertificateDer::pem_slice_iter(cert)
                .collect::<Result<Vec<_>, _>>()
                .map_err(pem(&paths.cert))?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(pem(&paths.key))?;
            let unusable = |error| ServerTlsError::Unusable { cert: paths.cert.clone(), error };
            builder.with_client_auth_cert(certs, key).map_err(unusable)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(ServerTls { config: Arc::new(config), name })
}

/// What is spoken, with the ciphers of a version where some of it are named.
fn provider(named: &[TlsCipher]) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| {
        let is_v13 = suite.version().version == ProtocolVersion::TLSv1_3;
        let mut of_version = named.iter().filter(|cipher| cipher.is_v13 == is_v13).peekable();
        // rustls calls those of TLS 1.3 TLS13_...
        let name = suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1);
        of_version.peek().is_none() || of_version.any(|cipher| cipher.iana == name)
    });
    provider
}

/// Of a server's certificate: that an authority has signed it, and none has revoked it or one in between.
fn verifier(
    named: &Path,
    params: &ServerTlsParams,
    files: &Files,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, ServerTlsError> {
    let mut roots = RootCertStore::empty();
    for (path, bytes) in &files.authorities {
        for cert in CertificateDer::pem_slice_iter(bytes) {
            let cert = cert.map_err(|error| ServerTlsError::Pem { path: path.into(), error })?;
            roots.add(cert).map_err(|error| ServerTlsError::Authority { path: path.into(), error })?;
        }
    }
    if roots.is_empty() {
        let error = rustls::Error::General("there is none in it".into());
        return Err(ServerTlsError::Authority { path: named.into(), error });
    }
    let mut lists = Vec::new();
    for (path, bytes) in &files.revoked {
        let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
        lists.extend(
            read.map_err(|error| ServerTlsError::Revoked { path: path.into(), error: error.into() })?,
        );
    }
    if let Some(path) = params.crl.as_ref().or(params.crl_dir.as_ref()).filter(|_| lists.is_empty()) {
        return Err(ServerTlsError::Revoked { path: path.into(), error: "there is none in it".into() });
    }
    // Of each certificate a list must tell that it is not revoked, and the list must not be out of date.
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .with_crls(lists)
        .enforce_revocation_expiration();
    let path = params.crl.as_ref().or(params.crl_dir.as_ref()).map_or(named, PathBuf::as_path);
    builder.build().map_err(|error| ServerTlsError::Revoked { path: path.into(), error: error.into() })
}

/// Trusts what one of the authorities has signed; unless names are checked, for whatever name: MySQL and MariaDB make
/// certificates that carry no name of the host, and ProxySQL does not look at it either. Without authorities it trusts
/// anybody, and reads no certificate at all: some that servers make by themselves are of X.509 version 1.
#[derive(Debug)]
struct Trust {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// The certificate must be of the name, or the address, that `mysql_servers` has: a subjectAltName of it.
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// Without authorities no certificate is checked, and so nothing that is signed with its key.
    fn signature(
        &self,
        verify: impl FnOnce(&WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self.authorities {
            Some(_) => verify(&self.provider.signature_verification_algorithms),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            // The name is looked at when all else is in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(|algorithms| verify_tls12_signature(message, cert, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(|algorithms| verify_tls13_signature(message, cert, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
