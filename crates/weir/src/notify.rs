//! Tells the service manager how things stand, where there is one (sd_notify(3)): a datagram to `NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// This process serves clients.
pub(crate) fn ready() {
    tell(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// Another process serves them from now on.
pub(crate) fn followed_by(pid: i32) {
    tell(&format!("MAINPID={pid}"));
}

/// This process ends, and no other follows.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET").filter(|to| !to.is_empty()) else { return };
    if let Err(error) = send(&to, state) {
        tracing::debug!(%error, "can't write to NOTIFY_SOCKET");
    }
}

fn send(to: &OsStr, state: &str) -> io::Result<()> {
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(to)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_both_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let file = UnixDatagram::bind(&path).unwrap();
        let name = format!("weir-notify-{}", std::process::id());
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, to) in [(file, path.into_os_string()), (hidden, format!("@{name}").into())] {
            send(&to, "READY=1").unwrap();
            let mut bytes = [0; 16];
            let count = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..count], b"READY=1");
        }
    }
}
