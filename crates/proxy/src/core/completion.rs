//! completion_type: what COMMIT and ROLLBACK do beyond that.
//!
//! With RELEASE the server closes the connection behind its reply, without a word of it in the text. Such a connection is
//! not to go to another session. CHAIN shows in the status flags, as COMMIT AND CHAIN does.

use weir_sql::{Effects, Kind};

use super::Core;
use super::model::{BackendKey, Ending, SessionKey, WorkKind};

/// The value as servers report it.
pub(super) const RELEASE: &str = "RELEASE";

/// Whether the server closes the connection behind a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closes {
    /// It does not.
    No,
    /// It does, and so does Weir.
    Yes,
    /// It may have ended a transaction in a way that the text does not show.
    Perhaps,
}

impl Core {
    /// Whether the server closes this connection behind the statement that it has just answered.
    pub(super) fn closes(&self, key: BackendKey, holder: SessionKey) -> Closes {
        let session = &self.sessions[holder];
        let work = &session.work;
        if !matches!(work.kind, WorkKind::Query | WorkKind::Execute) {
            return Closes::No;
        }
        let has_succeeded = matches!(work.ending, Ending::Ok { .. });
        if work.statement.effects.contains(Effects::DISCONNECT) && has_succeeded {
            // COMMIT or ROLLBACK with RELEASE.
            return Closes::Yes;
        }
        let statement = work.statement;
        let may_hide_more = statement.multi
            || session.upload.is_some()
            || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
        let ends_transaction = matches!(statement.kind, Kind::Commit | Kind::Rollback);
        let may_close = ends_transaction || statement.kind == Kind::SetStatement || may_hide_more;
        if !may_close || !self.releases_by_default(key, holder) {
            return Closes::No;
        }
        if !ends_transaction || may_hide_more || self.says_release(holder) {
            // With the word it is NO RELEASE, or a comment.
            return Closes::Perhaps;
        }
        if has_succeeded { Closes::Yes } else { Closes::Perhaps }
    }

    fn releases_by_default(&self, key: BackendKey, holder: SessionKey) -> bool {
        match self.sessions[holder].state.variable("completion_type") {
            Some(value) => value == RELEASE,
            None => self.backends[key].releases_by_default,
        }
    }

    fn says_release(&self, holder: SessionKey) -> bool {
        let words = self.statement_text(holder).split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        words.into_iter().any(|word| word.eq_ignore_ascii_case(RELEASE.as_bytes()))
    }
}
