//! Reads and writes packets over a TCP stream, with a deadline for the whole exchange.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use weir_protocol::frame::{self, HEADER_LEN, Header};

use crate::{Address, Error, Options, Tls};

/// How much is read from the socket at a time, in bytes.
const READ_CHUNK_BYTES: usize = 16 * 1024;
/// Limits of reads and writes are rounded up to this, so that most exchanges go by those that the socket has already.
const TIMEOUT_STEP: Duration = Duration::from_millis(10);

/// By when an exchange must be complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    allowed: Duration,
}

impl Deadline {
    pub(crate) fn after(allowed: Option<Duration>) -> Self {
        let at = allowed.and_then(|allowed| Instant::now().checked_add(allowed));
        Self { at, allowed: allowed.unwrap_or_default() }
    }

    /// The time left, none if there is no limit.
    fn left(self) -> Result<Option<Duration>, Error> {
        let Some(at) = self.at else { return Ok(None) };
        match at.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(Error::Timeout(self.allowed)),
        }
    }

    fn error(self, action: &'static str, cause: io::Error) -> Error {
        match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if self.at.is_some() => {
                Error::Timeout(self.allowed)
            }
            _ => Error::Io { action, cause },
        }
    }
}

#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            // Once it has taken bytes, they are on their way: what the socket does not take now goes with what
            // comes next, so the last of them must be flushed.
            Self::Tls(stream) => stream.write(bytes).and_then(|taken| stream.flush().map(|()| taken)),
        }
    }
}

/// A connection's bytes, as packets.
#[derive(Debug)]
pub(crate) struct PacketStream {
    socket: Socket,
    /// Bytes read and not yet taken, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    seq: u8,
    /// The limit that the socket has for reads and writes, once it has been told one.
    timeout: Option<Option<Duration>>,
}

