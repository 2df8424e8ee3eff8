//! Makes a certificate authority for one run, and what it signs: for the servers, for the proxies, and for sysbench.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use weir_client::Tls;
use weir_lab::Error;
use weir_testkit::RunDir;

/// Files and settings for TLS. The files' names are those that sysbench looks for in its current directory.
#[derive(Debug)]
pub(crate) struct Certificates {
    // Removed at the end.
    dir: RunDir,
    client: Arc<ClientConfig>,
}

impl Certificates {
    /// Makes them for the loopback addresses that are used.
    pub(crate) fn make(addresses: &[Ipv4Addr]) -> Result<Certificates, Error> {
        let dir = RunDir::create("bench-tls", false)?;
        let (issuer, server, client) = sign(addresses)
            .map_err(|error| Error::Impossible(format!("certificates can't be made: {error}")))?;
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            write_readable(&path, text).map_err(Error::io(format!("write {}", path.display())))
        };
        write("cacert.pem", &issuer.pem())?;
        write("server-cert.pem", &server.0)?;
        write("server-key.pem", &server.1)?;
        write("client-cert.pem", &client.0)?;
        write("client-key.pem", &client.1)?;
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from(issuer.der().to_vec());
        roots.add(authority).map_err(|error| Error::Impossible(format!("TLS can't be set up: {error}")))?;
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Certificates { dir, client: Arc::new(client) })
    }

    /// Where the files are; sysbench has to run there.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The certificate that all others are signed with. sysbench shows one of its own too, which the servers check.
    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.path().join("cacert.pem")
    }

    /// The certificate of the servers and the proxies.
    pub(crate) fn server_cert(&self) -> PathBuf {
        self.dir.path().join("server-cert.pem")
    }

    /// Its key.
    pub(crate) fn server_key(&self) -> PathBuf {
        self.dir.path().join("server-key.pem")
    }

    /// For clients of our own at this address: trusts this authority only.
    pub(crate) fn client(&self, server: Ipv4Addr) -> Tls {
        Tls::new(Arc::clone(&self.client), ServerName::from(IpAddr::from(server)))
    }

    /// Lines for the servers' configuration: TLS for clients only. The script of Galera's state transfer would take
    /// it up too, and need stunnel for it.
    pub(crate) fn server_cnf(&self) -> String {
        let (authority, cert, key) = (self.authority(), self.server_cert(), self.server_key());
        format!(
            "ssl_ca={}\nssl_cert={}\nssl_key={}\n[sst]\nssl-mode=DISABLED\n",
            authority.display(),
            cert.display(),
            key.display()
        )
    }
}

/// Certificate and key, PEM.
type Signed = (String, String);

fn sign(addresses: &[Ipv4Addr]) -> Result<(CertifiedIssuer<'static, KeyPair>, Signed, Signed), rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "weir-bench authority");
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let signed = |name: &str| -> Result<Signed, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names =
            addresses.iter().map(|&ip| rcgen::SanType::IpAddress(IpAddr::V4(ip))).collect();
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    let (server, client) = (signed("weir-bench server")?, signed("weir-bench client")?);
    Ok((issuer, server, client))
}

/// The servers run as another user; the key is worth nothing after this run.
fn write_readable(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_where_sysbench_and_the_servers_look_for_it() {
        let certificates = Certificates::make(&[Ipv4Addr::LOCALHOST]).unwrap();
        for name in ["cacert.pem", "client-cert.pem", "client-key.pem"] {
            assert!(certificates.dir().join(name).is_file(), "{name}");
        }
        let cnf = certificates.server_cnf();
        for path in
            cnf.lines().filter(|line| line.starts_with("ssl_")).map(|line| line.split_once('=').unwrap().1)
        {
            assert!(Path::new(path).is_file(), "{path}");
        }
    }
}
