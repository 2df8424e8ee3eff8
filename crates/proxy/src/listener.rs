//! Opens listening sockets, and tells which listener a client came in by.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use weir_config::{ListenAddress, Listener};

use crate::peer::Peer;
use crate::stream::Stream;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Whoever may enter the directory may connect, as at a server: it is the login that keeps people out.
const SOCKET_MODE: u32 = 0o777;

/// A client that has been accepted, on its way to the worker that serves it.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub stream: Stream,
    /// Where it comes from.
    pub peer: Peer,
    /// Where it came in.
    pub listener: Arc<Listener>,
}

/// A worker's end of a listening socket.
#[derive(Debug)]
pub struct Listening {
    /// The socket.
    pub socket: OwnedFd,
    /// What its clients get.
    pub listener: Arc<Listener>,
}

impl Listening {
    /// The next client that waits.
    ///
    /// # Errors
    /// As accept(2), `WouldBlock` when nobody waits.
    pub fn accept(&self) -> io::Result<Accepted> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, addr) = rustix::net::acceptfrom_with(&self.socket, flags)?;
        let peer = match addr.map(SocketAddr::try_from) {
            Some(Ok(addr)) => Peer::Tcp(addr),
            _ => Peer::Unix,
        };
        if !peer.is_local() {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        Ok(Accepted { stream: Stream::new(socket), peer, listener: self.listener.clone() })
    }
}

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}{}", hint(.error))]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// Why.
    pub error: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another program listens there: stop it, or set another address in mysql_variables.interfaces or \
             weir_listeners)"
        }
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need root or CAP_NET_BIND_SERVICE, a Unix socket needs a directory that may be \
             written to)"
        }
        io::ErrorKind::NotFound => " (the directory must exist)",
        _ => "",
    }
}

/// All listening sockets. Files of Unix sockets go with them.
#[derive(Debug, Default)]
pub struct Listeners {
    bound: Vec<Bound>,
    /// Files of sockets that another process has handed over and that may still be its own.
    adopted: Vec<Arc<SocketFile>>,
}

/// A socket that is listened on, on its way from one process to another.
#[derive(Debug)]
pub struct TakeoverSocket {
    /// Where it listens.
    pub address: ListenAddress,
    /// The socket.
    pub socket: OwnedFd,
}

/// A socket that is listened on.
#[derive(Debug, Clone)]
struct Bound {
    listener: Arc<Listener>,
    socket: Arc<OwnedFd>,
    /// Goes with the last owner of the socket.
    file: Option<Arc<SocketFile>>,
}

impl Listeners {
    /// Sockets that another process listens on: [`Listeners::bind`] takes those that are wanted. Their files stay that
    /// process's until [`Listeners::own_files`].
    ///
    /// # Errors
    /// When a Unix socket's file is gone.
    pub fn adopt(handed: Vec<TakeoverSocket>) -> io::Result<Self> {
        let mut listeners = Self::default();
        for TakeoverSocket { address, socket } in handed {
            let file = match &address {
                ListenAddress::Tcp(_) => None,
                ListenAddress::Unix(path) => Some(Arc::new(SocketFile::of(path, false)?)),
            };
            listeners.adopted.extend(file.clone());
            let listener = Arc::new(Listener::split(address));
            listeners.bound.push(Bound { listener, socket: Arc::new(socket), file });
        }
        Ok(listeners)
    }

    /// The process that the sockets come from has let go of them: their files go with this one's, at once those
    /// of sockets that it does not want.
    pub fn own_files(&mut self) {
        self.adopted.drain(..).for_each(|file| file.is_own.store(true, Ordering::Relaxed));
    }

    /// Another process has the sockets: their files stay when these are dropped.
    pub fn leave_files(&self) {
        let files = self.bound.iter().filter_map(|bound| bound.file.as_ref());
        files.for_each(|file| file.is_own.store(false, Ordering::Relaxed));
    }

