//! Opens listening sockets, or takes over those of another process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use crate::HttpError;

/// Sockets that listen, and whose clients wait until they are served.
#[derive(Debug, Default)]
pub struct HttpSockets(Vec<(SocketAddr, Bound)>);

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) struct Bound {
    /// With the port that the system chose.
    pub at: SocketAddr,
    pub listener: TcpListener,
}

impl HttpSockets {
    /// Listens on `addresses`, by the sockets that another process has `handed` over where there are any; the others
    /// of those are closed.
    ///
    /// # Errors
    /// When an address can't be listened on.
    pub fn open(addresses: &[SocketAddr], mut handed: Vec<(SocketAddr, OwnedFd)>) -> Result<Self, HttpError> {
        let mut sockets = Self::default();
        for address in addresses {
            if sockets.0.iter().any(|(known, _)| known == address) {
                continue;
            }
            let bound = match handed.iter().position(|(known, _)| known == address) {
                Some(at) => Bound::new(handed.swap_remove(at).1.into()),
                None => TcpListener::bind(address).and_then(Bound::new),
            };
            let bound = bound.map_err(|error| HttpError::Listen { address: *address, error })?;
            sockets.0.push((*address, bound));
        }
        Ok(sockets)
    }

    /// The socket of an address, which is listened on from now on if it was not.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Result<Bound, HttpError> {
        if let Some(at) = self.0.iter().position(|(known, _)| *known == address) {
            return Ok(self.0.swap_remove(at).1);
        }
        let bound = TcpListener::bind(address).and_then(Bound::new);
        bound.map_err(|error| HttpError::Listen { address, error })
    }
}

impl Bound {
    fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { at: listener.local_addr()?, listener })
    }
}
