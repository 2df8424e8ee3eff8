//! Tells where a server is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_client::Address;
use weir_topology::Endpoint;

/// The addresses of the servers in force.
pub type ServerAddresses = BTreeMap<Endpoint, ServerAddress>;

/// The address of a server, the same for the monitor and the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerAddress {
    /// Where it is spoken to. It stays there while its name can't be resolved; none: the name never could.
    pub at: Option<SocketAddr>,
    /// All addresses that its name means, in order.
    pub all: Vec<SocketAddr>,
    /// Why its name could not be resolved last, where it could not.
    pub fault: Option<Arc<str>>,
}

impl ServerAddress {
    /// What is said of a name until the resolver has said something.
    pub const NOT_ANSWERED: &str = "the resolver has not answered yet";

    /// That of a server whose hostname is an address.
    pub fn fixed(at: SocketAddr) -> Self {
        Self { at: Some(at), all: vec![at], fault: None }
    }

    /// For a client that connects to it.
    pub fn address(&self) -> Address {
        match (self.at, &self.fault) {
            (Some(at), _) => Address::At(at),
            (None, fault) => Address::Unresolved(fault.clone().unwrap_or_else(|| Self::NOT_ANSWERED.into())),
        }
    }
}
