//! Passes a socket's bytes as they are, or inside TLS.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::snapshot::ServerTls;
use crate::stream::Stream;

/// Plaintext handed to TLS at a time: one record.
const RECORD_BYTES: usize = 16 << 10;

/// What lies between the core and a socket.
pub enum Transport {
    /// Nothing.
    Plain,
    /// TLS, with Weir as the server of a client or the client of a server.
    Tls(Box<Tls>),
}

/// TLS on a socket.
pub struct Tls {
    connection: Connection,
    /// What the client has shown was told, or there is nothing to tell.
    has_told_certificate: bool,
}

/// What a read gave.
#[derive(Debug)]
pub enum Received {
    /// So many bytes; `more` if the socket may have more at once.
    Bytes {
        /// Plaintext bytes.
        count: usize,
        /// Read again.
        more: bool,
    },
    /// Nothing now.
    Nothing,
    /// The peer is done, or the socket is broken.
    Closed,
    /// TLS can't go on.
    Broken(rustls::Error),
}

impl Transport {
    /// TLS as a client's server from here on; `leftover` is what was read of it already.
    ///
    /// # Errors
    /// When the leftover is no TLS.
    pub fn start_tls(config: Arc<ServerConfig>, leftover: &[u8]) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut rest = leftover;
        while !rest.is_empty() {
            if tls.read_tls(&mut rest)? == 0 {
                break;
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
        let (connection, has_told_certificate) = (Connection::Server(tls), false);
        Ok(Self::Tls(Box::new(Tls { connection, has_told_certificate })))
    }

    /// TLS as a server's client from here on.
    ///
    /// # Errors
    /// When the configuration is no good.
    pub fn start_server_tls(tls: &ServerTls) -> Result<Self, rustls::Error> {
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone())?;
        let (connection, has_told_certificate) = (Connection::Client(connection), true);
        Ok(Self::Tls(Box::new(Tls { connection, has_told_certificate })))
    }

    /// Whether there is TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate (DER) that a client has shown, once: when its handshake is over.
    pub fn take_client_certificate(&mut self) -> Option<Vec<u8>> {
        let Self::Tls(tls) = self else { return None };
        if std::mem::replace(&mut tls.has_told_certificate, true) {
            return None;
        }
        Some(tls.connection.peer_certificates()?.first()?.to_vec())
    }

    /// Reads into `buffer`.
    pub fn receive(&mut self, stream: &Stream, buffer: &mut [u8]) -> Received {
        match self {
            Self::Plain => match (&*stream).read(buffer) {
                Ok(0) => Received::Closed,
                Ok(count) => Received::Bytes { count, more: count == buffer.len() },
                Err(error) => nothing_or_closed(&error),
            },
            Self::Tls(tls) => receive_tls(&mut tls.connection, stream, buffer),
        }
    }

    /// Sends as much as the socket takes; returns how many bytes of `bytes` are off the caller's hands.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn send(&mut self, stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain => loop {
                match (&*stream).write(bytes) {
                    Ok(count) => return Ok(count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
            Self::Tls(tls) => send_tls(&mut tls.connection, stream, bytes),
        }
    }

    /// Whether TLS holds ciphertext that the socket has not taken yet.
    pub fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.connection.wants_write())
    }
}

fn nothing_or_closed(error: &io::Error) -> Received {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Nothing,
        _ => Received::Closed,
    }
}

fn receive_tls(tls: &mut Connection, stream: &Stream, buffer: &mut [u8]) -> Received {
    let mut count = 0;
    let end = loop {
        match tls.reader().read(&mut buffer[count..]) {
            Ok(0) if count < buffer.len() => break Some(Received::Closed), // close_notify
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break Some(Received::Closed),
        }
        if count == buffer.len() {
            return Received::Bytes { count, more: true };
        }
        match tls.read_tls(&mut &*stream) {
            Ok(0) => break Some(Received::Closed),
            Ok(_) => {
                let processed = tls.process_new_packets();
                flush_tls(tls, stream);
                if let Err(error) = processed {
                    break Some(Received::Broken(error));
                }
            }
            Err(error) => match nothing_or_closed(&error) {
                Received::Nothing => break None,
                end => break Some(end),
            },
        }
    };
    match (count, end) {
        (0, None) => Received::Nothing,
        (0, Some(end)) => end,
        // What was read comes first; the end is found again by the next read.
        (count, end) => Received::Bytes { count, more: end.is_some() },
    }
}

fn send_tls(tls: &mut Connection, stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    loop {
        while tls.wants_write() {
            match tls.write_tls(&mut &*stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if taken == bytes.len() || tls.is_handshaking() {
            return Ok(taken);
        }
        let end = bytes.len().min(taken + RECORD_BYTES);
        taken += tls.writer().write(&bytes[taken..end])?;
    }
}

/// Sends what the handshake wants sent; a broken socket shows at the next read.
fn flush_tls(tls: &mut Connection, stream: &Stream) {
    while tls.wants_write() {
        match tls.write_tls(&mut &*stream) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