    /// All sockets, for another process.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn takeover_sockets(&self) -> io::Result<Vec<TakeoverSocket>> {
        let hand = |bound: &Bound| {
            Ok(TakeoverSocket { address: bound.listener.address.clone(), socket: bound.socket.try_clone()? })
        };
        self.bound.iter().map(hand).collect()
    }

    /// Listens on all of these and nothing else; sockets that are among them already stay, with their clients
    /// that wait to be accepted. Nothing changes if one of them can't be had.
    ///
    /// # Errors
    /// Names the address.
    pub fn bind(&mut self, wanted: &[Listener]) -> Result<(), ListenError> {
        let mut bound = Vec::with_capacity(wanted.len());
        let mut fresh = Vec::new();
        for listener in wanted {
            let known = self.bound.iter().find(|known| known.listener.address == listener.address).cloned();
            bound.push(match known {
                Some(known) if *known.listener == *listener => known,
                Some(known) => Bound { listener: Arc::new(listener.clone()), ..known },
                None => {
                    fresh.push(bound.len());
                    Bound::new(listener)?
                }
            });
        }
        // Only now, and the first one last: who can connect to it finds the others there, too.
        for at in fresh.into_iter().rev() {
            let Bound { socket, listener, .. } = &bound[at];
            rustix::net::listen(&**socket, BACKLOG)
                .map_err(|error| ListenError { address: listener.address.clone(), error: error.into() })?;
        }
        self.bound = bound;
        Ok(())
    }

    /// A worker's own ends of all sockets.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn share(&self) -> io::Result<Vec<Listening>> {
        let share = |bound: &Bound| {
            Ok(Listening { socket: bound.socket.try_clone()?, listener: bound.listener.clone() })
        };
        self.bound.iter().map(share).collect()
    }

    /// What is listened on, with the ports that the system chose.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.bound.iter().map(|bound| &*bound.listener)
    }
}

impl Bound {
    fn new(listener: &Listener) -> Result<Self, ListenError> {
        let made = match &listener.address {
            ListenAddress::Tcp(addr) => listen_tcp(*addr).map(|socket| (socket, None)),
            ListenAddress::Unix(path) => listen_unix(path).map(|(socket, file)| (socket, Some(file))),
        };
        let (socket, file) =
            made.map_err(|error| ListenError { address: listener.address.clone(), error })?;
        let mut listener = listener.clone();
        if let ListenAddress::Tcp(addr) = &mut listener.address
            && addr.port() == 0
            && let Ok(chosen) = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from)
        {
            *addr = chosen;
        }
        Ok(Self { listener: Arc::new(listener), socket: Arc::new(socket), file: file.map(Arc::new) })
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn listen_tcp(addr: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if addr.is_ipv6() {
        // [::] and 0.0.0.0 are two addresses, which may have one port.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &addr)?;
    Ok(socket)
}

fn listen_unix(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let addr = SocketAddrUnix::new(path)?;
    let socket = socket(AddressFamily::UNIX)?;
    match rustix::net::bind(&socket, &addr) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &addr)?;
            rustix::net::bind(&socket, &addr)?;
        }
        result => result?,
    }
    let file = SocketFile::of(path, true)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok((socket, file))
}

/// Removes a socket's file that a program has left behind which ended without removing it.
///
/// # Errors
/// `AddrInUse` when somebody listens there, or when it is no socket.
fn remove_stale(path: &Path, addr: &SocketAddrUnix) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("the path exists and is not a socket"));
    }
    // Not blocking: a listener whose queue is full is one that lives.
    match rustix::net::connect(&socket(AddressFamily::UNIX)?, addr) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => Err(io::Error::from(Errno::ADDRINUSE)),
    }
}

/// The file of a Unix socket; removed when it is dropped, if it is still the same.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Not another process's that has the same socket.
    is_own: AtomicBool,
}

