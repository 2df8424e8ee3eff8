//! Tries a node's ports, to learn whether its process is gone.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a port may take to refuse. Whoever is there and refuses does so at once; silence proves nothing.
const KNOCK_TIMEOUT: Duration = Duration::from_millis(20);
/// How long the port of a living node may take to accept.
const GREET_TIMEOUT: Duration = Duration::from_millis(500);

/// Whether both of a node's ports refuse connections.
pub(crate) fn both_refuse(clients: SocketAddr, group: SocketAddr) -> bool {
    [clients, group].iter().all(|address| {
        TcpStream::connect_timeout(address, KNOCK_TIMEOUT)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    })
}

/// Whether somebody listens.
pub(crate) fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, GREET_TIMEOUT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_two_closed_ports_are_a_proof() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (open, closed, other) = (listen(), listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let (open_at, closed_at, other_at) = (address(&open), address(&closed), address(&other));
        drop((closed, other));
        assert!(both_refuse(closed_at, other_at));
        assert!(!both_refuse(open_at, closed_at));
        assert!(!both_refuse(closed_at, open_at));
        assert!(answers(open_at) && !answers(closed_at));
    }
}
