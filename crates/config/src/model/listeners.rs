//! Declares where clients come in: `mysql_variables.interfaces`, and the table `weir_listeners` of Weir's own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::field::fields::Fields;
use crate::report::place::Keyed;
use crate::value::rows::TableRow;
use crate::value::suggest::quotable;

/// The most addresses in all.
pub(crate) const LISTENERS_MAX: usize = 64;
/// A path of a Unix socket has at most 107 bytes and a zero (unix(7), "Address format").
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The treatment of clients at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListenerMode {
    /// Read/write split by statement.
    #[default]
    Split,
    /// Every session has one server, which takes writes.
    Primary,
    /// Every session has one server, which takes reads.
    Replicas,
}

impl ListenerMode {
    pub(crate) const WORDS: [&'static str; 3] = ["split", "primary", "replicas"];

    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Split, Self::Primary, Self::Replicas].into_iter().find(|mode| mode.word() == word)
    }

    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Primary => "primary",
            Self::Replicas => "replicas",
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// IPv4 or IPv6, with a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket; absolute, of at most 107 bytes.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Reads `ip:port` or an absolute path.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let quoted = quotable(text);
        if text.starts_with('/') {
            return match text {
                path if path.len() > SOCKET_PATH_BYTES_MAX => {
                    Err(format!("\"{quoted}\": a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes"))
                }
                path if path.ends_with('/') => Err(format!("\"{quoted}\" names a directory, not a socket")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(format!("\"{quoted}\" has no port")),
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => Err(format!(
                "\"{quoted}\" is neither an address and port such as 0.0.0.0:6033 nor the path of a socket"
            )),
        }
    }

    /// The address without the port, or the path.
    pub fn host(&self) -> String {
        match self {
            Self::Tcp(address) => address.ip().to_string(),
            Self::Unix(path) => path.display().to_string(),
        }
    }

    /// The port; 0 for a Unix socket, as ProxySQL has it.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(address) => address.port(),
            Self::Unix(_) => 0,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A listener: an address of `interfaces`, or a row of `weir_listeners`. Key: the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it listens.
    pub address: ListenAddress,
    /// What its clients get.
    pub mode: ListenerMode,
    /// The hostgroup of its sessions in place of their users' default one.
    pub hostgroup: Option<u32>,
    /// For humans.
    pub comment: String,
}

impl Keyed for Listener {
    fn table(&self) -> &'static str {
        "weir_listeners"
    }

    fn key(&self) -> TableRow {
        [("address".into(), self.address.to_string().into())].into()
    }
}

impl Listener {
    /// A listener of `interfaces`.
    pub fn split(address: ListenAddress) -> Self {
        Self { address, mode: ListenerMode::Split, hostgroup: None, comment: String::new() }
    }
}

/// `interfaces`: at least one address; none if there is a fault or nothing is given.
pub(crate) fn interfaces(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Vec<ListenAddress>> {
    let addresses = addresses(f, name)?;
    if addresses.is_empty() {
        f.refuse(name, "is empty");
    }
    Some(addresses).filter(|addresses| !addresses.is_empty())
}

/// `;`-separated addresses; none if there is a fault or nothing is given.
pub(crate) fn addresses(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Vec<ListenAddress>> {
    let text = f.optional_text(name, 8192)?;
    let mut addresses = Vec::new();
    let mut faults = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match ListenAddress::parse(part) {
            Ok(address) if addresses.contains(&address) => {
                faults.push(format!("\"{}\" is there twice", quotable(part)));
            }
            Ok(address) => addresses.push(address),
            Err(fault) => faults.push(fault),
        }
        if addresses.len() > LISTENERS_MAX {
            faults.push(format!("more than {LISTENERS_MAX} addresses"));
            break;
        }
    }
    for fault in &faults {
        f.refuse(name, fault);
    }
    faults.is_empty().then_some(addresses)
}

/// The same as text.
pub(crate) fn written(addresses: &[ListenAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(";")
}
