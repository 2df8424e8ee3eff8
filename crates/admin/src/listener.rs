//! Listening sockets of the admin interface, a thread each.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use weir_config::ListenAddress;

use crate::wire::Socket;

/// After a failed accept (no descriptors are left, mostly) it is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Who may connect to a Unix socket: its owner and group.
const SOCKET_MODE: u32 = 0o660;

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("admin interface: can't listen on {address}: {error}{}", hint(.error))]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// Why.
    pub error: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another program listens there: stop it, or set another address in admin-mysql_ifaces)"
        }
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root or CAP_NET_BIND_SERVICE)",
        io::ErrorKind::NotFound => " (the directory must exist)",
        _ => "",
    }
}

/// A socket that is listened on and not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    address: ListenAddress,
    listener: Arc<Listener>,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _file: SocketFile },
}

impl Bound {
    /// Listens on an address.
    pub(crate) fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        let bound = match address {
            ListenAddress::Tcp(address) => TcpListener::bind(address).map(Listener::Tcp),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        let listener = bound.map_err(|error| ListenError { address: address.clone(), error })?;
        Ok(Self { address: address.clone(), listener: Arc::new(listener) })
    }

    /// Hands each client to `receive`, on a thread of its own.
    pub(crate) fn serve(self, receive: impl Fn(Socket) + Send + 'static) -> io::Result<Listening> {
        let Self { address, listener } = self;
        let is_over = Arc::new(AtomicBool::new(false));
        let (socket, over) = (listener.clone(), is_over.clone());
        let thread = std::thread::Builder::new().name("admin port".into()).spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match socket.accept() {
                    Ok(client) => receive(client),
                    Err(_) if over.load(Ordering::Relaxed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "the admin port took no client");
                        std::thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        })?;
        Ok(Listening { address, listener, is_over, thread: Some(thread) })
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Self::Unix { listener, .. } => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

/// A socket that is served; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Listening {
    /// As it was asked for.
    address: ListenAddress,
    listener: Arc<Listener>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    pub(crate) fn is(&self, address: &ListenAddress) -> bool {
        self.address == *address
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.listener {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => self.address.fmt(f),
            },
            Listener::Unix { .. } => self.address.fmt(f),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits in accept().
        let _ = match &*self.listener {
            Listener::Tcp(listener) => shutdown(listener, Shutdown::Both),
            Listener::Unix { listener, .. } => shutdown(listener, Shutdown::Both),
        };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The file of a Unix socket; it goes with the socket, unless another one has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: Option<u64>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).ok().map(|file| file.ino()) == self.inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that nobody listens on any more is replaced; nothing else is.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Ok(file) = fs::symlink_metadata(path) {
        if !file.file_type().is_socket() || UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    let inode = fs::symlink_metadata(path).ok().map(|file| file.ino());
    Ok(Listener::Unix { listener, _file: SocketFile { path: path.to_owned(), inode } })
}
