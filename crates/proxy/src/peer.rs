//! Tells where a client comes from.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use weir_session::accounts::ClientHost;

/// Where a client comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Through a Unix socket of this machine.
    Unix,
}

impl Peer {
    /// The address; none through a Unix socket, where a server says "localhost".
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(addr) => Some(addr.ip()),
            Self::Unix => None,
        }
    }

    /// The host, for accounts of servers.
    pub fn host(&self) -> ClientHost {
        self.ip().map_or(ClientHost::Local, ClientHost::At)
    }

    /// Nobody else can listen in.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Unix)
    }
}

impl From<SocketAddr> for Peer {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix => f.write_str("localhost"),
        }
    }
}
