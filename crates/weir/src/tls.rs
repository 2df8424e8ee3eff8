//! Sets up TLS towards clients: the user's certificate, or one made at the first start and kept in datadir.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use weir_config::{Config, private_file};

/// Why there is no certificate to read.
pub(crate) const NO_TLS: &str = "mysql-have_ssl is off: there is no TLS";
const CERT_FILE: &str = "weir-cert.pem";
const KEY_FILE: &str = "weir-key.pem";

/// Why TLS can't be offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{path} lacks the PEM section that is needed: {error}")]
    Pem { path: PathBuf, error: rustls::pki_types::pem::Error },
    #[error("certificate {cert} and key {key} can't be used: {error}")]
    Unusable { cert: PathBuf, key: PathBuf, error: rustls::Error },
    #[error("{path} has no certificate of an authority")]
    NoAuthority { path: PathBuf },
    #[error("the authorities in {path} can't be used: {error}")]
    Authorities { path: PathBuf, error: VerifierBuilderError },
    #[error("can't make a key for session tickets: {0}")]
    Tickets(rustls::Error),
    #[error("a self-signed certificate can't be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// TLS towards clients, at the data port and the admin port.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub config: Arc<ServerConfig>,
    current: Arc<Current>,
}

impl Tls {
    /// What the listeners need; `None` if it is switched off.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, TlsError> {
        if !config.variables.have_ssl {
            return Ok(None);
        }
        let builder = ServerConfig::builder();
        let key = certified_key(config, builder.crypto_provider())?;
        let current = Arc::new(Current(RwLock::new(Arc::new(key))));
        let verifier = match &config.variables.tls_client_ca_file {
            Some(path) => client_verifier(path, builder.crypto_provider())?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut server = builder.with_client_cert_verifier(verifier).with_cert_resolver(current.clone());
        // A client that comes back is known by its ticket: nothing is kept for it here, and all workers know it.
        server.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Tickets)?;
        Ok(Some(Self { config: Arc::new(server), current }))
    }

    /// Reads certificate and key again, which takes as long as the disk does.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read(&self, config: &Config) -> Result<Certificate, TlsError> {
        certified_key(config, self.config.crypto_provider()).map(|key| Certificate(Arc::new(key)))
    }

    /// The certificate of the handshakes from now on.
    pub(crate) fn take(&self, certificate: Certificate) {
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = certificate.0;
    }
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Certificate(Arc<CertifiedKey>);

/// The certificate of now. Only a handshake looks at it.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Whoever shows a certificate has one that these authorities have signed.
fn client_verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let pem = |error| TlsError::Pem { path: path.to_path_buf(), error };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(pem)?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(TlsError::NoAuthority { path: path.to_path_buf() });
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let built = verifier.allow_unauthenticated().build();
    built.map_err(|error| TlsError::Authorities { path: path.to_path_buf(), error })
}

fn certified_key(config: &Config, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let (cert, key) = match &config.variables.tls_files {
        Some(files) => (files.cert.clone(), files.key.clone()),
        None => {
            let paths = (config.datadir.join(CERT_FILE), config.datadir.join(KEY_FILE));
            if !paths.0.exists() || !paths.1.exists() {
                make_self_signed(&config.datadir, &paths.0, &paths.1)?;
            }
            paths
        }
    };
    let pem = |path: &Path| {
        let path = path.to_path_buf();
        move |error| TlsError::Pem { path, error }
    };
    let certs = CertificateDer::pem_file_iter(&cert)
        .and_then(|certs| certs.collect::<Result<Vec<_>, _>>())
        .map_err(pem(&cert))?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(pem(&key))?;
    CertifiedKey::from_der(certs, private, provider).map_err(|error| TlsError::Unusable { cert, key, error })
}

fn make_self_signed(datadir: &Path, cert: &Path, key: &Path) -> Result<(), TlsError> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "weir".into()])?;
    let file = |path: &Path| {
        let path = path.to_path_buf();
        move |error| TlsError::File { path, error }
    };
    std::fs::create_dir_all(datadir).map_err(file(datadir))?;
    private_file::write(key, &made.signing_key.serialize_pem()).map_err(file(key))?;
    std::fs::write(cert, made.cert.pem()).map_err(file(cert))?;
    tracing::info!(cert = %cert.display(), "made a self-signed certificate for TLS");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
    use std::os::unix::fs::PermissionsExt;

    fn server_config(config: &Config) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        Ok(Tls::new(config)?.map(|tls| tls.config))
    }

    #[test]
    fn a_certificate_is_made_once_and_kept() {
        let datadir = tempfile::tempdir().unwrap();
        let config = Config { datadir: datadir.path().join("new"), ..Config::default() };
        assert!(server_config(&config).unwrap().is_some());
        let key = config.datadir.join(KEY_FILE);
        let first = std::fs::read(&key).unwrap();
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(server_config(&config).unwrap().is_some());
        assert_eq!(std::fs::read(&key).unwrap(), first);
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let datadir = tempfile::tempdir().unwrap();
        let config = Config { datadir: datadir.path().into(), ..Config::default() };
        server_config(&config).unwrap();
        std::fs::write(datadir.path().join(CERT_FILE), "nonsense").unwrap();
        let error = server_config(&config).unwrap_err().to_string();
        assert!(error.contains(CERT_FILE), "{error}");
    }

    /// A whole connection in memory; the kind of its handshake, as its client sees it.
    fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Option<HandshakeKind> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(client.clone(), name).unwrap();
        let mut server = ServerConnection::new(server.clone()).unwrap();
        for _ in 0..6 {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                client.read_tls(&mut bytes).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        client.handshake_kind()
    }

    #[test]
    fn a_client_that_comes_back_is_known_by_its_ticket() {
        let datadir = tempfile::tempdir().unwrap();
        let config = Config { datadir: datadir.path().into(), ..Config::default() };
        let server = server_config(&config).unwrap().unwrap();
        for version in [&TLS12, &TLS13] {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(datadir.path().join(CERT_FILE)).unwrap()).unwrap();
            let client = ClientConfig::builder_with_protocol_versions(&[version]);
            let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
            assert_eq!(connect(&client, &server), Some(HandshakeKind::Full));
            assert_eq!(connect(&client, &server), Some(HandshakeKind::Resumed));
        }
    }

    #[test]
    fn another_certificate_is_taken_while_it_runs() {
        let datadir = tempfile::tempdir().unwrap();
        let config = Config { datadir: datadir.path().into(), ..Config::default() };
        let tls = Tls::new(&config).unwrap().unwrap();
        let chain = |tls: &Tls| tls.current.0.read().unwrap().cert.clone();
        let first = chain(&tls);
        std::fs::remove_file(datadir.path().join(KEY_FILE)).unwrap();
        tls.take(tls.read(&config).unwrap());
        let second = chain(&tls);
        assert_ne!(first, second);
        std::fs::write(datadir.path().join(CERT_FILE), "nonsense").unwrap();
        assert!(tls.read(&config).is_err());
        assert_eq!(chain(&tls), second);
    }
}
