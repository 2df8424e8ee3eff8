//! Tells a session with its next command that it has lost what can't be had again.

use weir_protocol::error::ServerError;
use weir_session::pin::Pins;

use crate::session::Session;

/// The answer to the next command of a session that has lost what can't be had again. The session ends with it.
///
/// It waits for that command: some client libraries throw away what they get while they have asked nothing.
pub(crate) struct PendingError {
    pub error: ServerError,
    pub message: String,
    /// COM_RESET_CONNECTION would not have ended what is lost.
    pub outlives_reset: bool,
}

impl Session {
    /// Has the session's next command answered with this error, and what it had on the lost connection, and the session
    /// closed.
    pub(crate) fn fail_next(&mut self, error: ServerError, message: String) {
        let board = self.pins_on_lease();
        let pins = board.pins();
        board.clear();
        let had = if pins.is_empty() { "its character set".to_owned() } else { pins.words() };
        let message = format!("{message}, and with it: {had}");
        tracing::info!(
            self = self.id,
            told = message,
            "a session's server connection was lost: its next command gets the error"
        );
        let outlives_reset = pins.intersects(Pins::OUTLIVE_RESET);
        self.farewell
            .pending_error
            .get_or_insert_with(|| Box::new(PendingError { error, message, outlives_reset }));
    }
}
