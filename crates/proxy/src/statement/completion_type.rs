//! Handles completion_type: what COMMIT and ROLLBACK do beyond that.
//!
//! With RELEASE the server closes the connection behind its reply, without a word of it in the text. Such a connection is
//! not to go to another session. CHAIN shows in the status flags, as COMMIT AND CHAIN does.

use weir_sql::{Effects, Kind};

use crate::plan::execution_plan::CommandKind;
use crate::server::connection::ServerConnection;
use crate::server::variables::RELEASE;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::text::words;

/// Whether the server closes the connection behind a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closes {
    /// It does not.
    No,
    /// It does, and so does Weir.
    Yes,
    /// It may have ended a transaction in a way that the text does not show.
    Perhaps,
}

impl Session {
    fn says_release(&self) -> bool {
        words(self.statement_text()).any(|word| word.eq_ignore_ascii_case(RELEASE.as_bytes()))
    }
}

impl ServerConnection {
    /// Whether the server closes this connection behind the statement that it has just answered.
    pub(crate) fn closes(&self, session: &Session) -> Closes {
        let execution = &session.execution;
        if !matches!(execution.plan.kind(), CommandKind::Query | CommandKind::Execute) {
            return Closes::No;
        }
        let has_succeeded = matches!(execution.ending, Ending::Ok { .. });
        if execution.plan.statement().effects.contains(Effects::DISCONNECT) && has_succeeded {
            // COMMIT or ROLLBACK with RELEASE.
            return Closes::Yes;
        }
        let statement = execution.plan.statement();
        let may_hide_more = statement.multi
            || session.input.upload.is_some()
            || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN);
        let ends_transaction = matches!(statement.kind, Kind::Commit | Kind::Rollback);
        let may_close = ends_transaction || statement.kind == Kind::SetStatement || may_hide_more;
        if !may_close || !self.releases_by_default(session) {
            return Closes::No;
        }
        if !ends_transaction || may_hide_more || session.says_release() {
            // With the word it is NO RELEASE, or a comment.
            return Closes::Perhaps;
        }
        if has_succeeded { Closes::Yes } else { Closes::Perhaps }
    }

    fn releases_by_default(&self, session: &Session) -> bool {
        match session.tracked.state.variable("completion_type") {
            Some(value) => value == RELEASE,
            None => self.releases_by_default,
        }
    }
}
