//! Takes in what clients send, and has their sessions do what they can do now.

use weir_protocol::command::Command;

use crate::session::phase::Phase;
use crate::work::Work;

/// What a client may send ahead while its command runs, before Weir stops reading from it.
pub(crate) const INBOX_BYTES_MAX: usize = 64 << 10;

/// The packet of a COM_PING.
const PING: [u8; 5] = [1, 0, 0, 0, Command::Ping as u8];

impl Work<'_> {
    pub(crate) fn client_data(&mut self, bytes: &mut [u8]) {
        self.ctx.statistics.totals.client_bytes_received += bytes.len() as u64;
        let session = &*self.session;
        match &session.phase {
            Phase::Closing => return,
            Phase::Running if session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing) => {
                return self.flow(bytes);
            }
            Phase::Running if session.input.infile.is_some() => return self.send_file(bytes),
            // A batch of events may hold the request for TLS and what follows it.
            Phase::Login(_) if session.client.is_tls && self.ctx.out.add_to_tls(session.socket, bytes) => {
                return;
            }
            _ => {}
        }
        let is_replay = self.session.is_replaying_ahead();
        if is_replay && self.answers_ping(bytes) {
            return;
        }
        self.session.input.inbox.extend_from_slice(bytes);
        if is_replay {
            self.replay_gives_way();
        }
        // Resumed with the end of the command, if not when what is fetched has come, or when replies are taken.
        let session = &*self.session;
        let is_busy = match &session.phase {
            Phase::Idle => session.diagnostics.fetching > 0,
            Phase::Login(login) => login.is_checking(),
            _ => true,
        };
        let waits = is_busy || self.session.must_read_first(self.ctx);
        let session = &*self.session;
        if waits && session.input.inbox.len() - session.input.command_bytes > INBOX_BYTES_MAX {
            let socket = session.socket;
            self.ctx.out.pause(socket, true);
        }
        if !waits {
            self.advance();
        }
        if is_replay {
            self.replay_goes_on();
        }
    }

    /// A ping says nothing of the transaction that runs again meanwhile: it is answered in between. False if it is none.
    fn answers_ping(&mut self, bytes: &[u8]) -> bool {
        let session = &mut *self.session;
        if bytes != PING || !session.input.inbox.is_empty() || session.must_read_first(self.ctx) {
            return false;
        }
        self.ctx.count_command(Some(Command::Ping));
        session.diagnostics.row_count = 0;
        session.times.last_active_at = self.ctx.now;
        session.reply_ok(self.ctx);
        true
    }

    /// Takes up whatever a session can do now.
    pub(crate) fn advance(&mut self) {
        loop {
            let session = &*self.session;
            let goes_on = match session.phase {
                Phase::Login(_) => self.login_packet(),
                Phase::Idle => self.next_command(),
                Phase::Running => {
                    // It may have waited for diagnostics from another connection.
                    if let Some(lease) = session.lease() {
                        self.prepare_connection(lease);
                    }
                    false
                }
                _ => false,
            };
            if !goes_on {
                return;
            }
        }
    }
}
