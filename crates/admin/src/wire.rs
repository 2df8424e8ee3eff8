//! Carries a client's connection: packets in and out, in time, with or without TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_session::login::Channel;

/// Bytes that are asked of a socket at a time while a packet is collected: memory comes with what has been sent, not
/// with what was announced.
const PIECE_BYTES: usize = 64 << 10;

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Where the client is; none through a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// A second handle, to close it with.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Ends both directions: whoever reads or writes it hears of that.
    pub(crate) fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Transport {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
    /// TLS could not be started.
    Broken,
}

/// A connection.
pub(crate) struct Wire {
    transport: Transport,
    channel: Channel,
}

/// A command, collected.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Of its last part.
    pub sequence: u8,
    pub payload: Vec<u8>,
}

/// Why no packet came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The client is gone, silent or slow.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is larger than it may be.
    #[error("a packet is too large")]
    TooLarge {
        /// Its number, for the answer.
        sequence: u8,
    },
}

impl Wire {
    pub(crate) fn new(socket: Socket) -> Self {
        let channel = match &socket {
            Socket::Tcp(_) => Channel::Plain,
            Socket::Unix(_) => Channel::Local,
        };
        Self { transport: Transport::Plain(socket), channel }
    }

    /// What lies between the two ends.
    pub(crate) fn channel(&self) -> Channel {
        self.channel
    }

    /// None: it is broken.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.transport {
            Transport::Plain(socket) => Some(socket),
            Transport::Tls(stream) => Some(&stream.sock),
            Transport::Broken => None,
        }
    }

    /// Goes on in TLS.
    pub(crate) fn start_tls(&mut self, config: Arc<ServerConfig>) -> io::Result<()> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        match std::mem::replace(&mut self.transport, Transport::Broken) {
            Transport::Plain(socket) => {
                self.transport = Transport::Tls(Box::new(StreamOwned::new(connection, socket)));
                self.channel = Channel::Tls;
                Ok(())
            }
            Transport::Tls(_) | Transport::Broken => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Waits up to `patience` for a packet to begin and up to `collecting` for the rest of it.
    pub(crate) fn read(
        &mut self,
        patience: Duration,
        collecting: Duration,
        bytes_max: usize,
    ) -> Result<Packet, WireError> {
        let mut until = Instant::now() + patience;
        let mut payload = Vec::new();
        loop {
            let mut header = [0; HEADER_LEN];
            self.fill(&mut header, until)?;
            if payload.is_empty() {
                until = Instant::now() + collecting;
            }
            let Some(header) = Header::parse(&header) else {
                return Err(WireError::Io(io::ErrorKind::InvalidData.into()));
            };
            if payload.len() + header.len > bytes_max {
                return Err(WireError::TooLarge { sequence: header.seq });
            }
            self.collect(&mut payload, header.len, until)?;
            if !header.is_continued() {
                return Ok(Packet { sequence: header.seq, payload });
            }
        }
    }

    fn collect(&mut self, payload: &mut Vec<u8>, mut len: usize, until: Instant) -> io::Result<()> {
        while len > 0 {
            let start = payload.len();
            let piece = len.min(PIECE_BYTES);
            payload.resize(start + piece, 0);
            self.fill(payload.get_mut(start..).unwrap_or_default(), until)?;
            len -= piece;
        }
        Ok(())
    }

    /// Reads so many bytes, all of them before `until`.
    fn fill(&mut self, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            self.set_timeout(until)?;
            let stream: &mut dyn Read = match &mut self.transport {
                Transport::Plain(socket) => socket,
                Transport::Tls(stream) => &mut **stream,
                Transport::Broken => return Err(io::ErrorKind::NotConnected.into()),
            };
            match stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all of it within `patience`.
    pub(crate) fn write(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        while !bytes.is_empty() {
            self.set_timeout(until)?;
            let stream: &mut dyn Write = match &mut self.transport {
                Transport::Plain(socket) => socket,
                Transport::Tls(stream) => &mut **stream,
                Transport::Broken => return Err(io::ErrorKind::NotConnected.into()),
            };
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.set_timeout(until)?;
        match &mut self.transport {
            Transport::Tls(stream) => stream.flush(),
            Transport::Plain(_) | Transport::Broken => Ok(()),
        }
    }

    fn set_timeout(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match &self.transport {
            Transport::Plain(socket) => socket.set_timeouts(left),
            Transport::Tls(stream) => stream.sock.set_timeouts(left),
            Transport::Broken => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
