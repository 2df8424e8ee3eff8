//! Logs refused logins. Whoever knows the address can have logins refused as fast as the network is, so the log names
//! some of them, and how many more there were.

use weir_protocol::error::ServerError;
use weir_session::login::Refusal;

use crate::context::Context;
use crate::context::keys::Nanos;
use crate::session::Session;

/// Lines in a row, for one worker.
const LINES_MAX: u64 = 20;
/// The time in which another line may be written.
const LINE_NS: Nanos = 1_000_000_000;
/// Characters of a name or a message from outside.
const CHARS_MAX: usize = 256;

/// Which of them are logged.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// When all the lines that were written are paid for: each costs [`LINE_NS`].
    paid_at: Nanos,
    /// Refusals without a line since the last one.
    left_out: u64,
}

impl Refusals {
    /// Whether this one may have a line: then how many before it had none.
    fn note(&mut self, now: Nanos) -> Option<u64> {
        let paid_at = self.paid_at.max(now) + LINE_NS;
        if paid_at > now + LINES_MAX * LINE_NS {
            self.left_out += 1;
            return None;
        }
        self.paid_at = paid_at;
        Some(std::mem::take(&mut self.left_out))
    }

    /// How many had no line in a flood that is over.
    fn rest(&mut self, now: Nanos) -> Option<u64> {
        let is_over = self.left_out > 0 && self.paid_at <= now;
        is_over.then(|| std::mem::take(&mut self.left_out))
    }
}

/// As much of a text from outside as a log needs.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

impl Context {
    /// Tells of refusals that had no line, when no others come in whose line would.
    pub(crate) fn tell_of_refusals(&mut self) {
        if let Some(left_out) = self.refusals.rest(self.now) {
            tracing::info!(left_out, "some refused logins were not logged");
        }
    }
}

impl Session {
    /// A login is refused, for this reason; `message` is what the client is told.
    pub(crate) fn note_refusal(&self, ctx: &mut Context, error: ServerError, message: &str, reason: Refusal) {
        let user = self.login_user();
        let is_inactive = reason == Refusal::NoSuchUser && ctx.snapshot.inactive_users.contains(user);
        let reason = if is_inactive { Refusal::UserNotActive } else { reason }.words();
        let message = beginning(message);
        if let Some(left_out) = ctx.refusals.note(ctx.now) {
            let user = String::from_utf8_lossy(user);
            tracing::info!(
                user = beginning(&user),
                peer = %self.client.peer,
                listener = %self.listener.address,
                reason,
                code = error.code,
                told = message,
                left_out,
                "login refused"
            );
        }
        self.audit_refusal(ctx, &format!("{message}: {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_few_lines_and_all_of_it_is_told() {
        let mut refusals = Refusals::default();
        let (mut lines, mut told) = (0, 0);
        // An hour with a thousand each second.
        for number in 0..3_600_000_u64 {
            if let Some(left_out) = refusals.note(5 + number * 1_000_000) {
                lines += 1;
                told += 1 + left_out;
            }
        }
        assert_eq!(lines, 3600 + LINES_MAX - 1);
        let end = 5 + 3_600_000 * 1_000_000;
        assert_eq!(refusals.rest(end), None, "it may go on");
        told += refusals.rest(end + LINES_MAX * LINE_NS).unwrap_or(0);
        assert_eq!(told, 3_600_000);
        assert_eq!(refusals.rest(end + 2 * LINES_MAX * LINE_NS), None, "told once");
        // After a pause as many in a row as at first.
        let later = end + 3 * LINES_MAX * LINE_NS;
        assert!((0..LINES_MAX).all(|_| refusals.note(later) == Some(0)));
        assert_eq!(refusals.note(later), None);
    }

    #[test]
    fn a_text_from_outside_is_cut_between_characters() {
        assert_eq!(beginning("app"), "app");
        assert_eq!(beginning(&"ü".repeat(300)), "ü".repeat(256));
    }
}