impl SocketFile {
    fn of(path: &Path, is_own: bool) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { path: path.into(), device, inode, is_own: AtomicBool::new(is_own) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !*self.is_own.get_mut() {
            return;
        }
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode));
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use weir_config::ListenerMode;

    fn unix(path: &Path) -> Listener {
        Listener::split(ListenAddress::Unix(path.into()))
    }

    #[test]
    fn a_socket_file_is_there_while_it_is_listened_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let mut listeners = Listeners::default();
        listeners.bind(&[unix(&path)]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        let mut client = UnixStream::connect(&path).unwrap();
        let shared = listeners.share().unwrap();
        let accepted = shared[0].accept().unwrap();
        assert_eq!((accepted.peer, accepted.peer.to_string()), (Peer::Unix, "localhost".to_owned()));
        client.write_all(b"hello").unwrap();
        let mut bytes = [0; 8];
        assert_eq!((&accepted.stream).read(&mut bytes).unwrap(), 5);
        (&accepted.stream).write_all(b"you").unwrap();
        drop(accepted);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"you");
        let error = shared[0].accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let error = |path: &Path| Listeners::default().bind(&[unix(path)]).unwrap_err().to_string();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let mut listeners = Listeners::default();
        listeners.bind(&[unix(&path)]).unwrap();
        assert!(error(&path).contains("another program listens there"), "{}", error(&path));
        // Somebody else's file by now: it stays.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(listeners);
        assert!(path.exists());
        drop(other);
        let file = dir.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert!(error(&file).contains("the path exists and is not a socket"), "{}", error(&file));
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert!(error(&dir.path().join("no/dir")).contains("the directory must exist"));
    }

    #[test]
    fn a_change_keeps_what_stays_and_is_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, third] = ["1", "2", "3"].map(|name| dir.path().join(name));
        let mut listeners = Listeners::default();
        listeners.bind(&[unix(&first), unix(&second)]).unwrap();
        let _waits = UnixStream::connect(&first).unwrap();
        let primary = Listener { mode: ListenerMode::Primary, ..unix(&first) };
        listeners.bind(&[primary.clone(), unix(&third)]).unwrap();
        assert!(!second.exists() && third.exists());
        let accepted = listeners.share().unwrap()[0].accept().unwrap();
        assert_eq!(accepted.listener.mode, ListenerMode::Primary);
        assert!(listeners.bind(&[unix(&second), unix(&dir.path().join("no/dir"))]).is_err());
        assert!(!second.exists() && third.exists());
        assert_eq!(listeners.iter().cloned().collect::<Vec<_>>(), [primary, unix(&third)]);
    }

    #[test]
    fn handed_sockets_keep_their_clients_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let [kept, left, new] = ["kept", "left", "new"].map(|name| dir.path().join(name));
        let mut before = Listeners::default();
        before.bind(&[unix(&kept), unix(&left)]).unwrap();
        let mut waits = UnixStream::connect(&kept).unwrap();
        waits.write_all(b"hello").unwrap();
        // One that fails before it has them leaves everything as it was.
        let mut failed = Listeners::adopt(before.takeover_sockets().unwrap()).unwrap();
        failed.bind(&[unix(&new)]).unwrap();
        drop(failed);
        assert!(kept.exists() && left.exists() && !new.exists());
        let mut after = Listeners::adopt(before.takeover_sockets().unwrap()).unwrap();
        after.bind(&[unix(&new), unix(&kept)]).unwrap();
        before.leave_files();
        drop(before);
        assert!(kept.exists() && left.exists() && new.exists());
        after.own_files();
        assert!(kept.exists() && !left.exists(), "the file of a socket that nobody wants");
        let accepted = after.share().unwrap()[1].accept().unwrap();
        let mut bytes = [0; 8];
        assert_eq!((&accepted.stream).read(&mut bytes).unwrap(), 5);
        drop(after);
        assert!(!kept.exists() && !new.exists());
    }

    #[test]
    fn one_port_of_both_families() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let tcp = |text: String| Listener::split(ListenAddress::Tcp(text.parse().unwrap()));
        let mut listeners = Listeners::default();
        let both = [tcp(format!("127.0.0.1:{free}")), tcp(format!("[::1]:{free}"))];
        match listeners.bind(&both) {
            Ok(()) => {
                let client = std::net::TcpStream::connect(("::1", free)).unwrap();
                let accepted = listeners.share().unwrap()[1].accept().unwrap();
                assert_eq!(accepted.peer, Peer::Tcp(client.local_addr().unwrap()));
            }
            // A machine without IPv6.
            Err(error) => {
                assert!(error.to_string().contains("::1"), "{error}");
                weir_testkit::not_run("listening on IPv6", &error.to_string());
            }
        }
    }
}
