//! TLS towards servers: `mysql_servers.use_ssl`, `mysql_servers_ssl_params` and the `ssl_p2s_*` variables.

use std::path::PathBuf;

use weir_topology::Endpoint;

use crate::Config;
use crate::error::Report;
use crate::fields::{Fields, quotable};
use crate::suggest::unknown_word;
use crate::tables::{self, COMMENT_CHARS_MAX, Lines, Row};
use crate::types::TlsFiles;

/// How connections to a server are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerTlsParams {
    /// The authorities (PEM) of which one must have signed the server's certificate. None: any certificate will do,
    /// so that nobody can listen in, but somebody could pretend to be the server.
    pub ca: Option<PathBuf>,
    /// What Weir shows to a server that asks for a certificate.
    pub own: Option<TlsFiles>,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
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

impl Config {
    /// How connections to a server are encrypted; none if they are not.
    pub fn server_tls(&self, endpoint: &Endpoint) -> Option<&ServerTlsParams> {
        self.servers.iter().find(|row| row.use_ssl && row.endpoint() == *endpoint)?;
        let own = self.servers_ssl_params.iter().find(|row| row.endpoint == *endpoint);
        Some(own.map_or(&self.variables.ssl_p2s, |row| &row.params))
    }
}

/// A row of `mysql_servers_ssl_params`.
pub(crate) fn ssl_params(row: &Row<'_>, report: &mut Report) -> Option<ServerSslParams> {
    let mut f = Fields::new(row.path.as_str(), row.table, row.line, report);
    let hostname = tables::hostname(&mut f);
    let port = tables::port(&mut f);
    let params = params(&mut f, ["ssl_ca", "ssl_cert", "ssl_key"], Some("tls_version"));
    for name in ["username", "ssl_capath", "ssl_crl", "ssl_crlpath", "ssl_cipher"] {
        if f.optional_text(name, 4096).is_some_and(|text| !text.is_empty()) {
            f.refuse(name, "not built yet (only an empty string)");
        }
    }
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish(|_, _| None, &[]);
    Some(ServerSslParams { endpoint: Endpoint::new(&hostname?, port), params, comment })
}

/// `ssl_p2s_ca`, `ssl_p2s_cert` and `ssl_p2s_key`: for servers without a row.
pub(crate) fn variables(f: &mut Fields<'_, '_>) -> ServerTlsParams {
    params(f, ["ssl_p2s_ca", "ssl_p2s_cert", "ssl_p2s_key"], None)
}

fn params(
    f: &mut Fields<'_, '_>,
    [ca, cert, key]: [&'static str; 3],
    version: Option<&'static str>,
) -> ServerTlsParams {
    let mut path = |name| f.optional_text(name, 4096).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (authorities, files) = (path(ca), (path(cert), path(key)));
    let own = match files {
        (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
        (None, None) => None,
        (Some(_), None) => {
            f.refuse(cert, format!("needs {key} too"));
            None
        }
        (None, Some(_)) => {
            f.refuse(key, format!("needs {cert} too"));
            None
        }
    };
    let versions = version.and_then(|name| tls_versions(f, name)).unwrap_or_default();
    ServerTlsParams { ca: authorities, own, versions }
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
                f.refuse(name, format!("{word} is broken and not spoken (TLSv1.2, TLSv1.3)"));
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

/// A server has one way to be connected to, whichever hostgroup wants it, and rows are of servers that are there.
pub(crate) fn consistent(
    config: &Config,
    servers: Option<&Lines>,
    params: Option<&Lines>,
    report: &mut Report,
) {
    if let Some(lines) = servers {
        for (index, row) in config.servers.iter().enumerate() {
            let before =
                config.servers.iter().take(index).position(|other| other.endpoint() == row.endpoint());
            if let Some(first) = before.filter(|first| config.servers[*first].use_ssl != row.use_ssl) {
                let (path, line) = lines.at(index);
                let reason = format!(
                    "differs from the row of {} in line {}: a server has one",
                    row.endpoint(),
                    lines.at(first).1
                );
                report.refuse(line, format!("{path}.use_ssl"), reason);
            }
        }
    }
    let Some(lines) = params else { return };
    for (index, row) in config.servers_ssl_params.iter().enumerate() {
        let (path, line) = lines.at(index);
        let same = |other: &ServerSslParams| other.endpoint == row.endpoint;
        if let Some(first) = config.servers_ssl_params.iter().take(index).position(same) {
            let reason = format!("{} is already there (line {})", row.endpoint, lines.at(first).1);
            report.refuse(line, path, reason);
        } else if servers.is_some() && !config.servers.iter().any(|server| server.endpoint() == row.endpoint)
        {
            report.refuse(line, path, format!("no row of mysql_servers is {}", row.endpoint));
        }
    }
}
