//! A connected socket, TCP or Unix: one type for both, for all that is done to them is the same.

use std::io::{self, Read, Write};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::SendFlags;

/// A connected, non-blocking socket.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Takes over a socket, which must not block.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

impl Write for &Stream {
    /// A peer that is gone is an error, not a signal.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
