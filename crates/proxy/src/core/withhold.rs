//! Small results of reads that are held back until they are complete: when their server dies in the middle, the client has
//! not seen a byte, and the read is run again on another server.
//!
//! The bytes wait where they would have waited anyway, in the client's output buffer: nothing is copied, and a result
//! that comes in one piece leaves with the same write as without.

use super::Core;
use super::model::{SessionKey, WorkKind};

impl Core {
    /// Holds the result back that begins now, if the read could be run again, or may have been for the last time: then
    /// the client is told so, which would be too late within a result.
    pub(super) fn withhold(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let work = &session.work;
        let limit = self.groups.get(&work.hostgroup).map_or(0, |group| group.retry_buffer_bytes);
        let could_run_again = work.is_read
            && matches!(work.kind, WorkKind::Query | WorkKind::Execute)
            && !work.wants_cursor
            && session.upload.is_none()
            && session.aside.is_none()
            && session.pins.is_empty();
        if limit == 0 || !could_run_again {
            return;
        }
        let socket = session.socket;
        self.sessions[key].work.withheld_bytes_max = limit;
        self.out.hold(socket);
    }

    /// Lets a result go that has become too large.
    pub(super) fn limit_withheld(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let limit = session.work.withheld_bytes_max;
        if limit > 0 && self.out.held_bytes(session.socket) > limit as usize {
            self.send_withheld(key);
        }
    }

    /// Lets a result go.
    pub(super) fn send_withheld(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.work.withheld_bytes_max = 0;
        session.work.open_eof = None;
        self.out.release(session.socket);
    }

    /// Forgets the begin of a result whose server is gone: the client has got nothing of it.
    pub(super) fn take_withheld_back(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if std::mem::take(&mut session.work.withheld_bytes_max) > 0 {
            session.work.is_answering = false;
            session.work.owed_eof = None;
            session.work.open_eof = None;
            session.work.results = 0;
            self.out.take_back(session.socket);
        } else {
            self.close_eof(key, None);
        }
    }
}
