//! Sends commands and reads packets without understanding them.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::login::log_in;
use crate::stream::{Deadline, PacketStream, Socket};
use crate::{Error, Options};

/// The bytes of a logged-in connection, for those who read and write packets themselves. Dropped, it closes without a
/// goodbye.
#[derive(Debug)]
pub struct RawStream {
    socket: Socket,
}

impl RawStream {
    /// Connects and logs in. Each read and each write may then take `read_timeout`.
    ///
    /// # Errors
    /// As for [`crate::Connection::connect`].
    pub fn connect(options: &Options) -> Result<RawStream, Error> {
        let deadline = Deadline::after(Some(options.connect_timeout));
        let (stream, _) = log_in(PacketStream::connect(options, deadline)?, options, deadline)?;
        Ok(RawStream { socket: stream.into_socket(options.read_timeout)? })
    }

    /// The socket, if the connection is in clear.
    pub fn into_socket(self) -> Option<TcpStream> {
        match self.socket {
            Socket::Plain(socket) => Some(socket),
            Socket::Tls(_) => None,
        }
    }
}

impl Read for RawStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl Write for RawStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing is held back.
        Ok(())
    }
}
