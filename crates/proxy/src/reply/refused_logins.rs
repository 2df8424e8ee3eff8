//! Logs refused logins: some of them, and how many more there were (see [`crate::context::refusals`]).

use weir_protocol::error::ServerError;
use weir_session::login::Refusal;

use crate::context::Context;
use crate::session::Session;

/// Characters of a name or a message from outside.
const CHARS_MAX: usize = 256;

/// As much of a text from outside as a log needs.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

impl Session {
    /// A login is refused, for this reason; `message` is what the client is told.
    pub(crate) fn note_refusal(&self, ctx: &mut Context, error: ServerError, message: &str, reason: Refusal) {
        let user = self.login_user();
        // Clients are not told more than that there is nobody.
        let found = ctx.snapshot.users.find(user, self.client.peer.host());
        let is_about_user =
            matches!(reason, Refusal::NoSuchUser | Refusal::WrongPassword | Refusal::NoPassword);
        let reason = found.err().filter(|_| is_about_user).unwrap_or(reason).words();
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
    fn a_text_from_outside_is_cut_between_characters() {
        assert_eq!(beginning("app"), "app");
        assert_eq!(beginning(&"ü".repeat(300)), "ü".repeat(256));
    }
}
