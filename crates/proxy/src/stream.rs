//! Wraps a connected socket, TCP or Unix: one type for both, for all that is done to them is the same.

use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendFlags, Shutdown, sockopt};

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

/// Has the system give up a connection whose peer leaves bytes unacknowledged for longer; zero: as the system has it. What
/// can't be set stays as it is.
pub(crate) fn acknowledge_within(stream: &Stream, time: Duration) {
    let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = sockopt::set_tcp_user_timeout(stream, ms) {
        tracing::warn!(%error, "TCP_USER_TIMEOUT can't be set");
    }
}

/// Has the system ask the peer of a TCP socket whether it is still there when it has been silent for `time` (zero: as the
/// system has it), and end the connection if no answer comes; `None`: it is not asked. What can't be set stays as it is.
pub(crate) fn keep_alive(stream: &Stream, time: Option<Duration>) {
    let set = sockopt::set_socket_keepalive(stream, time.is_some()).and_then(|()| match time {
        Some(time) if !time.is_zero() => sockopt::set_tcp_keepidle(stream, time),
        _ => Ok(()),
    });
    if let Err(error) = set {
        tracing::debug!(%error, "TCP keepalive could not be set");
    }
}

/// Has the system throw away what it has to send when the socket is closed, and tell the peer so (RST).
pub(crate) fn forfeit(stream: &Stream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    let _ = rustix::net::shutdown(stream, Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_silent_peer_is_asked_as_the_settings_say() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || Stream::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap().into());
        let of_the_system = sockopt::tcp_keepidle(connect()).unwrap();
        for (time, is_on, idle) in [
            (None, false, of_the_system),
            (Some(Duration::ZERO), true, of_the_system),
            (Some(Duration::from_secs(77)), true, Duration::from_secs(77)),
        ] {
            let stream = connect();
            keep_alive(&stream, time);
            let set = (sockopt::socket_keepalive(&stream).unwrap(), sockopt::tcp_keepidle(&stream).unwrap());
            assert_eq!(set, (is_on, idle), "{time:?}");
        }
    }

    #[test]
    fn what_is_forfeited_is_not_delivered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let stream = Stream::new(client.into());
        acknowledge_within(&stream, Duration::from_millis(7));
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 7);
        // As much as both systems take.
        let mut taken = 0;
        while let Ok(count) = (&stream).write(&[7; 64 << 10]) {
            taken += count;
        }
        forfeit(&stream);
        drop(stream);
        let mut delivered = 0;
        let mut buffer = vec![0; 64 << 10];
        let error = loop {
            match server.read(&mut buffer) {
                Ok(0) => panic!("it ended as if all had been said: {delivered} of {taken} bytes"),
                Ok(count) => delivered += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(delivered < taken, "{delivered} of {taken} bytes");
    }
}
