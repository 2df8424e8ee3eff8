//! Finds the cluster of a server, with the account that its user gives.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::str::FromStr;

use weir_client::Options;
use weir_config::Secret;
use weir_discovery::{Cluster, Dialling, Findings, Limits, ServerUrl, SslMode, walk};
use weir_topology::Endpoint;

use super::{InitError, terminal};
use crate::server_tls::towards_server;

/// Where the password is that is nowhere else: as MySQL's own clients have it.
const PASSWORD_VARIABLE: &str = "MYSQL_PWD";

/// Whom to ask, and how to log in.
pub(super) struct ClusterFinder {
    pub url: ServerUrl,
    password: Secret,
    /// Servers that are found may have passwords, verified or not.
    trusts_peers: bool,
}

/// What was found.
pub(super) struct Found {
    pub findings: Findings,
    pub cluster: Cluster,
}

impl ClusterFinder {
    /// Takes the address apart, and gets the password.
    pub(super) fn new(
        address: &str,
        password_file: Option<&Path>,
        trusts_peers: bool,
    ) -> Result<Self, InitError> {
        let url = ServerUrl::from_str(address)?;
        let password = match (&url.password, password_file) {
            (Some(password), _) => password.clone(),
            (None, Some(path)) => Secret::new(first_line(path)?),
            (None, None) => match std::env::var(PASSWORD_VARIABLE) {
                Ok(password) => Secret::new(password),
                Err(_) => {
                    let of = format!("{} at {}", url.user, url.endpoint);
                    Secret::new(terminal::password(&of)?.ok_or(InitError::NoPassword(of))?)
                }
            },
        };
        Ok(Self { url, password, trusts_peers })
    }

    /// The account's password.
    pub(super) fn password(&self) -> &Secret {
        &self.password
    }

    /// Asks the server, and all that it leads to.
    pub(super) fn find(&self) -> Result<Found, InitError> {
        let limits = Limits { asks_binlog_readers: self.trusts_peers, ..Limits::default() };
        let findings = walk(&self.url.endpoint, &|endpoint| self.dialling(endpoint), &limits)?;
        let cluster = Cluster::of(&findings)?;
        Ok(Found { findings, cluster })
    }

    /// How to log in with the user's account.
    pub(super) fn dialling(&self, endpoint: &Endpoint) -> Result<Dialling, String> {
        self.dialling_as(endpoint, &self.url.user, &self.password)
    }

    /// How to log in with another one.
    pub(super) fn dialling_as(
        &self,
        endpoint: &Endpoint,
        user: &str,
        password: &Secret,
    ) -> Result<Dialling, String> {
        let ServerUrl { ssl_mode, ssl_ca, .. } = &self.url;
        let is_tls_optional = *ssl_mode == SslMode::Preferred;
        let tls = match ssl_mode {
            SslMode::Disabled => None,
            mode => {
                // Without an authority anybody may sign.
                let ca = ssl_ca.clone().filter(|_| mode.verifies());
                match towards_server(endpoint, ca, *mode == SslMode::VerifyIdentity) {
                    Ok(tls) => Some(tls),
                    Err(_) if is_tls_optional => None,
                    Err(error) => return Err(format!("TLS: {error}")),
                }
            }
        };
        let options = Options::new(&endpoint.host, endpoint.port, user, password.expose()).tls(tls);
        // Whoever is named by a server, and shows no certificate, could be anybody.
        let is_trusted = self.trusts_peers || ssl_mode.verifies() || *endpoint == self.url.endpoint;
        let options = options.proofs_only(!is_trusted);
        Ok(Dialling { options, is_tls_optional })
    }
}

/// The first line of a file.
fn first_line(path: &Path) -> Result<String, InitError> {
    let failed = |cause| InitError::File { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    terminal::line(&mut BufReader::new(file)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_is_named_gets_the_password() {
        let withholds = |address: &str, trusts_peers: bool, host: &str| {
            let finder = ClusterFinder::new(address, None, trusts_peers).unwrap();
            finder.dialling(&Endpoint::new(host, 3306)).unwrap().options.proofs_only
        };
        for address in ["mysql://root:x@db1", "mysql://root:x@db1/?ssl-mode=required"] {
            assert!(!withholds(address, false, "db1"));
            assert!(withholds(address, false, "db2"));
            assert!(!withholds(address, true, "db2"));
        }
    }
}
