//! Wraps io_uring in a small safe interface, as much of it as a proxy needs: sockets that are watched, bytes that
//! arrive in buffers of the ring, bytes that are sent, all passed in one system call.
//!
//! This is the only crate of the workspace with `unsafe` code. What makes it safe: memory that the kernel works on
//! belongs to the ring until the kernel has said that it is done. Bytes to send are moved in ([`Ring::send`]) and come
//! back with the completion; received bytes lie in a [`Buffer`], a handle that nobody can copy and that no other ring
//! takes.
//!
//! And a small door to the scheduler: [`wait_for_a_processor`].
//!
//! Not thread-safe by design (`IORING_SETUP_SINGLE_ISSUER`): a ring is made and used on one thread.
//!
//! ```compile_fail
//! fn is_sent<T: Send>() {}
//! is_sent::<weir_uring::Ring>();
//! ```

mod buffers;
mod scheduling;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use slab::Slab;

pub use buffers::Buffer;
use buffers::Buffers;
pub use scheduling::wait_for_a_processor;

/// Operations that can be queued before they have to be submitted.
const SUBMISSIONS: u32 = 1024;
/// Completions that fit; the kernel keeps more than that for later.
const COMPLETIONS: u32 = 8192;
/// Marks the completion of a cancellation, of which nobody wants to know.
const CANCELLED: u64 = u64::MAX;
/// `MSG_NOSIGNAL | MSG_WAITALL`: no SIGPIPE, and one completion when all is sent (send(2), io_uring_enter(2)).
const SEND_FLAGS: i32 = 0x4000 | 0x100;
/// errno of a wait that has reached its time limit.
const ETIME: i32 = 62;
/// errno of a wait that a signal has ended.
const EINTR: i32 = 4;
/// errno when the completion queue has to be emptied first.
const EBUSY: i32 = 16;

/// An operation that goes on until it is cancelled or says that it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    key: usize,
    /// Tells it from others that had the key before.
    number: u32,
}

/// What has happened.
#[derive(Debug)]
pub enum Completion {
    /// A descriptor that is watched has become ready.
    Ready {
        /// Who asked.
        token: u64,
        /// The events, as in poll(2).
        events: u32,
        /// More of these will come. If not, the operation has ended.
        more: bool,
    },
    /// Bytes have come, or none will come any more.
    Received {
        /// Who asked.
        token: u64,
        /// The bytes; `Ok(None)` at the end of the stream. Errors are those of recv(2), and `ENOBUFS` when no buffer
        /// was free, `ECANCELED` after [`Ring::cancel`].
        bytes: io::Result<Option<Buffer>>,
        /// More of these will come. If not, the operation has ended.
        more: bool,
    },
    /// A send is over.
    Sent {
        /// Who asked.
        token: u64,
        /// The bytes, for reuse.
        bytes: Vec<u8>,
        /// How many of them were sent: all, unless the socket broke in between. Errors are those of send(2).
        sent: io::Result<usize>,
    },
}

/// See the crate's text.
pub struct Ring {
    ring: IoUring,
    /// What the kernel works on. A value goes only when the kernel has said that it is done with it.
    pending: Slab<Pending>,
    buffers: Buffers,
    next_number: u32,
}

enum Pending {
    Poll { token: u64, number: u32 },
    Receive { token: u64, number: u32 },
    Send { token: u64, bytes: Vec<u8> },
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring with `buffer_count` (a power of two, at most 32768) buffers of `buffer_bytes` to receive into.
    ///
    /// # Errors
    /// When the kernel has no io_uring, lacks what is needed of it (Linux 6.1), or is told not to allow it.
    pub fn new(buffer_count: u16, buffer_bytes: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        for (code, name) in [
            (opcode::PollAdd::CODE, "POLL_ADD"),
            (opcode::RecvMulti::CODE, "RECV"),
            (opcode::Send::CODE, "SEND"),
            (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
        ] {
            if !probe.is_supported(code) {
                return Err(io::Error::new(io::ErrorKind::Unsupported, format!("io_uring has no {name}")));
            }
        }
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring is older than Linux 5.11"));
        }
        let buffers = Buffers::register(&ring.submitter(), buffer_count, buffer_bytes)?;
        Ok(Self { ring, pending: Slab::new(), buffers, next_number: 0 })
    }