impl PacketStream {
    /// Connects to the host's address. Where that is not known yet, all that its name means are tried one after the
    /// other until the deadline.
    pub(crate) fn connect(options: &Options, deadline: Deadline) -> Result<Self, Error> {
        let io_error = |action| move |cause| Error::Io { action, cause };
        let addresses = match &options.address {
            Address::At(address) => vec![*address],
            Address::Unresolved(cause) => return Err(Error::Unresolved(cause.clone())),
            Address::ByName => (options.host.as_str(), options.port)
                .to_socket_addrs()
                .map_err(io_error("resolving the name"))?
                .collect(),
        };
        let mut failure = Error::Io {
            action: "resolving the name",
            cause: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
        };
        for address in addresses {
            let left = deadline.left()?;
            let connected = match left {
                Some(left) => TcpStream::connect_timeout(&address, left),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(io_error("connecting"))?;
                    return Ok(Self {
                        socket: Socket::Plain(socket),
                        buffer: Vec::new(),
                        start: 0,
                        seq: 0,
                        timeout: None,
                    });
                }
                Err(cause) => failure = deadline.error("connecting", cause),
            }
        }
        Err(failure)
    }

    /// Goes on in TLS; the handshake takes place with the next packet.
    pub(crate) fn encrypt(self, tls: &Tls) -> Result<Self, Error> {
        let Socket::Plain(socket) = self.socket else { return Ok(self) };
        if self.buffer.len() > self.start {
            return Err(Error::Protocol("unencrypted bytes where TLS begins".to_owned()));
        }
        let connection = tls
            .connection()
            .map_err(|error| Error::Io { action: "starting TLS", cause: io::Error::other(error) })?;
        let socket = Socket::Tls(Box::new(StreamOwned::new(connection, socket)));
        Ok(Self { socket, buffer: Vec::new(), start: 0, seq: self.seq, timeout: self.timeout })
    }

    /// The socket between two exchanges, with this limit for each read and each write.
    pub(crate) fn into_socket(mut self, timeout: Option<Duration>) -> Result<Socket, Error> {
        if self.buffer.len() > self.start {
            return Err(Error::Protocol("unexpected bytes".to_owned()));
        }
        self.set_timeouts(timeout).map_err(|cause| Error::Io { action: "setting a time-out", cause })?;
        Ok(self.socket)
    }

    pub(crate) fn peer_addr(&self) -> Result<SocketAddr, Error> {
        let action = "looking at the other end";
        self.socket.tcp().peer_addr().map_err(|cause| Error::Io { action, cause })
    }

    /// Sends the first packet of an exchange.
    pub(crate) fn send_command(&mut self, payload: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.seq = 0;
        self.send(payload, deadline)
    }

    /// Sends the next packet of the exchange.
    pub(crate) fn send(&mut self, payload: &[u8], deadline: Deadline) -> Result<(), Error> {
        let mut out = Vec::with_capacity(payload.len() + HEADER_LEN);
        frame::write_packet(&mut out, &mut self.seq, payload);
        let mut rest = out.as_slice();
        while !rest.is_empty() {
            let left = deadline.left()?;
            self.set_timeouts(left).map_err(|cause| Error::Io { action: "sending", cause })?;
            match self.socket.write(rest) {
                Ok(0) => return Err(closed("sending")),
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(deadline.error("sending", cause)),
            }
        }
        Ok(())
    }

    /// The next payload, put together if it came in several packets, of at most `bytes_max`.
    pub(crate) fn receive(&mut self, bytes_max: usize, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let mut payload = Vec::new();
        loop {
            let header = loop {
                match self.unread().and_then(Header::parse) {
                    Some(header) => break header,
                    None => self.fill(deadline)?,
                }
            };
            if header.seq != self.seq {
                let Header { seq, .. } = header;
                return Err(Error::Protocol(format!("packet number {seq} instead of {}", self.seq)));
            }
            if payload.len() + header.len > bytes_max {
                return Err(Error::TooLarge { limit: bytes_max, unit: "bytes" });
            }
            self.seq = self.seq.wrapping_add(1);
            self.start += HEADER_LEN;
            self.take(header.len, &mut payload, deadline)?;
            if !header.is_continued() {
                return Ok(payload);
            }
        }
    }

    /// Both, as TLS may read in order to write, and write in order to read.
    fn set_timeouts(&mut self, left: Option<Duration>) -> io::Result<()> {
        let timeout = left.map(round_up);
        if self.timeout != Some(timeout) {
            let socket = self.socket.tcp();
            socket.set_read_timeout(timeout).and_then(|()| socket.set_write_timeout(timeout))?;
            self.timeout = Some(timeout);
        }
        Ok(())
    }

    fn unread(&self) -> Option<&[u8]> {
        self.buffer.get(self.start..)
    }

    fn take(&mut self, len: usize, payload: &mut Vec<u8>, deadline: Deadline) -> Result<(), Error> {
        let end = payload.len() + len;
        while payload.len() < end {
            let missing = end - payload.len();
            match self.unread() {
                Some(unread) if !unread.is_empty() => {
                    let part = unread.get(..missing).unwrap_or(unread);
                    payload.extend_from_slice(part);
                    self.start += part.len();
                }
                _ => self.fill(deadline)?,
            }
        }
        Ok(())
    }

    /// Reads what is there, at least one byte.
    fn fill(&mut self, deadline: Deadline) -> Result<(), Error> {
        self.buffer.drain(..self.start.min(self.buffer.len()));
        self.start = 0;
        let mut chunk = [0; READ_CHUNK_BYTES];
        loop {
            let left = deadline.left()?;
            self.set_timeouts(left).map_err(|cause| Error::Io { action: "reading", cause })?;
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(closed("reading")),
                Ok(read) => {
                    self.buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
                    return Ok(());
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(deadline.error("reading", cause)),
            }
        }
    }
}

impl AsFd for PacketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.tcp().as_fd()
    }
}

/// To the next whole [`TIMEOUT_STEP`].
fn round_up(left: Duration) -> Duration {
    let steps = left.as_nanos().div_ceil(TIMEOUT_STEP.as_nanos());
    u32::try_from(steps).map_or(left, |steps| TIMEOUT_STEP * steps)
}

fn closed(action: &'static str) -> Error {
    Error::Io {
        action,
        cause: io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"),
    }
}
