//! Sends lines over a Unix socket, some of them with a descriptor.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{LINE_BYTES_MAX, SOCKETS_MAX};

/// Descriptors that the kernel may deliver with one read: SCM_MAX_FD (unix(7)).
const DESCRIPTORS_AT_ONCE: usize = 253;

/// One end of a conversation.
#[derive(Debug)]
pub(super) struct MessageStream {
    stream: UnixStream,
    /// What has come after the last line.
    rest: Vec<u8>,
    /// What has come with the bytes, in order.
    descriptors: VecDeque<OwnedFd>,
}

impl MessageStream {
    /// `write_timeout`: for each line.
    pub(super) fn new(stream: UnixStream, write_timeout: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(write_timeout))?;
        Ok(Self { stream, rest: Vec::new(), descriptors: VecDeque::new() })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a line.
    pub(super) fn put(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?)
    }

    /// Sends a line, and a descriptor with it.
    pub(super) fn put_with(&mut self, message: &impl Serialize, descriptor: &OwnedFd) -> io::Result<()> {
        let line = line(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
        // The descriptor has gone with the first byte.
        self.stream.write_all(line.get(sent..).unwrap_or_default())
    }

    /// The next line; none when the other end has closed.
    ///
    /// # Errors
    /// When it takes longer than `timeout` between two pieces, is too long, or is not what is expected.
    pub(super) fn next<T: DeserializeOwned>(&mut self, timeout: Duration) -> io::Result<Option<T>> {
        self.stream.set_read_timeout(Some(timeout))?;
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.rest.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if self.receive()? == 0 {
                return Ok(None);
            }
        }
    }

    /// The descriptor of the line that [`MessageStream::next`] has returned; those of several lines come in their order.
    pub(super) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > SOCKETS_MAX {
            return Err(io::Error::other("descriptors are missing: is the limit of open files too low?"));
        }
        self.rest.extend_from_slice(bytes.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes)
    }
}

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::Say;
    use super::*;
    use std::io::Read;

    const MOMENT: Duration = Duration::from_secs(10);

    fn pair() -> (MessageStream, MessageStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (MessageStream::new(one, MOMENT).unwrap(), MessageStream::new(other, MOMENT).unwrap())
    }

    #[test]
    fn descriptors_belong_to_their_lines() {
        let (mut one, mut other) = pair();
        let mut far = Vec::new();
        for name in ["a", "b", "c"] {
            let (near, end) = UnixStream::pair().unwrap();
            let mut end = end;
            end.write_all(name.as_bytes()).unwrap();
            one.put_with(&Say::Socket { name: name.to_owned() }, &near.into()).unwrap();
            far.push(end);
        }
        one.put(&Say::Sockets { count: 3 }).unwrap();
        for name in ["a", "b", "c"] {
            assert_eq!(other.next(MOMENT).unwrap(), Some(Say::Socket { name: name.to_owned() }));
            let mut byte = [0];
            UnixStream::from(other.descriptor().unwrap()).read_exact(&mut byte).unwrap();
            assert_eq!(byte, name.as_bytes());
        }
        assert_eq!(other.next(MOMENT).unwrap(), Some(Say::Sockets { count: 3 }));
        assert!(other.descriptor().is_none());
        drop(one);
        assert_eq!(other.next::<Say>(MOMENT).unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for (bytes, wanted) in [
            (b"{\"sockets\": 3}\n".to_vec(), "invalid type"),
            (b"\n".to_vec(), "EOF while parsing"),
            (vec![b'x'; LINE_BYTES_MAX + 5000], "a line is too long"),
        ] {
            let (mut one, mut other) = pair();
            let writer = std::thread::spawn(move || drop(one.stream.write_all(&bytes)));
            let error = other.next::<Say>(MOMENT).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
            drop(other);
            writer.join().unwrap();
        }
    }
}