    /// Watches a descriptor for the events of poll(2) in `events`, until it is cancelled: each time that something
    /// new happens, [`Completion::Ready`] tells. The descriptor must stay open until the next [`Ring::submit`] or
    /// [`Ring::wait`], or another one with its number is watched.
    ///
    /// # Errors
    /// When the queue is full and can't be submitted.
    pub fn watch(&mut self, fd: BorrowedFd<'_>, events: u32, token: u64) -> io::Result<Operation> {
        let number = self.number();
        let key = self.pending.insert(Pending::Poll { token, number });
        let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).multi(true).build();
        self.push(poll.user_data(key as u64))?;
        Ok(Operation { key, number })
    }

    /// Receives from a socket until it is cancelled or ends: [`Completion::Received`] for each piece. For the
    /// descriptor see [`Ring::watch`].
    ///
    /// # Errors
    /// When the queue is full and can't be submitted.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<Operation> {
        let number = self.number();
        let key = self.pending.insert(Pending::Receive { token, number });
        let receive = opcode::RecvMulti::new(types::Fd(fd.as_raw_fd()), buffers::GROUP).build();
        self.push(receive.user_data(key as u64))?;
        Ok(Operation { key, number })
    }

    /// Sends all of `bytes`, which come back with [`Completion::Sent`]. For the descriptor see [`Ring::watch`].
    ///
    /// # Errors
    /// When the queue is full and can't be submitted, or the bytes are too many for one send (2 GiB).
    pub fn send(&mut self, fd: BorrowedFd<'_>, bytes: Vec<u8>, token: u64) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let start = bytes.as_ptr();
        // The slab owns the vector; its bytes stay where they are even if the slab grows.
        let key = self.pending.insert(Pending::Send { token, bytes });
        let send = opcode::Send::new(types::Fd(fd.as_raw_fd()), start, length).flags(SEND_FLAGS).build();
        self.push(send.user_data(key as u64))
    }

    /// Ends an operation. Its last completion comes with `more: false`; nothing happens if it has ended already.
    ///
    /// # Errors
    /// When the queue is full and can't be submitted.
    pub fn cancel(&mut self, operation: Operation) -> io::Result<()> {
        let is_current = match self.pending.get(operation.key) {
            Some(Pending::Poll { number, .. } | Pending::Receive { number, .. }) => {
                *number == operation.number
            }
            _ => false,
        };
        if !is_current {
            return Ok(());
        }
        let cancel = opcode::AsyncCancel::new(operation.key as u64).build();
        self.push(cancel.user_data(CANCELLED))
    }

    /// The bytes of a buffer.
    ///
    /// # Panics
    /// With a buffer of another ring.
    pub fn bytes(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.buffers.bytes(buffer)
    }

    /// Gives a buffer back, to be received into again.
    ///
    /// # Panics
    /// With a buffer of another ring.
    pub fn recycle(&mut self, buffer: Buffer) {
        self.buffers.recycle(buffer);
    }

    /// Submits what is queued, without waiting.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        tolerate(self.ring.submit().map(drop))
    }

    /// Submits what is queued and waits until `completions` things have happened, at most for `timeout`.
    ///
    /// # Errors
    /// Those of io_uring_enter(2); neither a time-out nor a signal is one.
    pub fn wait(&mut self, completions: usize, timeout: Duration) -> io::Result<()> {
        let limit = types::Timespec::from(timeout);
        let args = types::SubmitArgs::new().timespec(&limit);
        tolerate(self.ring.submitter().submit_with_args(completions, &args).map(drop))
    }

    /// The next thing that has happened, if there is one. Does not ask the kernel: see [`Ring::wait`].
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() != CANCELLED
                && let Some(completion) = self.completion(&entry)
            {
                return Some(completion);
            }
        }
    }

    fn completion(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let key = usize::try_from(entry.user_data()).ok()?;
        let more = cqueue::more(entry.flags());
        let result = entry.result();
        let completion = match self.pending.get(key)? {
            Pending::Poll { token, .. } => {
                Completion::Ready { token: *token, events: u32::try_from(result).unwrap_or(0), more }
            }
            Pending::Receive { token, .. } => {
                let buffer = cqueue::buffer_select(entry.flags());
                let bytes = self.buffers.received(buffer, result);
                Completion::Received { token: *token, bytes, more }
            }
            Pending::Send { .. } => {
                let Pending::Send { token, bytes } = self.pending.remove(key) else { return None };
                let sent = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                return Some(Completion::Sent { token, bytes, sent });
            }
        };
        if !more {
            self.pending.remove(key);
        }
        Some(completion)
    }

    fn number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: what the entry points to is owned by `pending` or `buffers` until the kernel has completed it: see
        // `completion`, the only place that takes anything out of `pending`, and `drop`.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "the submission queue is full"))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel ends what is pending some time after the ring is closed; until then its memory must stay.
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let Pending::Send { bytes, .. } = pending {
                std::mem::forget(bytes);
            }
        }
        self.buffers.leak();
    }
}

/// A time-out, a signal and a full completion queue are no errors: whoever waits looks again.
fn tolerate(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(ETIME | EINTR | EBUSY)) => Ok(()),
        result => result,
    }
}
