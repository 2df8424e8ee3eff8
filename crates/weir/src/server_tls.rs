//! TLS towards servers: from the configuration to what connections are made with.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use weir_config::{Config, ServerTlsParams};
use weir_proxy::snapshot::ServerTls;
use weir_topology::Endpoint;

/// How connections to servers are encrypted; servers that are missing are spoken to in clear. A server has the same
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
    #[error("{path} is no PEM file with what is needed: {error}")]
    Pem { path: PathBuf, error: rustls::pki_types::pem::Error },
    #[error("{path} has no certificate that can be trusted: {error}")]
    Authority { path: PathBuf, error: rustls::Error },
    #[error("certificate {cert} and its key can't be used: {error}")]
    Unusable { cert: PathBuf, error: rustls::Error },
    #[error("{0}: no name for TLS: use an address, or a name of letters, digits and hyphens")]
    Name(Endpoint),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// What the files of a configuration hold.
#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    ca: Option<Vec<u8>>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl ServersTls {
    /// Reads all that the configuration asks for.
    ///
    /// # Errors
    /// The first file or server with which something is wrong.
    pub(crate) fn read(&self, config: &Config) -> Result<Self, ServerTlsError> {
        let mut servers = BTreeMap::new();
        for row in config.servers.iter().filter(|row| row.use_ssl) {
            let endpoint = row.endpoint();
            let Some(params) = config.server_tls(&endpoint) else { continue };
            let files = Files::read(params)?;
            let known = self.servers.get(&endpoint);
            let tls = match known.filter(|known| known.params == *params && known.files == files) {
                Some(known) => known.tls.clone(),
                None => Arc::new(server_tls(&endpoint, params, &files)?),
            };
            servers.insert(endpoint, Known { params: params.clone(), files, tls });
        }
        Ok(Self { servers })
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

impl Files {
    fn read(params: &ServerTlsParams) -> Result<Self, ServerTlsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| ServerTlsError::File { path: path.into(), error })
        };
        let ca = params.ca.as_deref().map(read).transpose()?;
        let own = match &params.own {
            Some(files) => Some((read(&files.cert)?, read(&files.key)?)),
            None => None,
        };
        Ok(Self { ca, own })
    }
}

fn server_tls(
    endpoint: &Endpoint,
    params: &ServerTlsParams,
    files: &Files,
) -> Result<ServerTls, ServerTlsError> {
    let name = ServerName::try_from(endpoint.host.to_string())
        .map_err(|_| ServerTlsError::Name(endpoint.clone()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut versions = Vec::new();
    if params.versions.v13 {
        versions.push(&TLS13);
    }
    if params.versions.v12 {
        versions.push(&TLS12);
    }
    let roots = match (&params.ca, &files.ca) {
        (Some(path), Some(bytes)) => Some(authorities(path, bytes)?),
        _ => None,
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust { roots, provider }));
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

fn authorities(path: &Path, bytes: &[u8]) -> Result<RootCertStore, ServerTlsError> {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(bytes) {
        let cert = cert.map_err(|error| ServerTlsError::Pem { path: path.into(), error })?;
        roots.add(cert).map_err(|error| ServerTlsError::Authority { path: path.into(), error })?;
    }
    if roots.is_empty() {
        let error = rustls::Error::General("there is none in it".into());
        return Err(ServerTlsError::Authority { path: path.into(), error });
    }
    Ok(roots)
}

/// Trusts what one of the authorities has signed, for whatever name: MySQL and MariaDB make certificates that carry
/// no name of the host, and ProxySQL does not look at it either. Without authorities it trusts anybody, and reads
/// no certificate at all: some that servers make by themselves are of X.509 version 1.
#[derive(Debug)]
struct Trust {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let cert = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&cert, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.roots.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.roots.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path, params: &str) -> Config {
        let text = format!(
            "[[mysql_servers]]\nhostgroup_id = 0\nhostname = \"db1\"\nuse_ssl = 1\n\
             [[mysql_servers_ssl_params]]\nhostname = \"db1\"\n{}",
            params.replace("DIR", &dir.display().to_string())
        );
        weir_config::parse(&text, "weir.toml").unwrap()
    }

    #[test]
    fn the_same_object_as_long_as_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            std::fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
            std::fs::write(dir.path().join("c.pem"), made.cert.pem()).unwrap();
            std::fs::write(dir.path().join("k.pem"), made.signing_key.serialize_pem()).unwrap();
        };
        write("one");
        let params = "ssl_ca = \"DIR/ca.pem\"\nssl_cert = \"DIR/c.pem\"\nssl_key = \"DIR/k.pem\"\n";
        let config = config(dir.path(), params);
        let endpoint = Endpoint::new("db1", 3306);
        let first = ServersTls::default().read(&config).unwrap();
        let again = first.read(&config).unwrap();
        assert!(Arc::ptr_eq(first.of(&endpoint).unwrap(), again.of(&endpoint).unwrap()));
        write("two");
        let changed = again.read(&config).unwrap();
        assert!(!Arc::ptr_eq(first.of(&endpoint).unwrap(), changed.of(&endpoint).unwrap()));
        assert!(changed.read(&Config::default()).unwrap().of(&endpoint).is_none());
        assert_eq!(changed.for_monitor().len(), 1);
    }

    #[test]
    fn files_that_are_no_good_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("junk.pem"), "junk").unwrap();
        for (params, wanted) in [
            ("ssl_ca = \"DIR/none.pem\"", "none.pem: No such file"),
            ("ssl_ca = \"DIR/junk.pem\"", "junk.pem has no certificate that can be trusted"),
            (
                "ssl_cert = \"DIR/junk.pem\"\nssl_key = \"DIR/junk.pem\"",
                "junk.pem is no PEM file with what is needed",
            ),
        ] {
            let error = ServersTls::default().read(&config(dir.path(), params)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
