//! Takes over from a running Weir: the new process's side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt;
use weir_config::ListenAddress;

use super::message_stream::MessageStream;
use super::{Ask, PredecessorState, SOCKETS_MAX, Say, Socket};
use crate::control::{Request, socket_path};

/// The old process may be in the middle of a switchover, which takes its grace.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(70);
/// What it only has to send.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The running Weir that is to be followed.
#[derive(Debug)]
pub(crate) struct Predecessor {
    line: MessageStream,
    path: PathBuf,
    state: PredecessorState,
}

/// Why a Weir was not taken over. It goes on then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("the running weir is not taken over: {0}")]
    Refused(String),
    #[error("{}: the program that answers there is not a weir that can be taken over", .0.display())]
    Unexpected(PathBuf),
    #[error("{}: the running weir belongs to another user", .0.display())]
    Foreign(PathBuf),
    #[error("{name}: not the expected listening socket")]
    NotListening { name: String },
    #[error(
        "the running weir continues: it knows a writer of hostgroup {hostgroup}, and within {seconds} s this one found none"
    )]
    NoWriter { hostgroup: u32, seconds: u64 },
    #[error("told to exit before it was ready: the running weir continues")]
    Interrupted,
}

impl Predecessor {
    /// Tells the Weir that runs with this datadir that it is to be followed. Until this is dropped it changes nothing.
    /// None if there is no such Weir.
    ///
    /// # Errors
    /// When it refuses, or does not answer.
    pub(crate) fn greet(datadir: &Path) -> Result<Option<Self>, TakeoverError> {
        let path = socket_path(datadir);
        let failed = |error| TakeoverError::Io { path: path.clone(), error };
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let peer = sockopt::socket_peercred(&stream).map_err(|error| failed(error.into()))?;
        if peer.uid != rustix::process::geteuid() {
            return Err(TakeoverError::Foreign(path));
        }
        let mut line = MessageStream::new(stream, ANSWER_TIMEOUT).map_err(failed)?;
        line.put(&Request::Takeover { version: env!("CARGO_PKG_VERSION").to_owned() }).map_err(failed)?;
        match line.next(BEGIN_TIMEOUT).map_err(failed)? {
            Some(Say::Begin(state)) => Ok(Some(Self { line, path, state })),
            Some(Say::Error(cause)) => Err(TakeoverError::Refused(cause)),
            // It has ended just now.
            None => Ok(None),
            Some(_) => Err(TakeoverError::Unexpected(path)),
        }
    }

    /// Its version.
    pub(crate) fn version(&self) -> &str {
        &self.state.version
    }

    /// The writers of a cluster, as the old process knows them.
    pub(crate) fn writers(&self, writer_hostgroup: u32) -> &[String] {
        let known = self.state.writers.iter().find(|(hostgroup, _)| *hostgroup == writer_hostgroup);
        known.map(|(_, writers)| writers.as_slice()).unwrap_or_default()
    }

    /// Its listening sockets; none when it has died meanwhile, so that they are free.
    ///
    /// # Errors
    /// When it does not send them as it should.
    pub(crate) fn sockets(&mut self) -> Result<Option<Sockets>, TakeoverError> {
        let mut sockets = Sockets::default();
        if self.say(Ask::Sockets {}).is_err() {
            return Ok(None);
        }
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(Say::Socket { name }) if sockets.0.len() < SOCKETS_MAX => {
                    let is_listening =
                        |socket: &OwnedFd| sockopt::socket_acceptconn(socket).is_ok_and(|listens| listens);
                    match self.line.descriptor().filter(is_listening) {
                        Some(socket) => sockets.0.push(Socket { name, socket }),
                        None => return Err(TakeoverError::NotListening { name }),
                    }
                }
                Some(Say::Sockets { count }) if count == sockets.0.len() => return Ok(Some(sockets)),
                Some(Say::Error(cause)) => return Err(TakeoverError::Refused(cause)),
                Some(_) => return Err(TakeoverError::Unexpected(self.path.clone())),
            }
        }
    }

    /// Everything stands: the old process is to let go. When this returns it has, or is dead.
    ///
    /// # Errors
    /// When it is ending anyway.
    pub(crate) fn ready(mut self) -> Result<(), TakeoverError> {
        if self.say(Ask::Ready {}).is_err() {
            return Ok(());
        }
        match self.next() {
            Ok(Some(Say::Done {}) | None) => Ok(()),
            Ok(Some(Say::Error(cause))) => Err(TakeoverError::Refused(cause)),
            Ok(Some(_)) => Err(TakeoverError::Unexpected(self.path)),
            // It has been told and will obey: nothing else can come of it.
            Err(error) => {
                tracing::warn!(%error, "the old process has not confirmed that it released its sockets");
                Ok(())
            }
        }
    }

    fn say(&mut self, ask: Ask) -> io::Result<()> {
        self.line.put(&ask)
    }

    fn next(&mut self) -> Result<Option<Say>, TakeoverError> {
        match self.line.next(ANSWER_TIMEOUT) {
            // As it is with what has not been read at the other end.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(TakeoverError::Io { path: self.path.clone(), error }),
            said => said.map_err(|error| TakeoverError::Io { path: self.path.clone(), error }),
        }
    }
}

/// The sockets of another process. Those that are left over are closed here.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Vec<Socket>);

impl Sockets {
    /// The socket with this name.
    pub(crate) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.0.iter().position(|socket| socket.name == name)?;
        Some(self.0.swap_remove(at).socket)
    }

    /// The sockets whose names begin with `prefix`, and where they listen.
    ///
    /// # Errors
    /// When one of them is somewhere else than its name says.
    pub(crate) fn at_addresses(
        &mut self,
        prefix: &str,
    ) -> Result<Vec<(ListenAddress, OwnedFd)>, TakeoverError> {
        let is_of = |socket: &mut Socket| socket.name.starts_with(prefix);
        let handed = self.0.extract_if(.., is_of).map(|Socket { name, socket }| {
            let text = name.strip_prefix(prefix).unwrap_or_default();
            let address = if text.starts_with('/') {
                Some(ListenAddress::Unix(text.into()))
            } else {
                text.parse().ok().map(ListenAddress::Tcp)
            };
            match address.filter(|address| is_at(&socket, address)) {
                Some(address) => Ok((address, socket)),
                None => Err(TakeoverError::NotListening { name }),
            }
        });
        handed.collect()
    }
}

fn is_at(socket: &OwnedFd, address: &ListenAddress) -> bool {
    let Ok(bound) = rustix::net::getsockname(socket) else { return false };
    match address {
        ListenAddress::Tcp(wanted) => std::net::SocketAddr::try_from(bound).is_ok_and(|addr| {
            // Port 0 is any.
            addr.ip() == wanted.ip() && (wanted.port() == 0 || addr.port() == wanted.port())
        }),
        ListenAddress::Unix(path) => {
            let bound = rustix::net::SocketAddrUnix::try_from(bound);
            let wanted = path.as_os_str().as_encoded_bytes();
            bound.is_ok_and(|bound| bound.path().is_some_and(|path| path.to_bytes() == wanted))
        }
    }
}
