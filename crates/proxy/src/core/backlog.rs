//! Clients that are slower than their servers.

use super::Core;
use super::model::{Phase, SessionKey};
use crate::outbox::BACKLOG_HIGH_BYTES;

impl Core {
    /// Everything queued for a client has been sent: its server may go on, and so may its next command.
    pub(super) fn client_drained(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        if matches!(session.phase, Phase::Closing) {
            return self.forget_session(key);
        }
        if let Some(lease) = session.lease {
            let socket = self.backends[lease].socket;
            self.out.pause(socket, false);
        }
        if matches!(session.phase, Phase::Idle) {
            let socket = session.socket;
            self.out.pause(socket, false);
            self.runnable.push_back((key, socket));
        }
    }

    /// Whether a client has so much to take that nothing more is done for it until it has.
    pub(super) fn must_read_first(&mut self, key: SessionKey) -> bool {
        let socket = self.sessions[key].socket;
        let is_behind = self.out.backlog_bytes(socket) > BACKLOG_HIGH_BYTES;
        if is_behind {
            self.out.notify_drained(socket);
        }
        is_behind
    }

    /// Stops reading from the server of a client that does not take its result.
    pub(super) fn hold_back(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let Some(lease) = session.lease else { return };
        let socket = session.socket;
        if self.out.backlog_bytes(socket) <= BACKLOG_HIGH_BYTES {
            return;
        }
        if self.out.held_bytes(socket) > BACKLOG_HIGH_BYTES {
            self.send_withheld(key);
        }
        if self.out.backlog_bytes(socket) - self.out.held_bytes(socket) > BACKLOG_HIGH_BYTES {
            self.out.pause(self.backends[lease].socket, true);
            self.out.notify_drained(socket);
        }
    }
}
