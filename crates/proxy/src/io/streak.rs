//! Waits for several pieces of a large transfer at a time: a server writes a result in pieces of some 16 KiB, and to be
//! woken for each of them costs more than to pass it on.
//!
//! A worker that has had bytes of one socket and nothing else for a while waits a moment for more of them. As soon as
//! anything else happens it is back at work at once for each event, so that nobody waits for somebody else's result.

use std::time::Duration;

use crate::outbox::SocketId;

/// Bytes of one socket in a row, with nothing in between, from which on a transfer is a large one. An exchange of
/// statements and results never gets there: each statement ends the streak.
const LARGE_BYTES: usize = 256 << 10;
/// How long to wait for more. Longer than a server takes for several pieces, and still nothing beside a large transfer.
const PATIENCE: Duration = Duration::from_micros(200);
/// Events that end the wait, besides sends: the next piece, which is mostly there already, and one of something else.
const EVENTS: usize = 2;

/// The bytes of one socket that have come in a row.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    socket: Option<SocketId>,
    bytes: usize,
    /// How many there were at the last wait.
    seen: usize,
}

impl Streak {
    /// So many bytes have come from this socket.
    pub(crate) fn received(&mut self, socket: SocketId, bytes: usize) {
        if self.socket != Some(socket) {
            *self = Self { socket: Some(socket), ..Self::default() };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Something else has happened.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// For how many completions to wait, and how long, where `sending` sends are under way and the next deadline
    /// is `deadline` away.
    pub(crate) fn wait(&mut self, sending: usize, deadline: Duration) -> (usize, Duration) {
        // A wait that has brought nothing is not repeated.
        let goes_on = self.bytes > self.seen;
        self.seen = self.bytes;
        if goes_on && self.bytes >= LARGE_BYTES {
            (sending.saturating_add(EVENTS), deadline.min(PATIENCE))
        } else {
            (1, deadline)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const AT_ONCE: (usize, Duration) = (1, LONG);
    const PATIENT: (usize, Duration) = (1 + EVENTS, PATIENCE);

    fn socket(index: u32) -> SocketId {
        SocketId { index, generation: 0 }
    }

    fn large() -> Streak {
        let mut streak = Streak::default();
        streak.received(socket(1), LARGE_BYTES);
        streak
    }

    #[test]
    fn only_a_large_transfer_is_waited_for() {
        let mut streak = Streak::default();
        streak.received(socket(1), LARGE_BYTES - 1);
        assert_eq!(streak.wait(1, LONG), AT_ONCE);
        streak.received(socket(1), 1);
        assert_eq!(streak.wait(1, LONG), PATIENT);
    }

    #[test]
    fn whoever_else_speaks_ends_it() {
        let mut streak = large();
        streak.received(socket(2), 100);
        streak.received(socket(1), 100);
        assert_eq!(streak.wait(1, LONG), AT_ONCE);
        let mut streak = large();
        streak.end();
        assert_eq!(streak.wait(1, LONG), AT_ONCE);
    }

    #[test]
    fn a_wait_for_nothing_is_not_repeated() {
        let mut streak = large();
        assert_eq!(streak.wait(1, LONG), PATIENT);
        assert_eq!(streak.wait(1, LONG), AT_ONCE);
        streak.received(socket(1), 1);
        assert_eq!(streak.wait(1, LONG), PATIENT);
    }

    #[test]
    fn a_deadline_is_kept() {
        let soon = PATIENCE / 2;
        assert_eq!(large().wait(0, soon), (EVENTS, soon));
    }
}
