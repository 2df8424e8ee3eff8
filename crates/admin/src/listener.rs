//! Serves the listening sockets of the admin interface, a thread each.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
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
    Unix { listener: UnixListener, file: SocketFile },
}

/// A socket that is listened on, on its way from one process to another.
#[derive(Debug)]
pub struct TakeoverSocket {
    /// Where it listens, as it was asked for.
    pub address: ListenAddress,
    /// The socket.
    pub socket: OwnedFd,
}

impl Bound {
    /// Listens on an address.
    pub(crate) fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        let bound = match address {
            ListenAddress::Tcp(address) => TcpListener::bind(address).map(Listener::Tcp),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        let bound = bound.and_then(|listener| listener.set_nonblocking().map(|()| listener));
        let listener = bound.map_err(|error| ListenError { address: address.clone(), error })?;
        Ok(Self { address: address.clone(), listener: Arc::new(listener) })
    }

    /// A socket that another process listens on. A Unix socket's file stays that process's until [`Bound::own`].
    pub(crate) fn adopt(handed: TakeoverSocket) -> Result<Self, ListenError> {
        let TakeoverSocket { address, socket } = handed;
        let listener = match &address {
            ListenAddress::Tcp(_) => Ok(Listener::Tcp(socket.into())),
            ListenAddress::Unix(path) => {
                SocketFile::of(path, false).map(|file| Listener::Unix { listener: socket.into(), file })
            }
        };
        let listener = listener.and_then(|listener| listener.set_nonblocking().map(|()| listener));
        match listener {
            Ok(listener) => Ok(Self { address, listener: Arc::new(listener) }),
            Err(error) => Err(ListenError { address, error }),
        }
    }

    pub(crate) fn is(&self, address: &ListenAddress) -> bool {
        self.address == *address
    }

    /// The process that the socket comes from has let go of it: its file goes with this one's.
    pub(crate) fn own(&self) {
        self.listener.own_file(true);
    }

    /// Hands each client to `receive`, on a thread of its own.
    pub(crate) fn serve(self, receive: impl Fn(Socket) + Send + 'static) -> io::Result<Listening> {
        let Self { address, listener } = self;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let end = Arc::new(End { has_come: AtomicBool::new(false), waker });
        let (socket, its_end) = (listener.clone(), end.clone());
        let thread = std::thread::Builder::new()
            .name("admin port".into())
            .spawn(move || take_clients(&socket, &its_end, receive))?;
        Ok(Listening { address, listener, end, thread: Some(thread) })
    }
}

/// How the thread that takes clients learns of its end. The socket itself is not shut down for that: it may be another
/// process's by now.
#[derive(Debug)]
struct End {
    has_come: AtomicBool,
    waker: OwnedFd,
}

fn take_clients(socket: &Listener, end: &End, receive: impl Fn(Socket)) {
    loop {
        let mut wanted = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(end.waker.as_fd(), PollFlags::IN),
        ];
        let _ = poll(&mut wanted, None);
        if end.has_come.load(Ordering::Relaxed) {
            return;
        }
        match socket.accept() {
            Ok(client) => receive(client),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "the admin port can't accept a client");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix { listener, .. } => listener.set_nonblocking(true),
        }
    }

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

    fn own_file(&self, is_own: bool) {
        if let Self::Unix { file, .. } = self {
            file.is_own.store(is_own, Ordering::Relaxed);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

/// A socket that is served; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Listening {
    /// As it was asked for.
    address: ListenAddress,
    listener: Arc<Listener>,
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    pub(crate) fn is(&self, address: &ListenAddress) -> bool {
        self.address == *address
    }

    /// The socket, for another process.
    pub(crate) fn takeover_socket(&self) -> io::Result<TakeoverSocket> {
        let socket = self.listener.as_fd().try_clone_to_owned()?;
        Ok(TakeoverSocket { address: self.address.clone(), socket })
    }

    /// Another process has the socket: its file stays when this is dropped.
    pub(crate) fn leave_file(&self) {
        self.listener.own_file(false);
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
        self.end.has_come.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.end.waker, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The file of a Unix socket; it goes with the socket, unless another one has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
    /// Not another process's that has the same socket.
    is_own: AtomicBool,
}

impl SocketFile {
    fn of(path: &Path, is_own: bool) -> io::Result<Self> {
        let inode = fs::symlink_metadata(path)?.ino();
        Ok(Self { path: path.to_owned(), inode, is_own: AtomicBool::new(is_own) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_there = || fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if self.is_own.load(Ordering::Relaxed) && is_there() {
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
    Ok(Listener::Unix { listener, file: SocketFile::of(path, true)? })
}
